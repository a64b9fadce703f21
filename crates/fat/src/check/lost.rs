//! Chains of clusters without an entry.

use super::{Checker, problems};
use crate::table::{Link, entry_place};
use seekless_fs::Location;
use seekless_fs::bits::Bits;
use seekless_fs::field::index;

impl Checker {
    /// Finds chains without a name, and cuts them off before clusters of other chains.
    pub(super) fn check_lost(&mut self) {
        if self.is_blind {
            return;
        }
        let end = self.boot().last_cluster() + 1;
        // Unclaimed clusters, and those of them that another of them leads to.
        let lost: Vec<u32> = (2..end).filter(|&cluster| self.is_lost(cluster)).collect();
        let mut led_to = Bits::new(if lost.is_empty() { 0 } else { index(end) });
        for &cluster in &lost {
            if let Link::Next(next) = self.fat.link(self.boot(), cluster) {
                led_to.set(index(next));
            }
        }
        for &cluster in &lost {
            if self.is_lost(cluster) && !led_to.get(index(cluster)) {
                self.lost_chain(cluster);
            }
        }
        // The rest are loops: each is opened at its lowest cluster.
        for &cluster in &lost {
            if self.is_lost(cluster) {
                self.lost_chain(cluster);
            }
        }
        self.check_room();
    }

    /// Whether the root directory has a free slot for each chain without a name.
    fn check_room(&mut self) {
        let (chains, slots) = (self.lost.len(), self.root_free.len());
        if self.root_last.is_some() || chains <= slots {
            return;
        }
        let what = if slots == 0 {
            format!("no slot is free, and {chains} chains have no name: they can only be freed")
        } else {
            format!("{slots} slots are free for {chains} chains without a name")
        };
        let (start, _) = self.boot().fixed_root();
        let place = Location::of("root directory").in_block(start);
        self.found(problems::ROOT_FULL, what, place);
    }

    fn is_lost(&self, cluster: u32) -> bool {
        if self.claimed.get(index(cluster)) || self.fat.raw(cluster) == 0 {
            return false;
        }
        !matches!(self.fat.link(self.boot(), cluster), Link::Free | Link::Bad)
    }

    fn lost_chain(&mut self, first: u32) {
        let (mut len, mut here) = (0u32, first);
        loop {
            let is_new = self.claimed.set(index(here));
            debug_assert!(is_new, "cluster {here} is in one chain");
            len += 1;
            match self.fat.link(self.boot(), here) {
                Link::Next(next) if self.is_lost(next) => here = next,
                Link::Next(_) => {
                    self.fat.end(here);
                    break;
                }
                _ => break,
            }
        }
        let what = format!("a chain of {len} clusters from {first} on that has no name");
        let place = entry_place(self.boot(), self.boot().active, first);
        self.found(problems::CHAIN_LOST, what, place);
        self.lost.push((first, len));
    }

    /// Frees a chain without a name.
    pub(super) fn free_chain(&mut self, first: u32) {
        let mut next = Some(first);
        while let Some(here) = next {
            next = match self.fat.link(self.boot(), here) {
                Link::Next(next) => Some(next),
                _ => None,
            };
            self.fat.set(here, 0);
        }
    }
}
