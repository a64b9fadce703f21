//! Lists that are made shorter by halves: where a test takes long, one element after the other would
//! take too long.

use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::ops::RangeInclusive;

/// Lists of as many elements as `lens` says. One for which a test fails may become shorter.
pub(crate) fn list<S: Strategy>(element: S, lens: RangeInclusive<usize>) -> List<S> {
    List { element, lens }
}

#[derive(Debug)]
pub(crate) struct List<S> {
    element: S,
    lens: RangeInclusive<usize>,
}

impl<S: Strategy> Strategy for List<S> {
    type Tree = Shorter<S::Tree>;
    type Value = Vec<S::Value>;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let len = self.lens.new_tree(runner)?.current();
        let elements: Vec<S::Tree> =
            (0..len).map(|_| self.element.new_tree(runner)).collect::<Result<_, _>>()?;
        Ok(Shorter { run: len.div_ceil(2), end: len, elements, next: 0, gone: None })
    }
}

/// A list that becomes shorter, from its end on: runs of half of it are left out, then runs of a
/// quarter, and so on. Then its elements become simpler.
#[derive(Debug)]
pub(crate) struct Shorter<T> {
    elements: Vec<T>,
    /// Length of the runs that are left out; 0 when that is done.
    run: usize,
    /// The next run ends there.
    end: usize,
    /// The element that becomes simpler.
    next: usize,
    /// The elements that were left out last, and their place.
    gone: Option<(usize, Vec<T>)>,
}

impl<T: ValueTree> ValueTree for Shorter<T> {
    type Value = Vec<T::Value>;

    fn current(&self) -> Self::Value {
        self.elements.iter().map(T::current).collect()
    }

    fn simplify(&mut self) -> bool {
        self.gone = None;
        while self.run > 0 {
            if self.end > 0 {
                let from = self.end.saturating_sub(self.run);
                self.gone = Some((from, self.elements.drain(from..self.end).collect()));
                self.end = from;
                return true;
            }
            self.run /= 2;
            self.end = self.elements.len();
        }
        while let Some(element) = self.elements.get_mut(self.next) {
            if element.simplify() {
                return true;
            }
            self.next += 1;
        }
        false
    }

    fn complicate(&mut self) -> bool {
        if let Some((from, gone)) = self.gone.take() {
            self.elements.splice(from..from, gone);
            // The next one is tried at once: what is there now is known to fail.
            self.simplify();
            return true;
        }
        self.elements.get_mut(self.next).is_some_and(T::complicate)
    }
}
