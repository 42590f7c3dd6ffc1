//! `hostler configure audit`: prints the audit log.

use clap::Args;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::text::{Moment, Since};
use crate::output::{self, people};

/// Show the audit log: changes, refused requests and events of the cluster, oldest first
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Show only entries from the last TIME, e.g. 2h or 7-00:00:00, or since a date
    ///
    /// 7-00:00:00 means 7 days.
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// Show only the newest N entries
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = crate::flags::number::<1, 100_000>)]
    limit: u32,
}

impl Audit {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let (page, moment) = block_on(async {
            let moment = Moment::of_head(&client).await?;
            let since = self.since.map(|since| moment.start_of(since));
            Ok((client.audit(since, self.limit).await?, moment))
        })?;
        if context.output.is_json() {
            context.output.json(&page.entries);
        } else {
            context.output.data(&people::audit(&page.entries, &moment, output::width()));
        }
        if page.cut {
            context
                .output
                .aside(&format!("only the newest {} entries are shown; --limit shows more", page.entries.len()));
        }
        Ok(exit::OK)
    }
}
