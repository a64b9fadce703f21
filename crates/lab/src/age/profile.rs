//! What a profile says: which classes of files live on a file system, how large
//! they are, how long they live, how they are written, where they lie. The
//! format is in docs/ageing.md.

use super::distribution::{Counts, Sizes, Span, Spans, Weight};
use crate::LabError;
use seekless_model::SpecError;
use serde::Deserialize;

/// Names and files of the profiles that come along, by name.
const PROFILES: &[(&str, &str)] = &[
    ("build", include_str!("../../profiles/build.toml")),
    ("git", include_str!("../../profiles/git.toml")),
    ("mail", include_str!("../../profiles/mail.toml")),
    ("packages", include_str!("../../profiles/packages.toml")),
];

/// What is done to a file system over time.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// What it stands for, in a line.
    pub summary: String,
    /// Where its figures come from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Virtual time from one operation to the next of an activity.
    pub pace: Span,
    /// Virtual time between activities: the mean of what is left to chance.
    pub rest: Span,
    /// The classes of files.
    #[serde(rename = "class", deserialize_with = "checked")]
    pub classes: Vec<Class>,
}

/// Files that are alike.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "ClassText")]
pub struct Class {
    /// What it is called; names of files begin with it.
    pub name: String,
    /// How often an activity makes files of it, beside the other classes.
    pub weight: f64,
    /// Files that one activity makes, where they do not make a tree.
    pub burst: Counts,
    /// Their lengths.
    pub size: Sizes,
    /// How long they live.
    pub lifetime: Spans,
    /// How they are written.
    pub written: Written,
    /// In how many pieces they are appended to, or how often they are replaced.
    pub times: Counts,
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
    pub tree: Option<(Counts, u32)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    name: String,
    weight: Weight,
    burst: Option<Counts>,
    size: Sizes,
    lifetime: Spans,
    written: Written,
    times: Option<Counts>,
    read: Option<Spans>,
    gathers: Option<String>,
    gather_at: Option<u32>,
    directory: Directory,
}

impl TryFrom<ClassText> for Class {
    type Error = String;

    fn try_from(text: ClassText) -> Result<Self, String> {
        check_name("name", &text.name)?;
        let tree = text.directory.tree.is_some();
        let many = matches!(text.written, Written::Appended | Written::Replaced);
        let delivered = text.written == Written::Delivered;
        if many != text.times.is_some() {
            return Err("'times' goes with written = \"appended\" or \"replaced\"".into());
        }
        if delivered != text.read.is_some() {
            return Err("'read' goes with written = \"delivered\"".into());
        }
        if tree && (delivered || text.written == Written::Appended) {
            return Err("a tree's files are written once, renamed or replaced".into());
        }
        if tree && text.burst.is_some() {
            return Err("'burst' is not for trees: their directory says 'files'".into());
        }
        let gathers = match (text.gathers, text.gather_at) {
            (None, None) => None,
            (Some(class), Some(at)) if at > 0 && !tree => Some((class, at)),
            _ => return Err("'gathers' and 'gather_at' go together, and not with trees".into()),
        };
        Ok(Self {
            name: text.name,
            weight: text.weight.0,
            burst: text.burst.unwrap_or(Counts::ONE),
            size: text.size,
            lifetime: text.lifetime,
            written: text.written,
            times: text.times.unwrap_or(Counts::ONE),
            read: text.read,
            gathers,
            directory: text.directory,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryText {
    top: String,
    roots: Option<u32>,
    below: Option<String>,
    fan_out: Option<u32>,
    depth: Option<u32>,
    #[serde(default)]
    together: bool,
    files: Option<Counts>,
    per_directory: Option<u32>,
}

impl<'de> Deserialize<'de> for Directory {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = DirectoryText::deserialize(from)?;
        Self::try_from(text).map_err(serde::de::Error::custom)
    }
}

/// The most directories that a class may spread its files over.
const MOST_LEAVES: u64 = 1 << 16;

impl TryFrom<DirectoryText> for Directory {
    type Error = String;

    fn try_from(text: DirectoryText) -> Result<Self, String> {
        check_name("top", &text.top)?;
        text.below.iter().try_for_each(|below| check_name("below", below))?;
        let (roots, depth) = (text.roots.unwrap_or(1), text.depth.unwrap_or(0));
        let fan_out = text.fan_out.unwrap_or(1);
        if roots == 0 || fan_out == 0 {
            return Err("'roots' and 'fan_out' are one at least".into());
        }
        let leaves = u64::from(fan_out).checked_pow(depth);
        let leaves = leaves.and_then(|leaves| leaves.checked_mul(u64::from(roots)));
        if depth > 16 || leaves.is_none_or(|leaves| leaves > MOST_LEAVES) {
            return Err(format!("more than {MOST_LEAVES} directories, or more than 16 levels"));
        }
        let tree = match (text.together, text.files, text.per_directory) {
            (true, Some(files), Some(each)) if each > 0 => Some((files, each)),
            (false, None, None) => None,
            _ => return Err("'together', 'files' and 'per_directory' go together".into()),
        };
        Ok(Self { top: text.top, roots, below: text.below, fan_out, depth, tree })
    }
}

fn check_name(key: &str, name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        return Err(format!("{key}: '{name}' is not 1 to 32 letters, digits, - and _"));
    }
    Ok(())
}

/// Reads the classes, and checks what only all of them show.
fn checked<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Class>, D::Error> {
    let classes = Vec::<Class>::deserialize(from)?;
    let wrong = |why: String| Err(serde::de::Error::custom(why));
    for (at, class) in classes.iter().enumerate() {
        let name = &class.name;
        if classes[..at].iter().any(|other| other.name == *name) {
            return wrong(format!("the class '{name}' is there twice"));
        }
        if let Some((gathered, _)) = &class.gathers
            && !classes.iter().any(|other| other.name == *gathered && other != class)
        {
            return wrong(format!("'{name}' gathers '{gathered}', which is no other class"));
        }
    }
    if !classes.iter().any(|class| class.weight > 0.0) {
        return wrong("there is no class with a weight".into());
    }
    Ok(classes)
}

impl Profile {
    /// What the text of a file says; `file` is its name for errors.
    ///
    /// # Errors
    /// [`SpecError::Invalid`], with line and key.
    pub fn parse(text: &str, file: &str) -> Result<Self, SpecError> {
        toml::from_str(text).map_err(|error| SpecError::syntax(&error, text, file))
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
        LabError::Unknown(format!("there is no profile '{name}' (there are: {known})"))
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
            ("roots = 200", "roots = 0", ""),
            ("[class.directory]", "[class.directories]", "class.directories"),
            ("written = \"delivered\"", "written = \"sent\"", "written"),
        ] {
            let at = good.lines().position(|line| line.starts_with(from));
            let line = at.unwrap_or_else(|| panic!("no line begins with {from}")) + 1;
            let mut lines: Vec<String> = good.lines().map(String::from).collect();
            lines[line - 1] = lines[line - 1].replacen(from, to, 1);
            let error = Profile::parse(&lines.join("\n"), "x.toml").unwrap_err().to_string();
            if key.is_empty() {
                assert!(error.starts_with("x.toml:") && error.contains("roots"), "{error}");
            } else {
                assert!(error.starts_with(&format!("x.toml:{line}: {key}: ")), "{line} {error}");
            }
        }
    }
}
