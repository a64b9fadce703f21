//! Disk quotas: how much each user and each group has, and how much they may have.
//!
//! Inodes and their sectors are charged to owner and group. [`Ledger`] notes every node that an
//! operation may have changed, and compares it with its charge: so creation, growth, cuts, removal
//! and changes of owner need no code of their own. Before space is taken,
//! [`Core::admit`](crate::Core::admit) and its kin enforce the limits.
//!
//! The rules are those of FreeBSD (`chkdq`, `chkiq` and `getinoquota` of `sys/ufs/ufs/ufs_quota.c`):
//! a hard limit is one more than the most that there may be; above a soft limit there is time until
//! it counts as a hard one; the superuser has no limits, but usage; ids from 2^31 on are not counted.

use crate::node::Node;
use hashbrown::HashMap;
use seekless_fs::FsError;
use seekless_fs::quota::LimitChange;
use seekless_units::{Ino, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Seconds above a soft limit, where a quota file has no others for everybody (`MAX_DQ_TIME`).
pub const USUAL_GRACE: i64 = 7 * 24 * 60 * 60;

/// Nanoseconds between writes of the quota files (the interval of FreeBSD's syncer, which calls `qsync`).
const INTERVAL: u64 = 30_000_000_000;

/// The smallest id that is not counted: it would be negative.
const FIRST_UNCOUNTED: u32 = 1 << 31;

/// Whose quotas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QuotaKind {
    /// Those of users.
    User,
    /// Those of groups.
    Group,
}

impl QuotaKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::User, Self::Group];

    /// The owner's kind in messages.
    const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }
}

/// Whether an error says that a file has no room.
pub(crate) const fn is_about_room(error: &FsError) -> bool {
    matches!(error, FsError::NoSpace(_) | FsError::TooLarge(_))
}

/// Usage of one resource, and its limits; a limit of zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowance {
    /// One more than the most that there may be.
    pub hard: u64,
    /// From here on there is only the time until `expires`.
    pub soft: u64,
    /// Usage.
    pub used: u64,
    /// Until when more than `soft` is allowed, in seconds since 1970; for id 0, the time that
    /// everybody has for it, in seconds.
    pub expires: i64,
}

impl Allowance {
    /// Whether there may be so much more.
    ///
    /// ```
    /// use seekless_live::Allowance;
    ///
    /// let quota = Allowance { hard: 10, soft: 0, used: 7, expires: 0 };
    /// assert!(quota.allows(2, 0));
    /// // A hard limit is one more than the most.
    /// assert!(!quota.allows(3, 0));
    /// ```
    #[must_use]
    pub const fn allows(&self, more: u64, now: i64) -> bool {
        let next = self.used.saturating_add(more);
        let too_many = self.hard > 0 && next >= self.hard;
        let too_long = self.soft > 0 && self.used >= self.soft && now > self.expires;
        more == 0 || !(too_many || too_long)
    }

    /// As [`Allowance::allows`], where the operation under way was allowed `pending` already. An
    /// operation that begins below the soft limit begins the time with its end, and is not subject
    /// to one that is over.
    const fn allows_after(&self, pending: u64, more: u64, now: i64) -> bool {
        let next = Self { used: self.used.saturating_add(pending), ..*self };
        let next = match self.used < self.soft {
            true => Self { soft: 0, ..next },
            false => next,
        };
        next.allows(more, now)
    }

    /// Sets limits. The time above the soft limit begins if usage has reached the new one, and had
    /// not reached the old one.
    fn set_limits(&mut self, new: LimitChange, ends: Option<i64>) {
        let was_over = self.soft > 0 && self.used >= self.soft;
        self.soft = new.soft.unwrap_or(self.soft);
        self.hard = new.hard.unwrap_or(self.hard);
        if let Some(ends) = ends
            && self.soft > 0
            && self.used >= self.soft
            && !was_over
        {
            self.expires = ends;
        }
    }

    /// Sets the usage. The time above a soft limit begins when that is reached.
    fn set_used(&mut self, used: u64, ends: Option<i64>) {
        if let Some(ends) = ends
            && used >= self.soft
            && self.used < self.soft
        {
            self.expires = ends;
        }
        self.used = used;
    }
}

