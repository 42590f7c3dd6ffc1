//! *Submit*: a form that submits a script, a folder or an archive as a job, and says when the job would start.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{ArraySpec, Digest, JobId, NodeName, Submission, Work, format_bytes};
use hostler_proto::api::{Info, JobDetail, ScriptView, SubmitRequest, Submitted};
use hostler_proto::dry_run::{DryRunRequest, DryRunView};
use hostler_proto::partitions::PartitionView;

use super::duplicate::own_job;
use crate::api::Refused;
use crate::assets::SUBMIT;
use crate::folder;
use crate::form::{Fields, new_key};
use crate::job_form::{JobFields, Wanted, command};
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::parts::Time;
use crate::url::Url;

/// First line of a script that names no interpreter.
const SHELL: &str = "#!/bin/sh\n";

#[derive(Template)]
#[template(path = "submit.html")]
struct Page {
    frame: Frame,
    values: JobFields,
    sources: Sources,
    array: String,
    /// What no job holds.
    free: Vec<String>,
    /// When the job would start, if the reader asked.
    estimate: Option<Estimate>,
    /// Why the last try failed.
    error: Option<String>,
    /// The same key makes a repeated form harmless.
    key: String,
}

/// What the job runs.
#[derive(Default)]
struct Sources {
    script: String,
    /// Whether the job runs in an uploaded folder, not as a script.
    is_folder: bool,
    /// Hash of the uploaded folder, and what the page calls it.
    snapshot: String,
    folder: String,
}

/// When a job would start.
struct Estimate {
    view: DryRunView,
    at: Option<Time>,
}

/// `GET /submit`. The parameter `like` fills the form from an earlier job.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let like: Option<JobId> = frame.query.read("like")?;
    let mut sources = Sources::default();
    let (mut values, mut array) = (JobFields::default(), String::new());
    if let Some(id) = like {
        let job = own_job(&frame, id).await?;
        values = JobFields::of_job(&job);
        array = job.summary.array.as_ref().map(ToString::to_string).unwrap_or_default();
        sources = of_job(&frame, &job).await?;
    }
    page(frame, values, array, sources, None, None, new_key()).await.map(|page| render(&page))
}

/// What an earlier job ran.
async fn of_job(frame: &Frame, job: &JobDetail) -> Result<Sources, Refused> {
    let id = job.summary.id;
    if let Some(snapshot) = job.snapshot {
        let (snapshot, folder) = (snapshot.to_string(), format!("the folder of job {id}"));
        return Ok(Sources { is_folder: true, snapshot, folder, ..Sources::default() });
    }
    // The head may no longer have the script.
    let script: Result<String, Refused> = match job.script {
        true => frame.api.get::<ScriptView>(&Url::job(id).then("script")).await.map(|view| view.script),
        false => Err(Refused::bad_request("no script")),
    };
    let script = script.unwrap_or_else(|_| format!("{SHELL}{}\n", job.command));
    Ok(Sources { script, ..Sources::default() })
}

async fn page(
    frame: Frame,
    mut values: JobFields,
    array: String,
    sources: Sources,
    estimate: Option<DryRunView>,
    error: Option<String>,
    key: String,
) -> Result<Page, Refused> {
    let Info { capacity, .. } = frame.api.get("/info").await?;
    let mut free = vec![
        format!("{} of {} CPUs", capacity.cpus.free, capacity.cpus.total),
        format!("{} of {} memory", format_bytes(capacity.memory_bytes.free), format_bytes(capacity.memory_bytes.total)),
    ];
    if capacity.gpus.total > 0 {
        free.push(format!("{} of {} GPUs", capacity.gpus.free, capacity.gpus.total));
    }
    let partitions: Vec<PartitionView> = frame.api.get("/partitions").await?;
    if !partitions.is_empty() {
        let usual = partitions.iter().find(|it| it.is_default).map_or("any node", |it| it.name.as_str());
        values.partitions.push((String::new(), format!("usual: {usual}")));
    }
    let label = |it: &PartitionView| format!("{}: {} of {} CPUs free", it.name, it.cpus_free, it.cpus);
    values.partitions.extend(partitions.iter().map(|it| (it.name.to_string(), label(it))));
    let estimate = estimate.map(|view| Estimate { at: view.starts_at.map(|at| frame.full(at)), view });
    Ok(Page { frame, values, sources, array, free, estimate, error, key })
}

/// `POST /submit`. With the field `try`, the page only says when the job would start.
pub(crate) async fn submit(frame: Frame, fields: Fields) -> Response {
    let is_try = fields.get("try").is_some();
    let mut outcome = match Job::read(&fields) {
        Ok(job) if is_try => job.try_out(&frame).await.map(Outcome::Tried),
        Ok(job) => job.submit(&frame, fields.text("key").unwrap_or_default()).await.map(Outcome::Submitted),
        Err(message) => Err(Refused::bad_request(message)),
    };
    if let Ok(Outcome::Submitted(Submitted { id, duplicate, .. })) = &outcome {
        let notice = match duplicate {
            true => format!("This form was sent before. It submitted job {id}."),
            false => format!("Job {id} was submitted."),
        };
        return frame.redirect(&Url::job(id), Notice::good(notice));
    }
    let text = |name| fields.get(name).unwrap_or_default().to_owned();
    let sources = Sources {
        script: text("script"),
        is_folder: fields.get("source") == Some("folder"),
        snapshot: text("snapshot"),
        folder: text("folder"),
    };
    let error = outcome.as_ref().err().map(|refused| (refused.status, refused.line()));
    let estimate = outcome.as_mut().ok().and_then(|outcome| match outcome {
        Outcome::Tried(view) => Some(view.clone()),
        Outcome::Submitted(_) => None,
    });
    let (status, error) = error.unzip();
    // If the head's answer was lost, the same form sent again must not submit another job.
    let key = fields.text("key").map_or_else(new_key, str::to_owned);
    match page(frame, JobFields::sent(&fields), text("array"), sources, estimate, error, key).await {
        // A question that the head answers with "no" is no failure.
        Ok(page) => (status.filter(|_| !is_try).unwrap_or_default(), render(&page)).into_response(),
        Err(refused) => refused.into_response(),
    }
}

