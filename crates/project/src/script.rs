//! Inline metadata of scripts.

use crate::error::{Bound, IoContext, ProjectError};
use crate::files;
use crate::project::{PROJECT_BYTES, Project, parse_toml};

/// Inline metadata of a Python entry point, if it has any.
pub(crate) fn script_metadata(project: &Project<'_>, entrypoint: &str) -> Result<Option<toml::Table>, ProjectError> {
    let path = project.root.join(entrypoint);
    let is_python = path.extension().is_some_and(|extension| extension == "py") && path.is_file();
    // An entry point outside the folder is a command, not a file of the project.
    let Some(real) = path.canonicalize().ok().filter(|real| is_python && real.starts_with(&project.root)) else {
        return Ok(None);
    };
    let mut start = files::read_start(&real, PROJECT_BYTES + 1).context("read", &real)?;
    let is_whole = start.len() as u64 <= PROJECT_BYTES;
    if !is_whole {
        // Of a long script, only whole lines are parsed.
        start.truncate(start.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    }
    // Metadata in other encodings is not supported; Python itself may still run the script.
    let Ok(text) = String::from_utf8(start) else { return Ok(None) };
    match inline_metadata(&text) {
        Some(metadata) => parse_toml(entrypoint, &metadata).map(Some),
        None if !is_whole && ends_in_metadata(&text) => {
            Err(ProjectError::TooLong { file: entrypoint.to_owned(), bound: Bound::ScriptBytes(PROJECT_BYTES) })
        }
        None => Ok(None),
    }
}

/// Whether the first `# /// script` block is still open at the end of the text.
fn ends_in_metadata(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "# /// script");
    lines.next().is_some() && lines.all(|line| line.starts_with('#'))
}

/// The TOML between `# /// script` and `# ///`.
fn inline_metadata(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "# /// script").skip(1);
    let mut metadata = String::new();
    loop {
        // An unclosed block counts as a comment.
        let line = lines.next()?.trim_end();
        if line == "# ///" {
            return Some(metadata);
        }
        metadata.push_str(line.strip_prefix("# ").or_else(|| line.strip_prefix('#'))?);
        metadata.push('\n');
    }
}
