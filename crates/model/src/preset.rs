//! The built-in devices, and devices from parameter files.

use crate::device::DeviceModel;
pub use crate::spec::Spec;
use std::fmt;

/// Names and parameter files of the built-in devices, by name.
const PRESETS: &[(&str, &str)] = &[
    ("atlas-10k", include_str!("../presets/atlas-10k.toml")),
    ("atlas-iii", include_str!("../presets/atlas-iii.toml")),
    ("azure-p30", include_str!("../presets/azure-p30.toml")),
    ("azure-p30-raid0", include_str!("../presets/azure-p30-raid0.toml")),
    ("azure-p30-raid0-ds14", include_str!("../presets/azure-p30-raid0-ds14.toml")),
    ("barracuda-2lp", include_str!("../presets/barracuda-2lp.toml")),
    ("cheetah-4lp", include_str!("../presets/cheetah-4lp.toml")),
    ("cheetah-9lp", include_str!("../presets/cheetah-9lp.toml")),
    ("dec-rz26", include_str!("../presets/dec-rz26.toml")),
    ("dtla-307045", include_str!("../presets/dtla-307045.toml")),
    ("gp2-100g", include_str!("../presets/gp2-100g.toml")),
    ("gp3", include_str!("../presets/gp3.toml")),
    ("gp3-10000", include_str!("../presets/gp3-10000.toml")),
    ("hp-c2247", include_str!("../presets/hp-c2247.toml")),
    ("hp-c2490", include_str!("../presets/hp-c2490.toml")),
    ("hp-c3323", include_str!("../presets/hp-c3323.toml")),
    ("ibm-18es", include_str!("../presets/ibm-18es.toml")),
    ("ic35l060avv207", include_str!("../presets/ic35l060avv207.toml")),
    ("ide-8gb", include_str!("../presets/ide-8gb.toml")),
    ("intel-d3-s4610-480", include_str!("../presets/intel-d3-s4610-480.toml")),
    ("intel-p3600-1600", include_str!("../presets/intel-p3600-1600.toml")),
    ("io2", include_str!("../presets/io2.toml")),
    ("kingston-dc500m", include_str!("../presets/kingston-dc500m.toml")),
    ("lazy-gp3", include_str!("../presets/lazy-gp3.toml")),
    ("null", include_str!("../presets/null.toml")),
    ("nvme-ssd", include_str!("../presets/nvme-ssd.toml")),
    ("pd-standard", include_str!("../presets/pd-standard.toml")),
    ("raptor-74", include_str!("../presets/raptor-74.toml")),
    ("samsung-860-pro", include_str!("../presets/samsung-860-pro.toml")),
    ("samsung-pm883-480", include_str!("../presets/samsung-pm883-480.toml")),
    ("sata-7200", include_str!("../presets/sata-7200.toml")),
    ("sata-ssd", include_str!("../presets/sata-ssd.toml")),
];

/// Minimum similarity of two names for one to be suggested for the other, from 0 to 1
/// (Jaro-Winkler).
const ALIKE: f64 = 0.75;

/// The reason why there is no device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// No preset has that name.
    #[error("no device preset '{name}'{}", hint(.near))]
    Unknown {
        /// The requested name.
        name: String,
        /// Similar names, best first.
        near: Vec<&'static str>,
    },
    /// A parameter file with an error.
    #[error("{file}:{line}: {key}{message}", key = Prefix(.key))]
    Invalid {
        /// The file, as the caller names it.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The key at fault; empty if the fault is not in a key.
        key: String,
        /// The fault.
        message: String,
    },
}

/// A key and a colon, or nothing.
struct Prefix<'a>(&'a str);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

fn hint(near: &[&str]) -> String {
    match near {
        [] => format!("; available: {}", names().collect::<Vec<_>>().join(", ")),
        near => format!("; did you mean {}?", near.join(", ")),
    }
}

/// The names of the built-in devices, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The parameter file of a built-in device, its sources included.
///
/// # Errors
/// [`SpecError::Unknown`], with similar names.
pub fn text(name: &str) -> Result<&'static str, SpecError> {
    let found = PRESETS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, text)| *text).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> SpecError {
    let lower = name.to_lowercase();
    let alike = |known: &'static str| (strsim::jaro_winkler(&lower, known), known);
    let mut near: Vec<_> = names().map(alike).filter(|(alike, _)| *alike >= ALIKE).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near = near.into_iter().take(4).map(|(_, known)| known).collect();
    SpecError::Unknown { name: name.into(), near }
}

