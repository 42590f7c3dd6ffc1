//! GPUs, and the device files that a job needs to use one.
//!
//! Drivers hang when a card is faulty. Calls to drivers therefore run on threads of their own, and GPUs whose driver
//! does not respond in time are not offered. Displays and the graphics of Intel's processors do not count as GPUs. The
//! graphics of AMD's processors count if the compute driver lists them.

pub(crate) mod answer;
pub(crate) mod card;
mod drm;
#[cfg(feature = "nvml")]
mod library;
mod nvidia;
mod nvml;

use std::collections::BTreeSet;
use std::time::Instant;

use self::card::{Found, Gpu, note};
use crate::within::TimedCall;
use crate::{Note, Source};

/// A running detection of the GPUs of all vendors.
pub(crate) struct Search {
    source: Source,
    nvidia: Option<nvidia::Search>,
    others: Option<TimedCall<Found>>,
    deadline: Instant,
}

impl Search {
    /// Starts the detection. On machines without GPUs, the detection takes only a few system calls.
    pub(crate) fn begin(source: &Source, deadline: Instant) -> Self {
        let nvidia = nvidia::Search::begin(source);
        let others = drm::may_have_gpus(source).then(|| {
            let source = source.clone();
            TimedCall::new(move || drm::find(&source))
        });
        Self { source: source.clone(), nvidia, others, deadline }
    }

    /// Returns the GPUs found before the deadline. If NVML fails, the fallback to `/proc` may need slightly longer.
    pub(crate) fn end(self, notes: &mut Vec<Note>) -> Vec<Gpu> {
        let nvidia = self.nvidia.map(|search| search.end(self.deadline)).unwrap_or_default();
        let others = self.others.map(|asked| {
            let silent = "a graphics driver does not respond; GPUs of AMD and Intel are not offered";
            asked.wait_until(self.deadline).unwrap_or_else(|| (Vec::new(), vec![note(silent)]))
        });
        let (others, about_others) = others.unwrap_or_default();
        notes.extend(nvidia.1.into_iter().chain(about_others));
        let mut gpus = numbered(nvidia.0.into_iter().chain(others).collect());
        drm::add_drawing_devices(&self.source, &mut gpus);
        gpus
    }
}

/// Sets the indices, and makes duplicate ids unique.
fn numbered(mut gpus: Vec<Gpu>) -> Vec<Gpu> {
    let mut seen = BTreeSet::new();
    for (index, gpu) in gpus.iter_mut().enumerate() {
        gpu.index = index as u32;
        if !seen.insert(gpu.uuid.clone()) {
            gpu.uuid = format!("{}-{index}", gpu.uuid);
            seen.insert(gpu.uuid.clone());
        }
    }
    gpus
}
