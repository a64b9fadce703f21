//! `seekless watch`: learns the habits of a mounted file system, and lays out their files.

mod learn;
mod status;

use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::interrupt::uninterrupted;
use crate::say::say;
use clap::{Args, Subcommand};
use seekless_layout::habits::{Habits, Round};
use seekless_online::relayout::Target;
use seekless_online::watching::{Config, Daemon, Done, ROOT, Running, Store, Worker};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Learn which files of a mounted ext4 file system are used together, and move them together
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless watch run /
  seekless watch run /srv --config /etc/seekless/srv.toml --dry-run
  systemctl enable --now seekless-watch@-.service       (the root file system)
  seekless watch status /
  seekless watch learn / fleet.parquet
  seekless watch status / --html picture.html
  seekless watch now / --dry-run
  seekless watch forget / --habit 12

Files that are opened together again and again are habits. Their weight is the number
of runs, each of which counts half after 7 days. When the machine is idle, habits that
weigh enough are laid out as `seekless relayout` does, as far as that pays, and at most
1G a day. All thresholds can be configured. What was learned is kept in
/var/lib/seekless. Needs root.

docs/watch.md describes what is recorded, forgotten and moved, and the configuration.")]
pub(crate) struct WatchCommand {
    #[command(subcommand)]
    what: WatchSubcommand,
}

#[derive(Subcommand, Debug)]
enum WatchSubcommand {
    /// Record what is opened, and move files when the machine is idle, until a signal
    #[command(
        after_help = "Examples:\n  seekless watch run /\n  seekless watch run /srv --dry-run"
    )]
    Run(WatchRunArgs),
    /// Move files now where it pays, whether or not the machine is idle
    ///
    /// A daemon that runs for the volume does it; otherwise this process does it, by the
    /// stored habits. The budget of the day holds.
    #[command(after_help = "Examples:\n  seekless watch now / --dry-run")]
    Now(NowArgs),
    /// Show habits, what was moved for them, and their seeks before and now
    #[command(
        after_help = "Examples:\n  seekless watch status /\n  seekless watch status / --html picture.html"
    )]
    Status(status::StatusArgs),
    /// Learn habits from traces or summaries of traces, each as if its programs had run here
    ///
    /// Each trace is a habit, or runs of one that is known: its files, in the order of their
    /// first touch. A trace that is learned again counts again. If one of the traces cannot
    /// be read, nothing is learned. The daemon must not be running.
    #[command(after_help = "\
Examples:
  seekless watch learn / fleet.parquet
  seekless watch learn /srv build.trace deploy.trace --runs 10")]
    Learn(learn::LearnArgs),
    /// Forget habits; the daemon must not be running
    #[command(after_help = "Examples:\n  seekless watch forget / --habit 12")]
    Forget(ForgetArgs),
}

#[derive(Args, Debug)]
struct Common {
    /// Mount point of an ext4 file system, or any path on it
    #[arg(value_name = "MOUNTPOINT")]
    mount: PathBuf,
    /// Configuration file [default: /etc/seekless/watch.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory in which each volume has a directory, by its UUID
    #[arg(long, value_name = "DIR", default_value = ROOT)]
    state: PathBuf,
}

