//! Users of equal priority take turns: the one who holds the smallest share of the cluster goes first.

use std::collections::{BTreeMap, BTreeSet};

use hostler_core::head::{Ahead, Command, Event, NewUser, UsersCommand, explain};
use hostler_model::{CpuSet, JobId, JobSpec, JobState, Quota, Request, Resources, Role, RunId, UserName};
use proptest::prelude::*;

use crate::harness::{Head, ended, spec, user};

const GIB: u64 = 1 << 30;

/// An array of `tasks` tasks, each with this many CPUs and GiB.
fn array(tasks: u32, cpus: u32, gib: u64) -> JobSpec {
    let request = Request::new(cpus, gib * GIB);
    let array = (tasks > 1).then(|| format!("0-{}", tasks - 1).parse().expect("an array"));
    JobSpec { request, array, ..spec() }
}

fn submit(head: &mut Head, who: &str, spec: JobSpec) -> JobId {
    head.submit_as(user(who), spec).expect("accepted")
}

/// Connects the only node.
fn connect(head: &mut Head, cpus: u32) {
    let resources = Resources::new(CpuSet::first(cpus), u64::from(4 * cpus) * GIB);
    head.hello_with("n1", 1, "boot", vec![], resources);
}

fn end(head: &mut Head, run: RunId) {
    head.report(1, run, ended(0)).expect("accepted");
}

/// The runs on the node, by user.
fn runs(head: &Head) -> BTreeMap<&str, Vec<RunId>> {
    let mut runs: BTreeMap<&str, Vec<RunId>> = BTreeMap::new();
    for (job, active, _) in head.state.placed() {
        runs.entry(&job.user).or_default().push(active.run);
    }
    runs
}

fn counts(head: &Head) -> Vec<usize> {
    runs(head).values().map(Vec::len).collect()
}

#[test]
fn one_pass_divides_free_slots_evenly() {
    let mut head = Head::new();
    let arrays = ["ada", "ben", "cyd"].map(|who| submit(&mut head, who, array(100, 1, 1)));
    // Tasks of twice the size: half as many.
    let large = submit(&mut head, "dan", array(100, 2, 1));
    connect(&mut head, 24);
    assert_eq!(counts(&head), [6, 6, 6, 3]);
    assert_eq!(head.job(arrays[0]).pending.to_string(), "6-99", "tasks start in the order of their indices");

    // A newcomer, and a user whose tasks end, come before the others.
    let new = submit(&mut head, "eve", array(9, 1, 1));
    let first = runs(&head)["ada"][0];
    end(&mut head, first);
    assert_eq!(counts(&head), [5, 6, 6, 3, 1]);
    // A higher priority is stronger than a turn.
    head.state.settings.user_priority = 5;
    let urgent = submit(&mut head, "ben", JobSpec { priority: 5, ..array(2, 1, 1) });
    let first = runs(&head)["ben"][0];
    end(&mut head, first);
    assert_eq!((head.job(urgent).active.len(), head.job(new).active.len()), (1, 1));
    assert_eq!(head.job(large).active.len(), 3);
}

#[test]
fn memory_counts_as_well_as_cpus() {
    let mut head = Head::new();
    submit(&mut head, "ada", array(100, 1, 8));
    submit(&mut head, "ben", array(100, 2, 1));
    // 12 CPUs and 48 GiB: a task of ada holds a sixth of the memory, and one of ben a sixth of the CPUs.
    connect(&mut head, 12);
    assert_eq!(counts(&head), [4, 4]);
}

#[test]
fn users_who_hold_nothing_take_turns_however_old_their_arrays_are() {
    let mut head = Head::new();
    let jobs = ["ada", "ben", "cyd", "dan", "eve"].map(|who| submit(&mut head, who, array(1000, 1, 1)));
    connect(&mut head, 2);
    for round in 0..100 {
        // Both tasks end, in either order.
        let mut all: Vec<RunId> = runs(&head).into_values().flatten().collect();
        if round % 3 == 0 {
            all.reverse();
        }
        all.into_iter().for_each(|run| end(&mut head, run));
    }
    let started = jobs.map(|job| head.job(job).len() - head.job(job).pending.len());
    let (most, least) = (started.iter().max(), started.iter().min());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{started:?}");
    // A job submitted last comes before the next tasks of all these arrays.
    let late = submit(&mut head, "fay", array(1, 1, 1));
    let first = runs(&head).into_values().next().expect("something runs")[0];
    end(&mut head, first);
    assert_eq!(head.state_of(late), JobState::Starting);
}

