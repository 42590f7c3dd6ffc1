//! Prints on which node a command ran, and why on that node.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use hostler_model::format_duration;
use hostler_remote::{Choice, Cost, Counts, Destination, NodeScore, Report};
use nix::fcntl::{Flock, FlockArg};
use serde_json::json;

use super::mirror::MirrorCost;
use crate::context::Context;
use crate::output;
use crate::output::table::{Align, Table};
use crate::xdg;

/// Prints the scores of the nodes.
pub(super) fn scores(context: &Context, choice: &Choice) {
    if context.output.is_json() {
        context.output.json(choice);
    } else {
        context.output.data(&to_text(choice));
    }
}

fn to_text(choice: &Choice) -> String {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("SCORE", Align::Right),
        ("SHARING", Align::Right),
        ("FULLNESS", Align::Right),
        ("PRESSURE", Align::Right),
        ("MEMORY", Align::Right),
        ("UNDER WAY", Align::Right),
    ]);
    for how in &choice.candidates {
        let name = if how.is_local { format!("{} (here)", how.node) } else { how.node.to_string() };
        let parts = [how.score, how.sharing, how.fullness, how.pressure, how.memory].map(thousandths);
        table.row([name].into_iter().chain(parts).chain([how.in_flight.to_string()]));
    }
    let unfit = choice.unfit.iter().map(|(node, why)| format!("{node}: {why}"));
    let table = table.render(output::width());
    let Counts { here, elsewhere, fallen_back } = choice.counts;
    let counts = format!("commands so far: {here} here, {elsewhere} elsewhere, {fallen_back} not on their best node");
    let rest = unfit.chain(choice.cost.as_ref().map(expected)).chain([counts]);
    [table.trim_end().to_owned()].into_iter().chain(rest).collect::<Vec<_>>().join("\n")
}

/// Prints where a command ran.
pub(super) fn placed(context: &Context, placed: &Destination, ended: Option<&Report>, mirror: Option<&MirrorCost>) {
    let output = &context.output;
    if output.is_json() {
        let mut told = json!({ "placed": placed, "ended": ended });
        if let Some(mirror) = mirror {
            told["mirror"] = mirror.as_json();
        }
        return output.say(&told.to_string());
    }
    let mut text = format!("ran on {}", placed.node);
    if let Some(how) = &placed.how {
        text.push_str(&score_text(how));
    }
    if let Some(ended) = ended {
        text.push_str(&format!(", for {}", shown(ended.wall_us)));
    }
    output.say(&text);
    if let Some(mirror) = mirror {
        output.say(&mirror.to_text());
    }
    if let Some(cost) = &placed.cost {
        output.say(&expected(cost));
    }
    for tried in &placed.tried {
        output.say(&format!("not on {}: {}", tried.node, tried.why));
    }
    for reason in &placed.advisory {
        output.say(&format!("limits are not enforced by the kernel: {reason}"));
    }
}

/// How long [`second_best`] says nothing after it has said something.
const PAUSE: Duration = Duration::from_secs(60);

/// Says that a command runs here because better nodes do not run it. Says so at most once a minute, since `make` starts many
/// commands.
pub(super) fn second_best(context: &Context, placed: &Destination, has_tree: bool) {
    let Some(first) = placed.tried.first() else { return };
    if !xdg::folder_cache().is_some_and(|cache| is_due(&cache.with_file_name("exec-note"))) {
        return;
    }
    let nodes: Vec<&str> = placed.tried.iter().map(|tried| tried.node.as_str()).collect();
    let mut text = format!("note: running here, not on {}: {}", nodes.join(", "), first.why);
    if nodes.len() > 1 {
        text.push_str("; `--report` shows the reason of each");
    }
    if !has_tree && placed.tried.iter().any(|tried| tried.lacks_directory) {
        text.push_str("; `--mirror` copies the directory");
    }
    context.output.say(&text);
}

/// Returns whether the last call with this file that returned true was [`PAUSE`] ago. The time of change is the time of
/// that call, and only one of several processes gets the lock.
fn is_due(path: &Path) -> bool {
    let write = || -> io::Result<bool> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        let Ok(mut file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
        let metadata = file.metadata()?;
        if metadata.len() > 0 && metadata.modified()?.elapsed().is_ok_and(|age| age < PAUSE) {
            return Ok(false);
        }
        file.write_all(b"\n")?;
        Ok(true)
    };
    write().unwrap_or(false)
}

fn score_text(how: &NodeScore) -> String {
    let place = if how.is_local { "here, " } else { "" };
    format!(
        " ({place}score {}: sharing {}, fullness {}, pressure {}, memory {}, {} under way)",
        thousandths(how.score),
        thousandths(how.sharing),
        thousandths(how.fullness),
        thousandths(how.pressure),
        thousandths(how.memory),
        how.in_flight
    )
}

fn expected(cost: &Cost) -> String {
    let Cost { kind, run_us, overhead_us } = cost;
    format!(
        "commands like `{kind}` take about {} on an idle node; sending one to another node takes about {}",
        shown(*run_us),
        shown(*overhead_us)
    )
}

/// Formats a span of microseconds.
fn shown(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        10_000..10_000_000 => format!("{} ms", us / 1000),
        _ => format_duration(Duration::from_micros(us)),
    }
}

fn thousandths(number: u64) -> String {
    format!("{}.{:03}", number / 1000, number % 1000)
}
