//! Work without the lock of the interpreter, which signals and callbacks stop.

use crate::{errors, messages};
use pyo3::prelude::*;
use seekless::{ByteLen, Error, Progress, Stop};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time until the first look at signals and progress; each later one takes twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The most time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The time that work has to end after a request to stop.
const GRACE: Duration = Duration::from_millis(500);

/// The fate of work that is interrupted.
pub(crate) enum Interrupted {
    /// It stops, and its output does not appear. The thread is left behind if it has not ended in
    /// [`GRACE`]: it ends at its next access to the output, or to the image that is checked.
    Stops(Stop),
    /// It only reads: its thread is left behind, and its result is dropped.
    IsLeft,
    /// It changes an image in place, and is waited for.
    Completes,
}

/// Progress that a callback of Python gets, as `progress(done, total)`.
pub(crate) struct Watched {
    callback: Option<Py<PyAny>>,
    counter: Arc<Counter>,
}

#[derive(Default)]
struct Counter {
    total: AtomicU64,
    done: AtomicU64,
}

impl Progress for Counter {
    fn begin(&self, total: ByteLen) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total.get(), Ordering::Relaxed);
    }

    fn advance(&self, bytes: ByteLen) {
        self.done.fetch_add(bytes.get(), Ordering::Relaxed);
    }

    fn reach(&self, bytes: ByteLen) {
        self.done.store(bytes.get(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.done.store(self.total.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Watched {
    pub(crate) fn by(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, counter: Arc::default() }
    }

    /// The observer for the work.
    pub(crate) fn observer(&self) -> Arc<dyn Progress> {
        self.counter.clone()
    }

    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let Some(callback) = &self.callback else { return Ok(()) };
        let total = self.counter.total.load(Ordering::Relaxed);
        if total > 0 {
            let done = self.counter.done.load(Ordering::Relaxed).min(total);
            callback.call1(py, (done, total))?;
        }
        Ok(())
    }
}

/// Does short work without the lock.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    let done = py.detach(work);
    messages::log(py)?;
    done.map_err(|error| errors::raise(py, &error))
}

/// Does work in a thread, as [`run_watched`], that tells no progress.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    interrupted: Interrupted,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    run_watched(py, interrupted, &Watched::by(None), work)
}

/// Does work in a thread. Meanwhile this thread handles signals and tells the progress: an exception
/// of either interrupts the work.
pub(crate) fn run_watched<T: Send + 'static>(
    py: Python<'_>,
    interrupted: Interrupted,
    watched: &Watched,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().spawn(move || {
        // The receiver is dropped where the work is left behind.
        let _ = sender.send(work());
    });
    let thread = thread.map_err(|error| errors::raise(py, &Error::io("a thread", &error)))?;
    let mut running = Running { receiver, thread };
    let mut pause = FIRST_PAUSE;
    loop {
        let (back, received) = wait(py, running, pause);
        running = back;
        pause = LONGEST_PAUSE.min(pause * 2);
        match received {
            Ok(done) => {
                messages::log(py)?;
                let done = done.map_err(|error| errors::raise(py, &error))?;
                watched.tell(py)?;
                return Ok(done);
            }
            Err(RecvTimeoutError::Disconnected) => running.panic(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(exception) = py.check_signals().and_then(|()| watched.tell(py)) {
            end(py, running, &interrupted);
            messages::log(py)?;
            return Err(exception);
        }
    }
}

struct Running<T> {
    receiver: Receiver<Result<T, Error>>,
    thread: JoinHandle<()>,
}

impl<T> Running<T> {
    /// Continues the panic of the thread in this one, where it becomes an exception.
    fn panic(self) -> ! {
        match self.thread.join() {
            Err(payload) => panic::resume_unwind(payload),
            Ok(()) => unreachable!("the thread has sent its result"),
        }
    }
}

type Received<T> = Result<Result<T, Error>, RecvTimeoutError>;

/// Waits for the result without the lock.
fn wait<T: Send>(py: Python<'_>, running: Running<T>, most: Duration) -> (Running<T>, Received<T>) {
    py.detach(move || {
        let received = running.receiver.recv_timeout(most);
        (running, received)
    })
}

/// Ends work whose result is not wanted any more.
fn end<T: Send>(py: Python<'_>, running: Running<T>, interrupted: &Interrupted) {
    let wait = match interrupted {
        Interrupted::Stops(stop) => {
            stop.stop();
            Some(GRACE)
        }
        Interrupted::IsLeft => return,
        Interrupted::Completes => None,
    };
    py.detach(move || match wait {
        Some(most) => drop(running.receiver.recv_timeout(most)),
        None => drop(running.receiver.recv()),
    });
}
