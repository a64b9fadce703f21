//! Cylinders, heads and sectors of a disk.

use seekless_units::ByteLen;

/// The geometry that virtual machines show of a disk. For most lengths it holds a little less than
/// the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chs {
    pub(crate) cylinders: u16,
    pub(crate) heads: u8,
    pub(crate) sectors: u8,
}

impl Chs {
    /// That of a disk of `len` bytes, by the appendix "CHS Calculation" of the specification.
    pub(crate) fn of(len: ByteLen) -> Self {
        let total = (len.get() / 512).min(65535 * 16 * 255);
        // Tracks that a disk with at most 1024 cylinders has with this many heads.
        let fits = |tracks: u64, heads: u64| tracks < heads * 1024;
        let few_heads = (total / 17).div_ceil(1024).max(4);
        let (heads, sectors) = if total >= 65535 * 16 * 63 {
            (16, 255)
        } else if few_heads <= 16 && fits(total / 17, few_heads) {
            (few_heads, 17)
        } else if fits(total / 31, 16) {
            (16, 31)
        } else {
            (16, 63)
        };
        let cylinders = total / sectors / heads;
        let [cylinders, heads, sectors] =
            [cylinders, heads, sectors].map(|number| u16::try_from(number).unwrap_or(u16::MAX));
        let byte = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
        Self { cylinders, heads: byte(heads), sectors: byte(sectors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of QEMU 7.2 (`qemu-img create -f vpc -o subformat=fixed`, bytes 48 to 59 of the footer).
    #[test]
    fn geometries_of_others() {
        for (len, cylinders, heads, sectors) in [
            (1_079_296, 31, 4, 17),
            (10_514_432, 302, 4, 17),
            (67_125_248, 964, 8, 17),
            (136_339_456, 979, 16, 17),
            (268_886_016, 521, 16, 63),
            (524_353_536, 1016, 16, 63),
            (1_073_995_776, 2081, 16, 63),
            (33_554_497_536, 65016, 16, 63),
            (33_824_440_320, 16192, 16, 255),
            (107_374_632_960, 51401, 16, 255),
        ] {
            assert_eq!(Chs::of(ByteLen::new(len)), Chs { cylinders, heads, sectors }, "{len}");
        }
    }
}
