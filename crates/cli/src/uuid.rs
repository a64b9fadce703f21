//! Parses and generates volume UUIDs; the only source of random numbers for images.

use crate::failure::Failure;
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::{SystemTime, UNIX_EPOCH};

/// The UUID for a new image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WantedUuid {
    Given([u8; 16]),
    /// A new random UUID.
    Random,
    /// A new UUID of the current time.
    Time,
}

impl WantedUuid {
    /// A UUID in hexadecimal digits, with or without dashes, `random`, `time` or `clear`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "random" => return Ok(Self::Random),
            "time" => return Ok(Self::Time),
            "clear" => return Ok(Self::Given([0; 16])),
            _ => {}
        }
        let bad = || format!("'{text}' is neither a UUID nor 'random', 'time' or 'clear'");
        let digits: String = text.chars().filter(|&c| c != '-').collect();
        let value = u128::from_str_radix(&digits, 16).map_err(|_| bad())?;
        if digits.len() == 32 { Ok(Self::Given(value.to_be_bytes())) } else { Err(bad()) }
    }

    /// Whether each image gets a new one.
    pub(crate) fn is_fresh(self) -> bool {
        !matches!(self, Self::Given(_))
    }

    /// The bytes; a random UUID has version 4, one of the current time version 1 (RFC 9562).
    pub(crate) fn bytes(self) -> Result<[u8; 16], Failure> {
        let (version, value) = match self {
            Self::Given(bytes) => return Ok(bytes),
            Self::Random => (4, u128::from_be_bytes(random()?)),
            Self::Time => (1, of_the_clock(SystemTime::now(), u128::from_be_bytes(random()?))),
        };
        let value = value & !(0xF << 76 | 3 << 62);
        Ok((value | version << 76 | 2 << 62).to_be_bytes())
    }
}

/// The fields of a time-based UUID, with a random clock sequence and a random node, marked by the
/// multicast bit.
fn of_the_clock(now: SystemTime, random: u128) -> u128 {
    /// From 15 October 1582 to 1970, in units of 100 ns.
    const EPOCH: u128 = 0x01B2_1DD2_1381_4000;
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ticks = since.as_nanos() / 100 + EPOCH;
    let (low, middle, high) = (ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0xFFF);
    low << 96 | middle << 80 | high << 64 | random & u128::from(u64::MAX) | 1 << 40
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    // So few bytes are never delivered in part.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(len) if len == N => Ok(bytes),
        Ok(_) => Err(Failure::io("random numbers", &std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(Failure::io("random numbers", &error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let text_of = "63bc8b11-4843-81ae-a346-8b6923d02608";
        let Ok(WantedUuid::Given(bytes)) = WantedUuid::parse(text_of) else { panic!("{text_of}") };
        assert_eq!(bytes[..4], [0x63, 0xbc, 0x8b, 0x11]);
        assert_eq!(WantedUuid::parse("random"), Ok(WantedUuid::Random));
        assert!(WantedUuid::parse("63bc8b11").is_err());
    }

    #[test]
    fn those_of_the_clock_are_of_version_1() {
        assert_eq!(WantedUuid::parse("clear"), Ok(WantedUuid::Given([0; 16])));
        let bytes = WantedUuid::Time.bytes().expect("random numbers");
        assert_eq!((bytes[6] >> 4, bytes[8] >> 6, bytes[10] & 1), (1, 2, 1));
        // `uuid -d` (package uuid) decodes it as 2022-02-22 19:22:22 UTC, the example of RFC 9562.
        let time = UNIX_EPOCH + std::time::Duration::from_secs(1_645_557_742);
        let value = of_the_clock(time, 0);
        assert_eq!(value >> 64, 0xC232_AB00_9414_01EC);
    }

    #[test]
    fn random_ones_are_of_version_4() {
        for _ in 0..100 {
            let bytes = WantedUuid::Random.bytes().expect("random numbers");
            assert_eq!((bytes[6] >> 4, bytes[8] >> 6), (4, 2));
        }
    }
}