#[derive(Args, Debug)]
struct WatchRunArgs {
    #[command(flatten)]
    common: Common,
    /// Record, and move nothing: only report the moves that would pay
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
struct NowArgs {
    #[command(flatten)]
    common: Common,
    /// Move nothing: only report the moves that would pay
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
struct ForgetArgs {
    #[command(flatten)]
    common: Common,
    /// Forget this habit only
    #[arg(long, value_name = "N")]
    habit: Option<u32>,
}

pub(crate) fn run(command: &WatchCommand, global: &Global) -> Result<ExitCode, Failure> {
    // Before anything is set up: a signal during setup must find its handler.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let signals = signals.map_err(|error| Failure::io("signals", &error))?;
    match &command.what {
        WatchSubcommand::Run(args) => {
            let Common { mount, config, state } = &args.common;
            let config = Config::load(config.as_deref())?;
            Daemon::new(mount, &config, state, args.dry_run, signals)?.run()?;
        }
        WatchSubcommand::Now(args) => now(args, signals, global)?,
        WatchSubcommand::Status(args) => status::run(args, signals, global)?,
        WatchSubcommand::Learn(args) => learn::run(args, global)?,
        WatchSubcommand::Forget(args) => forget(args, global)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn now(args: &NowArgs, mut signals: Signals, global: &Global) -> Result<(), Failure> {
    let Common { mount, config, state } = &args.common;
    let config = Config::load(config.as_deref())?;
    let store = Store::new(state, &Target::open(mount)?)?;
    if let Some(daemon) = Running::find(&store)? {
        let question = json!({ "what": "now", "dry_run": args.dry_run });
        let answer = daemon.ask(&question, &mut signals)?;
        if let Some(error) = answer["error"].as_str() {
            return Err(Failure::new(Kind::System, error).about("the daemon"));
        }
        print(mount, &answer, args.dry_run, global);
        return Ok(());
    }
    let Some(_lock) = store.lock()? else {
        let what = "is worked on by hand, or a daemon begins or ends: try again";
        return Err(Failure::new(Kind::System, what).about(mount.display()));
    };
    let mut habits = match args.dry_run {
        // `load` renames a state that it cannot read; a trial must not.
        true => {
            store.read(config.rules())?.map_or_else(|| Habits::new(config.rules()), |known| known.0)
        }
        false => store.load(config.rules())?,
    };
    let (device, dry_run) = (store.device(), args.dry_run);
    let worker = Worker { mount, device, config: &config, dry_run };
    let mut all = Vec::new();
    let mut tell = |done: Done| all.push(done.json());
    let mut halt = || uninterrupted(&mut signals);
    let keep = |habits: &Habits| store.save(habits);
    let worked = worker.run(&mut habits, Round::by_hand(), &mut halt, &keep, &mut tell);
    if !args.dry_run {
        // Saves the habits that were examined without a move, too.
        store.save(&habits)?;
    }
    let then = worked?.to_string();
    print(mount, &json!({ "done": all, "then": then }), args.dry_run, global);
    Ok(())
}

/// Prints an answer of the daemon, or of this process, in the same form.
fn print(mount: &Path, answer: &Value, dry_run: bool, global: &Global) {
    let done = answer["done"].as_array().map_or(&[][..], Vec::as_slice);
    if global.json {
        let mut answer = answer.clone();
        answer["dry_run"] = dry_run.into();
        say!("{answer}");
        return;
    }
    for text in done.iter().filter_map(|done| done["text"].as_str()) {
        say!("{text}");
    }
    if !global.quiet {
        let then = answer["then"].as_str().unwrap_or_default();
        say!("{}: {} habits looked at; {then}", mount.display(), done.len());
    }
}

/// Excludes a daemon, and other changes of the state.
fn alone(store: &Store, mount: &Path) -> Result<impl Sized + use<>, Failure> {
    if let Some(lock) = store.lock()? {
        return Ok(lock);
    }
    let what = match Running::find(store)? {
        Some(_) => "a daemon runs for it: stop it first",
        None => "is worked on by hand, or a daemon begins or ends: try again",
    };
    Err(Failure::new(Kind::System, what).about(mount.display()))
}

fn forget(args: &ForgetArgs, global: &Global) -> Result<(), Failure> {
    let Common { mount, config, state } = &args.common;
    let config = Config::load(config.as_deref())?;
    let store = Store::new(state, &Target::open(mount)?)?;
    let _lock = alone(&store, mount)?;
    let mut habits = store.load(config.rules())?;
    let before = habits.habits().len();
    match args.habit {
        Some(number) if !habits.forget(number) => {
            return Err(Failure::usage(format!("habit {number} is not known")));
        }
        Some(_) => {}
        None => habits.forget_all(),
    }
    store.save(&habits)?;
    let count = before - habits.habits().len();
    if global.json {
        say!("{}", json!({ "forgotten": count }));
    } else if !global.quiet {
        say!("{}: {count} habits forgotten", mount.display());
    }
    Ok(())
}
