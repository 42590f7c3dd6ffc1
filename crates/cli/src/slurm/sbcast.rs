//! `sbcast`: copies a file to all nodes of a job, with a step of `srun` that writes its standard input.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hostler_client::RecordFilter;
use hostler_model::JobId;
use hostler_slurm::getopt::Takes::{Attached, Nothing, Value};

use super::options::{self, Setter, checked, flag, nothing, prints, value, version};
use super::rows::rows;
use super::squeue::ids::parse_list;
use super::{Ended, Outcome, srun, tell, unreadable};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "sbcast";

const USAGE: &str = "Usage: sbcast [-fpvV] [-j JOBID] SOURCE DEST\n";

/// The options as they were given.
#[derive(Default)]
struct Given {
    job: Option<String>,
    is_forced: bool,
    keeps_time: bool,
    sends_libraries: bool,
}

const OPTIONS: &[Setter<Given>] = &[
    nothing("compress", "C", Attached),
    nothing("exclude", "", Value),
    nothing("fanout", "F", Value),
    flag("force", "f", |given: &mut Given| given.is_forced = true),
    prints("help usage", "", || USAGE.to_owned()),
    value("jobid", "j", |given: &mut Given, id| given.job = Some(id.to_owned())),
    flag("preserve", "p", |given: &mut Given| given.keeps_time = true),
    checked("send-libs", "", Attached, |given, whether| {
        given.sends_libraries = whether != Some("no");
        Ok(())
    }),
    nothing("size", "s", Value),
    nothing("timeout", "t", Value),
    prints("version", "V", version),
    nothing("verbose", "v", Nothing),
];

/// Writes the file on a node: its path, its name if the path is a directory, mode, size, whether it may replace a file, and
/// the time of its last change if that is kept. A file that arrives in part replaces nothing.
const WRITE: &str = r#"
dest=$1
case $dest in */) dest=$dest$2 ;; esac
if [ -d "$dest" ]; then dest=$dest/$2; fi
fail() { echo "sbcast: error: $SLURMD_NODENAME: $dest: $1" >&2; rm -f "$part"; exit 1; }
part=$dest.sbcast.$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURMD_NODENAME
if [ -e "$dest" ] && [ "$5" = no ]; then fail 'File exists'; fi
(umask 077; cat >"$part") || fail 'cannot be written'
[ "$(wc -c <"$part")" -eq "$4" ] || fail 'only a part of the file has arrived'
chmod "$3" "$part" && { [ -z "$6" ] || touch -d "@$6" "$part"; } && mv -f "$part" "$dest" || fail 'cannot be written'
"#;

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let called = args.first().cloned().unwrap_or_default();
    let mut given = Given::default();
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    if given.sends_libraries {
        let text = "warning: shared libraries are not copied: --send-libs has no effect";
        tell(context, NAME, &[text.to_owned()]);
    }
    let [source, dest] = operands.as_slice() else {
        return Err(Ended::plain(format!("Need two file names, have {} names", operands.len())));
    };
    let cannot = |error: std::io::Error| Ended::error(format!("Can't open `{}`: {error}", source.display()));
    let facts = fs::metadata(source).map_err(cannot)?;
    if !facts.is_file() {
        return Err(Ended::error(format!("`{}`: Not a regular file", source.display())));
    }
    let job = given.job.or_else(|| std::env::var("SLURM_JOB_ID").ok());
    let (number, nodes) = nodes(context, job.as_deref())?;
    let name = Path::new(source).file_name().unwrap_or_default().to_owned();
    let time = if given.keeps_time { facts.mtime().to_string() } else { String::new() };
    let step = [
        called,
        "--overlap".into(),
        format!("--jobid={number}").into(),
        format!("--nodes={nodes}").into(),
        format!("--ntasks={nodes}").into(),
        "--ntasks-per-node=1".into(),
        "--job-name=sbcast".into(),
        "--input".into(),
        source.clone(),
        "sh".into(),
        "-c".into(),
        WRITE.into(),
        NAME.into(),
        dest.clone(),
        name,
        format!("{:o}", facts.mode() & 0o777).into(),
        facts.len().to_string().into(),
        (if given.is_forced { "yes" } else { "no" }).into(),
        time.into(),
    ];
    srun::run(context, step.into())
}

/// The job's number, and the number of its nodes.
fn nodes(context: &Context, job: Option<&str>) -> Result<(u64, usize), Ended> {
    let job = job.ok_or_else(|| {
        Ended::error("Need a job id to run this command.  Run from within a Slurm job or use the -j option.")
    })?;
    let invalid = || Ended::error(format!("Invalid job id: {job}"));
    let named = parse_list(job).map_err(|_| invalid())?;
    let [named] = named.as_slice() else { return Err(invalid()) };
    let client = context.client().map_err(|failure| Ended::error(failure.summary()))?;
    let filter = RecordFilter { jobs: vec![JobId(named.job.0)], live: true, ..RecordFilter::default() };
    let load = async { Ok(client.records(&filter).await.map_err(|error| unreadable("slurm_sbcast_lookup", error))) };
    let records = block_on(load)??;
    let mut all = records.iter().flat_map(|record| rows(record, false));
    let is_named = |row: &super::rows::Row<'_>| match &named.tasks {
        None => row.raw_id() == named.job.0,
        Some(tasks) => row.has_any(tasks),
    };
    let row = all.find(|row| is_named(row) && !row.nodes().is_empty()).ok_or_else(invalid)?;
    Ok((row.raw_id(), row.nodes().len()))
}
