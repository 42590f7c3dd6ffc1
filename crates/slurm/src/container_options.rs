//! The options by which Slurm's plugin pyxis runs jobs in container images, as far as they mean the same here.
//!
//! Pyxis hands names of images to enroot, whose names differ from those of other tools: `#` ends the name of a registry. An
//! option that would mean something else here is refused, since a job without its data or its rights is worse than none.

use std::path::{Component, Path, PathBuf};

use crate::getopt::{Opt, Takes};
use crate::job_keys::Key;
use crate::job_values::BadValue;

const fn option(name: &'static str, takes: Takes) -> Opt<Key> {
    Opt { key: Key::Container(name), long: name, short: None, takes }
}

/// The options of pyxis.
pub const CONTAINER_OPTIONS: &[Opt<Key>] = &[
    option("container-image", Takes::Value),
    option("container-mounts", Takes::Value),
    option("container-workdir", Takes::Value),
    option("container-env", Takes::Value),
    option("container-readonly", Takes::Nothing),
    option("no-container-mount-home", Takes::Nothing),
    option("no-container-remap-root", Takes::Nothing),
    option("no-container-entrypoint", Takes::Nothing),
    option("container-entrypoint-log", Takes::Nothing),
    option("container-entrypoint", Takes::Nothing),
    option("container-name", Takes::Value),
    option("container-save", Takes::Value),
    option("container-mount-home", Takes::Nothing),
    option("container-remap-root", Takes::Nothing),
    option("container-writable", Takes::Nothing),
];

/// Options that mean what no job here has, and why not. Each is withdrawn by the option of the second column, if it follows.
const REFUSED: [(&str, &str, &str); 6] = [
    (
        "container-entrypoint",
        "no-container-entrypoint",
        "`hostler run --image … --entrypoint` runs an image's entry point",
    ),
    ("container-name", "", "containers are not kept between steps and jobs; name the image"),
    ("container-save", "", "images are read-only, and nothing of a container is kept"),
    (
        "container-mount-home",
        "no-container-mount-home",
        "only the job's folder is there; start the job in the folder that it needs",
    ),
    (
        "container-remap-root",
        "no-container-remap-root",
        "a job runs as its user; `docker build` makes images with more programs",
    ),
    ("container-writable", "container-readonly", "images are read-only; the job can write to its folder and to /tmp"),
];

/// What the options say. Absent values were not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the options")]
pub struct ContainerOptions {
    pub image: Option<String>,
    pub mounts: Option<String>,
    pub workdir: Option<String>,
    /// Names of variables of the caller that replace those of the image, separated by commas.
    pub env: Option<String>,
    /// Options that are refused, as in [`REFUSED`].
    refused: Vec<&'static str>,
}

impl ContainerOptions {
    /// Applies an option. Later options replace earlier ones.
    pub(crate) fn apply(&mut self, name: &'static str, value: &str) {
        let some = || Some(value.to_owned());
        match name {
            "container-image" => self.image = some(),
            "container-mounts" => self.mounts = some(),
            "container-workdir" => self.workdir = some(),
            "container-env" => self.env = some(),
            _ => {
                self.refused.retain(|refused| !REFUSED.iter().any(|(one, other, _)| one == refused && *other == name));
                self.refused.extend(REFUSED.iter().map(|(refused, ..)| *refused).filter(|refused| *refused == name));
            }
        }
    }

