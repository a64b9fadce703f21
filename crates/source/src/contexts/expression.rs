//! Regular expressions of PCRE2, translated for the crate `regex`.
//!
//! All that describes a regular language is supported, which is all that policies use. Refused by
//! name are look-around, back references, atomic groups, possessive quantifiers, recursion,
//! conditions, verbs and Unicode properties. Matching is of bytes, a dot is any byte, and `$` also
//! matches before a newline at the end, as libselinux sets PCRE2 up.

use regex::bytes::{Regex, RegexBuilder};

/// An expression between `^` and `$`.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    regex: Regex,
    /// Bytes that every match begins with: most paths differ from them, and comparing is faster
    /// than matching.
    prefix: Vec<u8>,
}

/// The reason why an expression is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It is invalid.
    Invalid(String),
    /// It has a construct that is not supported.
    Unsupported(&'static str),
}

impl Expression {
    pub(super) fn new(text: &[u8]) -> Result<Self, Fault> {
        let mut translation = Translation { rest: text, ..Translation::default() };
        translation.run()?;
        let Translation { out, prefix, .. } = translation;
        let built = RegexBuilder::new(&format!("^{out}{END}"))
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(LARGEST)
            .build();
        let regex = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => Fault::Unsupported("an expression of this size"),
            error => Fault::Invalid(error.to_string().replace('\n', " ")),
        })?;
        Ok(Self { regex, prefix })
    }

    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        text.starts_with(&self.prefix) && self.regex.is_match(text)
    }
}

/// Most memory that a compiled expression takes, in bytes: a file has thousands of them.
const LARGEST: usize = 1 << 20;

/// The dollar of PCRE2.
const END: &str = r"(?:\n?\z)";

#[derive(Default)]
struct Translation<'a> {
    rest: &'a [u8],
    out: String,
    /// Number of open groups.
    depth: usize,
    /// Whether a quantifier may follow.
    is_repeatable: bool,
    /// Literal bytes at the start.
    prefix: Vec<u8>,
    /// Whether something other than a literal byte has occurred.
    is_prefix_complete: bool,
}

