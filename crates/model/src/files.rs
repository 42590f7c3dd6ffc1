//! Files of a job on its nodes, which replace its empty standard input and the output that Hostler keeps.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::object::object_only;
use crate::{Attempt, JobId};

/// The longest path of a file, in bytes.
const MAX_PATH_BYTES: usize = 4095;

/// The files that the program of a job reads and writes on its nodes. Relative paths start in the job's directory.
///
/// Paths may contain patterns: `%j` job id, `%a` index of the array task, `%A` job id of the array, `%b` index modulo
/// ten, `%J` job id, `%n` number of the node within the job, `%N` name of the node, `%r` number of earlier attempts,
/// `%s` step, `%t` rank of the node's first process, `%u` user, `%x` name of the job, `%%` a percent sign. A number
/// such as in `%4j` fills up with zeros. A path with a backslash has no patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Files {
    /// The file that the program reads; `/dev/null` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^[^\x00]{1,4095}$")]
    pub stdin: Option<String>,
    /// The file for standard output; kept by Hostler if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^[^\x00]{1,4095}$")]
    pub stdout: Option<String>,
    /// The file for standard error; the same as for standard output if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^[^\x00]{1,4095}$")]
    pub stderr: Option<String>,
    /// What happens to existing content. If absent, the first attempt replaces it and later attempts append to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_mode: Option<OpenMode>,
}

object_only!(Files);

/// What happens to the content that a file for output has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    /// Output is appended.
    Append,
    /// Each attempt replaces the content.
    Truncate,
}

impl Files {
    /// Returns whether the job has no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Iterates over the paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten().map(String::as_str)
    }

    /// Returns why a node could not open one of these files, whatever the node; `None` if nothing is wrong.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        self.paths().find_map(|path| match path {
            "" => Some("the path of a file is empty"),
            path if path.contains('\0') => Some("the path of a file contains a NUL byte"),
            path if path.len() > MAX_PATH_BYTES => Some("the path of a file is longer than 4095 bytes"),
            _ => None,
        })
    }

    /// Returns whether an attempt appends to existing files.
    #[must_use]
    pub fn appends(&self, attempt: Attempt) -> bool {
        match self.open_mode {
            Some(mode) => mode == OpenMode::Append,
            None => attempt > Attempt(1),
        }
    }
}

/// What the patterns in a path stand for.
#[derive(Debug, Clone, Copy)]
pub struct PathFacts<'a> {
    /// The job's id.
    pub job: JobId,
    /// The number of the task: the job's id, or a number of its own for a task of an array.
    pub number: u64,
    /// The index of the array task; zero without an array.
    pub index: u32,
    /// The job's name.
    pub name: &'a str,
    /// The name of the job's user.
    pub user: &'a str,
    /// The name of the node.
    pub node: &'a str,
    /// The number of the node within the job.
    pub node_rank: u32,
    /// The rank of the process, or of the first process on the node.
    pub rank: u64,
    /// The step; `None` for the program of the job itself.
    pub step: Option<u32>,
    /// The number of attempts before this one.
    pub restarts: u32,
}

impl PathFacts<'_> {
    /// Replaces the patterns in a path, see [`Files`]. Other text stays as it is.
    #[must_use]
    pub fn expand(&self, path: &str) -> String {
        if path.contains('\\') {
            return path.replace('\\', "");
        }
        let mut expanded = String::with_capacity(path.len() + 16);
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('%') {
            expanded.push_str(before);
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let width = after[..digits].parse().unwrap_or(0).min(10);
            match after[digits..].chars().next().and_then(|letter| Some((letter, self.value(letter, width)?))) {
                Some((letter, value)) => {
                    expanded.push_str(&value);
                    rest = &after[digits + letter.len_utf8()..];
                }
                None => {
                    expanded.push('%');
                    rest = after;
                }
            }
        }
        expanded + rest
    }

    fn value(&self, letter: char, width: usize) -> Option<String> {
        let number = |value: u64| Some(format!("{value:0width$}"));
        match letter {
            '%' => Some("%".to_owned()),
            'A' => number(self.job.0),
            'j' => number(self.number),
            'J' => match self.step {
                Some(step) => Some(format!("{:0width$}.{step}", self.number)),
                None => number(self.number),
            },
            'a' => number(self.index.into()),
            'b' => number((self.index % 10).into()),
            'n' => number(self.node_rank.into()),
            'r' => number(self.restarts.into()),
            's' => self.step.map_or_else(|| Some("batch".to_owned()), |step| number(step.into())),
            't' => number(self.rank),
            'N' => Some(self.node.to_owned()),
            'u' => Some(self.user.replace('/', "_")),
            'x' => Some(self.name.replace('/', "_")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: PathFacts<'_> = PathFacts {
        job: JobId(4711),
        number: 4711,
        index: 23,
        name: "a/b",
        user: "ada",
        node: "n2",
        node_rank: 1,
        rank: 8,
        step: None,
        restarts: 2,
    };

    #[test]
    fn patterns_are_replaced_and_other_text_stays() {
        for (path, expanded) in [
            ("out", "out"),
            ("%j/%A_%a.%b", "4711/4711_23.3"),
            ("%N-%n-%t-%s", "n2-1-8-batch"),
            ("%x.%u.%r", "a_b.ada.2"),
            ("%J", "4711"),
            ("%6j %04a %2N", "004711 0023 n2"),
            ("%99j", "0000004711"),
            ("100%% %z %", "100% %z %"),
            ("%5", "%5"),
            (r"plain-\%j", "plain-%j"),
            ("ä%jß", "ä4711ß"),
        ] {
            assert_eq!(FACTS.expand(path), expanded, "{path}");
        }
        let step = PathFacts { step: Some(3), ..FACTS };
        assert_eq!(step.expand("%J %s %4s"), "4711.3 3 0003");
    }

    #[test]
    fn files_are_an_object() {
        let read = |text: &str| serde_json::from_str::<Files>(text).ok();
        let stdout = Files { stdout: Some("out".to_owned()), ..Files::default() };
        assert_eq!(read(r#"{"stdout": "out"}"#), Some(stdout.clone()));
        assert_eq!(read(&serde_json::to_string(&stdout).expect("files can be serialized")), Some(stdout));
        for text in ["[]", r#"[null, "out"]"#, r#"{"out": "x"}"#, "null"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn first_attempt_replaces_and_later_ones_append_unless_a_mode_is_set() {
        let files = |open_mode| Files { open_mode, ..Files::default() };
        let second = Attempt(2);
        assert!(!files(None).appends(Attempt(1)) && files(None).appends(second));
        assert!(files(Some(OpenMode::Append)).appends(Attempt(1)));
        assert!(!files(Some(OpenMode::Truncate)).appends(second));
    }
}
