//! Several processes at once, as events: each is blocked by its own requests
//! alone, and the processor is shared in slices.
//!
//! The changes of a step are made to the file system when the step begins, in no time; then its
//! parts that take time pass one after the other, beside those of other processes. A process that
//! was blocked goes before one that computes (4.4BSD, `kern_synch.c`: a process that sleeps in the
//! kernel wakes with a better priority than one that runs in user mode), those that compute take
//! turns.

use crate::disk::ProcessStep;
use crate::machine::Machine;
use crate::seekplot::RequestKind;
use seekless_device::Ticket;
use seekless_fs::FsError;
use seekless_units::Nanos;
use std::collections::VecDeque;

/// The longest turn of one that computes while others wait: `roundrobin` of
/// 4.4BSD, ten times a second.
const SLICE: Nanos = Nanos::new(100_000_000);
/// The syncer's turn comes so often.
const SYNCER: Nanos = Nanos::new(1_000_000_000);

/// The action of a process after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It goes on.
    Again,
    /// It does nothing for so long.
    Pause(Nanos),
    /// It is over.
    Over,
}

/// Something that is done in steps, each of a few system calls.
pub(super) trait Process {
    /// Does the next step.
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError>;
}

/// The process that writes blocks that have been dirty for long.
struct Syncer;

impl Process for Syncer {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        machine.tick()?;
        Ok(Turn::Pause(SYNCER))
    }
}

/// The event a process waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// For the processor, or it has it.
    Nothing,
    /// For a request.
    Request(u64),
    /// For a write that it or another asked for and did not wait for then.
    Write(Ticket),
    /// For room among the requests that wait.
    Room,
    /// For a moment.
    Until(Nanos),
    /// It is over.
    Ever,
}

/// A process, and the rest of its step.
struct Task<'a> {
    process: &'a mut dyn Process,
    steps: VecDeque<ProcessStep>,
    /// Its action when they are over.
    turn: Turn,
    waits: Waits,
    /// The rest of its slice.
    slice: Nanos,
}

/// The task that has the processor.
#[derive(Clone, Copy)]
struct Burst {
    task: usize,
    began: Nanos,
    ends: Nanos,
}

struct Events<'a, 'm> {
    machine: &'m mut Machine,
    tasks: Vec<Task<'a>>,
    /// Tasks that wait for the processor, the next one first.
    ready: VecDeque<usize>,
    burst: Option<Burst>,
}

/// Lets processes run until all are over.
pub(super) fn run_all(
    machine: &mut Machine,
    processes: &mut [&mut dyn Process],
) -> Result<(), FsError> {
    let mut syncer = Syncer;
    let own = processes.iter_mut().map(|process| &mut **process as &mut dyn Process);
    let tasks: Vec<Task<'_>> = own
        .chain([&mut syncer as &mut dyn Process])
        .map(|process| Task {
            process,
            steps: VecDeque::new(),
            turn: Turn::Again,
            waits: Waits::Nothing,
            slice: SLICE,
        })
        .collect();
    let ready = (0..tasks.len()).collect();
    Events { machine, tasks, ready, burst: None }.run()
}

impl Events<'_, '_> {
    fn run(mut self) -> Result<(), FsError> {
        let own = self.tasks.len() - 1;
        loop {
            self.machine.disk().catch_up()?;
            self.wake();
            self.dispatch()?;
            // The syncer does not end.
            if self.tasks[..own].iter().all(|task| task.waits == Waits::Ever) {
                return Ok(());
            }
            let Some(next) = self.next_event() else { return Ok(()) };
            self.machine.pass_until(next);
        }
    }

    /// When something happens next.
    fn next_event(&self) -> Option<Nanos> {
        let moments = self.tasks.iter().filter_map(|task| match task.waits {
            Waits::Until(then) => Some(then),
            _ => None,
        });
        let burst = self.burst.map(|burst| burst.ends);
        moments.chain(burst).chain(self.machine.disk().next_done()).min()
    }

    /// Wakes the processes that are not blocked any more, and ends the burst that is over, or that
    /// is cut short by them.
    fn wake(&mut self) {
        let now = self.machine.now();
        let disk = self.machine.disk();
        let mut woken = 0;
        for (at, task) in self.tasks.iter_mut().enumerate() {
            let over = match task.waits {
                Waits::Request(number) => disk.is_done(number),
                Waits::Write(ticket) => disk.is_over(ticket),
                Waits::Room => disk.has_room(),
                Waits::Until(then) => then <= now,
                Waits::Nothing | Waits::Ever => false,
            };
            if over {
                (task.waits, task.slice) = (Waits::Nothing, SLICE);
                self.ready.insert(woken, at);
                woken += 1;
            }
        }
        if let Some(burst) = self.burst.filter(|burst| woken > 0 || burst.ends <= now) {
            self.end_burst(burst, now, woken);
        }
    }

    /// Takes the processor from a task: it goes behind all others when its slice
    /// is over, else behind those that woke.
    fn end_burst(&mut self, burst: Burst, now: Nanos, woken: usize) {
        self.burst = None;
        let task = &mut self.tasks[burst.task];
        let spent = now.saturating_since(burst.began);
        self.machine.worked(Nanos::new(spent));
        let less = |span: Nanos| Nanos::new(span.get().saturating_sub(spent));
        task.slice = less(task.slice);
        if let Some(ProcessStep::Compute(left)) = task.steps.front_mut() {
            *left = less(*left);
            if *left == Nanos::ZERO {
                task.steps.pop_front();
            }
        }
        if task.slice == Nanos::ZERO {
            task.slice = SLICE;
            self.ready.push_back(burst.task);
        } else {
            self.ready.insert(woken, burst.task);
        }
    }