impl Translation<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.class()?,
                b'(' => self.open()?,
                b')' => {
                    let Some(depth) = self.depth.checked_sub(1) else {
                        return Err(invalid("unmatched closing parenthesis"));
                    };
                    self.depth = depth;
                    self.atom(")");
                }
                b'|' => {
                    if self.depth == 0 {
                        self.prefix.clear();
                    }
                    self.assertion("|");
                }
                b'^' => self.assertion("^"),
                b'$' => self.assertion(END),
                b'.' => self.atom("."),
                b'*' | b'+' | b'?' => self.quantifier(char::from(byte).to_string())?,
                b'{' => match self.counts()? {
                    Some(counts) => self.quantifier(counts)?,
                    None => self.literal(b'{'),
                },
                byte => self.literal(byte),
            }
        }
        if self.depth > 0 { Err(invalid("missing closing parenthesis")) } else { Ok(()) }
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Skips a text if it comes next.
    fn skips(&mut self, text: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn literal(&mut self, byte: u8) {
        if !self.is_prefix_complete {
            self.prefix.push(byte);
        }
        push(&mut self.out, byte);
        self.is_repeatable = true;
    }

    fn atom(&mut self, text: &str) {
        self.is_prefix_complete = true;
        self.out.push_str(text);
        self.is_repeatable = true;
    }

    fn assertion(&mut self, text: &str) {
        self.atom(text);
        self.is_repeatable = false;
    }

    fn quantifier(&mut self, text: String) -> Result<(), Fault> {
        if !self.is_repeatable {
            return Err(invalid("a quantifier does not follow a repeatable item"));
        }
        if !self.is_prefix_complete {
            // The byte before may be absent.
            self.prefix.pop();
        }
        self.assertion(&text);
        if self.skips(b"+") {
            return Err(Fault::Unsupported("a possessive quantifier"));
        }
        // A lazy quantifier matches the same texts.
        self.skips(b"?");
        Ok(())
    }

    /// The counts behind a brace, if it begins a quantifier.
    fn counts(&mut self) -> Result<Option<String>, Fault> {
        let Some(end) = self.rest.iter().position(|&byte| byte == b'}') else { return Ok(None) };
        let (inside, behind) = self.rest.split_at(end);
        let inside = std::str::from_utf8(inside).unwrap_or_default();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
        if !is_number(least) || !(is_number(most) || most.is_empty()) {
            return Ok(None);
        }
        if [least, most].iter().any(|text| text.parse().unwrap_or(0u32) > 65535) {
            return Err(invalid("a number in {} is too large"));
        }
        self.rest = behind.get(1..).unwrap_or_default();
        Ok(Some(format!("{{{inside}}}")))
    }

    fn open(&mut self) -> Result<(), Fault> {
        if self.rest.starts_with(b"*") {
            return Err(Fault::Unsupported("a verb (*...)"));
        }
        if self.skips(b"?") {
            return self.special_group();
        }
        self.begin("(?:");
        Ok(())
    }

    fn begin(&mut self, group: &str) {
        self.assertion(group);
        self.depth += 1;
    }

    /// What follows `(?`.
    fn special_group(&mut self) -> Result<(), Fault> {
        if self.skips(b"#") {
            while let Some(byte) = self.next() {
                if byte == b')' {
                    return Ok(());
                }
            }
            return Err(invalid("missing closing parenthesis of a comment"));
        }
        let refused = |what| Err(Fault::Unsupported(what));
        match self.rest {
            [b'=' | b'!', ..] => refused("look-ahead"),
            [b'<', b'=' | b'!', ..] => refused("look-behind"),
            [b'>', ..] => refused("an atomic group"),
            [b'|', ..] => refused("a branch reset group"),
            [b'(', ..] => refused("a condition"),
            [b'C', ..] => refused("a callout"),
            [b'R' | b'0'..=b'9' | b'&' | b'+', ..] | [b'P', b'>', ..] | [b'-', b'0'..=b'9', ..] => {
                refused("recursion")
            }
            [b'P', b'=', ..] => refused("a back reference"),
            [b'<' | b'\'', ..] | [b'P', b'<', ..] => {
                let end = self.rest.iter().skip(2).position(|byte| matches!(byte, b'>' | b'\''));
                let Some(end) = end else { return Err(invalid("the name of a group is open")) };
                self.rest = self.rest.get(end + 3..).unwrap_or_default();
                self.begin("(?:");
                Ok(())
            }
            _ => self.flags(),
        }
    }

    fn flags(&mut self) -> Result<(), Fault> {
        let mut text = String::from("(?");
        while let Some(byte) = self.next() {
            match byte {
                b'i' | b's' | b'-' => text.push(char::from(byte)),
                b':' => {
                    text.push(':');
                    self.begin(&text);
                    return Ok(());
                }
                b')' => {
                    // Without a flag, there is nothing to set.
                    if text.ends_with(['i', 's']) {
                        text.push(')');
                        self.assertion(&text);
                    }
                    return Ok(());
                }
                _ => return Err(Fault::Unsupported("an option in (?...) besides i and s")),
            }
        }
        Err(invalid("missing closing parenthesis"))
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<(), Fault> {
        let Some(byte) = self.next() else { return Err(invalid("it ends in a backslash")) };
        match byte {
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' => {
                self.atom(&format!("\\{}", char::from(byte)))
            }
            b'b' | b'B' | b'A' | b'z' => self.assertion(&format!("\\{}", char::from(byte))),
            b'Z' => self.assertion(END),
            b'h' => self.atom(&format!("[{HORIZONTAL}]")),
            b'H' => self.atom(&format!("[^{HORIZONTAL}]")),
            b'v' => self.atom(&format!("[{VERTICAL}]")),
            b'V' => self.atom(&format!("[^{VERTICAL}]")),
            b'N' if !self.rest.starts_with(b"{") => self.atom(r"[^\n]"),
            b'Q' => self.quotation(),
            b'E' => {}
            byte => {
                let byte = self.escaped_byte(byte)?;
                self.literal(byte);
            }
        }
        Ok(())
    }

    /// Literal bytes up to `\E`.
    fn quotation(&mut self) {
        while !self.skips(b"\\E") {
            let Some(byte) = self.next() else { return };
            self.literal(byte);
        }
    }

    /// The byte that an escape stands for, in and outside of classes.
    fn escaped_byte(&mut self, byte: u8) -> Result<u8, Fault> {
        Ok(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'f' => 0x0c,
            b'e' => 0x1b,
            b'a' => 0x07,
            b'x' => self.hexadecimal()?,
            b'0' => self.octal(),
            b'1'..=b'9' | b'g' | b'k' => return Err(Fault::Unsupported("a back reference")),
            b'p' | b'P' | b'X' | b'N' | b'u' | b'U' => {
                return Err(Fault::Unsupported("a Unicode property or character"));
            }
            byte if byte.is_ascii_alphanumeric() => {
                return Err(Fault::Unsupported("a backslash before this letter"));
            }
            byte => byte,
        })
    }

    fn hexadecimal(&mut self) -> Result<u8, Fault> {
        let is_braced = self.skips(b"{");
        let limit = if is_braced { usize::MAX } else { 2 };
        let is_digit = |byte: &&u8| byte.is_ascii_hexdigit();
        let len = self.rest.iter().take(limit).take_while(is_digit).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let text = std::str::from_utf8(digits).unwrap_or_default();
        if is_braced && !self.skips(b"}") {
            return Err(invalid("missing brace of \\x{...}"));
        }
        match text {
            "" => Ok(0),
            text => u8::from_str_radix(text, 16).map_err(|_| invalid("\\x{...} above FF")),
        }
    }

    /// The rest of `\0`, up to two more digits.
    fn octal(&mut self) -> u8 {
        let mut value = 0;
        for _ in 0..2 {
            let Some(&digit @ b'0'..=b'7') = self.rest.first() else { break };
            value = value * 8 + (digit - b'0');
            self.next();
        }
        value
    }

    /// What follows an opening bracket.
    fn class(&mut self) -> Result<(), Fault> {
        let mut text = String::from(if self.skips(b"^") { "[^" } else { "[" });
        let mut is_first = true;
        loop {
            let missing = || invalid("missing closing bracket of a class");
            let byte = self.next().ok_or_else(missing)?;
            let item = match byte {
                b']' if !is_first => break,
                b'[' if matches!(self.rest.first(), Some(b':' | b'.' | b'=')) => {
                    match self.posix_class()? {
                        Some(class) => Item::Set(class),
                        None => Item::Byte(b'['),
                    }
                }
                b'\\' => self.class_escape()?,
                byte => Item::Byte(byte),
            };
            is_first = false;
            match item {
                Item::Set(set) => text.push_str(&set),
                Item::Byte(low) => {
                    push(&mut text, low);
                    self.range(low, &mut text)?;
                }
            }
        }
        text.push(']');
        self.atom(&text);
        Ok(())
    }

    /// The end of a range that begins with `low`, if a hyphen follows.
    fn range(&mut self, low: u8, text: &mut String) -> Result<(), Fault> {
        if !self.rest.starts_with(b"-") || self.rest.get(1).is_none_or(|&byte| byte == b']') {
            return Ok(());
        }
        self.next();
        let high = match self.next() {
            Some(b'\\') => self.class_escape()?,
            Some(b'[') if matches!(self.rest.first(), Some(b':')) => match self.posix_class()? {
                Some(class) => Item::Set(class),
                None => Item::Byte(b'['),
            },
            Some(byte) => Item::Byte(byte),
            None => return Err(invalid("missing closing bracket of a class")),
        };
        match high {
            // The hyphen stands for itself.
            Item::Set(set) => {
                push(text, b'-');
                text.push_str(&set);
            }
            Item::Byte(high) if high < low => {
                return Err(invalid("a range in a class is out of order"));
            }
            Item::Byte(high) => {
                text.push('-');
                push(text, high);
            }
        }
        Ok(())
    }

    fn class_escape(&mut self) -> Result<Item, Fault> {
        let Some(byte) = self.next() else { return Err(invalid("it ends in a backslash")) };
        Ok(match byte {
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' => Item::Set(format!("\\{}", char::from(byte))),
            b'h' => Item::Set(HORIZONTAL.into()),
            b'v' => Item::Set(VERTICAL.into()),
            b'b' => Item::Byte(0x08),
            byte => Item::Byte(self.escaped_byte(byte)?),
        })
    }

    /// `[:NAME:]` behind its first bracket; `None` if it is none.
    fn posix_class(&mut self) -> Result<Option<String>, Fault> {
        let Some(end) = self.rest.windows(2).position(|pair| pair == b":]") else {
            return Ok(None);
        };
        let name = self.rest.get(1..end).unwrap_or_default();
        if !self.rest.starts_with(b":")
            || !name.iter().all(|b| b.is_ascii_lowercase() || *b == b'^')
        {
            return Ok(None);
        }
        let text = format!("[:{}:]", String::from_utf8_lossy(name));
        if !POSIX_CLASSES.contains(&text.replace('^', "").trim_matches(['[', ']', ':'])) {
            return Err(invalid("unknown class [:...:]"));
        }
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        Ok(Some(text))
    }
}

