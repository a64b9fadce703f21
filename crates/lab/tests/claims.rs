//! What docs/experiments.md says was measured, measured again. Where a change
//! of the engine or of a drive's model moves the figures, that page is brought
//! up to date with the commands that it names.

use seekless_lab::builtin;
use seekless_lab::cells::{Cell, agreement, cells};
use seekless_lab::experiment::Experiment;
use seekless_lab::plan::{Wanted, runs};
use seekless_lab::pool::perform_all;
use seekless_lab::run::{Run, digest};
use std::collections::BTreeMap;

/// How far a figure may be from what the page says: what is rounded there.
const SHARE: f64 = 0.01;

fn page(name: &str) -> String {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    std::fs::read_to_string(format!("{docs}/{name}")).unwrap()
}

/// The rows of the first table of docs/experiments.md whose head begins so: the first column, and
/// the others.
fn table(head: &str) -> BTreeMap<String, Vec<String>> {
    table_of("experiments.md", head)
}

fn table_of(name: &str, head: &str) -> BTreeMap<String, Vec<String>> {
    let page = page(name);
    let lines = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let mut columns = line.trim_matches('|').split('|').map(|one| one.trim().to_string());
        (columns.next().unwrap(), columns.collect())
    });
    let rows: BTreeMap<String, Vec<String>> = rows.collect();
    assert!(!rows.is_empty(), "no table of {head}");
    rows
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

/// Everything of an experiment that is asked for, as it is built in.
fn measured(
    name: &str,
    only: &[&str],
    change: impl Fn(String) -> String,
) -> (Experiment, Vec<Run>) {
    let text = change(builtin::text(name).unwrap().to_string());
    let experiment = Experiment::parse(&text, name).unwrap();
    let only = only.iter().map(ToString::to_string).collect();
    let ids = runs(&experiment, &Wanted { only, ..Wanted::default() }).unwrap();
    let mut found = Vec::new();
    perform_all(&experiment, &digest(&text, &experiment), &ids, 2, |run| found.push(run)).unwrap();
    (experiment, found)
}

fn near(found: f64, said: f64) -> bool {
    (found - said).abs() <= SHARE * said.abs() + 0.005
}

