//! `srun --container-image` outside of a job: a job in the image, whose program is `srun` with the same options.
//!
//! Nothing outside of a sandbox starts steps in it. So the tasks are started by this program in the image, where jobs have it.

use std::ffi::{OsStr, OsString};

use hostler_model::Submission;
use hostler_slurm::getopt::{Opt, Parsed};
use hostler_slurm::job_options::Key;

use super::asked::Asked;
use super::{Ended, NAME, Outcome, SPEECH, describe, tell};
use crate::commands::run::Attended;
use crate::context::Context;

/// Runs the job, and shows its output.
pub(super) async fn run(context: &Context, asked: &Asked, called: Option<&OsString>) -> Outcome {
    if asked.pty {
        return Err(Ended::error("--pty with --container-image is not supported")
            .and("hint: `hostler run --image docker://… --pty` gives a program in an image a terminal"));
    }
    let spec = spec(asked, called)?;
    tell(context, NAME, super::super::request::unused_nodes(&asked.options).as_slice());
    let client = context.watching_client()?;
    Ok(Attended { context, client: &client, array: None, label: false }.run(spec).await?)
}

fn spec(asked: &Asked, called: Option<&OsString>) -> Result<Submission, Ended> {
    describe(&asked.options, SPEECH, &asked.inside, &asked.name(), called)
}

/// The command line of `srun` inside: without what describes the job only, or is done already.
pub(super) fn words(all: &[Opt<Key>], given: &Parsed<Key>, asked: &Asked) -> Vec<OsString> {
    let has_fewer_nodes = asked.options.nodes_without_tasks().is_some();
    let is_needed = |key: &Key| match key {
        // The job starts in the directory.
        Key::Container(_) | Key::Chdir | Key::Uid | Key::Gid | Key::Clusters => false,
        Key::Nodes => !has_fewer_nodes,
        _ => true,
    };
    let mut words = vec![OsString::from(NAME)];
    for (key, value) in given.options.iter().filter(|(key, _)| is_needed(key)) {
        let Some(option) = all.iter().find(|option| option.key == *key) else { continue };
        let mut word = OsString::from(format!("--{}", option.long));
        if let Some(value) = value {
            word.push(OsStr::new("="));
            word.push(value);
        }
        words.push(word);
    }
    words.push("--".into());
    words.extend(given.operands.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "-o",
            "%t",
            "--container-mounts=.",
            "cat",
            "-n",
        ];
        let expected = ["srun", "--ntasks=2", "--label", "--kill-on-bad-exit", "--output=%t", "--", "cat", "-n"];
        assert_eq!(inside(&line), expected);
        assert_eq!(inside(&["--container-image=a", "-N2", "-n1", "id"]), ["srun", "--ntasks=1", "--", "id"]);
        assert_eq!(inside(&["-n2", "id"]), [""; 0], "only with an image");
    }

    #[test]
    fn job_of_an_image_has_the_network_of_its_nodes() {
        let line = ["srun", "--container-image=nvcr.io#nvidia/cuda", "-N2", "id"].map(Into::into);
        let asked = Asked::parse(line.into()).expect("valid");
        let spec = spec(&asked, None).expect("valid");
        assert_eq!(spec.image.expect("an image").to_string(), "docker://nvcr.io/nvidia/cuda");
        assert!(spec.sandbox && spec.first_node && !spec.network.is_none() && *spec.name == *"id");
    }
}
