//! `hostler import cm`: takes over the YAML file of the Python cluster manager whose tools `cmrun` and `cminfo` replace.

use std::path::PathBuf;

use clap::Args;
use hostler_model::{parse_bytes, parse_duration, plural};
use hostler_proto::settings::SettingView;
use saphyr_parser::{Event, Parser};
use serde_json::json;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};

/// Import the defaults of jobs from the YAML file of the Python cluster manager
///
/// Prints the changes as commands, makes them, and lists the keys that it does not take over. The command checks the file before
/// the first change. A second import only restores what has changed since. Operators can import.
#[derive(Debug, Args)]
pub(crate) struct Cm {
    /// The YAML file with keys such as default_n_nodes
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Change nothing; print the changes
    #[arg(long)]
    dry_run: bool,
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    Count(&'static str),
    Megabytes(&'static str),
    /// In hours. Zero or a negative number means no limit.
    Hours(&'static str),
    /// Not taken over, because of this.
    None(&'static str),
}

const OWN_CPUS: &str = "nodes report what they have; `hostler node set NAME --cpus N` offers less";
const OWN_MEMORY: &str = "nodes report what they have; `hostler node set NAME --memory SIZE` offers less";
const NO_INTERVAL: &str = "the cluster acts on events, without an interval";
const HEAD: &str = "the head runs no jobs";

/// The keys of the file, as its authors spell them.
const KEYS: [(&str, Meaning); 15] = [
    ("scheduler_lag", Meaning::None(NO_INTERVAL)),
    ("status_lag", Meaning::None(NO_INTERVAL)),
    ("register_retires", Meaning::None("agents never give up")),
    ("register_retry_wait", Meaning::None("agents retry after growing pauses")),
    ("daemon_port", Meaning::None("`hostler head run --listen` sets the head's port, and agents need none")),
    ("num_cpus_per_child", Meaning::None(OWN_CPUS)),
    ("memory_per_child", Meaning::None(OWN_MEMORY)),
    ("num_cpus_per_head", Meaning::None(HEAD)),
    ("memory_per_head", Meaning::None(HEAD)),
    (
        "request_timeout",
        Meaning::None("the settings suspect-after, down-after and lost-after say how long a node may be silent"),
    ),
    ("default_n_nodes", Meaning::Count("default-nodes")),
    ("default_n_procs", Meaning::Count("default-processes")),
    ("default_n_cpu_per_node", Meaning::Count("default-cpus")),
    ("default_mem_per_node", Meaning::Megabytes("default-memory")),
    ("default_time_limit", Meaning::Hours("default-time-limit")),
];

/// The settings that a file asks for, and the keys that are not taken over with the reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    settings: Vec<(&'static str, String)>,
    not_taken: Vec<String>,
}

impl Cm {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file).during(|| format!("cannot read {name}"))?;
        let wanted = wanted(&text).map_err(|mistakes| {
            let failure = Failure::usage(format!("{name} cannot be imported; nothing was changed"));
            mistakes.into_iter().take(20).fold(failure, Failure::hint)
        })?;
        let (client, output) = (context.client()?, &context.output);
        block_on(async {
            let present = client.settings().await?;
            let changes: Vec<_> = wanted.settings.iter().filter(|(name, value)| !has(&present, name, value)).collect();
            let commands: Vec<_> =
                changes.iter().map(|(name, value)| format!("hostler configure setting {name} {value}")).collect();
            for (done, (name, value)) in changes.iter().enumerate().filter(|_| !self.dry_run) {
                client.change_setting(name, Some(value)).await.map_err(|error| {
                    let all = commands.len();
                    let hint = format!("{done} of {all} changes were made; the same command makes the others later");
                    Failure::from(error).hint(format!("the failed change: {}", commands[done])).hint(hint)
                })?;
            }
            if output.is_json() {
                let applied = !self.dry_run;
                output.json(&json!({ "changes": commands, "applied": applied, "not_taken": wanted.not_taken }));
            } else {
                commands.iter().for_each(|command| output.data(command));
            }
            wanted.not_taken.iter().for_each(|key| output.say(&format!("not taken over: {key}")));
            output.say(&match (commands.len(), self.dry_run) {
                (0, _) => "nothing to change".to_owned(),
                (count, true) => format!("{} to make; nothing was changed", plural(count as u64, "change")),
                (count, false) => format!("{} made", plural(count as u64, "change")),
            });
            Ok(exit::OK)
        })
    }
}

/// Whether a setting has a value, perhaps written in another way.
fn has(present: &[SettingView], name: &str, value: &str) -> bool {
    present.iter().filter(|setting| setting.name == name).any(|now| {
        now.value == value
            || matches!((parse_duration(&now.value), parse_duration(value)), (Ok(one), Ok(other)) if one == other)
            || matches!((parse_bytes(&now.value), parse_bytes(value)), (Ok(one), Ok(other)) if one == other)
    })
}

/// Translates a file, or returns all mistakes in it.
fn wanted(text: &str) -> Result<Wanted, Vec<String>> {
    let mut wanted = Wanted::default();
    let mut mistakes = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for (line, key, value) in pairs(text).map_err(|mistake| vec![mistake])? {
        if seen.contains(&key) {
            mistakes.push(format!("line {line}: {key} is there twice"));
        }
        let meaning = KEYS.iter().find(|(name, _)| *name == key).map(|(_, meaning)| *meaning);
        let number = || value.parse::<u32>().ok().filter(|number| *number > 0);
        let parsed = match meaning {
            Some(Meaning::Count(setting)) => {
                number().map(|count| (setting, count.to_string())).ok_or("a whole number above 0")
            }
            Some(Meaning::Megabytes(setting)) => {
                number().map(|size| (setting, format!("{size}M"))).ok_or("a whole number of megabytes above 0")
            }
            Some(Meaning::Hours(setting)) => match value.parse::<f64>() {
                Ok(hours) if hours <= 0.0 => Ok((setting, "none".to_owned())),
                Ok(hours) if hours <= 87_600.0 => Ok((setting, format!("{}s", (hours * 3600.0).ceil() as u64))),
                _ => Err("a number of hours, of at most ten years"),
            },
            Some(Meaning::None(why)) => {
                wanted.not_taken.push(format!("{key}: {why}"));
                seen.push(key);
                continue;
            }
            None => {
                wanted.not_taken.push(format!("{key}: unknown key"));
                seen.push(key);
                continue;
            }
        };
        match parsed {
            Ok(setting) => wanted.settings.push(setting),
            Err(what) => mistakes.push(format!("line {line}: {key} is `{value}`, which is not {what}")),
        }
        seen.push(key);
    }
    if mistakes.is_empty() { Ok(wanted) } else { Err(mistakes) }
}

/// Reads a YAML file that is one flat mapping. Returns the line number, key and value of each entry.
fn pairs(text: &str) -> Result<Vec<(usize, String, String)>, String> {
    let (mut pairs, mut key, mut depth) = (Vec::new(), None, 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| format!("not a YAML file: {error}"))?;
        let line = span.start.line();
        match event {
            Event::MappingStart(..) if depth == 0 && pairs.is_empty() => depth = 1,
            Event::MappingEnd => depth = 0,
            Event::Scalar(text, ..) if depth == 1 => match key.take() {
                None => key = Some(text.into_owned()),
                Some(key) => pairs.push((line, key, text.into_owned())),
            },
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ => return Err(format!("line {line}: only lines such as `default_n_nodes: 1` are understood")),
        }
    }
    if pairs.is_empty() { Err("the file has no keys such as `default_n_nodes: 1`".to_owned()) } else { Ok(pairs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: &str = "\
# The values of the paper
scheduler_lag: 1
status_lag: 5
register_retires: 10
register_retry_wait: 5
daemon_port: 5001
num_cpus_per_child: 2
memory_per_child: 512
num_cpus_per_head: 2
memory_per_head: 512
request_timeout: 100
default_n_nodes: 1
default_n_procs: 1
default_n_cpu_per_node: 1
default_mem_per_node: 100
default_time_limit: 0
";

    #[test]
    fn all_fifteen_keys_of_the_paper_are_known() {
        let wanted = wanted(PAPER).expect("valid");
        let settings: Vec<_> = wanted.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(
            settings,
            [
                "default-nodes 1",
                "default-processes 1",
                "default-cpus 1",
                "default-memory 100M",
                "default-time-limit none"
            ]
        );
        assert_eq!(wanted.not_taken.len(), 10);
        assert!(wanted.not_taken.iter().all(|key| !key.contains("unknown")), "{:?}", wanted.not_taken);
    }

    #[test]
    fn mistakes_and_unknown_keys_are_named() {
        let hours = wanted("default_time_limit: 1.5\ncolour: red\n").expect("valid");
        assert_eq!(hours.settings, [("default-time-limit", "5400s".to_owned())]);
        assert_eq!(hours.not_taken, ["colour: unknown key"]);
        for (text, named) in [
            ("default_n_nodes: many", "line 1: default_n_nodes is `many`, which is not a whole number above 0"),
            ("default_n_nodes: 0", "which is not a whole number"),
            ("default_mem_per_node: -5", "megabytes"),
            ("default_time_limit: soon", "hours"),
            ("default_time_limit: .inf", "hours"),
            ("default_n_nodes: 1\ndefault_n_nodes: 2", "line 2: default_n_nodes is there twice"),
            ("default_n_nodes: [1, 2]", "line 1: only lines such as"),
            ("nodes:\n  default_n_nodes: 1", "line 2: only lines such as"),
            ("- default_n_nodes", "line 1: only lines such as"),
            ("a: 1\n---\nb: 2", "line 3: only lines such as"),
            ("a: &x 1\nb: *x", "line 2: only lines such as"),
            ("", "no keys"),
            ("just words", "only lines such as"),
            ("a: 'open", "not a YAML file: "),
        ] {
            let mistakes = wanted(text).expect_err(text).join("; ");
            assert!(mistakes.contains(named), "{text}: {mistakes}");
        }
    }
}
