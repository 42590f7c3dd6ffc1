//! `hostler shims`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use clap::Args;

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::multicall;

/// Make links by which this program is called as other tools: cminfo, cmrun, cmkill and more
///
/// The program acts as the tool by whose name it is called. Links that are there already are renewed; whatever else has one of the
/// names stays, and then nothing is made at all.
#[derive(Debug, Args)]
pub(crate) struct Shims {
    /// The folder for the links; made if need be
    #[arg(value_name = "DIR", required_unless_present = "list")]
    directory: Option<PathBuf>,

    /// Make links that stay right when this program and the folder are moved together
    #[arg(long)]
    relative: bool,

    /// Only print the names of the tools
    #[arg(long, conflicts_with_all = ["directory", "relative"])]
    list: bool,
}

impl Shims {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let names: Vec<&str> =
            multicall::TOOLS.iter().map(|tool| tool.name).filter(|name| *name != "hostler").collect();
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

/// Makes a link for each name, or none if one of the names is taken.
fn make_links(directory: &Path, names: &[&str], relative: bool) -> Result<Vec<PathBuf>, Failure> {
    let program = env::current_exe().during(|| "cannot find out where this program is".to_owned())?;
    fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
    let directory = directory.canonicalize().during(|| format!("cannot look at {}", directory.display()))?;
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

/// The program that a link leads to: this one, or a smaller one for that tool alone beside it.
fn program_for(link: &Path, program: &Path) -> PathBuf {
    let small = program.with_file_name(small_name(link));
    if small.is_file() { small } else { program.to_owned() }
}

fn small_name(link: &Path) -> String {
    format!("hostler-{}", link.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether there is nothing, or a link to this program or an earlier copy of it.
fn check_free(link: &Path, program: &Path) -> Result<(), Failure> {
    let taken = |what: String| {
        Failure::new(format!("{} is {what}", link.display()))
            .hint("nothing was made; move it away, or choose another folder")
    };
    match fs::read_link(link) {
        Ok(target) if target.file_name() == program.file_name() || target.ends_with(small_name(link)) => Ok(()),
        Ok(target) => Err(taken(format!("a link to {}, not to this program", target.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(taken("there already and no link".to_owned())),
        Err(error) => Err(error).during(|| format!("cannot look at {}", link.display())),
    }
}

/// Puts a link in place at once, so that the tool is there all the time.
fn replace_link(link: &Path, target: &Path) -> Result<(), Failure> {
    let name = link.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let new = link.with_file_name(format!(".{name}.new-{}", std::process::id()));
    let made = symlink(target, &new).and_then(|()| fs::rename(&new, link));
    made.during(|| format!("cannot make the link {}", link.display()))
}

/// The way from `directory` to `file`, both absolute and without links.
fn from_within(directory: &Path, file: &Path) -> PathBuf {
    let shared = directory.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(file.components().skip(shared)).collect()
}

/// Whether a shell finds what is in `directory`, or what to do about that.
fn on_path(directory: &Path, path: Option<&OsStr>) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let is_there = path.is_some_and(|path| env::split_paths(path).any(|entry| entry == directory));
    match is_there {
        true => format!("{} is on your PATH", directory.display()),
        false => format!("to find them, put the folder on your PATH: export PATH={}:$PATH", directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_and_renewed_but_nothing_else_is_touched() {
        let home = tempfile::tempdir().expect("temporary directory");
        let directory = home.path().join("bin");
        let program = env::current_exe().expect("this test");
        for relative in [false, true, false] {
            let links = make_links(&directory, &["a", "b"], relative).expect("nothing is in the way");
            let target = fs::read_link(&links[0]).expect("a link");
            assert_eq!(target.is_relative(), relative, "{}", target.display());
            assert_eq!(links[1].canonicalize().expect("it leads somewhere"), program);
        }
        fs::write(directory.join("c"), "mine").expect("ours");
        symlink("/bin/sh", directory.join("e")).expect("ours");
        for name in ["c", "e"] {
            let refusal = make_links(&directory, &["d", name], false).expect_err("it is taken").render();
            assert!(refusal.contains("nothing was made"), "{refusal}");
        }
        assert!(!directory.join("d").exists());
        assert_eq!(fs::read_dir(&directory).expect("ours").count(), 4, "nothing is left behind");
    }

    #[test]
    fn a_tool_may_have_a_small_program_beside_this_one() {
        let home = tempfile::tempdir().expect("temporary directory");
        let (program, small) = (home.path().join("hostler"), home.path().join("hostler-dsh"));
        let leads_to = |name| program_for(&Path::new("/nowhere").join(name), &program);
        assert_eq!(leads_to("dsh"), program);
        fs::write(&small, "").expect("ours");
        assert_eq!((leads_to("dsh"), leads_to("dshd")), (small.clone(), program.clone()));
        let link = home.path().join("dsh");
        for target in [&program, &small] {
            replace_link(&link, target).expect("ours");
            check_free(&link, &program).expect("it is of ours");
        }
        assert!(check_free(&home.path().join("hostler-dsh"), &program).is_err(), "no link");
    }

    #[test]
    fn the_way_from_a_folder_to_a_file() {
        let way = |directory, file| from_within(Path::new(directory), Path::new(file));
        assert_eq!(way("/opt/bin", "/opt/bin/hostler"), Path::new("hostler"));
        assert_eq!(way("/opt/tools/bin", "/opt/hostler/hostler"), Path::new("../../hostler/hostler"));
        assert_eq!(way("/", "/hostler"), Path::new("hostler"));
    }

    #[test]
    fn it_says_what_to_do_about_the_path() {
        let says = |path: &str| on_path(Path::new("/nowhere/bin"), Some(OsStr::new(path)));
        assert_eq!(says("/bin:/nowhere/bin"), "/nowhere/bin is on your PATH");
        assert!(says("/bin").contains("export PATH=/nowhere/bin:$PATH"));
    }
}
