//! Patterns of names to exclude, in the language of `.gitignore` (`gitignore(5)`), with the
//! matching of `git check-ignore`; `tests/excludes.rs` compares the two.
//!
//! The existing crates differ from git in such random lists: `ignore` in classes of characters and
//! in `//`, `gix-glob` in one of 500, where `**` follows another character (`a**/b`). None names
//! the patterns that can match nothing.

/// Names to exclude, as lines of a `.gitignore` in the root.
///
/// A pattern with a slash at its start or inside matches paths from the root of the tree; one
/// without matches a name in any directory. A slash at the end restricts it to directories. `*` and
/// `?` do not match a slash; `**/` matches any directories, `/**` everything below. `[...]` is a
/// class, `\` quotes the next character. The last matching pattern decides, and one that begins
/// with `!` includes its matches again; but excluding a directory excludes everything below it.
/// Empty lines and those that begin with `#` are ignored, as are spaces at the end. Beyond
/// `.gitignore`, `./` at the start is the root.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    patterns: Vec<Pattern>,
    /// Files that are kept whatever `patterns` say.
    includes: Vec<Pattern>,
    idle: Vec<String>,
}

#[derive(Clone, Debug)]
struct Pattern {
    keeps: bool,
    for_directories: bool,
    /// Whether it matches a name in any directory.
    for_names: bool,
    tokens: Vec<Token>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Byte(u8),
    /// Any byte but a slash.
    One,
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
    /// Any bytes but slashes.
    Many,
    /// Any bytes.
    All,
    /// Nothing, or any bytes up to a slash: takes two places, this one and [`Token::Within`].
    Directories,
    /// The state of matching inside of [`Token::Directories`].
    Within,
}

impl Excludes {
    /// Compiles patterns, each as a line of a file, or as the whole of one. A byte order mark of
    /// UTF-8 at the start is ignored.
    #[must_use]
    pub fn new<S: AsRef<[u8]>>(patterns: &[S]) -> Self {
        let mut all = Self::default();
        all.patterns = all.compiled(patterns);
        all
    }

    /// Keeps files that match other patterns, with everything below them, and the directories above
    /// them.
    #[must_use]
    pub fn except<S: AsRef<[u8]>>(mut self, patterns: &[S]) -> Self {
        self.includes = self.compiled(patterns);
        self
    }

    fn compiled<S: AsRef<[u8]>>(&mut self, patterns: &[S]) -> Vec<Pattern> {
        let mut compiled = Vec::new();
        let files = patterns.iter().map(|lines| {
            let lines = lines.as_ref();
            lines.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(lines)
        });
        for line in files.flat_map(|lines| lines.split(|&byte| byte == b'\n')) {
            match compile(line) {
                Ok(pattern) => compiled.extend(pattern),
                Err(why) => {
                    let line = String::from_utf8_lossy(line);
                    self.idle.push(format!("pattern '{line}' matches nothing: {why}"));
                }
            }
        }
        compiled
    }

    /// The patterns that can match nothing, because a class is not closed, nothing follows a
    /// backslash, or it contains a zero byte, each with the reason, as messages to show. They have no effect, as in git.
    #[must_use]
    pub fn idle(&self) -> &[String] {
        &self.idle
    }

    /// Whether nothing is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether the last pattern that matches this path, given relative to the root, excludes it.
    /// The directories above are not considered.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.includes.is_empty() {
            return last_match_is_plain(&self.patterns, path, is_dir);
        }
        // Below a directory that is left out, a file may be kept.
        !is_dir && self.leaves_out(path, is_dir)
    }

    /// Whether directories are kept only because of files that may be below them.
    #[must_use]
    pub fn has_includes(&self) -> bool {
        !self.includes.is_empty()
    }

    /// Whether a file is left out, by itself or with a directory above it.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_dir: bool) -> bool {
        let is_match = |patterns: &[Pattern]| {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            let mut above = ends.filter_map(|at| path.get(..at));
            above.any(|dir| last_match_is_plain(patterns, dir, true))
                || last_match_is_plain(patterns, path, is_dir)
        };
        is_match(&self.patterns) && !is_match(&self.includes)
    }
}

