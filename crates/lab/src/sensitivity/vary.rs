//! An experiment's file with one assumption changed.

use crate::LabError;
use crate::experiment::{Assumption, Experiment};
use seekless_units::{parse_size, parse_span};
use toml::{Table, Value};

/// The file of an experiment, as it is or with one assumption changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Variation {
    /// The assumption and the change, as `cache, halved`.
    pub name: String,
    /// The assumption; none of the file as it is.
    pub assumption: Option<String>,
    /// The file.
    pub text: String,
    /// The experiment.
    pub experiment: Experiment,
}

/// How a value changes.
enum Change<'a> {
    Halved,
    Doubled,
    Value(&'a Value),
    Absent,
}

/// The file as it is, then with each assumption changed; `file` is its name for errors.
///
/// # Errors
/// [`LabError::Spec`] for a file that is invalid, or becomes so; [`LabError::Unknown`] for an
/// assumption that changes nothing.
pub fn variations(text: &str, file: &str) -> Result<Vec<Variation>, LabError> {
    let experiment = Experiment::parse(text, file)?;
    let table: Table = toml::from_str(text)
        .map_err(|error| LabError::Unknown(format!("{file}: {}", error.message())))?;
    let mut all = vec![Variation {
        name: "as in the file".into(),
        assumption: None,
        text: text.into(),
        experiment: experiment.clone(),
    }];
    for assumption in &experiment.assumptions {
        for (change, name) in changes(assumption) {
            let name = format!("{}, {name}", assumption.name);
            let varied = changed(&table, assumption, &change)
                .map_err(|why| LabError::Unknown(format!("{file}: {name}: {why}")))?;
            let text = toml::to_string(&varied).expect("a table of what a file had");
            let experiment = Experiment::parse(&text, &format!("{file}, {name}"))?;
            all.push(Variation {
                name,
                assumption: Some(assumption.name.clone()),
                text,
                experiment,
            });
        }
    }
    Ok(all)
}

/// The variations of an assumption, with their names.
fn changes(assumption: &Assumption) -> Vec<(Change<'_>, String)> {
    let Assumption { values, absent, .. } = assumption;
    let named = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut all: Vec<_> = values.iter().map(|value| (Change::Value(value), named(value))).collect();
    if *absent {
        all.push((Change::Absent, "none".into()));
    }
    if all.is_empty() {
        all.push((Change::Halved, "halved".into()));
        all.push((Change::Doubled, "doubled".into()));
    }
    all
}

/// A file's table with a change, or why there is none.
fn changed(table: &Table, assumption: &Assumption, change: &Change<'_>) -> Result<Table, String> {
    let mut varied = table.clone();
    let mut any = false;
    for key in &assumption.keys {
        let (list, path) = key.split_once('.').ok_or_else(|| format!("'{key}' is no key"))?;
        let path: Vec<&str> = path.split('.').collect();
        let Some(Value::Array(tables)) = varied.get_mut(list) else { continue };
        for table in tables.iter_mut().filter_map(Value::as_table_mut) {
            let name = table.get("name").and_then(Value::as_str).unwrap_or_default();
            if assumption.of.as_ref().is_none_or(|of| of.iter().any(|one| one == name)) {
                any |= vary(table, &path, change).map_err(|why| format!("{key}: {why}"))?;
            }
        }
    }
    if any { Ok(varied) } else { Err("nothing has changed".into()) }
}

/// Changes the value at the end of a path; whether it is another now. A value that is not there
/// becomes the given one where the tables in front of it exist.
fn vary(table: &mut Table, path: &[&str], change: &Change<'_>) -> Result<bool, String> {
    let Some((key, rest)) = path.split_first() else { return Ok(false) };
    if !rest.is_empty() {
        let inner = table.get_mut(*key).and_then(Value::as_table_mut);
        return inner.map_or(Ok(false), |inner| vary(inner, rest, change));
    }
    let old = table.get(*key).cloned();
    let new = match (change, &old) {
        (Change::Value(value), _) => Some((*value).clone()),
        (Change::Absent, _) | (_, None) => None,
        (Change::Halved, Some(old)) => Some(scaled(old, 1, 2)?),
        (Change::Doubled, Some(old)) => Some(scaled(old, 2, 1)?),
    };
    let differs = new != old;
    match new {
        Some(new) => table.insert((*key).into(), new),
        None => table.remove(*key),
    };
    Ok(differs)
}

