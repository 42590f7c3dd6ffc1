//! Captures a project folder, and says what happens while it is captured, submitted and uploaded.

use std::path::{Path, PathBuf};

use hostler_client::{CaptureCache, CapturedFolder, ProjectFolder, SubmitError, SubmitEvent, Unread};
use hostler_model::{Environment, JobId, Submission, format_bytes, plural};
use hostler_snapshot::{Ignored, LargestIgnored, LeftOut, LeftOutKind, show};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::flags::JobFlags;
use crate::output::{Output, Step};
use crate::xdg;

/// Returns a function that prints what happens during a submission.
pub fn narrate(output: &Output) -> impl Fn(SubmitEvent<'_>) + Sync {
    let step = Step::new(output);
    move |event| match event {
        SubmitEvent::Capturing { bytes, total_bytes } => step.at("capturing", bytes, total_bytes),
        SubmitEvent::Uploading { bytes, total_bytes } => step.at("uploading", bytes, total_bytes),
        SubmitEvent::CapturedAgain => step.end(),
        SubmitEvent::Scanned(scan) => {
            let lines = left_out(scan.left_out()).into_iter().chain(ignored(scan.ignored()));
            lines.for_each(|line| step.say(&line));
        }
        SubmitEvent::Captured(capture) => {
            let unchanged = match capture.files - capture.files_read {
                0 => String::new(),
                unchanged => format!(", {unchanged} unchanged"),
            };
            let (files, bytes) = (plural(capture.files, "file"), format_bytes(capture.bytes));
            step.say(&format!("captured {files}, {bytes}{unchanged}"));
        }
        SubmitEvent::Uploaded(sent) => {
            let (total, bytes) = (plural(sent.total_chunks, "chunk"), format_bytes(sent.bytes));
            step.say(&format!("uploaded {} of {total} ({bytes})", sent.chunks));
        }
        SubmitEvent::NothingToUpload => step.say("nothing to upload: the head has every chunk"),
        SubmitEvent::Duplicate(job) => step.say(&format!("job {job} has this key, so nothing is submitted")),
    }
}

/// Captures a folder for a job with these flags. Prints a note about what the job does not use, and returns that too.
pub(crate) fn captured(
    context: &Context,
    folder: ProjectFolder,
    path: &Path,
    left_out: &[PathBuf],
    flags: &JobFlags,
    args: &[String],
) -> Result<(CapturedFolder, Submission, Vec<Unread>), Failure> {
    let (name, cache) = (folder.name(), xdg::folder_cache().map(|cache| CaptureCache::of(&cache, path)));
    let mut captured = folder.capture(left_out, cache.unwrap_or_default(), &narrate(&context.output))?;
    let mut spec = flags.spec(captured.work(args), &name, Environment::new())?;
    // An image has its own Python and packages.
    let unread = match flags.image {
        None => captured.require_packages(&mut spec)?,
        Some(_) => Vec::new(),
    };
    not_used(&unread).iter().for_each(|line| context.output.say(line));
    Ok((captured, spec, unread))
}

/// Prints the id of the job, and nothing else, on stdout.
pub(crate) fn announce(context: &Context, id: JobId, unread: &[Unread]) {
    context.output.has_submitted(id);
    match context.output.is_json() {
        true => context.output.json(&with_not_used(&json!({ "id": id }), unread)),
        false => context.output.data(&id.to_string()),
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

/// One line about what a project names and the job does not get, if anything.
pub(crate) fn not_used(unread: &[Unread]) -> Option<String> {
    let all: Vec<String> = unread.iter().map(Unread::to_string).collect();
    (!all.is_empty()).then(|| format!("not used: {}", all.join("; ")))
}

/// Adds what a project names and the job does not get to an answer in JSON, if there is anything.
pub(crate) fn with_not_used(answer: &impl Serialize, unread: &[Unread]) -> Value {
    let mut answer = serde_json::to_value(answer).expect("answers can be written as JSON");
    if let (Value::Object(fields), false) = (&mut answer, unread.is_empty()) {
        let all = unread.iter().map(|it| json!({ "what": it.what(), "advice": it.advice })).collect();
        fields.insert("not_used".to_owned(), Value::Array(all));
    }
    answer
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        let hints = error.hints();
        let exit = match error {
            SubmitError::Client(error) => return error.into(),
            SubmitError::KeepsChanging(_) | SubmitError::Capture(_) => exit::FAILED,
            SubmitError::NoPython { .. } | SubmitError::OtherJob { .. } => exit::REFUSED,
            SubmitError::Entry(_)
            | SubmitError::Project(_)
            | SubmitError::RequirementLeftOut(_)
            | SubmitError::Constraint(_) => exit::USAGE,
        };
        let failure = Self::new(error.to_string()).because(&error).exiting(exit);
        hints.into_iter().fold(failure, Self::hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn files_that_do_not_count_are_named_in_one_line_and_in_json() {
        let unread = |file: &str, part: &str| Unread { file: file.into(), part: part.into(), advice: "do this".into() };
        let all = [unread("Pipfile", ""), unread("pyproject.toml", "[tool.pdm]")];
        let expected = "not used: Pipfile (do this); [tool.pdm] in pyproject.toml (do this)";
        assert_eq!(not_used(&all).as_deref(), Some(expected));
        let answer = json!({ "id": 5, "not_used": [{ "what": "Pipfile", "advice": "do this" }] });
        assert_eq!(with_not_used(&json!({ "id": 5 }), &all[..1]), answer);
        assert_eq!((not_used(&[]), with_not_used(&json!({ "id": 5 }), &[])), (None, json!({ "id": 5 })));
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
}
