//! Built-in workloads: every operation by itself, and all pairs of them with
//! nothing, an fsync or a sync between.
//!
//! The shape is that of CrashMonkey's ACE (Mohan et al., "Finding Crash-Consistency Bugs with
//! Bounded Black-Box Crash Testing", OSDI 2018): few operations on few files, with the second
//! operation on the files of the first one where possible, since bugs show between operations on
//! the same files.

mod names;
mod random;
mod single;

pub use single::Single;

use crate::script::{Line, Op, Path, Script, ScriptError, parse};
use names::Names;

/// The step between the operations of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Between {
    Nothing,
    Fsync,
    Sync,
}

/// The image that all built-in workloads begin with. None of them touches the files in `U`.
const SETUP: &str = "\
mkdir A
mkdir B
mkdir A/sub
open A/foo
write 0 6000
open B/bar
write 0 3000
open stale
write 0 180000
mkdir U
open U/one
write 0 9000
open U/large
write 0 70000
mkdir U/deep
open U/deep/file
write 0 700
close
sync
unlink stale
";

/// Further setup where names lead to inodes.
const LINKS: &str = "\
link U/one U/two
symlink one/of/them U/soft
";

/// Further setup where files have attributes.
const ATTRIBUTES: &str = "\
setxattr A/foo user.old 100
setxattr U/one user.kept 60
";

/// A format's features, so that workloads use no others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Files have extended attributes.
    pub xattrs: bool,
    /// Names lead to inodes: a file may have several names or change places with
    /// another, be a symlink, and have holes.
    pub inodes: bool,
}

/// The features of formats with inodes, with or without extended attributes.
impl From<bool> for Features {
    fn from(xattrs: bool) -> Self {
        Self { xattrs, inodes: true }
    }
}

/// The lines all built-in workloads begin with.
fn setup(has: Features) -> Result<Vec<Line>, ScriptError> {
    let links = if has.inodes { LINKS } else { "" };
    let text = format!("{SETUP}{links}{}", if has.xattrs { ATTRIBUTES } else { "" });
    let script = parse("setup", &text)?;
    let unnumbered = |line: Line| Line::made(line.op);
    Ok(script.body.into_iter().map(unnumbered).collect())
}

/// The operations that a format has.
fn operations(has: Features) -> impl Iterator<Item = Single> + Clone {
    Single::ALL.into_iter().filter(move |single| match single {
        Single::Xattr => has.xattrs,
        Single::Link | Single::Symlink | Single::Exchange | Single::Far => has.inodes,
        _ => true,
    })
}

/// Every operation by itself.
///
/// # Errors
/// None: built-in scripts are valid.
pub fn singles(has: impl Into<Features>) -> Result<Vec<Script>, ScriptError> {
    let has = has.into();
    let setup = setup(has)?;
    let script = |single: Single| {
        let (mut body, object) = single.lines(&mut Names::of_setup(has));
        body.push(Op::Fsync(Some(object)));
        built(single.name().to_string(), &setup, body)
    };
    Ok(operations(has).map(script).collect())
}

/// All pairs of operations, with nothing, an fsync or a sync between.
///
/// # Errors
/// None: built-in scripts are valid.
pub fn pairs(has: impl Into<Features>) -> Result<Vec<Script>, ScriptError> {
    let has = has.into();
    let setup = setup(has)?;
    let mut scripts = Vec::new();
    for first in operations(has) {
        for second in operations(has) {
            for between in [Between::Nothing, Between::Fsync, Between::Sync] {
                scripts.push(pair((has, &setup), first, between, second));
            }
        }
    }
    Ok(scripts)
}

/// The operations of sequences drawn from a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drawn {
    /// All operations: `random:N`.
    Random,
    /// Mostly names that go and come back, and directories: `moves:N`.
    Moves,
}

impl Drawn {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Random, Self::Moves];

    /// How the names of its sequences begin.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Moves => "moves",
        }
    }
}

/// Sequences of three to `most` operations drawn from a seed, on few names; the
/// name of each says how it is made again.
///
/// # Errors
/// None: built-in scripts are valid.
pub fn random(
    drawn: Drawn,
    most: u32,
    count: u64,
    seed: u64,
    has: impl Into<Features>,
) -> Result<Vec<Script>, ScriptError> {
    let has = has.into();
    (0..count).map(|number| random_one(drawn, most, number, seed, has)).collect()
}

