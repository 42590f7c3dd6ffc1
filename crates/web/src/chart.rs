//! Charts of figures over time, as SVG without scripts or styles of their own.
//!
//! A chart draws each interval as a step: a band from the lowest to the highest value, and a line for the mean. Intervals
//! without values stay empty. The same values are in a table below the chart.

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_model::{Metric, Unit, WallTime};
use hostler_proto::usage::{SeriesView, UsageView};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Size of the drawing, and edges of the area for values. Small, so that texts stay readable on a phone.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 354.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 130.0;

/// A limit is drawn if it is at most this many times the highest value. Otherwise the curve would be flat.
const LIMIT_FACTOR: f64 = 20.0;

/// Spans from this length on have dates instead of times of the day.
const LONG_MS: u64 = 48 * 3_600_000;

/// Spans below this length have seconds.
const SHORT_MS: u64 = 10 * MINUTE_MS;

const MINUTE_MS: u64 = 60_000;

/// The chart of one metric.
#[derive(Debug, Clone, Template)]
#[template(path = "chart.html")]
pub(crate) struct Chart {
    id: String,
    title: &'static str,
    /// What the chart shows, in words.
    summary: String,
    values: Vec<ValueTick>,
    times: Vec<TimeTick>,
    band: String,
    line: String,
    limit: Option<LimitLine>,
    rows: Vec<Row>,
    zone: String,
}

impl HtmlSafe for Chart {}

impl Chart {
    /// The chart without the table of its values.
    pub(crate) fn without_values(self) -> Self {
        Self { rows: Vec::new(), ..self }
    }
}

#[derive(Debug, Clone)]
struct ValueTick {
    at: f64,
    label: String,
}

#[derive(Debug, Clone)]
struct TimeTick {
    at: f64,
    anchor: &'static str,
    label: String,
}

#[derive(Debug, Clone)]
struct LimitLine {
    at: f64,
    text_at: f64,
    label: String,
}

#[derive(Debug, Clone)]
struct Row {
    from: String,
    min: String,
    mean: String,
    max: String,
}

/// Title of a metric's chart.
pub(crate) const fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::Cpu => "Busy CPUs",
        Metric::Load => "Load average",
        Metric::Memory => "Memory",
        Metric::CpuPressure => "Waiting for CPUs",
        Metric::MemoryPressure => "Waiting for memory",
        Metric::IoPressure => "Waiting for disks",
        Metric::DiskRead => "Disk reads",
        Metric::DiskWrite => "Disk writes",
        Metric::DiskFree => "Free disk space",
        Metric::NetworkIn => "Network received",
        Metric::NetworkOut => "Network sent",
        Metric::Gpu => "Busy GPUs",
        Metric::GpuMemory => "GPU memory",
        Metric::Processes => "Processes and threads",
        Metric::Temperature => "Processor temperature",
        Metric::Power => "Power",
    }
}

/// The charts of all metrics in an answer of the API, in which something was measured. `limit_name` says what a limit is.
pub(crate) fn charts(view: &UsageView, zone: &TimeZone, limit_name: &str) -> Vec<Chart> {
    view.series.iter().filter_map(|series| chart(view, series, zone, limit_name)).collect()
}