/// The quota of one user or group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quota {
    /// In sectors of 512 bytes.
    pub space: Allowance,
    /// Inodes.
    pub inodes: Allowance,
}

impl Quota {
    /// Neither usage nor limits nor times.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Sectors and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Records that quota files could not take when they were last written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LackingRecords {
    /// The file and the owner of the first one, and the reason.
    first: String,
    count: usize,
    /// For want of room only.
    is_for_room: bool,
}

impl LackingRecords {
    /// The error for them: [`FsError::NoSpace`] for want of room, [`FsError::Unsupported`] for damage
    /// in their way.
    #[must_use]
    pub fn error(&self) -> FsError {
        match self.is_for_room {
            true => FsError::NoSpace(self.to_string()),
            false => FsError::Unsupported(format!("writing to quota files: {self}")),
        }
    }
}

impl fmt::Display for LackingRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first)?;
        match self.count {
            1 => Ok(()),
            2 => f.write_str(" (and 1 more record)"),
            count => write!(f, " (and {} more records)", count - 1),
        }
    }
}

/// The quotas of all users or of all groups.
#[derive(Clone, Debug, Default)]
struct Book {
    /// The path of the quota file.
    file: String,
    quotas: BTreeMap<u32, Quota>,
    /// Ids whose quotas differ from the quota file.
    changed: BTreeSet<u32>,
    /// Seconds above soft limits, of space and of inodes.
    grace: (i64, i64),
}

impl Book {
    fn get(&self, id: u32) -> Quota {
        self.quotas.get(&id).copied().unwrap_or_default()
    }

    /// Sets the usage of an id. Of id 0, the times are those that everybody has.
    fn set(&mut self, id: u32, usage: Usage, now: i64) {
        let ends = |grace: i64| (id != 0).then(|| now.saturating_add(grace));
        let (space, inodes) = (ends(self.grace.0), ends(self.grace.1));
        let quota = self.quotas.entry(id).or_insert_with(|| {
            let with = |expires: Option<i64>| Allowance {
                expires: expires.unwrap_or(0),
                ..Allowance::default()
            };
            Quota { space: with(space), inodes: with(inodes) }
        });
        let before = *quota;
        quota.space.set_used(usage.sectors, space);
        quota.inodes.set_used(usage.inodes, inodes);
        if *quota != before {
            self.changed.insert(id);
        }
    }
}

/// The times above soft limits of space and of inodes, by the record of id 0.
fn graces(everybody: &Quota) -> (i64, i64) {
    let grace = |seconds: i64| if seconds > 0 { seconds } else { USUAL_GRACE };
    (grace(everybody.space.expires), grace(everybody.inodes.expires))
}

/// The quotas of a volume in use.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    books: [Option<Book>; 2],
    /// Usage that the operation under way was allowed, by kind and id, and that is not charged yet.
    admitted: BTreeMap<(QuotaKind, u32), Usage>,
    /// When the files are written next, by the device's clock.
    due: Nanos,
    /// Whether the files were written since [`Quotas::take_rewritten`].
    rewritten: bool,
    /// Records that the files could not take when they were last written.
    lacking: Option<LackingRecords>,
}

impl Quotas {
    /// No quotas are kept.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps quotas of a kind: those of a quota file, with its path for messages, and with the usage
    /// that was counted. The times above soft limits that began before the file was written go on.
    pub fn keep(
        &mut self,
        kind: QuotaKind,
        (file, mut quotas): (&str, BTreeMap<u32, Quota>),
        counted: &BTreeMap<u32, Usage>,
        now: i64,
    ) {
        let everybody = quotas.get(&0).copied().unwrap_or_default();
        let grace = graces(&everybody);
        let mut changed = BTreeSet::new();
        for (&id, quota) in quotas.iter_mut().filter(|(id, _)| **id != 0) {
            let mut begin = |one: &mut Allowance, grace: i64| {
                if one.expires == 0 {
                    one.expires = now.saturating_add(grace);
                    if one.soft > 0 && one.used >= one.soft {
                        changed.insert(id);
                    }
                }
            };
            begin(&mut quota.space, grace.0);
            begin(&mut quota.inodes, grace.1);
        }
        let ids: BTreeSet<u32> = quotas.keys().chain(counted.keys()).copied().collect();
        let mut book = Book { file: file.into(), quotas, changed, grace };
        for id in ids {
            book.set(id, counted.get(&id).copied().unwrap_or_default(), now);
        }
        *self.place(kind) = Some(book);
    }

