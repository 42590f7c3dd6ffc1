//! Submits jobs: capture the folder, submit, upload missing chunks, submit again.
//!
//! The first submission already names the folder by its hash. If the head has the folder, e.g. from an earlier
//! submission, nothing is uploaded. If a file changes before it is uploaded, the folder is captured again.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use hostler_client::{Client, ClientError, upload};
use hostler_model::{ArraySpec, Digest, JobId, ParseError, PythonVersions, Submission, Work, format_bytes, plural};
use hostler_proto::api::SubmitRequest;
use hostler_snapshot::{
    Capture, CaptureError, CaptureOptions, Ignored, LargestIgnored, LeftOut, LeftOutKind, Scan, SourceError, show,
};

use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::seen_folder::CaptureCache;
use crate::xdg;

/// Endings of script names. An entry point with such an ending must be a file; other names may be commands.
const SCRIPT_ENDINGS: [&str; 3] = [".py", ".pyz", ".sh"];

/// A random idempotency key of 128 bits.
pub(crate) fn new_key() -> String {
    format!("{:032x}", u128::from_ne_bytes(hostler_sys::random()))
}

/// Submits a job that needs no folder.
pub(crate) async fn submit_command(client: &Client, spec: Submission) -> Result<JobId, Failure> {
    Ok(client.submit(&SubmitRequest { key: new_key(), spec }).await?.id)
}

/// How often a folder is captured again because files changed before they were uploaded.
const RECAPTURES: u32 = 5;

/// A captured folder and its cache entry.
pub(crate) struct Captured {
    pub(crate) capture: Capture,
    folder: CaptureCache,
}

/// Submits a job whose work names `captured`, and uploads the folder if the head does not have it. With the `key` of an
/// earlier job, returns that job; it must have the same folder, command and array.
pub(crate) async fn submit_project(
    context: &Context,
    client: &Client,
    mut captured: Captured,
    mut spec: Submission,
    key: Option<&str>,
) -> Result<JobId, Failure> {
    let mut recaptures = 0;
    loop {
        let request = SubmitRequest { key: key.map_or_else(new_key, str::to_owned), spec: spec.clone() };
        match client.submit(&request).await {
            Err(error) if error.code() == Some("snapshot_missing") => {}
            result => {
                let submitted = result?;
                if submitted.duplicate && key.is_some() {
                    check_same(client, &request, submitted.id).await?;
                    context.output.say(&format!("job {} has this key, so nothing is submitted", submitted.id));
                } else {
                    context.output.say("nothing to upload: the head has every chunk");
                }
                return Ok(submitted.id);
            }
        }
        let error = match send(context, client, &captured.capture).await {
            Ok(()) => return Ok(client.submit(&request).await?.id),
            Err(error) => error,
        };
        // A file may differ from the cache entry; without the entry, the next capture reads every file.
        captured.folder.forget();
        if !is_about_changed_file(&error) {
            return Err(error.into());
        } else if recaptures == RECAPTURES {
            return Err(Failure::from(error).hint(STOP_CHANGING));
        }
        recaptures += 1;
        captured = read(context, captured.capture.scan_again(), captured.folder)?;
        if let Work::Project { snapshot, .. } = &mut spec.work {
            *snapshot = captured.capture.digest;
        }
    }
}

/// Checks that the job with the key of `request` is the one that the request describes.
async fn check_same(client: &Client, request: &SubmitRequest, job: JobId) -> Result<(), Failure> {
    let Work::Project { snapshot, .. } = &request.spec.work else { return Ok(()) };
    let found = client.job(job, 0).await?;
    // How many of its tasks may run at once can change later.
    let indices = |array: Option<&ArraySpec>| array.map(|array| array.indices.clone());
    let differs = [
        ("folder", found.snapshot != Some(*snapshot)),
        ("command", found.command != request.spec.work.command_line()),
        ("array", indices(found.summary.array.as_ref()) != indices(request.spec.array.as_ref())),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => Err(Failure::new(format!("job {job} has the key `{}` and another {what}", request.key))
            .hint("choose another key for another job")
            .exiting(exit::REFUSED)),
    }
}

/// Returns whether an upload failed because a file changed after its capture.
fn is_about_changed_file(error: &ClientError) -> bool {
    let ClientError::Local(error) = error else { return false };
    matches!(error.source.downcast_ref(), Some(SourceError::Changed { .. }))
}

