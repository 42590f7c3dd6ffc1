//! NVIDIA's management library, NVML: what it says, and how it is asked without waiting for ever.
//!
//! It hangs when a card is sick, and needs seconds to wake many cards that nobody keeps awake. A question that was not answered
//! in time is left to its thread; the next one with the same library waits for that thread instead of starting another, so a
//! driver that is slow is heard the second time, and one that hangs costs one thread, not one for each question.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What NVML says about its cards, as it is recorded in a fixture.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvmlAnswer {
    /// Why some card could not be asked, one sentence each.
    pub silent: Vec<String>,
    /// The others, in the order of their addresses.
    pub cards: Vec<NvmlCard>,
}

/// A card, as NVML sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmlCard {
    /// Its unique id.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// Memory in bytes; none of its own on some processors with a GPU.
    pub memory_bytes: Option<u64>,
    /// The address on the PCI bus, with eight digits for the domain.
    pub pci: Option<String>,
    /// The number in the name of its device.
    pub minor: Option<u32>,
    /// Its parts, when it is set up to be divided.
    pub slices: Option<Vec<NvmlSlice>>,
}

/// A part of a card (a MIG device).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmlSlice {
    /// Its unique id.
    pub uuid: String,
    /// The model of the card with the size of the part.
    pub name: String,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Which part of the memory it has.
    pub gpu_instance: u32,
    /// Which part of the processors within that.
    pub compute_instance: u32,
}

#[cfg(feature = "nvml")]
pub(super) use asking::Question;

#[cfg(not(feature = "nvml"))]
pub(super) use unasked::Question;

#[cfg(feature = "nvml")]
mod asking {
    use std::sync::{Mutex, PoisonError};

    use super::{Instant, NvmlAnswer};
    use crate::gpu::library;
    use crate::within::Asked;

    type Answer = Asked<Result<NvmlAnswer, String>>;

    /// Questions that were given up, by library.
    static UNANSWERED: Mutex<Vec<(Vec<String>, Answer)>> = Mutex::new(Vec::new());

    /// A question under way.
    pub(in crate::gpu) struct Question {
        libraries: Vec<String>,
        answer: Answer,
    }

    impl Question {
        /// Asks the first of the libraries that can be loaded, unless it still owes an answer.
        pub(in crate::gpu) fn ask(libraries: &[String]) -> Self {
            let mut unanswered = UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
            let owed = unanswered.iter().position(|(of, _)| of == libraries).map(|owed| unanswered.swap_remove(owed).1);
            drop(unanswered);
            let libraries = libraries.to_vec();
            let answer = owed.unwrap_or_else(|| {
                let libraries = libraries.clone();
                Asked::new(move || library::ask(&libraries))
            });
            Self { libraries, answer }
        }

        /// The answer, or why there is none, as a phrase whose subject is the library.
        pub(in crate::gpu) fn answer_by(self, deadline: Instant) -> Result<NvmlAnswer, String> {
            self.answer.by(deadline).unwrap_or_else(|| {
                let mut unanswered = UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
                unanswered.push((self.libraries, self.answer));
                Err("does not answer".to_owned())
            })
        }
    }
}

#[cfg(not(feature = "nvml"))]
mod unasked {
    use super::{Instant, NvmlAnswer};

    /// A question that is not asked.
    pub(in crate::gpu) struct Question;

    impl Question {
        pub(in crate::gpu) fn ask(_libraries: &[String]) -> Self {
            Self
        }

        /// Why there is no answer, as a phrase whose subject is the library.
        pub(in crate::gpu) fn answer_by(self, _deadline: Instant) -> Result<NvmlAnswer, String> {
            Err("is not asked by this program, which was built without it".to_owned())
        }
    }
}
