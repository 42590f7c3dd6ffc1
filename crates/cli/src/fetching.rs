//! Downloads of results: where they go, and what the commands say about them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;

use hostler_client::Client;
use hostler_client::fetch::{self, Arrived, Destination, FetchEvent, Part, Undelivered};
use hostler_model::{format_bytes, plural};
use hostler_proto::api::ResultView;
use hostler_snapshot::{DeliveryError, OnConflict, Property, show};

use crate::context::Context;
use crate::failure::Failure;
use crate::here::absolute;
use crate::output::Step;

/// Makes the target directory absolute, so that printed paths are valid everywhere.
pub fn destination(to: Option<&Path>, overwrite: bool) -> Result<Destination, Failure> {
    let directory = to.unwrap_or(Path::new("."));
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::new(format!("{} is not a directory", show(directory.as_os_str().as_encoded_bytes()))));
    }
    let directory = absolute(directory)?;
    let on_conflict = if overwrite { OnConflict::Overwrite } else { OnConflict::Refuse };
    Ok(Destination { directory, on_conflict })
}

/// What arrived of the wanted results.
pub struct Downloads {
    pub arrived: Vec<Arrived>,
    /// Whether all wanted results arrived.
    pub is_complete: bool,
}

/// Downloads `results` and prints what arrived. If one result fails, the others are still downloaded.
///
/// # Errors
/// Fails if the head is unreachable or refuses a request.
pub async fn fetch(
    context: &Context,
    client: &Client,
    results: &[ResultView],
    destination: &Destination,
) -> Result<Downloads, Failure> {
    let step = Step::new(&context.output);
    // A long download arrives in parts.
    let count = Cell::new(0);
    let narrate = |event: FetchEvent<'_>| match event {
        FetchEvent::Fetching { part, bytes, total_bytes } => step.at(&label(part), bytes, total_bytes),
        FetchEvent::Problem { result, text } => step.say(&format!("note: job {result}: {text}")),
        FetchEvent::Unmarked { directory, error } => {
            step.say(&format!("note: cannot mark {} as job results: {error}", directory.display()));
        }
        FetchEvent::NotHeld { directory, properties } => {
            let missing = not_held(properties);
            step.say(&format!("note: the disk of {} cannot hold {missing}", directory.display()));
        }
        FetchEvent::Arrived(arrived) => count.set(count.get() + arrived.len()),
    };
    let downloads = fetch::fetch(client, results, destination, &narrate).await.inspect_err(|_| {
        if count.get() > 0 {
            step.say(&format!("{} had arrived before the error", plural(count.get(), "result")));
        }
    })?;
    step.end();
    what_arrived(&downloads.arrived).for_each(|line| context.output.say(&line));
    downloads.undelivered.iter().for_each(|it| context.output.fail(&undeliverable(it)));
    Ok(Downloads { arrived: downloads.arrived, is_complete: downloads.undelivered.is_empty() })
}

/// Says what is being downloaded, for the progress bar.
fn label(part: Part) -> String {
    let Part { before, results, total, files } = part;
    let files = plural(files, "file");
    if results == total {
        return format!("fetching {files}");
    }
    format!("fetching results {} to {} of {total}, {files}", before + 1, before + results)
}

/// Lists what a disk cannot hold, by property and with an example each.
fn not_held(all: &[(Property, Vec<u8>)]) -> String {
    let kinds = all.chunk_by(|a, b| a.0 == b.0).map(|of_one_kind| {
        let (property, first) = &of_one_kind[0];
        let noun = match property {
            Property::Mode => "mode",
            Property::Time => "modification time",
            Property::Link => "link",
        };
        match (property, of_one_kind.len()) {
            (Property::Link, 1) => format!("the link {}", show(first)),
            (Property::Link, count) => format!("{count} links, e.g. {}", show(first)),
            (_, 1) => format!("the {noun} of {}", show(first)),
            (_, count) => format!("the {noun}s of {count} entries, e.g. {}", show(first)),
        }
    });
    let kinds: Vec<String> = kinds.collect();
    kinds.join("; ")
}

/// One line for each attempt of a job.
fn what_arrived(arrived: &[Arrived]) -> impl Iterator<Item = String> {
    arrived.chunk_by(|a, b| (a.job, a.earlier_attempt) == (b.job, b.earlier_attempt)).map(|of_one_job| {
        let first = of_one_job.iter().find(|result| result.node_rank.unwrap_or(0) == 0).unwrap_or(&of_one_job[0]);
        let (files, bytes) = of_one_job.iter().fold((0, 0), |sum, it| (sum.0 + it.files, sum.1 + it.bytes));
        let what = match (first.index, of_one_job.len()) {
            (None, 1) => match first.earlier_attempt {
                Some(attempt) => format!("attempt {attempt} of job {}", first.job),
                None => format!("job {}", first.job),
            },
            (None, nodes) => format!("job {} from its {nodes} nodes", first.job),
            (Some(index), 1) => format!("task {}_{index}", first.job),
            (Some(_), _) => format!("{} of job {}", plural(tasks_in(of_one_job), "task"), first.job),
        };
        let place = match of_one_job.len() {
            1 => first.path.clone(),
            _ if first.index.is_none() => first.path.clone(),
            _ => first.path.with_file_name(format!("{}_*", first.job)),
        };
        let replaced = match of_one_job.iter().map(|it| it.replaced).sum() {
            0 => String::new(),
            replaced => format!("; replaced {} of an earlier attempt", plural(replaced, "file")),
        };
        let amount = match files {
            0 => format!("all files existed already{replaced}"),
            _ => format!("{}, {}{replaced}", plural(files, "file"), format_bytes(bytes)),
        };
        format!("fetched {what} into {} ({amount})", place.display())
    })
}

/// Returns the number of different tasks among results of one job.
fn tasks_in(of_one_job: &[Arrived]) -> usize {
    of_one_job.iter().map(|result| result.index).collect::<BTreeSet<_>>().len()
}

fn undeliverable(Undelivered { name, error, .. }: &Undelivered) -> Failure {
    let failure = Failure::new(format!("the results of job {name} were not delivered")).because(error);
    match error {
        DeliveryError::Conflicts { conflicts, .. } if conflicts.iter().all(|it| it.can_be_settled) => {
            failure.hint("fetch into another directory with --to, or replace these files with --overwrite")
        }
        DeliveryError::Busy(_) => failure.hint("wait until the other fetch ends"),
        _ => failure.hint("the results stay on the head; correct the problem and fetch the results again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_counts_files_and_the_results_of_a_long_download() {
        let part = Part { before: 0, results: 2, total: 2, files: 1 };
        assert_eq!(label(part), "fetching 1 file");
        let later = Part { before: 64, results: 64, total: 300, files: 700 };
        assert_eq!(label(later), "fetching results 65 to 128 of 300, 700 files");
    }

    #[test]
    fn properties_that_a_disk_cannot_hold_are_listed_in_one_line() {
        let of = |property, path: &str| (property, path.as_bytes().to_vec());
        let all =
            [of(Property::Mode, "a"), of(Property::Mode, "run.sh"), of(Property::Time, "a"), of(Property::Link, "l")];
        let expected = "the modes of 2 entries, e.g. a; the modification time of a; the link l";
        assert_eq!(not_held(&all), expected);
    }
}
