//! The options of `squeue`.

use std::ffi::OsString;

use hostler_slurm::getopt::Takes::{Attached, Nothing, Value};

use super::super::options::{Setter, apply, checked, flag, nothing, parse as parse_options, prints, value, version};
use super::super::{Ended, Line, check_clusters, items, mistaken, own_name};
use super::settings::{Given, Settings, nodes, seconds, users};

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

pub(super) const OPTIONS: &[Setter<Given>] = &[
    value("accounts", "AU", |given, list| given.filter.accounts = Some(items(list))),
    nothing("all", "a", Nothing),
    flag("array array-unique", "r", |given| given.filter.splits_arrays = true),
    checked("Format", "O", Value, |given, list| {
        given.format_long = list.map(str::to_owned);
        incompatible(given.format.is_some(), "-O (--Format)", "-o (--format)")
    }),
    checked("format", "o", Value, |given, format| {
        given.format = format.map(str::to_owned);
        incompatible(given.format_long.is_some(), "-o (--format)", "-O (--Format)")
    }),
    nothing("federation", "", Nothing),
    prints("help", "", || USAGE.to_owned()),
    nothing("hide", "", Nothing),
    checked("iterate", "i", Value, |given, text| {
        given.iterate_seconds = text.map(seconds).transpose()?;
        Ok(())
    }),
    checked("jobs", "j", Attached, |given, list| {
        given.jobs = Some(list.map(str::to_owned));
        Ok(())
    }),
    checked("json", "", Attached, |given, _| {
        given.json = true;
        Ok(())
    }),
    nothing("local", "", Nothing),
    flag("long", "l", |given| given.long = true),
    value("licenses", "L", |given, list| given.filter.licenses = Some(items(list))),
    checked("cluster clusters", "M", Value, |given, list| {
        given.cluster = true;
        list.map_or(Ok(()), check_clusters)
    }),
    checked("me", "", Nothing, |given, _| {
        given.filter.users = Some(vec![own_name()?]);
        Ok(())
    }),
    value("name", "n", |given, list| given.filter.names = Some(items(list))),
    flag("noconvert", "", |given| given.no_convert = true),
    checked("node nodes nodelist", "w", Value, |given, list| {
        given.filter.nodes = list.map(nodes).transpose()?;
        Ok(())
    }),
    flag("noheader", "h", |given| given.no_header = true),
    nothing("only-job-state", "", Nothing),
    value("partitions", "p", |given, list| given.filter.partitions = Some(items(list))),
    nothing("priority", "P", Nothing),
    value("qos", "q", |given, list| given.filter.qos = Some(items(list))),
    value("reservation", "R", |given, name| given.filter.reservation = Some(name.to_owned())),
    nothing("sibling", "", Nothing),
    value("sort", "S", |given, fields| given.sort = Some(fields.to_owned())),
    flag("start", "", |given| given.start = true),
    checked("steps", "s", Attached, |given, list| {
        given.steps = true;
        given.jobs = list.map(|list| Some(list.to_owned())).or(given.jobs.take());
        Ok(())
    }),
    value("states", "t", |given, list| given.states = Some(list.to_owned())),
    prints("usage", "", || USAGE.to_owned()),
    value("user users", "u", |given, list| given.filter.users = Some(users(list, &mut given.warnings))),
    flag("verbose", "v", |given| given.verbose = true),
    prints("version", "V", version),
    checked("yaml", "", Attached, |_, _| Err(Ended::error("--yaml is not supported; use --json"))),
];

fn incompatible(is_set: bool, now: &str, before: &str) -> Result<(), Ended> {
    if is_set { Err(Ended::error(format!("{now} is incompatible with {before}"))) } else { Ok(()) }
}

/// Parses the command line. `variable` returns variables of the environment; `warn` prints a line that does not end the
/// command.
pub(super) fn parse(
    args: Vec<OsString>,
    variable: impl Fn(&str) -> Option<String>,
    warn: &mut dyn FnMut(String),
) -> Result<Box<Settings>, Ended> {
    let parsed = parse_options(OPTIONS, args).map_err(|mistake| mistaken(NAME, &mistake))?;
    let mut given = Given::default();
    let applied = apply(OPTIONS, &parsed.options, &mut given);
    given.warnings.drain(..).for_each(&mut *warn);
    applied?;
    // A list of jobs may be the next argument.
    let mut operands = parsed.operands.iter().map(|word| word.to_string_lossy().into_owned());
    if (given.jobs.is_some() || given.steps)
        && let Some(list) = operands.next()
    {
        given.jobs = Some(Some(list));
    }
    if let Some(word) = operands.next() {
        let mut ended = Ended::error(format!("Unrecognized option: {word}"));
        ended.lines.push(Line::Plain(USAGE.trim_end().to_owned()));
        return Err(ended);
    }
    let taken = given.take_variables(&variable);
    given.warnings.drain(..).for_each(warn);
    taken?;
    given.settings().map(Box::new)
}

