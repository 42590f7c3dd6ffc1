//! `hostler classroom`: checks that a cluster keeps what the page for classrooms promises.

mod attempts;
mod report;
mod tester;

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use hostler_client::Client;
use hostler_model::{ExclusiveRule, PartitionName, Role, UserName};
use hostler_proto::partitions::PartitionView;
use hostler_proto::users::UserView;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::TimeLimit;
use crate::interrupts::{Interrupts, exit_code};
use crate::output;

use attempts::Class;
use report::{Finding, Report};
use tester::Tester;

/// Check a cluster that a class shares
#[derive(Debug, Args)]
pub struct Classroom {
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
/// Exit codes: 0 if all promises are kept; 1 if one is broken; 2 if none is broken, but not all could be tried.
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

    /// Partition for measurements [default: the first partition with --exclusive always]
    #[arg(long, value_name = "NAME")]
    measure: Option<PartitionName>,

    /// How long each job may wait and run before its promise counts as not tried
    #[arg(long, value_name = "TIME", default_value = "2m")]
    timeout: TimeLimit,
}

impl Classroom {
    pub fn run(self, context: &Context) -> Outcome {
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
        let tried = match self.prepare(&admin, directory.path(), &mut testers).await {
            // A signal stops the attempts wherever they are, but not the logins, so that all are known. The jobs and
            // logins are ended below in every case.
            Ok((class, report)) => tokio::select! {
                tried = attempt(&class, report, &testers, context) => tried.map(Ok),
                signal = interrupts.next() => Ok(Err(signal)),
            },
            Err(failure) => Err(failure),
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
            "jobs end when they are cancelled",
            "cancel all jobs of the check",
            None,
            tidied.unwrap_or_else(|failure| Finding::NotTried(failure.summary().to_owned())),
        );
        match context.output.is_json() {
            true => context.output.json(report.promises()),
            false => context.output.data(&report.table(output::width())),
        }
        Ok(match (report.is_broken(), report.is_complete()) {
            (true, _) => exit::FAILED,
            (false, false) => exit::NOT_TRIED,
            (false, true) => exit::OK,
        })
    }

    /// Logs in, and reads the quotas.
    async fn prepare<'a>(
        &self,
        admin: &'a Client,
        directory: &Path,
        testers: &mut Vec<Tester>,
    ) -> Result<(Class<'a>, Report), Failure> {
        let [first, second] = &self.testers[..] else {
            return Err(Failure::usage("--testers needs two names, e.g. check-a,check-b"));
        };
        if first == second {
            return Err(Failure::usage("--testers needs two different users"));
        }
        let all = admin.users().await?;
        let students: Vec<_> = all.iter().filter(|user| user.groups.contains(&self.group)).cloned().collect();
        for name in [first, second] {
            let user =
                students.iter().find(|user| user.name == *name).ok_or_else(|| no_tester(name, &self.group, &all))?;
            if user.role != Role::User || user.blocked.is_some() {
                return Err(Failure::new(format!(
                    "{name} is not an ordinary user: the role is {}, or the account is blocked",
                    user.role
                )));
            }
        }
        let partitions = admin.partitions().await?;
        let timeout = Duration::from_millis(self.timeout.as_ms());
        let partition = self.sandboxes(&partitions)?.clone();
        let measure = self.measurements(&partitions)?.cloned();
        let time = time_limit(Some(&partition), timeout);
        let measure_time = time_limit(measure.as_ref(), timeout);
        let project = tester::project(directory)?;
        for (number, name) in self.testers.iter().enumerate() {
            let mut tester = Tester::new(name, directory.join(format!("tester-{number}")), &time)?;
            let logged_in = tester.log_in(admin).await;
            testers.push(tester);
            logged_in?;
        }
        let mut report = Report::default();
        attempts::quotas(&mut report, &students);
        Ok((Class { admin, partition, measure, measure_time, timeout, project }, report))
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
            None => Ok(all.iter().find(|partition| partition.exclusive == ExclusiveRule::Always)),
        }
    }
}

async fn attempt(
    class: &Class<'_>,
    mut report: Report,
    testers: &[Tester],
    context: &Context,
) -> Result<Report, Failure> {
    attempts::all(class, &testers[0], &testers[1], &mut report, &context.output).await?;
    Ok(report)
}

/// Time limit of jobs in a partition, in case that the check is killed: long enough for all attempts beside a job.
fn time_limit(partition: Option<&PartitionView>, timeout: Duration) -> String {
    let most = partition.and_then(|partition| partition.max_time_ms).map_or(u64::MAX, |ms| (ms / 1000).max(1));
    format!("{}s", timeout.as_secs().saturating_mul(3).max(600).min(most))
}

fn found<'a>(all: &'a [PartitionView], name: &PartitionName) -> Result<&'a PartitionView, Failure> {
    let found = all.iter().find(|partition| partition.name == *name);
    found.ok_or_else(|| Failure::new(format!("there is no partition {name}")).exiting(exit::REFUSED))
}
/// Why a user cannot test for the group.
fn no_tester(name: &UserName, group: &UserName, all: &[UserView]) -> Failure {
    let failure = Failure::new(format!("there is no user {name} in group {group}"));
    match all.iter().find(|user| user.name == *name && user.added) {
        None => failure.hint(format!("add one: hostler configure user add {name} --group {group}")),
        Some(user) if user.groups.is_empty() => {
            failure.hint(format!("{name} is in no group; the column groups of `hostler configure user import` sets it"))
        }
        Some(user) => {
            let groups: Vec<&str> = user.groups.iter().map(UserName::as_str).collect();
            failure.hint(format!("{name} is in {}: name the group of the class with --group", groups.join(", ")))
        }
    }
}
