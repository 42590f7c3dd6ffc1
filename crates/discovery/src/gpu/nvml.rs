//! Queries of NVIDIA's management library (NVML), with a timeout.
//!
//! NVML hangs when a card is faulty, and needs seconds to wake many cards. A query that exceeds its timeout stays on
//! its thread. The next query of the same library waits for that thread and starts no other. A slow driver thus
//! responds to the second query, and a hanging driver blocks only one thread.

#[cfg(feature = "nvml")]
pub(super) use asking::Question;

#[cfg(not(feature = "nvml"))]
pub(super) use unasked::Question;

#[cfg(feature = "nvml")]
mod asking {
    use std::sync::{Mutex, PoisonError};
    use std::time::Instant;

    use crate::gpu::answer::NvmlAnswer;
    use crate::gpu::library;
    use crate::within::TimedCall;

    type Answer = TimedCall<Result<NvmlAnswer, String>>;

    /// Unfinished queries that exceeded their timeout, by library.
    static UNANSWERED: Mutex<Vec<(Vec<String>, Answer)>> = Mutex::new(Vec::new());

    /// A running query of the library.
    pub(in crate::gpu) struct Question {
        libraries: Vec<String>,
        answer: Answer,
    }

    impl Question {
        /// Queries the first library that can be loaded. If an earlier query of the same library is unfinished, waits
        /// for that query instead.
        pub(in crate::gpu) fn ask(libraries: &[String]) -> Self {
            let mut unanswered = UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
            let owed = unanswered.iter().position(|(of, _)| of == libraries).map(|owed| unanswered.swap_remove(owed).1);
            drop(unanswered);
            let libraries = libraries.to_vec();
            let answer = owed.unwrap_or_else(|| {
                let libraries = libraries.clone();
                TimedCall::new(move || library::ask(&libraries))
            });
            Self { libraries, answer }
        }

        /// The response. Without a response, the reason as a phrase whose subject is the library.
        pub(in crate::gpu) fn answer_by(self, deadline: Instant) -> Result<NvmlAnswer, String> {
            self.answer.wait_until(deadline).unwrap_or_else(|| {
                let mut unanswered = UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
                unanswered.push((self.libraries, self.answer));
                Err("does not respond".to_owned())
            })
        }
    }
}

#[cfg(not(feature = "nvml"))]
mod unasked {
    use std::time::Instant;

    use crate::gpu::answer::NvmlAnswer;

    /// Replaces the query in builds without NVML.
    pub(in crate::gpu) struct Question;

    impl Question {
        pub(in crate::gpu) fn ask(_libraries: &[String]) -> Self {
            Self
        }

        /// Why there is no response, as a phrase whose subject is the library.
        pub(in crate::gpu) fn answer_by(self, _deadline: Instant) -> Result<NvmlAnswer, String> {
            Err("is not supported by this build of the program".to_owned())
        }
    }
}