async fn send(context: &Context, client: &Client, capture: &Capture) -> Result<(), ClientError> {
    let progress = context.output.progress("uploading", 0);
    let sent = upload::upload(client, capture, |so_far| progress.at(so_far.bytes, so_far.missing_bytes)).await?;
    drop(progress);
    context.output.say(&format!(
        "uploaded {} of {} ({})",
        sent.chunks,
        plural(sent.total_chunks, "chunk"),
        format_bytes(sent.bytes)
    ));
    Ok(())
}

/// Checks the folder and the entry point, then captures the folder.
pub(crate) fn capture(
    context: &Context,
    path: &Path,
    entrypoint: &str,
    folder: CaptureCache,
) -> Result<Captured, Failure> {
    check_project(path, entrypoint)?;
    let scan = Scan::without(path, &xdg::own_directories(path));
    if let Ok(scan) = &scan {
        let lines = left_out(scan.left_out()).into_iter().chain(ignored(scan.ignored()));
        lines.for_each(|line| context.output.say(&line));
    }
    let captured = read(context, scan, folder)?;
    let Capture { files, files_read, bytes, .. } = captured.capture;
    let unchanged = match files_read {
        read if read == files => String::new(),
        read => format!(", {} unchanged", files - read),
    };
    context.output.say(&format!("captured {}, {}{unchanged}", plural(files, "file"), format_bytes(bytes)));
    Ok(captured)
}

/// Reads the files of a scanned folder.
fn read(context: &Context, scan: Result<Scan, CaptureError>, folder: CaptureCache) -> Result<Captured, Failure> {
    let scan = scan.map_err(|error| uncapturable(&error))?;
    let progress = context.output.progress("capturing", scan.bytes());
    let options = CaptureOptions { seen: folder.recall(), ..CaptureOptions::default() };
    let capture = scan
        .capture(&options, &|so_far| progress.at(so_far.bytes, so_far.total_bytes))
        .map_err(|error| uncapturable(&error))?;
    drop(progress);
    if let Some(seen) = &capture.seen {
        folder.remember(seen);
    }
    Ok(Captured { capture, folder })
}

/// What to do about a file that changes all the time.
const STOP_CHANGING: &str = "list the file in the folder's .hostlerignore if the job does not need it, or submit again \
                             when no program writes to it";

fn uncapturable(error: &CaptureError) -> Failure {
    let failure = Failure::new(error.to_string()).because(error);
    match error {
        CaptureError::Uncapturable(_) => failure
            .hint("remove these files, replace links by their targets, or list them in the folder's .hostlerignore"),
        CaptureError::Changed { .. } => failure.hint(STOP_CHANGING),
        _ => failure,
    }
}

/// One line about the directories that are left out by default, if any.
fn left_out(directories: &[LeftOut]) -> Option<String> {
    let first = show(&directories.first()?.path);
    let kinds = directories.chunk_by(|a, b| a.kind == b.kind).map(|of_kind| {
        let path = show(&of_kind[0].path);
        let more = if of_kind.len() > 1 { format!(" and {} more", of_kind.len() - 1) } else { String::new() };
        let what = match of_kind[0].kind {
            LeftOutKind::VirtualEnvironment => " (virtual environment)",
            LeftOutKind::Results => " (results of jobs)",
            // These directory names need no explanation.
            LeftOutKind::Git | LeftOutKind::PythonCache | LeftOutKind::NodeModules => "",
        };
        format!("{path}{more}{what}")
    });
    let kinds: Vec<String> = kinds.collect();
    Some(format!("left out: {}; to include one, add a line such as !{first}/ to .hostlerignore", kinds.join(", ")))
}

/// One line about the files that the user's ignore rules exclude, if any.
fn ignored(ignored: &Ignored) -> Option<String> {
    let Ignored { files, bytes, largest, has_more } = ignored;
    let LargestIgnored { path, bytes: largest_bytes, pattern } = largest.as_ref()?;
    let (path, more) = (show(path), if *has_more { "more than " } else { "" });
    let what = match (files, has_more) {
        (1, false) => format!("{path} ({})", format_bytes(*bytes)),
        _ => format!(
            "{more}{files} files, {}; the largest is {path} ({})",
            format_bytes(*bytes),
            format_bytes(*largest_bytes)
        ),
    };
    let how = match pattern {
        Some(pattern) => format!("add the line {pattern} to .hostlerignore"),
        None => "change the rule that names it".to_owned(),
    };
    Some(format!("left out by ignore rules: {what}; to include it, {how}"))
}

