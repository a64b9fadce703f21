//! Compares names without regard to case, as directories with the casefold flag do: Unicode case
//! folding over canonical decomposition.

use unicode_normalization::UnicodeNormalization;

/// The name of a directory lookup, and its folded form (`struct ext4_filename`).
pub(crate) struct LookupName<'a> {
    exact: &'a [u8],
    folded: Option<String>,
}

impl<'a> LookupName<'a> {
    /// Looks for `name`; regardless of case if `folds`.
    pub(crate) fn new(name: &'a [u8], folds: bool) -> Self {
        Self { exact: name, folded: if folds { fold(name) } else { None } }
    }

    /// Whether an entry's name matches.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        if name == self.exact {
            return true;
        }
        self.folded.is_some() && fold(name) == self.folded
    }
}

/// A name's folded form; `None` when it is not UTF-8, which then compares byte
/// by byte.
pub(crate) fn fold(name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name).ok()?;
    if text.is_ascii() {
        return Some(text.to_ascii_lowercase());
    }
    let visible = text.nfd().filter(|c| !is_ignorable(*c));
    let folded: String = caseless::Caseless::default_case_fold(visible).collect();
    Some(folded.nfd().filter(|c| !is_ignorable(*c)).collect())
}

/// Unicode's Default_Ignorable_Code_Point, which the folded form leaves out.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}' | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_composition_do_not_matter() {
        for (a, b) in
            [("Straße", "STRASSE"), ("\u{E9}t\u{E9}", "E\u{301}TE\u{301}"), ("Σίσυφος", "ΣΊΣΥΦΟΣ")]
        {
            assert!(LookupName::new(a.as_bytes(), true).is(b.as_bytes()), "{a} {b}");
            assert!(!LookupName::new(a.as_bytes(), false).is(b.as_bytes()), "{a} {b}");
        }
        assert!(!LookupName::new(b"\xFFa", true).is(b"\xFFA"));
        assert!(LookupName::new(b"\xFFa", true).is(b"\xFFa"));
    }
}
