//! How much of the cluster a user holds.

use hostler_model::Request;

/// A [`Share`] that is everything.
const WHOLE: u128 = 1_000_000_000;

/// Sums of resources: what a user holds, or what all nodes have.
///
/// Counted resources are left out: a user with the only licence would hold all of it, and then have the last turn for everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    cpus: u128,
    memory_bytes: u128,
    gpus: u128,
}

/// The dominant share: the largest of a user's shares in all CPUs, all memory and all GPUs, in billionths.
///
/// One number can then compare a user of CPUs with a user of GPUs, whatever the nodes are like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u64);

impl Holding {
    /// Adds a request several times.
    pub fn add(&mut self, one: &Request, times: u64) {
        let Request { cpus, memory_bytes, gpus, counted: _ } = one;
        self.cpus += u128::from(*cpus) * u128::from(times);
        self.memory_bytes += u128::from(*memory_bytes) * u128::from(times);
        self.gpus += u128::from(*gpus) * u128::from(times);
    }

    /// Subtracts a request that was added.
    pub fn remove(&mut self, one: &Request) {
        self.cpus -= u128::from(one.cpus);
        self.memory_bytes -= u128::from(one.memory_bytes);
        self.gpus -= u128::from(one.gpus);
    }

    /// Returns the sum of two holdings.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            cpus: self.cpus + other.cpus,
            memory_bytes: self.memory_bytes + other.memory_bytes,
            gpus: self.gpus + other.gpus,
        }
    }

    /// Returns the dominant share of this in `all`. Resources that nobody has do not count.
    #[must_use]
    pub fn share_of(&self, all: &Self) -> Share {
        let pairs = [(self.cpus, all.cpus), (self.memory_bytes, all.memory_bytes), (self.gpus, all.gpus)];
        let shares = pairs.into_iter().filter_map(|(held, all)| held.saturating_mul(WHOLE).checked_div(all));
        Share(shares.max().map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX)))
    }
}

impl Share {
    /// Larger than the share of any user.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns how many tasks with a share of `each` may start one after the other before this share exceeds `other`: at least one.
    #[must_use]
    pub fn tasks_until(self, other: Self, each: Self) -> u64 {
        other.0.saturating_sub(self.0).checked_div(each.0).unwrap_or(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(cpus: u32, memory_bytes: u64, gpus: u32) -> Holding {
        let mut holding = Holding::default();
        holding.add(&Request { gpus, ..Request::new(cpus, memory_bytes) }, 1);
        holding
    }

    #[test]
    fn share_is_that_of_the_resource_of_which_the_user_holds_most() {
        let all = holding(100, 1000, 4);
        assert_eq!(holding(20, 100, 0).share_of(&all), Share(200_000_000));
        assert_eq!(holding(20, 300, 0).share_of(&all), Share(300_000_000));
        assert!(holding(1, 1, 2).share_of(&all) > holding(49, 490, 1).share_of(&all));
        assert_eq!(holding(20, 300, 9).share_of(&holding(100, 1000, 0)), Share(300_000_000));
        assert_eq!(holding(1, 1, 1).share_of(&Holding::default()), Share(0));
        // Nodes that have gone may have had more than all that are left.
        assert_eq!(holding(9, u64::MAX, 0).share_of(&holding(1, 1, 0)), Share(u64::MAX));
        let mut two = holding(2, 2, 2);
        two.add(&Request::new(1, 1), 3);
        two.remove(&Request { gpus: 2, ..Request::new(4, 4) });
        assert_eq!(two, holding(1, 1, 0));
        assert_eq!(two.with(&two), holding(2, 2, 0));
    }

    #[test]
    fn tasks_start_until_the_user_holds_as_much_as_the_next() {
        let share = |cpus| holding(cpus, 0, 0).share_of(&holding(24, 0, 0));
        assert_eq!(share(2).tasks_until(share(8), share(2)), 3);
        assert_eq!(share(2).tasks_until(share(7), share(2)), 2);
        assert_eq!(share(8).tasks_until(share(8), share(1)), 1);
        assert_eq!(share(9).tasks_until(share(8), share(1)), 1);
        assert_eq!(share(0).tasks_until(share(8), Share(0)), 1);
    }
}
