//! Improves errors of clap: adds tips for command names of other tools and for missing arguments, and removes the names
//! of hidden commands and far guesses.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Adds a tip to the error of the command line `args`, if one is known, and removes what clap only guesses.
pub(crate) fn with_tip(mut error: Error, args: &[OsString], definition: &Command) -> Error {
    let tip = command_alone(&error, args, definition).or_else(|| known_tip(&error).map(str::to_owned));
    if let Some(tip) = tip {
        error.remove(ContextKind::TrailingArg);
        error.remove(ContextKind::SuggestedSubcommand);
        if tip != OWN_ARGUMENTS {
            // What clap thinks similar does something else.
            error.remove(ContextKind::SuggestedArg);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    } else if error.kind() == ErrorKind::UnknownArgument && !takes_program(&error) {
        // clap's advice to write `--` is right only where a program's arguments follow.
        error.remove(ContextKind::Suggested);
    }
    without_guesses(error)
}

fn known_tip(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(error, ContextKind::InvalidSubcommand)?;
            if is_usage_of(error, "[OPTIONS]") { command_tip(word) } else { subcommand_tip(error, word) }
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::UnknownArgument => unknown(error, text(error, ContextKind::InvalidArg)?),
        _ => None,
    }
}

/// The tip for what other tools write as `job cancel 1` or `task list`, and for `jobs 12`.
fn command_alone(error: &Error, args: &[OsString], definition: &Command) -> Option<String> {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let ["job" | "jobs" | "task" | "tasks" | "queue", command, rest @ ..] = words.as_slice() else { return None };
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        return None;
    }
    if words[0] == "jobs" && command.starts_with(|first: char| first.is_ascii_digit()) {
        return Some(format!("`hostler job {command}` shows one job"));
    }
    let is_command = definition.find_subcommand(command).is_some_and(|it| !it.is_hide_set());
    if !is_command {
        return command_tip(command).map(str::to_owned);
    }
    let line: Vec<&str> = ["hostler", command].into_iter().chain(rest.iter().copied()).collect();
    Some(format!("commands for jobs stand alone: `{}`", line.join(" ")))
}

/// Removes suggestions of clap that are no misspelling of the word: for words of other tools, clap suggests commands that do
/// something else, such as `cancel` for `clean`.
fn without_guesses(mut error: Error) -> Error {
    for (given, kind) in [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    ] {
        let Some(word) = text(&error, given).map(str::to_owned) else { continue };
        let is_meant = |name: &String| {
            let (word, name) = (word.trim_start_matches('-'), name.trim_start_matches('-'));
            strsim::osa_distance(word, name) <= (word.chars().count() / 3).max(1)
        };
        match error.get(kind) {
            Some(ContextValue::String(name)) if !is_meant(name) => _ = error.remove(kind),
            Some(ContextValue::Strings(names)) => {
                let meant: Vec<String> = names.iter().filter(|name| is_meant(name)).cloned().collect();
                replace(&mut error, kind, meant);
            }
            _ => {}
        }
    }
    error
}

/// Sets a list of names in the error, or removes it if it is empty.
fn replace(error: &mut Error, kind: ContextKind, names: Vec<String>) {
    if names.is_empty() {
        error.remove(kind);
        remove_empty_tips(error);
    } else {
        error.insert(kind, ContextValue::Strings(names));
    }
}

/// Whether the command takes a program with its arguments.
fn takes_program(error: &Error) -> bool {
    ["run", "submit", "exec", "alloc", "measure", "step"].into_iter().any(|command| is_usage_of(error, command))
}

/// Removes the names of hidden commands of `definition` from the suggestions and lists of the error.
pub(crate) fn without_hidden(mut error: Error, definition: &Command) -> Error {
    let hidden = hidden_commands(definition);
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::ValidSubcommand] {
        let Some(ContextValue::Strings(names)) = error.get(kind) else { continue };
        let visible: Vec<String> = names.iter().filter(|name| !hidden.contains(&name.as_str())).cloned().collect();
        replace(&mut error, kind, visible);
    }
    error
}

