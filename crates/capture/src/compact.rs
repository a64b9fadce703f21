//! Recordings that keep only first touches while they run.

use super::collect::{Ours, Source};
use super::naming::traced;
use seekless_host::fanotify::{AccessKind, Noticed};
use seekless_host::tracefs::Traced;
use seekless_layout::recording::{FirstTouches, PageAccess, TouchKind};
use seekless_units::Ino;
use std::path::Path;

/// Threads of which something is kept before those that have ended are looked for.
const THREADS: usize = 1 << 14;

/// An event of either source.
enum Seen {
    Traced(Traced),
    Noticed(Noticed),
}

impl Seen {
    const fn time(&self) -> u64 {
        match self {
            Self::Traced(event) => event.time,
            Self::Noticed(event) => event.time,
        }
    }

    const fn tid(&self) -> u32 {
        match self {
            Self::Traced(event) => event.tid,
            Self::Noticed(event) => event.tid,
        }
    }

    /// The touch that it becomes in the trace; `None` if it does not become any. An open of a
    /// directory counts as a listing where nothing else tells of listings.
    fn touch(&self, are_listings_known: bool) -> Option<TouchKind> {
        match self {
            // Blocks have the numbers of their first bytes, so that the size of blocks need not be
            // known.
            Self::Traced(event) => traced(event.what.clone(), 1, 0),
            Self::Noticed(event) => {
                let ino = Ino::new(u32::try_from(event.ino).ok()?);
                Some(match (event.did, event.directory) {
                    (AccessKind::Access, true) => TouchKind::Listed(ino),
                    // Which pages it was is looked up at the end.
                    (AccessKind::Access, false) => {
                        let how = PageAccess::Asked;
                        TouchKind::Pages { ino, first: 0, last: 0, how }
                    }
                    (AccessKind::Open, true) if !are_listings_known => TouchKind::Listed(ino),
                    (AccessKind::Open, _) => TouchKind::Opened(ino),
                    (AccessKind::Exec, _) => TouchKind::Executed(ino),
                })
            }
        }
    }
}

/// Events that were read.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) traced: Vec<Traced>,
    pub(super) noticed: Vec<Noticed>,
}

impl Batch {
    fn push(&mut self, event: Seen) {
        match event {
            Seen::Traced(event) => self.traced.push(event),
            Seen::Noticed(event) => self.noticed.push(event),
        }
    }
}

/// The events of a recording, first touches only.
pub(super) struct Compacted {
    are_listings_known: bool,
    first: FirstTouches<Seen>,
    /// Events that others may precede which have not been read yet.
    waiting: Vec<Seen>,
    /// Threads at which those that have ended are looked for.
    most: usize,
    kept: Batch,
    /// Accesses of threads that ended before they could be identified.
    strangers: u64,
}

impl Compacted {
    pub(super) fn of(source: Source) -> Self {
        Self {
            are_listings_known: source == Source::Fanotify,
            first: FirstTouches::default(),
            waiting: Vec::new(),
            most: 0,
            kept: Batch::default(),
            strangers: 0,
        }
    }

    /// Takes events. All that happened before `until` have been read. Events of `helpers` are kept;
    /// they do not stand for those of others.
    pub(super) fn take(
        &mut self,
        mut batch: Batch,
        until: u64,
        helpers: &[u32],
        ours: Option<&mut Ours>,
    ) {
        batch.noticed.retain(|event| event.tid != std::process::id());
        if let Some(ours) = ours {
            self.strangers += ours.keep(&batch.traced, &mut batch.noticed);
        }
        self.waiting.extend(batch.traced.into_iter().map(Seen::Traced));
        self.waiting.extend(batch.noticed.into_iter().map(Seen::Noticed));
        self.waiting.sort_by_key(Seen::time);
        let ready = self.waiting.partition_point(|event| event.time() < until);
        for event in self.waiting.drain(..ready) {
            if helpers.contains(&event.tid()) {
                self.kept.push(event);
            } else if let Some(touch) = event.touch(self.are_listings_known) {
                self.first.take(event.tid(), &touch, event, &mut |event| self.kept.push(event));
            }
        }
        if self.first.threads() > self.most.max(THREADS) {
            self.first.forget(|tid| !Path::new(&format!("/proc/{tid}")).exists());
            self.most = 2 * self.first.threads();
        }
    }

    /// The events that are kept, and the number of accesses of threads that were not identified.
    pub(super) fn finish(mut self, helpers: &[u32]) -> (Batch, u64) {
        self.take(Batch::default(), u64::MAX, helpers, None);
        self.first.finish(&mut |event| self.kept.push(event));
        self.kept.noticed.sort_by_key(|event| event.time);
        (self.kept, self.strangers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trace events tell of opens of directories, and nothing of listings.
    #[test]
    fn a_directory_is_listed_by_another_thread_than_opened_it_first() {
        let open = |time, tid, ino| Noticed {
            time,
            tid,
            did: AccessKind::Open,
            ino,
            directory: true,
            comm: None,
            path: None,
        };
        let opens = |tid| (0..9).map(move |at| open(u64::from(tid) + at, tid, 20 + at));
        let noticed: Vec<Noticed> = opens(10).chain(opens(30)).chain(opens(50)).collect();
        let mut compacted = Compacted::of(Source::Tracefs);
        for noticed in [&noticed[..], &noticed[18..]] {
            let noticed = noticed.to_vec();
            compacted.take(Batch { noticed, ..Batch::default() }, u64::MAX, &[], None);
        }
        let (kept, _) = compacted.finish(&[]);
        // Touches that repeat earlier ones of the thread are left out, but for the last four.
        assert_eq!(kept.noticed.len(), noticed.len() + 4);
        assert!(noticed.iter().all(|event| kept.noticed.contains(event)));
    }
}
