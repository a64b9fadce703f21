//! A profile: which classes of files live on a file system, how large they are, how long they live,
//! how they are written, where they lie. The format is in docs/ageing.md.

mod text;

use super::distribution::{CountDistribution, Sizes, Spans, VirtualSpan};
use crate::LabError;
use seekless_model::SpecError;
use seekless_units::ByteLen;
use serde::Deserialize;

/// Names and files of the profiles that come along, by name.
const PROFILES: &[(&str, &str)] = &[
    ("build", include_str!("../../profiles/build.toml")),
    ("git", include_str!("../../profiles/git.toml")),
    ("mail", include_str!("../../profiles/mail.toml")),
    ("packages", include_str!("../../profiles/packages.toml")),
    ("server", include_str!("../../profiles/server.toml")),
];

/// The use of a file system over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The use it stands for, in a line.
    pub summary: String,
    /// Where its figures come from.
    pub sources: Vec<String>,
    /// Virtual time from one operation to the next of an activity.
    pub pace: VirtualSpan,
    /// Virtual time between activities: the mean of a random span.
    pub rest: VirtualSpan,
    /// The classes of files.
    pub classes: Vec<Class>,
}

/// Files that are alike.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Its name; names of files begin with it.
    pub name: String,
    /// How often an activity makes files of it, beside the other classes.
    pub weight: f64,
    /// Files that one activity makes, where they do not make a tree.
    pub burst: CountDistribution,
    /// Their lengths.
    pub size: Sizes,
    /// How long they live.
    pub lifetime: Spans,
    /// How they are written.
    pub written: Written,
    /// In how many pieces they are appended to, or how often they are replaced or cut.
    pub times: CountDistribution,
    /// How many names they have.
    pub names: CountDistribution,
    /// How many are written at the same time, and how many bytes of each in turn.
    pub writers: Option<(u32, ByteLen)>,
    /// How long they stay new.
    pub read: Option<Spans>,
    /// Which class they take the place of, and from how many files on.
    pub gathers: Option<(String, u32)>,
    /// Where they lie.
    pub directory: Directory,
}

/// How files are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Written {
    /// Once, under their name.
    Once,
    /// Once, under a temporary name, then renamed.
    Renamed,
    /// In pieces, over their life.
    Appended,
    /// In place: now and then cut somewhere and written on from there.
    Truncated,
    /// Once, and now and then replaced by another under a temporary name that
    /// is renamed.
    Replaced,
    /// As a maildir has it: written in `tmp`, renamed to `new`, and to `cur`
    /// when they have been read.
    Delivered,
}

/// Where the files of a class lie.
#[derive(Clone, PartialEq, Debug)]
pub struct Directory {
    /// The directory at the top; classes may share it.
    pub top: String,
    /// Directories in it, each a place of its own (a repository, a mailbox).
    pub roots: u32,
    /// A directory in each of those, if any.
    pub below: Option<String>,
    /// Directories in a directory.
    pub fan_out: u32,
    /// Levels of such directories.
    pub depth: u32,
    /// Whether files are made and removed as a tree of their own; and then how
    /// many files it has, and how many of them a directory.
    pub tree: Option<(CountDistribution, u32)>,
}

impl Profile {
    /// Parses the text of a file; `file` is its name for errors.
    ///
    /// # Errors
    /// [`SpecError::Invalid`], with line and key.
    pub fn parse(text: &str, file: &str) -> Result<Self, SpecError> {
        let said: text::ProfileText =
            toml::from_str(text).map_err(|error| SpecError::syntax(&error, text, file))?;
        said.check().map_err(|wrong| SpecError::at(wrong.at, wrong.why, text, file))
    }
}

/// The names of the profiles that come along, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// The file of a profile that comes along.
///
/// # Errors
/// [`LabError::Unknown`] when there is none of that name.
pub fn text(name: &str) -> Result<&'static str, LabError> {
    let found = PROFILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
    found.ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        LabError::Unknown(format!("unknown profile '{name}' (available: {known})"))
    })
}

