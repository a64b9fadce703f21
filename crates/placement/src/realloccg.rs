//! How a file's tail grows (`ffs_realloccg`).
//!
//! A tail that cannot grow in place moves. To optimize *space*, it gets a run of exactly the new
//! size, and may have to move again; to optimize *time*, it gets a whole block whose rest is freed,
//! in which it can grow further. The volume switches between the two depending on the number of
//! loose fragments.

/// The resource that the allocator saves (`fs_optim`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Optimization {
    /// Copies of fragments: `FS_OPTTIME`.
    Time,
    /// Space: `FS_OPTSPACE`.
    Space,
}

/// The request of a tail that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A run of exactly its new size.
    Exact,
    /// A whole block, of which it frees the unused part.
    Block,
}

/// The request, and the volume's optimization from then on.
///
/// `nffree` is the volume's loose free fragments, `dsize` its fragments for data, `minfree` the
/// reserve in percent. A volume optimized for space switches to time when the reserve is above 5%
/// and at most half of it is in loose fragments; one optimized for time switches back when those
/// come within 2% of it. The change takes effect with the next tail.
#[must_use]
pub fn grow(now: Optimization, minfree: u32, nffree: u64, dsize: u64) -> (Ask, Optimization) {
    let share = |percent: u32, of: u128| {
        (u128::from(dsize) * u128::from(percent)).checked_div(of).unwrap_or(0)
    };
    let loose = u128::from(nffree);
    match now {
        Optimization::Space if minfree > 5 && loose <= share(minfree, 200) => {
            (Ask::Exact, Optimization::Time)
        }
        Optimization::Space => (Ask::Exact, Optimization::Space),
        Optimization::Time if loose >= share(minfree.saturating_sub(2), 100) => {
            (Ask::Block, Optimization::Space)
        }
        Optimization::Time => (Ask::Block, Optimization::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_the_bounds() {
        use Optimization::{Space, Time};
        // Of 1000 fragments at 8%: 40 are half the reserve, 60 are 2% less than it.
        for (now, minfree, nffree, then) in [
            (Space, 8, 41, Space),
            (Space, 8, 40, Time),
            (Space, 5, 0, Space),
            (Time, 8, 59, Time),
            (Time, 8, 60, Space),
            // No reserve to come near to.
            (Time, 1, 0, Space),
            (Time, 2, 0, Space),
        ] {
            let asked = if now == Space { Ask::Exact } else { Ask::Block };
            assert_eq!(
                grow(now, minfree, nffree, 1000),
                (asked, then),
                "{now:?} {minfree} {nffree}"
            );
        }
    }

    #[test]
    fn large_volumes_do_not_overflow() {
        let (_, then) = grow(Optimization::Time, 99, u64::MAX - 1, u64::MAX);
        assert_eq!(then, Optimization::Space);
    }
}
