//! The options of `sacct`.

use hostler_slurm::getopt::{Opt, Takes};

use super::super::opt;

pub(super) const HELP: &str = "\
Usage: sacct [OPTIONS]
  -a, --allusers           list the jobs of all users
  -j, --jobs=IDS           list these jobs and steps, whenever they ran
  -u, --user=USERS         list the jobs of these users
  -A, --accounts=NAMES     list jobs of these accounts
  -S, --starttime=TIME     list jobs that had not ended before this time [default: midnight; now with -s]
  -E, --endtime=TIME       list jobs that could start before this time [default: now]
  -s, --state=STATES       list jobs that had one of these states in the period
  -r, --partition=NAMES    list jobs of these partitions
  -N, --nodelist=NODES     list jobs that ran on one of these nodes
      --name=NAMES         list jobs with these names
  -X, --allocations        list jobs without their steps
  -o, --format=FIELDS      print these fields, e.g. jobid,state%20
  -e, --helpformat         print the names of all fields
  -b, --brief              print jobid, state and exitcode
  -l, --long               print many fields
  -n, --noheader           print no header
  -p, --parsable           separate values with |, and end lines with it
  -P, --parsable2          separate values with |
      --delimiter=TEXT     separate values with this text instead of |
      --units=UNIT         print sizes in this unit: K, M, G, T or P
      --noconvert          print sizes in their own units
  -T, --truncate           cut starts and ends of jobs to the period
      --json               print JSON
  -V, --version            print the version
";

/// The meaning of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Accounts,
    AllUsers,
    Allocations,
    Array,
    BatchScript,
    Brief,
    Clusters,
    Completion,
    Constraints,
    Cpus,
    Delimiter,
    EndTime,
    Environment,
    Format,
    Groups,
    Help,
    HelpFormat,
    Jobs,
    Json,
    Long,
    Name,
    NoConvert,
    Nodelist,
    Nodes,
    NoHeader,
    Nothing(&'static str),
    Parsable,
    Parsable2,
    Partition,
    Qos,
    Reason,
    StartTime,
    State,
    TimelimitMax,
    TimelimitMin,
    Truncate,
    Units,
    Usage,
    Users,
    Version,
    WcKeys,
    Yaml,
}

const fn nothing(long: &'static str, short: u8, takes: Takes) -> Opt<Key> {
    opt(Key::Nothing(long), long, short, takes)
}

use Takes::{Attached, Nothing, Value};

pub(super) const OPTIONS: &[Opt<Key>] = &[
    opt(Key::AllUsers, "allusers", b'a', Nothing),
    opt(Key::Accounts, "accounts", b'A', Value),
    opt(Key::Allocations, "allocations", b'X', Nothing),
    opt(Key::Allocations, "", b't', Nothing),
    opt(Key::Array, "array", 0, Nothing),
    opt(Key::BatchScript, "batch-script", b'B', Nothing),
    opt(Key::Brief, "brief", b'b', Nothing),
    opt(Key::Completion, "completion", b'c', Nothing),
    opt(Key::Constraints, "constraints", b'C', Value),
    opt(Key::Delimiter, "delimiter", 0, Value),
    nothing("duplicates", b'D', Nothing),
    opt(Key::Environment, "env-vars", 0, Nothing),
    nothing("federation", 0, Nothing),
    opt(Key::HelpFormat, "helpformat", b'e', Nothing),
    opt(Key::HelpFormat, "help-fields", 0, Nothing),
    opt(Key::EndTime, "endtime", b'E', Value),
    nothing("file", b'f', Value),
    nothing("flags", b'F', Value),
    opt(Key::Groups, "gid", b'g', Value),
    opt(Key::Groups, "group", 0, Value),
    opt(Key::Help, "help", b'h', Nothing),
    nothing("local", 0, Nothing),
    opt(Key::Name, "name", 0, Value),
    opt(Key::Nodes, "nnodes", b'i', Value),
    opt(Key::Cpus, "ncpus", b'I', Value),
    opt(Key::Jobs, "jobs", b'j', Value),
    opt(Key::Json, "json", 0, Attached),
    opt(Key::TimelimitMin, "timelimit-min", b'k', Value),
    opt(Key::TimelimitMax, "timelimit-max", b'K', Value),
    opt(Key::Long, "long", b'l', Nothing),
    nothing("allclusters", b'L', Nothing),
    opt(Key::Clusters, "cluster", b'M', Value),
    opt(Key::Clusters, "clusters", 0, Value),
    opt(Key::Nodelist, "nodelist", b'N', Value),
    opt(Key::NoConvert, "noconvert", 0, Nothing),
    opt(Key::Units, "units", 0, Value),
    opt(Key::NoHeader, "noheader", b'n', Nothing),
    opt(Key::Format, "fields", 0, Value),
    opt(Key::Format, "format", b'o', Value),
    opt(Key::Parsable, "parsable", b'p', Nothing),
    opt(Key::Parsable2, "parsable2", b'P', Nothing),
    opt(Key::Qos, "qos", b'q', Value),
    opt(Key::Partition, "partition", b'r', Value),
    opt(Key::Reason, "reason", b'R', Value),
    opt(Key::State, "state", b's', Value),
    opt(Key::StartTime, "starttime", b'S', Value),
    opt(Key::Truncate, "truncate", b'T', Nothing),
    opt(Key::Users, "uid", 0, Value),
    opt(Key::Usage, "usage", b'U', Nothing),
    nothing("use-local-uid", 0, Nothing),
    opt(Key::Users, "user", b'u', Value),
    nothing("verbose", b'v', Nothing),
    opt(Key::Version, "version", b'V', Nothing),
    opt(Key::WcKeys, "wckeys", b'W', Value),
    nothing("whole-hetjob", 0, Attached),
    nothing("associations", b'x', Value),
    opt(Key::Yaml, "yaml", 0, Attached),
];
