//! A part of a drive, for a volume that does not begin where the drive does.

use seekless_model::{Completion, DeviceModel, Refused, Request, Tag};
use seekless_units::{Lba, Nanos};

/// A drive from a sector on.
pub(super) struct Partition {
    pub(super) drive: Box<dyn DeviceModel>,
    /// Its first sector on the drive.
    pub(super) first: u64,
}

impl DeviceModel for Partition {
    fn capacity(&self) -> Option<u64> {
        Some(self.drive.capacity()?.saturating_sub(self.first))
    }

    fn submit(&mut self, at: Nanos, tag: Tag, request: Request) -> Result<(), Refused> {
        // Of a place behind the end of all sectors there is none.
        let place = request.at.get() + self.first;
        self.drive.submit(at, tag, Request { at: Lba::new(place), ..request })
    }

    fn advance(&mut self, until: Nanos) -> Option<Completion> {
        self.drive.advance(until)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.drive.next_event()
    }

    fn in_flight(&self) -> usize {
        self.drive.in_flight()
    }

    fn busy(&self) -> Nanos {
        self.drive.busy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_model::preset::preset;

    #[test]
    fn its_first_sector_is_one_of_the_drive() {
        let first = 90_000_000;
        let mut drive = preset("ic35l060avv207").unwrap();
        let mut part = Partition { drive: preset("ic35l060avv207").unwrap(), first };
        assert_eq!(part.capacity().unwrap() + first, drive.capacity().unwrap());
        let read = |at| Request::read(Lba::new(at), 8);
        let expected = drive.serve(Nanos::ZERO, read(first + 16)).unwrap();
        assert_eq!(part.serve(Nanos::ZERO, read(16)).unwrap(), expected);
        assert_ne!(drive.serve(expected, read(16)), part.serve(expected, read(16)));
        assert!(part.serve(Nanos::new(1 << 40), read(part.capacity().unwrap())).is_err());
    }
}
