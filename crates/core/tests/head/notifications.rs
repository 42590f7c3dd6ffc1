//! Events write messages into the outbox: to owners who subscribed, and to operators.

use hostler_core::head::{Command, Setting};
use hostler_model::{Dependency, Digest, Ending, JobId, JobOccasion, JobSpec, JobState, Work};
use hostler_proto::api::JobAction;
use hostler_proto::link::{Fate, RunEnd, RunResult, RunStatus};
use hostler_proto::notify::{Alert, Happening, JobNews, Message, Recipient};
use hostler_proto::stored::Change;

use crate::harness::{Head, ended, fate, name, spec};

impl Head {
    /// All messages that were written, with their numbers.
    fn outbox(&self) -> Vec<(u64, Message)> {
        let messages = self.changes.iter().filter_map(|change| match change {
            Change::PutMessage(stored) => Some(stored),
            _ => None,
        });
        let read = |bytes| hostler_proto::decode(bytes).expect("stored messages are readable");
        messages.map(|stored| (stored.key.number, read(&stored.bytes))).collect()
    }

    /// The events of jobs in the outbox.
    fn job_news(&self) -> Vec<JobNews> {
        let news = self.outbox().into_iter().flat_map(|(_, message)| message.news);
        news.filter_map(|news| match news.what {
            Happening::Job(job) => Some(job),
            _ => None,
        })
        .collect()
    }

    /// What operators were told.
    pub(crate) fn for_operators(&self) -> Vec<Happening> {
        let outbox = self.outbox().into_iter().filter(|(_, message)| message.to == Recipient::Operators);
        outbox.flat_map(|(_, message)| message.news).map(|news| news.what).collect()
    }
}

fn notifying(notify: &[&str]) -> JobSpec {
    JobSpec { notify: Some(Box::new(notify.iter().map(|text| text.parse().expect(text)).collect())), ..spec() }
}

#[test]
fn owners_are_told_of_the_events_that_they_named() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let silent = head.submit(spec()).expect("accepted");
    let run = head.run_of(silent);
    head.report(1, run, ended(3)).expect("the run is on this node");
    assert_eq!(head.outbox(), [], "nobody subscribed");

    let job = head.submit(notifying(&["a=start,end", "b:ada@example.org=failure", "c=end"])).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("the run is on this node");
    head.report(1, run, ended(3)).expect("the run is on this node");
    let sent: Vec<_> = head.job_news().iter().map(|news| (news.event, news.state)).collect();
    let failure = (JobOccasion::Failure, JobState::Failed);
    assert_eq!(sent, [(JobOccasion::Start, JobState::Running), failure, failure, failure]);
    let numbers: Vec<u64> = head.outbox().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let (to, address) = ("b".parse().expect("a name"), Some("ada@example.org".to_owned()));
    assert_eq!(head.outbox()[2].1.to, Recipient::User { user: "ada".to_owned(), to, address });

    let fine = head.submit(notifying(&["b=failure", "c=end"])).expect("accepted");
    let run = head.run_of(fine);
    head.report(1, run, ended(0)).expect("the run is on this node");
    assert_eq!(
        head.job_news().last().map(|news| (news.event, news.state)),
        Some((JobOccasion::End, JobState::Completed))
    );
    assert_eq!(head.outbox().len(), 5, "no failure is reported");
}

#[test]
fn message_about_an_end_has_the_time_at_which_unfetched_files_are_deleted() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let work = Work::Project { snapshot: Digest([3; 32]), entrypoint: "main.py".to_owned(), args: Vec::new() };
    let mut kept_until = |setting: Option<&str>| {
        let value = setting.map(str::to_owned);
        let set = Command::Set { by: "root".to_owned(), setting: Setting::UnfetchedRetention, value };
        head.command(&set).expect("accepted");
        let job = head.submit(JobSpec { work: work.clone(), ..notifying(&["a=end"]) }).expect("accepted");
        let RunStatus::Ended(end) = ended(0) else { unreachable!("`ended` returns another status") };
        let result = Some(RunResult { manifest: Digest([7; 32]), inline: Vec::new() });
        head.report(1, head.run_of(job), RunStatus::Ended(RunEnd { result, ..end })).expect("the run is on this node");
        let until = head.job_news().last().expect("a message").kept_until;
        until.map(|until| until.ms_since(head.job(job).ended_at.expect("ended")))
    };
    assert_eq!(kept_until(None), None);
    assert_eq!(kept_until(Some("20d")), Some(20 * 86_400_000));
}

#[test]
fn arrays_report_their_end_once() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let array = JobSpec { array: Some("0-2%1".parse().expect("indices")), ..notifying(&["a=start,end"]) };
    let job = head.submit(array).expect("accepted");
    for code in [0, 3, 0] {
        let run = head.run_of(job);
        head.report(1, run, RunStatus::Running).expect("the run is on this node");
        head.report(1, run, ended(code)).expect("the run is on this node");
    }
    let news = head.job_news();
    assert_eq!(news.iter().map(|news| news.event).collect::<Vec<_>>(), [JobOccasion::Start, JobOccasion::Failure]);
    assert_eq!(news[1].endings, [(JobState::Completed, 2), (JobState::Failed, 1)]);
}

