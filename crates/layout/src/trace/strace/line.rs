//! The lines of `strace`: pid, time, call, arguments, result.

use crate::trace::paths::unquote;
use std::collections::HashMap;
use std::io::{self, BufRead};

/// An argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// `"..."`, unescaped.
    Text(Vec<u8>),
    /// `3</path>`: a descriptor with its path.
    File(i64, Vec<u8>),
    /// Anything else, as printed.
    Word(String),
}

/// A finished system call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) pid: u32,
    /// Nanoseconds since the first call.
    pub(super) time: u64,
    pub(super) name: String,
    args: Vec<Value>,
    /// Negative when it failed.
    pub(super) result: i64,
    /// The path that `-y` prints for a descriptor returned.
    pub(super) result_path: Option<Vec<u8>>,
    pub(super) error: Option<String>,
}

impl Call {
    pub(super) fn text(&self, at: usize) -> Option<&[u8]> {
        match self.args.get(at)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number or descriptor; `i64::MIN` when it is none.
    pub(super) fn number(&self, at: usize) -> i64 {
        match self.args.get(at) {
            Some(Value::File(fd, _)) => *fd,
            Some(Value::Word(word)) if word == "AT_FDCWD" => -100,
            Some(Value::Word(word)) => integer(word).unwrap_or(i64::MIN),
            _ => i64::MIN,
        }
    }

    pub(super) fn fd_path(&self, at: usize) -> Option<&[u8]> {
        match self.args.get(at)? {
            Value::File(_, path) => Some(path),
            _ => None,
        }
    }

    pub(super) fn is_null(&self, at: usize) -> bool {
        matches!(self.args.get(at), Some(Value::Word(word)) if word == "NULL")
    }

    pub(super) fn is_word(&self, at: usize, start: &str) -> bool {
        matches!(self.args.get(at), Some(Value::Word(word)) if word.starts_with(start))
    }

    /// Whether a flag is among the arguments.
    pub(super) fn mentions(&self, flag: &str) -> bool {
        let has =
            |word: &str| word.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == flag);
        self.args.iter().any(|arg| matches!(arg, Value::Word(word) if has(word)))
    }
}

fn integer(word: &str) -> Option<i64> {
    match word.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Finished calls, put together from lines.
pub(super) struct Lines<R> {
    input: R,
    /// Calls begun by a process and not finished.
    unfinished: HashMap<u32, Vec<u8>>,
    first: Option<u64>,
    last: u64,
    /// Added when times of day pass midnight.
    days: u64,
}

const DAY: u64 = 86_400_000_000_000;

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, unfinished: HashMap::new(), first: None, last: 0, days: 0 }
    }

    pub(super) fn next_call(&mut self) -> io::Result<Option<Call>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.input.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            if let Some(call) = self.line(line.trim_ascii()) {
                return Ok(Some(call));
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Option<Call> {
        let (pid, rest) = pid(line);
        let (time, rest) = time(rest);
        let time = self.since_start(time);
        if let Some(begun) = rest.strip_suffix(b"<unfinished ...>") {
            self.unfinished.insert(pid, begun.trim_ascii_end().to_vec());
            return None;
        }
        if rest.starts_with(b"<... ") {
            let resumed = find(rest, b"resumed>")? + b"resumed>".len();
            let mut whole = self.unfinished.remove(&pid)?;
            whole.extend_from_slice(&rest[resumed..]);
            return call(pid, time, &whole);
        }
        call(pid, time, rest)
    }

    /// A moment as the time since the first one. A line without one has the time of the line
    /// before.
    fn since_start(&mut self, time: Option<u64>) -> u64 {
        if let Some(time) = time {
            let first = *self.first.get_or_insert(time);
            if time + self.days + DAY / 2 < first + self.last {
                self.days += DAY;
            }
            let since = (time + self.days).saturating_sub(first);
            self.last = since;
        }
        self.last
    }
}