enum Outcome {
    Tried(DryRunView),
    Submitted(Submitted),
}

/// A job that the form describes.
#[derive(Debug)]
struct Job {
    spec: Submission,
    /// Name and content of the script, if the job is no folder.
    script: Option<(&'static str, String)>,
    /// Whether the reader has chosen a folder that is not uploaded yet.
    lacks_folder: bool,
}

impl Job {
    fn read(fields: &Fields) -> Result<Self, String> {
        let wanted = Wanted::read(fields)?;
        let is_folder = fields.get("source") == Some("folder");
        let (mut script, mut lacks_folder) = (None, false);
        let (work, usual_name) = if is_folder {
            let snapshot = fields.text("snapshot").map(str::parse::<Digest>).transpose();
            let snapshot = snapshot.map_err(|_| "the folder's hash is damaged; choose the folder again")?;
            lacks_folder = snapshot.is_none();
            let mut words = command(fields)?.into_iter();
            let entrypoint = words.next().unwrap_or_default();
            let work =
                Work::Project { snapshot: snapshot.unwrap_or(Digest([0; 32])), entrypoint, args: words.collect() };
            (work, fields.text("folder").unwrap_or("folder"))
        } else {
            let text = fields.get("script").unwrap_or_default().replace("\r\n", "\n");
            if text.trim().is_empty() {
                return Err("the script is empty".to_owned());
            }
            let text = if text.starts_with("#!") { text } else { format!("{SHELL}{text}") };
            let first = text.lines().next().unwrap_or_default();
            // Packages that a Python script names in its first lines are installed for it.
            let name = if first.contains("python") { "script.py" } else { "script.sh" };
            let snapshot = folder::digest(&folder::with_file(name, &text));
            script = Some((name, text));
            (Work::Project { snapshot, entrypoint: name.to_owned(), args: Vec::new() }, name)
        };
        let mut spec = Submission::with_defaults(wanted.name.as_deref().unwrap_or(usual_name), work);
        spec.request.cpus = wanted.cpus;
        spec.request.memory_bytes = wanted.memory_bytes;
        spec.request.gpus = wanted.gpus.unwrap_or(0);
        spec.time_limit_ms = wanted.time_limit_ms;
        spec.partition = wanted.partition;
        spec.priority = wanted.priority.unwrap_or(0);
        let array = fields.text("array").map(str::parse::<ArraySpec>).transpose();
        spec.array = array.map_err(|error| format!("array: {error}"))?;
        Ok(Self { spec, script, lacks_folder })
    }

    async fn try_out(self, frame: &Frame) -> Result<DryRunView, Refused> {
        frame.api.post("/dry-run", &DryRunRequest { spec: self.spec }).await
    }

    async fn submit(self, frame: &Frame, key: &str) -> Result<Submitted, Refused> {
        if self.lacks_folder {
            return Err(Refused::bad_request("choose a folder or an archive; the page uploads it with a script"));
        }
        if let Some((name, text)) = &self.script {
            folder::store_file(&frame.api, name, text).await?;
        }
        // A form that the reader has changed and sends again is another job.
        let spec = serde_json::to_vec(&self.spec).expect("a submission is valid JSON");
        let key = format!("{key}-{}", folder::digest_of(&spec).short());
        frame.api.post("/jobs", &SubmitRequest { key, spec: self.spec, wait_ms: None }).await
    }
}

impl Page {
    fn script_path(&self) -> &str {
        &SUBMIT.path
    }

    fn nodes(&self, nodes: &[NodeName]) -> String {
        nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_runs_in_a_folder_of_its_own() {
        let job =
            Job::read(&Fields::parse(b"source=script&script=%23!/usr/bin/env+python3%0D%0Aprint(1)&cpus=2&array=0-3"));
        let Job { spec, script, .. } = job.expect("the form is valid");
        assert_eq!(script, Some(("script.py", "#!/usr/bin/env python3\nprint(1)".to_owned())));
        assert!(matches!(&spec.work, Work::Project { entrypoint, .. } if entrypoint == "script.py"), "{spec:?}");
        assert_eq!(
            (&*spec.name, spec.request.cpus, spec.array.map(|it| it.indices.len())),
            ("script.py", Some(2), Some(4))
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (form, part) in [
            ("source=script&script=+%0D%0A", "script is empty"),
            ("source=folder&snapshot=ab&command=x", "choose the folder again"),
            ("source=folder&command=", "command line is empty"),
            ("script=%23!/bin/sh&array=x", "array"),
        ] {
            let error = Job::read(&Fields::parse(form.as_bytes())).expect_err(form);
            assert!(error.contains(part), "{error}");
        }
    }
}
