//! The states that a device may be in after losing power within an epoch: any
//! of the writes since the last flush may have reached it, in any order, and any
//! of their sectors. So may those before the flush that had not completed then.
//!
//! A sector is written whole or not at all. Sectors that a write does not change make no difference
//! and are not counted: the others are *atoms*, and a state is a set of atoms.

use crate::log::{Epoch, Log, Step, Written};
use hashbrown::{HashMap, HashSet};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{Lba, SECTOR};

const SECTOR_BYTES: usize = 512;
const _: () = assert!(SECTOR_BYTES as u64 == SECTOR);

/// A sector that a write changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atom {
    /// The write's step in the log.
    pub step: usize,
    /// Which of the epoch's writes that change anything, from 0.
    pub write: usize,
    /// The sector.
    pub lba: u64,
    /// Where its bytes begin in the write.
    offset: usize,
}

/// A set of an epoch's atoms.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Choice {
    bits: Vec<u64>,
    /// Of two writes to a sector the earlier came last.
    pub reversed: bool,
}

impl Choice {
    pub(crate) fn none(atoms: usize) -> Self {
        Self { bits: vec![0; atoms.div_ceil(64)], reversed: false }
    }

    fn first(atoms: usize, count: usize) -> Self {
        let mut choice = Self::none(atoms);
        (0..count).for_each(|at| choice.set(at, true));
        choice
    }

    fn of_word(atoms: usize, word: u64) -> Self {
        let mut choice = Self::none(atoms);
        if let Some(first) = choice.bits.first_mut() {
            *first = word;
        }
        choice
    }

    /// Puts an atom in, or out.
    pub fn set(&mut self, atom: usize, there: bool) {
        let Some(word) = self.bits.get_mut(atom / 64) else { return };
        if there {
            *word |= 1 << (atom % 64);
        } else {
            *word &= !(1 << (atom % 64));
        }
    }

    /// Whether an atom is in it.
    #[must_use]
    pub fn has(&self, atom: usize) -> bool {
        self.bits.get(atom / 64).is_some_and(|word| word >> (atom % 64) & 1 == 1)
    }

    /// A number that depends on nothing but its atoms and `salt`.
    pub(crate) fn draw(&self, salt: u64) -> u64 {
        let mix = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^ mixed >> 29
        };
        let start = mix(salt, u64::from(self.reversed));
        mix(self.bits.iter().copied().fold(start, mix), 1)
    }

    /// How many atoms are in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }
}

/// How much of an epoch's states is looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Every set of sectors.
    Sectors,
    /// Every set of writes, with any one of them torn at any sector.
    Torn,
    /// Every set of writes; every write torn at every sector with those before
    /// it whole; and a sample of all else.
    Writes,
    /// Every prefix, every write torn with those before it whole, and a sample
    /// of all else.
    Sampled,
}

impl Level {
    /// All of them, the most thorough first.
    pub const ALL: [Self; 4] = [Self::Sectors, Self::Torn, Self::Writes, Self::Sampled];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sectors => "sectors",
            Self::Torn => "torn",
            Self::Writes => "writes",
            Self::Sampled => "sampled",
        }
    }
}

/// The states of an epoch.
#[derive(Clone, Debug)]
pub struct States {
    /// Atoms that can be there or not, in the order they were written.
    pub atoms: Vec<Atom>,
    /// The states to be looked at; no two are the same.
    pub choices: Vec<Choice>,
    /// How much of the epoch that is.
    pub level: Level,
    /// Steps in the log before the epoch.
    start: usize,
}

/// The atoms of an epoch over a device that holds all before it.
fn atoms_of(log: &Log, epoch: &Epoch, device: &dyn BlockDevice) -> Result<Vec<Atom>, DeviceError> {
    let mut atoms: Vec<Atom> = Vec::new();
    let mut touched = HashSet::new();
    let mut writes = 0;
    for step in epoch.carried.iter().copied().chain(epoch.steps.clone()) {
        let Some(Written { at, bytes, .. }) = log.steps.get(step).and_then(Step::written) else {
            continue;
        };
        let mut held = vec![0; bytes.len()];
        device.read(at, &mut held)?;
        let before = atoms.len();
        let sectors = bytes.chunks(SECTOR_BYTES).zip(held.chunks(SECTOR_BYTES));
        for ((n, (new, old)), lba) in sectors.enumerate().zip(at.get()..) {
            if new != old || touched.contains(&lba) {
                touched.insert(lba);
                atoms.push(Atom { step, write: writes, lba, offset: n * SECTOR_BYTES });
            }
        }
        writes += usize::from(atoms.len() > before);
    }
    Ok(atoms)
}

