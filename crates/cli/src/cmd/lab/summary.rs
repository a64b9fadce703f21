//! Summary of an experiment: a few sentences, and a table by phase.

use super::show::{in_words, order_in_words};
use seekless_lab::cells::{Cell, agreement};
use seekless_lab::experiment::Experiment;
use seekless_lab::ranking::orders;
use seekless_report::table::{Figure, Table, escape};

/// The summary as HTML.
pub(super) fn html(experiment: &Experiment, cells: &[Cell]) -> String {
    let agreement = agreement(cells).map(|found| in_words(&found));
    let orders = orders(experiment, cells);
    let sentences = agreement.into_iter().chain(orders.iter().map(order_in_words));
    let items: String = sentences.map(|said| format!("<li>{}.</li>\n", escape(&said))).collect();
    let list = if items.is_empty() { String::new() } else { format!("<ul>\n{items}</ul>\n") };
    list + &table(cells).html()
}

/// A row for each phase under each discipline: speed-ups, or times if there is only one policy.
fn table(cells: &[Cell]) -> Table {
    let is_compared = cells.iter().any(|cell| cell.speedup().is_some());
    let columns: &[&str] = if is_compared {
        &["cells", "faster", "least speed-up", "median", "greatest", "published median"]
    } else {
        &["cells", "shortest", "median", "longest", "published median"]
    };
    let mut table = Table::new(columns.iter().map(|name| (*name).into()).collect(), false);
    let mut done: Vec<(&str, &str)> = Vec::new();
    for cell in cells {
        let key = (&*cell.phase, &*cell.discipline);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let like = || cells.iter().filter(|other| (&*other.phase, &*other.discipline) == key);
        let figures = if is_compared { speedups(like()) } else { times(like()) };
        if let Some(figures) = figures {
            table.push(format!("{}, {}", cell.phase, cell.discipline), figures);
        }
    }
    table
}

fn speedups<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Option<Vec<Figure>> {
    let measured = sorted(cells.clone().filter_map(Cell::speedup));
    let published = sorted(cells.filter_map(Cell::published_speedup));
    Some(vec![
        Figure::Count(measured.len() as u64),
        Figure::Count(measured.iter().filter(|times| **times > 1.0).count() as u64),
        Figure::Share(*measured.first()?),
        Figure::Share(median(&measured)?),
        Figure::Share(*measured.last()?),
        median(&published).map_or(Figure::Missing, Figure::Share),
    ])
}

fn times<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Option<Vec<Figure>> {
    let last = |cell: &Cell| cell.sides.last().map(|side| side.seconds);
    let measured = sorted(cells.clone().filter_map(last));
    let published = cells.filter_map(|cell| cell.published.as_ref());
    let published = sorted(published.filter_map(|published| published.new_s));
    Some(vec![
        Figure::Count(measured.len() as u64),
        Figure::Seconds(*measured.first()?),
        Figure::Seconds(median(&measured)?),
        Figure::Seconds(*measured.last()?),
        median(&published).map_or(Figure::Missing, Figure::Seconds),
    ])
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + upper) / 2.0 } else { upper })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_lab::cells::Side;
    use seekless_lab::run::Counts;

    fn cell(system: &str, phase: &str, seconds: &[f64]) -> Cell {
        let side = |&seconds: &f64| Side {
            policy: "p".into(),
            seconds,
            range_s: (seconds, seconds),
            seeds: 1,
            runs: 1,
            counts: Counts::default(),
        };
        Cell {
            workload: "w".into(),
            system: system.into(),
            discipline: "async".into(),
            phase: phase.into(),
            sides: seconds.iter().map(side).collect(),
            published: None,
        }
    }

    #[test]
    fn phases_are_summed_up() {
        let cells = [
            cell("a", "remove", &[4.0, 1.0]),
            cell("b", "remove", &[6.0, 3.0]),
            cell("a", "unpack", &[2.0, 4.0]),
        ];
        let text = table(&cells).text();
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines,
            [
                vec!["remove,", "async", "2", "2", "2.000", "3.000", "4.000", "-"],
                vec!["unpack,", "async", "1", "0", "0.500", "0.500", "0.500", "-"],
            ]
        );
        let alone = [cell("a", "unpack", &[2.0]), cell("b", "unpack", &[4.0])];
        let text = table(&alone).text();
        let figures: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().skip(2).collect();
        assert_eq!(figures, ["2", "2.000", "s", "3.000", "s", "4.000", "s", "-"]);
    }
}
