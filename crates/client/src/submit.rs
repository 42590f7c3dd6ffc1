//! Submits project folders as jobs: capture the folder, submit, upload missing chunks, submit again.
//!
//! The first submission already names the folder by its hash. If the head has the folder, e.g. from an earlier
//! submission, nothing is uploaded. If a file changes before it is uploaded, the folder is captured again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hostler_model::{ArraySpec, JobId, ParseError, PythonVersions, Submission, Work};
use hostler_project::{EntryError, ProjectError, Unread, check_entry, survey};
use hostler_proto::api::SubmitRequest;
use hostler_proto::dry_run::DryRunView;
use hostler_snapshot::{Capture, CaptureError, CaptureOptions, LeftOutKind, Scan, SourceError, show};

use crate::upload::{Uploaded, upload};
use crate::{CaptureCache, Client, ClientError};

/// How often a folder is captured again because files changed before they were uploaded.
const RECAPTURES: u32 = 5;

/// A random idempotency key of 128 bits.
pub fn new_key() -> String {
    format!("{:032x}", u128::from_ne_bytes(hostler_sys::random()))
}

/// A project folder and the entry point of a job.
#[derive(Debug)]
pub struct ProjectFolder {
    path: PathBuf,
    entrypoint: String,
}

/// What happens during a submission, for messages and progress bars.
#[derive(Debug)]
pub enum SubmitEvent<'a> {
    /// The folder was scanned; `Scan` lists what is left out.
    Scanned(&'a Scan),
    /// Files are read. Reported from several threads.
    Capturing {
        bytes: u64,
        total_bytes: u64,
    },
    /// All files were read.
    Captured(&'a Capture),
    /// All files were read again, because one had changed.
    CapturedAgain,
    Uploading {
        bytes: u64,
        total_bytes: u64,
    },
    Uploaded(&'a Uploaded),
    /// The head has every chunk.
    NothingToUpload,
    /// This job has the same key, so nothing is submitted.
    Duplicate(JobId),
}

/// Called with each event of a submission.
type Report<'a> = &'a (dyn Fn(SubmitEvent<'_>) + Sync);

impl ProjectFolder {
    /// Checks that the folder and the entry point exist.
    ///
    /// # Errors
    /// [`SubmitError::Entry`].
    pub fn open(path: &Path, entrypoint: &str) -> Result<Self, SubmitError> {
        check_entry(path, entrypoint)?;
        Ok(Self { path: path.to_owned(), entrypoint: entrypoint.to_owned() })
    }

    /// The default name of a job: the name of its folder.
    pub fn name(&self) -> String {
        let absolute = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        absolute.file_name().map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Captures the folder without the directories in `left_out`, which need not exist.
    ///
    /// # Errors
    /// [`SubmitError::Capture`].
    pub fn capture(
        self,
        left_out: &[PathBuf],
        cache: CaptureCache,
        report: Report<'_>,
    ) -> Result<CapturedFolder, SubmitError> {
        let scan = Scan::without(&self.path, left_out)?;
        report(SubmitEvent::Scanned(&scan));
        let mut environments = scan.left_out().iter().filter(|it| it.kind == LeftOutKind::VirtualEnvironment);
        let local_environment = environments.next().map(|it| show(&it.path));
        let capture = read(scan, &cache, report)?;
        report(SubmitEvent::Captured(&capture));
        Ok(CapturedFolder { folder: self, capture, cache, local_environment, python: None })
    }
}

/// Reads the files of a scanned folder that are not in the cache.
fn read(scan: Scan, cache: &CaptureCache, report: Report<'_>) -> Result<Capture, CaptureError> {
    report(SubmitEvent::Capturing { bytes: 0, total_bytes: scan.bytes() });
    let options = CaptureOptions { seen: cache.recall(), ..CaptureOptions::default() };
    let capture = scan.capture(&options, &|so_far| {
        report(SubmitEvent::Capturing { bytes: so_far.bytes, total_bytes: so_far.total_bytes });
    })?;
    if let Some(seen) = &capture.seen {
        cache.remember(seen);
    }
    Ok(capture)
}

/// A captured folder, ready to be submitted.
#[derive(Debug)]
pub struct CapturedFolder {
    folder: ProjectFolder,
    capture: Capture,
    cache: CaptureCache,
    /// A virtual environment that was left out of the folder.
    local_environment: Option<String>,
    /// The Python versions to which the job was restricted.
    python: Option<PythonVersions>,
}

impl CapturedFolder {
    /// The work of a job that runs the entry point.
    pub fn work(&self, args: &[String]) -> Work {
        let entrypoint = self.folder.entrypoint.clone();
        Work::Project { snapshot: self.capture.digest, entrypoint, args: args.to_vec() }
    }

    /// Checks that a node can install what the project requires, and restricts the job to nodes that have or can install
    /// a Python version that the project accepts. Returns what the project names and the job does not get, except in files
    /// that are left out of the folder.
    ///
    /// # Errors
    /// If the files of the project cannot be read, or refer to a file that is not in the captured folder.
    pub fn require_packages(&mut self, spec: &mut Submission) -> Result<Vec<Unread>, SubmitError> {
        let ProjectFolder { path, entrypoint } = &self.folder;
        let found = survey(path, entrypoint)?;
        if let Some(path) = found.referred.iter().find(|path| !self.contains(path)) {
            return Err(SubmitError::RequirementLeftOut(path.clone()));
        }
        let mut unread: Vec<_> = found.unread.into_iter().filter(|unread| self.contains(&unread.file)).collect();
        if let (false, Some(path)) = (found.has_packages, &self.local_environment) {
            let advice =
                format!("`{path}/bin/pip freeze > requirements.txt` lists its packages, which the job then gets");
            unread.push(Unread { file: path.into(), part: String::new(), advice });
        }
        let wanted = found.python;
        let Some(python) = wanted.as_ref().and_then(PythonVersions::constraint) else { return Ok(unread) };
        let constraint = match &spec.constraint {
            Some(own) => format!("({own})&({python})"),
            None => python.to_string(),
        };
        spec.constraint = Some(constraint.parse().map_err(SubmitError::Constraint)?);
        self.python = wanted;
        Ok(unread)
    }

    fn contains(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_encoded_bytes();
        self.capture.manifest.entries.binary_search_by(|entry| entry.path.as_slice().cmp(path)).is_ok()
    }

    /// Asks what would happen to a job of this folder if it was submitted now.
    ///
    /// # Errors
    /// Those of the submission.
    pub async fn dry_run(&self, client: &Client, spec: &Submission) -> Result<DryRunView, SubmitError> {
        match client.dry_run(spec).await {
            Err(refusal) => Err(explain(client, self.python.clone(), refusal).await),
            Ok(would) => Ok(would),
        }
    }

    /// Submits a job whose work is of this folder, and uploads the folder if the head does not have it. With the `key` of
    /// an earlier job, returns that job; it must have the same folder, command and array.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn submit(
        self,
        client: &Client,
        spec: Submission,
        key: Option<&str>,
        report: Report<'_>,
    ) -> Result<JobId, SubmitError> {
        let Self { capture, cache, python, .. } = self;
        match submit_and_upload(client, capture, &cache, spec, key, report).await {
            Err(SubmitError::Client(refusal)) => Err(explain(client, python, refusal).await),
            result => result,
        }
    }
}

async fn submit_and_upload(
    client: &Client,
    mut capture: Capture,
    cache: &CaptureCache,
    mut spec: Submission,
    key: Option<&str>,
    report: Report<'_>,
) -> Result<JobId, SubmitError> {
    let mut recaptures = 0;
    loop {
        let request = SubmitRequest { key: key.map_or_else(new_key, str::to_owned), spec: spec.clone(), wait_ms: None };
        match client.submit(&request).await {
            Err(error) if error.code() == Some("snapshot_missing") => {}
            result => {
                let submitted = result?;
                if submitted.duplicate && key.is_some() {
                    check_same(client, &request.key, &request.spec, submitted.id).await?;
                    report(SubmitEvent::Duplicate(submitted.id));
                } else {
                    report(SubmitEvent::NothingToUpload);
                }
                return Ok(submitted.id);
            }
        }
        let error = match send(client, &capture, report).await {
            Ok(()) => return Ok(client.submit(&request).await?.id),
            Err(error) => error,
        };
        // A file may differ from the cache entry; without the entry, the next capture reads every file.
        cache.forget();
        if !is_about_changed_file(&error) {
            return Err(error.into());
        } else if recaptures == RECAPTURES {
            return Err(SubmitError::KeepsChanging(error));
        }
        recaptures += 1;
        capture = read(capture.scan_again()?, cache, report)?;
        report(SubmitEvent::CapturedAgain);
        if let Work::Project { snapshot, .. } = &mut spec.work {
            *snapshot = capture.digest;
        }
    }
}

/// Checks that the job with the key of `request` is the one that the request describes.
pub async fn check_same(client: &Client, key: &str, spec: &Submission, job: JobId) -> Result<(), SubmitError> {
    let found = client.job(job, 0).await?;
    // How many of its tasks may run at once can change later.
    let indices = |array: Option<&ArraySpec>| array.map(|array| array.indices.clone());
    let differs = [
        match &spec.work {
            Work::Project { snapshot, .. } => ("a folder with other content", found.snapshot != Some(*snapshot)),
            Work::Command { directory, .. } => ("another directory", found.directory.as_deref() != Some(&**directory)),
        },
        ("another command", found.command != spec.work.command_line()),
        ("another array", indices(found.summary.array.as_ref()) != indices(spec.array.as_ref())),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => Err(SubmitError::OtherJob { job, key: key.to_owned(), what }),
    }
}

async fn send(client: &Client, capture: &Capture, report: Report<'_>) -> Result<(), ClientError> {
    let sent = upload(client, capture, |so_far| {
        report(SubmitEvent::Uploading { bytes: so_far.bytes, total_bytes: so_far.missing_bytes });
    });
    report(SubmitEvent::Uploaded(&sent.await?));
    Ok(())
}

/// Returns whether an upload failed because a file changed after its capture.
fn is_about_changed_file(error: &ClientError) -> bool {
    let ClientError::Local(error) = error else { return false };
    matches!(error.source.downcast_ref(), Some(SourceError::Changed { .. }))
}

/// Says which Python versions the nodes have, if the head refused the job because no node has one that the project
/// accepts.
async fn explain(client: &Client, wanted: Option<PythonVersions>, refusal: ClientError) -> SubmitError {
    // The head's message lists every minor version that fits.
    let names_python = ["python-install", "python-none"].iter().any(|name| refusal.to_string().contains(name));
    let Some(wanted) = wanted.filter(|_| names_python) else { return refusal.into() };
    let Ok(nodes) = client.nodes().await else { return refusal.into() };
    let features = nodes.iter().flat_map(|node| &node.features);
    let versions = features.filter_map(|feature| feature.as_str().strip_prefix("python"));
    let found: BTreeSet<String> = versions.filter(|it| it.starts_with('3')).map(str::to_owned).collect();
    // 60 is the highest patch version that the job's constraint considers.
    let fits = |version: &String| (0..=60).any(|patch| wanted.fit(&format!("{version}.{patch}")));
    if found.iter().any(fits) { refusal.into() } else { SubmitError::NoPython { wanted, found } }
}

/// Why a folder was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The folder or the entry point does not exist.
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The files that describe the requirements cannot be used.
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error("the requirements of the project refer to {}, which is left out of the folder", .0.display())]
    RequirementLeftOut(PathBuf),
    /// The job's own constraint and that of its Python versions cannot be combined.
    #[error(transparent)]
    Constraint(ParseError),
    #[error(
        "no node can ever run this job: the project requires Python {wanted}, and the nodes have {}",
        if found.is_empty() { "no Python".to_owned() } else { found.iter().map(String::as_str).collect::<Vec<_>>().join(", ") }
    )]
    NoPython {
        /// Versions that the project accepts.
        wanted: PythonVersions,
        /// Minor versions that the nodes have.
        found: BTreeSet<String>,
    },
    #[error("job {job} has the key `{key}` and {what}")]
    OtherJob {
        job: JobId,
        key: String,
        /// What differs, e.g. `another command`.
        what: &'static str,
    },
    /// Files changed before each upload.
    #[error(transparent)]
    KeepsChanging(ClientError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// What to do about a file that changes all the time.
const STOP_CHANGING: &str = "list the file in the folder's .hostlerignore if the job does not need it, or submit again \
                             when no program writes to it";

impl SubmitError {
    /// Advice for the user, one hint per item.
    pub fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Client(error) => return error.hints(),
            Self::KeepsChanging(error) => return [error.hints(), vec![STOP_CHANGING.to_owned()]].concat(),
            Self::Entry(error) => return error.hint().into_iter().collect(),
            Self::Project(error) => return error.hint().map(str::to_owned).into_iter().collect(),
            Self::NoPython { .. } => {
                return vec![
                    "the requirement comes from `requires-python` or .python-version".to_owned(),
                    "to let uv install other versions on a node, set install_python = true in its agent.toml"
                        .to_owned(),
                ];
            }
            Self::Capture(CaptureError::Uncapturable(_)) => {
                "remove these files, replace links by their targets, or list them in the folder's .hostlerignore"
            }
            Self::Capture(CaptureError::Changed { .. }) => STOP_CHANGING,
            Self::RequirementLeftOut(path) => {
                return vec![format!("add a line such as !/{} to .hostlerignore", path.display())];
            }
            Self::OtherJob { .. } => {
                "choose another key for another job, also if the content of the folder has changed since"
            }
            Self::Capture(_) | Self::Constraint(_) => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submission_keys_are_unique() {
        let (a, b) = (new_key(), new_key());
        assert!(a.len() == 32 && a != b);
    }
}