#[cfg(test)]
mod tests {
    use hostler_slurm::state::State;

    use super::super::ids;
    use super::super::settings::{LONG, START, STEPS, USUAL};
    use super::*;

    fn settings(args: &[&str], variables: &[(&str, &str)]) -> Result<Settings, String> {
        let args = std::iter::once("squeue").chain(args.iter().copied()).map(OsString::from).collect();
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        match parse(args, variable, &mut |_| ()) {
            Ok(settings) => Ok(*settings),
            Err(ended) => Err(ended.texts().collect::<Vec<_>>().join("|")),
        }
    }

    #[test]
    fn lists_of_jobs_may_be_attached_or_follow() {
        for args in [vec!["-j", "5,6"], vec!["-j5,6"], vec!["--jobs=5,6"], vec!["--jobs", "5,6"], vec!["--job", "5,6"]]
        {
            let named = settings(&args, &[]).expect("valid").filter.named;
            assert_eq!(named, Some(ids::parse_list("5,6").expect("ids")), "{args:?}");
        }
        assert!(settings(&["-j"], &[]).expect("valid").filter.named.is_none());
        assert!(settings(&["-h", "-j", "5", "-o", "%T"], &[]).expect("valid").filter.named.is_some());
        assert_eq!(settings(&["-j", "x"], &[]).err().as_deref(), Some("error: Invalid job id: x"));
        let stray = settings(&["-j", "1", "2"], &[]).expect_err("a stray operand");
        assert!(stray.starts_with("error: Unrecognized option: 2|Usage: squeue"), "{stray}");
    }

    #[test]
    fn formats_follow_options_and_variables() {
        let formats = |args: &[&str], variables: &[(&str, &str)]| {
            let settings = settings(args, variables).expect("valid");
            (settings.short_format.unwrap_or_default(), settings.long_format)
        };
        assert_eq!(formats(&[], &[]), (USUAL.to_owned(), None));
        assert_eq!(formats(&["-o", "%i"], &[("SQUEUE_FORMAT", "%j")]).0, "%i");
        assert_eq!(formats(&["-o %i"], &[]).0, " %i");
        assert_eq!(formats(&[], &[("SQUEUE_FORMAT", "%j"), ("SQUEUE_FORMAT2", "name")]), ("%j".to_owned(), None));
        assert_eq!(formats(&[], &[("SQUEUE_FORMAT2", "name")]).1.as_deref(), Some("name"));
        for (args, format) in [(["-l"], LONG), (["--start"], START), (["-s"], STEPS)] {
            assert_eq!(formats(&args, &[("SQUEUE_FORMAT", "%j")]).0, format);
        }
        for (args, text) in [
            (["-o%i", "-Ojobid"], "error: -O (--Format) is incompatible with -o (--format)"),
            (["-Ojobid", "-o%i"], "error: -o (--format) is incompatible with -O (--Format)"),
            (
                ["-l", "-o%i"],
                "fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ),
            (["-i", "0"], "error: --iterate=0\n"),
            (["--yaml", "-h"], "error: --yaml is not supported; use --json"),
        ] {
            assert_eq!(settings(&args, &[]).err().as_deref(), Some(text));
        }
    }

    #[test]
    fn states_have_slurms_defaults() {
        let states =
            |args: &[&str], variables: &[(&str, &str)]| settings(args, variables).expect("valid").filter.states;
        assert_eq!(states(&[], &[]), Some(State::OF_QUEUE.to_vec()));
        assert_eq!(states(&["-t", "All"], &[]), None);
        assert_eq!(states(&["--state", "PD,CF,RF"], &[]), Some(vec![State::Pending]));
        assert_eq!(states(&["--start"], &[]), Some(vec![State::Pending]));
        assert_eq!(states(&[], &[("SQUEUE_STATES", "ca")]), Some(vec![State::Cancelled]));
        let error = settings(&["-t", "soon"], &[]).expect_err("an unknown state");
        assert!(
            error.starts_with("error: Invalid job state specified: soon|error: Valid job states include: PENDING,")
        );
    }
}
