//! The tables of problems of the checks: `docs/check.md` has all their rows and no others.

use seekless_fs::check::{Preen, Problem};
use std::collections::BTreeSet;
use std::path::Path;

/// The tables, by the headings of `docs/check.md` under which they stand.
const TABLES: [(&str, &[&Problem]); 3] = [
    ("## Findings in UFS images", seekless_ffs::PROBLEMS),
    ("## Ext images", seekless_ext::PROBLEMS),
    ("## FAT images", seekless_fat::PROBLEMS),
];

const HEAD: [&str; 2] = [
    "| code | phase | class | what is wrong | question | what `-y` does, and `-p` for class *e* |",
    "|---|---|---|---|---|---|",
];

/// A problem as a row of the documentation.
fn row(problem: &Problem) -> String {
    let class = match problem.preen {
        Preen::Repairs => "e".to_string(),
        Preen::Stops => "u".to_string(),
        Preen::Depends(condition) => format!("e {condition}, else u"),
    };
    let Problem { code, phase, text, question, repair, .. } = problem;
    let question = question.unwrap_or("(none)");
    format!("| `{code}` | {phase} | {class} | {text} | {question} | {repair} |")
}

/// The first table of codes under a heading.
fn documented<'a>(docs: &'a str, heading: &str) -> Vec<&'a str> {
    let section = docs.lines().skip_while(|line| *line != heading);
    let table = section.skip_while(|line| !line.starts_with("| code |"));
    table.take_while(|line| line.starts_with('|')).collect()
}

#[test]
fn the_documentation_has_the_rows_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check.md");
    let docs = std::fs::read_to_string(path).unwrap();
    let mut stale = String::new();
    for (heading, problems) in TABLES {
        let head = HEAD.map(str::to_string);
        let rows: Vec<String> = head.into_iter().chain(problems.iter().map(|it| row(it))).collect();
        if documented(&docs, heading) != rows {
            stale += &format!("{heading}\n\n{}\n\n", rows.join("\n"));
        }
    }
    assert!(stale.is_empty(), "docs/check.md should have these tables:\n\n{stale}");
}

#[test]
fn the_rows_are_sound() {
    for (heading, problems) in TABLES {
        assert!(problems.is_sorted_by_key(|problem| problem.phase), "{heading}");
        let codes: BTreeSet<&str> = problems.iter().map(|problem| problem.code).collect();
        assert_eq!(codes.len(), problems.len(), "{heading}: a code has two rows");
        for problem in problems {
            let is_in_code = |byte: u8| byte.is_ascii_lowercase() || b".-".contains(&byte);
            assert!(problem.code.bytes().all(is_in_code), "{problem:?}");
            assert!(problem.phase <= 5, "{problem:?}");
            assert!(problem.question.is_none_or(|question| question.ends_with('?')), "{problem:?}");
            let condition = match problem.preen {
                Preen::Depends(condition) => condition,
                Preen::Repairs | Preen::Stops => "-",
            };
            for text in [problem.text, problem.repair, condition] {
                let is_one_line = !text.contains(['|', '\n']) && text.trim() == text;
                assert!(is_one_line && !text.is_empty() && !text.ends_with('.'), "{problem:?}");
            }
            // Nothing is repaired without a question.
            assert!(problem.question.is_some() || problem.preen == Preen::Stops, "{problem:?}");
        }
    }
}
