//! Memory use of the head's state: bounds per waiting job, nothing per ended job, and a realistic estimate by [`memory_of`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hostler_core::head::{Changes, Event, Now, Stamped, State, SubmissionKey, memory_of, update};
use hostler_model::{Digest, JobId, JobSpec, Request, Timestamp, WallTime, Work};

/// Counts allocations with the C library's rounding.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

fn rounded(bytes: usize) -> usize {
    ((bytes + 8).next_multiple_of(16)).max(32)
}

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const JOBS: u64 = 10_000;

fn apply(state: &mut State, event: Event) {
    let now = Now { at: Timestamp(0), wall: WallTime(0) };
    update(state, &Stamped { now, event }, &mut Changes::default());
}

/// Submits `JOBS` jobs like `hostler run --detach`; `spec` gets each job's number.
fn state_with_jobs(spec: impl Fn(u64) -> JobSpec) -> State {
    state_with(JOBS, spec)
}

fn state_with(jobs: u64, spec: impl Fn(u64) -> JobSpec) -> State {
    let mut state = State::default();
    let epoch = state.next_epoch();
    apply(&mut state, Event::EpochStarted { epoch, owner: None });
    for number in 1..=jobs {
        // As received from the network: without sharing and spare capacity.
        let spec = hostler_proto::decode(&hostler_proto::encode(&spec(number))).expect("encoded jobs can be decoded");
        apply(
            &mut state,
            Event::Submitted {
                job: JobId(number),
                key: SubmissionKey(u128::from(number) << 60),
                user: "ada".to_owned(),
                uid: Some(1000),
                spec: Arc::new(spec),
                environment: Some(Digest([7; 32])),
                after: Vec::new(),
                past: Vec::new(),
            },
        );
    }
    state
}

fn command(argv: &[&str]) -> JobSpec {
    let work = Work::command(argv.iter().copied(), "/home/ada/projects/simulation");
    JobSpec { umask: Some(0o022), ..JobSpec::new(argv[0], work, Request::new(1, 1 << 30)) }
}

/// One test, since the counter covers all threads of the process.
#[test]
fn waiting_job_takes_less_than_a_kibibyte_and_an_ended_one_nothing() {
    let before = ALLOCATED.load(Ordering::Relaxed);
    let each = |state: &State| {
        assert_eq!(state.job_count() as u64, JOBS);
        (ALLOCATED.load(Ordering::Relaxed) - before) / JOBS as usize
    };
    let state = state_with_jobs(|number| command(&["./simulate", &format!("{number}")]));
    let different = each(&state);
    drop(state);
    let state = state_with_jobs(|_| command(&["./simulate", "1"]));
    let equal = each(&state);
    assert!(
        different < 1024 && equal < 600,
        "each waiting job takes {different} bytes, and {equal} if the jobs are equal"
    );

    let mut state = state;
    for number in 1..=JOBS {
        apply(&mut state, Event::Cancelled { job: JobId(number), index: None });
    }
    assert_eq!(state.job_count(), 0);
    let left = (ALLOCATED.load(Ordering::Relaxed) - before) / JOBS as usize;
    assert!(left < 4, "each ended job still takes {left} bytes");
    drop(state);

    // The estimate matches the real memory for each part that a submitter can make long.
    let (many, empty) = ("x".repeat(60), "");
    let long: [(&str, JobSpec); 6] = [
        ("long arguments", command(&["./simulate", &"x".repeat(10_000)])),
        ("many arguments", command(&[&many[..]; 200])),
        ("empty arguments", command(&[empty; 1_000])),
        ("dependencies", JobSpec { after: vec!["1".parse().expect("a dependency"); 1_000].into(), ..command(&["x"]) }),
        ("an array", JobSpec { array: Some("0-20000:2".parse().expect("an array")), ..command(&["x"]) }),
        (
            "a constraint",
            JobSpec { constraint: Some(["a"; 400].join("|").parse().expect("a constraint")), ..command(&["x"]) },
        ),
    ];
    for (what, spec) in long {
        const FEW: u64 = 100;
        let before = ALLOCATED.load(Ordering::Relaxed);
        // The jobs differ, so that they share no data.
        let state = state_with(FEW, |number| JobSpec {
            priority: i32::try_from(number).expect("a small number"),
            ..spec.clone()
        });
        let each = ((ALLOCATED.load(Ordering::Relaxed) - before) as u64) / FEW;
        drop(state);
        let counted = memory_of(&spec);
        assert!(each < counted + counted / 2 + 2048, "{what}: a job takes {each} bytes, but the estimate is {counted}");
        assert!(counted < 4 * each, "{what}: the estimate is {counted} for a job of {each} bytes");
    }
}
