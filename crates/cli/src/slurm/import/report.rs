//! What an import did, or would do: the changes as commands, and what was not taken over.

use hostler_model::{NodeName, shortened};
use hostler_slurm::hostlist::compress;
use serde_json::json;

use super::changes::{Change, Present};
use super::wanted::Wanted;
use crate::context::Context;

/// The most characters of a list of nodes.
const MAX_NODES: usize = 60;

pub(super) struct Report<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) changes: &'a [Change],
    /// `None` if no head was reached.
    pub(super) present: Option<&'a Present>,
}

impl Report<'_> {
    /// Prints the report. `applied` says whether the changes were made.
    pub(super) fn print(&self, context: &Context, applied: bool) {
        let output = &context.output;
        let commands: Vec<String> = self.changes.iter().flat_map(Change::commands).collect();
        if output.is_json() {
            output.json(&json!({
                "changes": commands,
                "applied": applied,
                "compared": self.present.is_some(),
                "nodes_to_join": self.absent(),
                "not_taken": self.wanted.not_taken,
                "notes": self.wanted.notes,
            }));
        } else {
            commands.iter().for_each(|command| output.data(command));
        }
        self.say(context, commands.len(), applied);
    }

    fn absent(&self) -> Vec<&NodeName> {
        self.present.map(|present| self.wanted.absent(&present.nodes)).unwrap_or_default()
    }

    /// Prints a summary on stderr.
    fn say(&self, context: &Context, changes: usize, applied: bool) {
        let output = &context.output;
        if !self.wanted.not_taken.is_empty() {
            output.say(&format!("not taken over: {}", self.wanted.not_taken.join(", ")));
        }
        self.wanted.notes.iter().for_each(|note| output.say(&format!("note: {note}")));
        let absent: Vec<&str> = self.absent().into_iter().map(NodeName::as_str).collect();
        if !absent.is_empty() {
            let nodes = if absent.len() == 1 { "node has" } else { "nodes have" };
            output.say(&format!(
                "note: {} {nodes} not joined yet: {}. Import again then, for features and weights",
                absent.len(),
                shortened(&compress(&absent), MAX_NODES)
            ));
        }
        if self.present.is_none() {
            output.say("note: no head was reached, so these are all changes that a new cluster needs");
        }
        let plural = if changes == 1 { "change" } else { "changes" };
        output.say(&match (changes, applied) {
            (0, _) => "nothing to do: the cluster has all of these settings".to_owned(),
            (_, true) => format!("made {changes} {plural}"),
            (_, false) => format!("{changes} {plural} to make; nothing was changed"),
        });
    }
}
