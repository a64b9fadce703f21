//! Damaged parameter files: refused with a location, or a device that works. The same as the fuzz
//! target `device`, with seeded damage.

use seekless_model::preset::{self, parse};
use seekless_model::random::Random;
use seekless_model::{Request, SpecError};
use seekless_units::{Lba, Nanos};

/// Replacements for values and lines.
const VALUES: &[&str] = &[
    "-1",
    "0",
    "1",
    "2",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "1e-300",
    "\"x\"",
    "true",
    "[]",
    "[[0, 0]]",
    "{}",
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
            (_, None) => lines[at] = value.into(),
        }
    }
    lines.join("\n")
}

/// Reads and writes at both ends and in the middle, and checks that time does not go back.
fn works(text: &str) -> Result<(), SpecError> {
    let spec = parse(text, "x.toml")?;
    let again = parse(&spec.to_toml().expect("what was read can be written"), "again.toml");
    assert_eq!(again.as_ref(), Ok(&spec));
    let mut device = spec.build();
    let last = device.capacity().unwrap_or(1 << 40).saturating_sub(8);
    let mut now = Nanos::ZERO;
    for at in [0, last / 2, last, 8] {
        for request in [Request::read(Lba::new(at), 8), Request::write(Lba::new(at), 8)] {
            // A device may be too small for it.
            let done = device.serve(now, request).unwrap_or(now);
            assert!(done >= now);
            now = done;
        }
    }
    assert!(device.serve(now, Request::flush()).is_ok_and(|done| done >= now));
    Ok(())
}

#[test]
fn damaged_parameter_files_never_panic() {
    let mut chance = Random::new(11);
    let (mut sound, mut refused) = (0, 0);
    for name in preset::names() {
        let text = preset::text(name).unwrap();
        for _ in 0..150 {
            let text = damaged(text, &mut chance);
            match works(&text) {
                Ok(()) => sound += 1,
                Err(error) => {
                    let SpecError::Invalid { line, .. } = &error else { panic!("{error}") };
                    assert!((1..=text.lines().count().max(1) + 1).contains(line), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(sound > 150 && refused > 1000, "{sound} {refused}");
}
