//! Journals on devices of their own, beside e2fsck.

use super::judge::{Scratch, bytes_of, is_there, put};
use super::replay::{differences, run};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ext::{CheckOptions, check_with, preen_with, repair_with};
use seekless_fs::FsError;
use seekless_fs::check::{Outcome, Repaired};
use seekless_units::{ByteLen, Lba};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const JOURNAL: &str = "11111111-2222-3333-4444-555555555555";

/// Fields of the journal's superblock, by their bytes.
const TYPE: usize = 4;
const BLOCK_SIZE: usize = 12;
const LEN: usize = 16;
const START: usize = 28;
const ERROR: usize = 32;
const INCOMPATIBLE: usize = 40;
const USERS: usize = 64;
const SUM: usize = 252;
const FIRST_USER: usize = 256;

/// A volume and its journal, in which a changed block of `/file` waits.
#[derive(Clone)]
struct Pair {
    volume: Vec<u8>,
    journal: Vec<u8>,
    /// The byte of the journal's superblock.
    head: usize,
}

impl Pair {
    /// Both with blocks of this size; the journal is opened by debugfs with these options.
    fn of(block: usize, open: &str) -> Self {
        let scratch = Scratch::new("external");
        fs::create_dir_all(scratch.path().join("tree")).expect("tree");
        let at = |name: &str| scratch.path().join(name).to_str().expect("path").to_string();
        let (volume, journal, size) = (at("volume"), at("journal"), block.to_string());
        fs::write(at("tree/file"), vec![b'a'; 20 * block]).expect("file");
        fs::write(at("new"), vec![b'1'; block]).expect("block");
        let device = ["-q", "-F", "-O", "journal_dev", "-b", &size, "-U", JOURNAL, &journal];
        run("mke2fs", &[&device[..], &[if block > 1024 { "4M" } else { "1100K" }]].concat());
        let tree = at("tree");
        let options = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-b", &size, "-d", &tree];
        run("mke2fs", &[&options[..], &[&volume, "4M"]].concat());
        let block_of_file = run("debugfs", &["-R", "blocks /file", &volume]);
        let home = block_of_file.split_whitespace().next().expect("block");
        let commands = format!(
            "feature has_journal\nssv journal_uuid {JOURNAL}\njo {open} -f {journal}\n\
             jw -b {home} {}\njc\nfeature needs_recovery\n",
            at("new")
        );
        fs::write(at("commands"), commands).expect("commands");
        run("debugfs", &["-w", "-f", &at("commands"), &volume]);
        let [volume, journal] = [volume, journal].map(|path| fs::read(path).expect("image"));
        let head = if block == 1024 { 2048 } else { block };
        let mut pair = Self { volume, journal, head };
        // A mount wants to be the only user.
        pair.set(USERS, 1);
        let uuid = pair.volume[1024 + 104..1024 + 120].to_vec();
        let user = head + FIRST_USER;
        pair.journal[user..user + 16].copy_from_slice(&uuid);
        pair.seal();
        pair
    }

    /// Sets a word of the journal's superblock.
    fn set(&mut self, field: usize, to: u32) {
        let at = self.head + field;
        self.journal[at..at + 4].copy_from_slice(&to.to_be_bytes());
    }

    /// Computes the checksum of the journal's superblock, if it has one.
    fn seal(&mut self) {
        let features = &self.journal[self.head + INCOMPATIBLE..][..4];
        if features[3] & 0x18 == 0 {
            return;
        }
        self.set(SUM, 0);
        let sum = !crc32c::crc32c_append(0, &self.journal[self.head..self.head + 1024]);
        self.set(SUM, sum);
    }

    fn devices(&self) -> (Arc<MemoryDevice>, Arc<MemoryDevice>) {
        let [volume, journal] =
            [&self.volume, &self.journal].map(|it| MemoryDevice::new(it.clone()));
        (Arc::new(volume), Arc::new(journal))
    }

