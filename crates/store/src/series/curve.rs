//! Values of several metrics over time, and their stored form.
//!
//! A stored value takes six bytes for minimum, mean and maximum, and one to three for the measured time. The 16 bits of
//! a number are the exponent and the first eight bits of the fraction, so it is exact to 0.2 %. Neighbouring values are
//! alike, so differences and zstd make most values shorter.

use std::collections::BTreeMap;

use hostler_model::{Bucket, Figures, Metric};
use serde_bytes::ByteBuf;

/// Code of the largest value.
const LARGEST: u16 = 0xF000;

/// Level of zstd. Higher levels do not make such small inputs shorter.
const LEVEL: i32 = 3;

/// Maximum size of a decompressed block, more than that of 240 values of all metrics.
const MAX_BLOCK_BYTES: usize = 128 << 10;

/// Values of several metrics in consecutive slots of equal width.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Start of the first slot, in minutes since the Unix epoch.
    pub start: u64,
    /// Width of a slot in minutes, at least 1.
    pub width: u64,
    /// Number of slots.
    pub len: usize,
    /// One value per slot; `None` where nothing was measured.
    pub columns: BTreeMap<Metric, Vec<Option<Bucket>>>,
}

impl Curve {
    /// Creates a curve without values.
    pub fn new(start: u64, width: u64, len: usize) -> Self {
        Self { start, width: width.max(1), len, columns: BTreeMap::new() }
    }

    /// The curve of a single minute.
    pub fn of_minute(minute: u64, figures: &Figures) -> Self {
        let columns = figures.iter().map(|(metric, bucket)| (*metric, vec![Some(*bucket)])).collect();
        Self { start: minute, width: 1, len: 1, columns }
    }

    /// Start of the slot after the last one, in minutes since the Unix epoch.
    pub fn end(&self) -> u64 {
        self.start + self.width * self.len as u64
    }

    /// Merges the values of `other` into the slots that contain the start of their spans. Ignores values outside.
    pub fn absorb(&mut self, other: &Self) {
        for (metric, values) in &other.columns {
            for (at, value) in (0u64..).zip(values) {
                let slot = (other.start + at * other.width).checked_sub(self.start).map(|from| from / self.width);
                let slot = slot.and_then(|slot| usize::try_from(slot).ok()).filter(|slot| *slot < self.len);
                if let (Some(slot), Some(bucket)) = (slot, value) {
                    let column = self.columns.entry(*metric).or_insert_with(|| vec![None; self.len]);
                    bucket.add_to(&mut column[slot]);
                }
            }
        }
    }

    /// Extends the curve to contain `end`, in minutes. Doubles the width of the slots, and merges them in pairs, until
    /// there are at most `most` slots.
    pub fn extend_to(&mut self, end: u64, most: usize) {
        let mut width = self.width;
        let span = end.max(self.end()).saturating_sub(self.start);
        while span.div_ceil(width) > most as u64 {
            width *= 2;
        }
        let mut longer = Self::new(self.start, width, span.div_ceil(width) as usize);
        longer.absorb(self);
        *self = longer;
    }

    /// Number of values, counted over all metrics.
    pub fn values(&self) -> usize {
        self.columns.values().map(|column| column.iter().flatten().count()).sum()
    }

    /// The stored form of a single minute.
    pub(super) fn encode_minute(&self) -> Vec<u8> {
        hostler_proto::encode(&Stored::of(self))
    }

    pub(super) fn decode_minute(start: u64, bytes: &[u8]) -> Option<Self> {
        hostler_proto::decode::<Stored>(bytes).ok()?.curve(start, 1)
    }

    /// The stored form of a block: like a minute's, compressed.
    pub(super) fn encode(&self) -> Vec<u8> {
        zstd::bulk::compress(&self.encode_minute(), LEVEL).expect("the destination has the size of the worst case")
    }

    pub(super) fn decode(start: u64, width: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = zstd::bulk::decompress(bytes, MAX_BLOCK_BYTES).ok()?;
        hostler_proto::decode::<Stored>(&bytes).ok()?.curve(start, width)
    }
}

/// The stored form of a curve.
#[derive(serde::Serialize, serde::Deserialize)]
struct Stored {
    slots: u32,
    columns: BTreeMap<Metric, ByteBuf>,
}

impl Stored {
    fn of(curve: &Curve) -> Self {
        let columns = curve.columns.iter().map(|(metric, values)| (*metric, ByteBuf::from(pack(values)))).collect();
        Self { slots: curve.len as u32, columns }
    }

    fn curve(self, start: u64, width: u64) -> Option<Curve> {
        let len = usize::try_from(self.slots).ok()?;
        let columns = self.columns.into_iter().map(|(metric, bytes)| Some((metric, unpack(&bytes, len)?)));
        Some(Curve { start, width, len, columns: columns.collect::<Option<_>>()? })
    }
}

/// Encodes a column: differences of the means, distances of the mean from minimum and maximum, and measured times, which
/// are 0 in gaps. The high bytes of each come before the low bytes, because the high bytes are alike.
fn pack(values: &[Option<Bucket>]) -> Vec<u8> {
    let mut last = 0u16;
    let mut codes: [Vec<u16>; 3] = Default::default();
    let mut times = Vec::new();
    for value in values {
        let three = value.map_or([0; 3], |bucket| {
            let [min, mean, max] = [bucket.min, bucket.mean, bucket.max].map(shorten);
            let difference = zigzag(mean.wrapping_sub(last));
            last = mean;
            [difference, mean.saturating_sub(min), max.saturating_sub(mean)]
        });
        put_number(&mut times, value.map_or(0, |bucket| bucket.seconds.max(1)));
        codes.iter_mut().zip(three).for_each(|(column, code)| column.push(code));
    }
    let halves = codes.iter().flat_map(|column| {
        let high = column.iter().map(|code| (code >> 8) as u8);
        high.chain(column.iter().map(|code| *code as u8))
    });
    halves.chain(times).collect()
}

