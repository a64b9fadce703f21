//! Start of the search for free clusters of a FAT volume.
//!
//! The rules are the values of `fat_allocpolicy` (B. Evans's change to FreeBSD's
//! `sys/fs/msdosfs/msdosfs_fat.c` of 2005, sent to freebsd-fs with his measurements); later FreeBSD
//! has only rule 1, and earlier FreeBSD had rule 4. A growing file takes the clusters behind its
//! last one if all that it needs are free; otherwise, and for files without clusters, the rules
//! determine the start of the search.

use crate::chance::Chance;
use crate::names::PolicyError;

/// Start of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// At the lowest cluster.
    Lowest,
    /// Behind the clusters taken last.
    Next,
    /// Behind the last cluster of the file.
    Near,
    /// At a random cluster.
    Random,
}

/// A rule: its number in `fat_allocpolicy`, its name, and the start of the search for a file
/// without clusters and for a growing one.
type Rule = (&'static str, &'static str, Begin, Begin);

const RULES: [Rule; 6] = [
    ("0", "first-fit", Begin::Lowest, Begin::Near),
    ("1", "next-fit", Begin::Next, Begin::Next),
    ("2", "random-near", Begin::Random, Begin::Near),
    ("3", "random-next", Begin::Random, Begin::Next),
    ("4", "random", Begin::Random, Begin::Random),
    ("5", "next-near", Begin::Next, Begin::Near),
];

/// Name of FAT volumes in errors.
const FAT: &str = "FAT";

/// A policy for clusters.
#[derive(Clone, Debug)]
pub struct ClusterPlacement {
    rule: Rule,
    /// The highest number of a cluster.
    last: u32,
    /// The cluster behind those taken last (`pm_nxtfree`).
    next: u32,
    chance: Chance,
}

impl ClusterPlacement {
    /// The default policy.
    pub const DEFAULT: &'static str = "next-fit";
    /// The names of all policies, in the order of their numbers.
    pub const NAMES: [&'static str; 6] =
        ["first-fit", "next-fit", "random-near", "random-next", "random", "next-near"];

    /// Creates a policy by its name or number, for a volume with clusters 2 to `last`. `next` is
    /// the volume's hint for the next free cluster; a number out of range stands for 2. Random
    /// choices use `seed`.
    ///
    /// # Errors
    /// [`PolicyError::Unknown`].
    pub fn by_name(
        name: &str,
        last: u32,
        next: Option<u32>,
        seed: u64,
    ) -> Result<Self, PolicyError> {
        let found = RULES.iter().find(|rule| rule.0 == name || rule.1 == name);
        let Some(&rule) = found else {
            return Err(PolicyError::unknown(name, &Self::NAMES, (FAT, &[])));
        };
        let next = next.filter(|next| (2..=last).contains(next)).unwrap_or(2);
        Ok(Self { rule, last, next, chance: Chance::new(seed) })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.rule.1
    }

    /// Start of a search: `start` is the cluster behind the last one of a growing file, `None` for
    /// a file without clusters. Zero stands for the lowest. To be called once per search.
    pub fn begin(&mut self, start: Option<u32>) -> u32 {
        let begin = if start.is_some() { self.rule.3 } else { self.rule.2 };
        match begin {
            Begin::Lowest => 0,
            Begin::Next => self.next,
            Begin::Near => start.unwrap_or(0),
            Begin::Random => {
                let numbers = u64::from(self.last) + 1;
                u32::try_from(self.chance.below(numbers)).unwrap_or(0)
            }
        }
    }

    /// Called when clusters were taken, by a search or behind the file's last one.
    pub fn taken(&mut self, start: u32, len: u32) {
        let next = start + len;
        self.next = if next > self.last { 2 } else { next };
    }

    /// The cluster behind those taken last, for the volume's hint when it is closed.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(name: &str, start: Option<u32>) -> u32 {
        let mut policy = ClusterPlacement::by_name(name, 100, Some(40), 1).unwrap();
        policy.begin(start)
    }

    #[test]
    fn numbers_and_names_are_those_of_the_table() {
        for (number, name) in (0..).zip(ClusterPlacement::NAMES) {
            let policy = ClusterPlacement::by_name(&format!("{number}"), 9, None, 1).unwrap();
            assert_eq!(policy.name(), name);
        }
        let error = ClusterPlacement::by_name("6", 9, None, 1).unwrap_err();
        assert!(error.to_string().contains("next-near"), "{error}");
    }

    #[test]
    fn searches_begin_where_the_table_says() {
        assert_eq!((begins("0", None), begins("0", Some(7))), (0, 7));
        assert_eq!((begins("1", None), begins("1", Some(7))), (40, 40));
        assert_eq!(begins("2", Some(7)), 7);
        assert_eq!(begins("3", Some(7)), 40);
        assert_eq!((begins("5", None), begins("5", Some(7))), (40, 7));
        // Random numbers are the same for the same seed, and differ from draw to draw.
        let draw = |name: &str, start| {
            let mut policy = ClusterPlacement::by_name(name, 1_000_000, None, 1).unwrap();
            [policy.begin(start), policy.begin(start), policy.begin(start)]
        };
        assert_eq!(draw("4", Some(7)), draw("2", None));
        assert_eq!(draw("4", Some(7)), draw("3", None));
        let [first, second, third] = draw("4", None);
        assert!(first != second && second != third, "{first} {second} {third}");
    }

    #[test]
    fn the_next_free_one_follows_what_is_taken() {
        let mut policy = ClusterPlacement::by_name("1", 100, Some(400), 1).unwrap();
        assert_eq!(policy.next(), 2);
        policy.taken(50, 3);
        assert_eq!(policy.begin(None), 53);
        policy.taken(98, 3);
        assert_eq!(policy.next(), 2);
    }
}
