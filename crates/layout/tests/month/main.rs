//! A month of a machine in virtual time: habits that come, go and change, among noise,
//! on a modelled volume with the planner and the score that `relayout` uses.

mod people;
mod volume;

use people::{Action, People};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use seekless_fs::plan::in_place::StepLimits;
use seekless_layout::habits::{
    DAY, Estimate, FileId, Habits, Idle, MachineState, Proposal, Round, Rules, Seconds,
};
use seekless_layout::planner::in_place::{InPlace, Stopped};
use seekless_layout::planner::touches;
use seekless_layout::replay::{Machine, Purpose, replay};
use seekless_layout::score::score;
use std::collections::{BTreeMap, HashSet};
use volume::{BLOCK, Volume};

/// How often it is looked whether the machine is idle.
const TICK: Seconds = 600;

const LIMITS: StepLimits = StepLimits { blocks: 1 << 14, objects: 4096, groups: usize::MAX };

/// A move, as the outside sees it.
struct Move {
    day: u64,
    hour: u64,
    program: String,
    bytes: u64,
}

/// A habit, seven days after it was new.
#[derive(Debug)]
struct Judged {
    seeks: f64,
    best: f64,
    /// Between contents alone; at best there are none but around bitmaps and tables.
    data_seeks: u64,
}

struct Simulation {
    volume: Volume,
    habits: Habits,
    idle: Idle,
    moves: Vec<Move>,
    /// Moves nothing.
    is_still: bool,
}

fn id(ino: u32) -> FileId {
    FileId { ino, generation: 1 }
}

impl Simulation {
    fn new(volume: Volume, rules: Rules) -> Self {
        let habits = Habits::new(rules);
        Self { volume, habits, idle: Idle::default(), moves: Vec::new(), is_still: false }
    }

    /// Seeks of a run that opens these files.
    fn seeks(&self, volume: &Volume, files: &[FileId]) -> f64 {
        let events =
            self.habits.trace(files, &mut |file| volume.path(file.ino)).into_iter().collect();
        let (score, _) = score(volume, &events, Machine::default(), &[]).expect("a sound volume");
        score.seeks as f64
    }

    fn mean(&self, volume: &Volume, samples: &[Vec<FileId>]) -> f64 {
        let sum: f64 = samples.iter().map(|files| self.seeks(volume, files)).sum();
        sum / samples.len() as f64
    }

    /// The volume as it is when files are laid out, the blocks moved, and whether that
    /// was all.
    fn laid_out(
        &self,
        lay: &[FileId],
        protect: &HashSet<FileId>,
        budget: Option<u64>,
    ) -> (Volume, u64, bool) {
        let mut volume = self.volume.clone();
        let protect = protect.iter().map(|file| file.ino).collect();
        let survey = self.volume.survey(&protect);
        let events =
            self.habits.trace(lay, &mut |file| self.volume.path(file.ino)).into_iter().collect();
        let machine = Machine { merges: false, ..Machine::default() };
        let replayed = replay(&self.volume, &events, machine).expect("a sound volume");
        let touches = touches(&[replayed], &|ino| survey.object(ino), 1);
        let space = survey.space();
        let budget = budget.or(Some(u64::MAX));
        let plan = InPlace::new(&survey, &space, &touches, 128, budget, LIMITS);
        let mut plan = plan.expect("room");
        while let Some(step) = plan.next_step().expect("room") {
            volume.apply(&survey.movable, &step);
        }
        let progress = plan.progress();
        let is_part = progress.stopped == Some(Stopped::Budget);
        (volume, progress.moved_in + progress.moved_out, is_part)
    }

    /// What the daemon does with a proposal.
    fn carry_out(&mut self, now: Seconds, proposal: &Proposal) {
        let budget = Some(proposal.budget / BLOCK);
        let (volume, blocks, is_part) = self.laid_out(&proposal.lay, &proposal.protect, budget);
        let before = self.mean(&self.volume, &proposal.samples);
        let after = self.mean(&volume, &proposal.samples);
        let estimate = Estimate { before, after, bytes: blocks * BLOCK };
        if !self.habits.pays(now, proposal.habit, &estimate) {
            return;
        }
        self.volume = volume;
        self.volume.check();
        self.habits.moved(now, proposal, &estimate, is_part, Vec::new());
        let program = self.habits.habit(proposal.habit).expect("the habit").program.clone();
        println!("day {} {program}: {before:.1} -> {after:.1}, {blocks} blocks", now / DAY);
        let (day, hour) = (now / DAY, now % DAY / 3600);
        self.moves.push(Move { day, hour, program, bytes: estimate.bytes });
    }

    fn tick(&mut self, now: Seconds) {
        for episode in self.habits.due(now) {
            let volume = &self.volume;
            let mut look = |file: FileId| volume.has(file.ino).then(Vec::new);
            self.habits.file(now, episode, &mut look);
        }
        // Others work by day.
        let opens = if (8..20).contains(&(now % DAY / 3600)) { 50.0 } else { 0.0 };
        let state = MachineState { opens, ..MachineState::default() };
        let rules = self.habits.rules().idle.clone();
        if self.is_still || self.idle.observe(now, &state, &rules).is_err() {
            return;
        }
        let fullness = self.volume.fullness();
        let mut round = Round::new();
        while let Ok(proposal) = self.habits.propose(now, fullness, &mut round) {
            self.carry_out(now, &proposal);
        }
    }