/// A profile that comes along.
///
/// # Errors
/// As [`text`].
pub fn named(name: &str) -> Result<Profile, LabError> {
    Ok(Profile::parse(text(name)?, &format!("{name}.toml"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_say_what_they_must() {
        for name in names() {
            let profile = named(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(!profile.sources.is_empty());
        }
        assert!(named("mial").unwrap_err().to_string().contains("mail"));
    }

    #[test]
    fn a_broken_file_is_told_by_line_and_key() {
        let good = text("mail").unwrap();
        for (from, to, key) in [
            ("weight = ", "wieght = ", "wieght"),
            ("top = \"mail\"", "tops = \"mail\"", "tops"),
            ("rest = \"20s\"", "rest = \"20 seconds\"", "rest"),
            ("roots = 200", "roots = 0", "roots"),
            ("[class.directory]", "[class.directories]", "class.directories"),
            ("written = \"delivered\"", "written = \"sent\"", "written"),
        ] {
            let at = good.lines().position(|line| line.starts_with(from));
            let line = at.unwrap_or_else(|| panic!("no line begins with {from}")) + 1;
            let mut lines: Vec<String> = good.lines().map(String::from).collect();
            lines[line - 1] = lines[line - 1].replacen(from, to, 1);
            let error = Profile::parse(&lines.join("\n"), "x.toml").unwrap_err().to_string();
            assert!(error.starts_with(&format!("x.toml:{line}: {key}: ")), "{line} {error}");
        }
    }

    /// The error of a profile of two classes, with more lines in the first and its directory, and
    /// another name of the second.
    fn fault(class: &str, directory: &str, second: &str) -> String {
        let text = format!(
            "name = 'x'\nsummary = 'x'\npace = '1ms'\nrest = '1s'\n\n[[class]]\nname = 'a'\n\
             weight = 1\nlifetime = {{ median = '1d' }}\nsize = {{ median = '4K' }}\n{class}\n\
             [class.directory]\ntop = 'top'\n{directory}\n[[class]]\nname = '{second}'\n\
             weight = 0\nlifetime = {{ median = '1d' }}\nsize = {{ median = '4K' }}\n\
             written = 'once'\n[class.directory]\ntop = 'top'\n"
        );
        Profile::parse(&text, "x.toml").map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_does_not_go_together_is_told_by_line_and_key() {
        let once = "written = 'once'";
        assert_eq!(fault(once, "", "b"), "");
        let count = "{ median = 3 }";
        for (class, place) in [
            (format!("{once}\ntimes = {count}"), "12: times"),
            ("written = 'appended'".into(), "11: written"),
            (format!("\n{once}\n\nread = {{ median = '1d' }}"), "14: read"),
            ("written = 'delivered'".into(), "11: written"),
            (format!("written = 'replaced'\ntimes = {count}\nnames = {count}"), "13: names"),
            (format!("{once}\nwriters = 4"), "12: writers"),
            (format!("{once}\nrecord = '4K'"), "12: record"),
            (format!("{once}\nwriters = 1\nrecord = '4K'"), "12: writers"),
            (format!("{once}\nwriters = 2\nrecord = '100'"), "13: record"),
            (
                format!("written = 'truncated'\ntimes = {count}\nwriters = 2\nrecord = '4K'"),
                "13: writers",
            ),
            ("written = 'truncated'".into(), "11: written"),
            (format!("{once}\ngathers = 'b'"), "12: gathers"),
            (format!("{once}\ngather_at = 5"), "12: gather_at"),
            (format!("{once}\ngathers = 'b'\ngather_at = 0"), "13: gather_at"),
            (format!("{once}\ngather_at = 3\ngathers = 'c'"), "13: gathers"),
            (format!("{once}\ngather_at = 3\ngathers = 'a'"), "13: gathers"),
        ] {
            let error = fault(&class, "", "b");
            assert!(error.starts_with(&format!("x.toml:{place}: ")), "{class}: {error}");
        }
        for (directory, place) in [
            ("fan_out = 0", "14: fan_out"),
            ("below = ''", "14: below"),
            ("fan_out = 9\ndepth = 17", "15: depth"),
            ("roots = 70000", "14: roots"),
            ("together = true", "14: together"),
            ("per_directory = 3", "14: per_directory"),
            ("together = true\nper_directory = 0\nfiles = { median = 9 }", "15: per_directory"),
        ] {
            let error = fault(once, directory, "b");
            assert!(error.starts_with(&format!("x.toml:{place}: ")), "{directory}: {error}");
        }
        let tree = "together = true\nper_directory = 3\nfiles = { median = 9 }";
        let appended = format!("written = 'appended'\ntimes = {count}");
        assert!(fault(&appended, tree, "b").starts_with("x.toml:11: written: "));
        let burst = format!("{once}\nburst = {count}");
        assert!(fault(&burst, tree, "b").starts_with("x.toml:12: burst: "));
        let twice = "x.toml:16: name: the class 'a' is defined twice";
        assert!(fault(once, "", "a").starts_with(twice));
        assert!(fault(once, "", "").starts_with("x.toml:16: name: "));
        let idle =
            Profile::parse(&text("mail").unwrap().replace("weight = ", "weight = 0 # "), "x.toml");
        let line = text("mail").unwrap().lines().position(|line| line.starts_with("weight"));
        let place = format!("x.toml:{}: weight: ", line.unwrap() + 1);
        assert!(idle.unwrap_err().to_string().starts_with(&place));
    }
}