/// Neighbours of one write that are there together or not at all.
fn tied(log: &Log, atoms: &[Atom]) -> Vec<(usize, usize)> {
    let pairs = atoms.windows(2).enumerate().filter_map(|(at, pair)| match pair {
        [one, two] if one.step == two.step && log.ties(one.lba, two.lba) => Some((at, at + 1)),
        _ => None,
    });
    pairs.collect()
}

fn splits(tied: &[(usize, usize)], choice: &Choice) -> bool {
    tied.iter().any(|&(one, other)| choice.has(one) != choice.has(other))
}

impl States {
    /// Whether a choice has a part of a write that is written as a whole.
    pub(crate) fn splits(&self, log: &Log, choice: &Choice) -> bool {
        splits(&tied(log, &self.atoms), choice)
    }
}

/// Finds states, none twice.
struct Finder<'a> {
    atoms: &'a [Atom],
    /// The atoms of each write.
    writes: Vec<std::ops::Range<usize>>,
    /// Atoms that were written through the device's cache, each with the step in
    /// which that had completed: they must be there if one of a later step is.
    through: Vec<(usize, usize)>,
    /// Neighbours of one write that are there together or not at all.
    tied: Vec<(usize, usize)>,
    /// Some sector is written twice.
    overlaps: bool,
    seen: HashSet<Choice>,
    choices: Vec<Choice>,
}

impl<'a> Finder<'a> {
    fn new(log: &Log, atoms: &'a [Atom]) -> Self {
        let mut writes: Vec<std::ops::Range<usize>> = Vec::new();
        for (at, atom) in atoms.iter().enumerate() {
            match writes.last_mut().filter(|_| atom.write < usize::MAX) {
                Some(last) if atoms[last.start].write == atom.write => last.end = at + 1,
                _ => writes.push(at..at + 1),
            }
        }
        let through = |(at, atom): (usize, &Atom)| {
            log.steps.get(atom.step)?.written().filter(|written| written.fua)?;
            // Until it has completed it is a write like any other.
            log.completion(atom.step).map(|completed| (at, completed))
        };
        let through = atoms.iter().enumerate().filter_map(through).collect();
        let tied = tied(log, atoms);
        let mut sectors = HashSet::new();
        let overlaps = !atoms.iter().all(|atom| sectors.insert(atom.lba));
        Self { atoms, writes, through, tied, overlaps, seen: HashSet::new(), choices: Vec::new() }
    }

    /// A write through the cache is there if any later one is.
    fn is_legal(&self, choice: &Choice) -> bool {
        if splits(&self.tied, choice) {
            return false;
        }
        let last = (0..self.atoms.len()).rev().find(|&at| choice.has(at));
        let Some(last) = last.map(|at| self.atoms[at].step) else { return true };
        self.through.iter().all(|&(at, completed)| completed >= last || choice.has(at))
    }

    fn add(&mut self, choice: Choice) {
        if !self.is_legal(&choice) {
            return;
        }
        if self.overlaps && choice.count() > 1 {
            let turned = Choice { reversed: true, ..choice.clone() };
            if self.seen.insert(turned.clone()) {
                self.choices.push(turned);
            }
        }
        if self.seen.insert(choice.clone()) {
            self.choices.push(choice);
        }
    }

    /// Every prefix of the writes, the last torn at every sector.
    fn prefixes(&mut self) {
        for count in 0..=self.atoms.len() {
            self.add(Choice::first(self.atoms.len(), count));
        }
    }

    fn set_of_writes(&self, word: u64) -> Choice {
        let mut choice = Choice::none(self.atoms.len());
        for (n, range) in self.writes.iter().enumerate().filter(|(n, _)| word >> n & 1 == 1) {
            debug_assert!(n < 64);
            range.clone().for_each(|at| choice.set(at, true));
        }
        choice
    }

    fn sectors(&mut self) {
        for word in 0..1u64 << self.atoms.len() {
            self.add(Choice::of_word(self.atoms.len(), word));
        }
    }

    fn write_sets(&mut self) {
        for word in 0..1u64 << self.writes.len() {
            self.add(self.set_of_writes(word));
        }
    }

