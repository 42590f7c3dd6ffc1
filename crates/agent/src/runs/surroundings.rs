//! What surrounds a run on its node: a quiet machine, the network of its sandboxes, its container and so on.
//!
//! Each of them begins before the program starts, and ends after it. [`Surroundings`] is the only place that begins and ends them: in
//! order, and in reverse order. It does so also if the run does not start, if its shepherd was killed, and if only a later
//! agent finds that the run has ended. [`Services`](super::Services) lists them.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::RunLaunch;
use hostler_shepherd::Launch;

use super::outcome::RunOutcome;
use crate::measure::usage::run::RunPlace;

/// One thing that surrounds runs. Each function sees all runs, and does nothing for those that do not ask for it.
pub(crate) trait Surrounding: Send + Sync {
    /// Begins before the node reports that it is ready to start the run.
    ///
    /// # Errors
    /// With a message for the user, if the run must not start.
    fn begin<'a>(&'a self, _launch: &'a RunLaunch) -> BoxFuture<'a, anyhow::Result<()>> {
        ready(Ok(())).boxed()
    }

    /// Is called when all nodes of the run are ready, directly before the program starts.
    fn start<'a>(&'a self, _launch: &'a RunLaunch, _orders: &'a Launch) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// Is called when the run has a shepherd; again in a later agent.
    fn attach(&self, _launch: &RunLaunch, _place: &RunPlace) {}

    /// Ends after the program, before the end is reported. Is called for each run, also for one that did not begin, and
    /// again if an agent stopped meanwhile.
    fn end<'a>(&'a self, _launch: &'a RunLaunch, _outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// Releases what the run's result was made of: the head has it. Blocks.
    fn release(&self, _launch: &RunLaunch) {}

    /// Is called when the agent has started: continues for running runs, and ends for all others.
    fn recover<'a>(&'a self, _going_on: &'a [Arc<RunLaunch>]) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }
}

/// All that surrounds runs, in the order in which it begins.
pub(crate) struct Surroundings(Vec<Arc<dyn Surrounding>>);

impl Surroundings {
    pub(crate) const fn new(all: Vec<Arc<dyn Surrounding>>) -> Self {
        Self(all)
    }

    /// Begins before the node reports that it is ready to start the run. [`Self::end`] must follow, also after an error.
    ///
    /// # Errors
    /// With a message for the user, if the run must not start.
    pub(crate) async fn begin(&self, launch: &RunLaunch) -> anyhow::Result<()> {
        for it in &self.0 {
            it.begin(launch).await?;
        }
        Ok(())
    }

    /// Does what must be done directly before the program starts.
    pub(crate) async fn start(&self, launch: &RunLaunch, orders: &Launch) {
        for it in &self.0 {
            it.start(launch, orders).await;
        }
    }

    /// Tells where the processes of a run are.
    pub(crate) fn attach(&self, launch: &RunLaunch, place: &RunPlace) {
        self.0.iter().for_each(|it| it.attach(launch, place));
    }

    /// Ends everything that was begun for a run.
    pub(crate) async fn end(&self, launch: &RunLaunch, outcome: &RunOutcome) {
        for it in self.0.iter().rev() {
            it.end(launch, outcome).await;
        }
    }

    /// Releases what is kept until the head has the result. Blocks.
    pub(crate) fn release(&self, launch: &RunLaunch) {
        self.0.iter().rev().for_each(|it| it.release(launch));
    }

    /// Goes on for runs of an earlier agent, and ends what it did for others.
    pub(crate) async fn recover(&self, going_on: &[Arc<RunLaunch>]) {
        for it in &self.0 {
            it.recover(going_on).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anyhow::ensure;
    use hostler_core::agent::Why;
    use hostler_model::{CpuSet, JobId, JobSpec, Request, Resources, Work};
    use hostler_proto::link::{JobLaunch, Placement};

    use super::*;
    use crate::mutex::lock;

    type Calls = Arc<Mutex<Vec<String>>>;

    /// Notes its calls. One with the name `broken` cannot begin.
    struct Noted(&'static str, Calls);

    impl Noted {
        fn note(&self, what: &str) -> BoxFuture<'_, ()> {
            lock(&self.1).push(format!("{what} {}", self.0));
            ready(()).boxed()
        }
    }

    impl Surrounding for Noted {
        fn begin<'a>(&'a self, _launch: &'a RunLaunch) -> BoxFuture<'a, anyhow::Result<()>> {
            drop(self.note("begin"));
            let check = || {
                ensure!(self.0 != "broken", "the machine refuses");
                Ok(())
            };
            ready(check()).boxed()
        }

        fn end<'a>(&'a self, _launch: &'a RunLaunch, _outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
            self.note("end")
        }

        fn recover<'a>(&'a self, _going_on: &'a [Arc<RunLaunch>]) -> BoxFuture<'a, ()> {
            self.note("recover")
        }
    }

    fn noted<const N: usize>(names: [&'static str; N]) -> (Surroundings, Calls) {
        let calls = Calls::default();
        let all = names.map(|name| Arc::new(Noted(name, Arc::clone(&calls))) as Arc<dyn Surrounding>);
        (Surroundings::new(all.into()), calls)
    }

    fn launch() -> RunLaunch {
        let spec = JobSpec::new("a", Work::command(["true"], "/"), Request::new(1, 1 << 20));
        let job = JobLaunch {
            id: JobId(7),
            user: "ada".to_owned(),
            uid: None,
            spec: Arc::new(spec),
            array_len: 1,
            output_cap_bytes: None,
        };
        let run = "7_0.1.1".parse().expect("a run");
        RunLaunch {
            job: Arc::new(job),
            placement: Placement { run, resources: Resources::new(CpuSet::first(1), 1 << 20), gang: None, files: None },
        }
    }

    #[tokio::test]
    async fn surroundings_end_in_reverse_order() {
        let (surroundings, calls) = noted(["a", "b"]);
        surroundings.begin(&launch()).await.expect("both begin");
        let outcome = RunOutcome::NotStarted { why: Why::NotStarted, message: String::new() };
        surroundings.end(&launch(), &outcome).await;
        surroundings.recover(&[]).await;
        assert_eq!(*lock(&calls), ["begin a", "begin b", "end b", "end a", "recover a", "recover b"]);
    }

    #[tokio::test]
    async fn failed_begin_begins_no_others_and_all_are_ended() {
        let (surroundings, calls) = noted(["a", "broken", "b"]);
        let error = surroundings.begin(&launch()).await.expect_err("the second one cannot begin");
        assert_eq!(error.to_string(), "the machine refuses");
        surroundings.end(&launch(), &RunOutcome::not_started(error.to_string())).await;
        assert_eq!(*lock(&calls), ["begin a", "begin broken", "end b", "end broken", "end a"]);
    }
}