#[test]
fn messages_keep_their_numbers_across_a_restart() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let cancelled = head.submit(notifying(&["a"])).expect("accepted");
    let run = head.run_of(cancelled);
    head.act(cancelled, JobAction::Cancel).expect("the owner may cancel");
    let cancelled = Fate::Ended(Ending { state: JobState::Cancelled, exit_code: Some(143) });
    head.report(1, run, fate(cancelled)).expect("the run is on this node");
    let before = head.outbox();
    assert_eq!(before.len(), 1);
    head.restart();
    head.hello("n1", 2, "boot", Vec::new());
    assert_eq!(head.outbox(), before, "a restart writes no message again");
    let next = head.submit(notifying(&["a"])).expect("accepted");
    let run = head.run_of(next);
    head.report(2, run, ended(0)).expect("the run is on this node");
    assert_eq!(head.outbox().last().map(|(number, _)| *number), Some(2));
}

#[test]
fn job_may_end_in_the_tick_in_which_its_wait_is_due() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let first = head.submit(JobSpec { requeue: false, ..spec() }).expect("accepted");
    head.report(1, head.run_of(first), RunStatus::Running).expect("the run is on this node");
    let after: Dependency = format!("afterok:{first}").parse().expect("a dependency");
    // All waits are due in the tick in which the node, and with it the first job, is given up.
    let waits: Vec<JobId> = (0..4_000)
        .step_by(8)
        .map(|at| {
            let waits: Vec<String> = (at..at + 8).map(|at| format!("a=wait:{}ms", 58_000 + at)).collect();
            let waits: Vec<&str> = waits.iter().map(String::as_str).collect();
            head.submit(JobSpec { after: vec![after].into(), ..notifying(&waits) }).expect("accepted")
        })
        .collect();
    head.pass_ms(10 * 60_000);
    assert!(waits.iter().all(|job| head.state.job(*job).is_none()), "they are cancelled with the first job");
}

#[test]
fn long_waits_are_reported_once_for_each_time() {
    let mut head = Head::new();
    let job = head.submit(notifying(&["a=wait:1h", "b=wait:3h,end"])).expect("accepted");
    let quick = head.submit(notifying(&["a=wait:1h"])).expect("accepted");
    head.pass_ms(3_599_999);
    assert_eq!(head.outbox(), []);
    head.act(quick, JobAction::Cancel).expect("the owner may cancel");
    head.restart();
    head.pass_ms(1);
    let waits: Vec<_> = head.job_news().iter().map(|news| (news.job, news.event, news.state)).collect();
    assert_eq!(waits, [(job, JobOccasion::Wait, JobState::Pending)]);
    head.pass_ms(2 * 3_600_000);
    assert_eq!(head.job_news().len(), 2);
    head.pass_ms(24 * 3_600_000);
    assert_eq!(head.job_news().len(), 2);
    assert_eq!(head.state.next_deadline(head.now), None, "no further wait is due");
}

#[test]
fn operators_learn_once_that_a_node_is_down_and_that_it_is_back() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    head.pass_ms(8_000);
    assert_eq!(head.for_operators(), []);
    head.pass_ms(2 * 60_000);
    let down = Happening::NodeDown { node: name("n1"), tasks: 0 };
    assert_eq!(head.for_operators(), std::slice::from_ref(&down));
    head.restart();
    head.pass_ms(2 * 60_000);
    assert_eq!(head.for_operators(), std::slice::from_ref(&down), "a restarted head does not repeat the alert");
    head.hello("n1", 2, "boot", Vec::new());
    assert_eq!(head.for_operators(), [down, Happening::NodeBack { node: name("n1") }]);
    head.hello("n1", 3, "boot", Vec::new());
    assert_eq!(head.for_operators().len(), 2);
}

#[test]
fn alerts_are_reported_when_they_begin_and_end() {
    let mut head = Head::new();
    let alert = Alert::DiskNearlyFull;
    let change = |head: &mut Head, text: Option<&str>| {
        head.command(&Command::Alert { alert, text: text.map(str::to_owned) }).expect("accepted");
    };
    change(&mut head, None);
    change(&mut head, Some("1 GiB free"));
    head.restart();
    change(&mut head, Some("1 MiB free"));
    change(&mut head, None);
    let text = Some("1 GiB free".to_owned());
    assert_eq!(head.for_operators(), [Happening::Alert { alert, text }, Happening::Alert { alert, text: None }]);
}

#[test]
fn jobs_have_a_bounded_number_of_subscriptions() {
    let mut head = Head::new();
    let refusal = head.submit(notifying(&["a"; 9])).expect_err("too many");
    assert!(refusal.to_string().contains("at most 8 notifications"), "{refusal}");
    head.submit(notifying(&["a"; 8])).expect("accepted");
}
