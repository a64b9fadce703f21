//! A few of the states that hold once they were recovered unasked, taken evenly from a search,
//! for other programs to judge.

use crate::log::Epoch;
use crate::states::Choice;

/// A state that holds, and how it is made again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptedState {
    /// Its workload's name.
    pub workload: String,
    /// In which way the workload's blocks were written.
    pub schedule: u32,
    /// The epoch it is in.
    pub epoch: Epoch,
    /// Which of the epoch's atoms are there.
    pub choice: Choice,
}

/// Takes a number of states from a search whose length is not known: at first all, and each
/// time that there are twice as many as wanted, every second of them from there on.
#[derive(Clone, Debug)]
pub struct AcceptedStates {
    wanted: usize,
    step: u64,
    seen: u64,
    kept: Vec<AcceptedState>,
}

impl AcceptedStates {
    /// Keeps this many states, or all where there are fewer.
    #[must_use]
    pub fn new(wanted: usize) -> Self {
        Self { wanted, step: 1, seen: 0, kept: Vec::new() }
    }

    /// The next state that holds.
    pub fn see(&mut self, state: impl FnOnce() -> AcceptedState) {
        if self.wanted > 0 && self.seen.is_multiple_of(self.step) {
            if self.kept.len() == self.wanted * 2 {
                let mut n = 0;
                self.kept.retain(|_| {
                    n += 1;
                    n % 2 == 1
                });
                self.step *= 2;
            }
            if self.seen.is_multiple_of(self.step) {
                self.kept.push(state());
            }
        }
        self.seen += 1;
    }

    /// Those that were taken, in the order in which they were met.
    #[must_use]
    pub fn chosen(&self) -> Vec<&AcceptedState> {
        let (have, wanted) = (self.kept.len(), self.wanted);
        if have <= wanted {
            return self.kept.iter().collect();
        }
        (0..wanted).map(|n| &self.kept[n * have / wanted]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_taken_as_wanted_and_from_everywhere() {
        let kept = |schedule| AcceptedState {
            workload: String::new(),
            schedule,
            epoch: Epoch { steps: 0..0, carried: Vec::new() },
            choice: Choice::none(0),
        };
        for wanted in [1usize, 2, 7, 20] {
            for all in [0u32, 1, 5, 20, 39, 40, 41, 1000] {
                let mut keeper = AcceptedStates::new(wanted);
                (0..all).for_each(|n| keeper.see(|| kept(n)));
                let chosen: Vec<u32> = keeper.chosen().iter().map(|kept| kept.schedule).collect();
                assert_eq!(chosen.len(), wanted.min(all as usize));
                assert!(chosen.is_sorted_by(|one, other| one < other), "{chosen:?}");
                // No gap is larger than three of their mean.
                let most = 3 * all / wanted as u32 + 1;
                let ends = chosen.iter().copied().chain([all]);
                let gaps = chosen.iter().zip(ends.skip(1)).map(|(one, next)| next - one);
                assert!(gaps.max().unwrap_or(0) <= most, "{wanted} of {all}: {chosen:?}");
            }
        }
    }
}
