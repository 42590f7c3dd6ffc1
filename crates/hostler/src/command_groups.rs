//! The command list of `hostler --help`, grouped by task.

use std::fmt::Write;

use clap::Command;

/// Headings and their commands, in the order of the help. A test checks that every visible command is in exactly one
/// group.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Cluster on this machine", &["demo", "up", "down"]),
    (
        "Jobs",
        &[
            "submit",
            "run",
            "measure",
            "jupyter",
            "jobs",
            "job",
            "why",
            "logs",
            "wait",
            "fetch",
            "attach",
            "forward",
            "cancel",
            "hold",
            "release",
            "requeue",
            "update",
            "signal",
            "jobs-folder",
        ],
    ),
    ("Remote commands", &["exec", "alloc", "step"]),
    ("Cluster and nodes", &["top", "info", "history", "dashboard", "nodes", "node", "login", "logout"]),
    ("Administration", &["configure", "head", "agent", "gateway", "import", "classroom"]),
    ("Tools", &["sim", "shims", "completions"]),
];

/// Replaces the flat command list in the help of `command` by the groups.
pub(crate) fn grouped(command: Command) -> Command {
    let template = template(&command);
    command.help_template(template)
}

/// A help template for clap. Takes names and descriptions from the subcommands, so that the help is always up to date.
fn template(command: &Command) -> String {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        writeln!(text, "\n{header}{heading}:{header:#}").expect("strings can always be written to");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            writeln!(text, "  {literal}{name:width$}{literal:#}  {about}").expect("strings can always be written to");
        }
    }
    writeln!(text, "\n{header}Options:{header:#}").expect("strings can always be written to");
    text.push_str("{options}\n\n`hostler help COMMAND` shows the flags of a command.");
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let command = Arguments::command();
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(visible, grouped);
    }

    #[test]
    fn command_list_fits_80_columns() {
        let help = grouped(Arguments::command()).term_width(80).render_long_help().to_string();
        assert!(help.contains("Remote commands:\n  exec"), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