    /// Every set of writes with one of them torn.
    fn torn_sets(&mut self) {
        for word in 0..1u64 << self.writes.len() {
            let whole = self.set_of_writes(word);
            for n in (0..self.writes.len()).filter(|n| word >> n & 1 == 1) {
                let mut torn = whole.clone();
                for at in self.writes[n].clone().skip(1).rev() {
                    torn.set(at, false);
                    self.add(torn.clone());
                }
            }
            self.add(whole);
        }
    }

    /// How many states [`Finder::torn_sets`] makes.
    fn count_torn(&self) -> u64 {
        let writes = self.writes.len() as u32;
        if writes >= 32 {
            return u64::MAX;
        }
        let cuts: u64 = self.writes.iter().map(|range| range.len() as u64 - 1).sum();
        (1u64 << writes) + (1u64 << writes) / 2 * cuts
    }

    /// One state drawn at random: any of the writes, perhaps torn, or any of
    /// the sectors.
    fn draw(&self, rng: &mut Pcg64Mcg) -> Choice {
        let mut choice = Choice::none(self.atoms.len());
        // From few to most.
        let odds = rng.next_u64() % 7 + 1;
        let kind = rng.next_u64() % 4;
        if kind == 0 {
            for at in 0..self.atoms.len() {
                choice.set(at, rng.next_u64() % 8 < odds);
            }
            return choice;
        }
        for range in &self.writes {
            if rng.next_u64() % 8 >= odds {
                continue;
            }
            let torn = kind == 1 && rng.next_u64().is_multiple_of(2);
            let len = if torn { rng.next_u64() as usize % range.len() + 1 } else { range.len() };
            range.clone().take(len).for_each(|at| choice.set(at, true));
        }
        choice
    }

    fn sample(&mut self, count: usize, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let target = self.choices.len() + count;
        // Few states are drawn again and again.
        for _ in 0..count * 4 {
            if self.choices.len() >= target {
                break;
            }
            let mut drawn = self.draw(&mut rng);
            for &(at, completed) in &self.through {
                let last = (0..self.atoms.len()).rev().find(|&at| drawn.has(at));
                if last.is_some_and(|last| self.atoms[last].step > completed) {
                    drawn.set(at, true);
                }
            }
            self.add(drawn);
        }
    }
}

/// The states of an epoch over a device that holds all before it: all of them if there are no more
/// than `bound` at a [`Level`]; else every prefix, every torn write, and as many others as the
/// bound leaves, half of it at least, drawn from `seed`.
///
/// # Errors
/// [`DeviceError`] when the device cannot be read.
pub fn states(
    log: &Log,
    epoch: &Epoch,
    device: &dyn BlockDevice,
    bound: u64,
    seed: u64,
) -> Result<States, DeviceError> {
    let atoms = atoms_of(log, epoch, device)?;
    let mut finder = Finder::new(log, &atoms);
    let (sectors, writes) = (atoms.len(), finder.writes.len());
    let fits = |count: usize| count < 63 && 1u64 << count <= bound;
    finder.prefixes();
    let level = if fits(sectors) {
        finder.sectors();
        Level::Sectors
    } else if finder.count_torn() <= bound {
        finder.torn_sets();
        Level::Torn
    } else {
        let all_writes = fits(writes);
        if all_writes {
            finder.write_sets();
        }
        // However many prefixes there are.
        let left = bound.saturating_sub(finder.choices.len() as u64).max(bound / 2);
        finder.sample(usize::try_from(left).unwrap_or(0), seed);
        if all_writes { Level::Writes } else { Level::Sampled }
    };
    let choices = finder.choices;
    Ok(States { atoms, choices, level, start: epoch.steps.start })
}

impl States {
    /// Steps in the log before the epoch.
    pub(crate) fn start_of(&self) -> u64 {
        self.start as u64
    }

    /// Puts a state onto a device that holds all before the epoch.
    ///
    /// # Errors
    /// Those of the device.
    pub fn apply(
        &self,
        log: &Log,
        choice: &Choice,
        device: &dyn BlockDevice,
    ) -> Result<(), DeviceError> {
        let put = |at: usize| {
            let atom = &self.atoms[at];
            let Some(Written { bytes, .. }) = log.steps.get(atom.step).and_then(Step::written)
            else {
                return Ok(());
            };
            let end = (atom.offset + SECTOR_BYTES).min(bytes.len());
            device.write(Lba::new(atom.lba), &bytes[atom.offset..end])
        };
        let chosen = (0..self.atoms.len()).filter(|&at| choice.has(at));
        if choice.reversed {
            chosen.rev().try_for_each(put)
        } else {
            chosen.into_iter().try_for_each(put)
        }
    }