/// Removes an empty list of tips, for which clap prints a blank line if the error suggests no command.
fn remove_empty_tips(error: &mut Error) {
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
        && tips.is_empty()
    {
        error.remove(ContextKind::Suggested);
    }
}

/// The names of all hidden commands below `command`.
fn hidden_commands(command: &Command) -> Vec<&str> {
    let mut names = Vec::new();
    for sub in command.get_subcommands() {
        if sub.is_hide_set() {
            names.push(sub.get_name());
        } else {
            names.extend(hidden_commands(sub));
        }
    }
    names
}

fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

/// The tip for a name below a command, where what clap thinks similar may be the opposite.
fn subcommand_tip(error: &Error, word: &str) -> Option<&'static str> {
    let is_of = |command| is_usage_of(error, command);
    Some(match word {
        "undrain" | "enable" | "online" | "undraining" if is_of("node") => "`hostler node resume` ends a drain",
        "disable" | "offline" | "cordon" if is_of("node") => {
            "`hostler node drain` lets a node finish its jobs and take no others"
        }
        "delete" | "del" | "rm" if is_of("node") => "`hostler node remove` removes a node from the cluster",
        "delete" | "del" | "rm" if is_of("configure user") => "`hostler configure user remove` removes a user",
        "delete" | "del" | "rm" if is_of("configure partition") => {
            "`hostler configure partition remove` removes a partition"
        }
        _ => return None,
    })
}

/// The tip for a command name of another tool, such as Slurm, pueue or HyperQueue.
fn command_tip(word: &str) -> Option<&'static str> {
    Some(match word {
        "ps" | "ls" | "list" | "queue" | "squeue" => "`hostler jobs` lists jobs",
        "task" | "tasks" | "show" | "describe" => "`hostler job 12` shows a job, `hostler job 12_3` a task of an array",
        "status" | "top" | "sinfo" => {
            "`hostler info` shows the cluster, `hostler jobs` all jobs, `hostler job ID` one job"
        }
        "stat" | "stats" | "usage" | "accounting" | "sacct" | "sstat" => {
            "`hostler job ID` shows what a job used, `hostler history` what ended jobs used, `hostler info` the cluster"
        }
        "start" | "create" => {
            "`hostler up` starts a cluster on this machine, `hostler submit` and `hostler run` start a job"
        }
        "stop" | "shutdown" => "`hostler down` stops the cluster on this machine, `hostler cancel` ends a job",
        "kill" | "scancel" | "abort" | "terminate" => "`hostler cancel` ends jobs",
        "rm" | "delete" | "del" | "remove" | "clean" | "purge" | "prune" | "reset" | "forget" | "clear" => {
            "`hostler cancel` ends jobs; ended jobs are deleted after the time in the setting `retention`"
        }
        "pause" | "stash" | "suspend" => "`hostler hold` keeps waiting jobs from starting",
        "resume" | "unpause" | "enqueue" | "unhold" => {
            "`hostler release` lets held jobs start, `hostler node resume` ends a drain"
        }
        "priority" | "prio" | "nice" | "switch" => "`hostler update JOB --priority N` sets the priority of a job",
        "edit" | "modify" | "alter" | "change" | "scontrol" => "`hostler update` changes a job",
        "restart" | "retry" | "rerun" | "resubmit" => "`hostler requeue` runs jobs again",
        "send" => "`hostler signal` sends a signal to a job",
        "parallel" | "group" => "`hostler configure partition` and `hostler configure quota` limit what jobs use",
        "get" | "download" | "results" | "result" => "`hostler fetch` downloads results",
        "output" | "log" | "tail" | "cat" | "output-log" | "stdout" | "stderr" => {
            "`hostler logs` shows what jobs write"
        }
        "follow" | "watch" => "`hostler logs -f` follows the output of a job, `hostler top` shows all jobs",
        "explain" => "`hostler why` explains why a job waits",
        "add" | "exec" | "sbatch" | "srun" => {
            "`hostler run` queues a command and shows its output, `hostler submit` queues a project folder"
        }
        "salloc" => "`hostler alloc` reserves nodes for commands",
        "slurm" => "`hostler import slurm` reads the settings of a Slurm cluster",
        "join" => "`hostler agent join` makes this machine a node of a cluster",
        "worker" | "workers" => "`hostler nodes` lists the nodes, `hostler agent` runs on each of them",
        "invite" | "drain" => "commands for nodes begin with `hostler node`; its --help lists them",
        "init" | "setup" | "server" => {
            "`hostler head init` sets up the head of a cluster, `hostler up` a cluster on this machine alone"
        }
        "user" | "users" | "setting" | "settings" | "config" | "set" | "sacctmgr" => {
            "`hostler configure` manages users and settings"
        }
        _ => return None,
    })
}

