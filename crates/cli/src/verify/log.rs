//! Log of the requests of both sides.

use super::{Verified, Wanted};
use crate::failure::Failure;
use seekless_capture::verify::{Outcome, Requests};
use seekless_images::output::Output;
use seekless_report::reads::{Read, Reads};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the predicted and the counted requests of all images to a log.
pub(super) fn write(
    verified: &[Verified<'_>],
    wanted: &Wanted<'_>,
    path: &Path,
) -> Result<(), Failure> {
    let output = Output::create(path, true, &wanted.inputs)?;
    let mut out = BufWriter::new(output.file()?);
    let io = |error| Failure::io(path.display(), &error);
    for one in verified {
        let block_size = u64::from(one.scored.image.geometry().block_size);
        let name = |side: String| match verified.len() {
            1 => side,
            _ => format!("{} {side}", one.scored.name),
        };
        let predicted = name("predicted".into());
        one.scored.reads.write_log(block_size, Some(&predicted), &mut out).map_err(io)?;
        for (number, run) in (1..).zip(&one.comparison.runs) {
            let side = match one.comparison.outcome {
                Outcome::Replay { .. } => "kernel".into(),
                Outcome::Program(_) => format!("program {number}"),
            };
            as_reads(&run.requests)
                .write_log(block_size, Some(&name(side)), &mut out)
                .map_err(io)?;
        }
    }
    out.flush().map_err(io)?;
    drop(out);
    Ok(output.finish()?)
}

fn as_reads(requests: &Requests) -> Reads {
    let mut reads = Reads::default();
    for (event, (extent, class)) in (0..).zip(requests) {
        let purpose = reads.purposes.number(class.name());
        let (path, op) = (reads.paths.number(""), reads.ops.number(""));
        reads.list.push(Read { extent: *extent, purpose, path, op, event });
    }
    reads
}
