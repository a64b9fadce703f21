//! Directory hashes: the order of a hashed directory (Linux `fs/ext4/hash.c`;
//! half MD4 after RFC 1320 with two thirds of its rounds, TEA after Wheeler
//! and Needham).

use crate::ondisk::hash_version;

/// A name's place in a hashed directory: major hash (even) and minor hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct NameHash {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// The largest major hash; the value above it marks the end of a directory.
const HASH_EOF: u32 = 0x7FFF_FFFF;

/// Hashes `name` by `version` with the superblock's `s_hash_seed`; an all-zero
/// seed stands for the algorithm's default. `None` for versions that need more
/// than the name (SipHash needs the directory's key).
pub(crate) fn name_hash(version: u8, seed: [u32; 4], name: &[u8]) -> Option<NameHash> {
    let mut buf = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    if seed != [0; 4] {
        buf = seed;
    }
    let signed =
        matches!(version, hash_version::LEGACY | hash_version::HALF_MD4 | hash_version::TEA);
    let (major, minor) = match version {
        hash_version::LEGACY | hash_version::LEGACY_UNSIGNED => (legacy(name, signed), 0),
        hash_version::HALF_MD4 | hash_version::HALF_MD4_UNSIGNED => {
            let mut rest = name;
            loop {
                half_md4(&mut buf, &pack::<8>(rest, signed));
                match rest.get(32..) {
                    Some(more) if !more.is_empty() => rest = more,
                    _ => break,
                }
            }
            (buf[1], buf[2])
        }
        hash_version::TEA | hash_version::TEA_UNSIGNED => {
            let mut rest = name;
            loop {
                tea(&mut buf, &pack::<4>(rest, signed));
                match rest.get(16..) {
                    Some(more) if !more.is_empty() => rest = more,
                    _ => break,
                }
            }
            (buf[0], buf[1])
        }
        _ => return None,
    };
    let mut major = major & !1;
    if major == HASH_EOF << 1 {
        major = (HASH_EOF - 1) << 1;
    }
    Some(NameHash { major, minor })
}

/// A byte as a word of the hash: sign-extended or not.
fn widen(byte: u8, signed: bool) -> u32 {
    if signed { i32::from(byte.cast_signed()).cast_unsigned() } else { u32::from(byte) }
}

/// The first `4 * N` bytes of a name as words, most significant byte first,
/// padded with words of the length repeated four times.
fn pack<const N: usize>(name: &[u8], signed: bool) -> [u32; N] {
    let len = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let pad = (len | (len << 8)) & 0xFFFF;
    let pad = pad | (pad << 16);
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(name.chunks(4)) {
        *word = bytes.iter().fold(pad, |value, &byte| widen(byte, signed).wrapping_add(value << 8));
    }
    words
}

fn legacy(name: &[u8], signed: bool) -> u32 {
    let (mut hash0, mut hash1) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
    for &byte in name {
        let mixed = hash0 ^ widen(byte, signed).wrapping_mul(7_152_373);
        let mut hash = hash1.wrapping_add(mixed);
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7FFF_FFFF);
        }
        hash1 = hash0;
        hash0 = hash;
    }
    hash0 << 1
}

fn tea(buf: &mut [u32; 4], input: &[u32; 4]) {
    let [a, b, c, d] = *input;
    let [mut b0, mut b1, ..] = *buf;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        b0 = b0.wrapping_add(
            (b1 << 4).wrapping_add(a) ^ b1.wrapping_add(sum) ^ (b1 >> 5).wrapping_add(b),
        );
        b1 = b1.wrapping_add(
            (b0 << 4).wrapping_add(c) ^ b0.wrapping_add(sum) ^ (b0 >> 5).wrapping_add(d),
        );
    }
    buf[0] = buf[0].wrapping_add(b0);
    buf[1] = buf[1].wrapping_add(b1);
}

