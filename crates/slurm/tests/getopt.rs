//! Compares the option parser with the C library's, through the program `getopt`.

#![expect(clippy::disallowed_types, reason = "the test starts the program that it compares with")]

use std::ffi::OsString;
use std::fmt::Write;
use std::process::Command;

use hostler_slurm::getopt::{Opt, Order, Takes, parse};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Options with common prefixes, and with short names that meet in clusters.
const OPTIONS: [Opt<&str>; 12] = [
    option("ntasks", Some(b'n'), Takes::Value),
    option("ntasks-per-node", None, Takes::Value),
    option("nodes", Some(b'N'), Takes::Value),
    option("nodelist", Some(b'w'), Takes::Value),
    option("no-requeue", None, Takes::Nothing),
    option("requeue", None, Takes::Nothing),
    option("jobs", Some(b'j'), Takes::Attached),
    option("job-name", Some(b'J'), Takes::Value),
    option("hold", Some(b'H'), Takes::Nothing),
    option("noheader", Some(b'h'), Takes::Nothing),
    option("exclusive", None, Takes::Attached),
    option("format", Some(b'o'), Takes::Value),
];

const fn option(long: &'static str, short: Option<u8>, takes: Takes) -> Opt<&'static str> {
    Opt { key: long, long, short, takes }
}

/// Words of which arguments are made.
fn argument() -> impl Strategy<Value = String> {
    let name = prop::sample::select(
        OPTIONS.iter().flat_map(|it| (1..=it.long.len()).map(|end| &it.long[..end])).collect::<Vec<_>>(),
    );
    prop_oneof![
        3 => name.clone().prop_map(|name| format!("--{name}")),
        3 => (name, "[a-z0-9,=]{0,4}").prop_map(|(name, value)| format!("--{name}={value}")),
        4 => "-[nNwjJHhoxz]{1,4}[0-9=]{0,2}",
        2 => "[a-z0-9 =]{0,5}",
        1 => Just("--".to_owned()),
        1 => Just("-".to_owned()),
        1 => "--[a-z=-]{0,6}",
    ]
}

/// Parses with the C library: returns the options, their values and the operands, or the message. Values and operands are
/// in quotes.
fn peer(order: Order, arguments: &[String]) -> Result<String, String> {
    let colons = |takes| ["", ":", "::"][takes as usize];
    let shorts = OPTIONS.iter().filter_map(|it| Some(format!("{}{}", char::from(it.short?), colons(it.takes))));
    let longs = OPTIONS.iter().map(|it| format!("{}{}", it.long, colons(it.takes))).collect::<Vec<_>>();
    let order = if order == Order::StopAtOperand { "+" } else { "" };
    let output = Command::new("getopt")
        .args(["-n", "name", "-o", &format!("{order}{}", shorts.collect::<String>()), "-l", &longs.join(",")])
        .arg("--")
        .args(arguments)
        .env_remove("POSIXLY_CORRECT")
        .env("LC_ALL", "C")
        .output()
        .expect("`getopt` runs");
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).expect("the arguments are text").trim_end().to_owned())
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(text.lines().next().expect("there is a message").to_owned())
    }
}

/// Parses with our parser, and writes the result as the program `getopt` does.
fn ours(order: Order, arguments: &[String]) -> Result<String, String> {
    let parsed =
        parse(&OPTIONS, order, arguments.iter().map(OsString::from)).map_err(|mistake| format!("name: {mistake}"))?;
    let mut text = String::new();
    for (key, value) in parsed.options {
        write!(text, " --{key}").expect("text grows");
        let is_optional = OPTIONS.iter().any(|it| it.long == key && it.takes == Takes::Attached);
        match value {
            Some(value) => write!(text, " '{}'", value.display()).expect("text grows"),
            None if is_optional => text.push_str(" ''"),
            None => {}
        }
    }
    text.push_str(" --");
    for operand in parsed.operands {
        write!(text, " '{}'", operand.display()).expect("text grows");
    }
    Ok(text)
}

/// Writes short options by their long names, since the program `getopt` keeps short ones.
fn by_long_name(text: &str) -> String {
    // Every second part is in quotes.
    let parts = text.split('\'').enumerate().map(|(at, part)| match at % 2 {
        0 => part.split(' ').map(long_name).collect::<Vec<_>>().join(" "),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("'")
}

fn long_name(word: &str) -> String {
    let option = match word.as_bytes() {
        [b'-', short] => OPTIONS.iter().find(|it| it.short == Some(*short)),
        _ => None,
    };
    option.map_or_else(|| word.to_owned(), |it| format!("--{}", it.long))
}

#[test]
fn command_lines_mean_what_they_mean_to_the_c_library() {
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let order = prop_oneof![Just(Order::Permute), Just(Order::StopAtOperand)];
    runner
        .run(&(order, prop::collection::vec(argument(), 0..5)), |(order, arguments)| {
            let theirs = peer(order, &arguments).map(|text| by_long_name(&text));
            prop_assert_eq!(ours(order, &arguments), theirs, "{:?}", arguments);
            Ok(())
        })
        .expect("both parsers agree");
}
