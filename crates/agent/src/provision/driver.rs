//! The user-space part of NVIDIA's driver on this machine, which jobs with an image get with their GPUs.
//!
//! These files belong to the kernel's part of the driver and have to have its version, so no image can bring them. The list is
//! that of `nvidia-container-cli list` for computing, video and management.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use hostler_shepherd::Shown;

/// Directory of the libraries in a sandbox. Images for CUDA have it in `LD_LIBRARY_PATH`.
pub(crate) const LIBRARIES: &str = "/usr/local/nvidia/lib64";

/// Directory of the programs in a sandbox.
pub(crate) const PROGRAMS: &str = "/usr/local/nvidia/bin";

/// Starts of the libraries' names, up to `.so`.
const NAMES: [&str; 16] = [
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-compiler",
    "libnvidia-encode",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-nvvm70",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler",
];

/// Where distributions and NVIDIA's installer put the libraries for this processor.
const DIRECTORIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib",
];

/// Returns the driver's files, with their places in a sandbox. Empty without a driver.
pub(crate) fn files() -> Vec<Shown> {
    files_in(&DIRECTORIES.map(Path::new), Path::new("/usr/bin/nvidia-smi"))
}

fn files_in(directories: &[&Path], program: &Path) -> Vec<Shown> {
    // The first directory with the central library has all of them.
    let Some(directory) = directories.iter().find(|directory| directory.join("libcuda.so.1").exists()) else {
        return Vec::new();
    };
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.split_once(".so").is_some_and(|(start, _)| NAMES.contains(&start)));
    names.sort();
    let libraries = names.iter().map(|name| (directory.join(name), format!("{LIBRARIES}/{name}")));
    let all = libraries.chain([(program.to_owned(), format!("{PROGRAMS}/nvidia-smi"))]);
    let found: Vec<Shown> = all.filter_map(|(from, at)| Some(Shown { from: of_root(&from)?, at })).collect();
    let central = format!("{LIBRARIES}/libcuda.so.1");
    if !found.iter().any(|file| file.at == central) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let path = directory.join("libcuda.so.1");
            tracing::warn!(path = %path.display(), "jobs with an image get no CUDA driver: users other than root may change it");
        });
    }
    found
}

/// Follows the links of a path. `None` unless the file at the end belongs to root and only root may change it.
fn of_root(path: &Path) -> Option<String> {
    let found: PathBuf = path.canonicalize().ok()?;
    let metadata = found.metadata().ok()?;
    let is_safe = metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    is_safe.then(|| found.into_os_string().into_string().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn driver_files_are_found_behind_links_and_nothing_else() {
        if !geteuid().is_root() {
            // Only files of root count.
            return;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let [empty, full] = ["empty", "full"].map(at);
        for directory in [&empty, &full] {
            fs::create_dir(directory).expect("writable");
        }
        for name in ["libcuda.so.550.1", "libnvidia-ml.so.550.1", "libcudart.so.12", "libnvidia-glcore.so.550.1"] {
            fs::write(full.join(name), name).expect("writable");
        }
        for (link, target) in [
            ("libcuda.so.1", "libcuda.so.550.1"),
            ("libcuda.so", "libcuda.so.1"),
            ("libnvidia-ml.so.1", "libnvidia-ml.so.550.1"),
            ("libnvidia-cfg.so.1", "missing"),
        ] {
            symlink(target, full.join(link)).expect("writable");
        }
        fs::write(full.join("libnvidia-encode.so.1"), "of anybody").expect("writable");
        fs::set_permissions(full.join("libnvidia-encode.so.1"), fs::Permissions::from_mode(0o666)).expect("ours");
        let program = at("nvidia-smi");
        fs::write(&program, "").expect("writable");
        let found = files_in(&[&empty, &full], &program);
        let real = fs::canonicalize(&full).expect("there");
        let expected = [
            ("libcuda.so.550.1", "libcuda.so"),
            ("libcuda.so.550.1", "libcuda.so.1"),
            ("libcuda.so.550.1", "libcuda.so.550.1"),
            ("libnvidia-ml.so.550.1", "libnvidia-ml.so.1"),
            ("libnvidia-ml.so.550.1", "libnvidia-ml.so.550.1"),
        ];
        for ((from, name), found) in expected.iter().zip(&found) {
            assert_eq!(found.from, real.join(from).display().to_string());
            assert_eq!(found.at, format!("{LIBRARIES}/{name}"));
        }
        assert_eq!(found.len(), 6, "{found:?}");
        assert_eq!(found[5].at, "/usr/local/nvidia/bin/nvidia-smi");
        assert_eq!(files_in(&[&empty], &program), []);
    }
}
