//! A profile as its file has it, with places, and whether it makes sense.

use super::{Class, Directory, Profile, Written};
use crate::age::distribution::{
    CountDistribution, PositiveSize, Sizes, Spans, VirtualSpan, Weight,
};
use serde::Deserialize;
use toml::Spanned;

/// An error, and the byte of the text it is at.
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) why: String,
}

fn wrong<T, R>(at: &Spanned<T>, why: impl Into<String>) -> Result<R, Wrong> {
    Err(Wrong { at: at.span().start, why: why.into() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileText {
    name: String,
    summary: String,
    #[serde(default)]
    sources: Vec<String>,
    pace: VirtualSpan,
    rest: VirtualSpan,
    class: Vec<ClassText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    name: Spanned<String>,
    weight: Spanned<Weight>,
    burst: Option<Spanned<CountDistribution>>,
    size: Sizes,
    lifetime: Spans,
    written: Spanned<Written>,
    times: Option<Spanned<CountDistribution>>,
    names: Option<Spanned<CountDistribution>>,
    writers: Option<Spanned<u32>>,
    record: Option<Spanned<PositiveSize>>,
    read: Option<Spanned<Spans>>,
    gathers: Option<Spanned<String>>,
    gather_at: Option<Spanned<u32>>,
    directory: DirectoryText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryText {
    top: Spanned<String>,
    roots: Option<Spanned<u32>>,
    below: Option<Spanned<String>>,
    fan_out: Option<Spanned<u32>>,
    depth: Option<Spanned<u32>>,
    together: Option<Spanned<bool>>,
    files: Option<Spanned<CountDistribution>>,
    per_directory: Option<Spanned<u32>>,
}

impl ProfileText {
    pub(super) fn check(self) -> Result<Profile, Wrong> {
        for (at, class) in self.class.iter().enumerate() {
            class.check()?;
            class.check_among(&self.class, at)?;
        }
        if !self.class.iter().any(|class| class.weight.get_ref().0 > 0.0) {
            let why = "no class has a weight";
            return match self.class.first() {
                Some(class) => wrong(&class.weight, why),
                None => Err(Wrong { at: 0, why: why.into() }),
            };
        }
        let Self { name, summary, sources, pace, rest, class } = self;
        let classes = class.into_iter().map(ClassText::class).collect();
        Ok(Profile { name, summary, sources, pace, rest, classes })
    }
}

/// The most files that a class writes at the same time.
const MOST_WRITERS: u32 = 64;
/// The least bytes of one write when several files are written at the same time: a sector.
const LEAST_RECORD: u64 = 512;

impl ClassText {
    fn check(&self) -> Result<(), Wrong> {
        check_name(&self.name)?;
        self.directory.check()?;
        let written = *self.written.get_ref();
        let many = matches!(written, Written::Appended | Written::Replaced | Written::Truncated);
        let why = "'times' requires written = \"appended\", \"replaced\" or \"truncated\"";
        self.goes_with(self.times.as_ref(), many, why)?;
        let delivered = written == Written::Delivered;
        self.goes_with(self.read.as_ref(), delivered, "'read' requires written = \"delivered\"")?;
        self.check_gathering()?;
        self.check_names()?;
        self.check_writers()?;
        if !self.directory.is_tree() {
            return Ok(());
        }
        if delivered || matches!(written, Written::Appended | Written::Truncated) {
            return wrong(
                &self.written,
                "files of a tree must be written once, renamed or replaced",
            );
        }
        match &self.burst {
            Some(at) => {
                wrong(at, "'burst' is not allowed for trees (use 'files' of the directory)")
            }
            None => Ok(()),
        }
    }

    /// A key that is there just when files are written in some way.
    fn goes_with<T>(&self, key: Option<&Spanned<T>>, so: bool, why: &str) -> Result<(), Wrong> {
        match key {
            Some(at) if !so => wrong(at, why),
            None if so => wrong(&self.written, why),
            _ => Ok(()),
        }
    }

    /// Replacing and delivering rename a file over another: the fate of its further names is not
    /// specified.
    fn check_names(&self) -> Result<(), Wrong> {
        let replaced = matches!(self.written.get_ref(), Written::Replaced | Written::Delivered);
        match &self.names {
            Some(at) if replaced => {
                wrong(at, "'names' is not allowed for files that are replaced or delivered")
            }
            _ => Ok(()),
        }
    }

    fn check_writers(&self) -> Result<(), Wrong> {
        let why = "'writers' (2 to 64) and 'record' (at least 512 bytes) must be used together";
        match (&self.writers, &self.record) {
            (None, None) => return Ok(()),
            (Some(at), None) => return wrong(at, why),
            (None, Some(at)) => return wrong(at, why),
            (Some(at), _) if !(2..=MOST_WRITERS).contains(at.get_ref()) => return wrong(at, why),
            (_, Some(at)) if at.get_ref().0.get() < LEAST_RECORD => return wrong(at, why),
            _ => {}
        }
        let whole = matches!(self.written.get_ref(), Written::Once | Written::Renamed);
        match &self.writers {
            Some(at) if !whole || self.directory.is_tree() => {
                wrong(at, "'writers' requires files that are written once or renamed, not trees")
            }
            _ => Ok(()),
        }
    }

    fn check_gathering(&self) -> Result<(), Wrong> {
        let why =
            "'gathers' and 'gather_at' (at least 1) must be used together, and not with trees";
        match (&self.gathers, &self.gather_at) {
            (Some(at), None) => wrong(at, why),
            (None, Some(at)) => wrong(at, why),
            (Some(_), Some(at)) if *at.get_ref() == 0 => wrong(at, why),
            (Some(at), Some(_)) if self.directory.is_tree() => wrong(at, why),
            _ => Ok(()),
        }
    }

    /// Checks this class against all classes.
    fn check_among(&self, all: &[Self], this: usize) -> Result<(), Wrong> {
        let name = self.name.get_ref();
        if all[..this].iter().any(|other| other.name.get_ref() == name) {
            return wrong(&self.name, format!("the class '{name}' is defined twice"));
        }
        let Some(gathers) = &self.gathers else { return Ok(()) };
        let gathered = gathers.get_ref();
        if gathered == name || !all.iter().any(|other| other.name.get_ref() == gathered) {
            return wrong(
                gathers,
                format!("'{name}' gathers '{gathered}', which is not another class"),
            );
        }
        Ok(())
    }

    fn class(self) -> Class {
        let at = self.gather_at.map(Spanned::into_inner);
        Class {
            name: self.name.into_inner(),
            weight: self.weight.into_inner().0,
            burst: self.burst.map_or(CountDistribution::ONE, Spanned::into_inner),
            size: self.size,
            lifetime: self.lifetime,
            written: self.written.into_inner(),
            times: self.times.map_or(CountDistribution::ONE, Spanned::into_inner),
            names: self.names.map_or(CountDistribution::ONE, Spanned::into_inner),
            writers: self
                .writers
                .map(Spanned::into_inner)
                .zip(self.record.map(|record| record.into_inner().0)),
            read: self.read.map(Spanned::into_inner),
            gathers: self.gathers.map(Spanned::into_inner).zip(at),
            directory: self.directory.directory(),
        }
    }
}

/// The most directories that a class may spread its files over.
const MOST_LEAVES: u64 = 1 << 16;
const MOST_LEVELS: u32 = 16;

impl DirectoryText {
    fn is_tree(&self) -> bool {
        self.together.as_ref().is_some_and(|together| *together.get_ref())
    }

    fn check(&self) -> Result<(), Wrong> {
        check_name(&self.top)?;
        self.below.iter().try_for_each(check_name)?;
        for key in [&self.roots, &self.fan_out].into_iter().flatten() {
            if *key.get_ref() == 0 {
                return wrong(key, "'roots' and 'fan_out' must be at least 1");
            }
        }
        self.check_leaves()?;
        self.check_tree()
    }

    fn check_leaves(&self) -> Result<(), Wrong> {
        let depth = number(self.depth.as_ref(), 0);
        let leaves = u64::from(number(self.fan_out.as_ref(), 1)).checked_pow(depth);
        let roots = u64::from(number(self.roots.as_ref(), 1));
        let leaves = leaves.and_then(|leaves| leaves.checked_mul(roots));
        if depth <= MOST_LEVELS && leaves.is_some_and(|leaves| leaves <= MOST_LEAVES) {
            return Ok(());
        }
        // Whatever makes them many: one of these was said.
        let at = self.depth.as_ref().or(self.roots.as_ref());
        let at = at.map_or(self.top.span().start, |key| key.span().start);
        let why = format!("more than {MOST_LEAVES} directories, or more than {MOST_LEVELS} levels");
        Err(Wrong { at, why })
    }

    fn check_tree(&self) -> Result<(), Wrong> {
        let why = "'together', 'files' and 'per_directory' (at least 1) must be used together";
        match (&self.together, &self.files, &self.per_directory) {
            (_, _, Some(each)) if !self.is_tree() => wrong(each, why),
            (_, Some(files), _) if !self.is_tree() => wrong(files, why),
            (_, Some(_), Some(each)) if *each.get_ref() == 0 => wrong(each, why),
            (Some(at), None, _) | (Some(at), _, None) if self.is_tree() => wrong(at, why),
            _ => Ok(()),
        }
    }

    fn directory(self) -> Directory {
        let tree = self.files.map(Spanned::into_inner);
        Directory {
            top: self.top.into_inner(),
            roots: number(self.roots.as_ref(), 1),
            below: self.below.map(Spanned::into_inner),
            fan_out: number(self.fan_out.as_ref(), 1),
            depth: number(self.depth.as_ref(), 0),
            tree: tree.zip(self.per_directory.map(Spanned::into_inner)),
        }
    }
}

fn number(key: Option<&Spanned<u32>>, usual: u32) -> u32 {
    key.map_or(usual, |key| *key.get_ref())
}

fn check_name(name: &Spanned<String>) -> Result<(), Wrong> {
    let text = name.get_ref();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 32 || !text.chars().all(fits) {
        return wrong(name, format!("'{text}' is not 1 to 32 letters, digits, - and _"));
    }
    Ok(())
}
