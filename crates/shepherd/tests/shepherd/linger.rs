//! Tests of shepherds that take several runs in sequence.

use std::time::Duration;

use hostler_shepherd::journal::JournalContent;
use hostler_shepherd::{Cause, ControlError, Event, Launch, Status};

use crate::common::{Leaves, directory, drop_and_end, ends, finished, is_alive, pid_in, script, start_run, stdout};

fn lingering(mut launch: Launch) -> Launch {
    launch.options.linger = Some(Duration::from_secs(60));
    launch
}

#[test]
fn runs_can_share_a_shepherd_and_a_leaf() {
    let leaves = Leaves::new();
    let task = |dir: &std::path::Path, n: i32| {
        let mut launch = lingering(script(dir, &format!("echo {n}; exit {n}")));
        launch.options.leaf = Some(leaves.leaf("array"));
        launch.options.identity = format!("task {n}");
        launch
    };
    let first = directory();
    let mut shepherd = start_run(&task(first.path(), 0));
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 0 });
    for n in 1..40 {
        let dir = directory();
        shepherd.launch_next(&task(dir.path(), n)).expect("the shepherd waits for another run");
        let Event::Started(started) = shepherd.next_event().expect("the shepherd waits for another run") else {
            panic!("started")
        };
        assert_eq!(started.shepherd, shepherd.pid());
        let record = finished(&mut shepherd);
        assert_eq!((record.status.clone(), &*record.identity), (Status::Exited { code: n }, &*format!("task {n}")));
        assert_eq!(JournalContent::read(dir.path()).expect("readable").ended, Some(Box::new(record)));
        assert_eq!(stdout(dir.path()), format!("{n}\n"));
    }
    assert!(leaves.leaf("array").path.exists(), "the leaf exists while the shepherd waits");
    let refused = shepherd.status().expect_err("no run is in progress");
    assert!(matches!(&refused, ControlError::Refused(reason) if reason == "no run is in progress"), "{refused}");
    drop_and_end(shepherd);
    assert!(!leaves.leaf("array").path.exists());
}

/// Also covers that an idle shepherd ends with its agent.
#[test]
fn runs_of_a_shared_shepherd_do_not_affect_each_other() {
    let (first, second) = (directory(), directory());
    let text = "sleep 600 & echo $! > left; exit 0";
    let mut shepherd = start_run(&lingering(script(first.path(), text)));
    let record = finished(&mut shepherd);
    assert_eq!(record.leftovers, 1);
    shepherd.launch_next(&lingering(script(second.path(), "true"))).expect("the shepherd waits for another run");
    let record = finished(&mut shepherd);
    assert_eq!((record.leftovers, record.cause, record.user_time < Duration::from_millis(500)), (0, None, true));
    assert!(!is_alive(pid_in(first.path(), "left")));
    drop_and_end(shepherd);
}

#[test]
fn later_run_can_be_cancelled_and_has_its_own_cause() {
    let (first, second, third) = (directory(), directory(), directory());
    let mut shepherd = start_run(&lingering(script(first.path(), "exit 0")));
    finished(&mut shepherd);
    shepherd
        .launch_next(&lingering(script(second.path(), "exec sleep 600")))
        .expect("the shepherd waits for another run");
    assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    assert_eq!(finished(&mut shepherd).cause, Some(Cause::Cancelled));
    shepherd.launch_next(&lingering(script(third.path(), "exit 1"))).expect("the shepherd waits for another run");
    let record = finished(&mut shepherd);
    assert_eq!((record.status, record.cause), (Status::Exited { code: 1 }, None));
    drop_and_end(shepherd);
}

#[test]
fn busy_shepherd_refuses_another_run() {
    let (first, second) = (directory(), directory());
    let mut shepherd = start_run(&lingering(script(first.path(), "exec sleep 600")));
    shepherd.launch_next(&lingering(script(second.path(), "true"))).expect("the shepherd runs");
    assert_eq!(shepherd.next_event().expect("the shepherd runs"), Event::Refused("another run is in progress".into()));
    assert!(!second.path().join("journal").exists());
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finished(&mut shepherd);
    drop_and_end(shepherd);
}

#[test]
fn lingering_shepherd_exits_after_its_timeout() {
    let dir = directory();
    let mut launch = script(dir.path(), "exit 0");
    launch.options.linger = Some(Duration::from_millis(50));
    let mut shepherd = start_run(&launch);
    finished(&mut shepherd);
    assert!(ends(&shepherd));
}
