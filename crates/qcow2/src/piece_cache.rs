//! A cache of parts of an image, in bounded memory.

use crate::number::{divide, index};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Pieces of an image, all of about the same size, by number. When there are too many, all are
/// dropped: a reader goes through an image in parts, not over all of it again and again.
pub(crate) struct PieceCache {
    most: usize,
    pieces: Mutex<HashMap<u64, Arc<[u8]>>>,
}

impl PieceCache {
    /// A cache of `bytes` in pieces of `piece` bytes, and of at least four pieces.
    pub(crate) fn new(bytes: u64, piece: u64) -> Self {
        debug_assert!(piece > 0, "a piece has bytes");
        let most = index(divide(bytes, piece).0).max(4);
        Self { most, pieces: Mutex::default() }
    }

    /// Returns a piece, reading it if it is not cached. Two concurrent callers may both read it.
    pub(crate) fn get<E>(
        &self,
        number: u64,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Arc<[u8]>, E> {
        let known = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = known.get(&number) {
            return Ok(piece.clone());
        }
        drop(known);
        let piece: Arc<[u8]> = make()?.into();
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.len() >= self.most {
            pieces.clear();
        }
        pieces.insert(number, piece.clone());
        debug_assert!(pieces.len() <= self.most, "{} pieces in memory", pieces.len());
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let kept = PieceCache::new(1 << 10, 100);
        for number in 0..1000 {
            let made = kept.get(number, || Ok::<_, ()>(vec![number as u8])).unwrap();
            assert_eq!(*made, [number as u8]);
            assert!(kept.pieces.lock().unwrap().len() <= 10);
        }
        assert_eq!(kept.get(999, || Err(())), Ok(vec![231].into()));
        assert_eq!(kept.get(2, || Err("gone")), Err("gone"));
    }
}
