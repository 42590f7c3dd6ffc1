//! Fields of forms that describe a job: the texts that a page shows in them, and what they ask for.

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_model::{PartitionName, format_bytes, format_ms, parse_bytes, parse_duration};
use hostler_proto::api::JobDetail;

use crate::form::Fields;
use crate::shell;

/// The texts in the fields.
#[derive(Debug, Default, Template)]
#[template(path = "parts/job_fields.html")]
pub(crate) struct JobFields {
    pub(crate) name: String,
    pub(crate) command: String,
    cpus: String,
    memory: String,
    gpus: String,
    time: String,
    partition: String,
    priority: String,
    /// Partitions to choose from, each with a label. Without any, the partition is a text.
    pub(crate) partitions: Vec<(String, String)>,
}

impl HtmlSafe for JobFields {}

impl JobFields {
    /// The texts that a form has sent.
    pub(crate) fn sent(fields: &Fields) -> Self {
        let text = |name| fields.get(name).unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            command: text("command"),
            cpus: text("cpus"),
            memory: text("memory"),
            gpus: text("gpus"),
            time: text("time"),
            partition: text("partition"),
            priority: text("priority"),
            partitions: Vec::new(),
        }
    }

    /// The texts that describe a job.
    pub(crate) fn of_job(job: &JobDetail) -> Self {
        let summary = &job.summary;
        let time = job.limits.iter().find(|limit| limit.name == "time");
        Self {
            name: summary.name.clone(),
            command: job.command.clone(),
            cpus: summary.cpus.to_string(),
            memory: format_bytes(summary.memory_bytes),
            gpus: summary.gpus.to_string(),
            time: time.map(|limit| format_ms(limit.value)).unwrap_or_default(),
            partition: summary.partition.as_ref().map(ToString::to_string).unwrap_or_default(),
            priority: summary.priority.to_string(),
            partitions: Vec::new(),
        }
    }
}

/// What the fields ask for; `None` for empty fields.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) name: Option<String>,
    pub(crate) cpus: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) gpus: Option<u32>,
    pub(crate) time_limit_ms: Option<u64>,
    pub(crate) partition: Option<PartitionName>,
    pub(crate) priority: Option<i32>,
}

impl Wanted {
    /// Reads all fields but the command line.
    ///
    /// # Errors
    /// A message about the first field that is not valid.
    pub(crate) fn read(fields: &Fields) -> Result<Self, String> {
        fn number<T: std::str::FromStr>(fields: &Fields, name: &str, what: &str) -> Result<Option<T>, String> {
            let Some(text) = fields.text(name) else { return Ok(None) };
            text.parse().map(Some).map_err(|_| format!("{what} must be a whole number, not `{text}`"))
        }
        let memory = fields.text("memory").map(|text| parse_bytes(text).map_err(|error| format!("memory: {error}")));
        let time = fields.text("time").map(|text| parse_duration(text).map_err(|error| format!("time limit: {error}")));
        let in_ms = |time: std::time::Duration| u64::try_from(time.as_millis());
        let partition =
            fields.text("partition").map(|name| name.parse::<PartitionName>().map_err(|error| error.to_string()));
        Ok(Self {
            name: fields.text("name").map(str::to_owned),
            cpus: number(fields, "cpus", "the number of CPUs")?,
            memory_bytes: memory.transpose()?,
            gpus: number(fields, "gpus", "the number of GPUs")?,
            time_limit_ms: time.transpose()?.map(in_ms).transpose().map_err(|_| "the time limit is too long")?,
            partition: partition.transpose()?,
            priority: number(fields, "priority", "the priority")?,
        })
    }
}

/// The words of the command line, at least one.
///
/// # Errors
/// A message about what is wrong with the command line.
pub(crate) fn command(fields: &Fields) -> Result<Vec<String>, String> {
    let text = fields.text("command").unwrap_or_default();
    // Browsers send each line break as two characters.
    let words =
        shell::split(&text.replace("\r\n", "\n")).map_err(|why| format!("the command line cannot be read: {why}"))?;
    if words.is_empty() { Err("the command line is empty".to_owned()) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_amounts_and_words() {
        let fields = Fields::parse(b"name=a&command=echo+'two+words'&cpus=2&memory=1G&time=1h&gpus=&priority=-3");
        let wanted = Wanted::read(&fields).expect("the form is valid");
        assert_eq!(command(&fields), Ok(vec!["echo".to_owned(), "two words".to_owned()]));
        assert_eq!((wanted.cpus, wanted.memory_bytes, wanted.gpus), (Some(2), Some(1 << 30), None));
        assert_eq!((wanted.time_limit_ms, wanted.priority), (Some(3_600_000), Some(-3)));
        let lines = command(&Fields::parse(b"command=sh+-c+'a%0D%0Ab'")).expect("the command is valid");
        assert_eq!(lines, ["sh", "-c", "a\nb"]);
    }

    #[test]
    fn mistakes_in_fields_are_named() {
        for (form, part) in [
            ("command=", "command line is empty"),
            ("command='a", "not closed"),
            ("command=a&cpus=x", "number of CPUs"),
            ("command=a&memory=lots", "memory"),
            ("command=a&time=5", "time limit"),
        ] {
            let fields = Fields::parse(form.as_bytes());
            let error = command(&fields).and_then(|_| Wanted::read(&fields).map(drop)).expect_err(form);
            assert!(error.contains(part), "{error}");
        }
    }
}
