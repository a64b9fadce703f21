//! A standalone page of foldable sections, with a list of their names at the top.

use crate::table::escape;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SECTIONS: &str = include_str!("sections.css");

/// A part of a page.
#[derive(Clone, PartialEq, Debug)]
pub struct Section {
    /// The heading, to which the list at the top links.
    pub title: String,
    /// A description of the body.
    pub note: String,
    /// HTML.
    pub body: String,
}

/// The page; sections without a body are omitted.
#[must_use]
pub fn html(title: &str, subtitle: &str, facts: &[String], sections: &[Section]) -> String {
    let sections: Vec<&Section> = sections.iter().filter(|one| !one.body.is_empty()).collect();
    let title = escape(title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{SECTIONS}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n<p>{}</p>\n",
        escape(subtitle)
    );
    for fact in facts {
        let _ = writeln!(html, "<p class=\"fact\">{}</p>", escape(fact));
    }
    html.push_str("</header>\n<nav aria-label=\"Sections\">");
    for (at, section) in sections.iter().enumerate() {
        let _ = write!(html, "<a href=\"#s{at}\">{}</a>", escape(&section.title));
    }
    html.push_str("</nav>\n<main>\n");
    for (at, section) in sections.iter().enumerate() {
        let (title, note) = (escape(&section.title), escape(&section.note));
        let _ = write!(
            html,
            "<section id=\"s{at}\"><h2>{title}</h2>\n<p class=\"note\">{note}</p>\n{}</section>\n",
            section.body
        );
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_left_out() {
        let section = |title: &str, body: &str| Section {
            title: title.into(),
            note: "a < b".into(),
            body: body.into(),
        };
        let sections = [section("one", ""), section("t&wo", "<p>x</p>")];
        let html = html("<x>", "s", &["f>".into()], &sections);
        assert!(html.contains("<title>&lt;x&gt;</title>") && html.contains("f&gt;"));
        assert_eq!(html.matches("<section").count(), 1);
        assert!(html.contains("<a href=\"#s0\">t&amp;wo</a></nav>"), "{html}");
        assert!(html.contains("<p class=\"note\">a &lt; b</p>\n<p>x</p></section>"));
    }
}
