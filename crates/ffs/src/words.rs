//! Numbers in the bytes of a structure that is changed in place, in either
//! order.

use crate::superblock::Order;

macro_rules! get {
    ($get:ident, $type:ty) => {
        /// The number at byte `at`, if it lies wholly within.
        pub(crate) fn $get(self, bytes: &[u8], at: usize) -> Option<$type> {
            let raw = *bytes.get(at..)?.first_chunk()?;
            Some(match self {
                Self::Little => <$type>::from_le_bytes(raw),
                Self::Big => <$type>::from_be_bytes(raw),
            })
        }
    };
}

macro_rules! put {
    ($put:ident, $type:ty) => {
        /// Writes the number at byte `at`; nothing if it does not fit.
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
    get!(get_u16, u16);
    get!(get_u32, u32);
    get!(get_u64, u64);
    put!(put_u16, u16);
    put!(put_u32, u32);
    put!(put_u64, u64);
}
