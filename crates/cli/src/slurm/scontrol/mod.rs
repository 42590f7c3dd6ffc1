//! `scontrol`: shows jobs, nodes and partitions, and changes some of them.

mod actions;
mod assoc_mgr;
mod config;
mod hosts;
mod record;
mod show_job;
mod show_node;
mod show_partition;
mod update;
mod update_job;

use std::ffi::OsString;
use std::io::BufRead;

use hostler_client::{Client, ClientError};
use hostler_proto::api::JobAction;
use hostler_slurm::getopt::Takes::{Attached, Nothing, Value};

use super::clock::Clock;
use super::options::{self, Setter, checked, flag, nothing, prints, version};
use super::{Ended, Line, Outcome, Refused, check_clusters, print, tell};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "scontrol";

const USAGE: &str = "Usage: scontrol [OPTIONS...] [COMMAND...]\n\
    \n\
    Without a command, scontrol reads commands from standard input. Commands:\n\
    \x20 show ENTITY[=ID]      ENTITY: config, daemons, hostlist, hostlistsorted, hostnames, job, licenses, node,\n\
    \x20                       partition, reservation, step or topology\n\
    \x20 update NAME=VALUE...  change a job (JobId=), a node (NodeName=) or a partition (PartitionName=)\n\
    \x20 create NAME=VALUE...  add a partition (PartitionName=)\n\
    \x20 delete NAME=VALUE     remove a partition (PartitionName=)\n\
    \x20 hold, uhold, release ID...\n\
    \x20 requeue, requeuehold ID...\n\
    \x20 ping, version, help, exit, quit\n\
    Options:\n\
    \x20 -o, --oneliner        print each record on one line\n\
    \x20 -Q, --quiet           print no error messages\n\
    \x20     --json            print records as JSON\n\
    \x20 -V, --version         print the version\n";

const OPTIONS: &[Setter<Given>] = &[
    nothing("all", "a", Nothing),
    checked("clusters", "M", Value, |_, list| list.map_or(Ok(()), check_clusters)),
    flag("details", "d", |given| given.details = true),
    nothing("federation", "", Nothing),
    nothing("future", "F", Nothing),
    prints("help", "h", || USAGE.to_owned()),
    nothing("hide", "", Nothing),
    checked("json", "", Attached, set_json),
    nothing("local", "", Nothing),
    flag("oneliner", "o", |given| given.one_line = true),
    flag("quiet", "Q", |given| given.quiet = true),
    nothing("sibling", "", Nothing),
    nothing("uid", "u", Value),
    prints("usage", "", || USAGE.to_owned()),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
    checked("yaml", "", Attached, set_json),
];

fn set_json(given: &mut Given, _: Option<&str>) -> Result<(), Ended> {
    given.json = true;
    Ok(())
}

/// The options as they were given.
#[derive(Default)]
struct Given {
    details: bool,
    one_line: bool,
    quiet: bool,
    json: bool,
}

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Delete,
    Details,
    /// A command that this cluster cannot run, with what to do instead.
    Disabled(&'static str),
    Exit,
    Help,
    Hold,
    HoldForOwner,
    OneLine,
    Ping,
    Quiet,
    Release,
    Requeue,
    RequeueHold,
    Show,
    Suspend,
    Update,
    Version,
    WriteScript,
}

