//! Texts in the language of man(7). Input lines are kept below 80 characters.

/// A page being written.
pub(super) struct Roff {
    text: String,
}

/// Longest input line, besides those of examples and long words.
const WIDTH: usize = 78;

impl Roff {
    /// Begins a page of section 1.
    pub(super) fn page(name: &str, date: &str) -> Self {
        let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
        let text = format!(
            ".TH {} 1 {date} \"seekless {version}\" \"User Commands\"\n",
            escaped(&title).replace("\\-", "-")
        );
        Self { text }
    }

    pub(super) fn section(&mut self, title: &str) {
        self.line(&format!(".SH {}", quoted(title)));
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.line(&format!(".SS {}", quoted(title)));
    }

    /// Adds a line as it is.
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds escaped text, in lines that are not too long.
    pub(super) fn words(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                self.begin_safely(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.begin_safely(&line);
        }
    }

    /// Adds a line of text, which must not be taken for a request.
    fn begin_safely(&mut self, line: &str) {
        let is_request = line.starts_with(['.', '\'']);
        self.line(&format!("{}{line}", if is_request { "\\&" } else { "" }));
    }

    /// Adds plain text as a paragraph; the first one of a section needs no mark.
    pub(super) fn paragraph(&mut self, text: &str) {
        let last = self.text.lines().last().unwrap_or_default();
        if !last.starts_with(".SH") && !last.starts_with(".SS") {
            self.line(".PP");
        }
        self.words(&escaped(text));
    }

    /// Adds an item: an escaped name, and a plain text, whose empty lines divide paragraphs.
    pub(super) fn item(&mut self, name: &str, text: &str) {
        self.line(".TP");
        self.begin_safely(name);
        let mut parts = text.split("\n\n").filter(|part| !part.trim().is_empty());
        self.words(&parts.next().map_or_else(|| "\\&".into(), escaped));
        for part in parts {
            self.line(".IP");
            self.words(&escaped(part));
        }
    }

    /// Adds plain lines as they are.
    pub(super) fn example(&mut self, lines: &[String]) {
        self.line(".EX");
        for line in lines {
            self.begin_safely(&escaped(line));
        }
        self.line(".EE");
    }

    /// Adds references to pages, such as `mke2fs(8)`.
    pub(super) fn pages(&mut self, pages: &[String]) {
        for (at, page) in pages.iter().enumerate() {
            let (name, section) = page.split_once('(').unwrap_or((page, "1)"));
            let comma = if at + 1 < pages.len() { "," } else { "" };
            self.line(&format!(".BR {} ({section}{comma}", escaped(name)));
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Plain text, so that it is printed as it is, and can be copied.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            char => out.push(char),
        }
    }
    out
}

fn quoted(title: &str) -> String {
    if title.contains(' ') { format!("\"{}\"", escaped(title)) } else { escaped(title) }
}

pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text))
}

pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
}

/// The rest of a line of usage: names of values, which are between angle brackets, in italics.
pub(super) fn usage(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('<') {
        out.push_str(&escaped(before));
        let (name, behind) = behind.split_once('>').unwrap_or((behind, ""));
        out.push_str(&italic(name));
        rest = behind;
    }
    out.push_str(&escaped(rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_requests() {
        let mut roff = Roff::page("a-b", "2026-11-29");
        roff.section("EXIT STATUS");
        roff.paragraph(".qcow2 'x' -o \\");
        roff.paragraph(&"word ".repeat(40));
        let text = roff.finish();
        let begin = ".TH A-B 1 2026-11-29 \"seekless ";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.contains(".SH \"EXIT STATUS\"\n\\&.qcow2 \\(aqx\\(aq \\-o \\e\n.PP\nword"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
