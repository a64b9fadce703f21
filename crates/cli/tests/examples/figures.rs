//! Compares tables and pictures of docs/ with the output of this version, and requires that each
//! is made by bench/figures.py or names the command or the publication that its figures are from.
//! `make figures` updates them.

use crate::judges::{ready, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages of numbers that nobody measures: offsets of the formats.
const OFFSETS: &str = "on-disk";

/// In place of one command: each row of the table names its own.
const EACH_ROW: &str = "the command of each row";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn script(args: &[&str]) -> String {
    let output = Command::new("python3")
        .arg(root().join("bench/figures.py"))
        .args(args)
        .env("SEEKLESS", env!("CARGO_BIN_EXE_seekless"))
        .env("TMPDIR", scratch())
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    said.into_owned()
}

#[test]
fn some_rows_of_each_table_are_what_their_pages_have() {
    if ready("mke2fs") && ready("python3") {
        script(&["--check", "--quick"]);
    }
}

/// A table or a picture.
struct Place {
    /// The page and the line, or the path of the picture.
    name: String,
    rows: Vec<String>,
    /// The comment in the line above it.
    comment: Option<String>,
}

struct Page {
    /// All text but comments, in one line.
    text: String,
    places: Vec<Place>,
}

impl Page {
    fn read(path: &Path) -> Page {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let whole = fs::read_to_string(path).unwrap();
        let mut page = Page { text: String::new(), places: Vec::new() };
        let (mut above, mut is_code, mut is_table) = ("", false, false);
        for (at, line) in whole.lines().enumerate() {
            is_code ^= line.starts_with("```");
            let row = !is_code && line.starts_with('|');
            if row && !is_table {
                page.add(format!("{name}:{}", at + 1), above);
            }
            if row {
                page.places.last_mut().unwrap().rows.push(line.into());
            } else if let Some((_, target)) =
                line.split_once("![").and_then(|(_, l)| l.split_once("]("))
            {
                let picture = target.split(')').next().unwrap();
                let folder = Path::new(&name).parent().unwrap();
                page.add(folder.join(picture).display().to_string(), above);
            }
            if !line.starts_with("<!--") {
                page.text.push_str(line);
                page.text.push('\n');
            }
            (above, is_table) = (line, row);
        }
        // Commands may be wrapped.
        page.text = page.text.split_whitespace().collect::<Vec<_>>().join(" ");
        page
    }

    fn add(&mut self, name: String, above: &str) {
        let inside = above.strip_prefix("<!--").and_then(|text| text.strip_suffix("-->"));
        let comment = inside.map(|text| text.trim().into());
        self.places.push(Place { name, rows: Vec::new(), comment });
    }
}

/// Whether a cell has a figure: it begins with a number, or has a fraction, a share, or a number
/// of thousands. Code and targets of links do not count.
fn is_figure(cell: &str) -> bool {
    let plain: String = cell.split('`').step_by(2).collect();
    let words = plain.split_whitespace().filter(|word| !word.contains("]("));
    let is_number = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
        let digits = &word[..word.len() - unit.len()];
        let has_unit = ["", "%", "x", "K", "M", "G", "MB", "GB", "s", "ms"].contains(&unit);
        (!digits.is_empty() && has_unit).then(|| unit == "%" || digits.contains(['.', ',']))
    };
    words.map(is_number).enumerate().any(|(at, it)| it.is_some_and(|exact| exact || at == 0))
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim_matches('|').split('|').skip(1).map(str::trim).filter(|cell| !cell.is_empty())
}

impl Place {
    /// Pictures have figures, and so have tables of which more than a third of the cells are some,
    /// not counting the first column.
    fn has_figures(&self) -> bool {
        let all: Vec<&str> = self.rows.iter().skip(2).flat_map(|row| cells(row)).collect();
        let figures = all.iter().filter(|cell| is_figure(cell)).count();
        self.rows.is_empty() || figures * 3 > all.len()
    }

