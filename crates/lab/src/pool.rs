//! Several runs at once, on as many threads as are wanted.

use crate::LabError;
use crate::experiment::Experiment;
use crate::run::{Run, RunId, perform};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Does all runs, `jobs` at a time, and hands each over when it is over, in the order in which they
/// end. The first failure ends it; runs under way then are finished and handed over first.
///
/// # Errors
/// As [`perform`].
pub fn perform_all(
    experiment: &Experiment,
    digest: &str,
    ids: &[RunId],
    jobs: usize,
    mut over: impl FnMut(Run),
) -> Result<(), LabError> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, ids.len().max(1)) {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = perform(experiment, digest, id, None);
                    if result.is_err() {
                        // No thread takes up another.
                        next.store(ids.len(), Ordering::Relaxed);
                    }
                    if sender.send(result).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut failed = Ok(());
        for result in receiver {
            match result {
                Ok(run) => over(run),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    })
}