/// Decodes a column of `len` values; `None` if it is damaged.
fn unpack(bytes: &[u8], len: usize) -> Option<Vec<Option<Bucket>>> {
    let (codes, mut times) = bytes.split_at_checked(len.checked_mul(6)?)?;
    let code = |column: usize, at: usize| {
        u16::from_be_bytes([codes[2 * column * len + at], codes[(2 * column + 1) * len + at]])
    };
    let mut last = 0u16;
    let mut values = Vec::with_capacity(len);
    for at in 0..len {
        let seconds = take_number(&mut times)?;
        values.push((seconds > 0).then(|| {
            last = last.wrapping_add(unzigzag(code(0, at)));
            let (min, max) = (last.saturating_sub(code(1, at)), last.saturating_add(code(2, at)));
            let [min, mean, max] = [min, last, max].map(|code| lengthen(code.min(LARGEST)));
            Bucket { min, mean, max, seconds }
        }));
    }
    Some(values)
}

/// Rounds a value that is not negative to 16 bits.
fn shorten(value: f32) -> u16 {
    let bits = value.max(0.0).to_bits() & 0x7FFF_FFFF;
    u16::try_from((bits + 0x4000) >> 15).unwrap_or(LARGEST).min(LARGEST)
}

fn lengthen(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 15)
}

/// Maps small differences in both directions to small numbers.
fn zigzag(difference: u16) -> u16 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 15)).cast_unsigned()
}

fn unzigzag(number: u16) -> u16 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

fn put_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(first & 0x7F).checked_shl(shift)?;
        if first < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket() -> impl Strategy<Value = Option<Bucket>> {
        let value = prop_oneof![Just(0.0f32), 0.0f32..1.0, 0.0f32..1e6, 0.0f32..1e15];
        let some = (value.clone(), value.clone(), value, 1u32..1_000_000).prop_map(|(a, b, c, seconds)| {
            let mut all = [a, b, c];
            all.sort_by(f32::total_cmp);
            let [min, mean, max] = all;
            Bucket { min, mean, max, seconds }
        });
        prop_oneof![1 => Just(None), 4 => some.prop_map(Some)]
    }

    fn curve(most: usize) -> impl Strategy<Value = Curve> {
        (1..most).prop_flat_map(|len| {
            let columns = prop::collection::btree_map(
                prop::sample::select(Metric::ALL.to_vec()),
                prop::collection::vec(bucket(), len),
                0..4,
            );
            (0u64..1 << 30, columns).prop_map(move |(start, columns)| Curve { start, width: 1, len, columns })
        })
    }

    fn close(one: f32, other: f32) -> bool {
        (one - other).abs() <= one.abs() * 0.002 + f32::MIN_POSITIVE
    }

    proptest! {
        #[test]
        fn stored_values_are_exact_to_a_fifth_of_a_percent(curve in curve(60)) {
            let bytes = curve.encode();
            let read = Curve::decode(curve.start, 1, &bytes).expect("just encoded");
            prop_assert_eq!(read.len, curve.len);
            for (metric, values) in &curve.columns {
                for (one, other) in values.iter().zip(&read.columns[metric]) {
                    match (one, other) {
                        (Some(one), Some(other)) => {
                            prop_assert!(close(one.min, other.min) && close(one.mean, other.mean), "{one:?} {other:?}");
                            prop_assert!(close(one.max, other.max) && one.seconds == other.seconds);
                            prop_assert!(other.is_valid());
                        }
                        (one, other) => prop_assert_eq!(one, other),
                    }
                }
            }
            prop_assert_eq!(&Curve::decode(curve.start, 1, &read.encode()), &Some(read.clone()), "stored again, nothing changes");
        }

        #[test]
        fn extending_keeps_extremes_and_time(curve in curve(200), more in 0u64..100_000, most in 1usize..240) {
            let mut longer = curve.clone();
            longer.extend_to(curve.end() + more, most);
            prop_assert!(longer.len <= most && longer.end() >= curve.end() + more);
            prop_assert!(longer.width.is_power_of_two());
            for (metric, values) in &curve.columns {
                let all = |of: &[Option<Bucket>]| of.iter().flatten().copied().reduce(Bucket::merge);
                let Some(before) = all(values) else { continue };
                let after = all(&longer.columns[metric]).expect("nothing is lost");
                prop_assert_eq!((before.min, before.max, before.seconds), (after.min, after.max, after.seconds));
            }
        }

        #[test]
        fn damaged_blocks_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..60) {
            let _ = Curve::decode(0, 1, &bytes);
            let _ = Curve::decode_minute(0, &bytes);
            let _ = unpack(&bytes, len);
        }
    }

    #[test]
    fn values_take_at_most_seven_bytes_before_compression() {
        let values = vec![Some(Bucket { min: 0.0, mean: 3.3e20, max: 1e38, seconds: 60 }); 60];
        assert_eq!(pack(&values).len(), 60 * 7);
        assert_eq!(unpack(&pack(&[None, None]), 2), Some(vec![None, None]));
    }
}
