//! Several processes that take turns.

use crate::machine::Machine;
use seekless_fs::FsError;
use seekless_units::Nanos;

/// What a process does after a step.
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

/// Lets processes take turns until all are over: whose turn is the longest due
/// is the next. A step is done before the next begins: while one process waits
/// for the disk, all do.
pub(super) fn take_turns(
    machine: &mut Machine,
    processes: &mut [&mut dyn Process],
) -> Result<(), FsError> {
    let mut due: Vec<Option<Nanos>> = vec![Some(machine.now()); processes.len()];
    loop {
        let waiting = due.iter().enumerate().filter_map(|(at, due)| Some(((*due)?, at)));
        let Some((when, at)) = waiting.min() else { return Ok(()) };
        machine.pause_until(when)?;
        due[at] = match processes[at].step(machine)? {
            Turn::Again => Some(machine.now()),
            Turn::Pause(span) => Some(machine.now().saturating_add(span.get())),
            Turn::Over => None,
        };
    }
}
