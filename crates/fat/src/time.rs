//! Dates and times of directory entries: local time from 1980 to 2107, here
//! taken as UTC.

use seekless_fs::Timestamp;

/// Seconds of a day.
const DAY: i64 = 86_400;
/// The earliest time of an entry: 1980-01-01.
pub(crate) const EARLIEST: Timestamp = Timestamp { secs: 315_532_800, nanos: 0 };
/// The latest one: 2107-12-31 23:59:59.99.
pub(crate) const LATEST: Timestamp = Timestamp { secs: 4_354_819_199, nanos: 990_000_000 };

/// A date and a time of day as they are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    /// Years from 1980, month and day.
    pub(crate) date: u16,
    /// Hour, minute and two seconds.
    pub(crate) time: u16,
    /// The remainder of the time, in units of 10 ms, 0 to 199.
    pub(crate) fine: u8,
}

impl Stamp {
    /// The moment. A date of zero was never set and is 1970; months out of range are the nearest
    /// valid one, and days past the month's end count on, as in other readers.
    #[must_use]
    pub(crate) fn moment(self) -> Timestamp {
        if self.date == 0 {
            return Timestamp::default();
        }
        let part = |word: u16, shift: u32, mask: u16| i64::from((word >> shift) & mask);
        let year = part(self.date, 9, 0x7F) + 1980;
        let month = part(self.date, 5, 0x0F).clamp(1, 12);
        let day = part(self.date, 0, 0x1F).max(1);
        let days = days_from_civil(year, month) + day - 1;
        let fine = i64::from(self.fine.min(199));
        let of_day = (((part(self.time, 11, 0x1F) * 3600) + part(self.time, 5, 0x3F) * 60)
            + part(self.time, 0, 0x1F) * 2)
            + fine / 100;
        let hundredths = u32::try_from(fine % 100).unwrap_or(0);
        Timestamp { secs: days * DAY + of_day, nanos: hundredths * 10_000_000 }
    }

    /// The latest stamp at or before a moment, or the first or last possible one.
    #[must_use]
    pub(crate) fn of(moment: Timestamp) -> Self {
        let moment = moment.clamp(EARLIEST, LATEST);
        let days = moment.secs.div_euclid(DAY);
        let of_day = moment.secs.rem_euclid(DAY);
        let (year, month, day) = civil_from_days(days);
        debug_assert!((1980..=2107).contains(&year), "year {year} is one of an entry");
        debug_assert!((1..=12).contains(&month) && (1..=31).contains(&day), "{month}-{day}");
        let part = |value: i64, shift: u32| u16::try_from(value << shift).unwrap_or(0);
        let [hour, minute, second] =
            [of_day.div_euclid(3600), of_day.div_euclid(60).rem_euclid(60), of_day.rem_euclid(60)];
        let fine = second.rem_euclid(2) * 100;
        let fine = fine + i64::from(moment.nanos).div_euclid(10_000_000);
        debug_assert!(fine < 200, "{fine} hundredths of two seconds");
        Self {
            date: part(year - 1980, 9) | part(month, 5) | part(day, 0),
            time: part(hour, 11) | part(minute, 5) | part(second.div_euclid(2), 0),
            fine: u8::try_from(fine).unwrap_or(199),
        }
    }
}

/// Days from 1970-01-01 to the first of a month of the proleptic Gregorian
/// calendar (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_from_civil(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let shifted = (month + 9).rem_euclid(12);
    let of_year = (shifted * 153 + 2).div_euclid(5);
    let days = of_era * 365 + of_era.div_euclid(4) - of_era.div_euclid(100) + of_year;
    era * 146_097 + days - 719_468
}

/// Year, month and day of a day counted from 1970-01-01; the inverse.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap = day - day.div_euclid(1460) + day.div_euclid(36_524) - day.div_euclid(146_096);
    let year = leap.div_euclid(365);
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100);
    let of_year = day - before;
    let shifted = (of_year * 5 + 2).div_euclid(153);
    let first = (shifted * 153 + 2).div_euclid(5);
    let month = (shifted + 2).rem_euclid(12) + 1;
    let year = year + era * 400;
    let year = if month <= 2 { year + 1 } else { year };
    (year, month, of_year - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_those_of_the_calendar() {
        // date -u -d '2000-02-29 13:37:59' +%s
        let moment = Timestamp { secs: 951_831_479, nanos: 550_000_000 };
        let stamp = Stamp::of(moment);
        assert_eq!(stamp.date, (20 << 9) | (2 << 5) | 29);
        assert_eq!(stamp.time, (13 << 11) | (37 << 5) | 29);
        assert_eq!(stamp.fine, 155);
        assert_eq!(stamp.moment(), moment);
        assert_eq!(Stamp::of(EARLIEST), Stamp { date: 33, time: 0, fine: 0 });
        assert_eq!(Stamp::of(LATEST).moment(), LATEST);
        assert_eq!(Stamp::default().moment(), Timestamp::default());
    }

    #[test]
    fn every_day_comes_back() {
        let mut secs = EARLIEST.secs;
        while secs < LATEST.secs {
            let moment = Timestamp { secs, nanos: 0 };
            assert_eq!(Stamp::of(moment).moment(), moment);
            secs += DAY + 2;
        }
        for past in [0, -5, i64::MIN] {
            assert_eq!(Stamp::of(Timestamp { secs: past, nanos: 0 }).moment(), EARLIEST);
        }
    }
}