/// The chart of one metric; `None` if nothing was measured.
fn chart(view: &UsageView, series: &SeriesView, zone: &TimeZone, limit_name: &str) -> Option<Chart> {
    let steps: Vec<Option<Step>> = (0..view.len as usize).map(|at| Step::of(series, at)).collect();
    let measured: Vec<Step> = steps.iter().flatten().copied().collect();
    let highest = measured.iter().map(|step| step.max).fold(f64::MIN, f64::max);
    let lowest = measured.iter().map(|step| step.min).fold(f64::MAX, f64::min);
    if measured.is_empty() {
        return None;
    }
    let mean = measured.iter().map(|step| step.mean).sum::<f64>() / measured.len() as f64;
    let drawn_limit = series.limit.filter(|limit| *limit > 0.0 && *limit <= highest.max(1e-9) * LIMIT_FACTOR);
    let scale = Scale::of(highest.max(drawn_limit.unwrap_or(0.0)), series.unit);
    let time = Axis { view, zone };
    let x = |at: usize| round(LEFT + (RIGHT - LEFT) * at as f64 / steps.len() as f64);
    let (mut band, mut line) = (String::new(), String::new());
    for run in runs(&steps) {
        band += &band_of(&steps[run.clone()], run.start, x, &scale);
        line += &line_of(&steps[run.clone()], run.start, x, &scale);
    }
    let amount = |value: f64| amount(series.unit, value);
    let gaps = steps.len() - measured.len();
    let rows = steps.iter().enumerate().filter_map(|(at, step)| {
        let Step { min, mean, max } = (*step)?;
        Some(Row { from: time.full(at as u64), min: amount(min), mean: amount(mean), max: amount(max) })
    });
    Some(Chart {
        id: format!("chart-{}", series.name),
        title: title(series.name),
        summary: summary(
            &[mean, lowest, highest].map(amount),
            series.limit.map(|limit| format!("{limit_name} {}", amount(limit))),
            (gaps, steps.len()),
        ),
        values: scale.ticks().map(|value| ValueTick { at: scale.y(value), label: scale.label(value) }).collect(),
        times: time.ticks(),
        band,
        line,
        limit: drawn_limit.map(|limit| {
            let at = scale.y(limit);
            LimitLine { at, text_at: round(at - 3.0), label: format!("{limit_name} {}", amount(limit)) }
        }),
        rows: rows.collect(),
        zone: time.zone_name(),
    })
}

/// Says in words what a chart shows.
fn summary([mean, lowest, highest]: &[String; 3], limit: Option<String>, (gaps, all): (usize, usize)) -> String {
    let limit = limit.map(|limit| format!("; {limit}")).unwrap_or_default();
    let gaps = if gaps == 0 { String::new() } else { format!(" Nothing was measured in {gaps} of {all} intervals.") };
    if lowest == highest {
        return format!("Always {mean}{limit}.{gaps}");
    }
    format!("Mean {mean}, between {lowest} and {highest}{limit}.{gaps}")
}

/// The values of one interval.
#[derive(Debug, Clone, Copy)]
struct Step {
    min: f64,
    mean: f64,
    max: f64,
}

impl Step {
    fn of(series: &SeriesView, at: usize) -> Option<Self> {
        let value = |list: &[Option<f32>]| list.get(at).copied().flatten().map(f64::from).filter(|it| it.is_finite());
        Some(Self { min: value(&series.min)?, mean: value(&series.mean)?, max: value(&series.max)? })
    }
}

