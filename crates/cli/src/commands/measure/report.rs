//! The text and JSON of a measurement. Pure.

use hostler_model::{JobId, format_bytes, plural};
use hostler_proto::certificate::{Certificate, Verdict};
use serde_json::{Value, json};

use super::runs::{FailedRun, OneRun, Plan};
use super::statistics::{Comparison, FEWEST_FOR_INTERVAL, Interval, Summary, compare, summarise};
use crate::failure::Failure;

/// A finished measurement.
pub(super) struct Measurement<'a> {
    pub(super) job: JobId,
    pub(super) node: String,
    pub(super) plan: &'a Plan,
    pub(super) runs: Vec<OneRun>,
    pub(super) certificate: Option<Certificate>,
    /// Number of jobs that measured, the last of which is shown.
    pub(super) attempts: u32,
    /// Why it ended before its last run, and that run if it failed itself.
    pub(super) failed: Option<(Failure, Option<FailedRun>)>,
}

impl Measurement<'_> {
    fn of(&self, command: usize) -> impl Iterator<Item = &OneRun> {
        self.runs.iter().filter(move |run| run.command == command)
    }

    /// The run times of a command in seconds, in the order of the runs.
    pub(super) fn times(&self, command: usize) -> Vec<f64> {
        self.of(command).map(|run| run.wall_ns as f64 / 1e9).collect()
    }

    fn comparison(&self) -> Option<Comparison> {
        let is_two = self.plan.commands.len() == 2;
        is_two.then(|| compare(&self.times(0), &self.times(1), self.plan.seed)).flatten()
    }

    /// The measurement as text.
    pub(super) fn text(&self) -> String {
        let Plan { runs, warmup, commands, seed, .. } = self.plan;
        let each = if commands.len() > 1 { " of each command" } else { "" };
        let order = if commands.len() > 1 { format!(", order from seed {seed}") } else { String::new() };
        let warmups = plural(warmup, "warm-up");
        let done =
            if self.failed.is_some() { format!("{} of ", self.runs.len() / commands.len()) } else { String::new() };
        let runs = plural(runs, "run");
        let mut text = format!("{done}{runs}{each} after {warmups} on node {}, job {}{order}\n", self.node, self.job);
        for at in 0..commands.len() {
            if let Some(summary) = summarise(&self.times(at)) {
                text.push('\n');
                if commands.len() > 1 {
                    text.push_str(&format!("{}\n", self.plan.line(at)));
                }
                text.push_str(&self.one(at, &summary));
            }
        }
        text.push('\n');
        if let Some(comparison) = self.comparison() {
            text.push_str(&line("ratio", &self.compared(&comparison)));
        }
        text.push_str(&line("measured", &self.verdict()));
        if let Some(machine) = self.certificate.as_ref().and_then(|certificate| certificate.quiet_machine.as_ref()) {
            text.push_str(&line("machine", &machine.in_words()));
        }
        text
    }

    /// Whether the node's agent certifies that the node was quiet.
    pub(super) fn is_quiet(&self) -> bool {
        self.certificate.as_ref().is_some_and(|it| it.verdict == Verdict::Quiet)
    }

    /// The certificate's verdict in words.
    pub(super) fn verdict(&self) -> String {
        self.certificate
            .as_ref()
            .map_or_else(|| "unknown: the node has sent no certificate".to_owned(), Certificate::in_words)
    }

    fn one(&self, command: usize, summary: &Summary) -> String {
        let Summary { median, interval, least, most, quartiles, deviation, outliers, drift } = summary;
        let unit = Unit::of(*median);
        let range = quartiles.high - quartiles.low;
        let interval = match interval {
            Some(it) => format!("95 % confidence interval {}", unit.span(*it)),
            None => format!("no confidence interval with fewer than {FEWEST_FOR_INTERVAL} runs"),
        };
        let mut text = line("median", &format!("{}, {interval}", unit.show(*median)));
        text.push_str(&line(
            "spread",
            &format!(
                "interquartile range {} ({:.1} %), median deviation {}, all {}",
                unit.show(range),
                100.0 * range / median,
                unit.show(*deviation),
                unit.span(Interval { low: *least, high: *most })
            ),
        ));
        let median_of = |of: fn(&OneRun) -> u64| {
            summarise(&self.of(command).map(|run| of(run) as f64).collect::<Vec<_>>()).map_or(0.0, |it| it.median)
        };
        let (user, system) = (median_of(|run| run.user_us) / 1e6, median_of(|run| run.system_us) / 1e6);
        let memory = self.of(command).map(|run| run.max_rss_bytes).max().unwrap_or(0);
        let used = format!("user {}, system {}, memory {}", unit.show(user), unit.show(system), format_bytes(memory));
        text.push_str(&line("used", &used));
        if let Some(change) = drift {
            let how = if *change > 1.0 { "slower" } else { "faster" };
            let percent = 100.0 * (change - 1.0).abs();
            text.push_str(&line("drift", &format!("the later runs were {how}, by {percent:.1} %")));
        }
        if !outliers.is_empty() {
            let times = self.times(command);
            let named = outliers.iter().map(|&at| format!("run {} ({})", at + 1, unit.show(times[at])));
            text.push_str(&line("outliers", &named.collect::<Vec<_>>().join(", ")));
        }
        if self.failed.is_some() {
            let times: Vec<String> = self.times(command).into_iter().map(|time| unit.number(time)).collect();
            text.push_str(&line("times", &format!("{} {}", times.join(", "), unit.name)));
        }
        text
    }

    fn compared(&self, comparison: &Comparison) -> String {
        let [first, second] = [0, 1].map(|at| self.plan.line(at));
        let Comparison { ratio, interval } = comparison;
        let Some(Interval { low, high }) = interval else {
            return format!("{ratio:.3}; too few runs to tell whether the commands differ");
        };
        let interval = format!("95 % confidence interval {low:.3} to {high:.3}");
        if comparison.shows_difference() {
            return format!("`{first}` takes {ratio:.3} times as long as `{second}`, {interval}");
        }
        // A true ratio further away than this would have moved the interval beyond 1.
        let smallest = 100.0 * (high - low) / 2.0 / ratio;
        format!(
            "{ratio:.3}, {interval}: no difference that this measurement can show; one of less than about {smallest:.1} % stays hidden"
        )
    }

    /// The measurement as JSON, with the values of all runs.
    pub(super) fn json(&self) -> Value {
        let interval = |it: Option<Interval>| it.map(|it| [it.low, it.high]);
        let commands = self.plan.commands.iter().enumerate().map(|(at, command)| {
            let summary = summarise(&self.times(at));
            let summary = summary.map(|it| {
                json!({
                    "median_s": it.median,
                    "median_interval_s": interval(it.interval),
                    "min_s": it.least,
                    "max_s": it.most,
                    "quartiles_s": [it.quartiles.low, it.quartiles.high],
                    "mad_s": it.deviation,
                    "outliers": it.outliers,
                    "drift": it.drift,
                })
            });
            let runs: Vec<Value> = self.of(at).map(run).collect();
            json!({ "command": command, "summary": summary, "runs": runs })
        });
        let comparison = self.comparison().map(|it| {
            json!({
                "ratio": it.ratio,
                "ratio_interval": interval(it.interval),
                "shows_difference": it.shows_difference(),
            })
        });
        json!({
            "job": self.job,
            "node": self.node,
            "warmup": self.plan.warmup,
            "seed": self.plan.seed,
            "attempts": self.attempts,
            "commands": commands.collect::<Vec<_>>(),
            "comparison": comparison,
            "certificate": self.certificate,
            "failed": self.failed.as_ref().map(|(failure, run)| match run {
                Some(FailedRun { command, number, is_warmup, why, output }) => {
                    json!({ "command": command, "run": number, "warmup": is_warmup, "why": why, "output": output })
                }
                None => json!({ "why": failure.message() }),
            }),
        })
    }
}