const HOUR_MS: u64 = 60 * 60 * 1000;

/// Ends a task of another user than ada.
fn end_another(head: &mut Head) {
    let mut theirs = runs(head);
    theirs.remove("ada");
    let next = theirs.into_values().next().expect("others run")[0];
    end(head, next);
}

#[test]
fn user_who_holds_something_waits_no_longer_than_an_hour_and_one_end() {
    let mut head = Head::new();
    connect(&mut head, 8);
    submit(&mut head, "ada", spec());
    submit(&mut head, "ben", array(1000, 7, 1));
    let next = submit(&mut head, "ada", array(2, 7, 1));
    // Each time, the task of ben has just ended, so he holds less than ada.
    (0..10).for_each(|_| end_another(&mut head));
    assert_eq!(head.job(next).active.len(), 0);
    head.now.at = head.now.at.plus_ms(HOUR_MS);
    end_another(&mut head);
    assert_eq!(head.job(next).active.len(), 1);
    // For the next task, she waits as long again.
    let first = head.job(next).active.values().next().expect("placed").run;
    end(&mut head, first);
    (0..10).for_each(|_| end_another(&mut head));
    assert_eq!(head.job(next).active.len(), 0);
}

#[test]
fn wide_job_keeps_its_nodes_after_an_hour() {
    let mut head = Head::new();
    connect(&mut head, 8);
    // The owner of the wide job holds a CPU all the time, so the others hold less than she while her nodes are kept free.
    submit(&mut head, "ada", spec());
    submit(&mut head, "ben", array(1000, 1, 1));
    submit(&mut head, "cyd", array(1000, 1, 1));
    let wide = submit(&mut head, "ada", array(2, 7, 1));
    submit(&mut head, "ada", array(1000, 1, 1));
    head.now.at = head.now.at.plus_ms(HOUR_MS);
    // After the first end, it is the turn of cyd, of whom nothing has run.
    (0..7).for_each(|_| end_another(&mut head));
    assert!(head.job(wide).active.is_empty());
    end_another(&mut head);
    assert_eq!(counts(&head), [2], "the wide job and the first one");
    // Its next task comes when it is her turn again: the others hold nothing, and start a task each before that.
    let first = head.job(wide).active.values().next().expect("placed").run;
    end(&mut head, first);
    let theirs: Vec<usize> = ["ben", "cyd"].map(|who| runs(&head)[who].len()).to_vec();
    assert!(theirs.iter().all(|count| *count > 0), "{theirs:?}");
}

#[test]
fn wide_job_of_a_user_without_other_work_waits_for_one_turn_of_each() {
    let mut head = Head::new();
    connect(&mut head, 8);
    let small: Vec<String> = (0..6).map(|n| format!("u{n}")).collect();
    for who in &small {
        submit(&mut head, who, array(1000, 1, 1));
    }
    let wide = submit(&mut head, "ada", array(1, 8, 1));
    for ends in 0.. {
        let Some(next) = runs(&head).into_values().flatten().next().filter(|_| head.job(wide).active.is_empty()) else {
            break;
        };
        assert!(ends < 20, "the wide job waits although {ends} tasks have ended");
        end(&mut head, next);
    }
}