/// Each command by its name, with the length of its shortest abbreviation. The first that suits counts.
const VERBS: &[(Verb, &str, usize)] = &[
    (Verb::Disabled(POWER), "cancel_reboot", 3),
    (Verb::Create, "create", 2),
    (Verb::Delete, "delete", 3),
    (Verb::Details, "details", 3),
    (Verb::Exit, "exit", 2),
    (Verb::Help, "help", 2),
    (Verb::HoldForOwner, "holdu", 5),
    (Verb::Hold, "hold", 3),
    (Verb::HoldForOwner, "uhold", 2),
    (Verb::Disabled("`scancel --signal` sends a signal"), "notify", 1),
    (Verb::OneLine, "oneliner", 1),
    (Verb::Ping, "ping", 3),
    (Verb::Quiet, "quiet", 4),
    (Verb::Exit, "quit", 4),
    (Verb::Disabled(POWER), "reboot", 3),
    (Verb::Disabled("there is no slurm.conf; settings count at once"), "reconfigure", 3),
    (Verb::Release, "release", 3),
    (Verb::RequeueHold, "requeuehold", 10),
    (Verb::Requeue, "requeue", 3),
    (Verb::Suspend, "resume", 3),
    (Verb::Show, "show", 3),
    (Verb::Suspend, "suspend", 2),
    (Verb::Disabled("`scontrol update JobId=ID Nice=N` lowers the priority of other jobs"), "top", 3),
    (Verb::Update, "update", 1),
    (Verb::Version, "version", 4),
    (Verb::Disabled("`hostler wait ID` waits for the end of a job"), "wait_job", 4),
    (Verb::WriteScript, "write", 5),
];

const POWER: &str = "`hostler node power NODE cycle` restarts a node";

/// What a `show` command can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entity {
    Config,
    Daemons,
    HostList,
    HostListSorted,
    HostNames,
    Job,
    Licenses,
    Node,
    Partition,
    Reservation,
    Step,
    Topology,
}

const ENTITIES: &[(Entity, &str, usize)] = &[
    (Entity::Config, "config", 1),
    (Entity::Daemons, "daemons", 1),
    (Entity::HostListSorted, "hostlistsorted", 9),
    (Entity::HostList, "hostlist", 5),
    (Entity::HostNames, "hostnames", 5),
    (Entity::Job, "jobs", 1),
    (Entity::Job, "jobid", 4),
    (Entity::Licenses, "licenses", 2),
    (Entity::Node, "nodes", 1),
    (Entity::Partition, "partitions", 1),
    (Entity::Reservation, "reservations", 1),
    (Entity::Step, "steps", 1),
    (Entity::Topology, "topology", 1),
];

/// Finds what a word abbreviates, in upper or lower case.
fn find<T: Copy>(all: &[(T, &str, usize)], word: &str) -> Option<T> {
    let word = word.to_ascii_lowercase();
    let suits = |(_, name, least): &&(T, &str, usize)| word.len() >= *least && name.starts_with(&word);
    all.iter().find(suits).map(|(found, ..)| *found)
}

/// The state of one run of `scontrol`.
struct Session<'a> {
    context: &'a Context,
    details: bool,
    one_line: bool,
    quiet: bool,
    json: bool,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut given = Given::default();
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    let Given { details, one_line, quiet, json } = given;
    let mut session = Session { context, details, one_line, quiet, json };
    let words: Vec<String> = operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.is_empty() {
        return session.read_commands();
    }
    session.execute(&words).or_else(|ended| if session.quiet { Ok(ended.code) } else { Err(ended) })
}

