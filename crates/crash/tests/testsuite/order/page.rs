//! The tables of `docs/order-of-writes.md`, made from the rows.

use crate::order::case::{Case, Order, Rule};
use crate::order::{ext, fat};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/order-of-writes.md");

/// Compares the page's tables with the rows, or writes them if asked to.
pub(crate) fn compare() {
    let ext: Vec<_> = ext::operations().map(|operation| &operation.case).collect();
    let fat: Vec<_> = fat::operations().map(|operation| &operation.case).collect();
    let page = std::fs::read_to_string(PAGE).expect(PAGE);
    let mut fresh = page.clone();
    for (name, cases) in [("ext", &ext), ("FAT", &fat)] {
        replace(&mut fresh, &format!("rules of {name}"), &rules(cases));
        replace(&mut fresh, &format!("operations on {name} without an order"), &impossible(cases));
        replace(&mut fresh, &format!("writes of {name}"), &parts(cases));
        replace(&mut fresh, &format!("rows of {name}"), &rows(cases));
    }
    if std::env::var_os("SEEKLESS_ORDER_PAGE").is_some() {
        std::fs::write(PAGE, &fresh).expect(PAGE);
        return;
    }
    let differs = page.lines().zip(fresh.lines()).find(|(one, other)| one != other);
    assert!(page == fresh, "{PAGE} is not what the rows say: {differs:?}");
}

/// Puts a table between the comments that have its name.
fn replace(page: &mut String, name: &str, table: &str) {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let start = page.find(&open).unwrap_or_else(|| panic!("no {open}")) + open.len();
    let end = page.find(&close).unwrap_or_else(|| panic!("no {close}"));
    page.replace_range(start..end, table);
}

/// Names of writes as code.
fn writes(names: &str) -> String {
    let names: Vec<_> = names.split_whitespace().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "nothing".into() } else { names.join(" ") }
}

fn rules(cases: &[&Case]) -> String {
    let mut table = String::from("| operation | first | then | row that needs it | which is |\n");
    table.push_str("|---|---|---|---|---|\n");
    for case in cases {
        let claims = case.claims();
        for rule in case.rules() {
            let Rule { first, then } = rule;
            let bits = case.proof(*rule, &claims).expect("a row that needs the rule");
            let (row, verdict) = (writes(&case.names(bits)), claims[&bits]);
            let operation = case.operation;
            let _ = writeln!(table, "| {operation} | `{first}` | `{then}` | {row} | {verdict} |");
        }
    }
    table
}

fn impossible(cases: &[&Case]) -> String {
    let none = cases.iter().filter(|case| matches!(case.order, Order::Impossible));
    none.fold(String::new(), |list, case| list + "- " + case.operation + "\n")
}

fn parts(cases: &[&Case]) -> String {
    let mut table = String::from("| operation | writes |\n|---|---|\n");
    for case in cases {
        let writes = case.writes.iter().map(|(name, what)| format!("`{name}`: {what}"));
        let writes = writes.collect::<Vec<_>>().join("; ").replace('&', "and");
        let _ = writeln!(table, "| {} | {writes} |", case.operation);
    }
    table
}

fn rows(cases: &[&Case]) -> String {
    let mut table = String::from("| operation | on the disk | becomes |\n|---|---|---|\n");
    for case in cases {
        for (n, (row, verdict)) in case.rows.iter().enumerate() {
            let operation = if n == 0 { case.operation } else { "" };
            let _ = writeln!(table, "| {operation} | {} | {verdict} |", writes(row));
        }
    }
    table
}
