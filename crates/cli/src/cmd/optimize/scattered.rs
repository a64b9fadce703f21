//! Large files of which small pieces stay in their places.

use crate::args::Global;
use crate::say::say;
use crate::show::name;
use seekless_layout::planner::scattered::ScatteredFile;
use seekless_units::{ByteLen, format_size};

/// The files in JSON.
pub(super) fn fields(files: &[ScatteredFile], chunk: ByteLen) -> Vec<serde_json::Value> {
    let file = |(path, file): &ScatteredFile| {
        serde_json::json!({
            "path": String::from_utf8_lossy(path),
            "bytes": file.len.get(),
            "ranges": file.ranges,
            "range_bytes": file.bytes.get(),
            "seeks_if_moved": file.seeks_if_moved(),
            "chunks": file.chunks,
            "chunks_if_moved": file.chunks_if_moved(chunk),
        })
    };
    files.iter().map(file).collect()
}

/// Prints both prices of each file.
pub(super) fn tell(files: &[ScatteredFile], chunk: ByteLen, global: &Global) {
    if global.quiet {
        return;
    }
    for (path, file) in files {
        say!(
            "{} ({}): {} small ranges that are read stay ({}). If they moved (--for lazy), a read \
             of the whole file would need {} seeks more; they lie in {} chunks of {}, and would lie \
             in {}",
            name(path),
            format_size(file.len),
            file.ranges,
            format_size(file.bytes),
            file.seeks_if_moved(),
            file.chunks,
            format_size(chunk),
            file.chunks_if_moved(chunk)
        );
    }
}