/// Whether the last of the patterns that match a path does not begin with `!`.
fn last_match_is_plain(patterns: &[Pattern], path: &[u8], is_dir: bool) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let found = patterns.iter().rev().find(|pattern| {
        (is_dir || !pattern.for_directories)
            && is_match(&pattern.tokens, if pattern.for_names { name } else { path })
    });
    found.is_some_and(|pattern| !pattern.keeps)
}

/// A line without the spaces at its end, except those after a backslash.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut end = 0;
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at += if byte == b'\\' { 2 } else { 1 };
        if byte != b' ' {
            end = at.min(line.len());
        }
    }
    &line[..end]
}

/// Compiles a line; `None` for an empty line or a comment.
fn compile(line: &[u8]) -> Result<Option<Pattern>, &'static str> {
    if line.starts_with(b"#") {
        return Ok(None);
    }
    if line.contains(&0) {
        return Err("it contains a zero byte");
    }
    let line = trimmed(line);
    let (keeps, body) = match line.strip_prefix(b"!") {
        Some(body) => (true, body),
        None => (false, line),
    };
    let (for_directories, body) = match body.strip_suffix(b"/") {
        Some(body) => (true, body),
        None => (false, body),
    };
    if body.is_empty() {
        return Ok(None);
    }
    let for_names = !body.contains(&b'/');
    let body = body.strip_prefix(b"./").or_else(|| body.strip_prefix(b"/")).unwrap_or(body);
    // Git compares the part before the first special character literally, so a `**` after it is at
    // a beginning.
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let plain = body.iter().position(is_special).unwrap_or(body.len());
    let (plain, rest) = body.split_at(plain);
    let mut tokens: Vec<Token> = plain.iter().map(|&byte| Token::Byte(byte)).collect();
    add_tokens(&mut tokens, rest, for_names)?;
    Ok(Some(Pattern { keeps, for_directories, for_names, tokens }))
}

fn add_tokens(
    tokens: &mut Vec<Token>,
    pattern: &[u8],
    for_names: bool,
) -> Result<(), &'static str> {
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        match byte {
            b'\\' => {
                let literal = pattern.get(at + 1).ok_or("nothing follows the backslash")?;
                tokens.push(Token::Byte(*literal));
                at += 2;
            }
            b'?' => {
                tokens.push(Token::One);
                at += 1;
            }
            b'*' => {
                let stars = pattern[at..].iter().take_while(|&&byte| byte == b'*').count();
                let begins = at == 0 || pattern[at - 1] == b'/';
                at += stars;
                let rest = &pattern[at..];
                let ends = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
                let is_deep = stars > 1 && begins && ends && !for_names;
                if is_deep && rest.starts_with(b"/") {
                    tokens.extend([Token::Directories, Token::Within]);
                    at += 1;
                } else {
                    tokens.push(if is_deep { Token::All } else { Token::Many });
                }
            }
            b'[' => {
                let (class, len) = class(&pattern[at + 1..])?;
                tokens.push(class);
                at += 1 + len;
            }
            byte => {
                tokens.push(Token::Byte(byte));
                at += 1;
            }
        }
    }
    Ok(())
}

/// Parses a class after its opening bracket. Returns it and its length in bytes, including the
/// closing bracket.
fn class(pattern: &[u8]) -> Result<(Token, usize), &'static str> {
    const OPEN: &str = "a class is not closed";
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    // The previous byte, where a range may begin.
    let mut before = None;
    let mut is_first = true;
    loop {
        let &byte = pattern.get(at).ok_or(OPEN)?;
        if byte == b']' && !is_first {
            return Ok((Token::Class { negated, ranges }, at + 1));
        }
        is_first = false;
        at += 1;
        let ends_behind = pattern.get(at).is_none_or(|&next| next == b']');
        match (byte, before) {
            (b'-', Some(from)) if !ends_behind => {
                let mut to = pattern[at];
                at += 1;
                if to == b'\\' {
                    to = *pattern.get(at).ok_or(OPEN)?;
                    at += 1;
                }
                ranges.push((from, to));
                before = None;
            }
            (b'[', _) if pattern.get(at) == Some(&b':') => {
                let end = pattern[at + 1..].iter().position(|&byte| byte == b']');
                let end = at + 1 + end.ok_or(OPEN)?;
                match pattern[at + 1..end].strip_suffix(b":") {
                    Some(name) => {
                        ranges.extend(named(name).ok_or("there is no such class of characters")?);
                        at = end + 1;
                        before = None;
                    }
                    // Not closed by `:]`: an ordinary bracket.
                    None => {
                        ranges.push((b'[', b'['));
                        before = Some(b'[');
                    }
                }
            }
            (byte, _) => {
                let mut literal = byte;
                if byte == b'\\' {
                    literal = *pattern.get(at).ok_or(OPEN)?;
                    at += 1;
                }
                ranges.push((literal, literal));
                before = Some(literal);
            }
        }
    }
}

