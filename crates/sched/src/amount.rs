//! Arithmetic on amounts of resources. A [`Request`] represents requested, total and free amounts alike.

use hostler_model::Request;

pub(crate) const NOTHING: Request = Request::new(0, 0);

/// How many times `wanted` fits into `have`.
pub(crate) fn times(have: &Request, wanted: &Request) -> u32 {
    let by_cpus = have.cpus.checked_div(wanted.cpus).unwrap_or(u32::MAX);
    let by_memory = have.memory_bytes.checked_div(wanted.memory_bytes).unwrap_or(u64::MAX);
    let by_gpus = have.gpus.checked_div(wanted.gpus).unwrap_or(u32::MAX);
    let by_others = by_memory.min(have.counted.times(&wanted.counted));
    by_cpus.min(u32::try_from(by_others).unwrap_or(u32::MAX)).min(by_gpus)
}

/// `count` times `one`; saturates.
pub(crate) fn scaled(one: &Request, count: u32) -> Request {
    Request {
        cpus: one.cpus.saturating_mul(count),
        memory_bytes: one.memory_bytes.saturating_mul(count.into()),
        gpus: one.gpus.saturating_mul(count),
        counted: one.counted.scaled(count.into()),
    }
}

/// The sum; saturates.
pub(crate) fn sum(a: &Request, b: &Request) -> Request {
    Request {
        cpus: a.cpus.saturating_add(b.cpus),
        memory_bytes: a.memory_bytes.saturating_add(b.memory_bytes),
        gpus: a.gpus.saturating_add(b.gpus),
        counted: a.counted.plus(&b.counted),
    }
}

/// The difference `a - b`, zero where `b` is larger: what remains of `a`, or what `b` lacks of `a`.
pub(crate) fn without(a: &Request, b: &Request) -> Request {
    Request {
        cpus: a.cpus.saturating_sub(b.cpus),
        memory_bytes: a.memory_bytes.saturating_sub(b.memory_bytes),
        gpus: a.gpus.saturating_sub(b.gpus),
        counted: a.counted.minus(&b.counted),
    }
}

/// The minimum of each resource.
pub(crate) fn at_most(a: &Request, limit: &Request) -> Request {
    Request {
        cpus: a.cpus.min(limit.cpus),
        memory_bytes: a.memory_bytes.min(limit.memory_bytes),
        gpus: a.gpus.min(limit.gpus),
        counted: a.counted.at_most(&limit.counted),
    }
}

/// How far `have` is from covering `wanted`: the missing share of the scarcest resource, in millionths of `wanted`. Zero when it
/// covers it.
pub(crate) fn distance(have: &Request, wanted: &Request) -> u32 {
    let missing = without(wanted, have);
    let cpus = millionths(missing.cpus.into(), wanted.cpus.into());
    let gpus = millionths(missing.gpus.into(), wanted.gpus.into());
    let counted = missing.counted.iter().map(|(name, count)| millionths(count, wanted.counted.count(name)));
    cpus.max(millionths(missing.memory_bytes, wanted.memory_bytes)).max(gpus).max(counted.max().unwrap_or(0))
}

/// `part` of `whole` in millionths, rounded up so that only zero gives zero.
fn millionths(part: u64, whole: u64) -> u32 {
    let share = (u128::from(part) * 1_000_000).div_ceil(u128::from(whole).max(1));
    u32::try_from(share).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(cpus: u32, memory_bytes: u64) -> Request {
        Request::new(cpus, memory_bytes)
    }

    fn with(counted: &str) -> Request {
        Request { counted: counted.parse().expect("counts"), ..amount(4, 10) }
    }

    #[test]
    fn times_is_limited_by_the_scarcest_resource() {
        assert_eq!(times(&amount(7, 100), &amount(2, 10)), 3);
        assert_eq!(times(&amount(7, 25), &amount(2, 10)), 2);
        assert_eq!(times(&amount(7, 9), &amount(2, 10)), 0);
        assert_eq!(times(&amount(7, u64::MAX), &amount(0, 1)), u32::MAX);
        assert_eq!(times(&NOTHING, &NOTHING), u32::MAX);
        assert_eq!(times(&scaled(&with("a=3"), 4), &with("a=4")), 3);
        assert_eq!(times(&with("a=3"), &with("b")), 0);
    }

    #[test]
    fn distance_is_that_of_the_scarcest_resource() {
        assert_eq!(distance(&amount(4, 10), &amount(4, 10)), 0);
        assert_eq!(distance(&amount(3, 10), &amount(4, 10)), 250_000);
        assert_eq!(distance(&amount(3, 5), &amount(4, 10)), 500_000);
        assert_eq!(distance(&amount(4, u64::MAX - 1), &amount(4, u64::MAX)), 1);
        assert_eq!(distance(&with("a=1,b=3"), &with("a=2,b=4")), 500_000);
        assert_eq!(distance(&with("a=1"), &with("b=1")), 1_000_000);
    }
}
