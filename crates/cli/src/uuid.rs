//! Volume UUIDs: as text, and random ones, the only random numbers that images get.

use crate::failure::Failure;
use rustix::rand::{GetRandomFlags, getrandom};

/// The UUID that an image is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WantedUuid {
    Given([u8; 16]),
    /// A fresh one.
    Random,
}

impl WantedUuid {
    /// A UUID in hexadecimal digits, with or without dashes, or `random`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "random" {
            return Ok(Self::Random);
        }
        let bad = || format!("'{text}' is neither a UUID nor 'random'");
        let digits: String = text.chars().filter(|&c| c != '-').collect();
        let value = u128::from_str_radix(&digits, 16).map_err(|_| bad())?;
        if digits.len() == 32 { Ok(Self::Given(value.to_be_bytes())) } else { Err(bad()) }
    }

    /// The bytes; a random UUID is of version 4 (RFC 9562).
    pub(crate) fn bytes(self) -> Result<[u8; 16], Failure> {
        let Self::Given(bytes) = self else {
            let value = u128::from_be_bytes(random()?) & !(0xF << 76 | 3 << 62);
            return Ok((value | 4 << 76 | 2 << 62).to_be_bytes());
        };
        Ok(bytes)
    }
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    // Few bytes come at once, or not at all.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(len) if len == N => Ok(bytes),
        Ok(_) => Err(Failure::io("random numbers", &std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(Failure::io("random numbers", &error.into())),
    }
}

/// A UUID in the usual form, in groups of 8, 4, 4, 4 and 12 digits.
pub(crate) fn text(uuid: &[u8; 16]) -> String {
    let digit = |(at, byte): (usize, &u8)| {
        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        format!("{dash}{byte:02x}")
    };
    uuid.iter().enumerate().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let text_of = "63bc8b11-4843-81ae-a346-8b6923d02608";
        let Ok(WantedUuid::Given(bytes)) = WantedUuid::parse(text_of) else { panic!("{text_of}") };
        assert_eq!(text(&bytes), text_of);
        assert_eq!(WantedUuid::parse("random"), Ok(WantedUuid::Random));
        assert!(WantedUuid::parse("63bc8b11").is_err());
    }

    #[test]
    fn random_ones_are_of_version_4() {
        for _ in 0..100 {
            let bytes = WantedUuid::Random.bytes().expect("random numbers");
            assert_eq!((bytes[6] >> 4, bytes[8] >> 6), (4, 2));
        }
    }
}
