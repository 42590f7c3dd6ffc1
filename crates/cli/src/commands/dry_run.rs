//! `--dry-run` of `run` and `submit`: says when and where a job would start.

use std::fmt::Write;

use hostler_client::{Client, Unread};
use hostler_model::{NodeName, Submission, WallTime, plural};
use hostler_proto::dry_run::DryRunView;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::text::Moment;
use crate::submission::with_not_used;

/// Asks the head what would happen to the job, and prints the answer.
pub(crate) fn dry_run(context: &Context, client: &Client, spec: &Submission, unread: &[Unread]) -> Outcome {
    let would = block_on(async { Ok(client.dry_run(spec).await?) })?;
    match context.output.is_json() {
        true => context.output.json(&with_not_used(&would, unread)),
        false => context.output.data(&describe(&would, &Moment::now())),
    }
    Ok(exit::OK)
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
