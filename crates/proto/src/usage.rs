//! Figures over time: what agents report, and what the API returns.

use std::collections::BTreeMap;

use hostler_model::{Figures, Metric, RunId, Unit, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of spans in a [`UsageReport`].
pub const MAX_SPANS: usize = 2048;

/// Request body of `POST /agent/samples`: what an agent measured in the last minutes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    /// Figures of the node and its runs.
    #[schema(max_items = 2048)]
    pub spans: Vec<UsageSpan>,
}

/// Figures of the node or of one run, over at most a minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageSpan {
    /// The run; absent for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Time from the middle of the span to the sending of the report, in milliseconds.
    pub age_ms: u64,
    /// What was measured.
    #[schema(value_type = BTreeMap<String, hostler_model::Bucket>)]
    pub figures: Figures,
}

/// Answer of `GET /nodes/{name}/usage` and `GET /jobs/{id}/tasks/{index}/usage`: figures over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Start of the first bucket, in milliseconds since the Unix epoch.
    pub from: WallTime,
    /// Length of each bucket, in milliseconds.
    pub step_ms: u64,
    /// Number of buckets.
    pub len: u32,
    /// The metrics that were measured. Each list in them has one entry per bucket.
    pub series: Vec<SeriesView>,
}

/// One metric, in [`UsageView`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesView {
    /// Name of the metric.
    pub name: Metric,
    /// Unit of the values.
    pub unit: Unit,
    /// How much the task may use, or how much the node offers to jobs; absent if that is unknown or unlimited.
    pub limit: Option<f64>,
    /// Smallest value in each bucket; null where nothing was measured.
    pub min: Vec<Option<f32>>,
    /// Mean value in each bucket; null where nothing was measured.
    pub mean: Vec<Option<f32>>,
    /// Largest value in each bucket; null where nothing was measured.
    pub max: Vec<Option<f32>>,
}

/// One measurement, as a server-sent event of `GET /nodes/{name}/usage/live` and
/// `GET /jobs/{id}/tasks/{index}/usage/live`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reading {
    /// Time of the measurement, in milliseconds since the Unix epoch.
    pub at: WallTime,
    /// The values by metric. Metrics that could not be measured are absent.
    #[schema(value_type = BTreeMap<String, f32>)]
    pub values: BTreeMap<Metric, f32>,
}
