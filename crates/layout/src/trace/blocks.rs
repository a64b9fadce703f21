//! Reads of a device, from the logs of its servers or tracers.
//!
//! The formats, recognised line by line:
//! - `seekless disk --io-log`: JSON with `op`, `offset` and `bytes`;
//! - `blkparse` and its like: `8,0 0 11 0.009507758 697 D RA 223490 + 56 [bash]`;
//! - `block_rq_issue` and `block_bio_queue` as ftrace and `perf script` print them;
//! - QEMU's trace (`-trace`, backend `log`): `virtio_blk_handle_read` with `sector`
//!   and `nsectors`, `blk_co_preadv` with `offset` and `bytes`;
//! - nbdkit's log filter: `Read id=1 offset=0x0 count=0x1000`;
//! - ranges: offset and length in bytes, decimal or with `0x`.

use super::TraceError;
use serde_json::Value;
use std::io::BufRead;

/// The longest line that is looked at, in bytes.
const LONGEST_LINE: u64 = 64 << 10;

/// A read of a range of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockRead {
    /// Nanoseconds, by the log's clock; 0 where it has none.
    pub time: u64,
    /// The process, where it is known.
    pub pid: u32,
    /// Its name.
    pub comm: Option<String>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// The contents of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockLog {
    /// Reads, in the order of the log.
    pub reads: Vec<BlockRead>,
    /// Lines that say nothing about a request that was made.
    pub other_lines: u64,
    /// The last line was cut short.
    pub cut_short: bool,
}

/// The stage of a request that a line shows. Logs may show a request several times: of all stages
/// that occur in a log the first of these counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// It was given to the device.
    Issued,
    /// It was submitted, and may be split or merged still.
    Queued,
    /// It was done.
    Completed,
}

/// Reads a log.
///
/// # Errors
/// When the input cannot be read.
pub fn read_block_log(mut input: impl BufRead) -> Result<BlockLog, TraceError> {
    let mut log = BlockLog::default();
    let mut found: Vec<(Stage, BlockRead)> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = std::io::Read::take(&mut input, LONGEST_LINE);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let whole = line.ends_with(b"\n");
        let text = String::from_utf8_lossy(&line);
        match parse(text.trim()) {
            Some(BlockTraceLine::Read(stage, read)) => found.push((stage, read)),
            Some(BlockTraceLine::Other) => {}
            None if text.trim().is_empty() => {}
            None if !whole => log.cut_short = true,
            None => log.other_lines += 1,
        }
    }
    let stage = found.iter().map(|(stage, _)| *stage).min();
    let counts = |(at, read): (Stage, BlockRead)| (Some(at) == stage).then_some(read);
    log.reads = found.into_iter().filter_map(counts).filter(|read| read.length > 0).collect();
    Ok(log)
}

/// A line of a block trace.
enum BlockTraceLine {
    Read(Stage, BlockRead),
    /// A request of another kind.
    Other,
}

