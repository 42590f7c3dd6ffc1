//! The options of `sacct`.

use std::ffi::OsString;

use hostler_model::WallTime;
use hostler_slurm::getopt::Mistake;
use hostler_slurm::getopt::Takes::{Attached, Nothing, Value};
use hostler_slurm::hostlist;
use hostler_slurm::size::Unit;
use hostler_slurm::state::parse_list;
use hostler_slurm::table::names;

use super::super::clock::Clock;
use super::super::options::{Setter, apply, checked, flag, nothing, parse as parse_options, prints, value, version};
use super::super::squeue::ids;
use super::super::{Ended, Line, check_clusters, items};
use super::columns::FIELDS;
use super::settings::{Content, Given, Settings, groups, limit, no_unit, range, time, users};

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

pub(super) const OPTIONS: &[Setter<Given>] = &[
    flag("allusers", "a", |given| given.all_users = true),
    value("accounts", "A", |given, list| add(&mut given.selection.accounts, list)),
    flag("allocations", "Xt", |given| given.selection.only_jobs = true),
    flag("array", "", |given| given.selection.splits_arrays = true),
    flag("batch-script", "B", |given| given.content = Content::Script),
    flag("brief", "b", |given| given.is_brief = true),
    checked("completion", "c", Nothing, |_, _| Err(Ended::plain("Slurm job completion is disabled"))),
    value("constraints", "C", |given, list| add(&mut given.selection.features, list)),
    value("delimiter", "", |given, text| given.delimiter = Some(text.to_owned())),
    nothing("duplicates", "D", Nothing),
    flag("env-vars", "", |given| given.content = Content::Environment),
    nothing("federation", "", Nothing),
    prints("helpformat help-fields", "e", || names(FIELDS)),
    checked("endtime", "E", Value, |given, text| set_time(&mut given.to, text, &given.clock)),
    nothing("file", "f", Value),
    nothing("flags", "F", Value),
    checked("gid group", "g", Value, |given, list| {
        given.selection.groups.get_or_insert_default().extend(groups(list.unwrap_or_default())?);
        Ok(())
    }),
    prints("help", "h", || HELP.to_owned()),
    nothing("local", "", Nothing),
    value("name", "", |given, list| add(&mut given.selection.names, list)),
    checked("nnodes", "i", Value, |given, text| {
        set(&mut given.selection.node_count, range(text.unwrap_or_default(), "node"))
    }),
    checked("ncpus", "I", Value, |given, text| {
        set(&mut given.selection.cpu_count, range(text.unwrap_or_default(), "cpu"))
    }),
    checked("jobs", "j", Value, |given, list| {
        let bad = |id| Ended::fatal(format!("Bad job/step specified: {id}"));
        let named = ids::parse_list(list.unwrap_or_default()).map_err(bad)?;
        if !named.is_empty() {
            given.selection.named.get_or_insert_default().extend(named);
        }
        Ok(())
    }),
    checked("json", "", Attached, |given, _| {
        given.content = Content::Json;
        Ok(())
    }),
    checked("timelimit-min", "k", Value, |given, text| set(&mut given.limit_min, limit(text.unwrap_or_default()))),
    checked("timelimit-max", "K", Value, |given, text| set(&mut given.limit_max, limit(text.unwrap_or_default()))),
    flag("long", "l", |given| given.is_long = true),
    nothing("allclusters", "L", Nothing),
    checked("cluster clusters", "M", Value, |_, list| check_clusters(list.unwrap_or_default())),
    checked("nodelist", "N", Value, |given, list| {
        let list = list.unwrap_or_default();
        let nodes = hostlist::expand(list).map_err(|_| Ended::error(format!("Invalid node name {list}")))?;
        given.selection.nodes = Some(nodes.into_iter().collect());
        Ok(())
    }),
    flag("noconvert", "", |given| given.no_convert = true),
    checked("units", "", Value, |given, unit| {
        let unit = unit.unwrap_or_default();
        set(&mut given.unit, Unit::parse(unit).ok_or_else(|| no_unit(unit)))
    }),
    flag("noheader", "n", |given| given.no_header = true),
    value("fields format", "o", |given, list| {
        let fields = given.fields.get_or_insert_default();
        fields.push_str(list);
        fields.push(',');
    }),
    flag("parsable", "p", |given| given.is_closed = Some(true)),
    flag("parsable2", "P", |given| given.is_closed = Some(false)),
    value("qos", "q", |given, list| add(&mut given.selection.qos, list)),
    value("partition", "r", |given, list| add(&mut given.selection.partitions, list)),
    value("reason", "R", |given, list| add(&mut given.selection.reasons, list)),
    checked("state", "s", Value, |given, list| {
        let bad = |state| Ended::fatal(format!("unrecognized job state value '{state}'"));
        let states = parse_list(list.unwrap_or_default()).map_err(bad)?;
        let before = given.selection.states.take();
        given.selection.states = states.map(|states| [before.unwrap_or_default(), states].concat());
        Ok(())
    }),
    checked("starttime", "S", Value, |given, text| set_time(&mut given.from, text, &given.clock)),
    flag("truncate", "T", |given| given.truncate = true),
    checked("uid", "", Value, set_users),
    prints("usage", "U", || "Usage: sacct [options]\n\tUse --help for help\n".to_owned()),
    nothing("use-local-uid", "", Nothing),
    checked("user", "u", Value, set_users),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
    value("wckeys", "W", |given, list| add(&mut given.selection.wckeys, list)),
    nothing("whole-hetjob", "", Attached),
    nothing("associations", "x", Value),
    checked("yaml", "", Attached, |_, _| Err(Ended::error("--yaml is not supported; use --json"))),
];

