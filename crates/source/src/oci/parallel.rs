//! Work on several layers at once.

use seekless_fs::FsError;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Number of threads for work that the processor does.
pub(super) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Does `work` for 0 to `count`, on at most `threads` threads, and gives the results to `take`, in
/// the order of numbers, on this thread, while the work goes on. After a failure nothing else is
/// begun. Of several failures the one of the first number is returned, whichever came first: work is
/// begun in that order, and ends once it has begun.
///
/// # Errors
/// Those of `work` and of `take`.
pub(super) fn in_order<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, FsError> + Sync,
    mut take: impl FnMut(T) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = |done: Sender<(usize, Result<T, FsError>)>| {
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
            if done.send((number, result)).is_err() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        let (done, results) = channel();
        for _ in 0..threads.min(count) {
            let (run, done) = (&run, done.clone());
            scope.spawn(move || run(done));
        }
        drop(done);
        let mut waiting = BTreeMap::new();
        let mut number = 0;
        let mut outcome = Ok(());
        for (finished, result) in results {
            waiting.insert(finished, result);
            while outcome.is_ok()
                && let Some(result) = waiting.remove(&number)
            {
                outcome = result.and_then(&mut take);
                number += 1;
            }
            has_failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        }
        debug_assert!(outcome.is_err() || number == count, "each number has had its turn");
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_are_in_order_and_the_first_failure_counts() {
        let work = |number: usize| {
            thread::sleep(Duration::from_millis(3 - number as u64 % 4));
            match number {
                5 | 6 => Err(FsError::Invalid(number.to_string())),
                number => Ok(number),
            }
        };
        for threads in 1..5 {
            for (count, last) in [(0, 0), (5, 5), (20, 5)] {
                let mut taken = Vec::new();
                let outcome = in_order(count, threads, work, |number| {
                    taken.push(number);
                    Ok(())
                });
                assert_eq!(taken, (0..last).collect::<Vec<_>>(), "{threads} threads");
                let failure = outcome.err().map(|error| error.to_string());
                assert_eq!(failure.as_deref(), (count > 5).then_some("5"), "{threads} threads");
            }
            let refuse = |number| if number == 3 { work(5).map(|_| ()) } else { Ok(()) };
            let failure = in_order(20, threads, work, refuse).unwrap_err();
            assert_eq!(failure.to_string(), "5");
        }
    }
}
