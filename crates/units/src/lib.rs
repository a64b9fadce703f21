//! The quantities of file systems and disks as types.
//!
//! A raw `u64` for a block never crosses a function boundary: it is a [`BlockNo`], a [`Lba`], an
//! [`Lbn`] or a [`ByteLen`], and confusing two of them does not compile. The crate depends on no
//! other crate of ours.
//!
//! # Example
//!
//! ```
//! use seekless_units::{BlockNo, ByteLen, Extent, parse_size};
//!
//! let run = Extent::new(BlockNo::new(100), 8);
//! assert_eq!(run.end(), BlockNo::new(108));
//! assert_eq!(run.end() - run.start, 8);
//! assert_eq!(parse_size("512K"), Ok(ByteLen::new(512 << 10)));
//! ```

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($raw);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// Wraps a raw number.
            #[must_use]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0
            }

            /// `self + n`, or `None` on overflow.
            #[must_use]
            pub const fn checked_add(self, n: $raw) -> Option<Self> {
                match self.0.checked_add(n) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// Distance from `earlier` to `self`, or `None` if `self` is earlier.
            #[must_use]
            pub const fn checked_since(self, earlier: Self) -> Option<$raw> {
                self.0.checked_sub(earlier.0)
            }

            /// Distance from `earlier` to `self`; zero if `self` is earlier.
            #[must_use]
            pub const fn saturating_since(self, earlier: Self) -> $raw {
                self.0.saturating_sub(earlier.0)
            }
        }

        impl Sub for $name {
            type Output = $raw;

            /// Distance from `earlier`, which is not later, to `self`.
            fn sub(self, earlier: Self) -> $raw {
                self.0 - earlier.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number! {
    /// A physical block of a file system, counted in its block size from the
    /// start of the volume.
    BlockNo(u64)
}
number! {
    /// A block (ext) or cylinder (FFS) group.
    GroupNo(u32)
}
number! {
    /// An inode number. Zero is no inode in every supported format.
    Ino(u32)
}
number! {
    /// A logical block of a file, counted in the file system's block size.
    Lbn(u64)
}
number! {
    /// A sector of a device, [`SECTOR`] bytes each.
    Lba(u64)
}
number! {
    /// A length or offset in bytes.
    ByteLen(u64)
}
number! {
    /// Nanoseconds: a duration, or a moment since the start of a run.
    Nanos(u64)
}

/// Sums that fit: those of numbers of a disk are made with `checked_add`.
macro_rules! sums {
    ($($name:ident($raw:ty)),*) => {$(
        impl Add<$raw> for $name {
            type Output = Self;

            fn add(self, n: $raw) -> Self {
                Self(self.0 + n)
            }
        }

        impl AddAssign<$raw> for $name {
            fn add_assign(&mut self, n: $raw) {
                self.0 += n;
            }
        }
    )*};
}

sums!(BlockNo(u64), GroupNo(u32), Ino(u32), Lbn(u64), Lba(u64), ByteLen(u64));

impl Add<u64> for Nanos {
    type Output = Self;

    /// A moment after the last one is the last one: spans come from profiles and parameters of
    /// devices, which may have any length.
    fn add(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }
}

impl AddAssign<u64> for Nanos {
    fn add_assign(&mut self, n: u64) {
        *self = *self + n;
    }
}

/// Bytes in a sector, the unit of [`Lba`]. Devices with larger physical sectors are still addressed
/// in these.
pub const SECTOR: u64 = 512;

impl Lba {
    /// The sector that contains byte `offset`.
    #[must_use]
    pub const fn containing(offset: ByteLen) -> Self {
        Self(offset.0 / SECTOR)
    }

    /// The first byte of the sector; saturates at the end of the 64-bit space.
    #[must_use]
    pub const fn to_bytes(self) -> ByteLen {
        ByteLen(self.0.saturating_mul(SECTOR))
    }
}

/// A run of physical blocks: `start .. start + len`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Extent {
    /// The first block.
    pub start: BlockNo,
    /// Number of blocks from `start` on.
    pub len: u64,
}

impl Extent {
    /// A run of `len` blocks from `start`.
    #[must_use]
    pub const fn new(start: BlockNo, len: u64) -> Self {
        Self { start, len }
    }

    /// The block after the last one; saturates.
    #[must_use]
    pub const fn end(self) -> BlockNo {
        BlockNo(self.start.0.saturating_add(self.len))
    }

    /// Whether the run contains `block`.
    #[must_use]
    pub const fn contains(self, block: BlockNo) -> bool {
        block.get() >= self.start.get() && block.get() < self.end().get()
    }

    /// Whether the two runs share a block.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.get() < other.end().get() && other.start.get() < self.end().get()
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.len)
    }
}