    /// Gives the free processor to ready processes.
    fn dispatch(&mut self) -> Result<(), FsError> {
        while self.burst.is_none()
            && let Some(at) = self.ready.pop_front()
        {
            self.go_on(at)?;
        }
        Ok(())
    }

    /// Lets a task go on until it computes or waits.
    fn go_on(&mut self, at: usize) -> Result<(), FsError> {
        loop {
            let now = self.machine.now();
            let task = &mut self.tasks[at];
            let Some(&step) = task.steps.front() else {
                match task.turn {
                    Turn::Over => task.waits = Waits::Ever,
                    Turn::Pause(span) => {
                        task.waits = Waits::Until(now + span.get());
                        task.turn = Turn::Again;
                    }
                    Turn::Again => {
                        let process = &mut *task.process;
                        let (turn, steps) = self.machine.at_once(|it| process.step(it))?;
                        (task.turn, task.steps) = (turn, steps.into());
                        continue;
                    }
                }
                return Ok(());
            };
            match step {
                ProcessStep::Compute(span) => {
                    let ends = now + span.get().min(task.slice.get());
                    self.burst = Some(Burst { task: at, began: now, ends });
                    return Ok(());
                }
                ProcessStep::Ask(_, RequestKind::AsyncWrite, _)
                    if !self.machine.disk().has_room() =>
                {
                    task.waits = Waits::Room;
                    return Ok(());
                }
                ProcessStep::Wait(ticket) => {
                    task.steps.pop_front();
                    if !self.machine.disk().is_over(ticket) {
                        task.waits = Waits::Write(ticket);
                        return Ok(());
                    }
                }
                ProcessStep::Ask(request, kind, ticket) => {
                    task.steps.pop_front();
                    let number = self.machine.disk().ask(request, kind, ticket)?;
                    if kind != RequestKind::AsyncWrite && !self.machine.disk().is_done(number) {
                        task.waits = Waits::Request(number);
                        return Ok(());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::machine::Setup;
    use crate::repetition::Chance;
    use seekless_cache::Discipline;
    use seekless_fs::operate::NewFile;

    const MS: u64 = 1_000_000;

    /// Computes, so often for so long; notes when it was over.
    struct Computes(u32, Nanos, Option<Nanos>);

    impl Process for Computes {
        fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
            if self.0 == 0 {
                self.2 = Some(machine.now());
                return Ok(Turn::Over);
            }
            self.0 -= 1;
            machine.compute(self.1);
            Ok(Turn::Again)
        }
    }

    /// Makes so many files, each of which takes writes that are waited for.
    struct Makes(u32, Option<Nanos>);

    impl Process for Makes {
        fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
            if self.0 == 0 {
                self.1 = Some(machine.now());
                return Ok(Turn::Over);
            }
            self.0 -= 1;
            let root = machine.root();
            machine.make(root, &format!("file{}", self.0), NewFile::Regular)?;
            Ok(Turn::Again)
        }
    }

    fn machine() -> Machine {
        let experiment = builtin::experiment("softdep").unwrap();
        let setup = Setup {
            policy: "old-dirpref",
            discipline: Discipline::Normal,
            chance: Chance::of(1, 0),
            workload: &experiment.workloads[0],
        };
        Machine::new(&experiment.systems[0], &setup, None).unwrap()
    }

    /// Milliseconds from the start to a moment.
    fn ms(start: Nanos, then: Option<Nanos>) -> u64 {
        then.unwrap().saturating_since(start) / MS
    }

    #[test]
    fn those_that_compute_share_the_processor_in_slices() {
        let mut machine = machine();
        let second = Nanos::new(1000 * MS);
        let (mut one, mut other) = (Computes(1, second, None), Computes(1, second, None));
        // Ten turns of two milliseconds are no whole slice.
        let mut short = Computes(10, Nanos::new(2 * MS), None);
        let start = machine.now();
        run_all(&mut machine, &mut [&mut one, &mut other, &mut short]).unwrap();
        // The first has computed enough at the end of a slice, and learns of it
        // when its turn comes.
        let over = [one.2, other.2, short.2].map(|then| ms(start, then));
        assert_eq!(over, [2020, 2020, 220]);
        assert_eq!(machine.reading().cpu.get(), 2020 * MS);
    }

    #[test]
    fn who_waits_for_the_disk_keeps_nobody_from_computing() {
        let alone = |files: u32, turns: u32| {
            let mut machine = machine();
            let before = machine.reading();
            let mut makes = Makes(files, None);
            let mut computes = Computes(turns, Nanos::new(50 * MS), None);
            run_all(&mut machine, &mut [&mut makes, &mut computes]).unwrap();
            let after = machine.reading();
            let writes = (after.tally - before.tally).sync_writes;
            (ms(before.now, makes.1), ms(before.now, computes.2), after.cpu.get() / MS, writes)
        };
        let (makes, _, _, writes) = alone(50, 0);
        let (_, computes, _, _) = alone(0, 40);
        // An inode and a name each, and now and then the directory grows.
        assert!((100..110).contains(&writes), "{writes}");
        assert_eq!(computes, 2000);
        assert!(makes > 600, "writes that are waited for take most of a revolution: {makes}");
        let (makes_beside, computes_beside, cpu, same) = alone(50, 40);
        assert_eq!((same, cpu), (writes, 2050), "the same is done");
        // Each takes no longer than it did alone and the processor for the other.
        assert!(computes_beside <= 2050, "{computes_beside}");
        assert!(makes_beside < makes + 200, "{makes_beside} beside, {makes} alone");
    }
}
