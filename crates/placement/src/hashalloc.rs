//! The order in which FFS tries groups.

use seekless_units::GroupNo;

/// The order of FFS (`ffs_hashalloc`): the preferred group; then those 1, 2, 4 ... further on, each
/// counted from the previous one; then all, from the second behind the preferred. A group may occur
/// more than once.
pub fn hashalloc(ncg: u32, start: GroupNo) -> impl Iterator<Item = GroupNo> + use<> {
    std::iter::once(start).chain(rehash(ncg, start)).chain(brute_force(ncg, start))
}

/// The groups of the second step.
fn rehash(ncg: u32, start: GroupNo) -> impl Iterator<Item = GroupNo> + use<> {
    let steps = std::iter::successors(Some(1u64), |step| step.checked_mul(2));
    steps.take_while(move |&step| step < u64::from(ncg)).scan(start, move |at, step| {
        *at = wrap(*at, step, ncg);
        Some(*at)
    })
}

/// The groups of the last step: the first and the one behind it have been tried.
fn brute_force(ncg: u32, start: GroupNo) -> impl Iterator<Item = GroupNo> + use<> {
    (2..u64::from(ncg)).map(move |by| wrap(start, by, ncg))
}

fn wrap(group: GroupNo, by: u64, ncg: u32) -> GroupNo {
    let sum = u64::from(group.get()) + by;
    let wrapped = sum % u64::from(ncg);
    GroupNo::new(u32::try_from(wrapped).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(ncg: u32, start: u32) -> Vec<u32> {
        hashalloc(ncg, GroupNo::new(start)).map(GroupNo::get).collect()
    }

    #[test]
    fn preferred_then_powers_of_two_then_all() {
        assert_eq!(order(1, 0), [0]);
        assert_eq!(order(2, 1), [1, 0]);
        // 5; +1, +2, +4 from one another; then 7, 0, 1 ... 4.
        assert_eq!(order(8, 5), [5, 6, 0, 4, 7, 0, 1, 2, 3, 4]);
        // 1 + 2 + 4 leads back to the preferred one.
        assert_eq!(order(7, 5), [5, 6, 1, 5, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn every_group_is_tried() {
        for ncg in 1..40 {
            for start in 0..ncg {
                let mut tried = order(ncg, start);
                tried.sort_unstable();
                tried.dedup();
                assert_eq!(tried, (0..ncg).collect::<Vec<_>>(), "{ncg} groups from {start}");
            }
        }
    }
}
