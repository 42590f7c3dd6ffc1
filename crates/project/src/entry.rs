//! The check of a folder and its entry point, before a submission.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Endings of script names. An entry point with such an ending must be a file; other names may be commands.
const SCRIPT_ENDINGS: [&str; 3] = [".py", ".pyz", ".sh"];

/// Maximum number of scripts that an error names.
const MOST_NAMED: usize = 5;

/// Why a folder and an entry point cannot be submitted. [`EntryError::hint`] suggests a remedy.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("{} is a file, not a project folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("cannot read the project folder {}", folder.display())]
    Unreadable { folder: PathBuf, source: io::Error },
    /// The entry point is empty, or its path leads out of the folder.
    #[error("the entry point `{0}` is not in the project folder")]
    Outside(String),
    /// The entry point contains arguments, such as `train.py --seed 3`.
    #[error("the entry point `{entrypoint}` is not in {}", folder.display())]
    WithArguments { folder: PathBuf, entrypoint: String },
    #[error("the entry point {entrypoint} is not in {}", folder.display())]
    Missing {
        folder: PathBuf,
        entrypoint: String,
        /// Scripts of the folder that the user may have meant.
        scripts: Vec<String>,
    },
    #[error("no node could run the entry point {0}: the file is neither a script (.py, .pyz or .sh) nor executable")]
    NotExecutable(String),
}

impl EntryError {
    /// What the user can do, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotAFolder(_) => Some("name the project folder first: hostler submit FOLDER ENTRYPOINT".to_owned()),
            Self::Unreadable { .. } | Self::Outside(_) => None,
            Self::WithArguments { folder, entrypoint } => {
                let (program, arguments) = entrypoint.split_once(char::is_whitespace)?;
                let (folder, arguments) = (folder.display(), arguments.trim());
                Some(format!("write arguments after `--`: hostler submit {folder} {program} -- {arguments}"))
            }
            Self::NotExecutable(entry) => Some(match entry.strip_suffix(".ipynb") {
                Some(name) => {
                    format!("`jupyter nbconvert --to script {entry}` writes {name}.py, which can be submitted")
                }
                None => format!("a program needs `chmod +x {entry}`; for a Python script, submit `python3 -- {entry}`"),
            }),
            Self::Missing { scripts, .. } if scripts.is_empty() => {
                Some("name a file of the folder or a command".to_owned())
            }
            Self::Missing { scripts, .. } => Some(format!("scripts in the folder: {}", scripts.join(", "))),
        }
    }
}

/// Checks that `folder` is a folder and that `entrypoint` is a file in it, or may be a command.
///
/// # Errors
/// [`EntryError`] says what is wrong.
pub fn check_entry(folder: &Path, entrypoint: &str) -> Result<(), EntryError> {
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(EntryError::NotAFolder(folder.to_owned())),
        Err(source) => return Err(EntryError::Unreadable { folder: folder.to_owned(), source }),
    }
    let entry = Path::new(entrypoint);
    if entrypoint.is_empty() || entry.components().any(|part| part == Component::ParentDir) {
        return Err(EntryError::Outside(entrypoint.to_owned()));
    }
    let file = std::fs::metadata(folder.join(entry));
    let exists = file.is_ok();
    if let Some((program, _)) = entrypoint.split_once(char::is_whitespace) {
        // A file may have spaces in its name. An absolute path names a file of the node, unless a program without the
        // arguments exists here.
        let is_file = exists || (entry.is_absolute() && !Path::new(program).is_file());
        if !is_file {
            let (folder, entrypoint) = (folder.to_owned(), entrypoint.to_owned());
            return Err(EntryError::WithArguments { folder, entrypoint });
        }
    }
    let is_program = |file: &Metadata| is_script(entrypoint) || file.permissions().mode() & 0o111 != 0;
    if !entry.is_absolute() && file.is_ok_and(|file| file.is_file() && !is_program(&file)) {
        return Err(EntryError::NotExecutable(entrypoint.to_owned()));
    }
    let may_be_a_command = !entrypoint.contains('/') && !is_script(entrypoint);
    if exists || entry.is_absolute() || may_be_a_command {
        return Ok(());
    }
    Err(EntryError::Missing {
        folder: folder.to_owned(),
        entrypoint: entrypoint.to_owned(),
        scripts: scripts_in(folder),
    })
}

fn is_script(name: &str) -> bool {
    SCRIPT_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Some scripts of the folder, sorted.
fn scripts_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut scripts: Vec<String> = names.filter(|name| is_script(name)).collect();
    scripts.sort_unstable();
    scripts.truncate(MOST_NAMED);
    scripts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_point_with_arguments_is_rejected() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path();
        std::fs::write(path.join("train.py"), "").expect("ours");
        std::fs::write(path.join("my train.py"), "").expect("ours");
        for entry in ["train.py --seed 3", "python train.py", "/bin/sh -c date", "missing.py x.py", "my  train.py"] {
            let error = check_entry(path, entry).expect_err(entry);
            let message = format!("the entry point `{entry}` is not in {}", path.display());
            assert_eq!(error.to_string(), message);
            assert!(error.hint().expect("a remedy").contains(" -- "), "{error}");
        }
        let hint = check_entry(path, "train.py --seed 3").expect_err("arguments").hint().expect("a remedy");
        assert!(hint.ends_with("train.py -- --seed 3"), "{hint}");
        for entry in ["train.py", "my train.py", "/opt/my tools/run"] {
            check_entry(path, entry).expect(entry);
        }
    }

    #[test]
    fn file_that_no_node_could_run_is_rejected() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path();
        for (entry, remedy) in
            [("nb.ipynb", "jupyter nbconvert --to script nb.ipynb"), ("data.txt", "chmod +x data.txt")]
        {
            std::fs::write(path.join(entry), "").expect("ours");
            let error = check_entry(path, entry).expect_err(entry);
            assert!(error.hint().expect("a remedy").contains(remedy), "{error}");
        }
        std::fs::set_permissions(path.join("data.txt"), PermissionsExt::from_mode(0o755)).expect("ours");
        check_entry(path, "data.txt").expect("an executable file");
        std::fs::write(path.join("main.sh"), "").expect("ours");
        check_entry(path, "main.sh").expect("a shell script");
    }

    #[test]
    fn missing_folder_or_entry_point_is_rejected() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path();
        std::fs::write(path.join("main.py"), "").expect("ours");
        check_entry(path, "main.py").expect("a file");
        check_entry(path, "python3").expect("a command");
        let refusal = |path: &Path, entry| check_entry(path, entry).expect_err("a mistake");
        assert_eq!(refusal(path, "train.py").hint().as_deref(), Some("scripts in the folder: main.py"));
        assert!(refusal(path, "bin/tool").to_string().contains("entry point bin/tool is not in"));
        assert!(refusal(path, "../main.py").to_string().contains("not in the project folder"));
        assert!(refusal(&path.join("nowhere"), "main.py").to_string().contains("cannot read the project folder"));
        assert!(refusal(&path.join("main.py"), "main.py").to_string().contains("is a file"));
    }
}
