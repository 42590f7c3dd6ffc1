//! Tests of what is read from project folders.

mod detection;
mod requirements;
mod unread;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{ProjectError, Requirements};

/// A project folder in a temporary directory.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().expect("tests may write temporary files") };
        fs::create_dir(place.project()).expect("the folder is new");
        place
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        place.write(files);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn project(&self) -> PathBuf {
        self.path("project")
    }

    fn write(&self, files: &[(&str, &str)]) {
        for (name, content) in files {
            let file = self.project().join(name);
            fs::create_dir_all(file.parent().expect("a file in a folder")).expect("this test owns the project");
            fs::write(file, content).expect("this test owns the project");
        }
    }

    fn detect(&self) -> Requirements {
        detect(&self.project(), "main.py").expect("a sound project").expect("the project has requirements")
    }
}

/// Reads the requirements for a job that goes on.
fn detect(project: &Path, entrypoint: &str) -> Result<Option<Requirements>, ProjectError> {
    crate::detect(project, entrypoint, &|| Ok(()))
}