/// A number, a size, a time, or a list of them, times a quotient.
fn scaled(value: &Value, times: u64, over: u64) -> Result<Value, String> {
    let bad = || format!("{value} cannot be halved or doubled");
    let scale = |number: u64| number.checked_mul(times).map(|product| product / over);
    match value {
        Value::Integer(number) => {
            let number = u64::try_from(*number).ok().and_then(scale).filter(|n| *n > 0);
            let number = number.and_then(|number| i64::try_from(number).ok());
            number.map(Value::Integer).ok_or_else(bad)
        }
        Value::String(text) => {
            if let Ok(span) = parse_span(text) {
                let nanos = scale(span.get()).ok_or_else(bad)?;
                return Ok(Value::String(format!("{nanos}ns")));
            }
            let bytes = parse_size(text).ok().and_then(|size| scale(size.get()));
            Ok(Value::String(bytes.ok_or_else(bad)?.to_string()))
        }
        Value::Array(all) => all
            .iter()
            .map(|one| scaled(one, times, over))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boots::BootExperiment;
    use crate::builtin;

    fn scaled_text(text: &str) -> (String, String) {
        let value: Table = toml::from_str(&format!("x = {text}")).unwrap();
        let show = |times, over| scaled(&value["x"], times, over).unwrap().to_string();
        (show(1, 2), show(2, 1))
    }

    #[test]
    fn quantities_are_halved_and_doubled() {
        for (text, half, double) in [
            ("256", "128", "512"),
            ("\"45M\"", "\"23592960\"", "\"94371840\""),
            ("\"133us\"", "\"66500ns\"", "\"266000ns\""),
            ("[10, 30]", "[5, 15]", "[20, 60]"),
        ] {
            assert_eq!(scaled_text(text), (half.into(), double.into()), "{text}");
        }
        for text in ["true", "\"orlov\"", "1"] {
            let value: Table = toml::from_str(&format!("x = {text}")).unwrap();
            assert!(scaled(&value["x"], 1, 2).is_err(), "{text}");
        }
    }

    /// Every variation of every built-in experiment is an experiment, and another one.
    #[test]
    fn variations_of_all_experiments_are_valid() {
        for name in builtin::names() {
            let text = builtin::text(name).unwrap();
            if BootExperiment::is_one(text) {
                continue;
            }
            let all = variations(text, name).unwrap();
            for (at, one) in all.iter().enumerate() {
                let other = |other: &Variation| other.experiment == one.experiment;
                assert!(!all[..at].iter().any(other), "{name}: {}", one.name);
                assert!(!all[..at].iter().any(|other| other.name == one.name));
            }
        }
    }

    #[test]
    fn what_changes_nothing_is_an_error() {
        let text = builtin::text("scale").unwrap();
        let with = |lines: &str| {
            variations(&format!("{text}\n[[assumption]]\nname = \"a\"\n{lines}\n"), "f")
                .map(|all| all.len() - 1)
                .map_err(|error| error.to_string())
        };
        let before = variations(text, "f").unwrap().len() - 1;
        assert_eq!(with("keys = [\"system.queue\"]"), Ok(before + 2));
        assert_eq!(with("keys = [\"system.queue\"]\nvalues = [1, 2, 3]"), Ok(before + 3));
        let gone = "keys = [\"system.format.reallocblks\"]\nabsent = true";
        assert_eq!(with(gone), Ok(before + 1));
        for (lines, why) in [
            ("keys = [\"system.size\"]", "nothing has changed"),
            ("keys = [\"system.queue\"]\nof = [\"other\"]", "nothing has changed"),
            ("keys = [\"system.queue\"]\nvalues = [256]", "nothing has changed"),
            ("keys = [\"system.drive\"]", "cannot be halved"),
            ("keys = [\"system.drive\"]\nvalues = [\"none\"]", "drive"),
            ("keys = [\"queue\"]", "begins with neither"),
            ("keys = []", "at least one"),
        ] {
            let error = with(lines).unwrap_err();
            assert!(error.contains(why), "{lines}: {error}");
        }
    }
}
