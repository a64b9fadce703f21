//! Reading scripts.

use super::{Line, Op, Path, Script};
use seekless_units::parse_size;

/// Most bytes that an operation writes or allocates: contents are kept in memory, every version
/// of them.
const LARGEST: u64 = 16 << 20;
/// Longest file. Holes take no memory.
const FARTHEST: u64 = 1 << 44;
/// Most lines of a script.
const MOST_LINES: usize = 10_000;
/// Most seconds that may pass at once.
const LONGEST: u64 = 3600;

/// Why a script cannot be read, and the line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{script}: line {line}: {what}")]
pub struct ScriptError {
    /// The script's name.
    pub script: String,
    /// From 1.
    pub line: u32,
    /// The error.
    pub what: String,
}

/// The operations, for errors.
const NAMES: &str = "open, close, mkdir, link, symlink, unlink, rmdir, rename, exchange, write, append, truncate, \
                     fallocate, setxattr, removexattr, fsync, sync, trim, pass, \
                     writeback, checkpoint, begin";

/// Reads a script.
///
/// # Errors
/// [`ScriptError`] with the first line that is wrong.
pub fn parse(name: &str, text: &str) -> Result<Script, ScriptError> {
    let mut script = Script { name: name.to_string(), setup: Vec::new(), body: Vec::new() };
    let mut begun = false;
    for (line, number) in text.lines().zip(1u32..) {
        let wrong = |what: String| ScriptError { script: name.to_string(), line: number, what };
        let words: Vec<&str> =
            line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let Some((&verb, rest)) = words.split_first() else { continue };
        if verb == "begin" {
            if begun {
                return Err(wrong("`begin` may be used only once".into()));
            }
            if !rest.is_empty() {
                return Err(wrong("`begin` takes no arguments".into()));
            }
            begun = true;
            script.setup = std::mem::take(&mut script.body);
            continue;
        }
        if script.body.len() >= MOST_LINES {
            return Err(wrong(format!("more than {MOST_LINES} operations")));
        }
        let op = operation(verb, rest).map_err(wrong)?;
        script.body.push(Line { number, op });
    }
    Ok(script)
}

fn path(text: &str) -> Result<Path, String> {
    Path::new(text).ok_or_else(|| format!("`{text}` is not a path below the root"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let len = parse_size(text)?.get();
    if len > LARGEST { Err(format!("{len} bytes exceed {LARGEST}")) } else { Ok(len) }
}

/// An offset in a file, or a file's length.
fn place(text: &str) -> Result<u64, String> {
    let at = parse_size(text)?.get();
    if at > FARTHEST { Err(format!("{at} bytes exceed {FARTHEST}")) } else { Ok(at) }
}

fn whole(text: &str, most: u64) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number > most { Err(format!("{number} is more than {most}")) } else { Ok(number) }
}

/// Splits off a path where one more word is given than needed.
fn maybe<'a>(words: &'a [&'a str], needed: usize) -> Result<(Option<Path>, &'a [&'a str]), String> {
    match words {
        [first, rest @ ..] if rest.len() == needed => Ok((Some(path(first)?), rest)),
        _ if words.len() == needed => Ok((None, words)),
        _ => {
            Err(format!("expected {needed} arguments and optionally a path, found {}", words.len()))
        }
    }
}

fn exactly<'a, const N: usize>(words: &[&'a str]) -> Result<[&'a str; N], String> {
    <[&str; N]>::try_from(words)
        .map_err(|_| format!("expected {N} arguments, found {}", words.len()))
}

fn range(words: &[&str]) -> Result<(Option<Path>, u64, u64), String> {
    let (file, rest) = maybe(words, 2)?;
    let [at, len] = exactly(rest)?;
    let (at, len) = (place(at)?, bytes(len)?);
    if at + len > FARTHEST {
        return Err(format!("a file size of {} bytes exceeds {FARTHEST}", at + len));
    }
    Ok((file, at, len))
}

fn length(
    words: &[&str],
    read: fn(&str) -> Result<u64, String>,
) -> Result<(Option<Path>, u64), String> {
    let (file, rest) = maybe(words, 1)?;
    let [len] = exactly(rest)?;
    Ok((file, read(len)?))
}