enum Item {
    Byte(u8),
    Set(String),
}

/// `\h` and `\v` of PCRE2, as parts of classes.
const HORIZONTAL: &str = r"\t \xA0";
const VERTICAL: &str = r"\n\x0B\x0C\r\x85";

const POSIX_CLASSES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

fn invalid(why: &str) -> Fault {
    Fault::Invalid(why.into())
}

/// Appends an expression for one byte, in and outside of classes.
fn push(out: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_') {
        out.push(char::from(byte));
    } else {
        out.push_str(&format!("\\x{byte:02X}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Expression::new(pattern.as_bytes()).expect(pattern).is_match(text.as_bytes())
    }

    #[test]
    fn constructs_beyond_regular_languages_are_refused_by_name() {
        for (pattern, name) in [
            ("/a(?=b)", "look-ahead"),
            ("/a(?!b)", "look-ahead"),
            ("(?<=a)b", "look-behind"),
            ("(?<!a)b", "look-behind"),
            ("(?>a)", "an atomic group"),
            ("a++", "a possessive quantifier"),
            (r"(a)\1", "a back reference"),
            (r"(?<n>a)\k<n>", "a back reference"),
            ("(?R)", "recursion"),
            ("(?(1)a)", "a condition"),
            ("(*ACCEPT)", "a verb (*...)"),
            (r"\pL", "a Unicode property or character"),
            ("a{65535}", "an expression of this size"),
            ("(a{1000}){1000}", "an expression of this size"),
            (r"\K", "a backslash before this letter"),
            ("(?x)a", "an option in (?...) besides i and s"),
        ] {
            let fault = Expression::new(pattern.as_bytes()).expect_err(pattern);
            assert_eq!(fault, Fault::Unsupported(name), "{pattern}");
        }
        for pattern in ["(a", "a)", "[a", "*a", "a**", "|*", r"a\", "[z-a]", "[[:x:]]", "(?#a"] {
            let fault = Expression::new(pattern.as_bytes()).expect_err(pattern);
            assert!(matches!(fault, Fault::Invalid(_)), "{pattern}: {fault:?}");
        }
    }

    #[test]
    fn escapes_and_classes_are_those_of_pcre() {
        for (pattern, text) in [
            (r"/a\-b\.c\<\ \@", "/a-b.c< @"),
            (r"\x41\x{42}\0101\e", "AB\u{8}1\u{1b}"),
            (r"\Qa.b\E.", "a.bc"),
            ("[]a]", "]"),
            ("[^]a]", "b"),
            ("[a&&b]", "&"),
            ("[a-]", "-"),
            (r"[\d-x]", "-"),
            (r"[a-\d]", "-"),
            ("[[:alpha:]_]+", "a_B"),
            ("[[:^digit:]]", "x"),
            ("a{2,3}", "aaa"),
            ("a{x}", "a{x}"),
            ("a{,2}", "a{,2}"),
            ("a{0}b", "b"),
            ("(?i)AB", "ab"),
            ("(?i:a)b", "Ab"),
            ("(?P<name>a)(?'x'b)", "ab"),
            ("a(?#comment)b", "ab"),
            ("a.b", "a\nb"),
            ("ab", "ab\n"),
            ("a*?", "aa"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text:?}");
        }
        for (pattern, text) in
            [("a{0}b", "ab"), ("ab", "ab\n\n"), ("[^/]+", "a/b"), ("/a", "/ab"), ("ab?", "b")]
        {
            assert!(!matches(pattern, text), "{pattern} {text:?}");
        }
    }
}