#[test]
fn position_counts_turns_and_why_says_so() {
    let mut head = Head::new();
    connect(&mut head, 2);
    let [_, _, first, second] = [1, 2, 3, 4].map(|_| submit(&mut head, "ada", spec()));
    let ben = [1, 2, 3].map(|_| submit(&mut head, "ben", spec()));
    let cyd = submit(&mut head, "cyd", spec());
    let order: Vec<JobId> = head.state.queue_in(None).map(|job| job.id).collect();
    // Ada holds both CPUs. Each round has one job of each user.
    assert_eq!(order, [ben[0], cyd, first, ben[1], second, ben[2]]);
    let ahead = |job: JobId| head.state.ahead_of(head.job(job));
    assert_eq!(ahead(ben[0]), Ahead::default());
    assert_eq!(ahead(first), Ahead { others: 2, smaller: 2, ..Ahead::default() });
    assert_eq!(ahead(second), Ahead { own: 1, others: 3, smaller: 2, ..Ahead::default() });
    assert_eq!(ahead(ben[2]), Ahead { own: 2, others: 3, ..Ahead::default() });
    let why = |job: JobId| explain(&head.state, head.job(job)).expect("it waits").to_string();
    assert_eq!(why(second), "4 jobs are ahead in the queue");
    head.reload();
    assert_eq!(head.state.ahead_of(head.job(second)).all(), 4, "a restarted head knows what users hold");
}

#[test]
fn quota_is_kept_for_the_tasks_of_an_array_that_do_not_fit() {
    let mut head = Head::new();
    connect(&mut head, 8);
    let ada = NewUser {
        name: "ada".parse().expect("a name"),
        uid: None,
        role: Role::User,
        groups: BTreeSet::new(),
        keys: Vec::new(),
    };
    let quota = Quota { jobs: Some(2), ..Quota::default() };
    let set = UsersCommand::SetQuota(ada.name.clone(), quota);
    for command in [UsersCommand::Import(vec![ada]), set] {
        head.command(&Command::Users(command)).expect("accepted");
    }
    submit(&mut head, "ben", array(6, 1, 1));
    let large = submit(&mut head, "ada", array(5, 4, 1));
    let small = submit(&mut head, "ada", array(5, 1, 1));
    let other = submit(&mut head, "ben", array(1, 2, 1));
    assert_eq!((head.job(large).active.len(), head.job(small).active.len()), (0, 0));
    assert_eq!(head.job(other).active.len(), 0, "ada's job is first and has a reservation");
}

#[test]
fn array_that_does_not_fit_leaves_the_quota_of_the_group_to_others() {
    let mut head = Head::new();
    connect(&mut head, 8);
    let group: UserName = "lab".parse().expect("a name");
    let of_lab = ["ada", "ben"].map(|who| NewUser {
        name: who.parse().expect("a name"),
        uid: None,
        role: Role::User,
        groups: BTreeSet::from([group.clone()]),
        keys: Vec::new(),
    });
    let quota = Quota { jobs: Some(4), ..Quota::default() };
    for command in [UsersCommand::Import(of_lab.to_vec()), UsersCommand::SetGroupQuota(group, quota)] {
        head.command(&Command::Users(command)).expect("accepted");
    }
    let ben = submit(&mut head, "ben", spec());
    let large = submit(&mut head, "ada", array(100, 8, 1));
    assert_eq!((head.job(ben).active.len(), head.job(large).active.len()), (1, 0));
    // The small job waits for the large one's reservation, not for the group's quota.
    let small = submit(&mut head, "ben", array(50, 1, 1));
    assert_eq!(head.job(small).active.len(), 0, "the large job is first and has a reservation");
    let why = explain(&head.state, head.job(small)).expect("it waits").to_string();
    assert_eq!(why, "starting this job now could delay job 2, which is first in the queue");
}

/// As in the class of `cargo xtask classroom`: students with long arrays get no more than those with one job at a time.
#[test]
fn students_with_arrays_finish_as_much_as_students_with_single_jobs() {
    const STUDENTS: usize = 60;
    let mut head = Head::new();
    let is_greedy = |student: usize| student.is_multiple_of(20);
    let work = |head: &mut Head, student: usize| {
        let tasks = if is_greedy(student) { 20 } else { 1 };
        submit(head, &format!("s{student}"), array(tasks, 1, 1));
    };
    (0..STUDENTS).for_each(|student| work(&mut head, student));
    connect(&mut head, 8);
    let mut finished = [0_u32; STUDENTS];
    // Tasks take equally long, so they end in the order of their starts.
    let mut ended = 0;
    while ended < 40 * 8 {
        let from = head.log().iter().filter_map(|it| match &it.event {
            Event::Placed { starts } => Some(starts),
            _ => None,
        });
        let run = from.flatten().nth(ended).expect("all slots are busy").run;
        let student: usize = head.job(run.task.job).user[1..].parse().expect("a number");
        end(&mut head, run);
        finished[student] += 1;
        ended += 1;
        if head.job(run.task.job).is_ended() {
            work(&mut head, student);
        }
    }
    let (least, most) = (finished.iter().min(), finished.iter().max());
    assert!(least.zip(most).is_some_and(|(least, most)| most - least <= 1), "{finished:?}");
}