impl Session<'_> {
    /// Reads commands from standard input until its end.
    fn read_commands(&mut self) -> Outcome {
        let mut code = 0;
        let mut last: Vec<String> = Vec::new();
        let stdin = std::io::stdin();
        loop {
            print(self.context, "scontrol: ");
            let mut line = String::new();
            // Text that is not UTF-8 ends the input.
            if stdin.lock().read_line(&mut line).unwrap_or(0) == 0 {
                print(self.context, "\n");
                return Ok(code);
            }
            let words = split(&line);
            let words = if words.first().is_some_and(|word| word == "!!") { last.clone() } else { words };
            let Some(first) = words.first() else { continue };
            if find(VERBS, first) == Some(Verb::Exit) {
                return Ok(code);
            }
            last.clone_from(&words);
            match self.execute(&words) {
                Ok(0) => {}
                Ok(failed) => code = failed,
                Err(ended) => code = self.show(ended),
            }
        }
    }

    /// Prints why a command has failed, and returns its exit code.
    fn show(&self, Ended { lines, code }: Ended) -> u8 {
        for line in lines.into_iter().filter(|_| !self.quiet) {
            match line {
                Line::Named(text) => tell(self.context, NAME, &[text]),
                Line::Plain(text) => self.complain(&text),
                Line::Asked(text) => {
                    print(self.context, &text);
                }
            }
        }
        code
    }

    /// Prints a line on stderr, unless the user wants none.
    fn complain(&self, line: &str) {
        if !self.quiet {
            self.context.output.say(line);
        }
    }

    fn print(&self, text: &str) -> Outcome {
        Ok(print(self.context, text))
    }

    fn execute(&mut self, words: &[String]) -> Outcome {
        let [word, rest @ ..] = words else { return Ok(0) };
        let verb = find(VERBS, word).ok_or_else(|| Ended::plain(format!("invalid keyword: {word}")))?;
        let too_few = || Ended::plain(format!("too few arguments for keyword:{word}"));
        match verb {
            Verb::Show
            | Verb::Requeue
            | Verb::RequeueHold
            | Verb::Hold
            | Verb::HoldForOwner
            | Verb::Release
            | Verb::Suspend
                if rest.is_empty() =>
            {
                Err(too_few())
            }
            Verb::Update | Verb::Create | Verb::Delete if rest.is_empty() => {
                Err(Ended::plain(format!("too few arguments for {word} keyword")))
            }
            Verb::Ping if !rest.is_empty() => Err(Ended::plain(format!("too many arguments for keyword:{word}"))),
            Verb::Show => self.show_entity(rest),
            Verb::Update => self.update(rest),
            Verb::Create => self.create(rest),
            Verb::Delete => self.delete(rest),
            Verb::Hold => self.hold(rest, JobAction::Hold),
            Verb::HoldForOwner => self.hold(rest, JobAction::HoldForOwner),
            Verb::Release => self.release(rest),
            Verb::Requeue => self.requeue(rest, false),
            Verb::RequeueHold => self.requeue(rest, true),
            Verb::Suspend => {
                self.refuse(rest, "jobs cannot be suspended; `scontrol hold` keeps waiting jobs from starting")
            }
            Verb::Ping => self.ping(),
            Verb::Version => self.print(&version()),
            Verb::Help => self.print(USAGE),
            Verb::WriteScript => self.write_script(rest),
            Verb::Details => self.set(|session| &mut session.details),
            Verb::OneLine => self.set(|session| &mut session.one_line),
            Verb::Quiet => self.set(|session| &mut session.quiet),
            Verb::Exit => Ok(0),
            Verb::Disabled(hint) => {
                Err(Ended::plain(format!("scontrol_{word} error: {DISABLED}")).and(format!("hint: {hint}")))
            }
        }
    }

    /// Sets an option for the commands that follow.
    fn set(&mut self, option: fn(&mut Self) -> &mut bool) -> Outcome {
        *option(self) = true;
        Ok(0)
    }

    fn show_entity(&mut self, rest: &[String]) -> Outcome {
        if let [word, conditions @ ..] = rest
            && word.len() > 1
            && "assoc_mgr".starts_with(&word.to_ascii_lowercase())
        {
            return self.show_assoc_mgr(conditions);
        }
        let (word, id) = match rest {
            [word] => word.split_once('=').map_or((word.as_str(), None), |(word, id)| (word, Some(id))),
            [word, id] => (word.as_str(), Some(id.as_str())),
            _ => return Err(Ended::plain("too many arguments for keyword:show")),
        };
        let id = id.filter(|id| !id.is_empty());
        let unknown = || Ended::plain(format!("invalid entity:{word} for keyword:show "));
        match find(ENTITIES, word).ok_or_else(unknown)? {
            Entity::Job => self.show_jobs(id),
            Entity::Step => self.show_steps(id),
            Entity::Node => self.show_nodes(id),
            Entity::Partition => self.show_partitions(id),
            Entity::Config => self.show_config(),
            Entity::HostNames => self.show_host_names(id),
            Entity::HostList => self.show_host_list(id, false),
            Entity::HostListSorted => self.show_host_list(id, true),
            Entity::Daemons => self.print("slurmctld slurmd\n"),
            Entity::Licenses => self.print("No licenses configured in Slurm.\n"),
            Entity::Reservation => match id {
                None => self.print("No reservations in the system\n"),
                Some(name) => self.not_found(&format!("Reservation {name} not found")),
            },
            Entity::Topology => {
                self.complain(&format!("{NAME}: error: No topology information available"));
                Ok(0)
            }
        }
    }

    /// Says on standard output, as Slurm does, that an entity does not exist.
    fn not_found(&self, text: &str) -> Outcome {
        if !self.quiet {
            print(self.context, &format!("{text}\n"));
        }
        Ok(1)
    }

    /// Calls the head. `what` is what the error message calls it.
    fn ask<T>(&self, what: &str, call: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> Result<T, Ended> {
        let client = self.context.client()?;
        block_on(async { Ok(call(&client).await) })?.map_err(|error| super::unreadable(what, error))
    }

    fn clock(&self, what: &str) -> Result<Clock, Ended> {
        self.ask(what, async |client| Clock::of_head(client).await)
    }

    fn ping(&self) -> Outcome {
        let client = self.context.quiet_client()?;
        let info = block_on(async { Ok(client.info().await) })?;
        let (host, state) = match &info {
            Ok(info) => (info.head.machine.as_ref().map(|machine| machine.name.clone()), "UP"),
            Err(_) => (None, "DOWN"),
        };
        let host = host.unwrap_or_else(config::own_host);
        print(self.context, &format!("Slurmctld(primary) at {host} is {state}\n"));
        Ok(u8::from(info.is_err()))
    }
}

