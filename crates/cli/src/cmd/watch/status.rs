//! `seekless watch status`: the habits of a volume, and the seeks saved by moves.

use super::Common;
use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use crate::usage;
use crate::written::Written;
use clap::Args;
use seekless_fs::{FsError, Inspect};
use seekless_images::output::{NO_INPUTS, replace};
use seekless_layout::habits::{Habit, Habits, Seconds};
use seekless_layout::replay::{Machine, Replayed, replay};
use seekless_layout::score::figures;
use seekless_online::relayout::Target;
use seekless_online::watching::{self, Config, Names, Running, Store};
use seekless_report::disk::Disk;
use seekless_report::page::{self, Page};
use seekless_report::reads::{Read, Reads};
use seekless_report::table::{Figure, Table};
use seekless_report::terminal::{self, Style};
use seekless_units::{BlockNo, ByteLen, Extent, format_size};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};

/// Rows of each map on a terminal, and the map's width.
const ROWS: u64 = 12;
const WIDTH: usize = 100;

/// Number of habits in the text output.
const LISTED: usize = 20;

#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    common: Common,
    /// Write a page with the reads of the habits that were laid out, before and now
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Draw the same as maps on the terminal
    #[arg(long)]
    map: bool,
}

/// A habit, with the present cost of a run.
struct Shown<'a> {
    habit: &'a Habit,
    weight: f64,
    replayed: Replayed,
    seeks: u64,
}

pub(super) fn run(args: &StatusArgs, mut signals: Signals, global: &Global) -> Result<(), Failure> {
    let Common { mount, config, state } = &args.common;
    let config = Config::load(config.as_deref())?;
    let target = Target::open(mount)?;
    let store = Store::new(state, &target)?;
    let daemon = Running::find(&store)?;
    let is_running = daemon.is_some();
    if let Some(daemon) = daemon {
        daemon.ask(&json!({ "what": "save" }), &mut signals)?;
    }
    let moment = watching::now();
    let known = store.read(config.rules())?;
    let (habits, saved) = known.unwrap_or_else(|| (Habits::new(config.rules()), moment));
    let image = target.look().map_err(|error| target.about(error))?;
    let shown = shown(&habits, moment, &target, image.as_ref())?;
    let fullness = target.fullness()?;
    if let Some(path) = &args.html {
        let disks = disks(&shown, image.as_ref()).map_err(|error| target.about(error))?;
        write_page(path, &page(mount, &shown), &disks)?;
    }
    if global.json {
        let list: Vec<Value> = shown.iter().map(|one| one.json(&habits, moment)).collect();
        let report = json!({
            "volume": store.uuid(),
            "running": is_running,
            "saved": saved,
            "fullness": fullness,
            "budget_bytes": habits.rules().budget,
            "moved_today_bytes": habits.spent(moment),
            "habits": list,
            "moves": habits.moves(),
        });
        say!("{report}");
        return Ok(());
    }
    let running = if is_running { "a daemon runs" } else { "no daemon runs" };
    say!("{}: volume {}, {running}", mount.display(), store.uuid());
    let size = |bytes| format_size(ByteLen::new(bytes));
    let (spent, budget) = (size(habits.spent(moment)), size(habits.rules().budget));
    say!("{spent} of {budget} moved today; {:.0}% in use", fullness * 100.0);
    list(&shown, &habits, moment);
    for moved in habits.moves().iter().rev().take(LISTED) {
        let ago = ago(moment, moved.when);
        let (number, program) = (moved.habit, &moved.program);
        let (before, after) = (moved.before, moved.after);
        say!(
            "{ago}: habit {number} ({program}): {}, {before:.0} seeks before, {after:.0} after",
            size(moved.bytes)
        );
    }
    if args.map {
        let disks = disks(&shown, image.as_ref()).map_err(|error| target.about(error))?;
        let style = Style { width: WIDTH, rows: ROWS, colour: false };
        say!("\n{}", terminal::draw(&disks, style).trim_end());
    }
    if let Some(path) = &args.html {
        Written::file(path).tell(global);
    }
    Ok(())
}

/// All habits, by falling weight.
fn shown<'a>(
    habits: &'a Habits,
    moment: Seconds,
    target: &Target,
    image: &dyn Inspect,
) -> Result<Vec<Shown<'a>>, Failure> {
    let last = |habit: &'a Habit| habit.samples().last().map_or(&[][..], Vec::as_slice);
    let files = habits.habits().iter().flat_map(last).copied();
    let names = Names::new(target, files)?;
    let mut shown = Vec::new();
    for habit in habits.habits() {
        let events = habits.trace(last(habit), &mut |file| names.get(file));
        let replayed = replay(image, &events.into_iter().collect(), Machine::for_score());
        let replayed = replayed.map_err(|error| target.about(error))?;
        let extents = replayed.requests.iter().map(|request| (request.extent, false));
        let seeks = figures(extents, u64::from(image.geometry().block_size), &[]).seeks;
        let weight = habit.weight(moment, habits.rules().half_life);
        shown.push(Shown { habit, weight, replayed, seeks });
    }
    shown.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    Ok(shown)
}

