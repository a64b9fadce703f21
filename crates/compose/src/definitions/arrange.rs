//! How much of a disk each partition gets.

use super::{FIRST, GRAIN, TAIL};
use seekless_units::ByteLen;

/// The limits of one partition or of free space, in bytes, multiples of [`GRAIN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Demand {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) weight: u32,
}

/// Where partitions lie, and how long the disk is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arrangement {
    /// The first byte and the length of each partition.
    pub(super) places: Vec<(ByteLen, ByteLen)>,
    /// Bytes of the disk.
    pub(super) disk: ByteLen,
}

/// A disk that is too small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooSmall {
    /// Bytes that would do.
    pub(super) needed: u64,
}

/// Distributes a disk, by default the smallest, over partitions, each with the free space behind it.
///
/// Space beyond the least sizes is shared by weight. A partition whose share is below its least size
/// or above its most gets that size, and the others share again (as
/// `context_grow_partitions_on_free_area` of systemd-repart does). Space that is left over is added
/// to the first partitions.
///
/// # Errors
/// [`TooSmall`] for a disk that does not hold the least sizes.
pub(super) fn arrange(
    demands: &[(Demand, Demand)],
    disk: Option<ByteLen>,
) -> Result<Arrangement, TooSmall> {
    let flat: Vec<Demand> = demands.iter().flat_map(|&(part, padding)| [part, padding]).collect();
    let least = flat.iter().try_fold(FIRST, |sum, demand| sum.checked_add(demand.least));
    let round = least.and_then(|least| least.checked_add(FIRST));
    let (least, round) = least.zip(round).ok_or(TooSmall { needed: u64::MAX })?;
    let (disk, end) = match disk.map(ByteLen::get) {
        None => (round, Some(least)),
        Some(disk) => (disk, disk.checked_sub(TAIL).map(|end| end / GRAIN * GRAIN)),
    };
    let Some(end) = end.filter(|&end| end >= least) else {
        return Err(TooSmall { needed: round });
    };
    let sizes = share(&flat, end - FIRST);
    let mut at = FIRST;
    let mut places = Vec::with_capacity(demands.len());
    for pair in sizes.chunks_exact(2) {
        places.push((ByteLen::new(at), ByteLen::new(pair[0])));
        at += pair[0] + pair[1];
    }
    Ok(Arrangement { places, disk: ByteLen::new(disk) })
}

/// Shares `space` bytes, at least the sum of all least sizes, between partitions and the free space
/// behind each, in turn.
fn share(demands: &[Demand], space: u64) -> Vec<u64> {
    let mut sizes: Vec<Option<u64>> = vec![None; demands.len()];
    let mut left = Left { space, weights: demands.iter().map(|it| u64::from(it.weight)).sum() };
    loop {
        let open = || demands.iter().enumerate().filter(|(at, _)| sizes[*at].is_none());
        let short = open().find(|(_, demand)| left.share(demand) < demand.least);
        let long = || open().find(|(_, demand)| left.share(demand) > demand.most);
        let (at, size) = match (short, long()) {
            (Some((at, demand)), _) => (at, demand.least),
            (None, Some((at, demand))) => (at, demand.most),
            (None, None) => break,
        };
        left.take(&demands[at], size);
        sizes[at] = Some(size);
    }
    // The remainder that rounding leaves of one is the next one's.
    let size_of = |(size, demand): (Option<u64>, &Demand)| {
        size.unwrap_or_else(|| {
            let size = left.share(demand) / GRAIN * GRAIN;
            left.take(demand, size);
            size
        })
    };
    let mut sizes: Vec<u64> = sizes.into_iter().zip(demands).map(size_of).collect();
    // Space without an owner is given to the first partitions that may be larger.
    for (size, demand) in sizes.iter_mut().zip(demands).step_by(2) {
        let more = (demand.most - *size).min(left.space / GRAIN * GRAIN);
        *size += more;
        left.space -= more;
    }
    sizes
}

/// Space that has no owner yet, and the weights of those that share it.
struct Left {
    space: u64,
    weights: u64,
}

impl Left {
    fn share(&self, demand: &Demand) -> u64 {
        match self.weights {
            0 => 0,
            weights => {
                let part = u128::from(self.space) * u128::from(demand.weight) / u128::from(weights);
                u64::try_from(part).expect("a part of 64 bits")
            }
        }
    }

