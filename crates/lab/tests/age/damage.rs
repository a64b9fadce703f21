//! Damaged profiles: refused with a place, or profiles that work.

use crate::model::Model;
use crate::property::for_all;
use crate::settings;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use seekless_lab::age::{Profile, age, profile};
use seekless_model::SpecError;
use std::cell::Cell;
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

/// A line is given another value, doubled or dropped: by a number that is taken modulo theirs.
#[derive(Clone, Debug)]
struct Damage {
    line: u16,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Value(&'static str),
    Double,
    Drop,
}

fn damage() -> impl Strategy<Value = Damage> {
    let kind = prop_oneof![
        6 => select(VALUES).prop_map(Kind::Value),
        1 => Just(Kind::Double),
        1 => Just(Kind::Drop),
    ];
    (any::<u16>(), kind).prop_map(|(line, kind)| Damage { line, kind })
}

fn damaged(text: &str, all: &[Damage]) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for damage in all {
        let at = usize::from(damage.line) % lines.len();
        match (&damage.kind, lines[at].split_once('=')) {
            (Kind::Drop, _) => drop(lines.remove(at)),
            (Kind::Double, _) => lines.insert(at, lines[at].clone()),
            (Kind::Value(value), Some((key, _))) => lines[at] = format!("{key}= {value}"),
            (Kind::Value(_), None) => {}
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_profiles_are_refused_or_work() {
    let names: Vec<&str> = profile::names().collect();
    let (refused, worked) = (Cell::new(0), Cell::new(0));
    let input = (select(names), vec(damage(), 1..=2), any::<u64>());
    for_all(1500, input, |(name, damage, seed)| {
        let text = damaged(profile::text(name).unwrap(), &damage);
        match Profile::parse(&text, "x.toml") {
            Ok(profile) => {
                let mut model = Model::new(16 << 20);
                let watch = &mut |_| ControlFlow::Continue(());
                age(&profile, &mut model, settings(300, seed), watch).unwrap();
                worked.update(|count| count + 1);
            }
            Err(SpecError::Invalid { line, .. }) => {
                assert!(line >= 1 && line <= text.lines().count().max(1));
                refused.update(|count| count + 1);
            }
            Err(other) => panic!("{other}"),
        }
    });
    let (refused, worked) = (refused.get(), worked.get());
    assert!(refused > 400 && worked > 400, "{refused} refused, {worked} worked");
}
