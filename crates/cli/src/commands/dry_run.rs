//! `--dry-run` of `run` and `submit`: says when and where a job would start.

use std::fmt::Write;

use hostler_client::{Client, Unread};
use hostler_model::{JobId, NodeName, PartialRequest, Submission, Surroundings, WallTime, Work, plural};
use hostler_proto::api::{JobChange, JobDetail};
use hostler_proto::dry_run::DryRunView;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::output::text::Moment;
use crate::submission::with_not_used;

/// Asks the head what would happen to the job, and prints the answer.
pub(crate) fn dry_run(context: &Context, client: &Client, spec: &Submission, unread: &[Unread]) -> Outcome {
    let would = block_on(async { Ok(client.dry_run(spec).await?) })?;
    print(context, &would, unread)
}

/// Prints what would happen to the job.
pub(crate) fn print(context: &Context, would: &DryRunView, unread: &[Unread]) -> Outcome {
    match context.output.is_json() {
        true => context.output.json(&with_not_used(would, unread)),
        false => context.output.data(&describe(would, &Moment::now())),
    }
    Ok(exit::OK)
}

/// Refuses a change of jobs after which no node could ever run them. The head has no dry run of changes, so this asks for new
/// jobs with the same needs.
pub(crate) async fn check_change(client: &Client, jobs: &[JobId], change: &JobChange) -> Result<(), Failure> {
    let mut asked = Vec::new();
    for id in jobs {
        let JobDetail { summary: job, tasks_per_node, surroundings, constraint, .. } = client.job(*id, 0).await?;
        let spec = Submission {
            request: PartialRequest {
                cpus: Some(job.cpus),
                memory_bytes: change.memory_bytes.or(Some(job.memory_bytes)),
                gpus: job.gpus,
                counted: job.counted,
            },
            nodes: Some(job.node_count),
            tasks_per_node: Some(tasks_per_node),
            surroundings: Surroundings { submit_line: None, ..surroundings },
            partition: job.partition,
            constraint,
            time_limit_ms: change.time_limit_ms.or(job.time_limit_ms),
            ..Submission::with_defaults("job", Work::command(["true"], "/"))
        };
        if asked.contains(&spec) {
            continue;
        }
        match client.dry_run(&spec).await {
            Err(error) if matches!(error.code(), Some("never_fits" | "partition_refuses")) => {
                return Err(
                    Failure::from(error).hint(format!("nothing was changed; job {id} is the first that could not run"))
                );
            }
            // The head judges the rest with the change itself.
            _ => asked.push(spec),
        }
    }
    Ok(())
}

fn describe(would: &DryRunView, moment: &Moment) -> String {
    let nodes: Vec<&str> = would.nodes.iter().map(NodeName::as_str).collect();
    let nodes = nodes.join(", ");
    let cpus = plural(would.cpus, "CPU");
    let Some(reason) = &would.reason else { return format!("the job would start now on {nodes}, with {cpus}\n") };
    let mut text = format!("the job would wait: {reason}\n");
    let at = would.starts_at.map(|at: WallTime| moment.date(at));
    let line = match (at, would.nodes.is_empty()) {
        (Some(at), _) => {
            format!("it should start on {nodes} at {at}, when running jobs reach their time limits at the latest")
        }
        (None, false) => format!("{nodes} would be kept for it, but running jobs there have no time limit"),
        (None, true) => return text,
    };
    writeln!(text, "{line}").expect("strings can always be written to");
    text
}

#[cfg(test)]
mod tests {
    use hostler_model::{JobId, Reason};

    use super::*;

    #[test]
    fn answer_says_when_and_where() {
        let now = DryRunView {
            id: JobId(7),
            partition: None,
            cpus: 1,
            nodes: vec!["n1".parse().expect("a name"), "n2".parse().expect("a name")],
            starts_at: None,
            reason: None,
        };
        let moment = Moment::now();
        assert_eq!(describe(&now, &moment), "the job would start now on n1, n2, with 1 CPU\n");
        let held = DryRunView { reason: Some(Reason::Held), nodes: Vec::new(), ..now.clone() };
        assert_eq!(describe(&held, &moment), format!("the job would wait: {}\n", Reason::Held));
        let unknown = DryRunView { reason: Some(Reason::Held), ..now };
        assert!(
            describe(&unknown, &moment)
                .ends_with("\nn1, n2 would be kept for it, but running jobs there have no time limit\n")
        );
    }
}
