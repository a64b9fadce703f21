//! Errors of assumptions and claims.

use super::{distinct, each};
use crate::experiment::place::Fault;
use crate::experiment::{Assumption, Claim, Experiment};
use crate::sensitivity::ComparedPhase;

impl Experiment {
    /// The error of an assumption or a claim.
    pub(super) fn fault_of_claims(&self) -> Option<Fault> {
        let names: Vec<&str> = self.assumptions.iter().map(|one| &*one.name).collect();
        let twice = || distinct("assumption", &names, ToString::to_string);
        let twice = (!names.is_empty()).then(twice).flatten();
        twice
            .or_else(|| each("assumption", &self.assumptions, Assumption::fault))
            .or_else(|| each("claim", &self.claims, |claim| claim.fault(self)))
    }
}

impl Assumption {
    fn fault(&self) -> Option<Fault> {
        if let Some(fault) = distinct("keys", &self.keys, Clone::clone) {
            return Some(fault);
        }
        let known = |key: &String| key.starts_with("system.") || key.starts_with("workload.");
        let at = self.keys.iter().position(|key| !known(key))?;
        let message = format!("'{}' begins with neither 'system.' nor 'workload.'", self.keys[at]);
        Some(Fault::at("keys", at, message))
    }
}

impl Claim {
    fn fault(&self, experiment: &Experiment) -> Option<Fault> {
        let place =
            |key, name: &str| Some(Fault::of(key, ComparedPhase::parse(experiment, name).err()?));
        let ratio = || {
            let [least, most] = self.ratio?;
            let sound = least >= 0.0 && most >= least;
            let message = || format!("{least} to {most} is not a range of quotients");
            (!sound).then(|| Fault::of("ratio", message()))
        };
        place("less", &self.less).or_else(|| place("more", &self.more)).or_else(ratio)
    }
}
