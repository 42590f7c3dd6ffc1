//! Statistics of run times. Pure and deterministic.
//!
//! Run times are skewed and have outliers, so everything here is based on ranks: medians, order statistics, rank tests. No
//! value is ever left out.

/// Fewest values for a 95 % confidence interval of the median.
pub(super) const FEWEST_FOR_INTERVAL: usize = 6;

/// Fewest values in each half for the test of drift.
const FEWEST_FOR_DRIFT: usize = 6;

/// Probability below which a difference between the two halves counts as drift.
const DRIFT_PROBABILITY: f64 = 0.01;

/// Number of resamples of the bootstrap.
const RESAMPLES: usize = 2_000;

/// A closed interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// What is known about the run times of one command.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// 95 % confidence interval of the median; `None` for fewer than [`FEWEST_FOR_INTERVAL`] values.
    pub(super) interval: Option<Interval>,
    pub(super) least: f64,
    pub(super) most: f64,
    /// First and third quartile.
    pub(super) quartiles: Interval,
    /// Median absolute deviation from the median.
    pub(super) deviation: f64,
    /// Positions of the values that are more than 1.5 times the interquartile range outside of the quartiles.
    pub(super) outliers: Vec<usize>,
    /// Median of the second half divided by the median of the first half, if the halves differ more than chance explains.
    pub(super) drift: Option<f64>,
}

/// Summarises values in the order in which they were measured. `None` without values.
pub(super) fn summarise(values: &[f64]) -> Option<Summary> {
    let sorted = sorted(values);
    let (&least, &most) = (sorted.first()?, sorted.last()?);
    let median = quantile(&sorted, 0.5);
    let quartiles = Interval { low: quantile(&sorted, 0.25), high: quantile(&sorted, 0.75) };
    let range = quartiles.high - quartiles.low;
    let is_far = |value: f64| value < quartiles.low - 1.5 * range || value > quartiles.high + 1.5 * range;
    Some(Summary {
        median,
        interval: median_interval(&sorted, 0.05),
        least,
        most,
        quartiles,
        deviation: median_of(values.iter().map(|value| (value - median).abs())),
        outliers: (0..values.len()).filter(|&at| is_far(values[at])).collect(),
        drift: drift(values),
    })
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(&values.collect::<Vec<_>>()), 0.5)
}

/// A quantile of ascending values, with linear interpolation, as NumPy computes it.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// The interval that contains the median of the values' distribution, except with this probability. `None` with too few values.
pub(super) fn median_within(values: &[f64], error: f64) -> Option<Interval> {
    median_interval(&sorted(values), error)
}

/// The narrowest pair of order statistics, symmetric by rank, that contains the median, except with a probability of at most
/// `error`. This holds for every distribution.
fn median_interval(sorted: &[f64], error: f64) -> Option<Interval> {
    let count = sorted.len();
    // The probability that fewer than `rank` of the values are below the median; it grows by terms of the binomial
    // distribution.
    let mut term = 0.5f64.powi(i32::try_from(count).ok()?);
    let (mut below, mut rank) = (0.0, 0);
    while below + term <= error / 2.0 && rank < count / 2 {
        below += term;
        term *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    (rank > 0).then(|| Interval { low: sorted[rank - 1], high: sorted[count - rank] })
}

/// The median of the second half of the values divided by that of the first; `None` if a rank test finds no difference.
fn drift(values: &[f64]) -> Option<f64> {
    let half = values.len() / 2;
    // The middle value of an odd number belongs to neither half.
    let (first, second) = (&values[..half], &values[values.len() - half..]);
    let is_drift = half >= FEWEST_FOR_DRIFT && rank_test(first, second) < DRIFT_PROBABILITY;
    is_drift.then(|| median_of(second.iter().copied()) / median_of(first.iter().copied()))
}

/// The probability of a difference in ranks as large as between these samples, if both are from one distribution: the
/// two-sided Mann-Whitney test, with the normal approximation and the corrections for ties and continuity.
fn rank_test(one: &[f64], other: &[f64]) -> f64 {
    let (n, m) = (one.len() as f64, other.len() as f64);
    let all = sorted(&[one, other].concat());
    let rank = |value: f64| {
        let (from, to) = (all.partition_point(|it| *it < value), all.partition_point(|it| *it <= value));
        (from + to + 1) as f64 / 2.0
    };
    let rank_sum: f64 = one.iter().map(|value| rank(*value)).sum();
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let ties: f64 = all.chunk_by(|a, b| a == b).map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64).sum();
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(distance)).min(1.0)
}

