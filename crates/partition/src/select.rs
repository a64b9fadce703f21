//! Selection of a partition.

use crate::{Guid, Partition, Table};

/// The reason why no partition could be selected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// No partition matches.
    #[error("there is no partition {wanted:?}")]
    None {
        /// The requested name.
        wanted: String,
    },
    /// Several partitions match.
    #[error("{wanted:?} may be any of the partitions {}", list(numbers))]
    Several {
        /// The requested name.
        wanted: String,
        /// Their numbers.
        numbers: Vec<u32>,
    },
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl Table {
    /// The partition with that number, name or identifier. `root`, if no partition has that name,
    /// is the one with a root type, or else the only Linux one; among several of these the largest,
    /// if it is larger than each of the others.
    ///
    /// # Errors
    /// [`SelectError`] if no partition or several match.
    pub fn select(&self, wanted: &str) -> Result<&Partition, SelectError> {
        let number = wanted.parse::<u32>().ok();
        let id = wanted.parse::<Guid>().ok();
        if let Some(number) = number {
            return self.one(wanted, |partition| partition.number == number);
        }
        if id.is_some() {
            return self.one(wanted, |partition| partition.id == id);
        }
        let named = self.one(wanted, |partition| partition.name == wanted);
        match named {
            Err(SelectError::None { .. }) if wanted == "root" => self.root(),
            other => other,
        }
    }

    fn one(
        &self,
        wanted: &str,
        is_meant: impl Fn(&Partition) -> bool,
    ) -> Result<&Partition, SelectError> {
        let meant: Vec<&Partition> =
            self.partitions.iter().filter(|partition| is_meant(partition)).collect();
        match meant[..] {
            [one] => Ok(one),
            [] => Err(SelectError::None { wanted: wanted.into() }),
            _ => Err(SelectError::Several {
                wanted: wanted.into(),
                numbers: meant.iter().map(|partition| partition.number).collect(),
            }),
        }
    }

    fn root(&self) -> Result<&Partition, SelectError> {
        let of_root = self.one("root", |partition| partition.kind.is_root());
        if !matches!(of_root, Err(SelectError::None { .. })) {
            return of_root;
        }
        let largest = self.partitions.iter().filter(|partition| partition.kind.is_linux());
        let largest = largest.map(|partition| partition.len).max();
        self.one("root", |partition| partition.kind.is_linux() && Some(partition.len) == largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Scheme};
    use seekless_units::ByteLen;

    fn partition(number: u32, kind: &str, name: &str, len: u64) -> Partition {
        let kind = Kind::Gpt(kind.parse().unwrap());
        let id = Some(Guid([number as u8; 16]));
        Partition {
            number,
            start: ByteLen::new(u64::from(number) << 20),
            len: ByteLen::new(len),
            kind,
            name: name.into(),
            id,
        }
    }

    const LINUX: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";
    const ROOT: &str = "4f68bce3-e8cd-4db1-96e7-fbcaf984b709";
    const EFI: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

    fn chosen(partitions: &[Partition], wanted: &str) -> Result<u32, SelectError> {
        let table =
            Table { scheme: Scheme::Gpt, is_backup: false, partitions: partitions.to_vec() };
        table.select(wanted).map(|partition| partition.number)
    }

    #[test]
    fn the_one_that_is_meant_is_found_or_it_is_said_why_not() {
        let disk = [
            partition(1, LINUX, "boot", 5),
            partition(2, EFI, "esp", 100),
            partition(3, LINUX, "data", 50),
            partition(14, LINUX, "data", 7),
        ];
        assert_eq!(chosen(&disk, "14"), Ok(14));
        assert_eq!(chosen(&disk, "esp"), Ok(2));
        assert_eq!(chosen(&disk, "root"), Ok(3), "the largest for Linux");
        assert_eq!(chosen(&disk, "03030303-0303-0303-0303-030303030303"), Ok(3));
        let several = SelectError::Several { wanted: "data".into(), numbers: vec![3, 14] };
        assert_eq!(chosen(&disk, "data"), Err(several));
        for none in ["4", "0", "", "ESP", "04030303-0303-0303-0303-030303030303"] {
            assert_eq!(chosen(&disk, none), Err(SelectError::None { wanted: none.into() }));
        }
        let mut typed = disk.to_vec();
        typed.push(partition(15, ROOT, "", 1));
        assert_eq!(chosen(&typed, "root"), Ok(15), "a type for roots says more than a size");
        typed.push(partition(16, EFI, "root", 1));
        assert_eq!(chosen(&typed, "root"), Ok(16), "and a name more than a type");
        let alike = [partition(1, LINUX, "", 5), partition(2, LINUX, "", 5)];
        assert!(matches!(chosen(&alike, "root"), Err(SelectError::Several { .. })));
    }
}