fn add(list: &mut Option<Vec<String>>, more: &str) {
    list.get_or_insert_default().extend(items(more));
}

fn set<T>(option: &mut Option<T>, value: Result<T, Ended>) -> Result<(), Ended> {
    *option = Some(value?);
    Ok(())
}

/// Sets a time. An empty one is ignored, as in Slurm.
fn set_time(option: &mut Option<WallTime>, text: Option<&str>, clock: &Clock) -> Result<(), Ended> {
    text.filter(|text| !text.is_empty()).map_or(Ok(()), |text| set(option, time(text, clock)))
}

fn set_users(given: &mut Given, list: Option<&str>) -> Result<(), Ended> {
    let list = list.unwrap_or_default();
    given.all_users = list == "-1";
    if !given.all_users {
        given.selection.users.get_or_insert_default().extend(users(list)?);
    }
    Ok(())
}

/// Parses the command line. `usual` is the format in the environment.
pub(super) fn parse(args: Vec<OsString>, clock: &Clock, usual: Option<String>) -> Result<Settings, Ended> {
    // Unlike other commands, sacct prints no hint about its help.
    let mistaken = |mistake: Mistake| Ended { lines: vec![Line::Named(mistake.to_string())], code: 1 };
    let parsed = parse_options(OPTIONS, args).map_err(mistaken)?;
    let mut given = Given { clock: clock.clone(), ..Given::default() };
    apply(OPTIONS, &parsed.options, &mut given)?;
    if !parsed.operands.is_empty() {
        let words = parsed.operands.iter().map(|word| format!("error:  {}", word.display()));
        return Err(words.fold(Ended::error("Unknown arguments:"), Ended::and));
    }
    given.settings(clock, usual)
}

#[cfg(test)]
mod tests {
    use hostler_slurm::table::Style;

    use super::super::settings::period;
    use super::*;

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let args = std::iter::once("sacct").chain(args.iter().copied()).map(OsString::from).collect();
        parse(args, &Clock::of_process(), None).map_err(|ended| ended.texts().collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn jobs_accumulate() {
        let named = |args: &[&str]| settings(args).expect("valid").selection.named;
        assert_eq!(named(&["-j", "1", "-j", "2,3_4"]), Some(ids::parse_list("1,2,3_4").expect("ids")));
        assert_eq!(named(&["--job", "1.batch"]), Some(ids::parse_list("1.batch").expect("ids")));
        assert_eq!(named(&["-Xnj", "7"]), Some(ids::parse_list("7").expect("ids")));
        assert_eq!(named(&["-j", ""]), None);
    }

    #[test]
    fn periods_have_slurms_defaults() {
        let clock = Clock::of_process();
        let at = |time: i64| Some(WallTime(time));
        assert_eq!(period(None, None, false, false, &clock), (clock.midnight(), None));
        assert_eq!(period(None, None, true, false, &clock), (WallTime(0), None));
        assert_eq!(period(None, None, true, true, &clock), (WallTime(0), None));
        assert_eq!(period(None, None, false, true, &clock), (clock.now, None));
        assert_eq!(period(at(5), None, false, true, &clock), (WallTime(5), at(5)));
        assert_eq!(period(at(5), at(9), false, true, &clock), (WallTime(5), at(9)));
        assert_eq!(period(at(5), None, false, false, &clock), (WallTime(5), None));
    }

    #[test]
    fn mistakes_have_slurms_words() {
        for (args, text) in [
            (vec!["-n", "-o", "Account%256", "|", "tail", "-1"], "invalid option -- '1'"),
            (vec!["-n", "|", "tail"], "error: Unknown arguments:|error:  ||error:  tail"),
            (vec!["--bogus"], "unrecognized option '--bogus'"),
            (vec!["-o", "jobid,bogus"], "error: Invalid field requested: \"bogus\""),
            (vec!["-j", "abc"], "fatal: Bad job/step specified: abc"),
            (vec!["-S", "soon"], "Invalid time specification (pos=0): soon"),
            (vec!["-s", "soon"], "fatal: unrecognized job state value 'soon'"),
            (vec!["-u", "no such user"], "error: Invalid user id: no such user"),
            (
                vec!["--units", "X"],
                "error: Invalid unit type 'X'. Possible options are 'KMGTP'|fatal: Invalid unit type",
            ),
            (vec!["-c"], "Slurm job completion is disabled"),
            (vec!["-i", "x"], "error: Invalid numeric value \"x\" for requested node range."),
        ] {
            assert_eq!(settings(&args).err().as_deref(), Some(text), "{args:?}");
        }
    }

    #[test]
    fn empty_times_are_ignored() {
        let period = |args: &[&str]| {
            let selection = settings(args).expect("valid").selection;
            (selection.from, selection.to)
        };
        assert_eq!(period(&["-S", "", "--endtime="]), period(&[]));
    }

    #[test]
    fn styles_follow_the_options() {
        let style = |args: &[&str]| settings(args).expect("valid").style;
        let delimited = |delimiter: &str, is_closed| Style::Delimited { delimiter: delimiter.to_owned(), is_closed };
        assert_eq!(style(&["--delimiter", ";"]), Style::Padded);
        assert_eq!(style(&["-p"]), delimited("|", true));
        assert_eq!(style(&["--parsable2", "--delimiter=^|^"]), delimited("^|^", false));
        assert_eq!(style(&["-p", "-P"]), delimited("|", false));
    }
}