/// The probability that a standard normal variable exceeds `z`, for `z` of at least 0; exact to 1e-7 (Abramowitz and
/// Stegun, 26.2.17).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

/// How one command compares to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Comparison {
    /// Median of the first command divided by the median of the second.
    pub(super) ratio: f64,
    /// 95 % confidence interval of the ratio; `None` for fewer than [`FEWEST_FOR_INTERVAL`] rounds.
    pub(super) interval: Option<Interval>,
}

impl Comparison {
    /// Whether the measurement shows a difference.
    pub(super) fn shows_difference(&self) -> bool {
        self.interval.is_some_and(|Interval { low, high }| low > 1.0 || high < 1.0)
    }
}

/// Compares two commands that ran in rounds: the values at one position are from the same round. The bootstrap draws whole
/// rounds, so that changes of the machine, which affect both commands of a round, cancel out. `None` without values.
pub(super) fn compare(one: &[f64], other: &[f64], seed: u64) -> Option<Comparison> {
    let rounds = one.len().min(other.len());
    let (one, other) = (&one[..rounds], &other[..rounds]);
    if rounds == 0 {
        return None;
    }
    let ratio = median_of(one.iter().copied()) / median_of(other.iter().copied());
    let mut dice = Dice::new(seed);
    let mut resample = || {
        let drawn: Vec<usize> = (0..rounds).map(|_| dice.below(rounds)).collect();
        median_of(drawn.iter().map(|&at| one[at])) / median_of(drawn.iter().map(|&at| other[at]))
    };
    let interval = (rounds >= FEWEST_FOR_INTERVAL).then(|| {
        let ratios = sorted(&(0..RESAMPLES).map(|_| resample()).collect::<Vec<_>>());
        Interval { low: quantile(&ratios, 0.025), high: quantile(&ratios, 0.975) }
    });
    Some(Comparison { ratio, interval })
}