fn parse(line: &str) -> Option<BlockTraceLine> {
    if line.starts_with('{') {
        return json(line);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    event(&words).or_else(|| qemu(&words)).or_else(|| nbdkit(&words)).or_else(|| {
        blkparse(&words).or_else(|| match words[..] {
            [offset, length] => {
                let read = BlockRead {
                    offset: number(offset)?,
                    length: number(length)?,
                    ..BlockRead::default()
                };
                Some(BlockTraceLine::Read(Stage::Issued, read))
            }
            _ => None,
        })
    })
}

/// Decimal, or hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `1.009507758` in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = part.get(..part.len().min(9))?;
    let scale = 10u64.checked_pow(9 - u32::try_from(digits.len()).ok()?)?;
    let nanos = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// The value of the word behind a name.
fn after(words: &[&str], name: &str) -> Option<u64> {
    let at = words.iter().position(|word| *word == name)?;
    number(words.get(at + 1)?)
}

fn json(line: &str) -> Option<BlockTraceLine> {
    let value: Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| value.get(name).and_then(Value::as_u64);
    if value.get("op").and_then(Value::as_str)? != "read" {
        return Some(BlockTraceLine::Other);
    }
    let time = field("submitted_ns").unwrap_or(0);
    let read = BlockRead {
        time,
        offset: field("offset")?,
        length: field("bytes")?,
        ..BlockRead::default()
    };
    Some(BlockTraceLine::Read(Stage::Issued, read))
}

/// Sectors of 512 bytes as `FIRST + COUNT`, and the name behind in brackets.
fn sectors(words: &[&str]) -> Option<(u64, u64, Option<String>)> {
    let plus = words.iter().position(|word| *word == "+")?;
    let first: u64 = words.get(plus.checked_sub(1)?)?.parse().ok()?;
    let count: u64 = words.get(plus + 1)?.parse().ok()?;
    let comm = words.last().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Some((first.checked_mul(512)?, count.checked_mul(512)?, comm.map(String::from)))
}

/// Whether letters of `blk_fill_rwbs` mean a read.
fn is_read(kind: &str) -> bool {
    kind.trim_start_matches('F').starts_with('R')
}

/// `bash-697 [000] ..... 12.009507: block_rq_issue: 8,0 RA 28672 () 2232 + 56 be,0,4 [bash]`
fn event(words: &[&str]) -> Option<BlockTraceLine> {
    let name = |word: &str| word.trim_end_matches(':').trim_start_matches("block:").to_string();
    let at = words.iter().position(|word| name(word).starts_with("block_"))?;
    let stage = match name(words[at]).as_str() {
        "block_rq_issue" => Stage::Issued,
        "block_bio_queue" => Stage::Queued,
        "block_rq_complete" => Stage::Completed,
        _ => return Some(BlockTraceLine::Other),
    };
    if !is_read(words.get(at + 2)?) {
        return Some(BlockTraceLine::Other);
    }
    let (offset, length, comm) = sectors(&words[at..])?;
    let time = seconds(words.get(at.checked_sub(1)?)?.trim_end_matches(':')).unwrap_or(0);
    // ftrace has NAME-PID first, perf script NAME PID.
    let pid = words[0].rsplit('-').next().and_then(|pid| pid.parse().ok());
    let pid = pid.or_else(|| words.get(1)?.parse().ok()).unwrap_or(0);
    Some(BlockTraceLine::Read(stage, BlockRead { time, pid, comm, offset, length }))
}

/// `8,0    1        1     0.000000000   697  D  RA 223490 + 8 [bash]`
fn blkparse(words: &[&str]) -> Option<BlockTraceLine> {
    let [device, _, _, time, pid, action, kind, ..] = words[..] else { return None };
    let (major, minor) = device.split_once(',')?;
    (major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok()).then_some(())?;
    let stage = match action {
        "D" => Stage::Issued,
        "Q" => Stage::Queued,
        "C" => Stage::Completed,
        _ => return Some(BlockTraceLine::Other),
    };
    if !is_read(kind) {
        return Some(BlockTraceLine::Other);
    }
    let (offset, length, comm) = sectors(words)?;
    let pid = pid.parse().unwrap_or(0);
    Some(BlockTraceLine::Read(stage, BlockRead { time: seconds(time)?, pid, comm, offset, length }))
}

/// `10203@1700000000.123456:virtio_blk_handle_read vdev 0x.. req 0x.. sector 8 nsectors 8`
fn qemu(words: &[&str]) -> Option<BlockTraceLine> {
    let at = words.iter().position(|word| {
        let name = word.rsplit(':').next().unwrap_or(word);
        name.starts_with("virtio_blk_") || name.starts_with("blk_co_")
    })?;
    let (prefix, name) = words[at].rsplit_once(':').unwrap_or(("", words[at]));
    let time = prefix.split('@').nth(1).and_then(seconds).unwrap_or(0);
    let (stage, offset, length) = match name {
        "virtio_blk_handle_read" => {
            let bytes = |name: &str| after(words, name)?.checked_mul(512);
            (Stage::Issued, bytes("sector")?, bytes("nsectors")?)
        }
        "blk_co_preadv" => (Stage::Queued, after(words, "offset")?, after(words, "bytes")?),
        _ => return Some(BlockTraceLine::Other),
    };
    Some(BlockTraceLine::Read(stage, BlockRead { time, offset, length, ..BlockRead::default() }))
}

/// `2020-08-06 02:07:23.080415 connection=1 Read id=1 offset=0x0 count=0x10000`
fn nbdkit(words: &[&str]) -> Option<BlockTraceLine> {
    words.iter().find(|word| word.starts_with("connection="))?;
    let value = |name: &str| words.iter().find_map(|word| number(word.strip_prefix(name)?));
    if !words.contains(&"Read") {
        return Some(BlockTraceLine::Other);
    }
    // A reply has no range.
    let (Some(offset), Some(length)) = (value("offset="), value("count=")) else {
        return Some(BlockTraceLine::Other);
    };
    let of_day = words.get(1).and_then(|time| {
        let mut parts = time.splitn(3, ':');
        let (hours, minutes) =
            (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
        seconds(parts.next()?)?.checked_add((hours * 60 + minutes) * 60_000_000_000)
    });
    let time = of_day.unwrap_or(0);
    Some(BlockTraceLine::Read(
        Stage::Issued,
        BlockRead { time, offset, length, ..BlockRead::default() },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> BlockLog {
        read_block_log(text.as_bytes()).unwrap()
    }

    fn ranges(text: &str) -> Vec<(u64, u64)> {
        log(text).reads.iter().map(|read| (read.offset, read.length)).collect()
    }

    #[test]
    fn every_kind_of_log_is_understood() {
        let wanted = [(4096, 8192)];
        for text in [
            "{\"op\":\"write\",\"offset\":1,\"bytes\":2}\n{\"op\":\"read\",\"offset\":4096,\"bytes\":8192,\"submitted_ns\":5}\n",
            "  8,0    1        1     0.000000000   697  Q   W 99 + 8 [kjournald]\n  8,0    1        1     0.000000001   697  D  RA 8 + 16 [bash]\n",
            "     bash-697   [001] ..... 12.009507: block_rq_issue: 8,0 RA 8192 () 8 + 16 be,0,4 [bash]\n",
            "bash   697 [000]  12.009507: block:block_rq_issue: 8,0 R 8192 () 8 + 16 [bash]\n",
            "12@1700000000.5:virtio_blk_handle_read vdev 0x5581 req 0x5582 sector 8 nsectors 16\n",
            "blk_co_preadv blk 0x5581 bs 0x5582 offset 4096 bytes 8192 flags 0x0\n",
            "2020-08-06 02:07:23.080415 connection=1 Read id=1 offset=0x1000 count=0x2000 ...\n2020-08-06 02:07:23.08 connection=1 ...Read id=1 return=0\n",
            "4096 8192\n",
            "0x1000 0x2000\n",
        ] {
            assert_eq!(ranges(text), wanted, "{text}");
            assert_eq!(log(text).other_lines, 0, "{text}");
        }
        let ftrace = log(
            "     my-bash-697   [001] ..... 12.5: block_rq_issue: 8,0 R 1 () 8 + 16 [my-bash]\n",
        );
        let read = &ftrace.reads[0];
        assert_eq!(
            (read.time, read.pid, read.comm.as_deref()),
            (12_500_000_000, 697, Some("my-bash"))
        );
        let of_day =
            &log("2020-08-06 02:00:01.5 connection=1 Read id=1 offset=0x0 count=0x1\n").reads[0];
        assert_eq!(of_day.time, 7_201_500_000_000);
    }

    #[test]
    fn a_request_counts_once() {
        let line = |action: &str| format!("8,0 1 1 0.1 7 {action} R 8 + 16 [a]\n");
        let all = [line("Q"), line("G"), line("D"), line("C")].concat();
        assert_eq!(ranges(&all).len(), 1);
        assert_eq!(ranges(&[line("Q"), line("Q"), line("C")].concat()).len(), 2);
        assert_eq!(ranges(&line("C")).len(), 1);
    }

    #[test]
    fn what_is_no_log_is_counted_and_what_is_cut_short_is_said() {
        let found = log("hello\nCPU0 (8,0):\n8,0 1 1 0.1 7 D R 8 + 16 [a]\n\n8,0 1 1 0.2 7 D R 1");
        assert_eq!((found.reads.len(), found.other_lines, found.cut_short), (1, 2, true));
        let odd = "99999999999999999999 1\n8,0 1 1 x 7 D R 8 + 16 [a]\nblock_rq_issue: 8,0 R\n";
        assert_eq!((ranges(odd).len(), log(odd).other_lines), (0, 3));
        assert_eq!(log(&"x".repeat(1 << 20)).reads.len(), 0);
    }
}