/// Ranges of consecutive intervals with values.
fn runs(steps: &[Option<Step>]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in steps.iter().enumerate().filter(|(_, step)| step.is_some()) {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// Path of the band over intervals that begin with number `first`: along the highest values, and back along the lowest.
fn band_of(steps: &[Option<Step>], first: usize, x: impl Fn(usize) -> f64, scale: &Scale) -> String {
    let mut path = format!("M{} ", x(first));
    let known = || steps.iter().flatten().enumerate();
    for (at, step) in known() {
        path += &format!("{}{}H{}", if at == 0 { "" } else { "V" }, scale.y(step.max), x(first + at + 1));
    }
    for (at, step) in known().collect::<Vec<_>>().into_iter().rev() {
        path += &format!("V{}H{}", scale.y(step.min), x(first + at));
    }
    path + "Z"
}

/// Path of the line through the means.
fn line_of(steps: &[Option<Step>], first: usize, x: impl Fn(usize) -> f64, scale: &Scale) -> String {
    let mut path = format!("M{} ", x(first));
    for (at, step) in steps.iter().flatten().enumerate() {
        path += &format!("{}{}H{}", if at == 0 { "" } else { "V" }, scale.y(step.mean), x(first + at + 1));
    }
    path
}

/// The axis of values, from 0 to a round number.
struct Scale {
    top: f64,
    step: f64,
    unit: Unit,
}

impl Scale {
    fn of(highest: f64, unit: Unit) -> Self {
        let highest = if highest > 0.0 { highest.max(finest(unit)) } else { smallest(unit) };
        // Three or four steps, each a round number of the unit that people read.
        let (factor, _) = prefix(unit, highest);
        let rough = highest / factor / 4.0;
        let magnitude = 10f64.powf(rough.log10().floor());
        let round =
            [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|round| round * magnitude >= rough * 0.999).unwrap_or(10.0);
        let step = round * magnitude * factor;
        Self { top: (highest / step).ceil().max(1.0) * step, step, unit }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (count, step) = ((self.top / self.step).round() as u32, self.step);
        (0..=count).map(move |number| f64::from(number) * step)
    }

    fn y(&self, value: f64) -> f64 {
        round(BOTTOM - (BOTTOM - TOP) * (value / self.top).clamp(0.0, 1.0))
    }

    /// A value in the unit of the highest value.
    fn label(&self, value: f64) -> String {
        let (factor, name) = prefix(self.unit, self.top);
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("{}{name}", number(value / factor))
    }
}

/// The highest value on the axis of a metric that is always 0.
const fn smallest(unit: Unit) -> f64 {
    match unit {
        Unit::Bytes | Unit::BytesPerSecond => 1024.0,
        Unit::Cpus | Unit::Gpus | Unit::Count | Unit::Percent | Unit::Celsius | Unit::Watts => 1.0,
    }
}

/// The lowest end of an axis: below it, several marks would have the same label.
const fn finest(unit: Unit) -> f64 {
    match unit {
        Unit::Bytes | Unit::BytesPerSecond => 4.0,
        Unit::Cpus | Unit::Gpus | Unit::Count | Unit::Percent | Unit::Celsius | Unit::Watts => 0.04,
    }
}

/// The unit in which people read a value, and its size.
fn prefix(unit: Unit, value: f64) -> (f64, &'static str) {
    const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    const RATES: [&str; 6] = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "PiB/s"];
    let binary = |names: [&'static str; 6]| {
        let power = (0..5).find(|power| value < 1024f64.powi(power + 1)).unwrap_or(5);
        (1024f64.powi(power), names[power as usize])
    };
    match unit {
        Unit::Bytes => binary(BYTES),
        Unit::BytesPerSecond => binary(RATES),
        Unit::Cpus => (1.0, "CPUs"),
        Unit::Gpus => (1.0, "GPUs"),
        Unit::Count => (1.0, ""),
        Unit::Percent => (1.0, "%"),
        Unit::Celsius => (1.0, "°C"),
        Unit::Watts => (1.0, "W"),
    }
}

/// A value with its unit, as people write it.
pub(crate) fn amount(unit: Unit, value: f64) -> String {
    let (factor, name) = prefix(unit, value);
    match (unit, number(value / factor)) {
        (Unit::Count, number) => number,
        (Unit::Cpus, number) if number == "1" => "1 CPU".to_owned(),
        (Unit::Gpus, number) if number == "1" => "1 GPU".to_owned(),
        (_, number) => format!("{number} {name}"),
    }
}

/// A number with about three digits.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The axis of time.
struct Axis<'a> {
    view: &'a UsageView,
    zone: &'a TimeZone,
}