#[test]
fn directories_go_as_the_page_has_it() {
    let (experiment, found) = measured("dirpref", &[], |text| text);
    let cells = cells(&experiment, &found);
    let said = table("| system, discipline, phase | old s");
    assert_eq!((cells.len(), said.len()), (16, 16));
    let mut wrong = Vec::new();
    let mut ratios = Vec::new();
    for cell in &cells {
        let name = format!("{}/{}/{}", cell.system, cell.discipline, cell.phase);
        let row: Vec<f64> = said[&name].iter().map(|column| number(column)).collect();
        let json = cell.json();
        let is = |key: &str| json[key].as_f64().unwrap();
        let keys = ["old_s", "new_s", "speedup"].into_iter();
        let keys = keys.chain(["published_speedup", "published_old_s", "published_new_s"]);
        for (key, said) in keys.zip(&row) {
            if !near(is(key), *said) {
                wrong.push(format!("{name} {key}: {} measured, {said} on the page", is(key)));
            }
        }
        ratios.extend([is("old_s") / is("published_old_s"), is("new_s") / is("published_new_s")]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let found = agreement(&cells).unwrap();
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / 32.0).exp();
    let row = &table_of("sensitivity.md", "| changed in the file | claims hold")["as in the file"];
    let first = |column: &String| number(column.split(" of ").next().unwrap());
    let row: Vec<f64> = row.iter().map(first).collect();
    let is = [found.new_is_faster as f64, found.within_factor_2 as f64];
    assert_eq!(is, row[..2], "cells faster, and within 2x");
    assert!((found.spearman.unwrap() - row[2]).abs() < 0.005, "{:?}", found.spearman);
    assert!((mean - row[3]).abs() < 0.01, "{mean}");
}

/// Writes that are waited for, others, requests and seconds of a phase.
fn counts(cells: &[Cell], workload: &str, discipline: &str, phase: &str) -> [f64; 4] {
    let is = |cell: &&Cell| {
        (&*cell.workload, &*cell.discipline, &*cell.phase) == (workload, discipline, phase)
    };
    let [side] = cells.iter().find(is).unwrap().sides.as_slice() else { panic!("one policy") };
    let disk = side.counts.disk;
    let all = disk.reads + disk.sync_writes + disk.async_writes;
    [disk.sync_writes as f64, disk.async_writes as f64, all as f64, side.seconds]
}

#[test]
fn soft_updates_spare_what_the_page_has() {
    let only = ["small-tree", "makedev", "andrew", "mh-100", "mh-20", "mh-2", "mh-none"];
    let (experiment, found) = measured("softdep", &only, |text| text);
    let cells = cells(&experiment, &found);
    for (row, columns) in table("| synchronous, asynchronous writes") {
        let (phase, discipline) = row.split_once(", ").unwrap();
        let [sync, delayed, ..] = counts(&cells, "small-tree", discipline, phase);
        assert_eq!(format!("{sync}, {delayed}"), columns[0], "{row}");
    }
    for (row, columns) in table("| requests; seconds | measured") {
        let (workload, rest) = match row.split_once(", ").unwrap() {
            ("MAKEDEV", rest) => (("makedev", "make"), rest),
            ("Andrew benchmark", rest) => (("andrew", "all"), rest),
            _ => continue,
        };
        let [.., requests, seconds] = counts(&cells, workload.0, rest, workload.1);
        let (said, time) = columns[0].split_once("; ").unwrap();
        assert_eq!(requests, number(said), "{row}");
        assert!((seconds - number(time)).abs() < 0.06, "{row}: {seconds}");
    }
    let phases = ["mkdir", "copy", "scan", "read", "compile"];
    for (row, columns) in table("| Andrew benchmark, seconds") {
        let Some(discipline) = row.strip_suffix(", measured") else { continue };
        for (phase, said) in phases.into_iter().zip(&columns) {
            let [.., seconds] = counts(&cells, "andrew", discipline, phase);
            assert!((seconds - number(said)).abs() < 0.06, "{row} {phase}: {seconds}");
        }
    }
    // The large removal: seconds, how often it slept and hurried, and requests.
    let rows = table("| tickdelay | 100");
    for (at, limit) in ["100", "20", "2", "none"].into_iter().enumerate() {
        let name = format!("mh-{limit}");
        let [.., requests, seconds] = counts(&cells, &name, "softdep", "rm");
        assert_eq!(format!("{seconds:.1}"), rows["seconds"][at], "{name}");
        if limit == "none" {
            continue;
        }
        let counts = cells.iter().find(|cell| *cell.workload == *name).unwrap().sides[0].counts;
        let found = [counts.max_limit_hit as f64, counts.rush_requests as f64, requests];
        let said = ["`max_limit_hit`", "`rush_requests`", "requests"];
        let said = said.map(|row| number(&rows[row][at]));
        assert_eq!(found, said, "{name}");
    }
}

/// A hundredth of the torture test has a hundredth of its writes.
#[test]
fn the_torture_test_goes_as_the_page_has_it() {
    let hundredth = |text: String| text.replace("rounds = 1000", "rounds = 10");
    torture(100.0, 0.06, measured("softdep", &["torture"], hundredth));
}

#[test]
#[ignore = "half a minute: cargo test -p seekless-lab --test claims -- --ignored"]
fn all_of_the_torture_test_goes_as_the_page_has_it() {
    torture(1.0, SHARE, measured("softdep", &["torture"], |text| text));
}

fn torture(part: f64, share: f64, (experiment, found): (Experiment, Vec<Run>)) {
    let cells = cells(&experiment, &found);
    let mut rows = 0;
    for (row, columns) in table("| requests; seconds | measured") {
        let Some(rest) = row.strip_prefix("torture test, ") else { continue };
        let discipline = rest.strip_suffix(": writes").unwrap();
        let [sync, delayed, _, seconds] = counts(&cells, "torture", discipline, "all");
        let (writes, time) = columns[0].split_once("; ").unwrap();
        let (waited, others) = writes.split_once(" + ").unwrap();
        let (waited, others) = (number(waited), number(others));
        if discipline == "normal" {
            assert_eq!(sync * part, waited, "{row}");
        }
        // Few are waited for under soft updates: those of a directory that moves.
        assert!((sync * part - waited).abs() < share * others, "{row}: {sync}, not {waited}");
        for (is, said) in [(delayed, others), (seconds, number(time))] {
            let is = is * part;
            assert!((is - said).abs() < share * said, "{row}: {is}, not {said}");
        }
        rows += 1;
    }
    assert_eq!(rows, 2);
}

/// Two of the systems: the published one, and the smallest.
#[test]
fn snapshots_cost_what_the_page_has() {
    let (experiment, found) = measured("snapshots", &["ide-ufs2", "disk-1G"], |text| text);
    let cells = cells(&experiment, &found);
    assert_eq!(cells.len(), 30, "two systems, three numbers of snapshots, five phases");
    let (times, writes) =
        (table("| seconds: volume, snapshots before"), table("| writes waited for + others"));
    for cell in &cells {
        let row = format!("{}, {}", cell.system, cell.workload);
        let at = ["untar", "rm", "sync", "take", "remove"].iter().position(|it| *it == cell.phase);
        let at = at.unwrap();
        let side = &cell.sides[0];
        let said = number(&times[&row][at]);
        assert!(near(side.seconds, said), "{row} {}: {}, not {said}", cell.phase, side.seconds);
        if at < 2 {
            let (waited, others) = writes[&row][at].split_once(" + ").unwrap();
            let disk = side.counts.disk;
            let found = [disk.sync_writes as f64, disk.async_writes as f64];
            assert_eq!(found, [number(waited), number(others)], "{row} {}", cell.phase);
        }
    }
    let compared = table("| 8 GB | published");
    for (row, phase) in [("taken", "take"), ("removed", "remove")] {
        let row = &compared[&format!("one snapshot is {row}, seconds")];
        let is = |cell: &&Cell| cell.phase == phase && cell.published.is_some();
        let cell = cells.iter().find(is).unwrap();
        let published = cell.published.as_ref().unwrap().new_s.unwrap();
        assert_eq!(number(row[0].trim_start_matches("about ")), published);
        assert!(near(cell.sides[0].seconds, number(&row[1])), "{phase}");
    }
}

/// Three of the rows: one of each kind of file system.
#[test]
fn file_systems_are_copied_to_and_read_as_the_page_has_it() {
    let only = ["ffs1/async", "msdosfs/msdosfs", "ext2-4096/async/linear+old-find-group-other"];
    let (experiment, found) = measured("tarcp", &only, |text| text);
    let cells = cells(&experiment, &found);
    let said = table("| seconds | tarcp, published");
    assert_eq!(said.len(), 15);
    let rows = [
        ("ffs1/async", "ffs1", "async"),
        ("msdosfs/normal, next-fit", "msdosfs", "normal"),
        ("ext2-4096/async, linear", "ext2-4096", "async"),
    ];
    for (row, system, discipline) in rows {
        let columns: Vec<f64> = said[row].iter().map(|column| number(column)).collect();
        for (phase, said) in ["tarcp", "tar"].into_iter().zip(columns.chunks(3)) {
            let is = |cell: &&Cell| {
                (&*cell.system, &*cell.discipline, &*cell.phase) == (system, discipline, phase)
            };
            let cell = cells.iter().find(is).unwrap();
            let published = cell.published.as_ref().unwrap().new_s.unwrap();
            let seconds = cell.sides[0].seconds;
            assert!(near(published, said[0]), "{row} {phase}: {published} published");
            assert!(near(seconds, said[1]), "{row} {phase}: {seconds}, not {}", said[1]);
            assert!((seconds / published - said[2]).abs() < 0.006, "{row} {phase}");
        }
    }
}
