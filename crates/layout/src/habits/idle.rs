//! Whether the machine has nothing better to do.

use super::{IdleRules, Seconds};
use std::fmt;

/// The recent load of the machine.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MachineState {
    /// Share of the time in which some process waited for I/O, in percent, where known.
    pub io_pressure: Option<f64>,
    /// Share of the time in which some process waited for a processor, in percent, where
    /// known.
    pub cpu_pressure: Option<f64>,
    /// Processes that ran, for each processor.
    pub load: f64,
    /// Files opened a second, by others.
    pub opens: f64,
    /// It runs on a battery.
    pub on_battery: bool,
}

/// Why nothing is moved now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Busy {
    /// Processes wait for I/O: percent.
    Io(f64),
    /// Processes wait for a processor: percent.
    Cpu(f64),
    /// Processes for each processor.
    Load(f64),
    /// Files are opened: a second.
    Opens(f64),
    /// It runs on a battery.
    Battery,
    /// It has not been quiet for long enough: seconds that are left.
    Quiet(Seconds),
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(percent) => write!(f, "processes wait for I/O ({percent:.0}% of the time)"),
            Self::Cpu(percent) => {
                write!(f, "processes wait for a processor ({percent:.0}% of the time)")
            }
            Self::Load(load) => write!(f, "the load is {load:.2} for each processor"),
            Self::Opens(opens) => write!(f, "{opens:.0} files are opened a second"),
            Self::Battery => write!(f, "the machine runs on a battery"),
            Self::Quiet(left) => write!(f, "it must stay idle for {left} s more"),
        }
    }
}

/// Since when the machine has been idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Idle {
    since: Option<Seconds>,
}

impl Idle {
    /// Takes in the present load of the machine.
    ///
    /// # Errors
    /// Why it is not idle, or not for long enough.
    pub fn observe(
        &mut self,
        now: Seconds,
        state: &MachineState,
        rules: &IdleRules,
    ) -> Result<(), Busy> {
        if let Some(busy) = busy(state, rules) {
            self.since = None;
            return Err(busy);
        }
        let since = *self.since.get_or_insert(now);
        match rules.quiet.saturating_sub(now.saturating_sub(since)) {
            0 => Ok(()),
            left => Err(Busy::Quiet(left)),
        }
    }
}

/// Why it is busy, if it is.
fn busy(state: &MachineState, rules: &IdleRules) -> Option<Busy> {
    let over = |value: Option<f64>, most: f64| value.filter(|value| *value > most);
    if state.on_battery && !rules.battery {
        return Some(Busy::Battery);
    }
    if state.opens > rules.opens {
        return Some(Busy::Opens(state.opens));
    }
    if let Some(percent) = over(state.io_pressure, rules.io_pressure) {
        return Some(Busy::Io(percent));
    }
    if let Some(percent) = over(state.cpu_pressure, rules.cpu_pressure) {
        return Some(Busy::Cpu(percent));
    }
    let is_known = state.io_pressure.is_some() && state.cpu_pressure.is_some();
    (!is_known && state.load > rules.load).then_some(Busy::Load(state.load))
}