/// Checks that the folder and the entry point exist.
pub(crate) fn check_project(path: &Path, entrypoint: &str) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Err(Failure::usage(format!("{} is a file, not a project folder", path.display()))
                .hint("name the project folder first: hostler submit FOLDER ENTRYPOINT"));
        }
        Err(error) => {
            return Err(Failure::usage(format!("cannot read the project folder {}", path.display())).because(&error));
        }
    }
    let entry = Path::new(entrypoint);
    let leads_out = entry.components().any(|part| part == Component::ParentDir);
    if entrypoint.is_empty() || leads_out {
        return Err(Failure::usage(format!("the entry point `{entrypoint}` is not in the project folder")));
    }
    if let Some(failure) = entry_with_arguments(path, entrypoint) {
        return Err(failure);
    }
    let must_exist = entrypoint.contains('/') || SCRIPT_ENDINGS.iter().any(|ending| entrypoint.ends_with(ending));
    if entry.is_absolute() || !must_exist || path.join(entry).exists() {
        return Ok(());
    }
    let failure = Failure::usage(format!("the entry point {entrypoint} is not in {}", path.display()));
    Err(match scripts_in(path).as_slice() {
        [] => failure.hint("name a file of the folder or a command"),
        scripts => failure.hint(format!("scripts in the folder: {}", scripts.join(", "))),
    })
}

/// Refuses an entry point that contains arguments, such as `train.py --seed 3`. A file may have spaces in its name.
fn entry_with_arguments(path: &Path, entrypoint: &str) -> Option<Failure> {
    let (program, arguments) = entrypoint.split_once(char::is_whitespace)?;
    let entry = Path::new(entrypoint);
    // An absolute path names a file of the node, unless a program without the arguments exists here.
    let is_file = path.join(entry).exists() || (entry.is_absolute() && !Path::new(program).is_file());
    (!is_file).then(|| {
        let folder = path.display();
        Failure::usage(format!("the entry point `{entrypoint}` is not in {folder}"))
            .hint(format!("write arguments after `--`: hostler submit {folder} {program} -- {}", arguments.trim()))
    })
}

/// Up to five scripts of the folder, for a hint.
fn scripts_in(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut scripts: Vec<String> =
        names.filter(|name| SCRIPT_ENDINGS.iter().any(|ending| name.ends_with(ending))).collect();
    scripts.sort_unstable();
    scripts.truncate(5);
    scripts
}