    fn take(&mut self, demand: &Demand, size: u64) {
        self.space = self.space.checked_sub(size).expect("the least sizes fit");
        self.weights -= u64::from(demand.weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::for_all;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::{Just, Strategy, any, prop_oneof};

    const M: u64 = 1 << 20;

    fn demand(least: u64, most: u64, weight: u32) -> Demand {
        Demand { least: least * M, most: if most == u64::MAX { most } else { most * M }, weight }
    }

    const NONE: Demand = Demand { least: 0, most: u64::MAX, weight: 0 };

    fn sizes(demands: &[Demand], disk: Option<u64>) -> Result<Vec<u64>, u64> {
        let pairs: Vec<_> = demands.iter().map(|&demand| (demand, NONE)).collect();
        // With the last megabyte whole, beside the copy of the table.
        let disk = disk.map(|disk| ByteLen::new(disk * M + 5 * GRAIN));
        let arranged = arrange(&pairs, disk);
        let arranged = arranged.map_err(|small| small.needed / M)?;
        let mut end = M;
        for (start, len) in &arranged.places {
            assert_eq!(start.get(), end);
            end += len.get();
        }
        assert!(end + TAIL <= arranged.disk.get());
        Ok(arranged.places.iter().map(|(_, len)| len.get() / M).collect())
    }

    #[test]
    fn space_is_shared_by_weight_within_the_limits() {
        let free = demand(10, u64::MAX, 1000);
        assert_eq!(sizes(&[free, free], None), Ok(vec![10, 10]));
        assert_eq!(sizes(&[free, free], Some(101)), Ok(vec![50, 50]));
        assert_eq!(sizes(&[free, demand(10, u64::MAX, 3000)], Some(101)), Ok(vec![25, 75]));
        assert_eq!(sizes(&[demand(10, 20, 1000), free], Some(101)), Ok(vec![20, 80]));
        assert_eq!(sizes(&[demand(70, u64::MAX, 1000), free], Some(101)), Ok(vec![70, 30]));
        assert_eq!(sizes(&[demand(10, u64::MAX, 0), free], Some(101)), Ok(vec![10, 90]));
        assert_eq!(
            sizes(&[demand(10, u64::MAX, 0), demand(10, 10, 1)], Some(101)),
            Ok(vec![90, 10])
        );
        assert_eq!(sizes(&[demand(10, 10, 0)], Some(101)), Ok(vec![10]));
        assert_eq!(sizes(&[free, free], Some(20)), Err(22));
        // What one cannot take is the others'.
        let three = [demand(10, 20, 1000), demand(60, u64::MAX, 1000), free];
        assert_eq!(sizes(&three, Some(121)), Ok(vec![20, 60, 40]));
    }

    #[test]
    fn free_space_takes_part() {
        let pairs =
            [(demand(10, u64::MAX, 1000), demand(0, u64::MAX, 1000)), (demand(10, 10, 0), NONE)];
        let arranged = arrange(&pairs, Some(ByteLen::new(111 * M + 5 * GRAIN))).expect("room");
        let places = [(M, 50 * M), (101 * M, 10 * M)];
        assert_eq!(arranged.places, places.map(|(at, len)| (ByteLen::new(at), ByteLen::new(len))));
    }

    /// Sizes as definitions may have them, the largest too.
    #[test]
    fn any_demands_are_met_or_too_large() {
        let ends = [0, 1, 2, 2559, u64::MAX / GRAIN - 300, u64::MAX / GRAIN];
        let size = prop_oneof![
            any::<u64>().prop_map(|n| n % (1 << 20)),
            any::<usize>().prop_map(move |n| ends[n % ends.len()])
        ];
        let weight = prop_oneof![Just(0), 0..=1_000_000u32, Just(1_000_000)];
        let one = (size.clone(), option::of(size.clone()), weight).prop_map(|(a, b, weight)| {
            let least = b.map_or(a, |b| a.min(b)) * GRAIN;
            let most = b.map_or(u64::MAX, |b| a.max(b) * GRAIN);
            Demand { least, most, weight }
        });
        let all = (vec((one.clone(), one), 1..6), option::of(size.prop_map(|size| size * GRAIN)));
        for_all(2000, all, |(demands, disk)| {
            let disk = disk.map(ByteLen::new);
            let Ok(arranged) = arrange(&demands, disk) else { return };
            assert!(disk.is_none_or(|disk| disk == arranged.disk));
            let mut end = FIRST;
            for ((part, padding), (start, len)) in demands.iter().zip(&arranged.places) {
                assert!(start.get() >= end && len.get() >= part.least && len.get() <= part.most);
                end = start.get() + len.get() + padding.least;
            }
            assert!(end <= arranged.disk.get());
        });
    }
}