    fn place(&mut self, kind: QuotaKind) -> &mut Option<Book> {
        let [user, group] = &mut self.books;
        match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
        }
    }

    fn book(&self, kind: QuotaKind) -> Option<&Book> {
        let [user, group] = &self.books;
        match kind {
            QuotaKind::User => user.as_ref(),
            QuotaKind::Group => group.as_ref(),
        }
    }

    /// The quota of an id; `None` where quotas of its kind are not kept.
    #[must_use]
    pub fn of(&self, kind: QuotaKind, id: u32) -> Option<Quota> {
        Some(self.book(kind)?.get(id))
    }

    /// All quotas that differ from their files.
    pub(crate) fn all_changed(&self) -> Vec<(QuotaKind, u32)> {
        let of = |kind| self.book(kind).into_iter().flat_map(|book| &book.changed);
        QuotaKind::ALL.into_iter().flat_map(|kind| of(kind).map(move |&id| (kind, id))).collect()
    }

    /// Sets limits of an id, space in sectors; usage stays as it is. The time above a soft limit begins
    /// if usage has reached the new one and had not reached the old one (`setquota` of FreeBSD's
    /// `ufs_quota.c`). Without effect where quotas of the kind are not kept.
    pub fn set_limits(
        &mut self,
        kind: QuotaKind,
        id: u32,
        (space, inodes): (LimitChange, LimitChange),
        now: i64,
    ) {
        let Some(book) = self.place(kind) else { return };
        let before = book.get(id);
        let mut quota = before;
        // Of id 0, the times are those that everybody has.
        let ends = |grace: i64| (id != 0).then(|| now.saturating_add(grace));
        quota.space.set_limits(space, ends(book.grace.0));
        quota.inodes.set_limits(inodes, ends(book.grace.1));
        if quota != before {
            book.quotas.insert(id, quota);
            book.changed.insert(id);
        }
    }

    /// Sets the times that everybody has above soft limits of space and of inodes, in seconds; those
    /// that have begun go on. A time of 0 becomes the usual one. Without effect where quotas of the
    /// kind are not kept.
    pub fn set_grace(&mut self, kind: QuotaKind, space: Option<i64>, inodes: Option<i64>) {
        let Some(book) = self.place(kind) else { return };
        let mut quota = book.get(0);
        quota.space.expires = space.unwrap_or(quota.space.expires);
        quota.inodes.expires = inodes.unwrap_or(quota.inodes.expires);
        if quota != book.get(0) {
            book.quotas.insert(0, quota);
            book.changed.insert(0);
        }
        book.grace = graces(&quota);
    }

    /// The quota of an id, if it differs from the file.
    #[must_use]
    pub fn unwritten(&self, kind: QuotaKind, id: u32) -> Option<Quota> {
        self.book(kind).filter(|book| book.changed.contains(&id)).map(|book| book.get(id))
    }

    /// Whether [`INTERVAL`] has passed since this was last true.
    pub(crate) fn take_due(&mut self, now: Nanos) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + INTERVAL;
        }
        is_due
    }

    /// Whether a file was written since the last call.
    pub(crate) fn take_rewritten(&mut self) -> bool {
        std::mem::take(&mut self.rewritten)
    }

    /// Notes the records that the files could not take, each with the reason, and returns them if
    /// there were none before.
    pub(crate) fn begins_to_lack(
        &mut self,
        failed: &[((QuotaKind, u32), FsError)],
    ) -> Option<&LackingRecords> {
        let lacking = failed.first().map(|&((kind, id), ref error)| {
            let file = self.book(kind).map_or("", |book| &book.file);
            let is_for_room = failed.iter().all(|(_, error)| is_about_room(error));
            let first = format!("{file}: {} {id}: {error}", kind.name());
            LackingRecords { first, count: failed.len(), is_for_room }
        });
        let begins = self.lacking.is_none();
        self.lacking = lacking;
        self.lacking.as_ref().filter(|_| begins)
    }

    /// The records that the files could not take when they were last written.
    #[must_use]
    pub const fn lacking(&self) -> Option<&LackingRecords> {
        self.lacking.as_ref()
    }

    /// A quota is in its file now.
    pub(crate) fn note_written(&mut self, kind: QuotaKind, id: u32) {
        self.rewritten = true;
        if let Some(book) = self.place(kind) {
            book.changed.remove(&id);
        }
    }

    /// Allows an id so much more, or refuses that.
    fn admit_one(&self, kind: QuotaKind, id: u32, more: Usage, now: i64) -> Result<(), FsError> {
        let Some(book) = self.book(kind) else { return Ok(()) };
        let quota = book.get(id);
        let pending = self.admitted.get(&(kind, id)).copied().unwrap_or_default();
        let refuse = |one: Allowance, pending, more| !one.allows_after(pending, more, now);
        let what = match () {
            () if refuse(quota.space, pending.sectors, more.sectors) => "blocks",
            () if refuse(quota.inodes, pending.inodes, more.inodes) => "inodes",
            () => return Ok(()),
        };
        Err(FsError::OverQuota(format!("{what} of {} {id}", kind.name())))
    }

    /// Allows owners so much more, all of them or none.
    pub(crate) fn admit(
        &mut self,
        owners: &[(QuotaKind, u32)],
        more: Usage,
        may_exceed: bool,
        now: i64,
    ) -> Result<(), FsError> {
        if !may_exceed {
            owners.iter().try_for_each(|&(kind, id)| self.admit_one(kind, id, more, now))?;
        }
        for &owner in owners {
            let pending = self.admitted.entry(owner).or_default();
            pending.sectors = pending.sectors.saturating_add(more.sectors);
            pending.inodes = pending.inodes.saturating_add(more.inodes);
        }
        Ok(())
    }

    /// Replaces charges of nodes by their new ones.
    pub(crate) fn settle(&mut self, moved: &[(Option<Charge>, Option<Charge>)], now: i64) {
        self.admitted.clear();
        let mut sums: BTreeMap<(QuotaKind, u32), (i128, i128)> = BTreeMap::new();
        for (charges, sign) in moved.iter().flat_map(|(old, new)| [(old, -1), (new, 1)]) {
            let Some(charge) = charges else { continue };
            for owner in charge.owners() {
                let (sectors, inodes) = sums.entry(owner).or_default();
                *sectors += sign * i128::from(charge.sectors);
                *inodes += sign;
            }
        }
        for ((kind, id), (sectors, inodes)) in sums {
            let Some(book) = self.place(kind) else { continue };
            let quota = book.get(id);
            let add = |used: u64, more: i128| {
                // The sums of a damaged volume may be too low.
                u64::try_from((i128::from(used) + more).max(0)).unwrap_or(u64::MAX)
            };
            let (space, files) = (quota.space.used, quota.inodes.used);
            let usage = Usage { sectors: add(space, sectors), inodes: add(files, inodes) };
            if usage != (Usage { sectors: space, inodes: files }) {
                book.set(id, usage, now);
            }
        }
    }
}

