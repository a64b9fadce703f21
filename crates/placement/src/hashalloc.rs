//! The order in which groups are tried.

use seekless_units::GroupNo;

/// Tries groups until one has what is asked for (`ffs_hashalloc`): the
/// preferred one, which alone is told to heed the preference within the group;
/// then those 1, 2, 4 ... further on, each counted from the one before; then
/// all, from the second behind the preferred.
///
/// `try_group` answers `None` when a group has nothing. `None` in the end means
/// that no group has.
///
/// # Errors
/// The first one that `try_group` gives.
pub fn hashalloc<T, E>(
    ncg: u32,
    start: GroupNo,
    mut try_group: impl FnMut(GroupNo, bool) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    if let Some(found) = try_group(start, true)? {
        return Ok(Some(found));
    }
    for group in rehash(ncg, start).chain(brute_force(ncg, start)) {
        if let Some(found) = try_group(group, false)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The groups of the second step.
fn rehash(ncg: u32, start: GroupNo) -> impl Iterator<Item = GroupNo> {
    let steps = std::iter::successors(Some(1u64), |step| step.checked_mul(2));
    steps.take_while(move |&step| step < u64::from(ncg)).scan(start, move |at, step| {
        *at = wrap(*at, step, ncg);
        Some(*at)
    })
}

/// The groups of the last step: the first was tried, and the one behind it too.
fn brute_force(ncg: u32, start: GroupNo) -> impl Iterator<Item = GroupNo> {
    (2..u64::from(ncg)).map(move |by| wrap(start, by, ncg))
}

fn wrap(group: GroupNo, by: u64, ncg: u32) -> GroupNo {
    let sum = u64::from(group.get()).saturating_add(by);
    let wrapped = sum.checked_rem(u64::from(ncg)).unwrap_or(0);
    GroupNo::new(u32::try_from(wrapped).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(ncg: u32, start: u32) -> Vec<u32> {
        let mut tried = Vec::new();
        let nothing: Result<Option<()>, ()> =
            hashalloc(ncg, GroupNo::new(start), |group, preferred| {
                assert_eq!(preferred, tried.is_empty());
                tried.push(group.get());
                Ok(None)
            });
        assert_eq!(nothing, Ok(None));
        tried
    }

    #[test]
    fn preferred_then_powers_of_two_then_all() {
        assert_eq!(order(1, 0), [0]);
        assert_eq!(order(2, 1), [1, 0]);
        // 5; +1, +2, +4 from one another; then 7, 0, 1 ... 4.
        assert_eq!(order(8, 5), [5, 6, 0, 4, 7, 0, 1, 2, 3, 4]);
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

    #[test]
    fn the_first_answer_ends_the_search() {
        let found: Result<_, ()> =
            hashalloc(8, GroupNo::new(5), |group, _| Ok((group.get() == 0).then_some(group)));
        assert_eq!(found, Ok(Some(GroupNo::new(0))));
        let failed: Result<Option<()>, _> = hashalloc(8, GroupNo::new(5), |_, _| Err("damaged"));
        assert_eq!(failed, Err("damaged"));
    }
}
