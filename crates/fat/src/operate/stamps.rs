//! Times of entries.

use crate::time::Stamp;
use seekless_fs::Timestamp;

/// Seconds from 1970 to beyond any time of an entry, in any zone.
const FAR: i64 = 1 << 40;

/// The offset of local time from UTC, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Zone(i64);

impl Zone {
    /// So many minutes.
    pub(super) fn new(minutes: i32) -> Self {
        Self(i64::from(minutes) * 60)
    }

    /// The stamp of a moment.
    pub(super) fn stamp(self, moment: Timestamp) -> Stamp {
        Stamp::of(Timestamp { secs: moment.secs.clamp(-FAR, FAR) + self.0, ..moment })
    }

    /// The moment of a local time; a time that was never set stays so.
    pub(super) fn moment(self, local: Timestamp) -> Timestamp {
        if local == Timestamp::default() {
            return local;
        }
        Timestamp { secs: local.secs - self.0, ..local }
    }

    /// The time of a change as stored in an entry: in steps of two seconds.
    pub(super) fn changed(self, moment: Timestamp) -> Timestamp {
        let stamp = Stamp { fine: 0, ..self.stamp(moment) };
        self.moment(stamp.moment())
    }

    /// The time of an access as stored in an entry: the local day.
    pub(super) fn accessed(self, moment: Timestamp) -> Timestamp {
        let stamp = Stamp { fine: 0, time: 0, ..self.stamp(moment) };
        self.moment(stamp.moment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a day.
    const DAY: i64 = 86_400;

    #[test]
    fn times_are_local() {
        let moment = Timestamp { secs: 1_700_000_001, nanos: 500_000_000 };
        for minutes in [-720, 0, 90] {
            let zone = Zone::new(minutes);
            assert_eq!(zone.changed(moment).secs, 1_700_000_000);
            let day = zone.accessed(moment).secs;
            assert_eq!((day + i64::from(minutes) * 60) % DAY, 0);
            assert!((0..DAY).contains(&(moment.secs - day)));
            let written = zone.stamp(moment).moment();
            assert_eq!(written.secs, moment.secs + i64::from(minutes) * 60);
        }
        assert_eq!(Zone::new(60).moment(Timestamp::default()), Timestamp::default());
    }
}