/// The sectors of an inode, and its owners, to whom they are charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    uid: u32,
    gid: u32,
    sectors: u64,
}

impl Charge {
    /// The owners, if they are counted.
    pub(crate) fn owners(&self) -> [(QuotaKind, u32); 2] {
        [(QuotaKind::User, self.uid), (QuotaKind::Group, self.gid)]
    }
}

/// Whether files of these owners are counted.
pub(crate) fn is_counted(uid: u32, gid: u32) -> bool {
    uid < FIRST_UNCOUNTED && gid < FIRST_UNCOUNTED
}

/// Nodes that may have changed since their charges were settled.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Files that are not charged to anybody: the quota files.
    exempt: Vec<Ino>,
    /// Charges of the nodes that may have changed since.
    touched: HashMap<Ino, Option<Charge>>,
    /// Charges of nodes that are not in memory any more, before and after.
    moved: Vec<(Option<Charge>, Option<Charge>)>,
}

impl Ledger {
    /// Nothing has changed yet.
    pub(crate) fn new(exempt: Vec<Ino>) -> Self {
        Self { exempt, ..Self::default() }
    }

    /// The charge for a node as it is. Files that count as free already, snapshots and quota
    /// files are not charged.
    pub(crate) fn charge<M>(&self, node: &Node<M>) -> Option<Charge> {
        let is_free = node.counted_free || node.restrictions.snapshot;
        if is_free || self.exempt.contains(&node.ino) || !is_counted(node.uid, node.gid) {
            return None;
        }
        Some(Charge { uid: node.uid, gid: node.gid, sectors: node.sectors })
    }

