//! The words of a notification, in plain text. Names that users choose are escaped here, so that no line can be forged.

use std::fmt::Write;

use hostler_model::{JobOccasion, JobState, WallTime, escaped, format_ms, plural};
use hostler_proto::notify::{Alert, Happening, JobNews, Message, News, Recipient};

/// A notification as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    /// One line.
    pub(super) title: String,
    /// One or more lines.
    pub(super) body: String,
    /// Whether something has failed.
    pub(super) is_bad: bool,
}

/// Writes a message as text. `cluster` names the cluster.
pub(super) fn text(message: &Message, cluster: &str) -> Text {
    let lines: Vec<String> = message.news.iter().map(line).collect();
    let mut body = String::new();
    for (news, line) in message.news.iter().zip(&lines) {
        writeln!(body, "{}  {line}", time(news.at)).expect("writing to a string succeeds");
    }
    if message.omitted > 0 {
        writeln!(body, "and {} more", message.omitted).expect("writing to a string succeeds");
    }
    if let Some(hint) = hint(message) {
        writeln!(body, "\n{hint}").expect("writing to a string succeeds");
    }
    let cluster = escaped(cluster);
    Text {
        title: format!("[hostler {cluster}] {}", summary(message)),
        body: body.trim_end().to_owned(),
        is_bad: message.news.iter().any(is_bad),
    }
}

/// The message in one line.
pub(super) fn summary(message: &Message) -> String {
    let count = message.news.len() as u64 + message.omitted;
    match message.news.as_slice() {
        [only] if message.omitted == 0 => line(only),
        several => {
            if let Some((job, at)) = only_job(message) {
                return job_line(job, at);
            }
            let bad = several.iter().filter(|news| is_bad(news)).count();
            let is_end = |job: &JobNews| matches!(job.event, JobOccasion::End | JobOccasion::Failure);
            let are_ends = several.iter().all(|news| matches!(&news.what, Happening::Job(job) if is_end(job)));
            match (are_ends, bad) {
                (true, 0) => format!("{count} jobs have ended"),
                (true, bad) => format!("{count} jobs have ended, {bad} of them unsuccessfully"),
                (false, _) => format!("{count} events"),
            }
        }
    }
}

/// The latest news of a job, if the message is about this job only.
fn only_job(message: &Message) -> Option<(&JobNews, WallTime)> {
    let job = |news: &News| match &news.what {
        Happening::Job(job) => Some(job.job),
        _ => None,
    };
    let last = message.news.last().filter(|_| message.omitted == 0)?;
    let Happening::Job(latest) = &last.what else { return None };
    message.news.iter().all(|news| job(news) == Some(latest.job)).then_some((latest, last.at))
}

fn is_bad(news: &News) -> bool {
    match &news.what {
        Happening::Job(job) => {
            job.event == JobOccasion::Failure || (job.event == JobOccasion::End && is_failure(job.state))
        }
        Happening::NodeDown { .. } | Happening::Alert { text: Some(_), .. } => true,
        Happening::NodeBack { .. } | Happening::Alert { text: None, .. } | Happening::Test { .. } => false,
    }
}

const fn is_failure(state: JobState) -> bool {
    !matches!(state, JobState::Completed | JobState::Cancelled)
}

/// News in one line.
pub(super) fn line(news: &News) -> String {
    match &news.what {
        Happening::Job(job) => job_line(job, news.at),
        Happening::NodeDown { node, tasks: 0 } => format!("node {node} is down"),
        Happening::NodeDown { node, tasks } => format!("node {node} is down; it has {}", plural(tasks, "task")),
        Happening::NodeBack { node } => format!("node {node} is back"),
        Happening::Alert { alert, text: Some(text) } => format!("{}: {}", alert_name(*alert), escaped(text)),
        Happening::Alert { alert, text: None } => format!("resolved: {}", alert_name(*alert)),
        Happening::Test { by } => format!("test message from {}", escaped(by)),
    }
}

const fn alert_name(alert: Alert) -> &'static str {
    match alert {
        Alert::DiskNearlyFull => "the head's disk is nearly full",
        Alert::SubmissionsRefused => "the head refuses submissions",
    }
}

fn job_line(job: &JobNews, at: WallTime) -> String {
    let JobNews { job: id, name, .. } = job;
    let kind = if job.endings.is_empty() && job.tasks == 1 { "job" } else { "array" };
    let subject = format!("{kind} {id} ({})", escaped(name));
    let after = job.started_at.map_or_else(String::new, |started| format!(" after {}", span(started, at)));
    match job.event {
        JobOccasion::Start if job.nodes.is_empty() => format!("{subject} has started"),
        JobOccasion::Start => {
            let nodes: Vec<&str> = job.nodes.iter().map(hostler_model::NodeName::as_str).collect();
            format!("{subject} has started on {}", nodes.join(", "))
        }
        JobOccasion::Wait => format!("{subject} still waits, {} after its submission", span(job.submitted_at, at)),
        JobOccasion::End | JobOccasion::Failure if !job.endings.is_empty() => {
            let endings: Vec<String> =
                job.endings.iter().map(|(state, count)| format!("{count} {}", word(*state))).collect();
            format!("{subject} has ended{after}: {}", endings.join(", "))
        }
        JobOccasion::End | JobOccasion::Failure => {
            format!("{subject} {}{after}", job.state.in_words(job.exit_code))
        }
    }
}

