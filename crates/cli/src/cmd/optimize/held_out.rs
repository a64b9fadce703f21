//! The range of figures of a run that was not recorded.

use crate::say::say;
use seekless_compose::held_out::{Bounds, HeldOut};
use seekless_layout::score::Score;
use seekless_units::{ByteLen, format_size};
use serde_json::{Value, json};
use std::path::PathBuf;

fn chunks(chunk: ByteLen) -> impl Fn(&Score) -> u64 {
    move |score| score.chunks[&chunk.get()]
}

/// As JSON.
pub(super) fn fields(held_out: &[HeldOut], traces: &[PathBuf], chunk: ByteLen) -> Value {
    let pair = |Bounds { least, most }: Bounds| json!([least, most]);
    let one = |it: &HeldOut| {
        let traces: Vec<&PathBuf> = it.recordings.iter().map(|&at| &traces[at]).collect();
        json!({
            "traces": traces,
            "expected_seeks": pair(it.expected_seeks()),
            "seeks": pair(it.bounds(|score| score.seeks)),
            "seek_distance_bytes": pair(it.bounds(|score| score.seek_distance_bytes)),
            "requests": pair(it.bounds(|score| score.requests)),
            "bytes": pair(it.bounds(|score| score.bytes)),
            "chunks": pair(it.bounds(chunks(chunk))),
        })
    };
    held_out.iter().map(one).collect()
}

/// As lines of text.
pub(super) fn tell(held_out: &[HeldOut], traces: &[PathBuf], chunk: ByteLen) {
    for it in held_out {
        let first = traces[it.recordings[0]].display();
        say!("a run that was not recorded, by {} traces as {first}:", it.recordings.len());
        let seeks = it.expected_seeks();
        say!("  {:<28}{:>14} to {}", "seeks", seeks.least, seeks.most);
        let of_chunks = it.bounds(chunks(chunk));
        let name = format!("chunks of {}", format_size(chunk));
        say!("  {name:<28}{:>14} to {}", of_chunks.least, of_chunks.most);
    }
}
