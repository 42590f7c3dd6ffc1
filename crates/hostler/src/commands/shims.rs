//! `hostler shims`: creates links by which the executable acts as other tools.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use clap::Args;
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::tools::{LIGHT_PROGRAM, is_light};

use crate::multicall::tools;

/// Create links for cminfo, cmrun, dsh and other tools
///
/// A link runs this program under the name of a tool, and the program then acts as that tool. Existing links to this
/// program are replaced. If another file has the name of a tool, the command creates no link.
#[derive(Debug, Args)]
pub(crate) struct Shims {
    /// Directory for the links; the command creates a missing directory
    #[arg(value_name = "DIR", required_unless_present = "list")]
    directory: Option<PathBuf>,

    /// Create relative links, which stay valid if the program and DIR move together
    #[arg(long)]
    relative: bool,

    /// Print the names of the tools and create no links
    #[arg(long, conflicts_with_all = ["directory", "relative"])]
    list: bool,
}

impl Shims {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let names: Vec<&str> = tools().map(|tool| tool.name).filter(|name| *name != "hostler").collect();
        let links = match &self.directory {
            Some(directory) => make_links(directory, &names, self.relative)?,
            None => names.iter().map(PathBuf::from).collect(),
        };
        match context.output.is_json() {
            true => context.output.json(&links),
            false => links.iter().for_each(|link| context.output.data(&link.display().to_string())),
        }
        if let Some(directory) = &self.directory {
            context.output.say(&on_path(directory, env::var_os("PATH").as_deref()));
        }
        Ok(exit::OK)
    }
}

/// Creates a link for each name, or none if one of the names is taken.
fn make_links(directory: &Path, names: &[&str], relative: bool) -> Result<Vec<PathBuf>, Failure> {
    let program = env::current_exe().during(|| "cannot determine the path of this program".to_owned())?;
    fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
    let directory = directory.canonicalize().during(|| format!("cannot access {}", directory.display()))?;
    let links: Vec<PathBuf> = names.iter().map(|name| directory.join(name)).collect();
    for link in &links {
        check_free(link, &program)?;
    }
    for link in &links {
        let program = program_for(link, &program);
        replace_link(link, &if relative { from_within(&directory, &program) } else { program })?;
    }
    Ok(links)
}

/// Returns the target of a link: the smaller program if it exists and contains the tool, else this program.
fn program_for(link: &Path, program: &Path) -> PathBuf {
    let light = program.with_file_name(LIGHT_PROGRAM);
    let contains = link.file_name().and_then(OsStr::to_str).is_some_and(is_light);
    if contains && light.is_file() { light } else { program.to_owned() }
}

/// Checks that `link` does not exist, or is a link whose target has the file name of this program or of the smaller
/// one.
fn check_free(link: &Path, program: &Path) -> Result<(), Failure> {
    let taken = |what: String| {
        Failure::new(format!("{} is {what}", link.display()))
            .hint("no link was created; move the file away, or choose another directory")
    };
    match fs::read_link(link) {
        Ok(target) if target.file_name() == program.file_name() || target.ends_with(LIGHT_PROGRAM) => Ok(()),
        Ok(target) => Err(taken(format!("a link to {}, not to this program", target.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(taken("an existing file, not a link".to_owned())),
        Err(error) => Err(error).during(|| format!("cannot access {}", link.display())),
    }
}

/// Replaces a link atomically, so that the tool is always available.
fn replace_link(link: &Path, target: &Path) -> Result<(), Failure> {
    let name = link.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let new = link.with_file_name(format!(".{name}.new-{}", std::process::id()));
    let made = symlink(target, &new).and_then(|()| fs::rename(&new, link));
    made.during(|| format!("cannot make the link {}", link.display()))
}

/// The relative path from `directory` to `file`. Both are absolute and contain no links.
fn from_within(directory: &Path, file: &Path) -> PathBuf {
    let shared = directory.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(file.components().skip(shared)).collect()
}

/// Returns a sentence that says whether `directory` is on the PATH, and otherwise how to add the directory.
fn on_path(directory: &Path, path: Option<&OsStr>) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let is_there = path.is_some_and(|path| env::split_paths(path).any(|entry| entry == directory));
    match is_there {
        true => format!("{} is on your PATH", directory.display()),
        false => format!("to use the tools, add the directory to your PATH: export PATH={}:$PATH", directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_created_and_replaced_but_other_files_are_kept() {
        let home = tempfile::tempdir().expect("temporary directory");
        let directory = home.path().join("bin");
        let program = env::current_exe().expect("the test program has a path");
        for relative in [false, true, false] {
            let links = make_links(&directory, &["a", "b"], relative).expect("the names are free");
            let target = fs::read_link(&links[0]).expect("a link");
            assert_eq!(target.is_relative(), relative, "{}", target.display());
            assert_eq!(links[1].canonicalize().expect("the link has a target"), program);
        }
        fs::write(directory.join("c"), "mine").expect("ours");
        symlink("/bin/sh", directory.join("e")).expect("ours");
        for name in ["c", "e"] {
            let refusal = make_links(&directory, &["d", name], false).expect_err("the name is in use").render();
            assert!(refusal.contains("no link was created"), "{refusal}");
        }
        assert!(!directory.join("d").exists());
        assert_eq!(fs::read_dir(&directory).expect("ours").count(), 4, "a refused call creates no links");
    }

    #[test]
    fn link_leads_to_the_smaller_program_if_it_exists() {
        let home = tempfile::tempdir().expect("temporary directory");
        let (program, small) = (home.path().join("hostler"), home.path().join(LIGHT_PROGRAM));
        let leads_to = |name| program_for(&Path::new("/nowhere").join(name), &program);
        assert_eq!(leads_to("dsh"), program);
        fs::write(&small, "").expect("ours");
        for (name, target) in [("dsh", &small), ("sbatch", &small), ("dshd", &program)] {
            assert_eq!(&leads_to(name), target, "{name}");
        }
        let link = home.path().join("dsh");
        for target in [&program, &small] {
            replace_link(&link, target).expect("ours");
            check_free(&link, &program).expect("the link points to Hostler");
        }
        assert!(check_free(&small, &program).is_err(), "no link");
    }

    #[test]
    fn relative_paths_lead_from_directory_to_file() {
        let way = |directory, file| from_within(Path::new(directory), Path::new(file));
        assert_eq!(way("/opt/bin", "/opt/bin/hostler"), Path::new("hostler"));
        assert_eq!(way("/opt/tools/bin", "/opt/hostler/hostler"), Path::new("../../hostler/hostler"));
        assert_eq!(way("/", "/hostler"), Path::new("hostler"));
    }

    #[test]
    fn missing_path_entry_gives_an_export_line() {
        let says = |path: &str| on_path(Path::new("/nowhere/bin"), Some(OsStr::new(path)));
        assert_eq!(says("/bin:/nowhere/bin"), "/nowhere/bin is on your PATH");
        assert!(says("/bin").contains("export PATH=/nowhere/bin:$PATH"));
    }
}