    /// Seeks between the contents of files alone, as if all else were in memory.
    fn data_seeks(&self, volume: &Volume, files: &[FileId]) -> u64 {
        let events =
            self.habits.trace(files, &mut |file| volume.path(file.ino)).into_iter().collect();
        let replayed = replay(volume, &events, Machine::default()).expect("a sound volume");
        let data = replayed.requests.iter().filter(|request| request.purpose == Purpose::Data);
        let extents: Vec<_> = data.map(|request| request.extent).collect();
        extents.windows(2).filter(|pair| pair[0].end() != pair[1].start).count() as u64
    }

    /// A habit's layout beside one that is made for it alone.
    fn beside_best(&self, files: &[u32]) -> Judged {
        let files: Vec<FileId> = files.iter().copied().map(id).collect();
        let (best, _, _) = self.laid_out(&files, &HashSet::new(), None);
        Judged {
            seeks: self.seeks(&self.volume, &files),
            best: self.seeks(&best, &files),
            data_seeks: self.data_seeks(&self.volume, &files),
        }
    }
}

/// The last day, and the last one on which anything changes.
const END: u64 = 35;
const LAST_CHANGE: u64 = 18;

/// Habits by the day on which each is new, or is new again.
const NEW: [(&str, u64); 9] = [
    ("mail", 0),
    ("editor", 0),
    ("compiler", 0),
    ("server", 0),
    ("game", 0),
    ("browser", 8),
    ("editor", 15),
    ("compiler", LAST_CHANGE),
    ("server", LAST_CHANGE),
];

type Ratios = BTreeMap<(u64, &'static str), Judged>;

fn month(seed: u64, is_still: bool) -> (Simulation, Ratios) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut volume = Volume::new();
    let mut people = People::new(&mut random, &mut volume);
    let rules = Rules { budget: 6 << 20, most_files: 1000, ..Rules::default() };
    let mut simulation = Simulation::new(volume, rules);
    simulation.is_still = is_still;
    let mut ratios = BTreeMap::new();
    for day in 0..END {
        let mut agenda = people.day(&mut random, day);
        agenda.sort_by_key(|(time, _)| *time);
        let mut agenda = agenda.into_iter().peekable();
        let mut source = 1;
        for now in (day * DAY..(day + 1) * DAY).step_by(TICK as usize) {
            while let Some((time, action)) = agenda.next_if(|(time, _)| *time < now + TICK) {
                let opened = people.act(&mut random, &mut simulation.volume, &action);
                source += 1;
                for ino in opened {
                    simulation.habits.opened(time, source, action.program(), id(ino));
                }
                if let Action::Run(_) = action {
                    people.clean_up(&mut simulation.volume);
                }
            }
            simulation.tick(now + TICK);
        }
        for (name, _) in NEW.iter().filter(|(_, new)| new + 7 == day + 1) {
            let judged = simulation.beside_best(people.files(name));
            println!("day {day}: {name}: {judged:?}");
            ratios.insert((day, *name), judged);
        }
    }
    (simulation, ratios)
}

#[test]
fn a_month() {
    for seed in [1, 2, 3] {
        let (simulation, ratios) = month(seed, false);
        assert_eq!(ratios.len(), NEW.len());
        for ((day, name), judged) in ratios {
            let is_good = judged.seeks <= 1.5 * judged.best;
            assert!(is_good, "seed {seed}, day {day}: {name}: {judged:?}");
            // What it shares with habits that were there first lies with those.
            assert!(judged.data_seeks <= 20, "seed {seed}, day {day}: {name}: {judged:?}");
        }
        let moves = &simulation.moves;
        let late: Vec<u64> =
            moves.iter().map(|moved| moved.day).filter(|day| *day >= LAST_CHANGE + 8).collect();
        assert_eq!(late, [0; 0], "seed {seed}: moved although nothing has changed for a week");
        let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
        for Move { day, hour, program, bytes: moved } in moves {
            assert!(!(8..20).contains(hour), "seed {seed}: moved by day");
            assert!(NEW.iter().any(|(name, _)| name == program), "{program} was moved");
            *bytes.entry(*day).or_default() += moved;
        }
        assert!(bytes.values().all(|moved| *moved <= 6 << 20), "seed {seed}: {bytes:?}");
        let total: u64 = bytes.values().sum();
        println!("seed {seed}: {} moves on {} days, {total} bytes", moves.len(), bytes.len());
    }
}

/// What the month is judged by is not so by itself.
#[test]
fn a_month_in_which_nothing_is_moved() {
    let (simulation, ratios) = month(1, true);
    assert!(simulation.moves.is_empty());
    for ((day, name), judged) in ratios {
        assert!(judged.seeks > 3.0 * judged.best, "day {day}: {name}: {judged:?}");
        assert!(judged.data_seeks > 150, "day {day}: {name}: {judged:?}");
    }
}
