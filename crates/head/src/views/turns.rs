//! Why jobs of other users go first.

use hostler_core::head::{Ahead, Job, State};

/// A sentence about the jobs of other users that go before a waiting job; `None` if there are none.
pub(super) fn line(state: &State, job: &Job) -> Option<String> {
    of(&state.ahead_of(job), &job.user)
}

fn of(ahead: &Ahead, user: &str) -> Option<String> {
    let theirs = match ahead.others {
        0 => return None,
        1 => "one of these jobs is of another user".to_owned(),
        jobs => format!("{jobs} of these jobs are of other users"),
    };
    let less = match ahead.smaller {
        0 => String::new(),
        1 => format!("; one user holds less of the cluster than {user} now"),
        users => format!("; {users} users hold less of the cluster than {user} now"),
    };
    Some(format!("Users of equal priority take turns, those who hold least first: {theirs}{less}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_how_many_jobs_and_users_go_first() {
        let of = |higher, own, others, smaller| of(&Ahead { higher, own, others, smaller }, "ada");
        assert_eq!(of(3, 4, 0, 0), None);
        let start = "Users of equal priority take turns, those who hold least first";
        assert_eq!(of(0, 0, 1, 0), Some(format!("{start}: one of these jobs is of another user.")));
        let text = "9 of these jobs are of other users; one user holds less of the cluster than ada now.";
        assert_eq!(of(0, 4, 9, 1), Some(format!("{start}: {text}")));
        let text = "9 of these jobs are of other users; 3 users hold less of the cluster than ada now.";
        assert_eq!(of(0, 4, 9, 3), Some(format!("{start}: {text}")));
    }
}
