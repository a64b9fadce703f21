//! Manual pages, from the definitions that parse the command line: one for each command, and
//! `seekless-formats(5)`.
//!
//! - `roff`: texts in the language of man(7)
//! - `help`: the text at the end of a command's help, divided into sections
//! - `related`: files, variables and pages that belong to commands

mod help;
mod related;
mod roff;

use clap::{Arg, ArgAction, Command};
use help::Help;
use related::Related;
use roff::Roff;

/// A page and the name of its file.
pub(super) struct ManPage {
    pub(super) name: String,
    pub(super) text: String,
}

/// The page about the formats of files, with a date to be filled in.
const FORMATS: &str = include_str!("seekless-formats.5");

/// All pages. `date` is that of their last change, such as 2026-11-29.
pub(super) fn pages(command: &mut Command, date: &str) -> Vec<ManPage> {
    // Fills in the names of subcommands, and the options that all of them have.
    command.build();
    let codes = Help::of(command).codes().to_vec();
    let mut pages = Vec::new();
    add_pages(command, &[], date, &codes, &mut pages);
    let version = format!("seekless {}", env!("CARGO_PKG_VERSION"));
    let text = FORMATS.replace("@DATE@", date).replace("@VERSION@", &version);
    pages.push(ManPage { name: "seekless-formats.5".into(), text });
    pages
}

fn add_pages(
    command: &Command,
    above: &[&str],
    date: &str,
    codes: &[(String, String)],
    pages: &mut Vec<ManPage>,
) {
    let path = [above, &[command.get_name()]].concat();
    let name = path.join("-");
    let text = page(command, &path, date, codes);
    pages.push(ManPage { name: format!("{name}.1"), text });
    for below in visible(command) {
        add_pages(below, &path, date, codes, pages);
    }
}

/// The subcommands that help shows.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn page(command: &Command, path: &[&str], date: &str, codes: &[(String, String)]) -> String {
    let (name, help, related) = (path.join("-"), Help::of(command), Related::to(path));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::page(&name, date);
    roff.section("NAME");
    roff.line(&format!(
        "{} \\- {}",
        roff::escaped(&name),
        roff::escaped(about.trim_end_matches('.'))
    ));
    roff.section("SYNOPSIS");
    synopsis(&mut roff, command, path);
    roff.section("DESCRIPTION");
    roff.paragraph(&sentence(&about));
    help.describe(&mut roff);
    options(&mut roff, command);
    commands(&mut roff, command, &name);
    roff.section("EXIT STATUS");
    match related.codes() {
        Some(codes) => {
            codes.iter().for_each(|(code, meaning)| roff.item(&roff::bold(code), meaning));
        }
        None => codes.iter().for_each(|(code, meaning)| roff.item(&roff::bold(code), meaning)),
    }
    for (title, items) in [("ENVIRONMENT", related.variables()), ("FILES", related.files())] {
        if !items.is_empty() {
            roff.section(title);
        }
        for (name, text) in items {
            roff.item(&roff::italic(name), text);
        }
    }
    if !help.examples().is_empty() {
        roff.section("EXAMPLES");
        roff.example(help.examples());
    }
    roff.section("SEE ALSO");
    let below = visible(command).map(|below| format!("{name}-{}(1)", below.get_name()));
    let pages: Vec<String> = related.pages().into_iter().chain(below).collect();
    roff.pages(&pages);
    roff.finish()
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

fn synopsis(roff: &mut Roff, command: &Command, path: &[&str]) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let name = path.join(" ");
    for (at, line) in usage.lines().enumerate() {
        let line = line.trim();
        let rest = line.strip_prefix(&name).unwrap_or(line);
        if at > 0 {
            roff.line(".br");
        }
        roff.words(&format!("{}{}", roff::bold(&name), roff::usage(rest)));
    }
}

/// Arguments and options, under their headings.
fn options(roff: &mut Roff, command: &Command) {
    let shown: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for arg in shown.iter().filter(|arg| !arg.is_positional()) {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    // Options without a heading come first, wherever they stand.
    headings.sort_by_key(Option::is_some);
    if shown.iter().any(|arg| arg.is_positional()) {
        roff.section("ARGUMENTS");
        shown.iter().filter(|arg| arg.is_positional()).for_each(|arg| option(roff, arg));
    }
    for heading in headings {
        match heading {
            None => roff.section("OPTIONS"),
            Some(heading) => roff.subsection(heading),
        }
        for arg in &shown {
            if !arg.is_positional() && arg.get_help_heading() == heading {
                option(roff, arg);
            }
        }
    }
}

fn option(roff: &mut Roff, arg: &Arg) {
    let short = arg.get_short().map(|short| roff::bold(&format!("-{short}")));
    let long = arg.get_long().map(|long| roff::bold(&format!("--{long}")));
    let mut names: Vec<String> = short.into_iter().chain(long).collect();
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<String> = values.iter().map(|value| roff::italic(value)).collect();
    if names.is_empty() {
        let id = roff::italic(arg.get_id().as_str());
        names.push(if values.is_empty() { id } else { values.join(" ") });
    } else if takes_value && !values.is_empty() {
        names = vec![format!("{} {}", names.join(", "), values.join(" "))];
    }
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    if takes_value && !arg.is_hide_default_value_set() && defaults.iter().any(|it| !it.is_empty()) {
        text.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    roff.item(&names.join(", "), &text);
    let possible = arg.get_possible_values();
    if !takes_value || arg.is_hide_possible_values_set() || possible.is_empty() {
        return;
    }
    let possible: Vec<_> = possible.iter().filter(|value| !value.is_hide_set()).collect();
    if possible.iter().all(|value| value.get_help().is_none()) {
        let names: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
        roff.words(&roff::escaped(&format!("[possible values: {}]", names.join(", "))));
        return;
    }
    roff.line(".RS");
    for value in possible {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        roff.item(&roff::bold(value.get_name()), &help);
    }
    roff.line(".RE");
}

fn commands(roff: &mut Roff, command: &Command, name: &str) {
    let mut below = visible(command).peekable();
    if below.peek().is_none() {
        return;
    }
    roff.section("COMMANDS");
    for command in below {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let page = roff::bold(&format!("{name}-{}", command.get_name()));
        roff.item(&format!("{page}(1)"), &sentence(&about));
    }
}