/// What happens in the property test.
#[derive(Debug, Clone)]
enum Step {
    Submit { who: u8, tasks: u32, gib: u64 },
    End { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let submit = (0..4u8, 1..12u32, 1..=4u64).prop_map(|(who, tasks, gib)| Step::Submit { who, tasks, gib });
    let end = any::<usize>().prop_map(|which| Step::End { which });
    proptest::collection::vec(prop_oneof![1 => submit, 3 => end], 1..60)
}

fn run_step(head: &mut Head, step: &Step) {
    match step {
        Step::Submit { who, tasks, gib } => {
            submit(head, &format!("u{who}"), array(*tasks, 1, *gib));
        }
        Step::End { which } => {
            let all: Vec<RunId> = runs(head).into_values().flatten().collect();
            if !all.is_empty() {
                end(head, all[which % all.len()]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Every start is of a user who holds no more than any other user with work that would fit as well.
    #[test]
    fn nobody_who_holds_less_is_passed_over(steps in steps()) {
        let mut head = Head::new();
        connect(&mut head, 8);
        for step in &steps {
            let from = head.log().len();
            run_step(&mut head, step);
            let starts: Vec<_> = head.log()[from..].iter().filter_map(|it| match &it.event {
                Event::Placed { starts } => Some(starts),
                _ => None,
            }).flatten().cloned().collect();
            // What is held, in units of which the node has 32: a CPU is 4, a GiB is 1, and the larger sum counts.
            let mut before: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for (job, ..) in head.state.placed() {
                let held = before.entry(job.user.clone()).or_default();
                *held = (held.0 + 4, held.1 + job.spec.request.memory_bytes / GIB);
            }
            // Takes the starts back, the last first, so that `before` is what was held when each start was decided.
            for (at, start) in starts.iter().enumerate().rev() {
                let job = head.state.job(start.run.task.job).expect("live");
                let theirs = before.get_mut(&job.user).expect("it holds the start");
                *theirs = (theirs.0 - 4, theirs.1 - job.spec.request.memory_bytes / GIB);
                let share = |who: &str| before.get(who).map_or(0, |(cpus, gib)| *cpus.max(gib));
                let later = starts[at + 1..].iter().map(|later| later.run.task.job);
                let waits = head.state.queue().map(|job| job.id).chain(later);
                for other in waits.filter_map(|id| head.state.job(id)).filter(|other| other.user != job.user) {
                    prop_assert!(
                        share(&job.user) <= share(&other.user),
                        "{} started with {}, and {} with {} waits", job.user, share(&job.user), other.user, share(&other.user)
                    );
                }
            }
        }
    }

    /// With equal jobs and a backlog of each user, no two users ever differ by more than one task.
    #[test]
    fn equal_backlogs_get_equal_shares(users in 2..6usize, cpus in 1..20u32, ends in proptest::collection::vec(any::<usize>(), 0..60)) {
        let mut head = Head::new();
        for who in 0..users {
            submit(&mut head, &format!("u{who}"), array(1000, 1, 1));
        }
        connect(&mut head, cpus);
        for which in ends {
            run_step(&mut head, &Step::End { which });
            let mut held = counts(&head);
            held.resize(users, 0);
            let (most, least) = (held.iter().max(), held.iter().min());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{held:?}");
            prop_assert_eq!(held.iter().sum::<usize>(), cpus as usize);
        }
    }
}
