//! One log of requests for several drives.

use super::Log;
use std::io::{Result, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The log of one of several drives: its lines end with the number of the drive, from 0.
struct Numbered {
    number: u32,
    log: Arc<Mutex<Log>>,
    /// A line that has not ended.
    line: Vec<u8>,
}

impl Numbered {
    fn end_line(&mut self) -> Result<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let line = std::mem::take(&mut self.line);
        log.write_all(&line)?;
        match line.first() {
            Some(b'#') | None => log.write_all(b"\n"),
            Some(_) => writeln!(log, "\t{}", self.number),
        }
    }
}

impl Write for Numbered {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        for &byte in bytes {
            if byte == b'\n' { self.end_line()? } else { self.line.push(byte) }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// A log for each drive. Several drives write to the one that is given, and each line names its
/// drive.
pub(crate) fn shared(log: Option<Log>, drives: u32) -> Vec<Option<Log>> {
    if drives == 1 {
        return vec![log];
    }
    let Some(log) = log else { return (0..drives).map(|_| None).collect() };
    let log = Arc::new(Mutex::new(log));
    let one = |number| -> Log { Box::new(Numbered { number, log: log.clone(), line: Vec::new() }) };
    (0..drives).map(|number| Some(one(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_say_which_drive_it_was() {
        let kept = SharedBuffer::default();
        let mut logs = shared(Some(Box::new(kept.clone())), 2);
        let (first, second) = logs.split_at_mut(1);
        let (first, second) = (first[0].as_mut().unwrap(), second[0].as_mut().unwrap());
        write!(first, "# phase\n1.0\tread").unwrap();
        writeln!(second, "2.0\twrite").unwrap();
        writeln!(first, "\t7").unwrap();
        second.flush().unwrap();
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "# phase\n2.0\twrite\t1\n1.0\tread\t7\t0\n");
        let kept = SharedBuffer::default();
        let mut one = shared(Some(Box::new(kept.clone())), 1);
        writeln!(one[0].as_mut().unwrap(), "1.0\tread").unwrap();
        assert_eq!(*kept.0.lock().unwrap(), b"1.0\tread\n");
        assert!(shared(None, 2).iter().all(Option::is_none) && shared(None, 2).len() == 2);
    }
}