fn run(run: &OneRun) -> Value {
    json!({
        "wall_s": run.wall_ns as f64 / 1e9,
        "user_s": run.user_us as f64 / 1e6,
        "system_s": run.system_us as f64 / 1e6,
        "max_rss_bytes": run.max_rss_bytes,
    })
}

pub(super) fn line(name: &str, value: &str) -> String {
    format!("{name:9} {value}\n")
}

/// A unit of time that suits a duration.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    per_second: f64,
}

impl Unit {
    pub(super) fn of(seconds: f64) -> Self {
        let (name, per_second) = match seconds {
            it if it >= 1.0 => ("s", 1.0),
            it if it >= 1e-3 => ("ms", 1e3),
            _ => ("us", 1e6),
        };
        Self { name, per_second }
    }

    pub(super) fn number(self, seconds: f64) -> String {
        let value = seconds * self.per_second;
        // Four significant digits of a value of this unit, which is at least 1.
        match value {
            it if it >= 100.0 => format!("{value:.1}"),
            it if it >= 10.0 => format!("{value:.2}"),
            _ => format!("{value:.3}"),
        }
    }

    pub(super) fn show(self, seconds: f64) -> String {
        format!("{} {}", self.number(seconds), self.name)
    }

    pub(super) fn span(self, Interval { low, high }: Interval) -> String {
        format!("{} to {} {}", self.number(low), self.number(high), self.name)
    }
}

#[cfg(test)]
mod tests {
    use hostler_proto::certificate::{KnobProblem, QuietMachine};

    use super::*;

