//! The text at the end of a command's help, divided into sections.

use super::roff::Roff;
use clap::Command;

/// The parts of a text.
#[derive(Default)]
pub(super) struct Help {
    /// Paragraphs, and lines that are shown as they are.
    parts: Vec<Part>,
    examples: Vec<String>,
    codes: Vec<(String, String)>,
}

enum Part {
    Text(String),
    Lines(Vec<String>),
}

/// Where in a text its reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Prose,
    Examples,
    Codes,
}

impl Help {
    pub(super) fn of(command: &Command) -> Self {
        let text = command.get_after_long_help().or_else(|| command.get_after_help());
        Self::read(&text.map(ToString::to_string).unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let mut help = Self::default();
        let (mut place, mut is_new) = (Place::Prose, true);
        for line in text.lines() {
            if line.trim().is_empty() {
                is_new = true;
                continue;
            }
            let is_indented = line.starts_with("  ");
            match line {
                "Examples:" => place = Place::Examples,
                "Exit codes:" => place = Place::Codes,
                _ => {
                    // A string of several lines in an example is not indented.
                    let is_inside = is_indented || (place == Place::Examples && help.is_quoted());
                    if !is_inside && place != Place::Prose {
                        (place, is_new) = (Place::Prose, true);
                    }
                    help.add(place, line, is_new, is_indented);
                }
            }
            is_new = false;
        }
        help
    }

    /// Whether the last example is inside of a string.
    fn is_quoted(&self) -> bool {
        self.examples.concat().matches('\'').count() % 2 == 1
    }

    fn add(&mut self, place: Place, line: &str, is_new: bool, is_indented: bool) {
        let cut = line.strip_prefix("  ").unwrap_or(line);
        match place {
            Place::Examples => self.examples.push(cut.to_string()),
            Place::Codes => match (cut.split_once("  "), self.codes.last_mut()) {
                (Some((code, meaning)), _) if !code.is_empty() => {
                    self.codes.push((code.to_string(), meaning.trim().to_string()));
                }
                (_, Some((_, meaning))) => meaning.push_str(&format!(" {}", cut.trim())),
                (_, None) => {}
            },
            Place::Prose => match self.parts.last_mut() {
                Some(Part::Lines(lines)) if is_indented && !is_new => lines.push(cut.to_string()),
                Some(Part::Text(text)) if !is_indented && !is_new => {
                    text.push_str(&format!(" {line}"));
                }
                _ if is_indented => self.parts.push(Part::Lines(vec![cut.to_string()])),
                _ => self.parts.push(Part::Text(line.to_string())),
            },
        }
    }

    /// Writes the prose.
    pub(super) fn describe(&self, roff: &mut Roff) {
        for part in &self.parts {
            match part {
                Part::Text(text) => roff.paragraph(text),
                Part::Lines(lines) => {
                    roff.line(".PP");
                    roff.example(lines);
                }
            }
        }
    }

    pub(super) fn examples(&self) -> &[String] {
        &self.examples
    }

    /// Exit codes with their meanings.
    pub(super) fn codes(&self) -> &[(String, String)] {
        &self.codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_divided_at_its_headings() {
        let text = "One\nline.\n\nExit codes:\n  0  good\n  1  bad, and\n     more\n`x` too.\n\n\
                    Examples:\n  a 'b\nc'\n  d\n\nLast:\n  1 2\n  3 4\n";
        let help = Help::read(text);
        assert_eq!(help.examples(), ["a 'b", "c'", "d"]);
        let code = |code: &str, meaning: &str| (code.to_string(), meaning.to_string());
        assert_eq!(help.codes(), [code("0", "good"), code("1", "bad, and more")]);
        let shown: Vec<String> = help
            .parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Lines(lines) => lines.join("|"),
            })
            .collect();
        assert_eq!(shown, ["One line.", "`x` too.", "Last:", "1 2|3 4"]);
    }
}
