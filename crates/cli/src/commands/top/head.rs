//! Asks the head for what the screen shows: after a notice of the head, or after a pause without notices, and at most
//! once per second. All this happens beside the keyboard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hostler_client::{Client, ClientError, Follow, LogEvent};
use hostler_model::{JobId, TaskId, WallTime};
use hostler_proto::api::JobSummary;
use hostler_proto::link::Output;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::model::{Action, Event, Picture, Want};

/// Least time between two refreshes.
const PAUSE: Duration = Duration::from_secs(1);

/// Least time between a refresh and the next, if the user has opened another screen meanwhile.
const TURN: Duration = Duration::from_millis(100);

/// Longest time between two refreshes. Notices that were missed, and loads, which cause no notices, appear after it.
const LONGEST: Duration = Duration::from_secs(5);

/// Time limit for an answer of the head.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause before the stream of notices or of output is opened again.
const AGAIN: Duration = Duration::from_secs(2);

/// Maximum number of ended tasks in the view of a job.
const TASKS: u32 = 200;

/// Refreshes the picture while the program runs.
pub(super) async fn refresh(client: Arc<Client>, mut want: watch::Receiver<Want>, events: mpsc::Sender<Event>) {
    let changed = Arc::new(Notify::new());
    let _listener = Abort(tokio::spawn(listen(Arc::clone(&client), Arc::clone(&changed))));
    loop {
        let wanted = want.borrow_and_update().clone();
        let began = Instant::now();
        let event = match timeout(PATIENCE, fetch(&client, &wanted)).await {
            Ok(Ok((picture, now))) => Event::Picture(Box::new(picture), now),
            // The head answers, but refuses: the job is forgotten, or the login has expired.
            Ok(Err(error @ ClientError::Refused { .. })) if !error.is_transient() => {
                Event::Acted(Err(error.to_string()))
            }
            Ok(Err(error)) => Event::Away(error.to_string()),
            Err(_) => Event::Away(format!("the head has not answered for {} s", PATIENCE.as_secs())),
        };
        if events.send(event).await.is_err() {
            return;
        }
        let due = async {
            sleep_until(began + PAUSE).await;
            let _ = timeout(LONGEST - PAUSE, changed.notified()).await;
        };
        tokio::select! {
            () = due => {}
            outcome = want.changed() => match outcome {
                Ok(()) => sleep_until(began + TURN).await,
                Err(_) => return,
            }
        }
    }
}

/// Reports that something has changed, while the head streams notices. Without the stream, pauses remain.
async fn listen(client: Arc<Client>, changed: Arc<Notify>) {
    loop {
        if let Ok(mut notices) = client.events().await {
            // Something may have changed while there was no stream.
            changed.notify_one();
            while let Ok(Some(_)) = notices.next().await {
                changed.notify_one();
            }
        }
        sleep(AGAIN).await;
    }
}

/// Returns what the screen shows, and the head's time.
async fn fetch(client: &Client, want: &Want) -> Result<(Picture, WallTime), ClientError> {
    let mut picture = Picture { info: Some(client.info().await?), ..Picture::default() };
    if !want.jobs.is_empty() {
        // A job that ends between two requests is in both lists.
        let mut jobs: BTreeMap<JobId, JobSummary> = BTreeMap::new();
        let mut total = 0;
        for filter in &want.jobs {
            let page = client.jobs(filter).await?;
            total += page.total;
            jobs.extend(page.jobs.into_iter().map(|job| (job.id, job)));
        }
        picture.jobs = Some((jobs.into_values().collect(), total));
    }
    if want.nodes {
        picture.nodes = Some(client.nodes_in_use().await?);
    }
    if let Some(id) = want.job {
        picture.job = Some((client.job(id, TASKS).await?, client.why(id).await?));
    }
    Ok((picture, client.me().await?.now))
}

/// Reads the output that the screen shows, and follows it.
pub(super) async fn read_output(client: Arc<Client>, mut want: watch::Receiver<Want>, events: mpsc::Sender<Event>) {
    let mut reader: Option<((TaskId, Output), Abort)> = None;
    loop {
        let wanted = want.borrow_and_update().output;
        if reader.as_ref().map(|(shown, _)| *shown) != wanted {
            reader = wanted.map(|shown| {
                let read = follow(Arc::clone(&client), shown, events.clone());
                (shown, Abort(tokio::spawn(read)))
            });
        }
        if want.changed().await.is_err() {
            return;
        }
    }
}

/// Follows an output until the task has ended.
async fn follow(client: Arc<Client>, (task, output): (TaskId, Output), events: mpsc::Sender<Event>) {
    loop {
        let mut source = Follow::new(&client, task, output);
        let error = loop {
            let event = match source.next().await {
                Ok(Some(LogEvent::Bytes(bytes))) => Event::Output(task, output, bytes.to_vec()),
                Ok(Some(LogEvent::Attempt(_))) => Event::OutputAgain(task, output),
                Ok(None) => return,
                Err(error) => break error,
            };
            if events.send(event).await.is_err() {
                return;
            }
        };
        if !error.is_transient() {
            let _ = events.send(Event::Acted(Err(error.to_string()))).await;
            return;
        }
        sleep(AGAIN).await;
        if events.send(Event::OutputAgain(task, output)).await.is_err() {
            return;
        }
    }
}

/// Carries out an action, and reports how it went.
pub(super) async fn act(client: Arc<Client>, action: Action, events: mpsc::Sender<Event>) {
    let outcome = async {
        match &action {
            Action::Job(id, verb) => {
                let job = client.act(*id, None, *verb).await?;
                Ok(format!("job {id} is {}", job.state))
            }
            Action::Drain(node) => client.drain_node(node, None).await.map(|_| format!("node {node} is draining")),
            Action::Resume(node) => client.resume_node(node).await.map(|_| format!("node {node} is resumed")),
        }
    };
    let outcome: Result<String, ClientError> = outcome.await;
    let _ = events.send(Event::Acted(outcome.map_err(|error| error.to_string()))).await;
}

/// Ends a task of the runtime when it is dropped.
struct Abort(JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}
