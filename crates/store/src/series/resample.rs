//! Curves in the resolution that a reader asks for.

use super::Curve;

/// Merges curves of one subject into a single curve over a span, in minutes since the Unix epoch, with at most `most`
/// slots. No slot is narrower than the widest stored value, so a slot without values is a gap. The span ends where the
/// curves end.
#[must_use]
pub fn resample(curves: &[Curve], from: u64, to: u64, most: usize) -> Curve {
    let begin = curves.iter().map(|curve| curve.start).min().unwrap_or(from).max(from);
    let end = curves.iter().map(Curve::end).max().unwrap_or(begin).min(to).max(begin);
    let widest = curves.iter().map(|curve| curve.width).max().unwrap_or(1);
    // Slots begin where the widest values begin.
    let offset = curves.iter().find(|curve| curve.width == widest).map_or(0, |curve| curve.start % widest);
    let mut width = widest;
    let (start, len) = loop {
        let start = begin.saturating_sub(offset) / width * width + offset;
        let start = if start > begin { start.saturating_sub(width) } else { start };
        let len = end.saturating_sub(start).div_ceil(width);
        if len <= most.max(1) as u64 {
            break (start, len as usize);
        }
        width = (len.div_ceil(most.max(1) as u64) * width).max(width + widest);
    };
    let mut whole = Curve::new(start, width, len);
    curves.iter().for_each(|curve| whole.absorb(curve));
    whole
}

#[cfg(test)]
mod tests {
    use hostler_model::{Bucket, Figures, Metric};
    use proptest::prelude::*;

    use super::*;

    fn minute(at: u64) -> Curve {
        Curve::of_minute(at, &Figures::from([(Metric::Cpu, Bucket::of(at as f32, 60))]))
    }

    fn seconds(curve: &Curve) -> u32 {
        curve.columns.values().flatten().flatten().map(|bucket| bucket.seconds).sum()
    }

    proptest! {
        #[test]
        fn slots_are_few_enough_and_lose_nothing(start in 0u64..10_000, len in 1u64..2_000, most in 1usize..400) {
            let curves: Vec<Curve> = (start..start + len).map(minute).collect();
            let whole = resample(&curves, 0, u64::MAX, most);
            prop_assert!(whole.len <= most && whole.start <= start && whole.end() >= start + len);
            prop_assert_eq!(u64::from(seconds(&whole)), 60 * len);
            let slots = &whole.columns[&Metric::Cpu];
            let has_gap = slots.iter().any(Option::is_none);
            prop_assert!(!has_gap, "{} slots of {}", whole.len, whole.width);
        }

        #[test]
        fn wide_blocks_leave_no_gaps(offset in 0u64..500, extra in 0u64..100, most in 1usize..400) {
            let mut block = Curve::new(1_000 + offset, 8, 100);
            for at in block.start..block.end() {
                block.absorb(&minute(at));
            }
            let end = block.end();
            let mut curves = vec![block];
            curves.extend((end..end + extra).map(minute));
            let whole = resample(&curves, 0, u64::MAX, most);
            prop_assert!(whole.len <= most && whole.columns[&Metric::Cpu].iter().all(Option::is_some));
            prop_assert_eq!(u64::from(seconds(&whole)), 60 * (800 + extra));
        }
    }

    #[test]
    fn gaps_stay_gaps_and_spans_are_cut() {
        let curves: Vec<Curve> = [0, 1, 2, 7, 8].map(minute).into();
        let whole = resample(&curves, 1, 8, 300);
        let values: Vec<Option<f32>> =
            whole.columns[&Metric::Cpu].iter().map(|bucket| bucket.map(|bucket| bucket.mean)).collect();
        assert_eq!((whole.start, values), (1, vec![Some(1.0), Some(2.0), None, None, None, None, Some(7.0)]));
        assert_eq!(resample(&[], 5, 9, 300).len, 0);
        assert_eq!(resample(&curves, 20, 30, 300).len, 0);
        assert_eq!(resample(&curves, 8, 3, 300).len, 0);
    }
}