    fn measured<'a>(plan: &'a Plan, times_ms: &[&[f64]]) -> Measurement<'a> {
        let runs = times_ms.iter().enumerate().flat_map(|(command, times)| {
            times.iter().map(move |ms| OneRun {
                command,
                wall_ns: (ms * 1e6) as u64,
                user_us: (ms * 900.0) as u64,
                system_us: 400,
                max_rss_bytes: 20 << 20,
            })
        });
        Measurement {
            job: JobId(12),
            node: "n1".to_owned(),
            plan,
            runs: runs.collect(),
            certificate: Some(Certificate { verdict: Verdict::Quiet, ..Certificate::default() }),
            attempts: 1,
            failed: None,
        }
    }

    fn plan(commands: &[&str], runs: usize) -> Plan {
        let commands = commands.iter().map(|command| vec![(*command).to_owned()]).collect();
        Plan { commands, runs: runs as u32, warmup: 2, seed: 5, shows_output: false }
    }

    #[test]
    fn one_command_is_summarised() {
        let times = [12.0, 12.1, 12.2, 12.3, 12.4, 12.5, 12.6, 19.0];
        let plan = plan(&["./bench"], times.len());
        let expected = "\
8 runs after 2 warm-ups on node n1, job 12

median    12.35 ms, 95 % confidence interval 12.00 to 19.00 ms
spread    interquartile range 0.350 ms (2.8 %), median deviation 0.200 ms, all 12.00 to 19.00 ms
used      user 11.12 ms, system 0.400 ms, memory 20M
outliers  run 8 (19.00 ms)

measured  quiet
";
        assert_eq!(measured(&plan, &[&times]).text(), expected);
        let mut on_quiet_machine = measured(&plan, &[&times]);
        let problem = |knob: &str| KnobProblem { knob: knob.to_owned(), ..KnobProblem::default() };
        let machine = QuietMachine { not_offered: vec![problem("boost"), problem("boost")], ..QuietMachine::default() };
        on_quiet_machine.certificate.as_mut().expect("it has one").quiet_machine = Some(Box::new(machine));
        assert!(on_quiet_machine.text().ends_with("quiet\nmachine   changed nothing; not offered: boost\n"));
        let few = measured(&plan, &[&times[..3]]).text();
        assert!(few.contains("no confidence interval with fewer than 6 runs"), "{few}");
    }

    #[test]
    fn failed_measurement_has_the_times_before_the_failure() {
        let plan = plan(&["./bench"], 10);
        let mut broken = measured(&plan, &[&[12.0, 12.1, 13.5]]);
        let run = FailedRun {
            command: 0,
            number: 4,
            is_warmup: false,
            why: "exit code 3".to_owned(),
            output: "oops".to_owned(),
        };
        broken.failed = Some((Failure::new("job 12: run 4 of 10 failed"), Some(run)));
        let text = broken.text();
        assert!(text.starts_with("3 of 10 runs after 2 warm-ups on node n1, job 12\n\nmedian    12.10 ms"), "{text}");
        assert!(text.contains("times     12.00, 12.10, 13.50 ms\n"), "{text}");
        let expected = json!({ "command": 0, "run": 4, "warmup": false, "why": "exit code 3", "output": "oops" });
        assert_eq!(broken.json()["failed"], expected);
        broken.failed = Some((Failure::new("job 12 ran out of memory"), None));
        let json = broken.json();
        assert_eq!(json["failed"], json!({ "why": "job 12 ran out of memory" }));
        assert_eq!(json["commands"][0]["runs"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn drift_is_said_plainly() {
        let times: Vec<f64> = (0..20).map(|at| 1500.0 + f64::from(at) * 10.0).collect();
        let plan = plan(&["./bench"], 20);
        let text = measured(&plan, &[&times]).text();
        assert!(text.contains("drift     the later runs were slower, by 6.5 %\n"), "{text}");
        assert!(text.contains("median    1.595 s"), "{text}");
    }

    #[test]
    fn two_commands_are_compared() {
        let times: Vec<f64> = (0..20).map(|at| 10.0 + f64::from(at * 7 % 20) * 0.01).collect();
        let slower: Vec<f64> = times.iter().map(|time| time * 1.2).collect();
        let plan = plan(&["a", "b"], 20);
        let text = measured(&plan, &[&slower, &times]).text();
        assert!(
            text.starts_with("20 runs of each command after 2 warm-ups on node n1, job 12, order from seed 5\n\na\n")
        );
        assert!(text.contains("ratio     `a` takes 1.200 times as long as `b`, 95 % confidence interval"), "{text}");
        let text = measured(&plan, &[&times, &times]).text();
        assert!(
            text.contains("ratio     1.000") && text.contains("no difference that this measurement can show"),
            "{text}"
        );
        let json = measured(&plan, &[&slower, &times]).json();
        assert_eq!(json["commands"][1]["runs"].as_array().map(Vec::len), Some(20));
        assert_eq!(
            (&json["comparison"]["shows_difference"], &json["certificate"]["verdict"]),
            (&json!(true), &json!("quiet"))
        );
        assert_eq!(json["comparison"]["ratio"].as_f64().map(|it| (it * 1000.0).round()), Some(1200.0));
    }
}
