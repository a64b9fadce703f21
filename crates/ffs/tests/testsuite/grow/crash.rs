//! Growths that are cut off: at each write to the old volume and some to new groups, and with any of
//! the writes since the last flush, torn at any sector. Files are as they were, and a repair leaves a
//! sound volume of either size.

use super::{KINDS, Kind, change, change_in_use, files, in_use, kind, longer, numbers};
use crate::rules::freebsd::Verdict;
use crate::slice::some_or_all;
use crate::words::volume::{File, bytes_of, tree};
use seekless_cache::Discipline;
use seekless_crash::recorder::Completion;
use seekless_crash::states::states;
use seekless_crash::{Log, Recorder, Step};
use seekless_device::{BlockDevice, MemoryDevice, Overlay};
use seekless_ffs::tune::{Changes, Settings};
use seekless_ffs::{CheckHashes, Outcome, Version, check, grow, preen, repair};
use seekless_fs::operate::Operate;
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume with files, the steps of its growth, and the sizes before and afterwards in fragments.
struct Growing {
    first: Vec<u8>,
    files: BTreeMap<String, File>,
    steps: Vec<Step>,
    sizes: [i64; 2],
}

/// A volume with files, its present size in fragments, and a length to which it can grow.
fn before_growth(kind: &Kind, by_groups: i64) -> (Arc<MemoryDevice>, i64, u64) {
    let device = kind.made(470 * u64::from(kind.block) + 3 * u64::from(kind.fragment));
    change(&device, 11, 90);
    // Only in the superblock itself, not in its copies.
    let tuned = Changes { minfree: Some(3), label: Some(b"tuned".to_vec()), ..Changes::default() };
    tuned.apply(device.as_ref(), false).unwrap();
    let fs = numbers(&device);
    let len = ((fs.size() + by_groups * fs.fpg() / 2) * fs.fsize()) as u64;
    (longer(&device, len), fs.size(), len)
}

fn growing(kind: &Kind, by_groups: i64) -> Growing {
    let (grown, size, len) = before_growth(kind, by_groups);
    let (first, files) = (bytes_of(&grown), files(&grown));
    let recorder = Arc::new(Recorder::new(grown.clone(), Completion::AtOnce));
    grow(recorder.clone(), ByteLen::new(len), super::WALL).unwrap();
    let sizes = [size, numbers(&grown).size()];
    assert!(sizes[1] > sizes[0]);
    Growing { first, files, steps: recorder.take().steps, sizes }
}

/// The same of a volume in use, all of whose changes are on the disk.
fn growing_in_use(kind: &Kind, by_groups: i64) -> Growing {
    let (grown, size, len) = before_growth(kind, by_groups);
    let recorder = Arc::new(Recorder::new(grown.clone(), Completion::AtOnce));
    let mut live = in_use(recorder.clone(), Discipline::SoftUpdates);
    change_in_use(&mut live, 12, 40);
    live.sync().unwrap();
    let _ = recorder.take();
    let (first, files) = (bytes_of(&grown), files(&grown));
    seekless_live::grow(&mut live, Some(ByteLen::new(len))).unwrap();
    let steps = recorder.take().steps;
    let sizes = [size, numbers(&grown).size()];
    assert!(sizes[1] > sizes[0]);
    Growing { first, files, steps, sizes }
}

impl Growing {
    /// Repairs a state, and fails unless it is one of the two volumes with all files then. Returns
    /// whether the state needed a repair, whether a preen sufficed, and whether it became large.
    fn is_mended(&self, state: Vec<u8>, what: &str) -> (bool, bool, bool) {
        let device = Arc::new(MemoryDevice::new(state));
        let was_clean = check(device.clone()).unwrap().is_clean();
        if !was_clean {
            assert!(is_marked(&device), "{what}: not marked for a check");
        }
        let preened = preen(device.clone()).unwrap().outcome != Outcome::Left;
        if !preened {
            let repaired = repair(device.clone()).unwrap();
            assert!(repaired.outcome != Outcome::Left, "{what}: {:#?}", repaired.report);
        }
        let report = check(device.clone()).unwrap();
        assert!(report.is_clean(), "{what}: {:#?}", report.findings);
        crate::live::recount::recount(&device);
        assert!(tree(bytes_of(&device)) == self.files, "{what}: files differ");
        let settings = Settings::read(device.as_ref()).unwrap();
        assert_eq!((settings.minfree, &settings.label[..]), (3, &b"tuned"[..]), "{what}");
        let size = numbers(&device).size();
        assert!(self.sizes.contains(&size), "{what}: {size}");
        (!was_clean, preened, size == self.sizes[1])
    }

    fn state(&self, count: usize) -> MemoryDevice {
        let device = MemoryDevice::new(self.first.clone());
        for step in &self.steps[..count] {
            if let Step::Write { at, bytes, .. } = step {
                device.write(*at, bytes).unwrap();
            }
        }
        device
    }
}

/// Whether the superblock says that a check is needed (`fs_clean`, `FS_NEEDSFSCK`), or is torn.
fn is_marked(device: &MemoryDevice) -> bool {
    let fs = numbers(device);
    let mut verdict = Verdict::default();
    fs.validate(false, &mut verdict);
    fs.raw.bytes[209] == 0 || fs.flags() & 4 != 0 || !verdict.wrong.is_empty()
}

/// Volumes of so many groups that a check does not compare all copies of the superblock.
const MANY: [Kind; 2] = [
    kind(Version::Ufs1, true, (4096, 512), Some(22)),
    kind(Version::Ufs2, false, (4096, 512), Some(28)),
];