/// The tip for an argument that may be one of the job's program.
const OWN_ARGUMENTS: &str =
    "write the program's own arguments after `--`, e.g. `hostler submit . main.py -- --epochs 3`";

/// The tip for an argument that the command does not know: an option of another tool, or an argument of the job's program.
fn unknown(error: &Error, word: &str) -> Option<&'static str> {
    let submits = is_usage_of(error, "submit");
    let starts_jobs = submits || is_usage_of(error, "run");
    Some(match word.split('=').next().unwrap_or(word) {
        "--queue" if starts_jobs => "`-p NAME` is the partition of a job",
        "--exclude" if starts_jobs => "`--constraint '!n1'` keeps a job off node n1",
        "--nodelist" | "--node" | "--on" | "--host" if starts_jobs => "`--constraint 'n1|n2'` names the nodes of a job",
        "--retries" | "--retry" | "--max-retries" if starts_jobs => {
            "`--requeue` runs a job again if its node is lost; `hostler requeue --state failed` runs failed jobs again"
        }
        "--requirements" | "--pip" | "--packages" if submits => {
            "packages are read from the folder: list them in its requirements.txt or pyproject.toml"
        }
        "--requirements" | "--pip" | "--packages" if starts_jobs => {
            "`hostler submit` builds the environment of a folder that has a requirements.txt or pyproject.toml"
        }
        "--mail-user" | "--mail-type" | "--email" | "--mail" if starts_jobs => {
            "`--notify mail:ADDRESS` sends mail about a job"
        }
        "--mem" | "--ram" | "--mem-per-node" if starts_jobs => "`-m 4G` is the memory on each node",
        "--ntasks" | "--np" if starts_jobs => {
            "`-n 4` is the number of processes on each node, `-N 2` the number of nodes"
        }
        "--cpus-per-task" | "--cores" | "--threads" | "--num-cpus" if starts_jobs => {
            "`-c 4` is the number of CPUs on each node"
        }
        "--gres" | "--num-gpus" if starts_jobs => "`-g 1` is the number of GPUs on each node",
        "--dependency" | "--depends" if starts_jobs => "`--after 12` starts a job after job 12",
        "--walltime" | "--timeout" | "--time-limit" if starts_jobs => "`-t 2h` is the time limit",
        "--job-name" if starts_jobs => "`--name` is the name of a job",
        "--output" | "--error" | "-o" | "-e" if starts_jobs => {
            "`hostler logs` prints the output of a job, and `hostler fetch` brings it as stdout.log and stderr.log"
        }
        "--watch" | "-w" if is_usage_of(error, "jobs") => "`hostler top` shows jobs as they change",
        "--all" if is_usage_of(error, "wait") => {
            "name the jobs, e.g. `hostler wait 12-20`, or `last` for your newest job"
        }
        "--force" | "-f" if is_usage_of(error, "cancel") => "`--yes` answers the question",
        _ if submits => OWN_ARGUMENTS,
        _ if starts_jobs && word[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            "this option takes no negative number"
        }
        _ => return None,
    })
}

