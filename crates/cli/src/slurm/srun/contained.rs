//! `srun --container-image` outside of a job: a job in the image, whose program is `srun` with the same options.
//!
//! Nothing outside of a sandbox starts steps in it. So the tasks are started by this program in the image, where jobs have it.

use std::ffi::OsString;
use std::path::Path;

use hostler_model::{Submission, Work, os_string_of};
use hostler_slurm::container_options::plain;

use super::super::allocating::describe;
use super::super::{Ended, Outcome, tell};
use super::asked::{Asked, NAME, Program, SPEECH};
use crate::commands::run::Attended;
use crate::context::Context;

/// Runs the job, and shows its output.
pub(super) async fn run(context: &Context, asked: &Asked, called: Option<&OsString>) -> Outcome {
    let spec = spec(asked, called)?;
    tell(context, NAME, &super::super::request::warnings(&asked.options));
    let client = context.watching_client()?;
    Ok(Attended { context, client: &client, array: None, label: false }.run(spec).await?)
}

fn spec(asked: &Asked, called: Option<&OsString>) -> Result<Submission, Ended> {
    asked.check_relative()?;
    if asked.pty {
        return Err(Ended::error("--pty with --container-image is not supported")
            .and("hint: `hostler run --image docker://… --pty` gives a program in an image a terminal"));
    }
    if asked.immediate {
        return Err(Ended::error("--immediate with --container-image is not supported"));
    }
    let mut spec = describe(&asked.options, SPEECH, &asked.inside, &asked.name(), called)?;
    if let Work::Command { directory, .. } = &spec.work {
        check_files(asked, &os_string_of(directory).to_string_lossy())?;
    }
    // The job's variables are what they describe.
    for name in ["SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"] {
        spec.environment.remove(name);
    }
    Ok(spec)
}

/// Refuses files of the step that `srun` inside would not find, or would lose with the job.
fn check_files(asked: &Asked, folder: &str) -> Result<(), Ended> {
    let options = &asked.options;
    let is_file = |value: &&str| !["", "all", "none", "/dev/null"].contains(value) && value.parse::<usize>().is_err();
    let check = |option: &str, path: &str, must_exist: bool| {
        let file = plain(folder, path);
        if file.starts_with(folder) && (!must_exist || file.is_file()) {
            return Ok(());
        }
        Err(Ended::error(format!("--{option}: {path} is not in the job's folder, {folder}"))
            .and("hint: a job with an image has only its folder; --chdir names another one"))
    };
    for (option, value) in [("input", &options.input), ("output", &options.output), ("error", &options.error)] {
        value.as_deref().filter(is_file).map_or(Ok(()), |path| check(option, path, false))?;
    }
    match &asked.program {
        Program::Different(path, _) => check("multi-prog", &Path::new(path).to_string_lossy(), true),
        Program::Same(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRUN: &str = "/run/hostler/bin/srun";

    fn inside(line: &[&str]) -> Vec<String> {
        let asked = Asked::parse(["srun"].iter().chain(line).map(Into::into).collect()).expect("valid");
        asked.inside.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn program_inside_gets_the_options_of_the_step() {
        let line = [
            "--container-image",
            "ubuntu",
            "-n2",
            "-lK",
            "-D",
            "work",
            "--export=ALL,KEY=secret",
            "-o",
            "%t",
            "--container-mounts=.",
            "cat",
            "-n",
        ];
        let expected = [SRUN, "--ntasks=2", "--label", "--kill-on-bad-exit", "--output=%t", "--", "cat", "-n"];
        assert_eq!(inside(&line), expected);
        assert_eq!(inside(&["--container-image=a", "-N2", "-n1", "id"]), [SRUN, "--ntasks=1", "--", "id"]);
        assert_eq!(inside(&["-n2", "id"]), [""; 0], "only with an image");
    }

    #[test]
    fn job_of_an_image_has_the_network_of_its_nodes() {
        let line = ["srun", "--container-image=nvcr.io#nvidia/cuda", "-N2", "id"].map(Into::into);
        let asked = Asked::parse(line.into()).expect("valid");
        let spec = spec(&asked, None).expect("valid");
        assert_eq!(spec.surroundings.image.expect("an image").to_string(), "docker://nvcr.io/nvidia/cuda");
        assert!(
            spec.surroundings.sandbox && spec.first_node && !spec.surroundings.network.is_none() && *spec.name == *"id"
        );
    }

    #[test]
    fn what_the_program_inside_cannot_do_is_refused_before_the_job() {
        let spec = |words: &[&str]| {
            let line = [&["srun", "--container-image=a", "-D", "/lab"], words, &["id"]].concat();
            spec(&Asked::parse(line.into_iter().map(Into::into).collect()).expect("valid"), None)
        };
        for words in [&["-o", "out/%t"][..], &["-i", "none", "-e", "/lab/err"], &["-i0", "-o", "/dev/null"]] {
            spec(words).expect("valid");
        }
        for (words, why) in [
            (&["-o", "/tmp/out"][..], "--output: /tmp/out is not in the job's folder, /lab"),
            (&["-i", "../in"], "--input: ../in is not"),
            (&["-e", "/laboratory"], "--error: /laboratory is not"),
            (&["--immediate"], "--immediate with --container-image"),
            (&["--pty"], "--pty with --container-image"),
            (&["--relative=1"], "--relative option invalid"),
        ] {
            let refused = format!("{:?}", spec(words).expect_err(why).lines);
            assert!(refused.contains(why), "{refused}");
        }
    }
}
