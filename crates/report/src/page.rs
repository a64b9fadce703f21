//! The map of one or several disks as a standalone HTML page.

use crate::disk::{Class, Disk};
use crate::fold::{folds, groups_of};
use crate::grid::{Cell, Shape, cells};
use crate::table::{self, Table, counted, escape, grouped};
use crate::terminal::row_label;
use seekless_units::{ByteLen, format_size};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Cells in a row; a screen shows about two pixels of each.
const COLUMNS: u64 = 512;
/// Range of rows of the largest disk, if its groups allow.
const ROWS: (u64, u64) = (24, 64);
/// Maximum number of a disk's requests that are drawn one by one.
const DRAWN: usize = 20_000;
/// Maximum size of all disks' data on the page, in bytes.
const DATA_BYTES: usize = 4_000_000;
/// Number of files in a table of the worst.
const WORST: usize = 20;
/// Maximum number of characters shown of a path.
const PATH_CHARS: usize = 200;

/// The contents of a page besides the maps.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// A line below it.
    pub subtitle: String,
    /// Named tables of figures, each with a note below (may be empty).
    pub tables: Vec<(String, Table, String)>,
    /// Events in the trace.
    pub events: u64,
}

/// The page: disks below each other, with the same division.
#[must_use]
pub fn html(page: &Page, disks: &[Disk]) -> String {
    let shape = Shape::fit(disks, COLUMNS, ROWS.0, ROWS.1);
    let most = disks.iter().map(|disk| disk.reads.list.len()).max().unwrap_or(0);
    let mut every = most.div_ceil(DRAWN).max(1);
    let data = loop {
        let data = data(page, disks, shape, every);
        if data.len() <= DATA_BYTES || every >= most.max(1) {
            break data;
        }
        every *= 2;
    };
    let mut html = String::with_capacity(data.len() + (64 << 10));
    let title = escape(&page.title);
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n<p>{}</p>\n</header>\n",
        escape(&page.subtitle)
    );
    let read = disks.iter().any(|disk| !disk.reads.list.is_empty());
    if read {
        html.push_str(CONTROLS);
    }
    legend(read, &mut html);
    for (at, disk) in disks.iter().enumerate() {
        section(at, disk, shape, every, &mut html);
    }
    html.push_str("<div class=\"tables\">\n");
    table::sections(&page.tables, &mut html);
    disks.iter().for_each(|disk| worst(disk, &mut html));
    html.push_str("</div>\n");
    let _ = write!(
        html,
        "<div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    );
    html
}

const CONTROLS: &str = "<div class=\"controls\">\n\
    <button id=\"play\" type=\"button\">Play</button>\n\
    <input id=\"time\" type=\"range\" min=\"0\" max=\"1000\" value=\"1000\" \
    aria-label=\"How much of the trace has run\">\n\
    <output id=\"event\"></output>\n\
    <label>Colour by <select id=\"colour\"><option value=\"time\">time</option>\
    <option value=\"purpose\">purpose</option></select></label>\n\
    <label><input id=\"path\" type=\"checkbox\" checked> Read path</label>\n</div>\n";

fn legend(read: bool, html: &mut String) {
    html.push_str("<p class=\"legend\">");
    for class in Class::ALL {
        let (letter, name) = (class.letter(false), escape(class.name()));
        let letter = if letter == '.' { '_' } else { letter };
        let _ = write!(html, "<span><i class=\"class-{letter}\"></i>{name}</span>");
    }
    if read {
        html.push_str(
            "<span><i class=\"hot\"></i>read by the trace</span>\
             <span id=\"colours\" class=\"colours\"></span>",
        );
    }
    html.push_str("</p>\n");
}

fn section(at: usize, disk: &Disk, shape: Shape, every: usize, html: &mut String) {
    let bytes = |blocks: u64| format_size(ByteLen::new(blocks * u64::from(disk.block_size)));
    let _ = write!(
        html,
        "<section class=\"disk\">\n<h2>{} <small>{}; a row is {}, {}</small></h2>\n\
         <p class=\"counts\" id=\"counts-{at}\"></p>\n{}",
        escape(&disk.name),
        bytes(disk.whole.len),
        bytes(shape.row_blocks),
        row_name(disk, shape),
        canvas("map", at, &format!("Map of {}. {}", disk.name, in_words(disk))),
    );
    if !disk.reads.list.is_empty() {
        let _ = write!(
            html,
            "<h3>Place on the disk, request by request <small>(the part that is read, \
             on a scale of its own)</small></h3>\n{}",
            canvas("plot", at, &format!("Requests of {} in order. {}", disk.name, in_words(disk)))
        );
    }
    if every > 1 && !disk.reads.list.is_empty() {
        let _ = writeln!(
            html,
            "<p class=\"note\">Of {} requests one in {every} is drawn; all are counted.</p>",
            grouped(disk.reads.list.len() as u64)
        );
    }
    html.push_str("</section>\n");
}