/// The tip for a missing argument.
fn missing(error: &Error) -> Option<&'static str> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    match missing.as_slice() {
        [one] if one == "<PROJECT>" => {
            Some("name the folder, then the program in it, e.g. `hostler submit . main.py` for this folder")
        }
        [one] if one == "<JOB>..." && is_usage_of(error, "fetch") => {
            Some("`hostler fetch --all` downloads all results that were not fetched before")
        }
        _ => None,
    }
}

fn is_usage_of(error: &Error, command: &str) -> bool {
    match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string().contains(&format!("hostler {command} ")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hostler_cli::global_options::not_text;

    use super::*;
    use crate::args::{Arguments, definition};

    fn said(line: &str) -> String {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let error = Arguments::of(&args).expect_err(line);
        with_tip(without_hidden(error, &definition()), &args, &definition()).to_string()
    }

    #[test]
    fn commands_about_usage_are_answered_with_the_right_commands() {
        for word in ["stats", "stat", "usage", "accounting", "sacct"] {
            let said = said(&format!("hostler {word}"));
            assert!(said.contains("`hostler job ID` shows what a job used"), "{said}");
            assert!(!said.contains("steps") && !said.contains("seat"), "{said}");
        }
    }

    #[test]
    fn errors_do_not_name_hidden_commands() {
        let definition = definition();
        let hidden = hidden_commands(&definition);
        assert!(["session-leader", "steps", "guard"].iter().all(|name| hidden.contains(name)), "{hidden:?}");
        let gateway = definition.find_subcommand("gateway").expect("a command of hostler");
        let listed = said("hostler --json");
        assert!(listed.contains("[subcommands: demo, up,"), "{listed}");
        for name in hidden {
            let parent = if gateway.find_subcommand(name).is_some() { "hostler gateway" } else { "hostler" };
            let suggested = said(&format!("{parent} {name}x"));
            assert!(!suggested.contains(&format!("'{name}'")), "{suggested}");
            assert!(!listed.contains(&format!(" {name},")), "{name}: {listed}");
        }
        let without = said("hostler sesion-leader");
        assert!(!without.contains("tip:") && !without.contains("\n\n\n"), "{without}");
    }

    #[test]
    fn only_commands_with_a_program_are_told_to_write_two_dashes() {
        for line in ["hostler logs 1 --tail 3", "hostler wait 3 --timeout 5", "hostler jobs -4"] {
            assert!(!said(line).contains("use '-- "), "{}", said(line));
        }
        assert!(said("hostler run --frobnicate ls").contains("use '-- --frobnicate'"));
    }

    #[test]
    fn argument_that_is_not_text_is_named() {
        let raw = |bytes: &[u8]| -> OsString { std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec()) };
        for (before, argument, expected) in
            [(&["run", "--name"][..], &b"caf\xe9"[..], r"caf\xE9"), (&["wait"], b"a\nb\x80", r"a\nb\x80")]
        {
            let words = ["hostler"].iter().chain(before).map(OsString::from).chain([raw(argument)]);
            let words: Vec<OsString> = words.collect();
            let error = Arguments::try_parse_from(&words).expect_err("not text");
            let failure = not_text(&error, &words).expect(expected);
            assert_eq!(failure.summary(), format!("the argument \"{expected}\" is not UTF-8 text"));
            assert!(failure.render().contains("rename the file"), "{}", failure.render());
        }
        let words = ["hostler", "frobnicate"].map(OsString::from);
        let other = Arguments::try_parse_from(&words).expect_err("no such command");
        assert_eq!(not_text(&other, &words), None);
    }

    #[test]
    fn command_names_of_other_tools_get_a_tip() {
        for (line, tip) in [
            ("hostler node undrain n1", "tip: `hostler node resume`"),
            ("hostler node delete n1", "tip: `hostler node remove`"),
            ("hostler submit --queue=x . main.py", "tip: `-p NAME`"),
            ("hostler run -c -1 true", "no negative number"),
            ("hostler status", "tip: `hostler info`"),
            ("hostler kill 3", "tip: `hostler cancel`"),
            ("hostler join x", "tip: `hostler agent join`"),
            ("hostler submitt", "tip: a similar subcommand exists: 'submit'"),
            ("hostler jbs", "tip: a similar subcommand exists: 'jobs'"),
            ("hostler help jbs", "tip: a similar subcommand exists: 'jobs'"),
            ("hostler help node drian", "tip: a similar subcommand exists: 'drain'"),
            ("hostler help pause", "tip: `hostler hold`"),
            ("hostler pause 1", "tip: `hostler hold`"),
            ("hostler resume 1", "tip: `hostler release`"),
            ("hostler priority 1 5", "tip: `hostler update JOB --priority N`"),
            ("hostler slurm import f", "tip: `hostler import slurm`"),
            ("hostler output-log 1", "tip: `hostler logs`"),
            ("hostler delete 83", "ended jobs are deleted after the time in the setting `retention`"),
            ("hostler clean", "ended jobs are deleted"),
            ("hostler job cancel 1", "tip: commands for jobs stand alone: `hostler cancel 1`"),
            ("hostler task wait 1 --each", "`hostler wait 1 --each`"),
            ("hostler job kill 1", "tip: `hostler cancel` ends jobs"),
            ("hostler worker list", "tip: `hostler nodes`"),
            ("hostler jobs 30", "tip: `hostler job 30` shows one job"),
            ("hostler jobs --watch", "tip: `hostler top`"),
            ("hostler wait --all", "tip: name the jobs"),
        ] {
            assert!(said(line).contains(tip), "{line}: {}", said(line));
        }
        for line in ["hostler --verbose jobs", "hostler wait 1 --al", "hostler cleanse", "hostler updater-daemon"] {
            let said = said(line);
            assert!(!said.contains("similar") && !said.contains("\n\n\n"), "far guesses are left out: {said}");
        }
        assert!(!said("hostler frobnicate").contains("tip:"), "an unknown word has no tip");
    }

    #[test]
    fn options_of_other_tools_get_the_tip_that_helps() {
        for (line, tip) in [
            ("hostler submit . main.py --retries 3", "`hostler requeue --state failed`"),
            ("hostler submit . main.py --exclude n1", "--constraint '!n1'"),
            ("hostler submit . main.py --requirements r.txt", "requirements.txt or pyproject.toml"),
            ("hostler submit . python main.py", "after `--`"),
            ("hostler submit . main.py arg1", "after `--`"),
            ("hostler submit . main.py --epochs 3", "after `--`"),
            ("hostler run --mail-user me@uni.example true", "--notify mail:"),
            ("hostler run --mem=4G true", "`-m 4G`"),
            ("hostler run --cores 3 true", "`-c 4`"),
        ] {
            let said = said(line);
            assert!(said.contains("tip: ") && said.contains(tip), "{line}: {said}");
            assert!(line.contains("--epochs") || !said.contains("a similar argument"), "{line}: {said}");
        }
        for (line, part) in [
            ("hostler run -c 0 true", "the smallest value is 1"),
            ("hostler run -a 0-99999999 true", "array indices of at most 1,000,000"),
            ("hostler run --notify me@uni.example true", "write mail:me@uni.example"),
        ] {
            assert!(said(line).contains(part), "{line}: {}", said(line));
        }
        let similar = said("hostler run --memmory 4G true");
        assert!(similar.contains("a similar argument exists: '--memory'"), "{similar}");
    }

    #[test]
    fn missing_argument_gets_a_tip_with_an_example() {
        assert!(said("hostler submit").contains("tip: name the folder"), "{}", said("hostler submit"));
        assert!(said("hostler fetch").contains("tip: `hostler fetch --all`"), "{}", said("hostler fetch"));
        assert!(!said("hostler cancel").contains("tip:"), "{}", said("hostler cancel"));
    }
}
