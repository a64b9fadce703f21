//! Contents compared with their digests.

use seekless_fs::FsError;
use seekless_fs::source::Source;
use seekless_fs::tree::NodeId;
use sha2::{Sha256, Sha384, Sha512};

/// A digest of a file's contents.
#[derive(Clone, Debug)]
pub(super) struct Digest {
    kind: DigestKind,
    sum: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DigestKind {
    Sha256,
    Sha384,
    Sha512,
}

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

impl Digest {
    /// A digest by its keyword: `None` for a keyword that is none, `Some(None)` for a value that is
    /// none.
    pub(super) fn new(keyword: &str, value: &[u8]) -> Option<Option<Self>> {
        let (kind, len) = match keyword.strip_suffix("digest").unwrap_or(keyword) {
            "sha256" => (DigestKind::Sha256, 32),
            "sha384" => (DigestKind::Sha384, 48),
            "sha512" => (DigestKind::Sha512, 64),
            _ => return None,
        };
        let digit = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok().filter(|text| !text.starts_with('+'))?;
            u8::from_str_radix(text, 16).ok()
        };
        let sum: Option<Vec<u8>> = value.chunks(2).map(digit).collect();
        Some(
            sum.filter(|sum| sum.len() == len && value.len() == 2 * len)
                .map(|sum| Self { kind, sum }),
        )
    }

    /// The keyword.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            DigestKind::Sha256 => "sha256digest",
            DigestKind::Sha384 => "sha384digest",
            DigestKind::Sha512 => "sha512digest",
        }
    }

    /// Whether a keyword is that of such a digest; its ending `digest` is optional.
    pub(super) fn has_keyword(&self, keyword: &[u8]) -> bool {
        let name = self.name().as_bytes();
        keyword == name || Some(keyword) == name.strip_suffix(b"digest")
    }

    pub(super) fn has_kind_of(&self, other: &Self) -> bool {
        self.kind == other.kind
    }

    /// Whether it is that of a file of `size` bytes.
    pub(super) fn is_of(
        &self,
        source: &dyn Source,
        node: NodeId,
        size: u64,
    ) -> Result<bool, FsError> {
        let sum = match self.kind {
            DigestKind::Sha256 => sum::<Sha256>(source, node, size),
            DigestKind::Sha384 => sum::<Sha384>(source, node, size),
            DigestKind::Sha512 => sum::<Sha512>(source, node, size),
        };
        Ok(sum? == self.sum)
    }
}

fn sum<D: sha2::Digest>(source: &dyn Source, node: NodeId, size: u64) -> Result<Vec<u8>, FsError> {
    let mut hasher = D::new();
    let mut piece = vec![0; PIECE];
    let mut content = source.open(node)?;
    let mut at = 0;
    while at < size {
        let len = usize::try_from(size - at).map_or(PIECE, |rest| rest.min(PIECE));
        let piece = piece.get_mut(..len).unwrap_or_default();
        content.read_at(at, piece)?;
        hasher.update(&*piece);
        at += u64::try_from(len).unwrap_or(u64::MAX);
    }
    content.verify()?;
    Ok(hasher.finalize().to_vec())
}
