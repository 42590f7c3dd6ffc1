//! "Duplicate and edit": a form that submits a copy of a job with other values.

use std::sync::atomic::{AtomicU64, Ordering};

use askama::Template;
use axum::extract::Path;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{JobId, PartitionName, format_bytes, format_ms, parse_bytes, parse_duration};
use hostler_proto::api::{DuplicateRequest, JobDetail, Submitted};

use crate::api::Refused;
use crate::form::Fields;
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::shell;
use crate::url::Url;

#[derive(Template)]
#[template(path = "duplicate.html")]
struct Page {
    frame: Frame,
    id: JobId,
    is_array: bool,
    values: Values,
    /// Why the last try failed.
    error: Option<String>,
    /// Whether to offer a copy without environment variables, because the head has deleted those of the job.
    lacks_environment: bool,
    /// The same key makes a repeated form harmless.
    key: String,
}

/// The texts in the form.
struct Values {
    name: String,
    command: String,
    cpus: String,
    memory: String,
    gpus: String,
    time: String,
    partition: String,
    priority: String,
}

/// `GET /jobs/{id}/duplicate`.
pub(crate) async fn show(frame: Frame, Path(id): Path<JobId>) -> Result<Html<String>, Refused> {
    let job: JobDetail = frame.api.get(&Url::job(id)).await?;
    if job.command.is_empty() {
        return Err(Refused::new(
            axum::http::StatusCode::FORBIDDEN,
            "not_owner",
            format!("job {id} belongs to {}; only that user and operators can duplicate it", job.summary.user),
        ));
    }
    let time = job.limits.iter().find(|limit| limit.name == "time");
    let summary = &job.summary;
    let values = Values {
        name: summary.name.clone(),
        command: job.command.clone(),
        cpus: summary.cpus.to_string(),
        memory: format_bytes(summary.memory_bytes),
        gpus: summary.gpus.to_string(),
        time: time.map(|limit| format_ms(limit.value)).unwrap_or_default(),
        partition: summary.partition.as_ref().map(ToString::to_string).unwrap_or_default(),
        priority: summary.priority.to_string(),
    };
    let is_array = summary.array.is_some();
    let key = new_key(&frame, id);
    Ok(render(&Page { frame, id, is_array, values, error: None, lacks_environment: false, key }))
}

/// `POST /jobs/{id}/duplicate`.
pub(crate) async fn submit(frame: Frame, Path(id): Path<JobId>, fields: Fields) -> Response {
    let result = match request(&fields) {
        Ok(request) => frame.api.post::<Submitted>(&Url::job(id).then("duplicate"), &request).await,
        Err(message) => Err(Refused::bad_request(message)),
    };
    match result {
        Ok(submitted) => {
            let notice = Notice::good(format!("Job {} was submitted as a copy of job {id}.", submitted.id));
            frame.redirect(&Url::job(submitted.id), notice)
        }
        Err(refused) => {
            let text = |name| fields.get(name).unwrap_or_default().to_owned();
            let values = Values {
                name: text("name"),
                command: text("command"),
                cpus: text("cpus"),
                memory: text("memory"),
                gpus: text("gpus"),
                time: text("time"),
                partition: text("partition"),
                priority: text("priority"),
            };
            let hints = refused.error.hints.iter().map(|hint| format!("; {hint}"));
            let error = Some(std::iter::once(refused.error.message.clone()).chain(hints).collect());
            let lacks_environment = refused.error.code == "no_environment";
            let key = new_key(&frame, id);
            (refused.status, render(&Page { frame, id, is_array: false, values, error, lacks_environment, key }))
                .into_response()
        }
    }
}

/// A key that no other form has. The API keeps keys apart by user.
fn new_key(frame: &Frame, id: JobId) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("duplicate-{id}-{}-{}", frame.now.as_nanosecond(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Reads the form.
fn request(fields: &Fields) -> Result<DuplicateRequest, String> {
    fn number<T: std::str::FromStr>(fields: &Fields, name: &str, what: &str) -> Result<Option<T>, String> {
        let Some(text) = fields.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{what} must be a whole number, not `{text}`"))
    }
    let command = fields.text("command").ok_or("the command line is empty")?;
    // Browsers send each line break as two characters.
    let argv = shell::split(&command.replace("\r\n", "\n"))
        .map_err(|why| format!("the command line cannot be read: {why}"))?;
    if argv.is_empty() {
        return Err("the command line is empty".to_owned());
    }
    let memory = fields.text("memory").map(|text| parse_bytes(text).map_err(|error| format!("memory: {error}")));
    let time = fields.text("time").map(|text| parse_duration(text).map_err(|error| format!("time limit: {error}")));
    let time_limit_ms = match time.transpose()? {
        Some(time) => u64::try_from(time.as_millis()).map_err(|_| "the time limit is too long".to_owned())?,
        None => 0,
    };
    let partition =
        fields.text("partition").map(|name| name.parse::<PartitionName>().map_err(|error| error.to_string()));
    Ok(DuplicateRequest {
        key: fields.text("key").unwrap_or_default().to_owned(),
        name: fields.text("name").map(str::to_owned),
        argv: Some(argv),
        cpus: number(fields, "cpus", "the number of CPUs")?,
        memory_bytes: memory.transpose()?,
        gpus: number(fields, "gpus", "the number of GPUs")?,
        time_limit_ms: Some(time_limit_ms),
        without_environment: fields.get("without_environment") == Some("yes"),
        partition: partition.transpose()?,
        priority: number(fields, "priority", "the priority")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_become_requests() {
        let fields = Fields::parse(b"key=k&name=a&command=echo+'two+words'&cpus=2&memory=1G&time=1h&gpus=&priority=-3");
        let request = request(&fields).expect("the form is valid");
        assert_eq!(request.argv, Some(vec!["echo".to_owned(), "two words".to_owned()]));
        let lines = Fields::parse(b"key=k&command=sh+-c+'a%0D%0Ab'");
        let lines = super::request(&lines).expect("the form is valid").argv.expect("a command line");
        assert_eq!(lines, ["sh", "-c", "a\nb"]);
        assert_eq!((request.cpus, request.memory_bytes, request.gpus), (Some(2), Some(1 << 30), None));
        assert_eq!((request.time_limit_ms, request.priority), (Some(3_600_000), Some(-3)));
    }

    #[test]
    fn mistakes_in_forms_are_named() {
        for (form, part) in [
            ("command=", "command line is empty"),
            ("command='a", "not closed"),
            ("command=a&cpus=x", "number of CPUs"),
            ("command=a&memory=lots", "memory"),
            ("command=a&time=5", "time limit"),
        ] {
            let error = request(&Fields::parse(form.as_bytes())).expect_err(form);
            assert!(error.contains(part), "{error}");
        }
    }
}