fn two(words: &[&str]) -> Result<(Path, Path), String> {
    let [from, to] = exactly(words)?;
    Ok((path(from)?, path(to)?))
}

fn one(words: &[&str]) -> Result<Path, String> {
    let [name] = exactly(words)?;
    path(name)
}

fn operation(verb: &str, words: &[&str]) -> Result<Op, String> {
    Ok(match verb {
        "open" | "create" => Op::Open(one(words)?),
        "close" => {
            let [] = exactly(words)?;
            Op::Close
        }
        "mkdir" => Op::Mkdir(one(words)?),
        "link" => two(words).map(|(from, to)| Op::Link(from, to))?,
        "symlink" => {
            let [target, name] = exactly(words)?;
            Op::Symlink(target.to_string(), path(name)?)
        }
        "unlink" => Op::Unlink(one(words)?),
        "rmdir" => Op::Rmdir(one(words)?),
        "rename" => two(words).map(|(from, to)| Op::Rename(from, to))?,
        "exchange" => two(words).map(|(from, to)| Op::Exchange(from, to))?,
        "write" => range(words).map(|(file, at, len)| Op::Write(file, at, len))?,
        "fallocate" => range(words).map(|(file, at, len)| Op::Fallocate(file, at, len))?,
        "append" => length(words, bytes).map(|(file, len)| Op::Append(file, len))?,
        "truncate" => length(words, place).map(|(file, len)| Op::Truncate(file, len))?,
        "setxattr" => {
            let (file, rest) = maybe(words, 2)?;
            let [name, len] = exactly(rest)?;
            Op::SetXattr(file, name.to_string(), bytes(len)?.min(65536))
        }
        "removexattr" => {
            let (file, rest) = maybe(words, 1)?;
            let [name] = exactly(rest)?;
            Op::RemoveXattr(file, name.to_string())
        }
        "fsync" => Op::Fsync(maybe(words, 0)?.0),
        "sync" => {
            let [] = exactly(words)?;
            Op::Sync
        }
        "trim" => {
            let [] = exactly(words)?;
            Op::Trim
        }
        "pass" => {
            let [seconds] = exactly(words)?;
            Op::Pass(u32::try_from(whole(seconds, LONGEST)?).unwrap_or(0))
        }
        "writeback" => {
            let [seed] = exactly(words)?;
            Op::Writeback(whole(seed, u64::MAX)?)
        }
        "checkpoint" => Op::Checkpoint(words.join(" ")),
        other => return Err(format!("`{other}` is not an operation (known: {NAMES})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_the_same() {
        let text = "mkdir A\nopen A/foo\nwrite 0 5000\nbegin\nlink A/foo B\nwrite A/foo 1 2\nappend 4\n\
                    truncate 3\nfallocate 0 9\nsetxattr B user.a 7\nremovexattr user.a\nsymlink x/y l\n\
                    rename B A/b\nexchange l A/b\nunlink l\nrmdir A\nfsync\nfsync A\nsync\npass 3\n\
                    writeback 17\ncheckpoint here it is\ncheckpoint\nclose\n";
        let script = parse("t", text).unwrap();
        assert_eq!(script.to_string(), text);
        assert_eq!((script.setup.len(), script.body.len()), (3, 20));
        assert_eq!(script.body[0].number, 5);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, word) in [
            ("mkdir A\n\n# fine\nfrobnicate A\n", 4, "frobnicate"),
            ("write 1\n", 1, "expected 2 arguments and optionally a path, found 1"),
            ("sync\nwrite a b c\n", 2, "b"),
            ("begin\nbegin\n", 2, "only once"),
            ("mkdir ..\n", 1, ".."),
            ("write f 0 17M\n", 1, "exceed"),
            ("write f 17T 1\n", 1, "exceed"),
            ("write f 16T 1\n", 1, "exceeds"),
            ("truncate f 17T\n", 1, "exceed"),
            ("pass x\n", 1, "not a number"),
        ] {
            let error = parse("s.txt", text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(word), "{error}");
            assert!(error.to_string().starts_with("s.txt: line "), "{error}");
        }
    }
}
