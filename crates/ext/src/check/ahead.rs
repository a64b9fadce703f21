//! Work of a pass that needs only the volume, done ahead on another thread.

use std::sync::mpsc::sync_channel;
use std::thread;

/// Results that wait for the pass.
const QUEUED: usize = 2;

/// Calls `consume` with each item in order, while the next ones are produced on another thread. Where
/// there is none to be had, both take turns on this one.
///
/// # Errors
/// Those of `consume`.
pub(super) fn ahead<T: Send, E>(
    items: impl Iterator<Item = T> + Send,
    mut consume: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    if thread::available_parallelism().map_or(1, usize::from) == 1 {
        return items.into_iter().try_for_each(consume);
    }
    thread::scope(|scope| {
        let (send, receive) = sync_channel(QUEUED);
        // The pass may have ended with an error.
        scope.spawn(move || items.into_iter().try_for_each(|item| send.send(item)).ok());
        receive.into_iter().try_for_each(&mut consume)
    })
}
