//! An operation as data: the writes of which it consists, the order they need,
//! and what the judges make of the states in between.

use super::state::{Fields, REST, Recorded};
use super::tree::{Harm, Shows};
use std::collections::BTreeMap;
use std::fmt;

/// What becomes of one state of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The check finds nothing.
    Clean(Shows),
    /// The check finds room that nothing uses, and nothing else.
    Leak(Shows),
    /// The check repairs it without a person, and nothing is lost.
    Repaired(Shows),
    /// The check repairs it without a person and nothing is lost, but only its
    /// second run: a mount after the first would see damage.
    Twice,
    /// The check stops and asks for a person. The harm is what is left when each
    /// of its questions is answered with yes.
    Person(Harm),
    /// The check repairs it without a person, but something durable is only under
    /// a name that the check made.
    Unnamed,
    /// The check repairs it without a person, but something durable is gone.
    Lost,
    /// The check repairs it without a person, but a name shows the bytes of
    /// another file, or of a deleted one.
    Foreign,
}

impl Verdict {
    /// Whether a crash may leave such a state.
    pub(crate) fn is_acceptable(self) -> bool {
        matches!(self, Self::Clean(_) | Self::Leak(_) | Self::Repaired(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, shows) = match self {
            Self::Clean(shows) => ("clean", shows),
            Self::Leak(shows) => ("leak", shows),
            Self::Repaired(shows) => ("repaired", shows),
            Self::Person(Harm::None) => return out.write_str("**person**"),
            Self::Person(Harm::Unnamed) => {
                return out.write_str("**person**, then without its name");
            }
            Self::Person(Harm::Lost) => return out.write_str("**person**, then lost"),
            Self::Person(Harm::Foreign) => return out.write_str("**person**, then foreign bytes"),
            Self::Twice => return out.write_str("**two runs**"),
            Self::Unnamed => return out.write_str("**without its name**"),
            Self::Lost => return out.write_str("**lost**"),
            Self::Foreign => return out.write_str("**foreign bytes**"),
        };
        let shows = match shows {
            Shows::Before => "before",
            Shows::After => "after",
            Shows::Part => "between",
        };
        write!(out, "{class}, {shows}")
    }
}

/// `first` must be on the disk before `then`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) first: &'static str,
    pub(crate) then: &'static str,
}

/// Shorthand for tables.
pub(crate) const fn rule(first: &'static str, then: &'static str) -> Rule {
    Rule { first, then }
}

/// What order the writes of an operation need.
pub(crate) enum Order {
    /// Any that keeps these rules.
    Rules(&'static [Rule]),
    /// None will do: whichever write comes first, a crash leaves a state that is
    /// not acceptable.
    Impossible,
}

/// A state: the writes that are on the disk, separated by blanks, and what
/// becomes of it.
pub(crate) type Row = (&'static str, Verdict);

/// An operation with everything that is claimed about it.
pub(crate) struct Case {
    pub(crate) operation: &'static str,
    /// Each write with what it consists of; all together are the operation.
    pub(crate) writes: &'static [(&'static str, &'static str)],
    pub(crate) order: Order,
    pub(crate) rows: &'static [Row],
}

impl Case {
    /// The writes of a row, as bits.
    pub(crate) fn bits(&self, row: &str) -> u32 {
        row.split_whitespace().fold(0, |bits, name| bits | self.bit(name))
    }

    fn bit(&self, name: &str) -> u32 {
        let at = self.writes.iter().position(|(write, _)| *write == name);
        1 << at.unwrap_or_else(|| panic!("{}: no write {name}", self.operation))
    }

    /// The names of the writes in a set.
    pub(crate) fn names(&self, bits: u32) -> String {
        let names = self.writes.iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0);
        names.map(|(_, (name, _))| *name).collect::<Vec<_>>().join(" ")
    }

    /// All sets of writes.
    pub(crate) fn all(&self) -> u32 {
        (1 << self.writes.len()) - 1
    }

    pub(crate) fn rules(&self) -> &'static [Rule] {
        match self.order {
            Order::Rules(rules) => rules,
            Order::Impossible => &[],
        }
    }

    /// What the rows say of their states.
    pub(crate) fn claims(&self) -> BTreeMap<u32, Verdict> {
        self.rows.iter().map(|(row, verdict)| (self.bits(row), *verdict)).collect()
    }

