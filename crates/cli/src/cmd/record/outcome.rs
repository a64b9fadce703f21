//! Result of a recording: exit code, header of the trace and messages.

use super::{RecordArgs, WantedPages};
use crate::args::Global;
use crate::written::Written;
use seekless_capture::{self as recording, Collected, End, Source};
use seekless_host::mounts::Mount;
use seekless_layout::recording::Assembled;
use seekless_layout::trace::Program;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;

/// The recorded program's exit code; 128 plus the signal's number if a signal killed it, as in a
/// shell.
pub(super) fn exit_code(end: &End) -> ExitCode {
    match end {
        End::Exit(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
        }
        End::Done | End::Signal(_) => ExitCode::SUCCESS,
    }
}

pub(super) fn header(
    args: &RecordArgs,
    mount: &Mount,
    collected: &Collected,
) -> Map<String, Value> {
    let text = |path: &Path| Value::from(path.to_string_lossy());
    let mut header = Map::new();
    header.insert("recorder".into(), collected.source.name().into());
    header.insert("mount".into(), text(&mount.dir));
    header.insert("fs".into(), mount.fs_type.clone().into());
    header.insert("source".into(), text(&mount.source));
    if !args.command.is_empty() {
        let words = args.command.iter().map(OsString::as_os_str);
        header.extend(Program::of_command(words).fields());
    }
    header.insert("kernel".into(), seekless_host::kernel_release().into());
    if let Some(kib) = collected.read_ahead_kib {
        header.insert("read_ahead_kb".into(), kib.into());
    }
    if let Ok(space) = rustix::fs::statvfs(&mount.dir) {
        header.insert("block_size".into(), space.f_bsize.into());
    }
    let pages = match args.pages {
        WantedPages::Fetched => "fetched",
        WantedPages::Touched => "touched",
    };
    header.insert("pages".into(), pages.into());
    if args.compact {
        header.insert("compact".into(), true.into());
    }
    if collected.lost > 0 {
        header.insert("lost".into(), collected.lost.into());
    }
    header
}

/// Warns of accesses that are missing from the trace; with `--json`, also prints the counts.
pub(super) fn report(
    args: &RecordArgs,
    global: &Global,
    mount: &Mount,
    source: Source,
    assembled: &Assembled,
    lost: u64,
    strangers: u64,
) {
    let unknown = assembled.unknown;
    let written = Written::file(args.destination()).with("events", assembled.events.len() as u64);
    if global.json {
        // On standard error: the recorded command owns standard output.
        let mut value = json!({
            "trace": args.destination().to_string_lossy(),
            "source": source.name(),
            "mount": mount.dir.to_string_lossy(),
            "events": assembled.events.len(),
            "lost": lost,
            "strangers": strangers,
            "nameless": unknown.nameless,
            "unnamed_inodes": unknown.inodes,
        });
        if let Some(bytes) = written.fields().get("bytes") {
            value["bytes"] = bytes.clone();
        }
        crate::say::error_line(&value.to_string());
        return;
    }
    let tell = |count: u64, what: &str| {
        if count > 0 {
            crate::say::warning!("{count} {what}");
        }
    };
    if !recording::is_stdout(args.destination()) {
        // On standard error: the recorded command owns standard output.
        written.tell_aside(global);
    }
    tell(lost, "events were lost in the kernel (use a larger --buffer)");
    tell(
        strangers,
        "accesses are left out because their processes ended before they could be identified",
    );
    tell(
        unknown.nameless,
        "accesses to files without a name (deleted, or internal to the file system) are left out",
    );
    tell(unknown.inodes, "inode reads are left out because they could belong to several files");
}