/// Growths within the last group, by a few groups, and by so many that the summary area moves.
const CASES: [(Kind, i64); 11] = [
    (KINDS[0], 5),
    (KINDS[0], 90),
    (KINDS[1], 1),
    (KINDS[1], 90),
    (KINDS[2], 7),
    (KINDS[2], 140),
    (KINDS[3], 4),
    (KINDS[6], 3),
    (KINDS[7], 5),
    (MANY[0], 11),
    (MANY[1], 70),
];

#[test]
fn a_growth_can_be_cut_off_at_each_write() {
    cut_off_at_each_write(growing, [10; 4], 2);
}

/// The volume is marked as in use in each state. A preen suffices before and after the growth; between,
/// a repair may be needed.
#[test]
fn a_growth_in_use_can_be_cut_off_at_each_write() {
    cut_off_at_each_write(growing_in_use, [0, 10, 10, 10], 3);
}

/// Fails unless more states than `least` are sound, need a preen, need a repair, and have grown.
fn cut_off_at_each_write(growing: fn(&Kind, i64) -> Growing, least: [usize; 4], step: usize) {
    let mut seen = [0; 4];
    for (kind, by) in CASES.into_iter().step_by(some_or_all(step, 1)) {
        let growing = growing(&kind, by);
        for count in 0..=growing.steps.len() {
            // Writes into new groups change nothing of the volume: some of them are looked at.
            let in_new_groups = matches!(growing.steps.get(count), Some(Step::Write { at, .. })
                if at.to_bytes().get() >= growing.sizes[0] as u64 * u64::from(kind.fragment));
            if in_new_groups && count % 13 != 0 {
                continue;
            }
            let state = bytes_of(&growing.state(count));
            let what = format!("{:?} by {by}, {count} of {}", kind, growing.steps.len());
            let (broken, preened, large) = growing.is_mended(state, &what);
            seen[0] += usize::from(!broken);
            seen[1] += usize::from(broken && preened);
            seen[2] += usize::from(!preened);
            seen[3] += usize::from(large);
        }
    }
    println!("{seen:?}: sound, preened, repaired; grown");
    assert!(seen.iter().zip(least).all(|(&count, least)| count > least || least == 0), "{seen:?}");
}

#[test]
fn a_growth_can_be_torn() {
    let (few, mut seen) = (some_or_all(4, 12), 0);
    for (n, (kind, by)) in (0u64..).zip(CASES) {
        let growing = growing(&kind, by);
        let mut from = 0;
        while from < growing.steps.len() {
            let flush = |step: &Step| matches!(step, Step::Flush);
            let end = growing.steps[from..]
                .iter()
                .position(flush)
                .map_or(growing.steps.len(), |at| from + at);
            let base: Arc<MemoryDevice> = Arc::new(growing.state(from));
            let log = Log::new(growing.steps[from..end].to_vec());
            from = end + 1;
            if log.writes(0) == 0 {
                continue;
            }
            let epoch = &log.epochs(0)[0];
            let drawn = states(&log, epoch, base.as_ref(), few, 5 + n).unwrap();
            for choice in drawn.choices.iter().take(few as usize) {
                let overlay = Overlay::new(base.clone() as Arc<dyn BlockDevice>, 512);
                drawn.apply(&log, choice, &overlay).unwrap();
                let mut state = vec![0; growing.first.len()];
                overlay.read(Lba::ZERO, &mut state).unwrap();
                let what = format!(
                    "{:?} by {by}, before {from}: {:?}",
                    kind,
                    drawn.describe(&log, choice)
                );
                growing.is_mended(state, &what);
                seen += 1;
            }
        }
    }
    println!("{seen} states");
    assert!(seen > some_or_all(50, 150), "{seen}");
}

/// A volume with a journal of soft updates keeps it, and is marked for a check wherever its growth is
/// cut off: the journal is older than that.
#[test]
fn the_journal_of_a_volume_is_not_used_for_a_growth() {
    for n in [0, 1, 3] {
        let kind = Kind { hashes: CheckHashes::None, ..KINDS[n] };
        let device = kind.made(470 * u64::from(kind.block));
        change(&device, 11, 40);
        let fs = numbers(&device);
        let len = ((fs.size() + fs.fpg() / 2) * fs.fsize()) as u64;
        let mut first = bytes_of(&longer(&device, len));
        let at = if kind.version == Version::Ufs1 { 8192 } else { 65536 };
        let flags = fs.flags() as u32 | 2 | 8;
        let flags = if kind.big_endian { flags.to_be_bytes() } else { flags.to_le_bytes() };
        first[at + 1312..at + 1316].copy_from_slice(&flags);
        let time = first[at + 1208..at + 1216].to_vec();
        let grown = Arc::new(MemoryDevice::new(first.clone()));
        let recorder = Arc::new(Recorder::new(grown.clone(), Completion::AtOnce));
        grow(recorder.clone(), ByteLen::new(len), super::WALL).unwrap();
        let state = Arc::new(MemoryDevice::new(first));
        for step in recorder.take().steps {
            let Step::Write { at, bytes, .. } = step else { continue };
            state.write(at, &bytes).unwrap();
            let report = check(state.clone()).unwrap();
            let journal = report.findings.iter().find(|it| it.code().starts_with("journal."));
            assert!(journal.is_none(), "{journal:?}");
        }
        let report = check(grown.clone()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_eq!(numbers(&grown).flags() & 10, 10);
        assert_eq!(bytes_of(&grown)[at + 1208..at + 1216], time);
        assert!(numbers(&grown).size() > fs.size());
    }
}