    /// Runs e2fsck on files with these contents; both afterwards, and the exit code.
    fn e2fsck(&self, options: &[&str]) -> (Self, i32) {
        let (volume, journal) = (Scratch::new("external-volume"), Scratch::new("external-journal"));
        put(volume.path(), &self.volume);
        put(journal.path(), &self.journal);
        let mut command = Command::new("e2fsck");
        command.args(options).arg("-j").arg(journal.path()).arg(volume.path());
        let said = command.output().expect("e2fsck");
        let [volume, journal] =
            [volume, journal].map(|scratch| fs::read(scratch.path()).expect("image"));
        let code = said.status.code().unwrap_or_else(|| panic!("{said:?}"));
        (Self { volume, journal, head: self.head }, code)
    }

    /// Repairs both; the result.
    fn repaired(&mut self, with: Repair) -> Result<Repaired, FsError> {
        let (volume, journal) = self.devices();
        let done = with(volume.clone(), &options(Some(journal.clone())));
        (self.volume, self.journal) = (bytes_of(volume.as_ref()), bytes_of(journal.as_ref()));
        done
    }
}

/// The contents of `/file` of a volume.
fn file_of(volume: &[u8]) -> String {
    let scratch = Scratch::new("external-file");
    put(scratch.path(), volume);
    run("debugfs", &["-R", "cat /file", scratch.path().to_str().expect("path")])
}

type Repair = fn(Arc<dyn BlockDevice>, &CheckOptions) -> Result<Repaired, FsError>;

fn options(journal: Option<Arc<dyn BlockDevice>>) -> CheckOptions {
    CheckOptions { journal, ..CheckOptions::default() }
}

#[test]
fn a_journal_on_another_device_is_written_back_as_e2fsck_does() {
    if !is_there() {
        return;
    }
    for (block, open) in [(1024, "-c -v 3"), (4096, "-c -v 3"), (4096, ""), (1024, "-c -v 2")] {
        let name = format!("{block} {open}");
        let pair = Pair::of(block, open);
        let (theirs, code) = pair.e2fsck(&["-E", "journal_only", "-y"]);
        assert!(code <= 1, "{name}: {code}");
        let mut ours = pair.clone();
        let repaired = ours.repaired(preen_with).expect(&name);
        assert_eq!(repaired.outcome, Outcome::Corrected, "{name}: {repaired:#?}");
        let changed = vec![b'1'; block];
        assert!(ours.volume.chunks(block).any(|at| at == changed), "{name}: nothing was written");
        assert_eq!(differences(&ours.volume, &theirs.volume), [0usize; 0], "{name}: volume");
        assert_eq!(differences(&ours.journal, &theirs.journal), [0usize; 0], "{name}: journal");
        assert_eq!(ours.e2fsck(&["-fn"]).1, 0, "{name}");
        // A check that writes nothing writes nothing to the journal either.
        let (volume, journal) = pair.devices();
        let report = check_with(volume, &options(Some(journal.clone()))).expect(&name);
        assert_eq!(report.findings.len(), 1, "{name}: {report:#?}");
        assert!(bytes_of(journal.as_ref()) == pair.journal, "{name}");
    }
}

