//! Files of traces, compressed with zstd if their names say so.
//!
//! A compressed trace is a sequence of frames, each with whole lines and a checksum. A file that
//! lacks its end because its writer was killed can therefore be read up to the last frame that was
//! written.

use std::io::{self, Write};
use std::path::Path;
use zstd::bulk::Compressor;

/// Extension of traces that are written compressed.
const EXTENSION: &str = "zst";

/// Fast enough to keep up with the parts that read and write lines.
const LEVEL: i32 = 1;

/// Bytes of text in a frame: twice the window of the compression.
const FRAME: usize = 1 << 20;

/// Writes text to `out`, compressed with zstd if the extension of the file's name is `zst`.
///
/// Text that has been flushed can be read even if nothing else is ever written. Without a last
/// [`flush`](Write::flush) the end may be missing.
///
/// ```
/// use seekless_layout::trace::Packed;
/// use std::io::Write;
///
/// let mut out = Packed::named("boot.trace.zst".as_ref(), Vec::new())?;
/// out.write_all(b"{\"seekless_trace\":1}\n")?;
/// out.flush()?;
/// assert!(out.get_ref().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Packed<W> {
    out: W,
    frame: Option<Frame>,
}

/// Text of the next frame.
struct Frame {
    text: Vec<u8>,
    compressor: Compressor<'static>,
}

impl<W: Write> Packed<W> {
    /// Writes to a file of this name.
    ///
    /// # Errors
    /// If memory for the compression is lacking.
    pub fn named(name: &Path, out: W) -> io::Result<Self> {
        if name.extension().is_none_or(|extension| extension != EXTENSION) {
            return Ok(Self { out, frame: None });
        }
        let mut compressor = Compressor::new(LEVEL)?;
        // Without it, damage may pass for other events.
        compressor.include_checksum(true)?;
        Ok(Self { out, frame: Some(Frame { text: Vec::new(), compressor }) })
    }

    /// The file.
    pub const fn get_ref(&self) -> &W {
        &self.out
    }

    /// Writes the whole lines as a frame, or all text if it is the last one.
    fn put(&mut self, all: bool) -> io::Result<()> {
        let Some(Frame { text, compressor }) = &mut self.frame else { return Ok(()) };
        let lines = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(at) if !all => at + 1,
            _ => text.len(),
        };
        if lines == 0 {
            return Ok(());
        }
        let packed = compressor.compress(&text[..lines])?;
        text.drain(..lines);
        self.out.write_all(&packed)
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(frame) = &mut self.frame else { return self.out.write(bytes) };
        frame.text.extend_from_slice(bytes);
        if frame.text.len() >= FRAME {
            self.put(false)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.put(true)?;
        self.out.flush()
    }
}

/// Runs `write` on a file of this name, compressed as by [`Packed`].
///
/// # Errors
/// Those of `out` and of `write`.
pub fn write_packed(
    name: &Path,
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = Packed::named(name, out)?;
    write(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Op, Reader, TraceError, Writer};
    use seekless_units::Nanos;
    use serde_json::Map;
    use std::io::BufReader;

    fn event(number: u64) -> Event {
        // Paths that do not compress well.
        let path = format!("/{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Event::new(Nanos::new(number), Op::Open, path.into())
    }

    /// A compressed trace, flushed after each of these numbers of events.
    fn packed(flushed: &[u64]) -> (Vec<u8>, Vec<usize>) {
        let out = Packed::named("t.zst".as_ref(), Vec::new()).unwrap();
        let mut writer = Writer::new(out, &Map::new()).unwrap();
        let (mut number, mut ends) = (0, Vec::new());
        for count in flushed {
            (0..*count).for_each(|_| {
                writer.write(&event(number)).unwrap();
                number += 1;
            });
            writer.flush().unwrap();
            ends.push(writer.out.get_ref().len());
        }
        (writer.out.out, ends)
    }

    /// Events that are read, and the error behind them.
    fn read(bytes: &[u8]) -> (u64, Option<TraceError>) {
        let (events, error) = events(bytes);
        assert!(events.iter().zip(0..).all(|(read, at)| *read == event(at)));
        (events.len() as u64, error)
    }

    fn events(bytes: &[u8]) -> (Vec<Event>, Option<TraceError>) {
        let text = BufReader::new(zstd::stream::read::Decoder::new(bytes).unwrap());
        let mut reader = match Reader::new(text) {
            Ok(reader) => reader,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Some(Ok(read)) => events.push(read),
                Some(Err(error)) => return (events, Some(error)),
                None => return (events, None),
            }
        }
    }

    #[test]
    fn all_that_was_flushed_can_be_read() {
        let (bytes, ends) = packed(&[3, 1, 5]);
        for (end, events) in ends.iter().zip([3, 4, 9]) {
            let (read, error) = read(&bytes[..*end]);
            assert!(read == events && error.is_none(), "{error:?}");
        }
        // Within a frame it is cut short, and the error has the line.
        for end in ends[0] + 5..ends[1] {
            let (read, error) = read(&bytes[..end]);
            // Only the checksum may be missing.
            assert!((3..=4).contains(&read));
            let line = read + 2;
            assert!(matches!(error, Some(TraceError::CutShort(at)) if at == line), "{error:?}");
        }
        for end in 5..ends[0] {
            let (read, error) = read(&bytes[..end]);
            let line = if read == 0 { 1 } else { read + 2 };
            assert!(matches!(error, Some(TraceError::CutShort(at)) if at == line), "{error:?}");
        }
    }

    #[test]
    fn a_long_trace_has_several_frames_of_whole_lines() {
        let (bytes, _) = packed(&[60_000]);
        let magic = |part: &[u8]| part == [0x28, 0xb5, 0x2f, 0xfd];
        let second = bytes.windows(4).skip(1).position(magic).unwrap() + 1;
        let (read_in_part, error) = read(&bytes[..second]);
        assert!(error.is_none() && (1000..60_000).contains(&read_in_part), "{error:?}");
        assert!(matches!(read(&bytes), (60_000, None)));
    }

    #[test]
    fn damage_has_its_line() {
        let (mut bytes, ends) = packed(&[10, 10]);
        // In the text of the second frame, behind its header.
        bytes[ends[0] + 20] ^= 0x10;
        let (read, error) = read(&bytes);
        assert!((10..=20).contains(&read));
        assert!(
            matches!(error, Some(TraceError::Damaged { line, .. }) if line == read + 2),
            "{error:?}"
        );
    }

    /// Some bits mean nothing, as one of each frame's header does. Whatever else is turned over is an
    /// error.
    #[test]
    fn damage_never_passes_for_other_events() {
        let (bytes, ends) = packed(&[10, 10]);
        let mut passed = Vec::new();
        for at in 4..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let (events, error) = events(&damaged);
                // Frames before the damaged one are as they were written.
                let whole = if at < ends[0] { 0 } else { 10 };
                let same = events.iter().zip(0..).take_while(|(read, at)| **read == event(*at));
                let same = same.count();
                assert!(same >= whole, "byte {at}, bit {bit}: {same} events");
                if error.is_none() {
                    assert_eq!((events.len(), same), (20, 20), "byte {at}, bit {bit}");
                    passed.push((at, bit));
                }
            }
        }
        assert!(passed.contains(&(4, 4)) && passed.contains(&(ends[0] + 4, 4)), "{passed:?}");
    }

    #[test]
    fn other_names_are_written_as_they_are() {
        let mut out = Vec::new();
        write_packed("t.trace".as_ref(), &mut out, |out| out.write_all(b"text")).unwrap();
        assert_eq!(out, b"text");
    }
}