/// A picture drawn by the script. Readers who cannot see it get its text; with the focus on it,
/// arrow keys move through its contents.
fn canvas(kind: &str, at: usize, text: &str) -> String {
    let text = escape(text);
    format!(
        "<canvas id=\"{kind}-{at}\" tabindex=\"0\" role=\"img\" aria-label=\"{text} \
         Arrow keys go through it.\" aria-describedby=\"tip\">{text}</canvas>\n"
    )
}

/// A disk's size and its reads, as a sentence.
fn in_words(disk: &Disk) -> String {
    let size = |blocks: u64| format_size(ByteLen::new(blocks * u64::from(disk.block_size)));
    let reads = &disk.reads;
    if reads.list.is_empty() {
        return format!("{} in {}.", size(disk.whole.len), counted(disk.whole.len, "block"));
    }
    let is_seek = |distance: Option<u64>| distance.is_some_and(|distance| distance > 0);
    let seeks = reads.with_distance().filter(|&(_, distance)| is_seek(distance)).count() as u64;
    let read = reads.list.iter().map(|read| read.extent.len).sum();
    let requests = counted(reads.list.len() as u64, "request");
    let seeks = counted(seeks, "seek");
    format!("{requests}, {seeks}, {} of {} read.", size(read), size(disk.whole.len))
}

/// The meaning of a row, in words.
fn row_name(disk: &Disk, shape: Shape) -> String {
    let group = disk.group_blocks.max(1);
    match (shape.row_blocks / group, group.div_ceil(shape.row_blocks)) {
        (0, parts) => format!("1/{parts} of a block group"),
        (1, _) => "a block group".into(),
        (groups, _) => format!("{groups} block groups"),
    }
}

fn worst(disk: &Disk, html: &mut String) {
    let files = disk.reads.worst_files(WORST, u64::from(disk.block_size));
    if files.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<section class=\"worst\"><h2>Files that cost the most seeks: {}</h2>\n<table>\n\
         <tr><th>path</th><th>requests</th><th>seeks</th><th>bytes</th></tr>\n",
        escape(&disk.name)
    );
    for file in files {
        let _ = writeln!(
            html,
            "<tr><th><bdi>{}</bdi></th><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&shorten(&file.path)),
            grouped(file.requests),
            grouped(file.seeks),
            format_size(ByteLen::new(file.bytes))
        );
    }
    html.push_str("</table></section>\n");
}

/// A path, with its middle omitted if it is long.
fn shorten(path: &str) -> String {
    let count = path.chars().count();
    if count <= PATH_CHARS {
        return path.to_string();
    }
    let head: String = path.chars().take(PATH_CHARS / 4).collect();
    let tail: String = path.chars().skip(count - PATH_CHARS * 3 / 4).collect();
    format!("{head}…{tail}")
}

#[derive(Serialize)]
struct PageData {
    events: u64,
    folds: Vec<Fold>,
    disks: Vec<DiskData>,
}

/// Rows drawn as one, from and to.
#[derive(Serialize)]
struct Fold {
    from: usize,
    to: usize,
    /// Their groups, by disk.
    groups: Vec<String>,
}

/// A disk, for the script.
#[derive(Serialize)]
struct DiskData {
    block_size: u32,
    first: u64,
    blocks: u64,
    row_blocks: u64,
    columns: u64,
    labels: Vec<String>,
    /// Letters of the cells, each preceded by its repeat count (unless it is 1).
    cells: String,
    reads: ReadData,
    paths: Vec<String>,
    ops: Vec<String>,
    purposes: Vec<String>,
}

/// The drawn requests, by column; the last three accumulate all requests up to and including each
/// one.
#[derive(Serialize, Default)]
struct ReadData {
    start: Vec<u64>,
    len: Vec<u64>,
    purpose: Vec<u32>,
    path: Vec<u32>,
    op: Vec<u32>,
    event: Vec<u64>,
    requests: Vec<u64>,
    seeks: Vec<u64>,
    read: Vec<u64>,
    times: Vec<TimeData>,
}

/// Microseconds until all requests up to and including each one have been read.
#[derive(Serialize)]
struct TimeData {
    device: String,
    us: Vec<u64>,
}

/// The data of the page as JSON, safe inside a script element.
fn data(page: &Page, disks: &[Disk], shape: Shape, every: usize) -> String {
    let fold = |rows: Range<usize>| {
        let groups = disks.iter().map(|disk| groups_of(disk, shape, &rows)).collect();
        Fold { from: rows.start, to: rows.end, groups }
    };
    let folds = folds(disks, shape).into_iter().map(fold).collect();
    let disks = disks.iter().map(|disk| disk_data(disk, shape, every)).collect();
    let data = PageData { events: page.events, folds, disks };
    // Serialisation of these types cannot fail. No `<` is left that could end the element or begin
    // a comment.
    serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c")
}

