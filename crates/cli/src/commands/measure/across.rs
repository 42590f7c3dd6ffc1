//! What the measurements on several nodes say about each other. Pure.

use std::collections::BTreeMap;

use hostler_model::plural;
use hostler_proto::certificate::MeasuredMachine;
use serde_json::{Value, json};

use super::report::{Measurement, Unit, line};
use super::statistics::{Interval, Summary, median_within, summarise};
use crate::output::table::{Align, Table};

/// Probability that the interval of any node does not contain its true median.
const ERROR: f64 = 0.05;

/// One command, measured on several nodes.
pub(super) struct Across<'a> {
    measured: Vec<Measurement<'a>>,
    /// Measurements that ended before their last run.
    broken: &'a [Measurement<'a>],
    /// Difference of two nodes up to which their results are comparable, e.g. 0.02.
    tolerance: f64,
}

/// The nodes with the same processors.
struct Model {
    /// Absent if the nodes do not tell it.
    name: Option<String>,
    /// Positions in [`Across::measured`].
    nodes: Vec<usize>,
    found: Found,
    /// What else differs between the nodes' machines: the property and its values.
    differs: Vec<(&'static str, Vec<String>)>,
}

/// A property of a machine, in words.
type Property = fn(&MeasuredMachine) -> Option<String>;

/// How nodes with the same processors compare.
#[derive(Debug, PartialEq)]
enum Found {
    /// There is only one node, or too few runs, or the model is unknown.
    Nothing(&'static str),
    /// With a probability of 95 %, no two nodes differ by more than this.
    Comparable(f64),
    /// With a probability of 95 %, the node at the first position takes this many times as long as the one at the second.
    Different(usize, usize, Interval),
    /// The difference may be up to this, and it may also be within the tolerance.
    Undecided(f64),
}

impl<'a> Across<'a> {
    pub(super) fn new(mut measured: Vec<Measurement<'a>>, broken: &'a [Measurement<'a>], tolerance: f64) -> Self {
        measured.sort_by(|one, other| one.node.cmp(&other.node));
        Self { measured, broken, tolerance }
    }

    fn times(&self, node: usize) -> Vec<f64> {
        self.measured[node].times(0)
    }

    fn machine(&self, node: usize) -> Option<&MeasuredMachine> {
        self.measured[node].certificate.as_ref().map(|it| &it.machine)
    }

    fn models(&self) -> Vec<Model> {
        let mut models: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
        for node in 0..self.measured.len() {
            models.entry(self.machine(node).and_then(|it| it.cpu_model.clone())).or_default().push(node);
        }
        let model = |(name, nodes): (Option<String>, Vec<usize>)| {
            let found = if name.is_some() { self.compared(&nodes) } else { Found::Nothing("unknown processors") };
            let differs = self.differences(&nodes);
            Model { name, nodes, found, differs }
        };
        models.into_iter().map(model).collect()
    }

    /// Compares the nodes by intervals of their medians. All intervals together are wrong with a probability of at most
    /// [`ERROR`].
    fn compared(&self, nodes: &[usize]) -> Found {
        if nodes.len() < 2 {
            return Found::Nothing("no other node with these processors was measured");
        }
        let error = ERROR / nodes.len() as f64;
        let medians = nodes.iter().map(|&node| Some((node, median_within(&self.times(node), error)?)));
        let Some(medians) = medians.collect::<Option<Vec<_>>>() else {
            return Found::Nothing("too few runs to compare nodes");
        };
        let high = medians.iter().map(|(_, it)| it.high).fold(0.0, f64::max);
        let low = medians.iter().map(|(_, it)| it.low).fold(f64::INFINITY, f64::min);
        let bound = high / low - 1.0;
        if bound <= self.tolerance {
            return Found::Comparable(bound);
        }
        let slow = medians.iter().max_by(|(_, one), (_, other)| one.low.total_cmp(&other.low));
        let fast = medians.iter().min_by(|(_, one), (_, other)| one.high.total_cmp(&other.high));
        let ((slow, slowest), (fast, fastest)) = slow.zip(fast).expect("there are two nodes");
        let ratio = Interval { low: slowest.low / fastest.high, high: slowest.high / fastest.low };
        if ratio.low > 1.0 + self.tolerance { Found::Different(*slow, *fast, ratio) } else { Found::Undecided(bound) }
    }

    /// Properties of the machines that are not the same on all of these nodes.
    fn differences(&self, nodes: &[usize]) -> Vec<(&'static str, Vec<String>)> {
        let known = |it: Option<String>| it.unwrap_or_else(|| "unknown".to_owned());
        let properties: [(&str, Property); 7] = [
            ("microcode", |it| it.microcode.clone()),
            ("kernel", |it| it.kernel.clone()),
            ("CPUs", |it| Some(it.cpus.to_string())),
            ("NUMA nodes", |it| Some(it.numa_nodes.to_string())),
            ("frequency governor", |it| it.governor.clone()),
            ("frequency boost", |it| it.boost.map(|is_on| if is_on { "on" } else { "off" }.to_owned())),
            ("multithreading", |it| it.smt.clone()),
        ];
        let differs = properties.into_iter().filter_map(|(name, of)| {
            let values: Vec<String> = nodes.iter().map(|&node| known(self.machine(node).and_then(of))).collect();
            values.iter().any(|value| *value != values[0]).then_some((name, values))
        });
        differs.collect()
    }

    fn names(&self, nodes: &[usize]) -> String {
        nodes.iter().map(|&node| self.measured[node].node.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(plan) = self.measured.first().map(|it| it.plan) {
            let (runs, warmups) = (plural(plan.runs, "run"), plural(plan.warmup, "warm-up"));
            text = format!("{runs} after {warmups} on each node\n\n{}", self.table());
        }
        for model in self.models() {
            let name = model.name.as_deref().unwrap_or("unknown processors");
            text.push_str(&format!("\n{name}: {}\n", self.names(&model.nodes)));
            text.push_str(&line("results", &self.in_words(&model.found)));
            let noisy: Vec<usize> = model.nodes.iter().copied().filter(|&it| !self.measured[it].is_quiet()).collect();
            if !noisy.is_empty() && model.nodes.len() > 1 {
                let what = if noisy.len() == 1 { "was" } else { "were" };
                text.push_str(&line(
                    "noise",
                    &format!("{} {what} not quiet, which may be the difference", self.names(&noisy)),
                ));
            }
            for (property, values) in &model.differs {
                let of = model
                    .nodes
                    .iter()
                    .zip(values)
                    .map(|(&node, value)| format!("{value} on {}", self.measured[node].node));
                text.push_str(&line("differs", &format!("{property}: {}", of.collect::<Vec<_>>().join(", "))));
            }
        }
        for broken in self.broken {
            text.push_str(&format!("{}{}", if text.is_empty() { "" } else { "\n" }, broken.text()));
        }
        text
    }

    fn table(&self) -> String {
        let columns = [("NODE", Align::Left), ("JOB", Align::Right), ("MEDIAN", Align::Right)];
        let rest = [("95 % INTERVAL", Align::Left), ("SPREAD", Align::Right), ("MEASURED", Align::Left)];
        let mut table = Table::new(&[&columns[..], &rest].concat());
        for (at, measured) in self.measured.iter().enumerate() {
            let Some(Summary { median, interval, quartiles, .. }) = summarise(&self.times(at)) else { continue };
            let unit = Unit::of(median);
            table.row([
                measured.node.clone(),
                measured.job.to_string(),
                unit.show(median),
                interval.map_or_else(String::new, |it| unit.span(it)),
                format!("{:.1} %", 100.0 * (quartiles.high - quartiles.low) / median),
                measured.verdict(),
            ]);
        }
        table.render(None)
    }

    fn in_words(&self, found: &Found) -> String {
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        let tolerance = percent(self.tolerance);
        match found {
            Found::Nothing(why) => format!("not compared: {why}"),
            Found::Comparable(bound) => {
                format!("comparable: the nodes differ by at most {} (95 % confidence)", percent(*bound))
            }
            Found::Different(slow, fast, Interval { low, high }) => format!(
                "not comparable: {} takes {low:.3} to {high:.3} times as long as {} (95 % confidence)",
                self.measured[*slow].node, self.measured[*fast].node
            ),
            Found::Undecided(bound) => format!(
                "undecided: the nodes differ by at most {}, which may be more than {tolerance}; more runs (-n) tell more",
                percent(*bound)
            ),
        }
    }

    pub(super) fn json(&self) -> Value {
        let names = |nodes: &[usize]| nodes.iter().map(|&node| self.measured[node].node.clone()).collect::<Vec<_>>();
        let models = self.models().into_iter().map(|model| {
            let found = match &model.found {
                Found::Nothing(why) => json!({ "result": "not compared", "why": why }),
                Found::Comparable(bound) => json!({ "result": "comparable", "differ_by_at_most": bound }),
                Found::Undecided(bound) => json!({ "result": "undecided", "differ_by_at_most": bound }),
                Found::Different(slow, fast, ratio) => json!({
                    "result": "not comparable",
                    "slower": self.measured[*slow].node,
                    "faster": self.measured[*fast].node,
                    "ratio_interval": [ratio.low, ratio.high],
                }),
            };
            let differs: BTreeMap<_, _> = model.differs.into_iter().collect();
            json!({ "cpu_model": model.name, "nodes": names(&model.nodes), "comparison": found, "differs": differs })
        });
        json!({
            "tolerance": self.tolerance,
            "models": models.collect::<Vec<_>>(),
            "measurements": self.measured.iter().chain(self.broken).map(Measurement::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::JobId;
    use hostler_proto::certificate::{Certificate, Verdict};

    use super::super::runs::{OneRun, Plan};
    use super::*;

    fn plan() -> Plan {
        Plan { commands: vec![vec!["./bench".to_owned()]], runs: 20, warmup: 2, seed: 5, shows_output: false }
    }

    /// Twenty runs that take `factor` times as long as those of a factor of 1, and vary by `spread`.
    fn on<'a>(plan: &'a Plan, node: &str, model: Option<&str>, factor: f64, spread: f64) -> Measurement<'a> {
        let time = |at: u32| (10e6 + spread * 10e6 * f64::from(at * 7 % 20) / 20.0) * factor;
        let run = |at: u32| OneRun { command: 0, wall_ns: time(at) as u64, user_us: 0, system_us: 0, max_rss_bytes: 0 };
        let machine = MeasuredMachine {
            cpu_model: model.map(str::to_owned),
            kernel: Some(if node == "n3" { "6.2" } else { "6.1" }.to_owned()),
            ..MeasuredMachine::default()
        };
        let certificate = Certificate { verdict: Verdict::Quiet, machine, ..Certificate::default() };
        Measurement {
            job: JobId(12),
            node: node.to_owned(),
            plan,
            runs: (0..20).map(run).collect(),
            certificate: Some(certificate),
            attempts: 1,
            failed: None,
        }
    }

    #[test]
    fn nodes_of_one_model_are_compared() {
        let plan = plan();
        let all = [("n3", "EPYC", 1.08), ("n1", "EPYC", 1.0), ("n2", "EPYC", 1.001), ("n4", "Xeon", 3.0)];
        let measured = all.map(|(node, model, factor)| on(&plan, node, Some(model), factor, 0.005));
        let expected = "\
20 runs after 2 warm-ups on each node

NODE  JOB    MEDIAN  95 % INTERVAL      SPREAD  MEASURED
n1     12  10.02 ms  10.01 to 10.04 ms   0.2 %  quiet
n2     12  10.03 ms  10.02 to 10.05 ms   0.2 %  quiet
n3     12  10.83 ms  10.81 to 10.84 ms   0.2 %  quiet
n4     12  30.07 ms  30.04 to 30.11 ms   0.2 %  quiet

EPYC: n1, n2, n3
results   not comparable: n3 takes 1.077 to 1.083 times as long as n1 (95 % confidence)
differs   kernel: 6.1 on n1, 6.1 on n2, 6.2 on n3

Xeon: n4
results   not compared: no other node with these processors was measured
";
        let across = Across::new(measured.into(), &[], 0.02);
        assert_eq!(across.text(), expected);
        let json = across.json();
        let comparison = &json["models"][0]["comparison"];
        assert_eq!((&comparison["slower"], &comparison["faster"]), (&json!("n3"), &json!("n1")));
        assert_eq!(json["measurements"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn result_depends_on_tolerance_and_spread() {
        let plan = plan();
        let found = |spread: f64, tolerance: f64, model: Option<&str>| {
            let measured = [("n1", 1.0), ("n2", 1.01)].map(|(node, factor)| on(&plan, node, model, factor, spread));
            Across::new(measured.into(), &[], tolerance).models().remove(0).found
        };
        assert!(matches!(found(0.005, 0.02, Some("EPYC")), Found::Comparable(bound) if (0.01..0.02).contains(&bound)));
        assert!(matches!(found(0.005, 0.002, Some("EPYC")), Found::Different(1, 0, _)));
        assert!(matches!(found(0.2, 0.02, Some("EPYC")), Found::Undecided(bound) if bound > 0.02));
        assert!(matches!(found(0.005, 0.02, None), Found::Nothing(_)));
    }
}