/// The default name of a job: the name of its folder.
pub(crate) fn project_name(path: &Path) -> String {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    absolute.file_name().map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Restricts the job to nodes that have or can install a Python version that the project requires. Returns the
/// versions.
pub(crate) fn ask_for_python(
    folder: &Path,
    entrypoint: &str,
    spec: &mut Submission,
) -> Result<Option<PythonVersions>, Failure> {
    let wanted = hostler_agent::environment::python_wanted(folder, entrypoint);
    let wanted = wanted.map_err(|error| Failure::usage(error.to_string()).because(&error))?;
    let Some(python) = wanted.as_ref().and_then(PythonVersions::constraint) else { return Ok(None) };
    let text = match &spec.constraint {
        Some(own) => format!("({own})&({python})"),
        None => python.to_string(),
    };
    let both = text.parse().map_err(|error: ParseError| Failure::usage(error.to_string()))?;
    spec.constraint = Some(both);
    Ok(wanted)
}

/// Says which Python versions are missing, if the head refused the job because the project requires a version that no
/// node has.
pub(crate) async fn explain_python(client: &Client, wanted: Option<PythonVersions>, failure: Failure) -> Failure {
    let (Some(wanted), Ok(nodes)) = (wanted, client.nodes().await) else { return failure };
    let all = nodes.iter().flat_map(|node| &node.features);
    let versions: BTreeSet<&str> =
        all.filter_map(|feature| feature.as_str().strip_prefix("python").filter(|it| it.starts_with('3'))).collect();
    // The head's message lists every minor version that fits.
    let names_python = ["python-install", "python-none"].iter().any(|name| failure.summary().contains(name));
    // 60 is the highest patch version that the job's constraint considers.
    let fits = |version: &&str| (0..=60).any(|patch| wanted.fit(&format!("{version}.{patch}")));
    if !names_python || versions.iter().any(fits) {
        return failure;
    }
    let versions =
        if versions.is_empty() { "no Python".to_owned() } else { versions.into_iter().collect::<Vec<_>>().join(", ") };
    Failure::new(format!(
        "no node can ever run this job: the project requires Python {wanted}, and the nodes have {versions}"
    ))
    .hint("the requirement comes from `requires-python` or .python-version")
    .hint("to let uv install other versions on a node, set install_python = true in its agent.toml")
    .exiting(failure.exit)
}

/// Checks that a node can install what the project requires: that the files can be read, and that the captured folder
/// contains everything that they refer to.
pub(crate) fn check_requirements(folder: &Path, entrypoint: &str, captured: &Captured) -> Result<(), Failure> {
    let referred = hostler_agent::environment::check(folder, entrypoint).map_err(|error| {
        let failure = Failure::usage(error.to_string()).because(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    let entries = &captured.capture.manifest.entries;
    let is_left_out = |path: &&PathBuf| {
        let path = path.as_os_str().as_encoded_bytes();
        entries.binary_search_by(|entry| entry.path.as_slice().cmp(path)).is_err()
    };
    let Some(path) = referred.iter().find(is_left_out) else { return Ok(()) };
    let path = path.display();
    Err(Failure::usage(format!("the requirements of the project refer to {path}, which is left out of the folder"))
        .hint(format!("add a line such as !/{path} to .hostlerignore")))
}

pub(crate) fn project_work(snapshot: Digest, entrypoint: &str, args: &[String]) -> hostler_model::Work {
    hostler_model::Work::Project { snapshot, entrypoint: entrypoint.to_owned(), args: args.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submission_keys_are_unique() {
        let (a, b) = (new_key(), new_key());
        assert!(a.len() == 32 && a != b);
    }

    #[test]
    fn left_out_directories_are_listed_in_one_line() {
        let all = [
            (LeftOutKind::Git, ".git"),
            (LeftOutKind::VirtualEnvironment, "venv"),
            (LeftOutKind::PythonCache, "a/__pycache__"),
            (LeftOutKind::PythonCache, "b/__pycache__"),
            (LeftOutKind::Results, "12"),
        ];
        let all = all.map(|(kind, path)| LeftOut { kind, path: path.into() });
        let expected = "left out: .git, venv (virtual environment), a/__pycache__ and 1 more, 12 (results of jobs); \
                        to include one, add a line such as !.git/ to .hostlerignore";
        assert_eq!(left_out(&all).as_deref(), Some(expected));
        assert_eq!(left_out(&[]), None);
    }

    #[test]
    fn ignored_files_are_summed_up_in_one_line() {
        let of = |files, bytes, pattern: Option<&str>, has_more| {
            let pattern = pattern.map(str::to_owned);
            let largest = LargestIgnored { path: b"data/train.bin".to_vec(), bytes: 1 << 30, pattern };
            ignored(&Ignored { files, bytes, largest: Some(largest), has_more }).expect("files are left out")
        };
        assert_eq!(
            of(3, 3 << 29, Some("!/data/"), false),
            "left out by ignore rules: 3 files, 1.5G; the largest is data/train.bin (1G); to include it, add the \
             line !/data/ to .hostlerignore"
        );
        assert_eq!(
            of(1, 1 << 30, None, false),
            "left out by ignore rules: data/train.bin (1G); to include it, change the rule that names it"
        );
        assert!(of(50_000, 2 << 30, None, true).contains("more than 50000 files, 2G"));
        assert_eq!(ignored(&Ignored::default()), None);
    }

    #[test]
    fn entry_point_with_arguments_is_rejected() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path();
        std::fs::write(path.join("train.py"), "").expect("ours");
        std::fs::write(path.join("my train.py"), "").expect("ours");
        for entry in ["train.py --seed 3", "python train.py", "/bin/sh -c date", "missing.py x.py", "my  train.py"] {
            let said = check_project(path, entry).expect_err(entry).render();
            assert!(said.contains("is not in") && said.contains(" -- "), "{said}");
        }
        let said = check_project(path, "train.py --seed 3").expect_err("arguments").render();
        assert!(said.contains("train.py -- --seed 3"), "{said}");
        for entry in ["train.py", "my train.py", "/opt/my tools/run"] {
            assert_eq!(check_project(path, entry), Ok(()), "{entry}");
        }
    }

    #[test]
    fn missing_folder_or_entry_point_is_rejected() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path();
        std::fs::write(path.join("main.py"), "").expect("ours");
        assert_eq!(check_project(path, "main.py"), Ok(()));
        assert_eq!(check_project(path, "python3"), Ok(()), "a command");
        let refusal = |path: &Path, entry| check_project(path, entry).expect_err("a mistake").render();
        assert!(refusal(path, "train.py").contains("hint: scripts in the folder: main.py"));
        assert!(refusal(path, "bin/tool").contains("entry point bin/tool is not in"));
        assert!(refusal(path, "../main.py").contains("not in the project folder"));
        assert!(refusal(&path.join("nowhere"), "main.py").contains("cannot read the project folder"));
        assert!(refusal(&path.join("main.py"), "main.py").contains("is a file"));
    }
}
