//! The first pass: finds the committed transactions.

use super::checksum::{commit_matches, crc32_be, transaction_matches};
use super::form::place;
use super::log::Log;
use super::tags;
use crate::ondisk::{JOURNAL_MAGIC, JournalHeader, journal_at, journal_block, journal_feature};
use seekless_fs::field::parse;
use seekless_fs::{Corruption, FsError, Location};

/// Blocks that a later pass reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Descriptor,
    Revoke,
}

/// A block of the log that belongs to a committed transaction.
pub(super) struct LogBlock {
    pub(super) kind: Kind,
    pub(super) transaction: u32,
    pub(super) at: u32,
}

/// The committed part of the log.
pub(super) struct Scanned {
    pub(super) steps: Vec<LogBlock>,
    /// The transaction after the last committed one.
    pub(super) end: u32,
}

/// The transaction that is being read.
struct Open {
    steps: Vec<LogBlock>,
    /// A block of it has a wrong checksum: damage, or the remains of an older
    /// turn around the ring.
    suspect: bool,
    crc: u32,
}

impl Open {
    fn new() -> Self {
        Self { steps: Vec::new(), suspect: false, crc: !0 }
    }
}

/// The state of a commit record.
enum Commit {
    Sound,
    Stale,
    Damaged,
}

/// Reads the log from its start to the first block that does not continue it.
pub(super) fn scan(log: &Log<'_>, start: u32) -> Result<Scanned, FsError> {
    let mut done = Scanned { steps: Vec::new(), end: log.sequence };
    let mut open = Open::new();
    let mut last_time = 0;
    let (mut at, mut read) = (start, 0u64);
    while read < u64::from(log.ring_len()) {
        let block = log.block(at)?;
        let Some(kind) = block_kind(&block, done.end) else { break };
        let here = at;
        at = log.after(at, 1);
        read += 1;
        match kind {
            journal_block::DESCRIPTOR => {
                open.suspect |= !log.tail_matches(&block);
                let count = u32::try_from(tags::read(&log.form, &block)?.len()).unwrap_or(u32::MAX);
                if log.form.has_transaction_checksums() {
                    open.crc = transaction_crc(log, open.crc, &block, here, count)?;
                }
                open.steps.push(LogBlock {
                    kind: Kind::Descriptor,
                    transaction: done.end,
                    at: here,
                });
                at = log.after(at, count);
                read += u64::from(count);
            }
            journal_block::REVOKE => {
                open.suspect |= !log.tail_matches(&block);
                open.steps.push(LogBlock { kind: Kind::Revoke, transaction: done.end, at: here });
            }
            journal_block::COMMIT => {
                let time = commit_time(&block);
                match judge(log, &block, &open, time < last_time) {
                    Commit::Sound => {}
                    Commit::Stale => break,
                    Commit::Damaged => return damaged(log, done),
                }
                last_time = time;
                done.steps.append(&mut open.steps);
                done.end = done.end.wrapping_add(1);
                open = Open::new();
            }
            _ => break,
        }
    }
    Ok(done)
}

/// The type of a block if it is one of transaction `expected`.
fn block_kind(block: &[u8], expected: u32) -> Option<u32> {
    let header: JournalHeader = parse(block, 0)?;
    let ours = header.h_magic.get() == JOURNAL_MAGIC && header.h_sequence.get() == expected;
    ours.then(|| header.h_blocktype.get())
}

fn commit_time(block: &[u8]) -> u64 {
    let bytes = block.get(journal_at::COMMIT_SECONDS..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Older checksums cover a descriptor and all blocks it describes.
fn transaction_crc(
    log: &Log<'_>,
    crc: u32,
    descriptor: &[u8],
    at: u32,
    count: u32,
) -> Result<u32, FsError> {
    let mut crc = crc32_be(crc, descriptor);
    for n in 1..=count.min(log.ring_len()) {
        crc = crc32_be(crc, &log.block(log.after(at, n))?);
    }
    Ok(crc)
}

fn judge(log: &Log<'_>, commit: &[u8], open: &Open, older: bool) -> Commit {
    if !log.verifies {
        return Commit::Sound;
    }
    let whole = !log.form.has_transaction_checksums() || transaction_matches(commit, open.crc);
    if !open.suspect && whole && commit_matches(&log.form, commit) {
        return Commit::Sound;
    }
    if older { Commit::Stale } else { Commit::Damaged }
}

/// With asynchronous commits a record may reach the disk before its blocks:
/// the log then simply ends there. Otherwise the journal is damaged.
fn damaged(log: &Log<'_>, done: Scanned) -> Result<Scanned, FsError> {
    if log.lenient || log.form.has(journal_feature::INCOMPAT_ASYNC_COMMIT) {
        return Ok(done);
    }
    let kind = Corruption::Invalid { field: "h_chksum", value: u64::from(done.end) };
    Err(FsError::corrupt(kind, Location { structure: "journal commit block", ..place() }))
}
