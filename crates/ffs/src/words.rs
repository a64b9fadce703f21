//! Numbers in the bytes of a structure that is changed in place, in either
//! order.

use crate::superblock::Order;

macro_rules! width {
    ($get:ident, $put:ident, $type:ty) => {
        /// The number at byte `at`, if it lies wholly within.
        pub(crate) fn $get(self, bytes: &[u8], at: usize) -> Option<$type> {
            let raw = *bytes.get(at..)?.first_chunk()?;
            Some(match self {
                Self::Little => <$type>::from_le_bytes(raw),
                Self::Big => <$type>::from_be_bytes(raw),
            })
        }

        /// Writes the number at byte `at`; nothing where it would not fit.
        pub(crate) fn $put(self, bytes: &mut [u8], at: usize, value: $type) {
            let raw = match self {
                Self::Little => value.to_le_bytes(),
                Self::Big => value.to_be_bytes(),
            };
            if let Some(to) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                *to = raw;
            }
        }
    };
}

impl Order {
    width!(get_u16, put_u16, u16);
    width!(get_u32, put_u32, u32);
    width!(get_u64, put_u64, u64);
}
