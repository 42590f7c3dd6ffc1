//! `hostler classroom`: checks that a cluster keeps what the page for classrooms promises.

mod attempts;
mod report;
mod tester;

use clap::{Args, Subcommand};
use hostler_client::Client;
use hostler_model::{PartitionName, Role, UserName};
use hostler_proto::partitions::PartitionView;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::TimeLimit;
use crate::interrupts::{Interrupts, exit_code};
use crate::output;

use attempts::Class;
use report::Report;
use tester::Tester;

/// Check a cluster that a class shares
#[derive(Debug, Args)]
pub(crate) struct Classroom {
    #[command(subcommand)]
    command: ClassroomCommand,
}

#[derive(Debug, Subcommand)]
enum ClassroomCommand {
    Check(Check),
}

/// Try to break what students are promised, on every node, and print what held
///
/// Two users of the group submit real jobs, which try to read each other's files, reach the network, use too much memory
/// and so on. Add two users for this, e.g. check-a and check-b in the roster, whom no person uses: an admin can log in as
/// every user. The command logs in as them with login codes, and logs out at the end. It ends its jobs and removes its
/// files, also after Ctrl-C. Only admins can use it, from a place that reaches the head's port.
///
/// Exit codes: 1 if a promise is broken; 0 if all that were tried are kept.
#[derive(Debug, Args)]
struct Check {
    /// Group of the students, e.g. class
    #[arg(long, value_name = "NAME")]
    group: UserName,

    /// Two users of the group who submit the jobs, e.g. check-a,check-b
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    testers: Vec<UserName>,

    /// Partition with the sandboxes [default: the default partition]
    #[arg(short, long, value_name = "NAME")]
    partition: Option<PartitionName>,

    /// Partition for measurements [default: the first partition with --exclusive]
    #[arg(long, value_name = "NAME")]
    measure: Option<PartitionName>,

    /// How long each job may wait and run before its promise counts as not tried
    #[arg(long, value_name = "TIME", default_value = "2m")]
    timeout: TimeLimit,
}

impl Classroom {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            ClassroomCommand::Check(command) => block_on(command.run(context)),
        }
    }
}

impl Check {
    async fn run(self, context: &Context) -> Outcome {
        let mut interrupts = Interrupts::take()?;
        let admin = context.client()?;
        let directory = tempfile::Builder::new().prefix("hostler-check-").tempdir();
        let directory = directory.during(|| "cannot create a temporary directory".to_owned())?;
        let mut testers = Vec::new();
        // A signal stops the attempts wherever they are. The jobs and logins are ended below in every case.
        let tried = tokio::select! {
            tried = self.attempt(context, &admin, directory.path(), &mut testers) => tried.map(Ok),
            signal = interrupts.next() => Ok(Err(signal)),
        };
        let tidied = tester::tidy_up(&admin, &testers).await;
        let mut report = match tried? {
            Ok(report) => report,
            Err(signal) => {
                tidied?;
                context.output.say("interrupted; the jobs and logins of the check are ended");
                return Ok(exit_code(signal));
            }
        };
        report.add(
            "nothing of a job is left behind",
            "end all jobs of the check",
            None,
            tidied.map_err(|failure| failure.summary().to_owned()).into(),
        );
        match context.output.is_json() {
            true => context.output.json(report.promises()),
            false => context.output.data(&report.table(output::width())),
        }
        Ok(if report.is_broken() { exit::FAILED } else { exit::OK })
    }

    async fn attempt(
        &self,
        context: &Context,
        admin: &Client,
        directory: &std::path::Path,
        testers: &mut Vec<Tester>,
    ) -> Result<Report, Failure> {
        let [first, second] = &self.testers[..] else {
            return Err(Failure::usage("--testers needs two names, e.g. check-a,check-b"));
        };
        if first == second {
            return Err(Failure::usage("--testers needs two different users"));
        }
        let students: Vec<_> =
            admin.users().await?.into_iter().filter(|user| user.groups.contains(&self.group)).collect();
        for name in [first, second] {
            let user = students.iter().find(|user| user.name == *name).ok_or_else(|| {
                Failure::new(format!("there is no user {name} in group {}", self.group))
                    .hint(format!("add one: hostler configure user add {name} --group {}", self.group))
            })?;
            if user.role != Role::User || user.blocked.is_some() {
                return Err(Failure::new(format!("{name} is no ordinary user: the role is {}, or a block", user.role)));
            }
        }
        let partitions = admin.partitions().await?;
        let class = Class {
            admin,
            partition: self.sandboxes(&partitions)?,
            measure: self.measurements(&partitions)?,
            timeout: std::time::Duration::from_millis(self.timeout.as_ms()),
            project: tester::project(directory)?,
        };
        for name in [first, second] {
            testers.push(Tester::log_in(admin, name, directory).await?);
        }
        let mut report = Report::default();
        attempts::quotas(&mut report, &students);
        attempts::all(&class, &testers[0], &testers[1], &mut report, &context.output).await?;
        Ok(report)
    }

    fn sandboxes<'a>(&self, all: &'a [PartitionView]) -> Result<&'a PartitionView, Failure> {
        match &self.partition {
            Some(name) => found(all, name),
            None => all.iter().find(|partition| partition.is_default).ok_or_else(|| {
                Failure::usage("there is no default partition; name one with --partition").hint(
                    "a partition with sandboxes: hostler configure partition add lab --nodes '*' --sandbox always --default",
                )
            }),
        }
    }

    fn measurements<'a>(&self, all: &'a [PartitionView]) -> Result<Option<&'a PartitionView>, Failure> {
        match &self.measure {
            Some(name) => found(all, name).map(Some),
            None => Ok(all.iter().find(|partition| partition.exclusive)),
        }
    }
}

fn found<'a>(all: &'a [PartitionView], name: &PartitionName) -> Result<&'a PartitionView, Failure> {
    let found = all.iter().find(|partition| partition.name == *name);
    found.ok_or_else(|| Failure::new(format!("there is no partition {name}")).exiting(exit::REFUSED))
}