impl Shown<'_> {
    fn json(&self, habits: &Habits, moment: Seconds) -> Value {
        let laid = self.habit.laid.as_ref().map(|laid| {
            json!({
                "when": laid.when,
                "files": laid.files.len(),
                "bytes": laid.bytes,
                "seeks": { "before": laid.before, "after": laid.after },
            })
        });
        json!({
            "habit": self.habit.number,
            "program": self.habit.program,
            "weight": self.weight,
            "is_established": habits.is_established(self.habit, moment),
            "first": self.habit.first,
            "last": self.habit.last,
            "runs": self.habit.runs,
            "files": self.habit.core().len(),
            "seeks_now": self.seeks,
            "laid": laid,
        })
    }
}

fn ago(now: Seconds, then: Seconds) -> String {
    match now.saturating_sub(then) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

fn list(shown: &[Shown<'_>], habits: &Habits, moment: Seconds) {
    if shown.is_empty() {
        say!("No habits are known.");
        return;
    }
    let columns = ["weight", "runs", "files", "seeks before", "seeks now", "moved"];
    let mut table = Table::new(columns.map(String::from).to_vec(), false);
    for one in shown.iter().take(LISTED) {
        let habit = one.habit;
        let laid = habit.laid.as_ref();
        let before = laid.map_or(one.seeks, |laid| laid.before.round() as u64);
        let bytes = ByteLen::new(laid.map_or(0, |laid| laid.bytes));
        let mark = if habits.is_established(habit, moment) { "" } else { " (too light)" };
        let label =
            format!("{} {}, {}{mark}", habit.number, habit.program, ago(moment, habit.last));
        let figures = vec![
            Figure::Number(one.weight),
            Figure::Count(habit.runs),
            Figure::Count(habit.core().len() as u64),
            Figure::Count(before),
            Figure::Count(one.seeks),
            Figure::Bytes(bytes),
        ];
        table.push(label, figures);
    }
    say!("\n{}", table.text().trim_end());
    if shown.len() > LISTED {
        say!("... and {} more", shown.len() - LISTED);
    }
    say!("");
}

/// The volume with the reads of the habits that were laid out: with the reads before, and with
/// those of now. Both show the present use of blocks.
fn disks(shown: &[Shown<'_>], image: &dyn Inspect) -> Result<[Disk; 2], FsError> {
    let (mut before, mut after) = (Reads::default(), Reads::default());
    for one in shown {
        let Some(laid) = &one.habit.laid else { continue };
        let name = format!("habit {} ({})", one.habit.number, one.habit.program);
        let add = |reads: &mut Reads, extent: Extent, purpose: &str| {
            let event = reads.list.len() as u64;
            let (purpose, path) = (reads.purposes.number(purpose), reads.paths.number(&name));
            let op = reads.ops.number("read");
            reads.list.push(Read { extent, purpose, path, op, event });
        };
        for &(start, len) in &laid.reads {
            add(&mut before, Extent::new(BlockNo::new(start), len), "any");
        }
        for request in &one.replayed.requests {
            add(&mut after, request.extent, request.purpose.name());
        }
    }
    let usage = usage::classify(image)?;
    let shape = image.geometry();
    let disk = |name: &str, reads| Disk {
        name: name.into(),
        block_size: shape.block_size,
        whole: seekless_layout::usage::whole(image),
        group_blocks: shape.blocks_per_group,
        usage: usage.clone(),
        reads,
    };
    Ok([disk("before (reads of then, blocks as they are)", before), disk("now", after)])
}

fn page(mount: &Path, shown: &[Shown<'_>]) -> Page {
    let columns = ["seeks before", "seeks now"].map(String::from).to_vec();
    let mut table = Table::new(columns, false);
    let mut events = 0;
    for one in shown {
        let Some(laid) = &one.habit.laid else { continue };
        events += (laid.reads.len().max(one.replayed.requests.len())) as u64;
        let label = format!("habit {} ({})", one.habit.number, one.habit.program);
        let before = laid.before.round() as u64;
        table.push(label, vec![Figure::Count(before), Figure::Count(one.seeks)]);
    }
    Page {
        title: format!("Habits on {}", mount.display()),
        subtitle: "What a run of each habit that was laid out reads from a cold start".into(),
        tables: vec![("Seeks of a run".into(), table, String::new())],
        events,
    }
}

fn write_page(path: &Path, page: &Page, disks: &[Disk]) -> Result<(), Failure> {
    Ok(replace(path, NO_INPUTS, |out| out.write_all(page::html(page, disks).as_bytes()))?)
}
