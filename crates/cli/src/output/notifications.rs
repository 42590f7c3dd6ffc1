//! Text views of notifications.

use hostler_proto::notify::{DeadLetter, DestinationView};

use super::table::{Align, Table};
use super::text::Moment;

pub(crate) fn destinations(all: &[DestinationView], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("KIND", Align::Left),
        ("ADDRESSES", Align::Left),
        ("OPERATORS", Align::Left),
        ("WAITING", Align::Right),
        ("STATUS", Align::Left),
    ]);
    for destination in all {
        let status = match (&destination.fault, destination.disabled) {
            (None, _) => "ok".to_owned(),
            (Some(fault), false) => fault.clone(),
            (Some(fault), true) => format!("disabled: {fault}"),
        };
        let domains: Vec<String> = destination.domains.iter().map(|domain| format!("@{domain}")).collect();
        table.row([
            destination.name.to_string(),
            destination.kind.clone(),
            if domains.is_empty() { "-".to_owned() } else { domains.join(", ") },
            if destination.for_operators { "yes" } else { "-" }.to_owned(),
            destination.waiting.to_string(),
            status,
        ]);
    }
    table.render(width)
}

pub(crate) fn dead_letters(all: &[DeadLetter], moment: &Moment, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("GIVEN UP", Align::Left),
        ("TO", Align::Left),
        ("USER", Align::Left),
        ("MESSAGE", Align::Left),
        ("WHY", Align::Left),
    ]);
    for letter in all {
        table.row([
            moment.date(letter.at),
            letter.to.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            letter.user.clone().unwrap_or_else(|| "(operators)".to_owned()),
            letter.summary.clone(),
            letter.why.clone(),
        ]);
    }
    table.render(width)
}