/// `[pid 17] ` or `17 `, if the line begins with it.
fn pid(line: &[u8]) -> (u32, &[u8]) {
    let (digits, rest) = match line.strip_prefix(b"[pid ") {
        Some(rest) => {
            let end = find(rest, b"]").unwrap_or(0);
            (rest[..end].trim_ascii(), rest.get(end + 1..).unwrap_or_default())
        }
        None => {
            let end = find(line, b" ").unwrap_or(0);
            line.split_at(end)
        }
    };
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number.map_or((0, line), |pid| (pid, rest.trim_ascii_start()))
}

/// `12:34:56.789 ` or `1700000000.789 ` in nanoseconds, if the line begins
/// with it.
fn time(line: &[u8]) -> (Option<u64>, &[u8]) {
    let Some(end) = find(line, b" ") else { return (None, line) };
    let parsed = std::str::from_utf8(&line[..end]).ok().and_then(parse_time);
    match parsed {
        Some(time) => (Some(time), line[end..].trim_ascii_start()),
        None => (None, line),
    }
}

fn parse_time(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = whole
        .split(':')
        .try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse::<u64>().ok()?))?;
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// `name(arguments) = result`.
fn call(pid: u32, time: u64, text: &[u8]) -> Option<Call> {
    let open = find(text, b"(")?;
    let name = std::str::from_utf8(&text[..open]).ok()?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (args, rest) = arguments(&text[open + 1..])?;
    let equals = find(rest, b"=")?;
    let result = rest[equals + 1..].trim_ascii();
    let end = find(result, b" ").unwrap_or(result.len());
    let first = value(&result[..end.max(closing(result))]);
    let (number, result_path) = match first {
        Value::File(fd, path) => (fd, Some(path)),
        Value::Word(word) => (integer(&word)?, None),
        Value::Text(_) => return None,
    };
    let after = String::from_utf8_lossy(&result[end..]).into_owned();
    let error = (number < 0).then(|| after.split_whitespace().next().map(str::to_string));
    Some(Call {
        pid,
        time,
        name: name.to_string(),
        args,
        result: number,
        result_path,
        error: error.flatten(),
    })
}

/// Where the path behind a returned descriptor ends: it may hold spaces.
fn closing(result: &[u8]) -> usize {
    let digits = result.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || result.get(digits) != Some(&b'<') {
        return 0;
    }
    result.iter().rposition(|&byte| byte == b'>').map_or(0, |at| at + 1)
}

/// The arguments up to the closing parenthesis, and the text behind it.
fn arguments(text: &[u8]) -> Option<(Vec<Value>, &[u8])> {
    let (mut args, mut depth, mut start, mut at) = (Vec::new(), 0usize, 0, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => {
                let (_, rest) = unquote(&text[at..])?;
                at = text.len() - rest.len();
                continue;
            }
            // The path of a descriptor; strace escapes `>` within.
            b'<' if at > 0 && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => {
                at += find(&text[at..], b">")?;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                push(&mut args, &text[start..at]);
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                push(&mut args, &text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn push(args: &mut Vec<Value>, text: &[u8]) {
    let text = text.trim_ascii();
    if !text.is_empty() {
        args.push(value(text));
    }
}

fn value(text: &[u8]) -> Value {
    if let Some((bytes, _)) = unquote(text) {
        return Value::Text(bytes);
    }
    if let (Some(open), true) = (find(text, b"<"), text.ends_with(b">")) {
        let fd = std::str::from_utf8(&text[..open]).ok();
        let fd = fd.and_then(|fd| if fd == "AT_FDCWD" { Some(-100) } else { fd.parse().ok() });
        // Paths are escaped as in C, without quotes.
        let quoted = [b"\"", &text[open + 1..text.len() - 1], b"\""].concat();
        if let (Some(fd), Some((path, _))) = (fd, unquote(&quoted)) {
            return Value::File(fd, path);
        }
    }
    Value::Word(String::from_utf8_lossy(text).into_owned())
}
