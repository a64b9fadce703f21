//! Size of an image: `--size` and `--free`.

use crate::failure::Failure;
use clap::Args;
use seekless_fs::plan::Spare;
use seekless_units::{ByteLen, parse_size};

/// The size of an image, or the free space in it.
#[derive(Args, Debug, Clone, Copy)]
pub(super) struct RoomArgs {
    /// Size of the file system; with a plus, free space in addition to what the contents
    /// need, and inodes for it [default: as small as the contents allow; all of a device]
    #[arg(long, value_name = "[+]SIZE", value_parser = parse_wanted)]
    size: Option<WantedSize>,
    /// Percentage of the file system that is free, with inodes for it
    #[arg(long, value_name = "PERCENT", value_parser = parse_share, conflicts_with = "size")]
    free: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WantedSize {
    /// Size of the whole file system.
    Whole(ByteLen),
    /// Free space in addition to the contents.
    More(ByteLen),
}

fn parse_wanted(text: &str) -> Result<WantedSize, String> {
    match text.trim().strip_prefix('+') {
        Some(more) => parse_size(more).map(WantedSize::More),
        None => parse_size(text).map(WantedSize::Whole),
    }
}

/// A percentage with up to two decimals, in hundredths of a percent.
fn parse_share(text: &str) -> Result<u32, String> {
    let bad = || format!("'{text}' is not a percentage from 0 to 90");
    if text.starts_with('+') {
        return Err(bad());
    }
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| bad())?;
    if (0.0..=90.0).contains(&value) { Ok((value * 100.0).round() as u32) } else { Err(bad()) }
}

/// Size of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Room {
    whole: Option<ByteLen>,
    spare: Spare,
}

impl Room {
    /// The size; `None` for the smallest that the contents and [`Room::spare`] allow.
    pub(super) fn whole(self) -> Option<ByteLen> {
        self.whole
    }

    /// Free space to add to the contents, if there is no size.
    pub(super) fn spare(self) -> Spare {
        self.spare
    }
}

impl RoomArgs {
    /// The room in a file, which has any length.
    pub(super) fn room(self) -> Room {
        Room { whole: self.whole(), spare: self.spare() }
    }

    /// The size of a disk of several partitions.
    pub(super) fn size_of_disk(self) -> Result<Option<ByteLen>, Failure> {
        match self.size {
            Some(WantedSize::More(_)) => Err(Failure::usage(
                "--size +SIZE: with --definitions, sizes are those of the files",
            )),
            _ => Ok(self.whole()),
        }
    }

    /// The room on a device of `all` bytes: all of them, unless a size or free space was given.
    pub(super) fn on_device(self, all: ByteLen) -> Room {
        let is_said = self.size.is_some() || self.free.is_some();
        Room { whole: if is_said { self.whole() } else { Some(all) }, spare: self.spare() }
    }

    /// The size from `--size SIZE`.
    fn whole(self) -> Option<ByteLen> {
        match self.size {
            Some(WantedSize::Whole(size)) => Some(size),
            _ => None,
        }
    }

    /// Free space from `--size +SIZE` or `--free`.
    fn spare(self) -> Spare {
        let bytes = match self.size {
            Some(WantedSize::More(bytes)) => bytes,
            _ => ByteLen::ZERO,
        };
        Spare { bytes, share: self.free.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_and_without_a_plus() {
        assert_eq!(parse_wanted("2G"), Ok(WantedSize::Whole(ByteLen::new(2 << 30))));
        assert_eq!(parse_wanted("+512K"), Ok(WantedSize::More(ByteLen::new(512 << 10))));
        for text in ["+", "++1", "+-1", "1+"] {
            assert!(parse_wanted(text).is_err(), "{text}");
        }
        assert_eq!((parse_share("20%"), parse_share("12.5")), (Ok(2000), Ok(1250)));
        assert!(parse_share("91").is_err() && parse_share("-1").is_err());
    }
}