    /// Returns the image as Hostler names it, e.g. `docker://nvcr.io/nvidia/pytorch:24.01-py3`; `None` for a job without.
    /// `folder`: the job's folder, the only directory of the machine that the job has.
    ///
    /// # Errors
    /// If an option means what no job here has. As in pyxis, options other than that of the image mean nothing alone, except for
    /// those that name a container.
    pub fn reference(&self, folder: &str) -> Result<Option<String>, BadValue> {
        let is_alone = |refused: &&&str| self.image.is_some() || **refused == "container-name";
        if let Some(name) = self.refused.iter().find(is_alone) {
            let why = REFUSED.iter().find(|(refused, ..)| refused == name).map_or("", |(.., why)| *why);
            return Err(BadValue::new(format!("--{name} is not supported: {why}")));
        }
        let Some(image) = &self.image else { return Ok(None) };
        if let Some(mounts) = &self.mounts {
            check_mounts(mounts, folder)?;
        }
        if let Some(workdir) = self.workdir.as_deref().filter(|workdir| plain(folder, workdir) != Path::new(folder)) {
            return Err(BadValue::new(format!(
                "--container-workdir={workdir} is not supported: the job starts in its folder, {folder}; use --chdir, or `cd` in \
                 the script"
            )));
        }
        reference(image).map(Some)
    }
}

/// The label of a job with the value of `--container-env`, for the node that starts the job.
pub const PREFERRED: &str = "slurm.container_env";

/// Returns whether a value of `--container-env` contains the name of a variable.
#[must_use]
pub fn is_preferred(names: &str, name: &str) -> bool {
    names.split(',').any(|preferred| preferred.trim() == name)
}

/// Translates `[docker://][USER@][REGISTRY#]IMAGE[:TAG]` into a name of Docker's.
fn reference(image: &str) -> Result<String, BadValue> {
    let bad = |why: &str| BadValue::new(format!("--container-image={image}: {why}"));
    // Hostler's own names contain a path after the colon, which no tag does.
    let is_own = |kind: &str| image.strip_prefix(kind).is_some_and(|path| path.contains('/'));
    if ["oci:", "oci-archive:", "docker-archive:", "dir:"].iter().any(|kind| is_own(kind)) {
        return Ok(image.to_owned());
    }
    let name = image.strip_prefix("docker://").unwrap_or(image);
    if name.starts_with(['/', '.']) || name.ends_with(".sqsh") {
        return Err(bad(
            "squashfs images of enroot are not supported; use an image in a registry, oci:DIR, docker-archive:FILE, or an unpacked \
             root file system as dir:DIR",
        ));
    }
    if let Some((kind, _)) = name.split_once("://") {
        return Err(bad(&format!(
            "`{kind}://` is not supported; name an image in a registry, e.g. docker://ubuntu:22.04"
        )));
    }
    let (registry, path) = name.split_once('#').map_or((None, name), |(registry, path)| (Some(registry), path));
    // What follows an `@` after the name is a digest.
    let has_user = match registry {
        Some(registry) => registry.contains('@'),
        None => path.split_once('@').is_some_and(|(_, after)| !after.starts_with("sha256:")),
    };
    if has_user {
        return Err(bad("a user is not supported here; log in to the registry on the node with `podman login`"));
    }
    if path.is_empty() || registry.is_some_and(str::is_empty) {
        return Err(bad("write [REGISTRY#]IMAGE[:TAG], e.g. ubuntu:22.04 or nvcr.io#nvidia/pytorch:24.01-py3"));
    }
    let registry = registry.map(|registry| format!("{registry}/")).unwrap_or_default();
    Ok(format!("docker://{registry}{path}"))
}

/// Refuses mounts of other directories than the job's folder, which is there at the same path as outside.
fn check_mounts(mounts: &str, folder: &str) -> Result<(), BadValue> {
    for mount in mounts.split(',').filter(|mount| !mount.is_empty()) {
        let refuse = |why: String| Err(BadValue::new(format!("--container-mounts={mount} is not supported: {why}")));
        let mut parts = mount.split(':');
        let source = parts.next().unwrap_or_default();
        let target = parts.next().unwrap_or(source);
        let flags = parts.next().unwrap_or_default();
        let (source, target) = (plain(folder, source), plain(folder, target));
        if source != target || !source.starts_with(folder) {
            return refuse(format!(
                "a job with an image has only its folder, {folder}, at the same path as outside; start it in a folder with its data"
            ));
        }
        if flags.split('+').any(|flag| !["", "rw", "bind", "rbind", "nosuid", "nodev"].contains(&flag)) {
            return refuse("the job's folder is writable, and takes no flags but rw".to_owned());
        }
    }
    Ok(())
}

