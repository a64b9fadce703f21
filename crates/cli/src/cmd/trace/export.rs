//! Traces in forms that other tools take.

use super::{Form, load, write_to};
use crate::args::Global;
use crate::failure::Failure;
use crate::say::{say, warning};
use crate::show::json_bytes;
use crate::written::Written;
use seekless_layout::trace;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

pub(super) fn run(
    path: &Path,
    form: Form,
    all: bool,
    output: Option<&Path>,
    global: &Global,
) -> Result<(), Failure> {
    let events = load(path)?;
    let paths = trace::first_touches(&events, all && form == Form::Paths);
    let mut left_out = 0;
    let mut write = |out: &mut dyn Write| match form {
        Form::Paths => trace::write_paths(&paths, out),
        Form::SquashfsSort => {
            left_out = trace::write_squashfs_sort(&paths, out)?;
            Ok(())
        }
    };
    if global.json && output.is_none() {
        let mut list = Vec::new();
        write(&mut list).map_err(|error| Failure::io("standard output", &error))?;
        say!("{}", exported(form, &paths, &list));
    } else {
        write_to(output, write)?;
    }
    if let Some(path) = output {
        Written::file(path).with("paths", (paths.len() - left_out) as u64).tell(global);
    }
    if left_out > 0 {
        warning!("{left_out} paths that contain a newline were left out");
    }
    Ok(())
}

/// What is exported as JSON: the paths, or the priorities of a list for `mksquashfs`.
fn exported(form: Form, paths: &[&[u8]], list: &[u8]) -> Value {
    if form == Form::Paths {
        let paths: Vec<Value> = paths.iter().map(|path| json_bytes(path)).collect();
        return json!({ "paths": paths });
    }
    let row = |line: &[u8]| {
        let space = line.iter().rposition(|&byte| byte == b' ')?;
        let (path, priority) = line.split_at(space);
        let priority: i64 = std::str::from_utf8(priority).ok()?.trim().parse().ok()?;
        Some(json!({ "path": json_bytes(&unescaped(path)), "priority": priority }))
    };
    let lines = list.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    json!({ "priorities": lines.filter_map(row).collect::<Vec<_>>() })
}

/// A path without the backslashes in front of special characters.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = path.iter();
    let mut plain = Vec::with_capacity(path.len());
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    plain
}