/// Damage to a journal, by its name.
type Damage = (&'static str, fn(&mut Pair));

const DAMAGED: [Damage; 8] = [
    ("type of a block", |pair| pair.set(TYPE, 1)),
    ("block size", |pair| pair.set(BLOCK_SIZE, 512)),
    ("length", |pair| pair.set(LEN, 99_999)),
    ("start", |pair| pair.set(START, 99_999)),
    ("empty", |pair| pair.set(START, 0)),
    ("error", |pair| pair.set(ERROR, 5)),
    ("checksum", |pair| pair.set(SUM, 5)),
    ("magic number", |pair| pair.set(0, 5)),
];

#[test]
fn a_damaged_journal_on_another_device_is_emptied() {
    if !is_there() {
        return;
    }
    let sound = Pair::of(4096, "-c -v 3");
    for (name, damage) in DAMAGED {
        let mut pair = sound.clone();
        damage(&mut pair);
        if name != "checksum" && name != "magic number" {
            pair.seal();
        }
        for with in [preen_with as Repair, repair_with] {
            let mut ours = pair.clone();
            let repaired = ours.repaired(with).expect(name);
            assert_eq!(repaired.outcome, Outcome::Corrected, "{name}: {repaired:#?}");
            assert_eq!(ours.e2fsck(&["-fn"]).1, 0, "{name}");
            let (theirs, _) = pair.e2fsck(&["-fy"]);
            assert_eq!(file_of(&ours.volume), file_of(&theirs.volume), "{name}");
            // The kernel refuses a journal without this user, and one that begins elsewhere.
            let has_journal = ours.volume[1024 + 92] & 4 != 0;
            assert_eq!(has_journal, name != "magic number", "{name}");
            let head = &ours.journal[ours.head..];
            let user = &ours.volume[1024 + 104..1024 + 120];
            assert!(!has_journal || head[FIRST_USER..FIRST_USER + 16] == *user, "{name}: user");
            assert!(!has_journal || head[20..24] == [0, 0, 0, 2], "{name}: first block");
            let again = ours.repaired(with).expect(name);
            assert_eq!(again.outcome, Outcome::Clean, "{name}: {again:#?}");
        }
    }
}

/// Journals that are refused: the reason.
const REFUSED: [Damage; 9] = [
    ("the device has UUID", |pair| pair.journal[1024 + 104] ^= 1),
    ("has no journal", |pair| pair.journal[1024 + 96] = 0),
    ("too short", |pair| pair.journal.truncate(1024)),
    ("has 2 blocks", |pair| pair.journal.truncate(2048)),
    ("past the end of the device", |pair| pair.journal.truncate(4096)),
    ("has 0 blocks", |pair| pair.journal[1024 + 4..1024 + 8].fill(0)),
    ("2 volumes share", |pair| pair.set(USERS, 2)),
    ("transactions of another volume", |pair| pair.journal[pair.head + FIRST_USER] ^= 1),
    ("journal feature", |pair| pair.set(INCOMPATIBLE, 0x1012)),
];

#[test]
fn a_journal_of_another_volume_is_refused() {
    if !is_there() {
        return;
    }
    let sound = Pair::of(1024, "-c -v 3");
    for (reason, damage) in REFUSED {
        let mut pair = sound.clone();
        damage(&mut pair);
        if pair.journal.len() > pair.head {
            pair.seal();
        }
        for with in [preen_with as Repair, repair_with] {
            let mut ours = pair.clone();
            let error = ours.repaired(with).expect_err(reason).to_string();
            assert!(error.contains(reason), "{reason}: {error}");
            assert!(ours.volume == pair.volume && ours.journal == pair.journal, "{reason}");
        }
        // e2fsck replays transactions of another volume, and gives up journals without blocks or end.
        if ["UUID", "no journal", "short", "has 2", "share", "feature"]
            .iter()
            .any(|it| reason.contains(it))
        {
            let code = pair.e2fsck(&["-fy"]).1;
            assert!(code & 8 != 0, "{reason}: e2fsck ends with {code}");
        }
    }
    let (volume, _) = sound.devices();
    let error = preen_with(volume.clone(), &options(None)).expect_err("no device").to_string();
    assert!(error.contains(JOURNAL), "{error}");
    assert!(bytes_of(volume.as_ref()) == sound.volume, "nothing was written");
}

/// A device that fails once so many writes were made to it and its like.
struct Failing {
    base: Arc<dyn BlockDevice>,
    left: Arc<AtomicU64>,
}

impl BlockDevice for Failing {
    fn len(&self) -> ByteLen {
        self.base.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let take = |left: u64| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_err(|_| DeviceError::ReadOnly)?;
        self.base.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }
}

#[test]
fn a_replay_from_another_device_that_was_cut_off_is_completed() {
    if !is_there() {
        return;
    }
    let pair = Pair::of(1024, "-c -v 3");
    let mut whole = pair.clone();
    whole.repaired(preen_with).expect("repair");
    let mut cut = 0;
    loop {
        let (volume, journal) = pair.devices();
        let left = Arc::new(AtomicU64::new(cut));
        let failing = |base: Arc<dyn BlockDevice>| -> Arc<dyn BlockDevice> {
            Arc::new(Failing { base, left: left.clone() })
        };
        let done = preen_with(failing(volume.clone()), &options(Some(failing(journal.clone()))));
        let is_done = done.is_ok();
        preen_with(volume.clone(), &options(Some(journal.clone()))).expect("the next one");
        assert_eq!(
            differences(&bytes_of(volume.as_ref()), &whole.volume),
            [0usize; 0],
            "cut {cut}"
        );
        assert!(bytes_of(journal.as_ref()) == whole.journal, "cut {cut}");
        if is_done {
            break;
        }
        cut += 1;
    }
    assert!(cut > 2, "only {cut} writes");
}

/// Contents of the volume and the journal.
type Both = [Arc<Vec<u8>>; 2];

/// Two devices with caches, which lose at a power cut the writes that were not flushed.
struct Cached {
    /// Contents as they are read, and as they are on the disks.
    seen: Both,
    kept: Both,
    /// States that a power cut may leave: one device has all of its writes, the other none of those
    /// in its cache.
    cuts: Vec<Both>,
    /// The flushes of the volume that fail, from this one on, as those of a process that is killed.
    flushes: usize,
}

impl Cached {
    fn of(seen: Both, kept: Both, flushes: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { seen, kept, cuts: Vec::new(), flushes }))
    }

    fn note(&mut self) {
        let [volume, journal] = &self.seen;
        self.cuts.push([volume.clone(), self.kept[1].clone()]);
        self.cuts.push([self.kept[0].clone(), journal.clone()]);
        self.cuts.dedup_by(|one, two| (0..2).all(|side| Arc::ptr_eq(&one[side], &two[side])));
    }
}

