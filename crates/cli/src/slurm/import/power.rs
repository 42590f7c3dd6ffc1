//! Power saving: the times that Slurm and `power.toml` both have.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use hostler_slurm::conf::{Kind, Nodes, Record, Value};

use super::span;
use super::verdict::Judgement;
use crate::failure::{During, Failure};

/// The keys of Slurm with those of `power.toml`.
const TIMES: [(&str, &str); 3] =
    [("SuspendTime", "idle"), ("ResumeTimeout", "boot_timeout"), ("SuspendTimeout", "stop_timeout")];

/// Values for a `power.toml`.
#[derive(Debug)]
pub(super) struct Power {
    /// Key and value of `power.toml`, and the pair that they come from.
    times: Vec<(&'static str, String, String)>,
    resume: Option<String>,
    suspend: Option<String>,
}

/// Judges a pair about power saving.
pub(super) fn judge(value: &Value) -> Result<Judgement, String> {
    let Some((_, key)) = TIMES.iter().find(|(key, _)| value.is(key)) else {
        return Ok(Judgement::differs("write a controller for each node into power.toml; it can call this program"));
    };
    Ok(match time(value)? {
        None => Judgement::unneeded("nodes stay on unless power.toml names them"),
        Some(time) => Judgement::differs(format!("`{key} = \"{time}\"` in power.toml; `--power FILE` writes it")),
    })
}

/// Parses a number of seconds; `None` if it stands for never.
fn time(value: &Value) -> Result<Option<String>, String> {
    if ["-1", "none", "infinite"].contains(&value.text.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let seconds = value.text.parse().map_err(|_| format!("{value} is not a number of seconds"))?;
    Ok(Some(span(Duration::from_secs(seconds))))
}

impl Power {
    /// The power saving of a configuration; `None` if it switches no node off. All pairs must have been judged.
    pub(super) fn of(records: &[Record]) -> Option<Self> {
        let values = || records.iter().filter(|record| record.kind == Kind::Cluster).flat_map(|record| &record.values);
        let last = |key: &str| values().rfind(|value| value.is(key));
        last("SuspendTime").and_then(|value| time(value).ok()?)?;
        let times = TIMES.iter().filter_map(|(key, ours)| {
            let value = last(key)?;
            Some((*ours, time(value).ok()??, value.to_string()))
        });
        let times = times.collect();
        let program = |value: &Value| value.text.clone();
        Some(Self { times, resume: last("ResumeProgram").map(program), suspend: last("SuspendProgram").map(program) })
    }

    /// The text of a `power.toml` that names no node yet.
    pub(super) fn text(&self, nodes: &Nodes) -> String {
        let node = nodes.iter().next().unwrap_or("NODE");
        let mut text = "# Made from slurm.conf by `hostler import slurm`.\n\
                        # Save it as power.toml next to the head's settings, and add a table for each node to switch.\n\n"
            .to_owned();
        for (key, value, from) in &self.times {
            writeln!(text, "{key} = \"{value}\"  # {from}").expect("text grows");
        }
        let quoted = |program: &Option<String>, otherwise: &str| {
            serde_json::to_string(program.as_deref().unwrap_or(otherwise)).expect("a text is valid JSON")
        };
        let (resume, suspend) = (quoted(&self.resume, "/path/to/on"), quoted(&self.suspend, "/path/to/off"));
        let node = serde_json::to_string(node).expect("a text is valid JSON");
        write!(
            text,
            "\n# For example. `status` is a program that prints `on` or `off`; Slurm has none.\n\
             # [nodes.{node}.controller]\n# kind = \"command\"\n# status = [\"/path/to/status\", {node}]\n\
             # on = [{resume}, {node}]\n# off = [{suspend}, {node}]\n"
        )
        .expect("text grows");
        text
    }
}

/// The file for `--power`.
#[derive(Debug)]
pub(super) struct File<'a> {
    path: &'a Path,
    text: &'a str,
    /// Whether the file has this text already.
    exists: bool,
}

impl<'a> File<'a> {
    /// Checks that the file can be written without replacing another. `None` if there is nothing to write.
    pub(super) fn plan(path: Option<&'a Path>, text: Option<&'a str>) -> Result<Option<Self>, Failure> {
        let (Some(path), Some(text)) = (path, text) else { return Ok(None) };
        match fs::read(path) {
            Ok(there) if there == text.as_bytes() => Ok(Some(Self { path, text, exists: true })),
            Ok(_) => Err(Failure::new(format!("{} exists and is not replaced; nothing was changed", path.display()))
                .hint("pass another name to --power, and merge the files")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Self { path, text, exists: false })),
            Err(error) => Err(error).during(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes the file, unless it has this text already. Replaces no other file.
    pub(super) fn write(&self) -> Result<(), Failure> {
        if self.exists {
            return Ok(());
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.path.with_file_name(format!(".{name}.{}", std::process::id()));
        let written = hostler_sys::replace_file(&temporary, self.text.as_bytes(), 0o644)
            // Unlike a rename, a link fails if the name exists by now.
            .and_then(|()| fs::hard_link(&temporary, self.path));
        fs::remove_file(&temporary).ok();
        written.during(|| format!("cannot write {}", self.path.display()))
    }

    /// What happened to the file, or would happen.
    pub(super) fn sentence(&self, applied: bool) -> String {
        let path = self.path.display();
        match (self.exists, applied) {
            (true, _) => format!("{path} exists with these values"),
            (false, true) => format!("wrote {path}; add a table for each node that the head may switch"),
            (false, false) => format!("{path} would be written"),
        }
    }
}
