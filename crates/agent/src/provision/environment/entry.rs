//! Entry points: the program and variables that start them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use hostler_project::files;
use hostler_sys::is_marked;

use super::build::PROJECT_VARIABLE;
use super::cache::Lease;
use super::error::{EnvError, IoContext};
use super::tools::{is_executable, which};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryCommand {
    /// Program and arguments. The program is an absolute path.
    pub argv: Vec<String>,
    /// Variables to add to the job's own, including the complete `PATH`.
    pub env: Vec<(String, String)>,
}

/// Builds the command that starts `entrypoint` of the project in `project_dir` with `args`, in the environment of
/// `lease`, if any. `search_path` is the job's `PATH` without an environment.
///
/// Python runs a `.py` or `.pyz` file, or a folder with a `__main__.py`. Executable files are started by their absolute
/// path. For a `.sh` file that is not executable, the shell is the one in its first line, or
/// else bash or sh. A plain name that is none of these in the folder is a command, looked up in the environment and then
/// in `search_path`.
pub fn entry_command(
    project_dir: &Path,
    entrypoint: &str,
    args: &[String],
    lease: Option<&Lease>,
    search_path: &OsStr,
) -> Result<EntryCommand, EnvError> {
    let path = job_path(lease, search_path)?;
    let mut argv = program(project_dir, entrypoint, lease, OsStr::new(&path))?;
    argv.extend(args.iter().cloned());
    let mut env = vec![("PATH".to_owned(), path)];
    if let Some(lease) = lease {
        env.push(("VIRTUAL_ENV".to_owned(), text(&lease.path)?));
        env.push((PROJECT_VARIABLE.to_owned(), text(project_dir)?));
    }
    Ok(EntryCommand { argv, env })
}

/// Like [`entry_command`], for a job whose programs are those of an image: names of programs are looked up when the job
/// starts, in the image, and so are absolute paths. Only the folder is read.
pub fn entry_command_in_image(project_dir: &Path, entrypoint: &str, args: &[String]) -> Result<Vec<String>, EnvError> {
    let file = project_dir.join(entrypoint);
    let allowed = !entrypoint.is_empty() && stays_inside(entrypoint);
    let mut argv = if Path::new(entrypoint).is_absolute() {
        vec![entrypoint.to_owned()]
    } else if allowed && is_python(&file) {
        vec!["python3".to_owned(), not_an_option(entrypoint)]
    } else if allowed && file.is_file() {
        if is_executable(&file) {
            vec![text(&file)?]
        } else if file.extension().is_some_and(|extension| extension == "sh") {
            let start = files::read_start(&file, START_BYTES).context("read", &file)?;
            let mut words = first_line(&start).unwrap_or_default();
            if words.is_empty() {
                words.push("sh".to_owned());
            }
            words.push(text(&file)?);
            words
        } else {
            return Err(EnvError::NotExecutable { entry: entrypoint.to_owned() });
        }
    } else if !entrypoint.is_empty() && !entrypoint.contains('/') {
        vec![entrypoint.to_owned()]
    } else {
        return Err(EnvError::NoEntry { entry: entrypoint.to_owned(), candidates: python_files(project_dir) });
    };
    argv.extend(args.iter().cloned());
    Ok(argv)
}

fn program(dir: &Path, entry: &str, lease: Option<&Lease>, path: &OsStr) -> Result<Vec<String>, EnvError> {
    let file = dir.join(entry);
    let allowed = !entry.is_empty() && (stays_inside(entry) || Path::new(entry).is_absolute());
    if allowed && is_python(&file) {
        return Ok(vec![python(lease, path)?, not_an_option(entry)]);
    }
    if allowed && file.is_file() {
        return file_program(&file, entry, path);
    }
    // A package's folder without `__main__.py` often has the name of the package's script.
    if !entry.contains('/')
        && let Some(command) = which(entry, path)
    {
        return Ok(vec![text(&command)?]);
    }
    Err(EnvError::NoEntry { entry: entry.to_owned(), candidates: python_files(dir) })
}

/// Bytes of a shell script that are read to find its first line.
const START_BYTES: u64 = 4096;

/// Command for a file that is not a Python program: the file itself if executable, or a shell for a shell script.
fn file_program(file: &Path, entry: &str, path: &OsStr) -> Result<Vec<String>, EnvError> {
    let file_text = text(file)?;
    if is_executable(file) {
        return Ok(vec![file_text]);
    }
    if file.extension().is_none_or(|extension| extension != "sh") {
        return Err(EnvError::NotExecutable { entry: entry.to_owned() });
    }
    let start = files::read_start(file, START_BYTES).context("read", file)?;
    if is_marked(&start) {
        return Err(EnvError::Marked { entry: entry.to_owned() });
    }
    let mut argv = shebang(&start).unwrap_or_default();
    if argv.is_empty() {
        let shell = which("bash", path).or_else(|| which("sh", path)).unwrap_or_else(|| PathBuf::from("/bin/sh"));
        argv.push(text(&shell)?);
    }
    argv.push(file_text);
    Ok(argv)
}

/// Interpreter and argument from a script's first line, if the interpreter exists.
fn shebang(content: &[u8]) -> Option<Vec<String>> {
    first_line(content).filter(|words| words.first().is_some_and(|program| is_executable(Path::new(program))))
}

/// Interpreter and argument from a script's first line.
fn first_line(content: &[u8]) -> Option<Vec<String>> {
    let line = content.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim();
    let (program, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some([program, argument.trim()].into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

fn python(lease: Option<&Lease>, path: &OsStr) -> Result<String, EnvError> {
    if let Some(lease) = lease {
        return text(&lease.python);
    }
    let found = which("python3", path).or_else(|| which("python", path));
    text(&found.ok_or_else(|| EnvError::NoPython { searched: path.to_string_lossy().into_owned() })?)
}

fn job_path(lease: Option<&Lease>, search_path: &OsStr) -> Result<String, EnvError> {
    let rest = search_path.to_str().ok_or_else(|| EnvError::NotUtf8(search_path.into()))?;
    Ok(match lease {
        Some(lease) if rest.is_empty() => text(&lease.bin_dir)?,
        Some(lease) => format!("{}:{rest}", text(&lease.bin_dir)?),
        None => rest.to_owned(),
    })
}

fn is_python(file: &Path) -> bool {
    let by_name = file.extension().is_some_and(|extension| extension == "py" || extension == "pyz");
    (by_name && file.is_file()) || file.join("__main__.py").is_file()
}

fn stays_inside(entry: &str) -> bool {
    Path::new(entry).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Changes a file name such as `-x.py` so that an interpreter does not read it as an option.
fn not_an_option(entry: &str) -> String {
    if entry.starts_with('-') { format!("./{entry}") } else { entry.to_owned() }
}

/// Maximum number of directory entries that are searched for files that the user may have meant.
const LOOKED_AT: usize = 10_000;

fn python_files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .take(LOOKED_AT)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".py"))
        .collect();
    names.sort();
    names.truncate(5);
    names
}

fn text(path: &Path) -> Result<String, EnvError> {
    path.to_str().map(str::to_owned).ok_or_else(|| EnvError::NotUtf8(path.to_owned()))
}