    /// Why it is not clear where its figures are from.
    fn unclear(&self, page: &Page) -> Option<String> {
        let comment = self.comment.as_deref().unwrap_or_default();
        match comment.split_once(": ") {
            Some(("published", source)) if !source.is_empty() => None,
            Some(("measured", EACH_ROW)) => self.row_without_command(),
            Some(("measured", command)) if !page.text.contains(command) => {
                Some(format!("the page does not show the command: {command}"))
            }
            Some(("measured", command)) => unknown(command),
            _ => Some("neither made by bench/figures.py, nor measured, nor published".into()),
        }
    }

    fn row_without_command(&self) -> Option<String> {
        let is_command = |code: &str| {
            let program = code.split(' ').find(|word| !word.contains('='));
            program.is_some_and(|it| match it.starts_with("bench/") {
                true => unknown(code).is_none(),
                false => ["seekless", "crash", "cargo"].contains(&it),
            })
        };
        let lacks = |row: &&String| {
            cells(row).any(is_figure) && !row.split('`').skip(1).step_by(2).any(is_command)
        };
        let row = self.rows.iter().skip(2).find(lacks)?;
        Some(format!("a row without a command: {row}"))
    }
}

/// The error of a command in docs that a fresh clone cannot run, because the program, test or
/// option does not exist.
fn unknown(command: &str) -> Option<String> {
    let (variables, words): (Vec<&str>, Vec<&str>) =
        command.split(' ').partition(|word| word.contains('='));
    let words = words.strip_prefix(&["taskset", "-c", "1"]).unwrap_or(&words);
    let is_right = match words {
        [file, args @ ..]
            if ["bench/", "demo/", ".ci/"].iter().any(|folder| file.starts_with(folder)) =>
        {
            let path = root().join(file);
            let text = fs::read_to_string(&path).unwrap_or_default();
            let runs = fs::metadata(&path).is_ok_and(|it| it.permissions().mode() & 0o111 != 0);
            let names =
                variables.iter().filter_map(|one| one.split_once('=')).map(|(name, _)| name);
            runs && names.chain(args.iter().copied()).all(|word| text.contains(word))
        }
        ["make", target] => {
            let rule = format!("\n{target}:");
            fs::read_to_string(root().join("Makefile")).unwrap().contains(&rule)
        }
        ["cargo", "test" | "bench", "-p", package, kind @ ("--test" | "--bench"), name, ..] => {
            let krate =
                root().join("crates").join(package.strip_prefix("seekless-").unwrap_or(package));
            let kind = if *kind == "--test" { "tests" } else { "benches" };
            let file = krate.join(kind).join(name);
            file.join("main.rs").exists() || file.with_extension("rs").exists()
        }
        ["seekless", args @ ..] => {
            let mut program = Command::new(env!("CARGO_BIN_EXE_seekless"));
            program.args(args).arg("--help").output().unwrap().status.success()
        }
        _ => false,
    };
    (!is_right).then(|| format!("no such command: {command}"))
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with(OFFSETS) {
            pages(&path, found);
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
}

/// A table with figures, or a picture, is made by bench/figures.py; or the line above it is
/// `<!-- measured: COMMAND -->`, with a command that its page shows and that exists, or
/// `<!-- published: SOURCE -->`.
#[test]
fn figures_are_made_measured_or_published() {
    if !ready("python3") {
        return;
    }
    let made = script(&["--list"]);
    let made: BTreeSet<&str> = made.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let mut found = vec![root().join("README.md")];
    pages(&root().join("docs"), &mut found);
    let found: Vec<Page> = found.iter().map(|path| Page::read(path)).collect();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for page in &found {
        for place in page.places.iter().filter(|place| place.has_figures()) {
            seen.insert(&*place.name);
            if !made.contains(&*place.name) || place.comment.is_some() {
                let why = place.unclear(page);
                wrong.extend(why.map(|why| format!("{}: {why}", place.name)));
            }
        }
    }
    wrong.extend(made.difference(&seen).map(|name| format!("{name}: has no figures")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
