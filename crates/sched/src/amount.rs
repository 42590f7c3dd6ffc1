//! Arithmetic on amounts of resources. A [`Request`] represents requested, total and free amounts alike.

use hostler_model::Request;

pub(crate) const NOTHING: Request = Request::NOTHING;

/// Returns how many times `wanted` fits into `have`.
pub(crate) fn times(have: &Request, wanted: &Request) -> u32 {
    let times = wanted.pairs(have).filter_map(|(wanted, have)| have.checked_div(wanted)).min();
    times.and_then(|times| u32::try_from(times).ok()).unwrap_or(u32::MAX)
}

/// Multiplies the amount of each resource by `count`; saturates.
pub(crate) fn scaled(one: &Request, count: u32) -> Request {
    one.zip(one, |amount, _| amount.saturating_mul(count.into()))
}

/// Adds the amounts of each resource; saturates.
pub(crate) fn sum(a: &Request, b: &Request) -> Request {
    a.zip(b, u64::saturating_add)
}

/// Subtracts `b` from `a`, with zero where `b` is larger: what remains of `a`, or what `b` lacks of `a`.
pub(crate) fn without(a: &Request, b: &Request) -> Request {
    a.zip(b, u64::saturating_sub)
}

/// Limits the amount of each resource to its amount in `limit`.
pub(crate) fn at_most(a: &Request, limit: &Request) -> Request {
    a.zip(limit, u64::min)
}

/// Returns how much `have` lacks of `wanted`: the missing share of the scarcest resource, in millionths of the wanted
/// amount. Zero if nothing is missing.
pub(crate) fn distance(have: &Request, wanted: &Request) -> u32 {
    let missing = wanted.pairs(have).map(|(wanted, have)| millionths(wanted.saturating_sub(have), wanted));
    missing.max().unwrap_or(0)
}

/// Returns `part / whole` in millionths, rounded up, so that only zero gives zero.
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
