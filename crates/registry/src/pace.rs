//! A least rate at which a server must send.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

/// Bytes in a second that must come, on average over the timeout.
pub(crate) const RATE_MIN: u64 = 1 << 10;

/// Longest time for one answer. Only a server that sends no contents at all, but chunks' extensions,
/// needs this limit besides the rate.
const ANSWER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time in which `len` bytes may come.
pub(crate) fn longest(len: u64, timeout: Duration) -> Duration {
    let ideal = Duration::from_secs(len / RATE_MIN).min(ANSWER_MAX);
    ideal.saturating_add(timeout).min(ANSWER_MAX)
}

/// The error of a server that sends less than `RATE_MIN`.
#[derive(Debug)]
pub(crate) struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("less than 1 KiB/s comes")
    }
}

impl std::error::Error for TooSlow {}

/// A body whose reading fails when it comes too slowly. Only the time spent waiting for it counts.
pub(crate) struct Paced<R> {
    from: R,
    window: Duration,
    waited: Duration,
    came: u64,
}

impl<R: Read> Paced<R> {
    pub(crate) fn new(from: R, window: Duration) -> Self {
        Self { from, window, waited: Duration::ZERO, came: 0 }
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        let got = self.from.read(buf)?;
        self.waited += began.elapsed();
        self.came += got as u64;
        if got > 0 && self.waited >= self.window {
            if u128::from(self.came) * 1000 < u128::from(RATE_MIN) * self.waited.as_millis() {
                return Err(io::Error::new(ErrorKind::TimedOut, TooSlow));
            }
            (self.waited, self.came) = (Duration::ZERO, 0);
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Gives `len` bytes each time, after a while, without an end.
    struct Slow(usize);

    impl Read for Slow {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_millis(10));
            Ok(self.0.min(buf.len()))
        }
    }

    #[test]
    fn a_trickle_is_an_error_and_a_slow_stream_is_none() {
        let window = Duration::from_millis(50);
        let mut buf = vec![0; 4096];
        let mut trickle = Paced::new(Slow(1), window);
        let error = (0..20).find_map(|_| trickle.read(&mut buf).err()).expect("an error");
        assert!(error.get_ref().is_some_and(|inner| inner.is::<TooSlow>()), "{error}");
        let mut stream = Paced::new(Slow(4096), window);
        assert!((0..20).all(|_| stream.read(&mut buf).is_ok()));
    }

    #[test]
    fn every_answer_has_an_end() {
        let timeout = Duration::from_secs(30);
        assert_eq!(longest(0, timeout), timeout);
        assert_eq!(longest(10 << 10, timeout), Duration::from_secs(40));
        assert_eq!(longest(u64::MAX, timeout), ANSWER_MAX);
    }
}
