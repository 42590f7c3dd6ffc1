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
    let file = entrypoint.to_owned();
    match inline_metadata(&text) {
        Ok(metadata) => metadata.map(|metadata| parse_toml(entrypoint, &metadata)).transpose(),
        Err(_) if !is_whole && ends_in_metadata(&text) => {
            Err(ProjectError::TooLong { file, bound: Bound::ScriptBytes(PROJECT_BYTES) })
        }
        Err(problem) => Err(ProjectError::Invalid { file, problem: problem.to_owned() }),
    }
}

/// Whether the first `# /// script` block is still open at the end of the text.
fn ends_in_metadata(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "# /// script");
    lines.next().is_some() && lines.all(|line| line.starts_with('#'))
}

/// The TOML between `# /// script` and the last `# ///` of the comment lines that follow. Refuses several blocks, as the standard (PEP 723)
/// demands, and a first one without an end, as uv does.
fn inline_metadata(text: &str) -> Result<Option<String>, &'static str> {
    const OPEN: &str =
        "the `# /// script` block has no end: close it with the line `# ///`, and begin each line before it with #";
    const SEVERAL: &str = "there are several `# /// script` blocks: merge them into one";
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut found = None;
    let mut at = 0;
    while let Some(begin) = lines[at..].iter().position(|line| *line == "# /// script") {
        let inside = at + begin + 1;
        let comments = lines[inside..].iter().take_while(|line| line.starts_with("# ") || **line == "#").count();
        at = inside;
        match lines[inside..inside + comments].iter().rposition(|line| *line == "# ///") {
            Some(length) => {
                let content = lines[inside..inside + length].iter().map(|line| line.get(2..).unwrap_or_default());
                if found.replace(content.flat_map(|line| [line, "\n"]).collect()).is_some() {
                    return Err(SEVERAL);
                }
                at += length + 1;
            }
            None if found.is_none() => return Err(OPEN),
            None => {}
        }
    }
    Ok(found)
}
