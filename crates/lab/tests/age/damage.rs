//! Damaged profiles: refused with a place, or profiles that work.

use crate::model::Model;
use crate::settings;
use seekless_lab::age::{Profile, age, profile};
use seekless_model::SpecError;
use seekless_model::random::Random;
use std::ops::ControlFlow;

/// What takes a value's or a line's place.
const VALUES: &[&str] = &[
    "-1",
    "0",
    "1",
    "4294967295",
    "1e308",
    "nan",
    "\"0ms\"",
    "\"100y\"",
    "\"16P\"",
    "\"1\"",
    "\"once\"",
    "\"appended\"",
    "{ median = 1000000, spread = 6 }",
    "{ median = \"1y\", spread = 6, forever = 1 }",
    "{ median = \"0s\" }",
    "{ median = \"1P\", spread = 6 }",
    "{ points = [[\"1\", 0], [\"2\", 0], [\"9P\", 1]] }",
    "true",
    "[]",
    "",
];

/// The text with one or two lines changed, dropped or doubled.
fn damaged(text: &str, chance: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for _ in 0..=chance.below(2) {
        let at = chance.below(lines.len() as u64) as usize;
        let value = VALUES[chance.below(VALUES.len() as u64) as usize];
        match (chance.below(8), lines[at].split_once('=')) {
            (0, _) => drop(lines.remove(at)),
            (1, _) => lines.insert(at, lines[at].clone()),
            (_, Some((key, _))) => lines[at] = format!("{key}= {value}"),
            (_, None) => {}
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_profiles_are_refused_or_work() {
    let mut chance = Random::new(7);
    let (mut refused, mut worked) = (0, 0);
    for round in 0..1500 {
        let name = profile::names().nth(round % profile::names().count()).unwrap();
        let text = damaged(profile::text(name).unwrap(), &mut chance);
        match Profile::parse(&text, "x.toml") {
            Ok(profile) => {
                let mut model = Model::new(16 << 20);
                let watch = &mut |_| ControlFlow::Continue(());
                age(&profile, &mut model, settings(300, round as u64), watch).unwrap();
                worked += 1;
            }
            Err(SpecError::Invalid { line, .. }) => {
                assert!(line >= 1 && line <= text.lines().count().max(1));
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 400 && worked > 400, "{refused} refused, {worked} worked");
}
