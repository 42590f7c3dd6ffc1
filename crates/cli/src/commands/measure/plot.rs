//! Draws run times as an SVG picture: on the left in the order of the runs, which shows drift, and on the right their
//! distribution. Pure.

use std::fmt::Write as _;

use hostler_model::escaped_html;

use super::report::{Measurement, Unit};
use super::statistics::{Interval, Summary, summarise};

const WIDTH: f32 = 1200.0;

/// The area of the runs, and that of the distributions, which share their axis of time.
const RUNS: Area = Area { left: 110.0, right: 780.0 };
const DISTRIBUTION: Area = Area { left: 820.0, right: 1170.0 };
const TOP: f32 = 48.0;
const BOTTOM: f32 = 500.0;

/// Colours that people with any colour vision can tell apart (Okabe and Ito). With more series, they repeat.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5a5a5a"];
const INK: &str = "#282828";
const GRID: &str = "#e1e1e1";

/// Where names and medians of the series begin, the height of a row, and the number of columns.
const LEGEND_TOP: f32 = BOTTOM + 34.0;
const LEGEND_STEP: f32 = 20.0;
const LEGEND_COLUMNS: usize = 2;

/// Number of letters of a series' name and median.
const LEGEND_LETTERS: usize = 68;

#[derive(Clone, Copy)]
struct Area {
    left: f32,
    right: f32,
}

/// The run times of one command on one node.
struct Series {
    name: String,
    /// In seconds.
    times: Vec<f64>,
    summary: Summary,
    colour: &'static str,
}

/// The picture of all run times.
pub(super) fn svg(measured: &[Measurement<'_>]) -> String {
    let series = series(measured);
    let height = LEGEND_TOP + LEGEND_STEP * series.len().div_ceil(LEGEND_COLUMNS) as f32 + 10.0;
    let mut canvas = Canvas(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" \
         font-size=\"14\" fill=\"{INK}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    ));
    let all: Vec<f64> = series.iter().flat_map(|it| it.times.iter().copied()).collect();
    if let Some(summary) = summarise(&all) {
        let axis = Axis::new(summary.least, summary.most);
        let unit = Unit::of(summary.median);
        canvas.axes(&axis, unit, series.iter().map(|it| it.times.len()).max().unwrap_or(1));
        for (at, it) in series.iter().enumerate() {
            canvas.runs(it, &axis);
            canvas.distribution(it, &axis, at, series.len());
        }
        canvas.legend(&series, unit);
    }
    canvas.0 + "</svg>\n"
}

fn series(measured: &[Measurement<'_>]) -> Vec<Series> {
    let mut all = Vec::new();
    for one in measured {
        for command in 0..one.plan.commands.len() {
            let times = one.times(command);
            let Some(summary) = summarise(&times) else { continue };
            let name = if measured.len() > 1 { one.node.clone() } else { one.plan.line(command) };
            all.push(Series { name, times, summary, colour: COLOURS[all.len() % COLOURS.len()] });
        }
    }
    all
}

/// The vertical axis, in seconds.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// An axis for these values, with five to ten round steps.
    fn new(least: f64, most: f64) -> Self {
        let span = (most - least).max(most * 1e-6).max(1e-9);
        let rough = span / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0].map(|it| it * power).into_iter().rfind(|&step| step <= rough).unwrap_or(power);
        // At least half a step stays free at both ends.
        Self { low: (least / step - 0.5).floor() * step, high: (most / step + 0.5).ceil() * step, step }
    }

    fn y(&self, seconds: f64) -> f32 {
        BOTTOM - ((seconds - self.low) / (self.high - self.low)) as f32 * (BOTTOM - TOP)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.high - self.low) / self.step).floor() as usize;
        (0..=count).map(|at| self.low + at as f64 * self.step)
    }
}

/// The elements of the picture so far.
struct Canvas(String);

impl Canvas {
    fn axes(&mut self, axis: &Axis, unit: Unit, runs: usize) {
        for tick in axis.ticks() {
            let y = axis.y(tick);
            for area in [RUNS, DISTRIBUTION] {
                self.line((area.left, y), (area.right, y), GRID, 1.0);
            }
            self.text("end", (RUNS.left - 8.0, y + 5.0), &unit.number(tick));
        }
        self.text("end", (RUNS.left - 8.0, TOP - 17.0), unit.name);
        for area in [RUNS, DISTRIBUTION] {
            self.line((area.left, TOP), (area.left, BOTTOM), INK, 1.0);
            self.line((area.left, BOTTOM), (area.right, BOTTOM), INK, 1.0);
        }
        let below = BOTTOM + 21.0;
        self.text("start", (RUNS.left, below), "run 1");
        self.text("end", (RUNS.right, below), &format!("run {runs}"));
        self.text("start", (DISTRIBUTION.left, below), "quartiles, median, all runs");
    }

    fn runs(&mut self, series: &Series, axis: &Axis) {
        let step = (RUNS.right - RUNS.left) / series.times.len() as f32;
        for (at, &time) in series.times.iter().enumerate() {
            self.dot((RUNS.left + (at as f32 + 0.5) * step, axis.y(time)), series.colour, 1.0);
        }
        let y = axis.y(series.summary.median);
        self.line((RUNS.left, y), (RUNS.right, y), series.colour, 1.5);
    }

