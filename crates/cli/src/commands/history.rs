//! `hostler history`: sums what ended jobs held and used.

use clap::Args;
use hostler_proto::accounting::{AccountingGroup, AccountingPage};
use jiff::tz::TimeZone;

use super::known;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::{Align, Table};
use crate::output::text::{Moment, Since};

/// Sum what ended jobs held and used, e.g. by user
///
/// A job counts on the day on which it ended, in UTC. Operators see the jobs of all users, other users their own. `hostler dashboard`
/// also lists the jobs.
#[derive(Debug, Args)]
pub struct History {
    /// Group the jobs by this
    #[arg(long, value_name = "WHAT", value_parser = ["user", "partition", "name", "day"], default_value = "user")]
    by: String,

    /// Count jobs that ended in the last TIME, e.g. 7d, and on the day at its start, or since a date [maximum: 365d]
    #[arg(long, value_name = "TIME", default_value = "30d")]
    since: Since,

    /// Count only jobs of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl History {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let page = block_on(async {
            let moment = Moment { zone: TimeZone::UTC, ..Moment::of_head(&client).await? };
            let from = moment.date(moment.start_of(self.since));
            let (day, _) = from.split_at(from.len().min(10));
            let page = client.accounting(&self.by, day, None, self.user.as_deref()).await?;
            if page.total.jobs == 0 {
                known::check(context, &client, self.user.as_deref(), None).await?;
            }
            Ok(page)
        })?;
        match context.output.is_json() {
            true => context.output.json(&page),
            false => context.output.data(&table(&page, &self.by, output::width())),
        }
        Ok(exit::OK)
    }
}

fn table(page: &AccountingPage, by: &str, width: Option<usize>) -> String {
    let by = by.to_uppercase();
    let mut columns = vec![
        (&*by, Align::Left),
        ("JOBS", Align::Right),
        ("COMPLETED", Align::Right),
        ("CORE HOURS", Align::Right),
        ("CPU USED", Align::Right),
        ("MEMORY USED", Align::Right),
        ("GPU HOURS", Align::Right),
    ];
    columns.extend(page.total.cost.as_ref().map(|_| ("ENERGY COST", Align::Right)));
    let mut table = Table::new(&columns);
    let used = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{:.0}%", part * 100.0));
    let mut add = |key: &str, sums: &AccountingGroup| {
        let cells = [
            key.to_owned(),
            sums.jobs.to_string(),
            sums.endings.completed.to_string(),
            format!("{:.2}", sums.core_hours),
            used(sums.cpu_efficiency),
            used(sums.memory_efficiency),
            format!("{:.2}", sums.gpu_hours),
        ];
        table.row(cells.into_iter().chain(sums.cost.as_ref().map(ToString::to_string)));
    };
    page.groups.iter().for_each(|group| add(if group.key.is_empty() { "-" } else { &group.key }, group));
    add("total", &page.total);
    format!("jobs that ended from {} to {}\n{}", page.from, page.to, table.render(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_shown_with_a_total() {
        let sums = |key: &str, jobs, core_hours| AccountingGroup {
            key: key.to_owned(),
            jobs,
            core_hours,
            cpu_efficiency: Some(0.5),
            ..AccountingGroup::default()
        };
        let page = AccountingPage {
            from: "2026-03-01".to_owned(),
            to: "2026-03-30".to_owned(),
            user: None,
            by: hostler_proto::accounting::GroupBy::User,
            groups: vec![sums("ada", 3, 1.5), sums("", 1, 0.25)],
            total: sums("", 4, 1.75),
        };
        let expected = "\
jobs that ended from 2026-03-01 to 2026-03-30
USER   JOBS  COMPLETED  CORE HOURS  CPU USED  MEMORY USED  GPU HOURS
ada       3          0        1.50       50%            -       0.00
-         1          0        0.25       50%            -       0.00
total     4          0        1.75       50%            -       0.00
";
        assert_eq!(table(&page, "user", None), expected);
    }
}