    /// The quota files.
    pub(crate) fn exempt(&self) -> &[Ino] {
        &self.exempt
    }

    /// Whether a file is one of the quota files.
    pub(crate) fn is_exempt(&self, ino: Ino) -> bool {
        self.exempt.contains(&ino)
    }

    /// A node is about to be changed.
    pub(crate) fn touch<M>(&mut self, node: &Node<M>) {
        if !self.touched.contains_key(&node.ino) {
            self.touched.insert(node.ino, self.charge(node));
        }
    }

    /// A node is that of a file that is being made, for which nothing is charged yet.
    pub(crate) fn begin(&mut self, ino: Ino) {
        self.touched.insert(ino, None);
    }

    /// A file is no more, or only its node: then it is charged as that is `now`.
    pub(crate) fn leave<M>(&mut self, node: &Node<M>, is_gone: bool) {
        let now = self.charge(node);
        let before = self.touched.remove(&node.ino).unwrap_or(now);
        self.moved.push((before, now.filter(|_| !is_gone)));
    }

    /// Takes all changes of charges.
    pub(crate) fn take<'a, M: 'a>(
        &mut self,
        node: impl Fn(Ino) -> Option<&'a Node<M>>,
    ) -> Vec<(Option<Charge>, Option<Charge>)> {
        let mut moved = std::mem::take(&mut self.moved);
        for (ino, before) in std::mem::take(&mut self.touched) {
            moved.push((before, node(ino).and_then(|node| self.charge(node))));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn book(space: Allowance) -> Quotas {
        let mut quotas = Quotas::new();
        let file = BTreeMap::from([(5, Quota { space, ..Quota::default() })]);
        let counted = BTreeMap::from([(5, Usage { sectors: space.used, inodes: 0 })]);
        quotas.keep(QuotaKind::User, ("/quota.user", file), &counted, NOW);
        quotas
    }

    fn charge(sectors: u64) -> Option<Charge> {
        Some(Charge { uid: 5, gid: 6, sectors })
    }

    #[test]
    fn a_hard_limit_is_one_more_than_the_most() {
        let one = Allowance { hard: 100, used: 90, ..Allowance::default() };
        assert!(one.allows(9, NOW));
        assert!(!one.allows(10, NOW));
        // Nothing more is always allowed.
        assert!(Allowance { used: 200, ..one }.allows(0, NOW));
    }

    #[test]
    fn a_soft_limit_counts_once_its_time_is_over() {
        let one = Allowance { soft: 100, used: 99, expires: NOW, ..Allowance::default() };
        // Crossing it is allowed, and begins the time.
        assert!(one.allows(50, NOW + 1));
        let above = Allowance { used: 100, ..one };
        assert!(above.allows(1, NOW));
        assert!(!above.allows(1, NOW + 1));
    }

    #[test]
    fn the_time_above_a_soft_limit_begins_when_that_is_reached() {
        let mut quotas = book(Allowance { soft: 10, used: 9, expires: 5, ..Default::default() });
        quotas.settle(&[(None, charge(1))], NOW);
        let space = quotas.of(QuotaKind::User, 5).unwrap().space;
        assert_eq!((space.used, space.expires), (10, NOW + USUAL_GRACE));
        // It does not begin again above it.
        quotas.settle(&[(None, charge(1))], NOW + 100);
        assert_eq!(quotas.of(QuotaKind::User, 5).unwrap().space.expires, NOW + USUAL_GRACE);
        assert!(quotas.of(QuotaKind::Group, 6).is_none());
    }

    #[test]
    fn what_an_operation_was_allowed_counts_until_it_is_settled() {
        let mut quotas = book(Allowance { hard: 10, used: 4, ..Allowance::default() });
        let owner = [(QuotaKind::User, 5)];
        let more = |sectors| Usage { sectors, inodes: 0 };
        quotas.admit(&owner, more(3), false, NOW).unwrap();
        let refused = quotas.admit(&owner, more(3), false, NOW);
        assert!(matches!(refused, Err(FsError::OverQuota(_))), "{refused:?}");
        quotas.admit(&owner, more(2), false, NOW).unwrap();
        // The operation has taken less in the end.
        quotas.settle(&[(charge(4), charge(5))], NOW);
        quotas.admit(&owner, more(4), false, NOW).unwrap();
        assert!(quotas.admit(&owner, more(1), false, NOW).is_err());
        quotas.admit(&owner, more(100), true, NOW).unwrap();
    }

    #[test]
    fn an_operation_that_crosses_a_soft_limit_is_not_cut_off() {
        // The time that began once is long over.
        let mut quotas = book(Allowance { soft: 10, used: 9, expires: 5, ..Default::default() });
        let owner = [(QuotaKind::User, 5)];
        let more = Usage { sectors: 8, inodes: 0 };
        quotas.admit(&owner, more, false, NOW).unwrap();
        quotas.admit(&owner, more, false, NOW).unwrap();
        quotas.settle(&[(charge(9), charge(25))], NOW);
        quotas.admit(&owner, more, false, NOW + USUAL_GRACE).unwrap();
        assert!(quotas.admit(&owner, more, false, NOW + USUAL_GRACE + 1).is_err());
        // A hard limit counts within an operation.
        let mut quotas = book(Allowance { hard: 20, soft: 10, used: 9, ..Default::default() });
        quotas.admit(&owner, more, false, NOW).unwrap();
        assert!(quotas.admit(&owner, more, false, NOW).is_err());
    }

    #[test]
    fn only_changed_quotas_are_written() {
        let mut quotas = book(Allowance { used: 4, expires: NOW, ..Allowance::default() });
        assert_eq!(quotas.all_changed(), []);
        quotas.settle(&[(charge(4), charge(4))], NOW);
        assert_eq!(quotas.all_changed(), []);
        quotas.settle(&[(charge(4), None)], NOW);
        assert_eq!(quotas.all_changed(), [(QuotaKind::User, 5)]);
        assert_eq!(quotas.unwritten(QuotaKind::User, 5).unwrap().space.used, 0);
        assert!(!quotas.take_rewritten());
        quotas.note_written(QuotaKind::User, 5);
        assert_eq!(quotas.unwritten(QuotaKind::User, 5), None);
        assert_eq!(quotas.all_changed(), []);
        assert!(quotas.take_rewritten() && !quotas.take_rewritten());
    }

    #[test]
    fn records_that_are_missing_are_reported_once() {
        let mut quotas = book(Allowance::default());
        let full = |id| ((QuotaKind::User, id), FsError::NoSpace("blocks".into()));
        let lacks = [false, true, true, false, true];
        let reported = lacks.map(|now| {
            let failed = if now { vec![full(7), full(8)] } else { Vec::new() };
            quotas.begins_to_lack(&failed).map(LackingRecords::to_string)
        });
        let text = "/quota.user: user 7: no space: blocks (and 1 more record)";
        let text = Some(text.to_string());
        assert_eq!(reported, [None, text.clone(), None, None, text]);
        let error = quotas.lacking().map(LackingRecords::error);
        assert!(matches!(error, Some(FsError::NoSpace(_))), "{error:?}");
        quotas.begins_to_lack(&[((QuotaKind::User, 9), FsError::Invalid("damage".into()))]);
        let error = quotas.lacking().map(LackingRecords::error);
        assert!(matches!(error, Some(FsError::Unsupported(_))), "{error:?}");
    }
}
