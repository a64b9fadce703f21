//! Tries groups one after the other, in an order chosen by a policy.

use seekless_units::GroupNo;

/// Tries groups in an order until one succeeds. Only in the first one the preferred slot or block
/// is respected.
///
/// `try_group` returns `None` if a group has no free one. The result is `None` if no group of the
/// order has any.
///
/// # Errors
/// The first error of `try_group`.
pub fn first_with<T, E>(
    order: impl IntoIterator<Item = GroupNo>,
    mut try_group: impl FnMut(GroupNo, bool) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut preferred = true;
    for group in order {
        if let Some(found) = try_group(group, std::mem::take(&mut preferred))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashalloc;

    #[test]
    fn only_the_first_heeds_the_preference() {
        let mut tried = Vec::new();
        let nothing: Result<Option<()>, ()> =
            first_with(hashalloc(7, GroupNo::new(5)), |group, preferred| {
                tried.push((group.get(), preferred));
                Ok(None)
            });
        assert_eq!(nothing, Ok(None));
        let (first, others) = tried.split_first().unwrap();
        assert_eq!(*first, (5, true));
        // Not even when the preferred group occurs again.
        assert!(others.contains(&(5, false)));
        assert!(others.iter().all(|&(_, preferred)| !preferred));
    }

    #[test]
    fn the_first_answer_ends_the_search() {
        let order = || hashalloc(8, GroupNo::new(5));
        let found: Result<_, ()> =
            first_with(order(), |group, _| Ok((group.get() == 0).then_some(group)));
        assert_eq!(found, Ok(Some(GroupNo::new(0))));
        let failed: Result<Option<()>, _> = first_with(order(), |_, _| Err("damaged"));
        assert_eq!(failed, Err("damaged"));
    }
}