    fn distribution(&mut self, series: &Series, axis: &Axis, at: usize, count: usize) {
        let slot = (DISTRIBUTION.right - DISTRIBUTION.left) / count as f32;
        let middle = DISTRIBUTION.left + (at as f32 + 0.5) * slot;
        let half = (slot * 0.3).min(60.0);
        let Interval { low, high } = series.summary.quartiles;
        // All values may be equal.
        let (top, height) = (axis.y(high), (axis.y(low) - axis.y(high)).max(1.0));
        let (left, width) = (middle - half, 2.0 * half);
        self.add(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" \
             fill-opacity=\"0.25\"/>",
            series.colour
        ));
        for (run, &time) in series.times.iter().enumerate() {
            // Spreads the dots, so that equal times stay visible.
            let aside = ((run * 7 % 11) as f32 / 10.0 - 0.5) * half;
            self.dot((middle + aside, axis.y(time)), series.colour, 0.5);
        }
        let y = axis.y(series.summary.median);
        self.line((middle - half, y), (middle + half, y), series.colour, 3.0);
    }

    /// Names and medians of the series.
    fn legend(&mut self, series: &[Series], unit: Unit) {
        let rows = series.len().div_ceil(LEGEND_COLUMNS);
        let width = (WIDTH - 40.0) / LEGEND_COLUMNS as f32;
        for (at, it) in series.iter().enumerate() {
            let (column, row) = (at / rows, at % rows);
            let (x, y) = (20.0 + column as f32 * width, LEGEND_TOP + row as f32 * LEGEND_STEP);
            let text = format!(": median {}", unit.show(it.summary.median));
            let name = shortened(&it.name, LEGEND_LETTERS - text.chars().count());
            self.dot((x, y + 8.0), it.colour, 1.0);
            self.text("start", (x + 12.0, y + 13.0), &format!("{name}{text}"));
        }
    }

    fn dot(&mut self, (x, y): (f32, f32), colour: &str, opacity: f32) {
        self.add(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
        ));
    }

    fn line(&mut self, from: (f32, f32), to: (f32, f32), colour: &str, width: f32) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ));
    }

    /// Draws text that starts or ends at `x`.
    fn text(&mut self, anchor: &str, (x, y): (f32, f32), text: &str) {
        let text = escaped_html(text);
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("a text grows");
    }
}

/// The text, cut in the middle if it is longer than `most` letters.
fn shortened(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let end = most.saturating_sub(3) / 2;
    let start = most.saturating_sub(3) - end;
    letters[..start].iter().chain(&['.', '.', '.']).chain(&letters[letters.len() - end..]).collect()
}

#[cfg(test)]
mod tests {
    use hostler_model::JobId;

    use super::super::runs::{OneRun, Plan};
    use super::*;

    fn picture(times_ms: &[&[f64]]) -> String {
        let commands = (0..times_ms.len()).map(|at| vec![format!("./bench-{at}<&"), "x".repeat(at * 90)]).collect();
        let plan = Plan { commands, runs: 1, warmup: 0, seed: 1, shows_output: false };
        let runs = times_ms.iter().enumerate().flat_map(|(command, times)| {
            let run = move |ms: &f64| (ms * 1e6) as u64;
            times.iter().map(run).map(move |wall_ns| OneRun {
                command,
                wall_ns,
                user_us: 0,
                system_us: 0,
                max_rss_bytes: 0,
            })
        });
        let runs = runs.collect();
        let (node, certificate) = ("n1".to_owned(), None);
        svg(&[Measurement { job: JobId(1), node, plan: &plan, runs, certificate, attempts: 1, failed: None }])
    }

    #[test]
    fn each_command_has_dots_and_a_box() {
        let picture = picture(&[&[10.0, 10.1, 10.2, 10.4, 12.0, 10.1], &[14.0, 14.2, 14.1, 14.3, 14.0, 14.4]]);
        for colour in &COLOURS[..2] {
            let count = |element: &str| {
                picture.lines().filter(|line| line.starts_with(element) && line.contains(colour)).count()
            };
            // Each run twice, and one dot in the legend.
            assert_eq!((count("<circle"), count("<rect"), count("<path")), (13, 1, 2), "{picture}");
        }
        assert!(!picture.contains(COLOURS[2]));
        assert!(picture.contains(">&#39;./bench-0&lt;&amp;&#39; &#39;&#39;: median 10.15 ms</text>"), "{picture}");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }

    #[test]
    fn extreme_values_are_drawn_inside_the_picture() {
        let many: Vec<f64> = (0..5_000).map(|at| 10.0 + f64::from(at % 50) * 0.01).collect();
        for times in [&[5.0, 5.0, 5.0][..], &[0.0, 0.0], &[0.001], &[0.001, 9e9], &many] {
            let picture = picture(&[times; 9]);
            let heights: Vec<f32> = picture
                .split(" cy=\"")
                .skip(1)
                .map(|rest| rest.split('"').next().and_then(|number| number.parse().ok()).expect("a number"))
                .collect();
            assert_eq!(heights.len(), 9 * (2 * times.len() + 1));
            assert!(heights.iter().all(|height| (TOP..=BOTTOM + 150.0).contains(height)), "{times:?}");
        }
    }

    #[test]
    fn axis_has_round_steps() {
        for (least, most) in [(0.0123, 0.0149), (1.0, 1.0), (0.5, 700.0), (1e-6, 1.1e-6)] {
            let axis = Axis::new(least, most);
            let ticks: Vec<f64> = axis.ticks().collect();
            assert!((2..=14).contains(&ticks.len()), "{least} to {most}: {ticks:?}");
            assert!(axis.low <= least && axis.high >= most);
        }
    }

    #[test]
    fn long_names_are_cut_in_the_middle() {
        assert_eq!(shortened("./bench --fast", 20), "./bench --fast");
        assert_eq!(shortened("./bench --fast", 9), "./b...ast");
        assert_eq!(shortened("./bench", 2), "...");
    }
}
