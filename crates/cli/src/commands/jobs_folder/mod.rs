//! `hostler jobs-folder`: submits the projects that are copied into a folder, and puts their results beside them.
//!
//! A project waits for its file `submit`, which is copied last: so nothing half-copied runs. The key of the submission is
//! that file's identity. A command that was killed after the submission therefore finds the same job when it starts again.
//! Everything else that it has to know stands in `status.txt`.

mod order;
mod owners;

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use hostler_client::fetch::Destination;
use hostler_client::{Client, ClientError, ProjectFolder};
use hostler_model::JobId;
use hostler_snapshot::OnConflict;
use nix::unistd::geteuid;

use self::order::Order;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::fetching;
use crate::interrupts::{self, Interrupts};
use crate::output::views;
use crate::submission::{captured, narrate};
use crate::xdg;

/// How often the folder is read.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long nothing in a project may have changed before it is submitted. A program that copies files in an order of its own
/// may have copied `submit` before others.
const QUIET: Duration = Duration::from_secs(5);

/// Wait between two downloads of the same results, if the first one failed.
const AGAIN: Duration = Duration::from_secs(60);

const MARKER: &str = "submit";
const ORDER: &str = "job.toml";
const STATUS: &str = "status.txt";
const ERROR: &str = "error.txt";
const RESULTS: &str = "results";