impl Axis<'_> {
    fn at(&self, step: u64) -> jiff::Zoned {
        let WallTime(from) = self.view.from;
        let offset = i64::try_from(step.saturating_mul(self.view.step_ms)).unwrap_or(i64::MAX);
        let at = Timestamp::from_millisecond(from.saturating_add(offset)).unwrap_or_default();
        at.to_zoned(self.zone.clone())
    }

    fn full(&self, step: u64) -> String {
        let form = if self.view.step_ms < MINUTE_MS { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M" };
        self.at(step).strftime(form).to_string()
    }

    fn zone_name(&self) -> String {
        self.at(0).strftime("%Z").to_string()
    }

    fn ticks(&self) -> Vec<TimeTick> {
        let len = u64::from(self.view.len);
        let form = match len * self.view.step_ms {
            LONG_MS.. => "%b %-d",
            SHORT_MS.. => "%H:%M",
            _ => "%H:%M:%S",
        };
        let mut ticks: Vec<TimeTick> = [(0, "first"), (1, "middle"), (2, "middle"), (3, "last")]
            .map(|(third, anchor)| TimeTick {
                at: round(LEFT + (RIGHT - LEFT) * third as f64 / 3.0),
                anchor,
                label: self.at(len * third / 3).strftime(form).to_string(),
            })
            .into();
        // In short spans, neighbouring labels may be equal.
        ticks.dedup_by(|later, earlier| later.label == earlier.label);
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(unit_of: Metric, limit: Option<f64>, values: &[Option<(f32, f32, f32)>]) -> UsageView {
        let of = |part: fn((f32, f32, f32)) -> f32| values.iter().map(|value| value.map(part)).collect();
        UsageView {
            from: WallTime(1_800_000_000_000),
            step_ms: 60_000,
            len: values.len() as u32,
            series: vec![SeriesView {
                name: unit_of,
                unit: unit_of.unit(),
                limit,
                min: of(|three| three.0),
                mean: of(|three| three.1),
                max: of(|three| three.2),
            }],
        }
    }

    fn html(view: &UsageView) -> String {
        charts(view, &TimeZone::UTC, "limit")
            .iter()
            .map(|chart| chart.render().expect("templates write to memory"))
            .collect()
    }

    #[test]
    fn chart_has_words_a_table_and_no_styles() {
        let gib = (1u64 << 30) as f32;
        let values = [Some((0.0, gib, 2.0 * gib)), None, Some((gib, gib, gib)), Some((gib, gib, gib))];
        let text = html(&view(Metric::Memory, Some(f64::from(4.0 * gib)), &values));
        for part in [
            "<title>Memory</title>",
            "Mean 1 GiB, between 0 B and 2 GiB; limit 4 GiB. Nothing was measured in 1 of 4 intervals.",
            "limit 4 GiB",
            ">2 GiB</text>",
            "<th scope=\"row\">2027-01-15 08:00</th>",
            "Times are in UTC.",
            "role=\"img\"",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("style=") && !text.contains("<script"), "{text}");
        assert_eq!(text.matches("<tr>").count(), 1 + 3, "a gap has no row");
        let paths = text.split("class=\"mean\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a line");
        assert_eq!(paths, "M58 100.5H132M206 100.5H280V100.5H354", "a gap separates lines");
    }

    #[test]
    fn nothing_is_drawn_where_nothing_was_measured() {
        assert_eq!(html(&view(Metric::Cpu, None, &[None, None])), "");
        assert_eq!(html(&view(Metric::Cpu, None, &[])), "");
        let unknown = view(Metric::Cpu, None, &[Some((0.0, f32::NAN, 1.0))]);
        assert_eq!(html(&unknown), "");
    }

    #[test]
    fn distant_limits_are_words_only() {
        let text = html(&view(Metric::Cpu, Some(64.0), &[Some((0.0, 0.5, 1.0))]));
        assert!(text.contains("; limit 64 CPUs.") && !text.contains("class=\"limit\""), "{text}");
    }

    #[test]
    fn drawings_stay_inside_their_area() {
        for highest in [0.0, 1e-6, 0.3, 1.0, 7.0, 99.0, 1023.0, 1024.0, 1e6, 3e12] {
            for unit in [Unit::Cpus, Unit::Bytes, Unit::BytesPerSecond, Unit::Percent] {
                let scale = Scale::of(highest, unit);
                let ticks: Vec<f64> = scale.ticks().collect();
                assert!((2..=6).contains(&ticks.len()), "{highest} {ticks:?}");
                assert!(scale.top >= highest && scale.y(highest) >= TOP && scale.y(0.0) <= BOTTOM);
            }
        }
    }

    #[test]
    fn amounts_are_written_as_people_do() {
        for (unit, value, text) in [
            (Unit::Bytes, 1_610_612_736.0, "1.5 GiB"),
            (Unit::Bytes, 1000.0, "1000 B"),
            (Unit::BytesPerSecond, 2048.0, "2 KiB/s"),
            (Unit::Percent, 12.34, "12.3 %"),
            (Unit::Watts, 123.4, "123 W"),
            (Unit::Cpus, 1.0, "1 CPU"),
            (Unit::Count, 0.0, "0"),
            (Unit::Celsius, 45.5, "45.5 °C"),
        ] {
            assert_eq!(amount(unit, value), text);
        }
    }
}