const fn word(state: JobState) -> &'static str {
    match state {
        JobState::OutOfMemory => "out of memory",
        JobState::NodeFail => "lost",
        state => state.as_str(),
    }
}

/// What to do next, for a message about one job.
fn hint(message: &Message) -> Option<String> {
    let Some((job, _)) = only_job(message) else {
        return matches!(message.to, Recipient::User { .. }).then(|| "Details: hostler jobs".to_owned());
    };
    let id = job.job;
    Some(match job.event {
        JobOccasion::Wait => format!("Why: hostler why {id}"),
        JobOccasion::Start => format!("Details: hostler job {id}"),
        JobOccasion::End | JobOccasion::Failure => {
            let until = |at| {
                format!("\nThe head deletes its files on {} unless they are fetched: hostler fetch {id}", time(at))
            };
            let until = job.kept_until.map(until).unwrap_or_default();
            format!("Details: hostler job {id}. Output: hostler logs {id}{until}")
        }
    })
}

fn span(from: WallTime, to: WallTime) -> String {
    format_ms(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0))
}

/// A time in the head's time zone, to the second.
pub(crate) fn time(at: WallTime) -> String {
    let Ok(time) = jiff::Timestamp::from_millisecond(at.0) else { return at.0.to_string() };
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use hostler_model::JobId;

    use super::*;

    pub(in super::super) fn job(name: &str, event: JobOccasion, state: JobState) -> JobNews {
        JobNews {
            job: JobId(12),
            name: name.to_owned(),
            user: "ada".to_owned(),
            event,
            state,
            tasks: 1,
            endings: Vec::new(),
            exit_code: (state == JobState::Failed).then_some(3),
            nodes: Vec::new(),
            submitted_at: WallTime(1_000),
            started_at: Some(WallTime(2_000)),
            kept_until: None,
        }
    }

    pub(in super::super) fn message(jobs: Vec<JobNews>) -> Message {
        let to = Recipient::User { user: "ada".to_owned(), to: "lab".parse().expect("a name"), address: None };
        let news = jobs.into_iter().map(|job| News { at: WallTime(123_000), what: Happening::Job(job) }).collect();
        Message { to, news, omitted: 0, tries: 0, given_up: None }
    }

    #[test]
    fn lines_say_what_happened() {
        let line = |event, state| job_line(&job("train", event, state), WallTime(123_500));
        assert_eq!(line(JobOccasion::End, JobState::Completed), "job 12 (train) has completed after 2m01s");
        assert_eq!(
            line(JobOccasion::Failure, JobState::Failed),
            "job 12 (train) has failed with exit code 3 after 2m01s"
        );
        assert_eq!(line(JobOccasion::Failure, JobState::Preempted), "job 12 (train) was preempted after 2m01s");
        assert_eq!(
            line(JobOccasion::Wait, JobState::Pending),
            "job 12 (train) still waits, 2m02s after its submission"
        );
        let endings = vec![(JobState::Completed, 90), (JobState::OutOfMemory, 10)];
        let array = JobNews { tasks: 100, endings, ..job("train", JobOccasion::Failure, JobState::OutOfMemory) };
        let expected = "array 12 (train) has ended after 2m01s: 90 completed, 10 out of memory";
        assert_eq!(job_line(&array, WallTime(123_500)), expected);
        let both = message(vec![
            job("a", JobOccasion::End, JobState::Completed),
            JobNews { job: JobId(13), ..job("b", JobOccasion::Failure, JobState::Failed) },
        ]);
        assert_eq!(summary(&both), "2 jobs have ended, 1 of them unsuccessfully");
        let one = message(vec![
            job("a", JobOccasion::Start, JobState::Running),
            job("a", JobOccasion::End, JobState::Completed),
        ]);
        assert_eq!(summary(&one), "job 12 (a) has completed after 2m01s");
    }

    #[test]
    fn message_about_an_end_says_when_unfetched_files_are_deleted() {
        let job = job("train", JobOccasion::End, JobState::Completed);
        let body = |job| text(&message(vec![job]), "lab").body;
        assert!(body(job.clone()).ends_with("Output: hostler logs 12"));
        let until = WallTime(1_800_000_000_000);
        let body = body(JobNews { kept_until: Some(until), ..job });
        let line = format!("The head deletes its files on {} unless they are fetched: hostler fetch 12", time(until));
        assert_eq!(body.lines().last(), Some(line.as_str()));
    }

    #[test]
    fn hostile_names_add_no_lines() {
        let hostile = "x\r\nBcc: eve@example.org\u{202e}";
        let text = text(&message(vec![job(hostile, JobOccasion::End, JobState::Completed)]), "head\nX: y");
        assert_eq!(text.title.lines().count(), 1);
        assert!(!text.title.contains(char::is_control) && text.title.contains(r"x\r\nBcc"), "{}", text.title);
        assert_eq!(text.body.lines().count(), 3, "the event, an empty line and the hint: {}", text.body);
    }
}