/// The bytes of a named class of characters, such as `alpha`.
fn named(name: &[u8]) -> Option<Vec<(u8, u8)>> {
    let is_in: fn(&u8) -> bool = match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| (b' '..=b'~').contains(byte),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | 9..=13),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    };
    Some((0..=127).filter(is_in).map(|byte| (byte, byte)).collect())
}

/// Whether the tokens match the whole text. All alternatives are followed at once, so the time is
/// at most the product of the lengths.
fn is_match(tokens: &[Token], text: &[u8]) -> bool {
    let mut at = vec![false; tokens.len() + 1];
    at[0] = true;
    pass_empty(tokens, &mut at);
    let mut next = vec![false; tokens.len() + 1];
    for &byte in text {
        next.fill(false);
        for (nth, token) in tokens.iter().enumerate().filter(|&(nth, _)| at[nth]) {
            match token {
                Token::Byte(wanted) => next[nth + 1] |= *wanted == byte,
                Token::One => next[nth + 1] |= byte != b'/',
                Token::Class { negated, ranges } => {
                    let is_in = ranges.iter().any(|&(from, to)| (from..=to).contains(&byte));
                    next[nth + 1] |= is_in != *negated && byte != b'/';
                }
                Token::Many => next[nth] |= byte != b'/',
                Token::All => next[nth] = true,
                Token::Directories => {}
                Token::Within => {
                    next[nth] = true;
                    next[nth + 1] |= byte == b'/';
                }
            }
        }
        std::mem::swap(&mut at, &mut next);
        pass_empty(tokens, &mut at);
        if !at.contains(&true) {
            return false;
        }
    }
    at[tokens.len()]
}

/// Also activates the tokens after those that match the empty string.
fn pass_empty(tokens: &[Token], at: &mut [bool]) {
    for (nth, token) in tokens.iter().enumerate() {
        if at[nth] {
            match token {
                Token::Many | Token::All => at[nth + 1] = true,
                Token::Directories => (at[nth + 1], at[nth + 2]) = (true, true),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_gitignore_has_them() {
        let excludes = Excludes::new(&[
            "*.o",
            "/build",
            "doc/*.tmp",
            "cache/",
            "# no",
            "",
            "!kept.o",
            "**/x/y",
            "z/**",
            "[[:upper:]]?",
            "end\\ ",
            "./here",
        ]);
        for (path, is_dir, hit) in [
            ("a.o", false, true),
            ("x/y/a.o", false, true),
            ("x/kept.o", false, false),
            ("build", true, true),
            ("x/build", true, false),
            ("doc/a.tmp", false, true),
            ("doc/x/a.tmp", false, false),
            ("x/cache", true, true),
            ("x/cache", false, false),
            ("x/y", false, true),
            ("a/b/x/y", false, true),
            ("z", true, false),
            ("z/a/b", false, true),
            ("d/Ab", false, true),
            ("d/ab", false, false),
            ("end ", false, true),
            ("here", false, true),
            ("d/here", false, false),
        ] {
            assert_eq!(excludes.matches(path.as_bytes(), is_dir), hit, "{path}");
        }
        for bad in ["a[", "a\\", "[[:none:]]", "[a-"] {
            let excludes = Excludes::new(&[bad]);
            assert!(excludes.is_empty() && excludes.idle().len() == 1, "{bad}");
        }
        let excludes = Excludes::new(&["#", " ", "/"]);
        assert!(excludes.is_empty() && excludes.idle().is_empty());
    }

    #[test]
    fn many_stars_take_no_long_time() {
        let excludes = Excludes::new(&["*a".repeat(200) + "b"]);
        assert!(!excludes.matches(&[b'a'; 4000], false));
    }
}
