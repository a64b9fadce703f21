//! Episodes that are not over yet.

use super::{FileId, Rules, Seconds};
use std::collections::{HashMap, HashSet};

/// Sources that are listened to at the same time.
const MOST_STREAMS: usize = 1024;

/// Files that one source opened until it was quiet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Episode {
    /// Name of the program that began it.
    pub program: String,
    /// Each once, in the order of first open.
    pub files: Vec<FileId>,
}

#[derive(Clone, Debug)]
struct Stream {
    program: String,
    began: Seconds,
    last: Seconds,
    files: Vec<FileId>,
    seen: HashSet<FileId>,
    /// It has become too large, and is not kept.
    is_scan: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Streams {
    gap: Seconds,
    longest: Seconds,
    most_files: usize,
    most_open: usize,
    open: HashMap<u32, Stream>,
    /// Files in all of them.
    entries: usize,
}

impl Streams {
    pub(super) fn new(rules: &Rules) -> Self {
        let &Rules { gap, longest, most_files, most_open, .. } = rules;
        Self { gap, longest, most_files, most_open, open: HashMap::new(), entries: 0 }
    }

    pub(super) fn opened(&mut self, now: Seconds, source: u32, program: &str, file: FileId) {
        if self.open.len() >= MOST_STREAMS && !self.open.contains_key(&source) {
            return;
        }
        let stream = self.open.entry(source).or_insert_with(|| Stream {
            program: program.to_string(),
            began: now,
            last: now,
            files: Vec::new(),
            seen: HashSet::new(),
            is_scan: false,
        });
        stream.last = now;
        if stream.is_scan || !stream.seen.insert(file) {
            return;
        }
        stream.files.push(file);
        self.entries += 1;
        if stream.files.len() > self.most_files {
            self.entries -= stream.give_up();
        } else if self.entries > self.most_open
            && let Some(largest) = self.open.values_mut().max_by_key(|stream| stream.files.len())
        {
            self.entries -= largest.give_up();
        }
    }

    /// Episodes that are over, the one that ended first before the others.
    pub(super) fn due(&mut self, now: Seconds) -> Vec<Episode> {
        let is_over = |stream: &Stream| {
            // Seconds are whole: a gap of 1 may have been a moment.
            now.saturating_sub(stream.last) > self.gap
                || (!stream.is_scan && now.saturating_sub(stream.began) >= self.longest)
        };
        let over = self.open.iter().filter(|(_, stream)| is_over(stream));
        let mut over: Vec<(Seconds, u32)> =
            over.map(|(source, stream)| (stream.last, *source)).collect();
        over.sort_unstable();
        let mut episodes = Vec::new();
        for (_, source) in over {
            let Some(stream) = self.open.remove(&source) else { continue };
            self.entries -= stream.files.len();
            if !stream.is_scan {
                episodes.push(Episode { program: stream.program, files: stream.files });
            }
        }
        episodes
    }
}

impl Stream {
    /// Forgets the opened files, since they are too many; returns their number.
    fn give_up(&mut self) -> usize {
        self.is_scan = true;
        self.seen = HashSet::new();
        std::mem::take(&mut self.files).len()
    }
}