    /// Steps of the log at the time of the crash: behind the last write that
    /// left anything, and in the epoch.
    #[must_use]
    pub fn position(&self, choice: &Choice) -> usize {
        let last = (0..self.atoms.len()).rev().find(|&at| choice.has(at));
        last.map_or(self.start, |at| (self.atoms[at].step + 1).max(self.start))
    }

    /// The writes of a state, for people: each with how many of its sectors
    /// that make a difference are there.
    #[must_use]
    pub fn describe(&self, log: &Log, choice: &Choice) -> Vec<String> {
        let mut steps: Vec<usize> = self.atoms.iter().map(|atom| atom.step).collect();
        steps.dedup();
        let mut there: HashMap<usize, (usize, usize)> = HashMap::new();
        for (at, atom) in self.atoms.iter().enumerate() {
            let counts = there.entry(atom.step).or_default();
            counts.0 += usize::from(choice.has(at));
            counts.1 += 1;
        }
        let line = |step: &usize| {
            let (have, all) = there.get(step).copied().unwrap_or_default();
            let Some(Written { at, bytes, .. }) = log.steps.get(*step).and_then(Step::written)
            else {
                return String::new();
            };
            let sectors = bytes.len() / SECTOR_BYTES;
            let what = match have {
                0 => "lost".to_string(),
                _ if have == all => "there".to_string(),
                _ => {
                    let lost: Vec<String> = self
                        .atoms
                        .iter()
                        .enumerate()
                        .filter(|(n, atom)| atom.step == *step && !choice.has(*n))
                        .map(|(_, atom)| atom.lba.to_string())
                        .collect();
                    format!("torn: without sectors {}", lost.join(" "))
                }
            };
            format!("write {step}: {sectors} sectors at {at}: {what}")
        };
        steps.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;

    fn write(at: u64, fill: &[u8], fua: bool) -> Step {
        let bytes: Vec<u8> = fill.iter().flat_map(|&byte| [byte; SECTOR_BYTES]).collect();
        Step::Write { at: Lba::new(at), bytes: bytes.into(), fua }
    }

    /// All images of a log's only epoch, as the first bytes of sectors.
    fn images(steps: Vec<Step>, bound: u64) -> (HashSet<Vec<u8>>, Level) {
        let log = Log::new(steps);
        let base = vec![0; 4 * SECTOR_BYTES];
        let epoch = &log.epochs(0)[0];
        let states = states(&log, epoch, &MemoryDevice::new(base.clone()), bound, 1).unwrap();
        let image = |choice: &Choice| {
            let device = MemoryDevice::new(base.clone());
            states.apply(&log, choice, &device).unwrap();
            let mut bytes = base.clone();
            device.read(Lba::ZERO, &mut bytes).unwrap();
            bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
        };
        (states.choices.iter().map(image).collect(), states.level)
    }

    #[test]
    fn all_sets_of_sectors_are_there() {
        let (images, level) = images(vec![write(0, &[1, 2], false), write(3, &[4], false)], 100);
        assert_eq!((images.len(), level), (8, Level::Sectors));
        assert!(images.contains(&vec![0, 2, 0, 4]));
    }

    #[test]
    fn sectors_that_stay_the_same_count_for_nothing() {
        let (images, _) = images(vec![write(0, &[0, 2, 0, 0], false)], 100);
        assert_eq!(images, HashSet::from([vec![0, 0, 0, 0], vec![0, 2, 0, 0]]));
    }

    #[test]
    fn torn_writes_and_sets_of_writes_are_there_when_not_all_sectors_fit() {
        let log = vec![write(0, &[1, 2, 3], false), write(3, &[4], false)];
        let (images, level) = images(log, 9);
        assert_eq!(level, Level::Torn);
        for wanted in [[1, 0, 0, 0], [1, 2, 0, 4], [0, 0, 0, 4], [1, 2, 3, 4], [0; 4]] {
            assert!(images.contains(wanted.as_slice()), "{wanted:?}");
        }
        assert!(!images.contains(&vec![0, 2, 0, 0]));
    }

    #[test]
    fn of_two_writes_to_a_sector_either_may_be_last() {
        let (images, _) = images(vec![write(0, &[1], false), write(0, &[2], false)], 100);
        assert_eq!(images, HashSet::from([vec![0; 4], vec![1, 0, 0, 0], vec![2, 0, 0, 0]]));
    }

    #[test]
    fn what_is_written_through_is_there_if_anything_later_is() {
        let log = vec![write(0, &[1], false), write(1, &[2], true), write(2, &[3], false)];
        let (images, _) = images(log, 100);
        assert!(images.contains(&vec![0, 2, 3, 0]) && images.contains(&vec![1, 0, 0, 0]));
        assert!(!images.iter().any(|image| image[2] == 3 && image[1] == 0), "{images:?}");
    }

    #[test]
    fn a_sample_has_every_prefix_and_is_the_same_each_time() {
        let log: Vec<Step> = (0..4).map(|n| write(n, &[n as u8 + 1], false)).collect();
        let (first, level) = images(log.clone(), 7);
        assert_eq!(level, Level::Sampled);
        assert!(first.len() >= 5 && first.len() <= 9, "{first:?}");
        for count in 0..=4 {
            let prefix: Vec<u8> = (0..4).map(|n| if n < count { n + 1 } else { 0 }).collect();
            assert!(first.contains(&prefix));
        }
        assert_eq!(images(log, 7).0, first);
    }

    fn submit(at: u64, fill: u8, fua: bool) -> Step {
        Step::Submit { at: Lba::new(at), bytes: vec![fill; SECTOR_BYTES].into(), fua }
    }

    /// The images of each epoch of a log.
    fn epochs(steps: Vec<Step>) -> Vec<HashSet<Vec<u8>>> {
        let log = Log::new(steps);
        let device = MemoryDevice::new(vec![0; 3 * SECTOR_BYTES]);
        let bytes_of = |device: &MemoryDevice| {
            let mut bytes = vec![0; 3 * SECTOR_BYTES];
            device.read(Lba::ZERO, &mut bytes).unwrap();
            bytes
        };
        let mut all = Vec::new();
        for epoch in log.epochs(0) {
            let states = states(&log, &epoch, &device, 100, 1).unwrap();
            let image = |choice: &Choice| {
                let state = MemoryDevice::new(bytes_of(&device));
                states.apply(&log, choice, &state).unwrap();
                assert!(states.position(choice) >= epoch.steps.start);
                bytes_of(&state).chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
            };
            all.push(states.choices.iter().map(image).collect());
            for written in log.completed(epoch.steps.clone()) {
                device.write(written.at, written.bytes).unwrap();
            }
        }
        all
    }

    fn sets(images: &[[u8; 3]]) -> HashSet<Vec<u8>> {
        images.iter().map(|image| image.to_vec()).collect()
    }

    /// A flush does not cover writes under way: these may be lost until one has come after their
    /// completion, and be there from their submission on.
    #[test]
    fn what_is_under_way_is_not_flushed() {
        let steps = vec![
            submit(0, 1, false),
            submit(1, 2, false),
            Step::Complete { submit: 1 },
            Step::Flush,
            write(2, &[3], false),
            Step::Complete { submit: 0 },
            Step::Flush,
        ];
        let epochs = epochs(steps);
        assert_eq!(epochs[0], sets(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]]));
        assert_eq!(epochs[1], sets(&[[0, 2, 0], [1, 2, 0], [0, 2, 3], [1, 2, 3]]));
        assert_eq!(epochs[2], sets(&[[1, 2, 3]]));
    }

    /// With force unit access it is there from its completion on, not before.
    #[test]
    fn what_is_durable_on_completion_may_be_lost_until_then() {
        let steps = vec![
            submit(0, 1, true),
            write(1, &[2], false),
            Step::Complete { submit: 0 },
            write(2, &[3], false),
        ];
        let all = sets(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]);
        assert_eq!(epochs(steps), [all]);
    }

    /// Where a block is written again while it is being written, either may be the
    /// last, and stay so over a flush.
    #[test]
    fn a_write_that_is_overtaken_may_come_last() {
        let steps =
            vec![submit(0, 1, false), write(0, &[2], false), Step::Flush, write(1, &[3], false)];
        let epochs = epochs(steps);
        assert_eq!(epochs[0], sets(&[[0, 0, 0], [1, 0, 0], [2, 0, 0]]));
        assert_eq!(epochs[1], sets(&[[2, 0, 0], [1, 0, 0], [2, 3, 0], [1, 3, 0]]));
    }
}
