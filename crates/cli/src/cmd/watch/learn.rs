//! `seekless watch learn`: habits from traces.

use super::{Common, alone};
use crate::args::{Global, count};
use crate::failure::Failure;
use crate::say::{say, warning};
use clap::Args;
use seekless_compose::traces;
use seekless_layout::habits::Filed;
use seekless_online::relayout::Target;
use seekless_online::watching::{Config, Learned, Store, learn};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(super) struct LearnArgs {
    #[command(flatten)]
    common: Common,
    /// Traces or summaries; their paths are from the root of the file system
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Count each trace as this many runs, which is its weight; habits that weigh 2 or more are laid
    /// out
    #[arg(long, value_name = "N", value_parser = parse_runs, default_value = "3")]
    runs: u32,
}

fn parse_runs(text: &str) -> Result<u32, String> {
    count(text).and_then(|runs| {
        if (1..=1000).contains(&runs) { Ok(runs) } else { Err("must be from 1 to 1000".into()) }
    })
}

pub(super) fn run(args: &LearnArgs, global: &Global) -> Result<(), Failure> {
    let Common { mount, config, state } = &args.common;
    let config = Config::load(config.as_deref())?;
    let target = Target::open(mount)?;
    let store = Store::new(state, &target)?;
    let _lock = alone(&store, mount)?;
    let mut habits = store.load(config.rules())?;
    let mut all = Vec::new();
    for path in &args.traces {
        let events = traces::load(path)?;
        let program = name_of(path);
        let learned = learn(&target, &mut habits, &program, &events, args.runs);
        let learned = learned.map_err(|error| error.about(path.display()))?;
        tell(path, mount, learned, global);
        let (habit, is_new) = match learned.filed {
            Filed::Small => (None, false),
            Filed::Joined(habit) => (Some(habit), false),
            Filed::New(habit) => (Some(habit), true),
        };
        let trace = path.to_string_lossy();
        all.push(json!({ "trace": trace, "habit": habit, "new": is_new, "files": learned.files }));
    }
    store.save(&habits)?;
    if global.json {
        say!("{}", json!({ "learned": all }));
    }
    Ok(())
}

fn tell(path: &Path, mount: &Path, learned: Learned, global: &Global) {
    let Learned { filed, files } = learned;
    let (path, mount) = (path.display(), mount.display());
    match filed {
        Filed::Small => warning!("{path}: no habit: {files} of its files are on {mount}"),
        _ if global.json || global.quiet => {}
        Filed::Joined(habit) => say!("{path}: habit {habit}, known before ({files} files)"),
        Filed::New(habit) => say!("{path}: habit {habit} ({files} files)"),
    }
}

/// The name of a trace, without its extensions.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let end = name.char_indices().skip(1).find(|(_, letter)| *letter == '.');
    end.map_or(&*name, |(at, _)| &name[..at]).to_string()
}