/// The volume or the journal of [`Cached`].
struct Side(Arc<Mutex<Cached>>, usize);

impl BlockDevice for Side {
    fn len(&self) -> ByteLen {
        ByteLen::new(self.0.lock().expect("lock").seen[self.1].len() as u64)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let at = at.to_bytes().get() as usize;
        buf.copy_from_slice(&self.0.lock().expect("lock").seen[self.1][at..at + buf.len()]);
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let mut both = self.0.lock().expect("lock");
        let at = at.to_bytes().get() as usize;
        Arc::make_mut(&mut both.seen[self.1])[at..at + buf.len()].copy_from_slice(buf);
        both.note();
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut both = self.0.lock().expect("lock");
        if self.1 == 0 {
            both.flushes = both.flushes.checked_sub(1).ok_or(DeviceError::ReadOnly)?;
        }
        both.kept[self.1] = both.seen[self.1].clone();
        both.note();
        Ok(())
    }
}

/// The volume has all blocks on its disk before the journal is marked as empty, also those that a
/// process wrote which was killed then; and the journal is marked before the volume says so.
#[test]
fn a_power_cut_loses_no_transaction_of_a_journal_on_another_device() {
    if !is_there() {
        return;
    }
    let pair = Pair::of(1024, "-c -v 3");
    let mut whole = pair.clone();
    whole.repaired(preen_with).expect("repair");
    let start = [Arc::new(pair.volume.clone()), Arc::new(pair.journal.clone())];
    let repair = |both: &Arc<Mutex<Cached>>| {
        let [volume, journal] = [0, 1].map(|side| Arc::new(Side(both.clone(), side)));
        preen_with(volume, &options(Some(journal)))
    };
    for (killed, least) in [(None, 4), (Some(0), 4), (Some(1), 1)] {
        let (mut begun, mut kept) = (start.clone(), start.clone());
        if let Some(flushes) = killed {
            let both = Cached::of(start.clone(), start.clone(), flushes);
            repair(&both).expect_err("killed");
            let both = both.lock().expect("lock");
            (begun, kept) = (both.seen.clone(), both.kept.clone());
        }
        let both = Cached::of(begun, kept, usize::MAX);
        repair(&both).expect("repair");
        both.lock().expect("lock").note();
        let cuts = std::mem::take(&mut both.lock().expect("lock").cuts);
        assert!(cuts.len() >= least, "{killed:?}: {} states", cuts.len());
        for (number, [volume, journal]) in cuts.into_iter().enumerate() {
            let [volume, journal] = [volume.to_vec(), journal.to_vec()];
            let mut left = Pair { volume, journal, head: pair.head };
            let name = format!("{killed:?}, state {number}");
            let again = left.repaired(preen_with).expect(&name);
            assert_ne!(again.outcome, Outcome::Left, "{name}: {again:#?}");
            assert_eq!(differences(&left.volume, &whole.volume), [0usize; 0], "{name}");
            assert!(left.journal == whole.journal, "{name}");
        }
    }
}
