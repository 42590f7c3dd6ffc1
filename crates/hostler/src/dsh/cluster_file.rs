//! Reads the cluster file. Each line has a machine and its weights: `name[=address[:port]] [load-weight [memory-weight]]`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use hostler_agent::headless::GOSSIP_PORT;
use hostler_agent::{Machine, Machines, Weight};
use hostler_cli::failure::{During, Failure};
use hostler_model::ParseError;

/// Default path of the cluster file. The file may be missing.
pub(super) const DEFAULT_FILE: &str = "/etc/hostler/dsh.conf";

/// Maximum length of a host name, in bytes.
const NAME_BYTES: usize = 253;

/// Reads the machines from the file `named`, by default from [`DEFAULT_FILE`]. `None` if the default file does not exist.
pub(super) fn read(named: Option<&Path>) -> Result<Option<Machines>, Failure> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    match std::fs::read(path) {
        Ok(bytes) => parse(&bytes).map(Some).map_err(|failure| failure.hint(format!("the file is {}", path.display()))),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).during(|| format!("cannot read the cluster file {}", path.display())),
    }
}

fn parse(bytes: &[u8]) -> Result<Machines, Failure> {
    let mut machines: Vec<Machine> = Vec::new();
    let mut lines = HashMap::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let wrong = |error: ParseError| {
            Failure::new(format!("line {number} of the cluster file is not valid"))
                .because(&error)
                .hint("write a machine as NAME[=ADDRESS[:PORT]] [LOAD-WEIGHT [MEMORY-WEIGHT]], such as: kepler.example 2.0 1.0")
        };
        let Some(machine) = machine(line).map_err(wrong)? else { continue };
        if let Some(before) = lines.insert(machine.name.to_lowercase(), number) {
            return Err(Failure::new(format!(
                "line {number} of the cluster file repeats the machine {} of line {before}",
                machine.name
            ))
            .hint("remove one of the two lines"));
        }
        machines.push(machine);
    }
    if machines.is_empty() {
        return Err(
            Failure::new("the cluster file lists no machine").hint("write one machine per line, or remove the file")
        );
    }
    Ok(Machines::new(machines))
}

/// Parses the machine of a line; `None` for an empty line or a comment.
fn machine(line: &[u8]) -> Result<Option<Machine>, ParseError> {
    let line = str::from_utf8(line).map_err(|_| ParseError::new(&String::from_utf8_lossy(line), "text in UTF-8"))?;
    let line = line.split('#').next().unwrap_or(line);
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else { return Ok(None) };
    let (name, address) = name.split_once('=').map_or((name, None), |(name, address)| (name, Some(address)));
    let machine = Machine {
        name: host_name(name)?.to_owned(),
        address: address.map(socket_address).transpose()?,
        load_weight: words.next().map(str::parse::<Weight>).transpose()?,
        memory_weight: words.next().map(str::parse::<Weight>).transpose()?,
    };
    match words.next() {
        Some(_) => Err(ParseError::new(line.trim(), "a name and at most two weights")),
        None => Ok(Some(machine)),
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, ParseError> {
    let ip = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, GOSSIP_PORT));
    text.parse().or_else(|_| ip()).map_err(|_| ParseError::new(text, "an IP address, with or without a port"))
}

fn host_name(name: &str) -> Result<&str, ParseError> {
    let is_valid = name.len() <= NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_valid { Ok(name) } else { Err(ParseError::new(name, "a host name")) }
}

#[cfg(test)]
mod tests {
    use hostler_agent::Weights;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_line_lists_a_machine() {
        let text = "# ours\nnewton.foo.bar 1.0 1.0\n\n  galileo\t2 0.5 # old\r\nkepler.foo.bar 2.0\nnoether";
        let machines = parse(text.as_bytes()).expect("the text is valid");
        let weights = |node: &str| {
            let node = node.parse().expect("a name");
            machines.find(&node)?;
            let Weights { load, memory } = machines.weights(&node, Weights::default());
            Some(format!("{load} {memory}"))
        };
        let all = ["newton", "galileo", "kepler", "noether", "kepler.foo.bar", "curie"].map(weights);
        let expected = [Some("1 1"), Some("2 0.5"), Some("2 1"), Some("1 1"), Some("2 1"), None];
        assert_eq!(all, expected.map(|weights| weights.map(str::to_owned)));
    }

    #[test]
    fn addresses_follow_names() {
        let text = "a=10.0.0.1\nb=10.0.0.2:99 2\nc=fd00::1 1 1\nd=[fd00::1]:98\ne 1";
        let machines = parse(text.as_bytes()).expect("the text is valid");
        let addresses: Vec<_> = machines.all().iter().map(|machine| machine.address.map(|at| at.to_string())).collect();
        let expected = ["10.0.0.1:7761", "10.0.0.2:99", "[fd00::1]:7761", "[fd00::1]:98"].map(str::to_owned);
        assert_eq!(addresses, expected.map(Some).into_iter().chain([None]).collect::<Vec<_>>());
    }

    #[test]
    fn invalid_lines_are_reported_with_their_number() {
        for (text, number, why) in [
            ("a\nb two\n", 2, "`two` is not a weight"),
            ("\n\n# x\na 1 0\n", 4, "`0` is not a weight"),
            ("a 1 1 1", 1, "`a 1 1 1` is not a name and at most two weights"),
            ("a\nb=there 1", 2, "`there` is not an IP address"),
            ("a=", 1, "an IP address"),
            ("a\n-b\n", 2, "`-b` is not a host name"),
            ("a\nü 1\n", 2, "is not a host name"),
            ("a\nb\nA 2\n", 3, "repeats the machine A of line 1"),
        ] {
            let said = parse(text.as_bytes()).expect_err(text);
            assert!(said.render().contains(&format!("line {number} ")) && said.render().contains(why), "{said:?}");
            assert_eq!(said.exit, hostler_cli::exit::FAILED);
        }
        assert!(parse(b"a\n\xff\xfe 1\n").expect_err("no text").render().contains("line 2"));
        for text in ["", "# nobody\n"] {
            assert!(parse(text.as_bytes()).expect_err(text).render().contains("lists no machine"));
        }
    }

    #[test]
    fn configured_file_must_exist() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let missing = directory.path().join("dsh.conf");
        assert!(read(Some(&missing)).expect_err("missing").render().contains("cannot read the cluster file"));
        std::fs::write(&missing, "a b").expect("writable");
        assert!(read(Some(&missing)).expect_err("wrong").render().contains("dsh.conf"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused_with_a_message(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(failure) = parse(&bytes) {
                prop_assert!(failure.render().len() > 20);
            }
        }

        #[test]
        fn line_like_text_is_parsed_or_refused_with_a_message(text in "([a-z.#-]{0,6}[ \t]{0,2}[0-9.e-]{0,5}[ \t]?[0-9.]{0,4}\r?\n?){0,6}") {
            match parse(text.as_bytes()) {
                Ok(machines) => prop_assert!(machines != Machines::default()),
                Err(failure) => prop_assert!(failure.render().contains("the cluster file")),
            }
        }
    }
}
