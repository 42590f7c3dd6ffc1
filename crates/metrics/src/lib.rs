//! What `/metrics` of the head and of an agent have in common: content negotiation, the two text formats, figures about
//! the process, and the buckets of histograms.
//!
//! Each daemon keeps a [`Registry`] with its counters and histograms. For each scrape, it fills another registry with
//! gauges that it reads from its state, and encodes both with [`Format::encode`].

mod process;
mod text;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
pub use prometheus_client::metrics::counter::{ConstCounter, Counter};
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
pub use prometheus_client::metrics::histogram::Histogram;
pub use prometheus_client::metrics::info::Info;
pub use prometheus_client::registry::Registry;

pub use process::register_process;

/// Path at which the daemons serve their metrics.
pub const PATH: &str = "/metrics";

/// A gauge of a floating-point number.
pub type Figure = Gauge<f64, AtomicU64>;

/// Histograms with labels; all have the same buckets.
pub type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Upper bounds of buckets for work inside a daemon, in seconds: 50 microseconds to 10 seconds.
const WORK_SECONDS: [f64; 16] =
    [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Upper bounds of buckets for work with users' data, in seconds: 10 milliseconds to an hour.
const TASK_SECONDS: [f64; 13] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// Upper bounds of buckets for waiting in the queue, in seconds: 10 milliseconds to a week.
const WAIT_SECONDS: [f64; 13] =
    [0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0];

/// A histogram of times that a daemon needs for its own work.
#[must_use]
pub fn work_seconds() -> Histogram {
    Histogram::new(WORK_SECONDS)
}

/// A histogram of times that work with users' data takes.
#[must_use]
pub fn task_seconds() -> Histogram {
    Histogram::new(TASK_SECONDS)
}

/// A histogram of times that tasks wait in the queue.
#[must_use]
pub fn wait_seconds() -> Histogram {
    Histogram::new(WAIT_SECONDS)
}

/// A registry whose metrics begin with `hostler_`.
#[must_use]
pub fn registry() -> Registry {
    Registry::with_prefix("hostler")
}

/// Registers a gauge with this value.
pub fn set(registry: &mut Registry, name: &str, help: &str, value: f64) {
    registry.register(name, help, ConstGauge::new(value));
}

/// Registers a counter that currently has this value. The name must not end in `_total`.
pub fn count(registry: &mut Registry, name: &str, help: &str, value: f64) {
    registry.register(name, help, ConstCounter::new(value));
}

/// Registers gauges with labels. Later values of equal labels replace earlier ones.
pub fn set_all<L>(registry: &mut Registry, name: &str, help: &str, values: impl IntoIterator<Item = (L, f64)>)
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + Send + Sync + std::fmt::Debug + 'static,
{
    let family = Family::<L, Figure>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Text,
}

impl Format {
    /// Chooses the format by the header `Accept`. A client gets OpenMetrics only if it asks for it.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let mut quality = [0.0_f32; 2];
        for part in accept.unwrap_or_default().split(',') {
            let mut words = part.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default();
            let (mut version, mut weight) = (None, 1.0);
            for (key, value) in words.filter_map(|word| word.split_once('=')) {
                match key.trim().to_ascii_lowercase().as_str() {
                    "version" => version = Some(value.trim().trim_matches('"')),
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    _ => {}
                }
            }
            let known = match kind.to_ascii_lowercase().as_str() {
                "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => 0,
                "text/plain" | "text/*" | "*/*" => 1,
                _ => continue,
            };
            quality[known] = quality[known].max(weight);
        }
        if quality[0] > 0.0 && quality[0] >= quality[1] { Self::OpenMetrics } else { Self::Text }
    }

    /// The value of the header `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes all metrics of these registries.
    #[must_use]
    pub fn encode(self, registries: &[&Registry]) -> String {
        let mut text = String::new();
        for registry in registries {
            encode_registry(&mut text, registry).expect("writing to a string cannot fail");
        }
        match self {
            Self::OpenMetrics => text + "# EOF\n",
            Self::Text => text::without_openmetrics(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_needs_an_explicit_request() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        for open in [prometheus_2, prometheus_3, "application/openmetrics-text", "APPLICATION/openmetrics-text; q=0.3"]
        {
            assert_eq!(Format::accepted(Some(open)), Format::OpenMetrics, "{open}");
        }
        for text in [
            None,
            Some("*/*"),
            Some(""),
            Some("text/plain"),
            Some("application/openmetrics-text;version=2.0.0"),
            Some("application/openmetrics-text;q=0"),
            Some("text/plain, application/openmetrics-text;q=0.5"),
            Some(";;,=,q"),
        ] {
            assert_eq!(Format::accepted(text), Format::Text, "{text:?}");
        }
    }

    #[test]
    fn both_formats_end_and_name_counters_correctly() {
        let mut registry = registry();
        count(&mut registry, "things", "Things", 3.0);
        set(&mut registry, "heat_celsius", "Heat", 20.5);
        registry.register("build", "Release", Info::new([("version", "1")]));
        set_all(&mut registry, "nodes", "Nodes", [([("state", "a\"b\\c")], 1.0)]);
        let open = Format::OpenMetrics.encode(&[&registry]);
        assert!(
            open.ends_with("# EOF\n") && open.contains("# TYPE hostler_things counter\nhostler_things_total 3.0\n")
        );
        assert_eq!(
            Format::Text.encode(&[&registry]),
            "# HELP hostler_things_total Things.\n# TYPE hostler_things_total counter\nhostler_things_total 3.0\n\
             # HELP hostler_heat_celsius Heat.\n# TYPE hostler_heat_celsius gauge\nhostler_heat_celsius 20.5\n\
             # HELP hostler_build_info Release.\n# TYPE hostler_build_info gauge\nhostler_build_info{version=\"1\"} 1\n\
             # HELP hostler_nodes Nodes.\n# TYPE hostler_nodes gauge\nhostler_nodes{state=\"a\\\"b\\\\c\"} 1.0\n"
        );
    }
}
