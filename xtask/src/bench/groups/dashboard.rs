//! The dashboard on a large cluster: the time and size of pages, and the cost of open browsers.

use anyhow::{Context, Result};

use crate::bench::context::Bench;
use crate::bench::report::{Goal, Row};
use crate::swarm;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(program) = bench.hostler.as_deref() else { return Ok(Vec::new()) };
    let [agents, waiting, browsers] = [1_000, 100_000, 200].map(|count| bench.scaled(count).to_string());
    let said = swarm::watch(&[
        "dashboard".as_ref(),
        program.as_os_str(),
        agents.as_ref(),
        waiting.as_ref(),
        browsers.as_ref(),
    ])?;
    rows(&said).with_context(|| format!("the output of the swarm lacks a figure: {said}"))
}

/// Parses the output of the swarm.
fn rows(said: &str) -> Option<Vec<Row>> {
    let lines = || said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let after = |line: &[&str], word: &str| -> Option<f64> {
        line.get(line.iter().position(|it| *it == word)? + 1)?.trim_end_matches(',').parse().ok()
    };
    let mut rows = Vec::new();
    for line in lines().filter(|line| line.first() == Some(&"page")) {
        let [_, page, ms, _, kilobytes, _] = line[..] else { return None };
        rows.push(Row::once(format!("page {page}"), ms.parse().ok()?, "ms").with_goal(Goal::AtMost(50.0)));
        let size = Row::once(format!("page {page}, size"), kilobytes.parse().ok()?, "kB");
        rows.push(size.with_goal(Goal::AtMost(100.0)));
    }
    let browsers = lines().find(|line| line.first() == Some(&"browsers"))?;
    rows.push(Row::once("head's CPU for open browsers", after(&browsers, "head")?, "%").with_goal(Goal::AtMost(10.0)));
    let submission = lines().find(|line| line.first() == Some(&"submission"))?;
    let slower = Row::once("submission with open browsers", after(&submission, "ratio")?, "× without");
    rows.push(slower.with_goal(Goal::AtMost(1.1)));
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_swarm_is_parsed() {
        let said = "  100000 jobs wait\n  page / 3.2 ms, 11.5 kB\n  page /jobs 8.0 ms, 40.0 kB\n  \
                    browsers 200 cost the head 12.5 % of a CPU; they loaded 39.0 pages a second\n  \
                    submission 0.61 ms, with browsers 0.65 ms, ratio 1.066\n";
        let rows = rows(said).expect("all figures are there");
        let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [3.2, 11.5, 8.0, 40.0, 12.5, 1.066]);
        assert!(super::rows("error: no room").is_none());
    }
}