/// Returns a path without `.` and `..`, from the job's folder on.
#[must_use]
pub fn plain(folder: &str, path: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in Path::new(folder).join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[(&'static str, &str)]) -> Result<Option<String>, String> {
        let mut options = ContainerOptions::default();
        words.iter().for_each(|(name, value)| options.apply(name, value));
        options.reference("/home/ada/lab").map_err(|bad| bad.text)
    }

    #[test]
    fn images_of_enroot_become_names_of_docker() {
        for (image, expected) in [
            ("ubuntu:22.04", "docker://ubuntu:22.04"),
            ("docker://ubuntu", "docker://ubuntu"),
            ("nvcr.io#nvidia/pytorch:24.01-py3", "docker://nvcr.io/nvidia/pytorch:24.01-py3"),
            ("docker://registry.lan:5000#team/app:1", "docker://registry.lan:5000/team/app:1"),
            ("nvidia/cuda@sha256:00", "docker://nvidia/cuda@sha256:00"),
            ("ghcr.io/team/app", "docker://ghcr.io/team/app"),
            ("oci:/data/images:python", "oci:/data/images:python"),
            ("dir:./root", "dir:./root"),
            ("oci:1", "docker://oci:1"),
        ] {
            assert_eq!(of(&[("container-image", image)]), Ok(Some(expected.to_owned())), "{image}");
        }
        for (image, why) in [
            ("/data/ubuntu.sqsh", "squashfs"),
            ("./ubuntu.sqsh", "squashfs"),
            ("ubuntu.sqsh", "squashfs"),
            ("ada@nvcr.io#nvidia/pytorch", "podman login"),
            ("ada@ubuntu", "podman login"),
            ("dockerd://ubuntu", "`dockerd://` is not supported"),
            ("#ubuntu", "REGISTRY#"),
            ("", "REGISTRY#"),
        ] {
            let refused = of(&[("container-image", image)]).expect_err(image);
            assert!(refused.contains(why), "{image}: {refused}");
        }
    }

    #[test]
    fn only_mounts_of_the_folder_are_accepted() {
        let with = |name, value| of(&[("container-image", "a"), (name, value)]);
        for mounts in ["/home/ada/lab:/home/ada/lab", "/home/ada/lab", ".", "data:/home/ada/lab/data:rw", "./a,b"] {
            assert!(with("container-mounts", mounts).is_ok(), "{mounts}");
        }
        for mounts in ["/data:/data", "/home/ada/lab:/workspace", "..", "/home/ada/lab/../x", ".:.:ro", ".,/data:/data"]
        {
            let refused = with("container-mounts", mounts).expect_err(mounts);
            assert!(refused.contains("--container-mounts="), "{refused}");
        }
        assert!(with("container-workdir", "/home/ada/lab/").is_ok());
        assert!(with("container-workdir", "/workspace").expect_err("elsewhere").contains("--chdir"));
        assert_eq!(of(&[("container-mounts", "/data:/data")]), Ok(None), "without an image");
    }

    #[test]
    fn what_no_job_has_is_refused_unless_withdrawn() {
        let image = ("container-image", "a");
        for (refused, withdrawn, _) in REFUSED {
            let text = of(&[image, (refused, "x")]).expect_err(refused);
            assert!(text.starts_with(&format!("--{refused} is not supported: ")), "{text}");
            if !withdrawn.is_empty() {
                assert!(of(&[image, (refused, ""), (withdrawn, "")]).is_ok(), "{refused}");
                assert!(of(&[image, (withdrawn, ""), (refused, "")]).is_err(), "{refused}");
            }
        }
        assert!(of(&[("container-name", "x")]).is_err() && of(&[("container-writable", "")]) == Ok(None));
        assert!(is_preferred("A, B", "A") && is_preferred("A, B", "B") && !is_preferred("A, B", "C"));
    }
}
