//! Draws run times as a picture: on the left in the order of the runs, which shows drift, and on the right their
//! distribution. Pure.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{Color, FillRule, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke, Transform};

use super::report::{Measurement, Unit};
use super::statistics::{Interval, Summary, summarise};

const WIDTH: f32 = 1200.0;

/// The area of the runs, and that of the distributions, which share their axis of time.
const RUNS: Area = Area { left: 110.0, right: 780.0 };
const DISTRIBUTION: Area = Area { left: 820.0, right: 1170.0 };
const TOP: f32 = 48.0;
const BOTTOM: f32 = 500.0;

/// Colours that people with any colour vision can tell apart (Okabe and Ito). With more series, they repeat.
const COLOURS: [[u8; 3]; 7] =
    [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [230, 159, 0], [90, 90, 90]];
const INK: [u8; 3] = [40, 40, 40];
const GRID: [u8; 3] = [225, 225, 225];

const TEXT_HEIGHT: f32 = 16.0;

/// Where names and medians of the series begin, the height of a row, and the number of columns.
const LEGEND_TOP: f32 = BOTTOM + 34.0;
const LEGEND_STEP: f32 = 20.0;
const LEGEND_COLUMNS: usize = 2;

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
    colour: [u8; 3],
}

/// The picture of all run times, as a PNG file.
pub(super) fn png(measured: &[Measurement<'_>]) -> Vec<u8> {
    let series = series(measured);
    let mut canvas = Canvas::new(series.len().div_ceil(LEGEND_COLUMNS));
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
    canvas.0.encode_png().expect("a picture in memory can be encoded")
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

struct Canvas(Pixmap);

impl Canvas {
    fn new(legend_rows: usize) -> Self {
        let height = LEGEND_TOP + LEGEND_STEP * legend_rows as f32 + 10.0;
        let mut pixels = Pixmap::new(WIDTH as u32, height as u32).expect("the size is not zero");
        pixels.fill(Color::WHITE);
        Self(pixels)
    }

    fn axes(&mut self, axis: &Axis, unit: Unit, runs: usize) {
        for tick in axis.ticks() {
            let y = axis.y(tick);
            for area in [RUNS, DISTRIBUTION] {
                self.line((area.left, y), (area.right, y), GRID, 1.0);
            }
            self.text_before((RUNS.left - 8.0, y - TEXT_HEIGHT / 2.0), &unit.number(tick), INK);
        }
        self.text_before((RUNS.left - 8.0, TOP - 30.0), unit.name, INK);
        for area in [RUNS, DISTRIBUTION] {
            self.line((area.left, TOP), (area.left, BOTTOM), INK, 1.0);
            self.line((area.left, BOTTOM), (area.right, BOTTOM), INK, 1.0);
        }
        self.text((RUNS.left, BOTTOM + 8.0), "run 1", INK);
        self.text_before((RUNS.right, BOTTOM + 8.0), &format!("run {runs}"), INK);
        self.text((DISTRIBUTION.left, BOTTOM + 8.0), "quartiles, median, all runs", INK);
    }

    fn runs(&mut self, series: &Series, axis: &Axis) {
        let step = (RUNS.right - RUNS.left) / series.times.len() as f32;
        for (at, &time) in series.times.iter().enumerate() {
            self.dot((RUNS.left + (at as f32 + 0.5) * step, axis.y(time)), series.colour, 255);
        }
        let y = axis.y(series.summary.median);
        self.line((RUNS.left, y), (RUNS.right, y), series.colour, 1.5);
    }

    fn distribution(&mut self, series: &Series, axis: &Axis, at: usize, count: usize) {
        let slot = (DISTRIBUTION.right - DISTRIBUTION.left) / count as f32;
        let middle = DISTRIBUTION.left + (at as f32 + 0.5) * slot;
        let half = (slot * 0.3).min(60.0);
        let Interval { low, high } = series.summary.quartiles;
        self.area((middle - half, axis.y(high)), (middle + half, axis.y(low)), series.colour, 60);
        for (run, &time) in series.times.iter().enumerate() {
            // Spreads the dots, so that equal times stay visible.
            let aside = ((run * 7 % 11) as f32 / 10.0 - 0.5) * half;
            self.dot((middle + aside, axis.y(time)), series.colour, 120);
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
            let fits = ((width - 30.0) / letter_width()) as usize - text.chars().count();
            self.dot((x, y + TEXT_HEIGHT / 2.0), it.colour, 255);
            self.text((x + 12.0, y), &format!("{}{text}", shortened(&it.name, fits)), INK);
        }
    }

    fn dot(&mut self, (x, y): (f32, f32), colour: [u8; 3], alpha: u8) {
        let Some(circle) = PathBuilder::from_circle(x, y, 3.5) else { return };
        self.0.fill_path(&circle, &paint(colour, alpha), FillRule::Winding, Transform::identity(), None);
    }

    fn line(&mut self, from: (f32, f32), to: (f32, f32), colour: [u8; 3], width: f32) {
        let mut path = PathBuilder::new();
        path.move_to(from.0, from.1);
        path.line_to(to.0, to.1);
        let Some(path) = path.finish() else { return };
        let stroke = Stroke { width, ..Stroke::default() };
        self.0.stroke_path(&path, &paint(colour, 255), &stroke, Transform::identity(), None);
    }

    fn area(&mut self, from: (f32, f32), to: (f32, f32), colour: [u8; 3], alpha: u8) {
        // All values may be equal.
        let Some(rect) = Rect::from_ltrb(from.0, from.1, to.0, to.1.max(from.1 + 1.0)) else { return };
        self.0.fill_rect(rect, &paint(colour, alpha), Transform::identity(), None);
    }

    /// Draws text that ends at `x`.
    fn text_before(&mut self, (x, y): (f32, f32), text: &str, colour: [u8; 3]) {
        self.text((x - text.chars().count() as f32 * letter_width(), y), text, colour);
    }

    fn text(&mut self, (x, y): (f32, f32), text: &str, colour: [u8; 3]) {
        for (at, letter) in text.chars().enumerate() {
            let raster = |letter| get_raster(letter, FontWeight::Regular, RasterHeight::Size16);
            let Some(letter) = raster(letter).or_else(|| raster('?')) else { continue };
            let left = (x + at as f32 * letter_width()) as i32;
            for (row, line) in letter.rows().enumerate() {
                for (column, &strength) in line.iter().enumerate() {
                    self.ink(left + column as i32, y as i32 + row as i32, colour, strength);
                }
            }
        }
    }

    /// Mixes ink of a strength from 0 to 255 into a pixel.
    fn ink(&mut self, x: i32, y: i32, colour: [u8; 3], strength: u8) {
        let (width, height) = (self.0.width() as i32, self.0.height() as i32);
        if strength == 0 || !(0..width).contains(&x) || !(0..height).contains(&y) {
            return;
        }
        let pixel = &mut self.0.pixels_mut()[(y * width + x) as usize];
        let part = u32::from(strength);
        let mix = |old: u8, new: u8| ((u32::from(old) * (255 - part) + u32::from(new) * part) / 255) as u8;
        let [red, green, blue] = colour;
        let mixed = [mix(pixel.red(), red), mix(pixel.green(), green), mix(pixel.blue(), blue)];
        if let Some(mixed) = PremultipliedColorU8::from_rgba(mixed[0], mixed[1], mixed[2], 255) {
            *pixel = mixed;
        }
    }
}

fn letter_width() -> f32 {
    get_raster_width(FontWeight::Regular, RasterHeight::Size16) as f32
}

fn paint(colour: [u8; 3], alpha: u8) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(colour[0], colour[1], colour[2], alpha);
    paint
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

    fn picture(times_ms: &[&[f64]]) -> Pixmap {
        let commands = (0..times_ms.len()).map(|at| vec![format!("./bench-{at}"), "x".repeat(at * 90)]).collect();
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
        let measured =
            Measurement { job: JobId(1), node: "n1".to_owned(), plan: &plan, runs, certificate: None, attempts: 1 };
        Pixmap::decode_png(&png(&[measured])).expect("it is a PNG file")
    }

    /// Number of pixels with exactly this colour between two columns.
    fn count(picture: &Pixmap, colour: [u8; 3], columns: std::ops::Range<u32>) -> usize {
        let is_it = |x: u32, y: u32| picture.pixel(x, y).is_some_and(|it| [it.red(), it.green(), it.blue()] == colour);
        columns.flat_map(|x| (0..picture.height()).map(move |y| (x, y))).filter(|&(x, y)| is_it(x, y)).count()
    }

    #[test]
    fn each_command_has_dots_and_a_box() {
        let picture = picture(&[&[10.0, 10.1, 10.2, 10.4, 12.0, 10.1], &[14.0, 14.2, 14.1, 14.3, 14.0, 14.4]]);
        assert_eq!((picture.width(), picture.height()), (1200, 564));
        let middle = ((RUNS.left + RUNS.right) / 2.0) as u32;
        for colour in &COLOURS[..2] {
            for columns in [RUNS.left as u32..middle, middle..RUNS.right as u32, 820..1170] {
                assert!(count(&picture, *colour, columns.clone()) > 50, "{colour:?} {columns:?}");
            }
        }
        assert_eq!(count(&picture, COLOURS[2], 0..1200), 0);
        assert!(count(&picture, INK, 0..RUNS.left as u32) > 50, "the axis has numbers");
    }

    #[test]
    fn extreme_values_are_drawn() {
        for times in [&[5.0, 5.0, 5.0][..], &[0.0, 0.0], &[0.001], &[0.001, 9e9]] {
            assert!(count(&picture(&[times]), COLOURS[0], 820..1170) > 0, "{times:?}");
        }
        let many: Vec<f64> = (0..5_000).map(|at| 10.0 + f64::from(at % 50) * 0.01).collect();
        picture(&[many.as_slice(); 9]);
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