/// Numbers that look random and depend on a seed only (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is at least 1.
    fn below(&mut self, limit: usize) -> usize {
        // The bias is below 2^-40 for all limits here.
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Twenty run times in seconds, and the values that NumPy 2.4 and SciPy 1.17 compute for them.
    const TIMES: [f64; 20] = [
        1.312, 1.287, 1.301, 1.295, 1.333, 1.290, 1.288, 1.299, 1.305, 1.291, 1.284, 1.297, 1.293, 1.309, 1.302, 1.286,
        1.294, 1.451, 1.289, 1.300,
    ];

    fn is_close(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= 1e-6 * expected.abs().max(1e-3)
    }

    #[test]
    fn summary_equals_that_of_numpy() {
        let summary = summarise(&TIMES).expect("there are values");
        let Summary { median, quartiles, deviation, interval, .. } = &summary;
        for (value, expected) in [
            (*median, 1.296),
            (quartiles.low, 1.289_75),
            (quartiles.high, 1.302_75),
            (*deviation, 0.006_5),
            (summary.least, 1.284),
            (summary.most, 1.451),
        ] {
            assert!(is_close(value, expected), "{value} is not {expected}");
        }
        // scipy.stats.binom.ppf(0.025, 20, 0.5) = 6: the 6th and the 15th value.
        assert_eq!(*interval, Some(Interval { low: 1.290, high: 1.302 }));
        assert_eq!(summary.outliers, [4, 17]);
        assert_eq!(summary.drift, None);
    }

    #[test]
    fn interval_of_the_median_uses_the_ranks_of_the_binomial_distribution() {
        // Lower ranks from scipy.stats.binom: the largest r with cdf(r - 1, n, 0.5) <= 0.025.
        for (count, rank) in [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (30, 10), (100, 40), (1000, 469)] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let expected = (rank > 0).then(|| Interval { low: f64::from(rank), high: f64::from(count + 1 - rank) });
            assert_eq!(median_interval(&values, 0.05), expected, "{count} values");
        }
        // scipy.stats.binom.ppf(0.0005, 20, 0.5) = 3: the 3rd and the 18th value.
        let surer = median_within(&TIMES, 0.001).expect("there are enough values");
        assert_eq!(surer, Interval { low: 1.287, high: 1.312 });
        assert_eq!(median_within(&TIMES[..6], 0.025), None, "the probability of six values above the median is 1/64");
    }

    #[test]
    fn rank_test_equals_that_of_scipy() {
        // scipy.stats.mannwhitneyu(one, other, method="asymptotic")
        let cases: [(&[f64], &[f64], f64); 4] = [
            (&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0], 0.012_185_780),
            (&[1.0, 3.0, 5.0, 7.0, 9.0], &[2.0, 4.0, 6.0, 8.0, 10.0], 0.676_103_314),
            (&[1.0, 1.0, 2.0, 2.0, 3.0, 4.0], &[2.0, 3.0, 3.0, 4.0, 5.0, 5.0], 0.072_448_014),
            (&[2.0, 2.0, 2.0], &[2.0, 2.0, 2.0], 1.0),
        ];
        for (one, other, expected) in cases {
            let found = rank_test(one, other);
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
        for (z, expected) in [(0.0, 0.5), (1.0, 0.158_655_253_9), (1.959_963_985, 0.025), (4.0, 3.167_124e-5)] {
            assert!((upper_tail(z) - expected).abs() < 1e-7, "{z}");
        }
    }

    #[test]
    fn drift_is_seen_and_noise_is_not() {
        let rising: Vec<f64> = (0..20).map(|at| 1.0 + f64::from(at) * 0.01).collect();
        let drift = drift(&rising).expect("the later runs are slower");
        assert!(is_close(drift, 1.145 / 1.045), "{drift}");
        let alternating: Vec<f64> = (0..20).map(|at| 1.0 + f64::from(at % 2) * 0.1).collect();
        assert_eq!(super::drift(&alternating), None);
        assert_eq!(super::drift(&rising[..8]), None, "too few runs to tell");
    }

    #[test]
    fn comparison_finds_a_difference_and_its_absence() {
        let slower: Vec<f64> = TIMES.iter().map(|time| time * 1.1).collect();
        let found = compare(&slower, &TIMES, 7).expect("there are values");
        assert!(is_close(found.ratio, 1.1) && found.shows_difference(), "{found:?}");
        let mut turned = TIMES;
        turned.reverse();
        let same = compare(&turned, &TIMES, 7).expect("there are values");
        assert!(is_close(same.ratio, 1.0) && !same.shows_difference(), "{same:?}");
        let few = compare(&TIMES[..5], &slower[..5], 7).expect("there are values");
        assert!(few.interval.is_none() && !few.shows_difference());
        assert_eq!(compare(&[], &[], 7), None);
    }

    fn times() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.001f64..1000.0, 1..60)
    }

    proptest! {
        #[test]
        fn summary_is_ordered_and_scales_with_the_unit(times in times(), factor in 0.01f64..100.0) {
            let summary = summarise(&times).expect("there are values");
            let Summary { median, quartiles, least, most, interval, .. } = &summary;
            prop_assert!(least <= &quartiles.low && quartiles.low <= *median);
            prop_assert!(*median <= quartiles.high && &quartiles.high <= most);
            prop_assert_eq!(interval.is_some(), times.len() >= FEWEST_FOR_INTERVAL);
            if let Some(Interval { low, high }) = interval {
                prop_assert!(low <= median && median <= high && times.contains(low) && times.contains(high));
            }
            let scaled = summarise(&times.iter().map(|time| time * factor).collect::<Vec<_>>()).expect("values");
            prop_assert!(is_close(scaled.median, median * factor));
            prop_assert_eq!(scaled.drift.is_some(), summary.drift.is_some());
        }

        #[test]
        fn rank_test_is_symmetric_and_a_probability(one in times(), other in times()) {
            let (there, back) = (rank_test(&one, &other), rank_test(&other, &one));
            prop_assert!((0.0..=1.0).contains(&there) && (there - back).abs() < 1e-9);
        }
    }

    proptest! {
        // Each case resamples thousands of times.
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn comparison_depends_on_the_seed_only(one in times(), other in times(), seed in any::<u64>()) {
            let found = compare(&one, &other, seed).expect("there are values");
            prop_assert_eq!(compare(&one, &other, seed), Some(found));
            let back = compare(&other, &one, seed).expect("there are values");
            prop_assert!(is_close(found.ratio * back.ratio, 1.0));
            if let Some(Interval { low, high }) = found.interval {
                prop_assert!(low <= high);
            }
        }
    }
}
