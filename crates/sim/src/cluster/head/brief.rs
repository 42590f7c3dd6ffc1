//! Events in a few words, for the trace.

use hostler_core::head::{Event, Start};
use hostler_model::GpuId;

/// An event in a few words.
pub(super) fn brief(event: &Event) -> String {
    match event {
        Event::Submitted { job, spec, .. } => format!(
            "job {job} submitted: {} cpus, array {:?}, after {:?}, requeue {}",
            spec.request.cpus,
            spec.array.as_ref().map(ToString::to_string),
            spec.after.iter().map(ToString::to_string).collect::<Vec<_>>(),
            spec.requeue
        ),
        Event::Placed { starts } => {
            let starts: Vec<String> = starts
                .iter()
                .map(|Start { run, node, resources }| {
                    let gpus: Vec<&str> = resources.gpus.iter().map(GpuId::as_str).collect();
                    format!("{run} on {node} {} {}", resources.cpus, gpus.join("+"))
                })
                .collect();
            format!("placed {}", starts.join(", "))
        }
        Event::Ended { run, fate, result, .. } => format!("{run} ended {fate:?}, result {}", result.is_some()),
        Event::NodeSeen { node, boot, .. } => format!("{node} seen, {}", boot.0),
        other => format!("{other:?}"),
    }
}