fn disk_data(disk: &Disk, shape: Shape, every: usize) -> DiskData {
    let reads = &disk.reads;
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let (mut paths, mut columns) = (Vec::new(), ReadData::default());
    let (mut seeks, mut read_blocks) = (0, 0);
    let is_drawn = |at: usize| at.is_multiple_of(every) || at + 1 == reads.list.len();
    for (at, (read, distance)) in reads.with_distance().enumerate() {
        seeks += u64::from(distance.is_some_and(|distance| distance > 0));
        read_blocks += read.extent.len;
        if !is_drawn(at) {
            continue;
        }
        let number = *numbers.entry(read.path).or_insert_with(|| {
            paths.push(shorten(reads.paths.name(read.path)));
            u32::try_from(paths.len() - 1).unwrap_or(u32::MAX)
        });
        columns.start.push(read.extent.start.get());
        columns.len.push(read.extent.len);
        columns.purpose.push(read.purpose);
        columns.path.push(number);
        columns.op.push(read.op);
        columns.event.push(read.event);
        columns.requests.push(at as u64 + 1);
        columns.seeks.push(seeks);
        columns.read.push(read_blocks);
    }
    for time in &reads.times {
        let mut so_far = 0;
        let all = time.ends.iter().map(|end| {
            so_far = (end.get() / 1000).max(so_far);
            so_far
        });
        let us = all.enumerate().filter(|&(at, _)| is_drawn(at)).map(|(_, us)| us).collect();
        columns.times.push(TimeData { device: time.device.clone(), us });
    }
    DiskData {
        block_size: disk.block_size,
        first: disk.whole.start.get(),
        blocks: disk.whole.len,
        row_blocks: shape.row_blocks,
        columns: shape.columns,
        labels: (0..shape.rows(disk)).map(|row| row_label(disk, shape, row)).collect(),
        cells: encode(&cells(disk, shape)),
        reads: columns,
        paths,
        ops: reads.ops.all().to_vec(),
        purposes: reads.purposes.all().to_vec(),
    }
}

/// Run lengths of the cells' letters: `12m3F.`.
fn encode(cells: &[Cell]) -> String {
    let mut text = String::new();
    let letters: Vec<char> = cells.iter().map(Cell::letter).collect();
    for run in letters.chunk_by(|a, b| a == b) {
        if run.len() > 1 {
            let _ = write!(text, "{}", run.len());
        }
        text.push(run[0]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::disk;
    use crate::reads::tests::reads;

    #[test]
    fn hostile_names_stay_text() {
        let mut disk = disk();
        let evil = "/</script><script>alert(1)</script><!--\u{2028}\"'&";
        disk.name = "<img src=x onerror=alert(2)>".into();
        disk.reads = reads(&[(20, 1, evil), (60, 1, evil)]);
        let page = Page { title: "<b>".into(), ..Page::default() };
        let html = html(&page, &[disk]);
        assert_eq!(html.matches("<script").count(), 2, "the page's own");
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(!html.contains("<img") && !html.contains("<b>") && !html.contains("<!--\u{2028}"));
        assert!(html.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
    }

    #[test]
    fn many_requests_with_long_names_fit() {
        let mut disk = disk();
        let name = |at: u64| format!("/{}/{at}", "<".repeat(300));
        let names: Vec<String> = (0..100_000).map(name).collect();
        let list: Vec<(u64, u64, &str)> =
            (0u64..).zip(&names).map(|(at, name)| (at * 7919 % 239 + 1, 1, &**name)).collect();
        disk.reads = reads(&list);
        let html = html(&Page::default(), &[disk.clone(), disk]);
        assert!(html.len() < 5_000_000, "{}", html.len());
        assert!(html.contains("Of 100,000 requests one in "), "says that it is thinned out");
        assert!(html.contains(",100000]"), "the last request is there");
    }

    #[test]
    fn pictures_have_a_text() {
        let mut disk = disk();
        disk.name = "a \"disk\"".into();
        disk.reads = reads(&[(20, 1, "f"), (60, 2, "f")]);
        let html = html(&Page::default(), &[disk]);
        assert_eq!(html.matches("<canvas").count(), 2);
        assert_eq!(html.matches("role=\"img\"").count(), 2);
        let text = "Map of a &quot;disk&quot;. 2 requests, 1 seek, ";
        assert!(html.contains(&format!("aria-label=\"{text}")), "{text}");
        assert!(html.contains(&format!(">{text}")), "the text stands in the canvas as well");
    }

    #[test]
    fn cells_are_run_lengths() {
        let disk = disk();
        let cells = cells(&disk, Shape { row_blocks: 64, columns: 16 });
        assert_eq!(encode(&cells[..17]), "2mDf3F3f7.");
    }
}