/// One of the sequences of [`random`], by its number.
///
/// # Errors
/// None: built-in scripts are valid.
pub fn random_one(
    drawn: Drawn,
    most: u32,
    number: u64,
    seed: u64,
    has: impl Into<Features>,
) -> Result<Script, ScriptError> {
    let has = has.into();
    let kinds = match drawn {
        Drawn::Random => random::Kinds::All,
        Drawn::Moves => random::Kinds::Moves,
    };
    let body = random::sequence(most, seed, number, has, kinds);
    Ok(built(format!("{}:{most}#{number}", drawn.name()), &setup(has)?, body))
}

fn pair(
    (has, setup): (Features, &[Line]),
    first: Single,
    between: Between,
    second: Single,
) -> Script {
    let mut names = Names::of_setup(has);
    let (mut body, object) = first.lines(&mut names);
    let word = match between {
        Between::Nothing => "",
        Between::Fsync => "fsync,",
        Between::Sync => "sync,",
    };
    match between {
        Between::Nothing => {}
        Between::Fsync => body.push(Op::Fsync(Some(object))),
        Between::Sync => body.push(Op::Sync),
    }
    let (more, object) = second.lines(&mut names);
    body.extend(more);
    body.push(Op::Fsync(Some(object)));
    built(format!("{},{word}{}", first.name(), second.name()), setup, body)
}

fn built(name: String, setup: &[Line], body: Vec<Op>) -> Script {
    let body = body.into_iter().map(Line::made).collect();
    Script { name, setup: setup.to_vec(), body }
}

/// When blocks are written besides when the script asks for it: 0, never before
/// the end; 1, as the syncer does while time passes; else at random.
#[must_use]
pub fn scheduled(script: &Script, schedule: u32, seed: u64) -> Script {
    let mut body = Vec::new();
    for (line, n) in script.body.iter().zip(1u64..) {
        body.push(line.clone());
        match schedule {
            0 => {}
            1 => body.push(Line::made(Op::Pass(7))),
            _ => {
                let mixed = seed.wrapping_mul(0x9E37_79B9).wrapping_add(u64::from(schedule) << 32);
                for round in 0..2 {
                    let draw = mixed.wrapping_add(n.wrapping_mul(2).wrapping_add(round));
                    body.push(Line::made(Op::Writeback(draw % 1_000_000_007)));
                }
            }
        }
    }
    match schedule {
        0 => {}
        1 => body.push(Line::made(Op::Pass(45))),
        _ => body.extend((0..8).map(|n| {
            Line::made(Op::Writeback(
                seed.wrapping_add(u64::from(schedule) * 100 + n) % 1_000_000_007,
            ))
        })),
    }
    Script { body, ..script.clone() }
}

/// A path that is written here, and is one.
fn path(text: &str) -> Path {
    Path::new(text).unwrap_or_else(|| unreachable!("{text} is a path"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_workload_has_a_name_of_its_own_and_can_be_read_again() {
        let mut all = singles(true).unwrap();
        assert_eq!(all.len(), Single::ALL.len());
        all.extend(pairs(true).unwrap());
        assert_eq!(all.len(), Single::ALL.len() * (1 + 3 * Single::ALL.len()));
        let names: BTreeSet<&str> = all.iter().map(|script| script.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for script in all.iter().step_by(7) {
            let read = parse(&script.name, &scheduled(script, 2, 9).to_string()).unwrap();
            assert_eq!(read.to_string(), scheduled(script, 2, 9).to_string());
        }
    }

    #[test]
    fn formats_without_attributes_have_no_workload_of_them() {
        assert!(!singles(false).unwrap().iter().any(|script| script.to_string().contains("xattr")));
    }

    #[test]
    fn formats_without_inodes_have_no_workload_of_them() {
        let has = Features { xattrs: false, inodes: false };
        let mut all = singles(has).unwrap();
        all.extend(pairs(has).unwrap());
        for drawn in Drawn::ALL {
            all.extend(random(drawn, 12, 200, 3, has).unwrap());
        }
        for script in all {
            for line in script.to_string().lines() {
                let word = line.split(' ').next().unwrap();
                let foreign = ["link", "symlink", "exchange", "setxattr"];
                assert!(!foreign.contains(&word), "{}: {line}", script.name);
            }
        }
    }
}
