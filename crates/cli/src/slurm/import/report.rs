//! What an import did, or would do: every line of the files, and the changes as commands.

use hostler_model::NodeName;
use hostler_slurm::hostlist::compress;
use serde_json::json;

use super::changes::{Change, Present};
use super::power;
use super::verdict::Verdict;
use super::wanted::Wanted;
use crate::context::Context;
use crate::output::table::{Align, Table};

/// The most characters of the settings in a row of the table.
const MAX_SETTINGS: usize = 60;

pub(super) struct Report<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) changes: &'a [Change],
    /// `None` if no head was reached.
    pub(super) present: Option<&'a Present>,
    pub(super) power: Option<&'a power::File<'a>>,
}

impl Report<'_> {
    /// Prints the report. `applied` says whether the changes were made.
    pub(super) fn print(&self, context: &Context, applied: bool) {
        let output = &context.output;
        let commands: Vec<String> = self.changes.iter().flat_map(Change::commands).collect();
        if output.is_json() {
            output.json(&json!({
                "lines": self.wanted.rows,
                "changes": commands,
                "applied": applied,
                "compared": self.present.is_some(),
                "nodes_to_join": self.absent(),
                "power_toml": self.wanted.power,
                "notes": self.wanted.notes,
            }));
        } else if output.is_quiet() {
            commands.iter().for_each(|command| output.data(command));
        } else {
            output.data(&self.text(&commands, applied));
        }
        self.say(context, commands.len(), applied);
    }

    fn text(&self, commands: &[String], applied: bool) -> String {
        let mut table = Table::new(&[
            ("LINE", Align::Left),
            ("RESULT", Align::Left),
            ("SLURM", Align::Left),
            ("HOSTLER", Align::Left),
        ]);
        for row in &self.wanted.rows {
            let place = format!("{}:{}", row.file, row.line);
            table.row([place, row.verdict.to_string(), shortened(&row.settings.join(" ")), row.note.clone()]);
        }
        let mut text = table.render(None);
        if let Some(power) = self.wanted.power.as_ref().filter(|_| self.power.is_none()) {
            text += &format!("\npower.toml:\n\n{}", indented(power));
        }
        if !commands.is_empty() {
            let heading = if applied { "Made these changes:" } else { "Changes to make:" };
            text += &format!("\n{heading}\n\n{}", indented(&commands.join("\n")));
        }
        text
    }

    fn absent(&self) -> Vec<&NodeName> {
        self.present.map(|present| self.wanted.absent(&present.nodes)).unwrap_or_default()
    }

    /// Prints a summary on stderr.
    fn say(&self, context: &Context, changes: usize, applied: bool) {
        let output = &context.output;
        let count = |verdict| {
            let rows = self.wanted.rows.iter().filter(|row| row.verdict == verdict);
            rows.map(|row| row.settings.len()).sum::<usize>()
        };
        let [taken, differs, missing, unneeded] =
            [Verdict::Taken, Verdict::Differs, Verdict::Missing, Verdict::Unneeded].map(count);
        output.say(&format!(
            "settings of Slurm: {taken} taken, {differs} different, {missing} missing in Hostler, {unneeded} not needed"
        ));
        self.wanted.notes.iter().for_each(|note| output.say(&format!("note: {note}")));
        let absent: Vec<&str> = self.absent().into_iter().map(NodeName::as_str).collect();
        if !absent.is_empty() {
            let nodes = if absent.len() == 1 { "node has" } else { "nodes have" };
            output.say(&format!(
                "note: {} {nodes} not joined yet: {}. Import again then, for features and weights",
                absent.len(),
                shortened(&compress(&absent))
            ));
        }
        if let Some(power) = self.power {
            output.say(&power.sentence(applied));
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

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SETTINGS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect()
}