/// Parses a duration such as `100us`, `1.5ms` or `30s`.
///
/// # Errors
/// The message to show, for a text without a valid number or unit.
pub fn parse_span(text: &str) -> Result<Nanos, String> {
    let bad = || format!("'{text}' is not a valid duration (try 800ns, 100us, 1.5ms, 30s)");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(bad()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| bad())?;
    let nanos = number * scale;
    // A day is more than anything here waits.
    if !(0.0..=86_400e9).contains(&nanos) {
        return Err(bad());
    }
    Ok(Nanos::new(nanos.round() as u64))
}

/// Parses a size such as `512K`, `1.5GiB` or `4096`, in bytes.
///
/// Suffixes `K M G T P` (with or without `iB`/`B`, either case) are powers of 1024, as in
/// e2fsprogs, fio and qemu-img.
///
/// # Errors
/// The message to show, for a text that is not a number with such a suffix, or that does not fit in
/// 64 bits.
pub fn parse_size(text: &str) -> Result<ByteLen, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(split);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(format!("'{text}' is not a size (try 4096, 512K, 1.5G)")),
    };
    let bad = || format!("'{text}' is not a size (try 4096, 512K, 1.5G)");
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(bad());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
    let unit = 1u64 << shift;
    let mut bytes = whole.checked_mul(unit).ok_or_else(|| format!("'{text}' is too large"))?;
    if !fraction.is_empty() {
        if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| bad())?);
        let part: u128 = fraction.parse().map_err(|_| bad())?;
        let extra = u64::try_from(part * u128::from(unit) / scale).map_err(|_| bad())?;
        bytes = bytes.checked_add(extra).ok_or_else(|| format!("'{text}' is too large"))?;
    }
    Ok(ByteLen(bytes))
}

/// Formats a size so that [`parse_size`] can read it: `512K`, `1.5G`, `4097`.
#[must_use]
pub fn format_size(len: ByteLen) -> String {
    const UNITS: [(u32, &str); 5] = [(50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let bytes = len.get();
    for (shift, name) in UNITS {
        let unit = 1u64 << shift;
        if bytes >= unit {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            return if tenths % 10 == 0 || tenths >= 1000 {
                format!("{}{name}", tenths / 10)
            } else {
                format!("{}.{}{name}", tenths / 10, tenths % 10)
            };
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512K", 512 << 10),
            ("512k", 512 << 10),
            ("1.5G", 3 << 29),
            ("2MiB", 2 << 20),
            (" 1T ", 1 << 40),
            (".5K", 512),
        ] {
            assert_eq!(parse_size(text), Ok(ByteLen::new(bytes)), "{text}");
        }
        for text in ["", "K", "1X", "-1", "1.2.3", "99999999999999999999", "99999999P", "1.x"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(format_size(ByteLen::new(512 << 10)), "512K");
        assert_eq!(format_size(ByteLen::new(3 << 29)), "1.5G");
        assert_eq!(format_size(ByteLen::new(1000)), "1000");
    }

    #[test]
    fn extents_know_their_edges() {
        let a = Extent::new(BlockNo::new(10), 5);
        assert!(a.contains(BlockNo::new(14)) && !a.contains(BlockNo::new(15)));
        assert!(a.overlaps(Extent::new(BlockNo::new(14), 1)));
        assert!(!a.overlaps(Extent::new(BlockNo::new(15), 1)));
        assert_eq!(Extent::new(BlockNo::new(u64::MAX), 5).end(), BlockNo::new(u64::MAX));
    }

    #[test]
    fn moments_end_with_time() {
        let mut end = Nanos::new(u64::MAX - 5) + 10;
        assert_eq!(end, Nanos::new(u64::MAX));
        end += 1;
        assert_eq!((end, end - Nanos::new(u64::MAX - 7)), (Nanos::new(u64::MAX), 7));
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(parse_span("100us"), Ok(Nanos::new(100_000)));
        assert_eq!(parse_span("1.5ms"), Ok(Nanos::new(1_500_000)));
        assert_eq!(parse_span("30s"), Ok(Nanos::new(30_000_000_000)));
        for wrong in ["", "100", "us", "5m", "-1s", "NaNs", "1e9s", "2 days"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }
}