/// Slurm's text for what it could do and this cluster cannot.
const DISABLED: &str = "Requested operation is presently disabled";

/// The error for a refusal of the head, after its own words.
fn refused(what: &str, text: &str, refused: &Refused) -> Ended {
    refused.lines().fold(Ended::plain(format!("{what}: {text}")), Ended::and)
}

/// Splits a line at blanks outside of quotes, and removes the quotes.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_abbreviated_as_in_slurm() {
        for (word, verb) in [
            ("show", Some(Verb::Show)),
            ("SHO", Some(Verb::Show)),
            ("sh", None),
            ("u", Some(Verb::Update)),
            ("rel", Some(Verb::Release)),
            ("requ", Some(Verb::Requeue)),
            ("requeueh", None),
            ("requeuehold", Some(Verb::RequeueHold)),
            ("re", None),
            ("ho", None),
            ("hol", Some(Verb::Hold)),
            ("sus", Some(Verb::Suspend)),
            ("pi", None),
            ("ver", None),
            ("e", None),
            ("bogus", None),
        ] {
            assert_eq!(find(VERBS, word), verb, "{word}");
        }
        for (word, entity) in [
            ("part", Some(Entity::Partition)),
            ("partition", Some(Entity::Partition)),
            ("n", Some(Entity::Node)),
            ("j", Some(Entity::Job)),
            ("jobi", Some(Entity::Job)),
            ("jobid", Some(Entity::Job)),
            ("hostn", Some(Entity::HostNames)),
            ("hostname", Some(Entity::HostNames)),
            ("host", None),
            ("hostl", Some(Entity::HostList)),
            ("hostlistsorted", Some(Entity::HostListSorted)),
            ("res", Some(Entity::Reservation)),
            ("lice", Some(Entity::Licenses)),
            ("l", None),
            ("con", Some(Entity::Config)),
            ("s", Some(Entity::Step)),
        ] {
            assert_eq!(find(ENTITIES, word), entity, "{word}");
        }
    }

    #[test]
    fn lines_are_split_into_words() {
        assert_eq!(
            split("  update nodename=n1 reason=\"bad disk\" '' \n"),
            ["update", "nodename=n1", "reason=bad disk", ""]
        );
        assert_eq!(split(" \n"), [""; 0]);
    }
}