/// Submit the projects that are copied into a folder
///
/// For machines that can only copy files, e.g. with scp, rsync or a network share. Copy a project to DIR/NAME, with a file job.toml
/// that names the program and the options of `hostler submit`, one on each line, e.g. entrypoint = "main.py" and cpus = 4. Then
/// copy an empty file DIR/NAME/submit. To run the project again, copy this file again.
///
/// DIR/NAME/status.txt says how the job is, DIR/NAME/results gets its results, and DIR/NAME/error.txt says why a project was not
/// submitted. Names that begin with a dot are left alone.
///
/// The command runs until it is interrupted. It serves the folders of its own user. Root also serves those of other users, each
/// with a process of that user.
#[derive(Debug, Args)]
pub struct JobsFolder {
    /// The folder to which projects are copied
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl JobsFolder {
    pub fn run(self, context: &Context) -> Outcome {
        let what = || format!("cannot use {}", self.directory.display());
        let directory = self.directory.canonicalize().during(what)?;
        let client = context.watching_client()?;
        block_on(async {
            let mut interrupts = Interrupts::take()?;
            let serving = async {
                let own = Watch::new(context, &client, &directory).serve();
                match geteuid().is_root() {
                    true => tokio::try_join!(own, owners::serve(context, &directory)).map(|(code, _)| code),
                    false => own.await,
                }
            };
            tokio::select! {
                ended = serving => ended,
                signal = interrupts.next() => Ok(interrupts::exit_code(signal)),
            }
        })
    }
}

/// The folders below `directory` with their properties, without hidden ones and links.
fn folders(directory: &Path) -> Result<Vec<(PathBuf, Metadata)>, Failure> {
    let failed = || format!("cannot read {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).during(failed)? {
        let entry = entry.during(failed)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // It may have gone by now.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && !is_hidden {
            found.push((entry.path(), metadata));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// The projects of this user in the folder.
struct Watch<'a> {
    context: &'a Context,
    client: &'a Client,
    directory: &'a Path,
    /// Submitted projects whose results are not here yet, with their jobs.
    submitted: BTreeMap<PathBuf, JobId>,
    /// Projects that could not be read or written, with the time of the next attempt.
    resting: BTreeMap<PathBuf, Instant>,
}

impl<'a> Watch<'a> {
    fn new(context: &'a Context, client: &'a Client, directory: &'a Path) -> Self {
        Self { context, client, directory, submitted: BTreeMap::new(), resting: BTreeMap::new() }
    }

    /// Serves the folder until it cannot be read, or the head refuses this client.
    async fn serve(mut self) -> Outcome {
        self.submitted = self.own()?.into_iter().filter_map(|it| unfinished(&it).map(|job| (it, job))).collect();
        self.context.output.say(&format!("waiting for projects in {}", self.directory.display()));
        loop {
            let folders = self.own()?;
            self.submitted.retain(|folder, _| folders.contains(folder));
            self.resting.retain(|_, until| *until > Instant::now());
            for folder in folders {
                if self.resting.contains_key(&folder) {
                    continue;
                }
                match self.attend(&folder).await {
                    Err(failure) if is_about_the_head(&failure) => return Err(failure),
                    Err(failure) => {
                        self.context.output.fail(&failure);
                        self.resting.insert(folder, Instant::now() + AGAIN);
                    }
                    Ok(()) => {}
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// The folders of this user.
    fn own(&self) -> Result<Vec<PathBuf>, Failure> {
        let found = folders(self.directory)?;
        let own = found.into_iter().filter(|(_, metadata)| metadata.uid() == geteuid().as_raw());
        Ok(own.map(|(folder, _)| folder).collect())
    }

    /// Follows the project's job, or submits the project. A project runs again only after its last results are here.
    async fn attend(&mut self, folder: &Path) -> Result<(), Failure> {
        match self.submitted.get(folder) {
            Some(&job) => self.follow(folder, job).await,
            None => match complete(folder) {
                Some(key) => self.submit(folder, &key).await,
                None => Ok(()),
            },
        }
    }

    /// Submits a project, or writes why not.
    async fn submit(&mut self, folder: &Path, key: &str) -> Result<(), Failure> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        match self.try_submit(folder, key).await {
            Ok(job) => {
                write(folder, STATUS, &format!("job {job}: submitted\n"))?;
                remove(folder, ERROR)?;
                self.submitted.insert(folder.to_owned(), job);
                self.context.output.say(&format!("{name} is job {job}"));
            }
            Err(failure) if is_about_the_head(&failure) => return Err(failure),
            Err(failure) => {
                let advice = "hint: correct this, and then copy the file `submit` again\n";
                write(folder, ERROR, &format!("{}{advice}", failure.render()))?;
                self.context.output.say(&format!("{name} was not submitted: {}", failure.message()));
            }
        }
        remove(folder, MARKER)
    }

    async fn try_submit(&self, folder: &Path, key: &str) -> Result<JobId, Failure> {
        let path = folder.join(ORDER);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::usage("there is no job.toml in the folder").hint(
                    "it needs one line: entrypoint = \"main.py\", and may have others, e.g. cpus = 4, memory = \"2G\"",
                ));
            }
            text => text.during(|| "cannot read job.toml".to_owned())?,
        };
        let order = Order::parse(&text)?;
        let project = ProjectFolder::open(folder, &order.entrypoint)?;
        let mut left_out = xdg::own_directories(folder);
        left_out.push(folder.join(RESULTS));
        let (captured, spec, _) = captured(self.context, project, folder, &left_out, &order.flags, &order.args)?;
        Ok(captured.submit(self.client, spec, Some(key), &narrate(&self.context.output)).await?)
    }

    /// Writes how a job is, and downloads its results when it has ended.
    async fn follow(&mut self, folder: &Path, job: JobId) -> Result<(), Failure> {
        let (line, is_over) = match self.client.job(job, 0).await {
            Ok(detail) => {
                let line = [views::state(&detail.summary), views::outcome(&detail.summary)];
                let line: Vec<String> = line.into_iter().filter(|part| !part.is_empty()).collect();
                (line.join("; "), detail.summary.state.is_ended())
            }
            // Another command has fetched the results, and the head has deleted the job.
            Err(error @ ClientError::Refused { .. }) => (error.to_string(), true),
            Err(error) => return Err(error.into()),
        };
        if !is_over {
            return write(folder, STATUS, &format!("job {job}: {line}\n"));
        }
        let results = self.client.results(false, &[job]).await?.results;
        let results: Vec<_> = results.into_iter().filter(|result| !result.earlier).collect();
        let destination = Destination { directory: folder.join(RESULTS), on_conflict: OnConflict::Refuse };
        if !fetching::fetch(self.context, self.client, &results, &destination).await?.is_complete {
            write(folder, STATUS, &format!("job {job}: {line}\nits results cannot be written here yet\n"))?;
            self.resting.insert(folder.to_owned(), Instant::now() + AGAIN);
            return Ok(());
        }
        write(folder, STATUS, &format!("job {job}: {line}\n{FINISHED}\n"))?;
        self.submitted.remove(folder);
        Ok(())
    }
}

/// Whether the head is the reason, and so every project fails.
fn is_about_the_head(failure: &Failure) -> bool {
    [exit::UNREACHABLE, exit::MISMATCH].contains(&failure.exit)
}

/// The last line of the status of a job whose results are in the folder.
const FINISHED: &str = "its results are in the folder `results`";

/// The key for the submission of a project, if the project is complete.
fn complete(folder: &Path) -> Option<String> {
    let marker = fs::symlink_metadata(folder.join(MARKER)).ok()?;
    let quiet_since = SystemTime::now().checked_sub(QUIET)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let is_quiet = newest_change(folder).is_ok_and(|newest| newest < quiet_since.as_secs().cast_signed());
    is_quiet
        .then(|| format!("jobs-folder {}-{}-{}.{}", marker.dev(), marker.ino(), marker.ctime(), marker.ctime_nsec()))
}

/// When a file or directory below a folder changed last, in seconds since 1970, by the clock of its file system.
fn newest_change(folder: &Path) -> io::Result<i64> {
    let mut newest = 0;
    let mut waiting = vec![folder.to_owned()];
    while let Some(directory) = waiting.pop() {
        newest = newest.max(fs::symlink_metadata(&directory)?.ctime());
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            newest = newest.max(metadata.ctime());
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(newest)
}

/// The job of a project whose results are not in the folder yet.
fn unfinished(folder: &Path) -> Option<JobId> {
    let text = fs::read_to_string(folder.join(STATUS)).ok()?;
    let id = text.strip_prefix("job ")?.split(':').next()?.parse().ok()?;
    (text.lines().last() != Some(FINISHED)).then_some(id)
}

/// Writes a small file of a project, if it has another content.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    hostler_sys::replace_file(&path, text.as_bytes(), 0o644).during(|| format!("cannot write {}", path.display()))
}

fn remove(folder: &Path, name: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).during(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