    /// The rules that a state breaks.
    pub(crate) fn broken(&self, bits: u32) -> Vec<Rule> {
        let broken =
            |rule: &&Rule| bits & self.bit(rule.then) != 0 && bits & self.bit(rule.first) == 0;
        self.rules().iter().filter(broken).copied().collect()
    }

    /// The disk with a set of writes, always in the order of the operation.
    pub(crate) fn state(&self, recorded: &Recorded, bits: u32, fields: Fields) -> Vec<u8> {
        let mut disk = recorded.before.clone();
        for (n, (_, what)) in self.writes.iter().enumerate() {
            if bits & (1 << n) == 0 {
                continue;
            }
            let terms = |(_, what): &(&'static str, &'static str)| what.split(" & ");
            let (rest, terms): (Vec<_>, Vec<_>) = (
                self.writes.iter().flat_map(terms).filter(|term| *term != REST).collect(),
                what.split(" & ").collect(),
            );
            for term in terms {
                match term == REST {
                    true => recorded.write_rest(&mut disk, &rest, fields),
                    false => recorded.write(&mut disk, term, fields),
                }
            }
        }
        disk
    }

    /// Fails unless all writes together are the operation, and each row is named
    /// once.
    pub(crate) fn assert_complete(&self, recorded: &Recorded, fields: Fields) {
        let disk = self.state(recorded, self.all(), fields);
        let last = &recorded.steps[recorded.steps.len() - 1].image;
        let at = disk.iter().zip(last).position(|(one, other)| one != other);
        if let Some(at) = at {
            let left: Vec<_> = recorded.steps.iter().flat_map(|step| &step.parts).collect();
            let part = left.iter().find(|part| part.bytes.iter().any(|range| range.contains(&at)));
            let name = part.map_or("no part", |part| &part.name);
            panic!("{}: byte {at} of {name:?} is not in any write", self.operation);
        }
        for (n, (row, _)) in self.rows.iter().enumerate() {
            let twice = self.rows[..n].iter().any(|(other, _)| self.bits(other) == self.bits(row));
            assert!(!twice, "{}: two rows of {row:?}", self.operation);
        }
    }

    /// What is wrong with the rules, given what the judges say of some states: a
    /// state that keeps all of them and is not acceptable, or a rule of which no
    /// state shows that it is needed.
    pub(crate) fn faults(&self, verdicts: &BTreeMap<u32, Verdict>) -> Vec<String> {
        let mut faults = Vec::new();
        if matches!(self.order, Order::Impossible) {
            if self.way(verdicts) {
                faults.push(format!("{}: there is an order", self.operation));
            }
            return faults;
        }
        for (&bits, verdict) in verdicts {
            if self.broken(bits).is_empty() && !verdict.is_acceptable() {
                let names = self.names(bits);
                faults.push(format!("{}: [{names}] keeps the rules: {verdict}", self.operation));
            }
        }
        for rule in self.rules() {
            if self.proof(*rule, verdicts).is_none() {
                let Rule { first, then } = rule;
                faults.push(format!("{}: no row needs {first} before {then}", self.operation));
            }
        }
        faults
    }

    /// Whether all writes can be made one after the other without a state between
    /// that is not acceptable. Writes that only come with all the others in the
    /// states given count as one.
    fn way(&self, verdicts: &BTreeMap<u32, Verdict>) -> bool {
        let essential =
            verdicts.keys().filter(|bits| **bits != self.all()).fold(0, |all, bits| all | bits);
        let mut reached = vec![0_u32];
        let mut at = 0;
        while let Some(&from) = reached.get(at) {
            at += 1;
            for (&to, verdict) in verdicts {
                let step = to & from == from && ((to & !from) & essential).count_ones() <= 1;
                if step && verdict.is_acceptable() && !reached.contains(&to) {
                    reached.push(to);
                }
            }
        }
        reached.contains(&self.all())
    }

    /// A state that breaks this rule alone, and is not acceptable.
    pub(crate) fn proof(&self, rule: Rule, verdicts: &BTreeMap<u32, Verdict>) -> Option<u32> {
        let wrong = |(bits, verdict): &(&u32, &Verdict)| {
            self.broken(**bits) == [rule] && !verdict.is_acceptable()
        };
        verdicts.iter().find(wrong).map(|(bits, _)| *bits)
    }
}
