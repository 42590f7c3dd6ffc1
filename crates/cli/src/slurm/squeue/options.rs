//! The options of `squeue`.

use hostler_slurm::getopt::{Opt, Takes};

use super::super::opt;

pub(crate) const NAME: &str = "squeue";

pub(super) const USAGE: &str = "\
Usage: squeue [OPTIONS]
  -j, --jobs[=IDS]         list these jobs
  -u, --user=USERS         list the jobs of these users
      --me                 list own jobs
  -t, --states=STATES      list jobs in these states, e.g. PD,RUNNING or all [default: jobs that have not ended]
  -p, --partition=NAMES    list jobs of these partitions
  -n, --name=NAMES         list jobs with these names
  -A, --account=NAMES      list jobs of these accounts
  -q, --qos=NAMES          list jobs of these QOS
  -w, --nodelist=NODES     list jobs on these nodes
  -L, --licenses=NAMES     list jobs with these licenses
  -R, --reservation=NAME   list jobs of this reservation
  -r, --array              print a line for each task of an array
  -o, --format=FORMAT      print this format, e.g. %.18i %T
  -O, --Format=FIELDS      print these fields, e.g. JobID:10,State
  -l, --long               print more columns
      --start              print when waiting jobs are expected to start
  -s, --steps              list the steps that run
  -S, --sort=FIELDS        sort by these letters of a format, e.g. P,-t [default: P,t,-p]
  -h, --noheader           print no header
  -i, --iterate=SECONDS    print the table again after this time
  -M, --clusters=NAMES     print the name of the cluster above the header
      --noconvert          print sizes in mebibytes
      --json               print JSON
  -V, --version            print the version
";

/// The meaning of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Accounts,
    Array,
    Clusters,
    Format,
    FormatLong,
    Help,
    Iterate,
    Jobs,
    Json,
    Licenses,
    Long,
    Me,
    Names,
    NoConvert,
    Nodes,
    NoHeader,
    Nothing(&'static str),
    Partitions,
    Qos,
    Reservation,
    Sort,
    Start,
    States,
    Steps,
    Users,
    Verbose,
    Version,
    Yaml,
}

const fn nothing(long: &'static str, short: u8) -> Opt<Key> {
    opt(Key::Nothing(long), long, short, Takes::Nothing)
}

use Takes::{Attached, Nothing, Value};

pub(super) const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Accounts, "accounts", b'A', Value),
    opt(Key::Accounts, "", b'U', Value),
    nothing("all", b'a'),
    opt(Key::Array, "array", b'r', Nothing),
    opt(Key::Array, "array-unique", 0, Nothing),
    opt(Key::FormatLong, "Format", b'O', Value),
    opt(Key::Format, "format", b'o', Value),
    nothing("federation", 0),
    opt(Key::Help, "help", 0, Nothing),
    nothing("hide", 0),
    opt(Key::Iterate, "iterate", b'i', Value),
    opt(Key::Jobs, "jobs", b'j', Attached),
    opt(Key::Json, "json", 0, Attached),
    nothing("local", 0),
    opt(Key::Long, "long", b'l', Nothing),
    opt(Key::Licenses, "licenses", b'L', Value),
    opt(Key::Clusters, "cluster", b'M', Value),
    opt(Key::Clusters, "clusters", 0, Value),
    opt(Key::Me, "me", 0, Nothing),
    opt(Key::Names, "name", b'n', Value),
    opt(Key::NoConvert, "noconvert", 0, Nothing),
    opt(Key::Nodes, "node", b'w', Value),
    opt(Key::Nodes, "nodes", 0, Value),
    opt(Key::Nodes, "nodelist", 0, Value),
    opt(Key::NoHeader, "noheader", b'h', Nothing),
    nothing("only-job-state", 0),
    opt(Key::Partitions, "partitions", b'p', Value),
    nothing("priority", b'P'),
    opt(Key::Qos, "qos", b'q', Value),
    opt(Key::Reservation, "reservation", b'R', Value),
    nothing("sibling", 0),
    opt(Key::Sort, "sort", b'S', Value),
    opt(Key::Start, "start", 0, Nothing),
    opt(Key::Steps, "steps", b's', Attached),
    opt(Key::States, "states", b't', Value),
    opt(Key::Help, "usage", 0, Nothing),
    opt(Key::Users, "user", b'u', Value),
    opt(Key::Users, "users", 0, Value),
    opt(Key::Verbose, "verbose", b'v', Nothing),
    opt(Key::Version, "version", b'V', Nothing),
    opt(Key::Yaml, "yaml", 0, Attached),
];
