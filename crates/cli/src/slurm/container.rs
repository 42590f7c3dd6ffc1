//! Container images of jobs, by the options of Slurm's plugin pyxis.

use hostler_model::{SandboxNetwork, Submission, Work, os_string_of};
use hostler_slurm::job_options::{JobOptions, MISTAKE};

use super::{Ended, bad_value};

/// Gives a job the image that its options name.
pub(super) fn contain(options: &JobOptions, spec: &mut Submission) -> Result<(), Ended> {
    let Work::Command { directory, .. } = &spec.work else { return Ok(()) };
    let Some(reference) = options.container.reference(&os_string_of(directory).to_string_lossy()).map_err(bad_value)?
    else {
        return Ok(());
    };
    let wrong = |error| Ended { code: MISTAKE, ..Ended::error(format!("--container-image: {error}")) };
    let around = &mut spec.surroundings;
    around.image = Some(Box::new(reference.parse().map_err(wrong)?));
    around.sandbox = true;
    // As containers of pyxis have. With several nodes, the steps need it.
    around.network = SandboxNetwork::Host;
    Ok(())
}

/// The error about an image where only a whole job can have one.
pub(super) fn only_for_jobs() -> Ended {
    Ended::error("--container-image is an option of whole jobs here").and(
        "hint: `sbatch --container-image`, or the directive in a script, runs the script and all of its steps in the image; so does \
         `srun` outside of a job with its tasks",
    )
}