/// The figures of a built-in device.
///
/// # Errors
/// As [`text`].
pub fn spec(name: &str) -> Result<Spec, SpecError> {
    parse(text(name)?, name)
}

/// A built-in device at rest: nothing cached, bursts full.
///
/// # Errors
/// As [`text`].
pub fn preset(name: &str) -> Result<Box<dyn DeviceModel>, SpecError> {
    Ok(spec(name)?.build())
}

/// A device from the text of a parameter file; `file` is its name for errors.
///
/// # Errors
/// [`SpecError::Invalid`].
pub fn from_toml(text: &str, file: &str) -> Result<Box<dyn DeviceModel>, SpecError> {
    Ok(parse(text, file)?.build())
}

/// Parses the text of a parameter file; `file` is its name for errors.
///
/// # Errors
/// [`SpecError::Invalid`].
pub fn parse(text: &str, file: &str) -> Result<Spec, SpecError> {
    let spec: Spec = toml::from_str(text).map_err(|error| SpecError::syntax(&error, text, file))?;
    match spec.fault() {
        None => Ok(spec),
        Some((key, message)) => Err(SpecError::of_key(key, message, text, file)),
    }
}

impl SpecError {
    /// Converts an error of the TOML parser, with the key on its line.
    #[must_use]
    pub fn syntax(error: &toml::de::Error, text: &str, file: &str) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        Self::at(at, error.message().trim().replace('\n', " "), text, file)
    }

    /// An error at a byte of the text, with the key on that line.
    #[must_use]
    pub fn at(byte: usize, message: String, text: &str, file: &str) -> Self {
        let before = text.get(..byte.min(text.len())).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rfind('\n').map_or(before.len(), |end| before.len() - end - 1);
        let key = text.lines().nth(line - 1).map_or("", |line| key_at(line, column));
        Self::Invalid { file: file.into(), line, key: key.into(), message }
    }

    /// An error in the value of a key, on the first line with that key.
    #[must_use]
    pub fn of_key(key: &str, message: String, text: &str, file: &str) -> Self {
        let line = text.lines().position(|line| key_of(line) == key).map_or(1, |at| at + 1);
        Self::Invalid { file: file.into(), line, key: key.into(), message }
    }
}

/// The key at a byte of a line: in an inline table, the one that begins there or has its value there.
fn key_at(line: &str, column: usize) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let Some((before, rest)) = line.split_at_checked(column) else { return key_of(line) };
    if !before.contains('{') {
        return key_of(line);
    }
    let own = rest.split(|c| !is_part(c)).next().unwrap_or_default();
    if rest[own.len()..].trim_start().starts_with('=') {
        return own;
    }
    let key = before.trim_end().strip_suffix('=').unwrap_or_default().trim_end();
    key.rsplit(|c| !is_part(c)).next().unwrap_or_default()
}

/// The text before a line's `=`, or a table's name.
fn key_of(line: &str) -> &str {
    let line = line.trim();
    if let Some(table) = line.strip_prefix('[') {
        return table.trim_matches(['[', ']']).trim();
    }
    line.split_once('=').map_or("", |(key, _)| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_must() {
        let mut last = "";
        for (name, text) in PRESETS {
            let spec = parse(text, name).unwrap();
            assert_eq!(spec.name, *name);
            assert!(*name == "null" || !spec.sources.is_empty(), "{name} has no source");
            assert!(last < *name, "{name} is out of order");
            last = name;
        }
    }

    #[test]
    fn a_wrong_name_brings_the_near_ones() {
        let error = preset("gp4").err().unwrap();
        assert!(error.to_string().contains("did you mean gp3"), "{error}");
        let error = preset("zzzzzz").err().unwrap();
        assert!(error.to_string().contains("available: "), "{error}");
        assert!(preset("GP3").is_ok());
    }

    #[test]
    fn a_broken_file_is_told_by_line_and_key() {
        let good = text("gp3").unwrap();
        let line_of = |start: &str| good.lines().position(|l| l.starts_with(start)).unwrap() + 1;
        let io_size = good.lines().nth(line_of("io_size") - 1).unwrap();
        for (from, to, key) in [
            (io_size, "io_size = \"many\"", "io_size"),
            (io_size, "io_size = 3", "io_size"),
            (io_size, "io_sise = 4096", "io_sise"),
            ("[volume]", "[volumes]", "volumes"),
        ] {
            let error = parse(&good.replace(from, to), "x.toml").unwrap_err();
            let expected = format!("x.toml:{}: {key}: ", line_of(from));
            assert!(error.to_string().starts_with(&expected), "{error} / {expected}");
        }
    }
}