fn half_md4(buf: &mut [u32; 4], input: &[u32; 8]) {
    const K2: u32 = 0x5A82_7999;
    const K3: u32 = 0x6ED9_EBA1;
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let parity = |x: u32, y: u32, z: u32| x ^ y ^ z;
    let [mut a, mut b, mut c, mut d] = *buf;
    let [i0, i1, i2, i3, i4, i5, i6, i7] = *input;

    // One step: the first word takes the function of the others and rotates.
    macro_rules! rounds {
        ($f:expr, $k:expr, $shifts:expr, $words:expr) => {{
            let [s0, s1, s2, s3] = $shifts;
            for [w0, w1, w2, w3] in $words {
                a = a.wrapping_add($f(b, c, d)).wrapping_add(w0).wrapping_add($k).rotate_left(s0);
                d = d.wrapping_add($f(a, b, c)).wrapping_add(w1).wrapping_add($k).rotate_left(s1);
                c = c.wrapping_add($f(d, a, b)).wrapping_add(w2).wrapping_add($k).rotate_left(s2);
                b = b.wrapping_add($f(c, d, a)).wrapping_add(w3).wrapping_add($k).rotate_left(s3);
            }
        }};
    }
    rounds!(choose, 0, [3, 7, 11, 19], [[i0, i1, i2, i3], [i4, i5, i6, i7]]);
    rounds!(majority, K2, [3, 5, 9, 13], [[i1, i3, i5, i7], [i0, i2, i4, i6]]);
    rounds!(parity, K3, [3, 9, 11, 15], [[i3, i7, i2, i6], [i1, i5, i0, i4]]);

    for (word, add) in buf.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12345678-1234-5678-9abc-def012345678 as words.
    const SEED: [u32; 4] = [0x7856_3412, 0x7856_3412, 0xF0DE_BC9A, 0x7856_3412];

    /// The output of `debugfs -R 'dx_hash -h VERSION -s SEED NAME'` for the versions 0 to 5.
    #[test]
    #[allow(clippy::unreadable_literal, reason = "digits as debugfs prints them")]
    fn as_debugfs_has_them() {
        type Row<'a> = ([u32; 4], &'a [u8], [(u32, u32); 6]);
        let accents = "é".repeat(40);
        let rows: &[Row<'_>] = &[
            (
                [0; 4],
                b"a",
                [
                    (0xE74B53E2, 0x00000000),
                    (0xD5FA7D7A, 0xACB48187),
                    (0x6D0EA4C0, 0xC18922DF),
                    (0xE74B53E2, 0x00000000),
                    (0xD5FA7D7A, 0xACB48187),
                    (0x6D0EA4C0, 0xC18922DF),
                ],
            ),
            (
                [0; 4],
                b"hello.txt",
                [
                    (0x65A05776, 0x00000000),
                    (0xA26E1D86, 0x133B3F98),
                    (0x5107C3F2, 0x03840CB7),
                    (0x65A05776, 0x00000000),
                    (0xA26E1D86, 0x133B3F98),
                    (0x5107C3F2, 0x03840CB7),
                ],
            ),
            (
                [0; 4],
                "größe".as_bytes(),
                [
                    (0x9D040690, 0x00000000),
                    (0xA759A98E, 0x352B69B2),
                    (0xCC8FD112, 0x6625F082),
                    (0x098D2490, 0x00000000),
                    (0x10EAF0CC, 0x72C4E7B6),
                    (0x2E177714, 0x078D746A),
                ],
            ),
            (
                [0; 4],
                &[b'x'; 255],
                [
                    (0x30557DA6, 0x00000000),
                    (0x2AA7169E, 0x655F9D9C),
                    (0x6C4C00EE, 0x0EAFDB6B),
                    (0x30557DA6, 0x00000000),
                    (0x2AA7169E, 0x655F9D9C),
                    (0x6C4C00EE, 0x0EAFDB6B),
                ],
            ),
            (
                [0; 4],
                b"some-longer-name-with-more-than-32-bytes-in-it",
                [
                    (0x7CF442B6, 0x00000000),
                    (0xBDB3F25A, 0xCCD7886C),
                    (0x31AA047C, 0x7848B24B),
                    (0x7CF442B6, 0x00000000),
                    (0xBDB3F25A, 0xCCD7886C),
                    (0x31AA047C, 0x7848B24B),
                ],
            ),
            (
                [0; 4],
                accents.as_bytes(),
                [
                    (0x66086448, 0x00000000),
                    (0xE397803C, 0x0E6A8535),
                    (0xAAE0DF68, 0xD9D1171C),
                    (0xDE9FF2FA, 0x00000000),
                    (0x78664A24, 0x6FB9364A),
                    (0x661640EE, 0xEF96A51B),
                ],
            ),
            (
                [0; 4],
                b"12345678",
                [
                    (0x2791E102, 0x00000000),
                    (0x3EF964BA, 0xD7A7D8CC),
                    (0xA97108D8, 0xA287E2B4),
                    (0x2791E102, 0x00000000),
                    (0x3EF964BA, 0xD7A7D8CC),
                    (0xA97108D8, 0xA287E2B4),
                ],
            ),
            (
                [0; 4],
                b"0123456789abcdef0123456789abcdef",
                [
                    (0x6D4A15EE, 0x00000000),
                    (0x36184620, 0xC959DF59),
                    (0xCBE95E3C, 0x17627589),
                    (0x6D4A15EE, 0x00000000),
                    (0x36184620, 0xC959DF59),
                    (0xCBE95E3C, 0x17627589),
                ],
            ),
            (
                SEED,
                b"a",
                [
                    (0xE74B53E2, 0x00000000),
                    (0xD4F14B26, 0xB85CB33F),
                    (0x93241D68, 0x15040513),
                    (0xE74B53E2, 0x00000000),
                    (0xD4F14B26, 0xB85CB33F),
                    (0x93241D68, 0x15040513),
                ],
            ),
            (
                SEED,
                b"hello.txt",
                [
                    (0x65A05776, 0x00000000),
                    (0x0139322A, 0xCF48F862),
                    (0x2C4893E4, 0xF8367E12),
                    (0x65A05776, 0x00000000),
                    (0x0139322A, 0xCF48F862),
                    (0x2C4893E4, 0xF8367E12),
                ],
            ),
            (
                SEED,
                "größe".as_bytes(),
                [
                    (0x9D040690, 0x00000000),
                    (0xAA5AE97C, 0x80D0A457),
                    (0x894FFEB8, 0x88F54FB4),
                    (0x098D2490, 0x00000000),
                    (0xD9EB7174, 0xD4B40352),
                    (0x745BF8E2, 0xBEBDE633),
                ],
            ),
            (
                SEED,
                &[b'x'; 255],
                [
                    (0x30557DA6, 0x00000000),
                    (0x34D28950, 0x4735860E),
                    (0x6AEDFF40, 0x642F619E),
                    (0x30557DA6, 0x00000000),
                    (0x34D28950, 0x4735860E),
                    (0x6AEDFF40, 0x642F619E),
                ],
            ),
            (
                SEED,
                b"some-longer-name-with-more-than-32-bytes-in-it",
                [
                    (0x7CF442B6, 0x00000000),
                    (0xD8F803CE, 0x49BEFA1F),
                    (0xD6797674, 0x4DC320E0),
                    (0x7CF442B6, 0x00000000),
                    (0xD8F803CE, 0x49BEFA1F),
                    (0xD6797674, 0x4DC320E0),
                ],
            ),
            (
                SEED,
                accents.as_bytes(),
                [
                    (0x66086448, 0x00000000),
                    (0x0F96B88A, 0xC6CCC2F3),
                    (0x8C2EFE12, 0x5273EBD8),
                    (0xDE9FF2FA, 0x00000000),
                    (0xE9C9C2C2, 0x4D121FCE),
                    (0xEF505468, 0x21E0CB2C),
                ],
            ),
            (
                SEED,
                b"12345678",
                [
                    (0x2791E102, 0x00000000),
                    (0xD97E152C, 0x87B0D3A5),
                    (0xB481A604, 0x794ED33F),
                    (0x2791E102, 0x00000000),
                    (0xD97E152C, 0x87B0D3A5),
                    (0xB481A604, 0x794ED33F),
                ],
            ),
            (
                SEED,
                b"0123456789abcdef0123456789abcdef",
                [
                    (0x6D4A15EE, 0x00000000),
                    (0xFC027CD8, 0xF04B9592),
                    (0x77C45510, 0xA936FDF1),
                    (0x6D4A15EE, 0x00000000),
                    (0xFC027CD8, 0xF04B9592),
                    (0x77C45510, 0xA936FDF1),
                ],
            ),
        ];
        for (seed, name, expected) in rows {
            for (version, (major, minor)) in (0u8..).zip(expected) {
                let hash = name_hash(version, *seed, name).expect("known version");
                let shown = String::from_utf8_lossy(name);
                assert_eq!(hash, NameHash { major: *major, minor: *minor }, "{version} {shown}");
            }
        }
        assert_eq!(name_hash(hash_version::SIPHASH, [0; 4], b"a"), None);
    }
}
