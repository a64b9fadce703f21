//! Policies to compare with, which know nothing of groups (after B. Evans'
//! comparisons of dirpref and blkpref with simpler rules).

use super::{BlockPlacement, Request, Wanted};
use crate::View;
use crate::chance::Chance;
use seekless_units::{BlockNo, GroupNo};

/// Every block goes behind whatever was allocated last, as on a tape, and at the
/// start again behind the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextFree {
    last: Option<BlockNo>,
}

/// A file begins anywhere.
#[derive(Clone, Debug)]
pub struct RandomStart {
    chance: Chance,
}

/// A file begins as near to the start of the volume as there is a free block.
#[derive(Clone, Copy, Debug)]
pub struct NearStart;

impl NextFree {
    /// What it is called.
    pub const NAME: &'static str = "next-free";
}

impl RandomStart {
    /// What it is called.
    pub const NAME: &'static str = "random-start";

    /// With a seed for its chance.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed) }
    }
}

impl NearStart {
    /// What it is called.
    pub const NAME: &'static str = "near-start";
}

/// The place behind the block in front, where there is one: the last direct
/// block for the first indirect one, and that for the block that follows.
fn following(view: &View<'_>, request: &Request) -> Option<BlockNo> {
    let before = match request.wanted {
        Wanted::Indirect(_) => request.last_direct,
        Wanted::Data { index: 0, .. } => request.first_indirect.or(request.last_direct),
        Wanted::Data { previous, .. } => previous,
    };
    before.map(|block| block.saturating_add(u64::from(view.volume.frag)))
}

impl BlockPlacement for NextFree {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, view: &View<'_>, _: &Request) -> Option<BlockNo> {
        let frag = u64::from(view.volume.frag);
        let next = self.last.map(|last| last.saturating_add(frag));
        let begin = view.volume.meta_zone(GroupNo::ZERO);
        Some(next.filter(|next| next.get() < view.volume.size).unwrap_or(begin))
    }

    fn allocated(&mut self, at: BlockNo) {
        self.last = Some(at);
    }
}

impl BlockPlacement for RandomStart {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, view: &View<'_>, request: &Request) -> Option<BlockNo> {
        let frag = u64::from(view.volume.frag).max(1);
        following(view, request).or_else(|| {
            let blocks = view.volume.size.checked_div(frag).unwrap_or(0);
            Some(BlockNo::new(self.chance.below(blocks).saturating_mul(frag)))
        })
    }
}

impl BlockPlacement for NearStart {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prefer(&mut self, view: &View<'_>, request: &Request) -> Option<BlockNo> {
        following(view, request).or_else(|| {
            let mut groups = view.from(GroupNo::ZERO);
            let (first, _) = groups.find(|(_, group)| group.nbfree > 0)?;
            Some(view.volume.meta_zone(first))
        })
    }
}
