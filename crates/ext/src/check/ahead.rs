//! Work of a pass that needs only the volume, done ahead on another thread.

use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Results that wait for the pass.
const QUEUED: usize = 1;

/// Calls `consume` with each item in order, while the next ones are produced on another thread. If
/// `is_sequential`, or where there is no other thread, both take turns on this one.
///
/// # Errors
/// Those of `consume`.
pub(super) fn ahead<T: Send, E>(
    is_sequential: bool,
    items: impl Iterator<Item = T> + Send,
    mut consume: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    // Taken by the thread, if there is one.
    let items = Mutex::new(Some(items));
    let take = || items.lock().unwrap_or_else(PoisonError::into_inner).take();
    thread::scope(|scope| {
        let (send, receive) = sync_channel(QUEUED);
        // The pass may have ended with an error.
        let produce =
            move || take().into_iter().flatten().try_for_each(|item| send.send(item)).ok();
        let is_alone = || thread::available_parallelism().map_or(1, usize::from) == 1;
        if is_sequential
            || is_alone()
            || thread::Builder::new().spawn_scoped(scope, produce).is_err()
        {
            return take().into_iter().flatten().try_for_each(&mut consume);
        }
        receive.into_iter().try_for_each(&mut consume)
    })
}
