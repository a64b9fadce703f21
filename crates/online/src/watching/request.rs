//! Requests to a running daemon use a socket beside its state. A connection proves that the daemon
//! runs, without taking a lock: a lock, taken for a moment only, would refuse a daemon that starts
//! at that moment.

use super::store::Store;
use seekless_images::{Error, ErrorKind};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// Interval of checks for signals.
const POLL: Duration = Duration::from_millis(200);

/// Time limit for a client to send its request or receive the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum length of a request in bytes.
const LONGEST: u64 = 4096;

const SOCKET: &str = "socket";

/// The socket's path through an open directory: the address of a socket has at most 108 bytes
/// (unix(7)).
fn address(store: &Store) -> Result<(File, PathBuf), Error> {
    let dir = store.open()?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    Ok((dir, path.into()))
}

/// The requests to a daemon.
pub(crate) struct Requests {
    listener: UnixListener,
    /// The path of the socket, to remove it.
    path: PathBuf,
    /// Requests that wait until the current work is done.
    waiting: VecDeque<PendingRequest>,
}

/// A request that waits for its answer, with the connection.
pub(crate) struct PendingRequest {
    pub(crate) question: Value,
    stream: UnixStream,
}

impl PendingRequest {
    fn read(mut stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut text = Vec::new();
        (&mut stream).take(LONGEST).read_to_end(&mut text)?;
        Ok(Self { question: serde_json::from_slice(&text)?, stream })
    }

    /// Sends the answer. The client may have gone, which is no error.
    pub(crate) fn answer(mut self, value: &Value) {
        let _ = self.stream.write_all(value.to_string().as_bytes());
    }
}

impl Requests {
    /// Begins to listen. The caller has the lock of `store`, so an existing socket belongs to a
    /// daemon that was killed.
    pub(crate) fn new(store: &Store) -> Result<Self, Error> {
        let path = store.path(SOCKET);
        let failed = |error| Error::io(path.display(), &error);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let (_dir, address) = address(store)?;
        let listener = UnixListener::bind(address).map_err(failed)?;
        // Whatever the umask is: only root may have files moved.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, path, waiting: VecDeque::new() })
    }

    /// Accepts the next connection with a valid request.
    fn accept(&self) -> Option<PendingRequest> {
        loop {
            let (stream, _) = self.listener.accept().ok()?;
            if let Ok(asked) = PendingRequest::read(stream) {
                return Some(asked);
            }
        }
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Option<PendingRequest> {
        self.waiting.pop_front().or_else(|| self.accept())
    }

    /// During work: answers requests to save at once, since the state was saved when the work
    /// began. Others wait.
    pub(crate) fn meanwhile(&mut self) {
        while let Some(asked) = self.accept() {
            if asked.question["what"] == "save" {
                asked.answer(&json!({}));
            } else {
                self.waiting.push_back(asked);
            }
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A running daemon.
pub struct Running(UnixStream);

impl Running {
    /// The daemon of `store`'s volume; `None` if none runs.
    ///
    /// # Errors
    /// The system call's error.
    pub fn find(store: &Store) -> Result<Option<Self>, Error> {
        let (_dir, address) = address(store)?;
        match UnixStream::connect(address) {
            Ok(stream) => Ok(Some(Self(stream))),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(Error::io(store.path(SOCKET).display(), &error)),
            },
        }
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// If the daemon ends before, or a signal arrives.
    pub fn ask(self, question: &Value, signals: &mut Signals) -> Result<Value, Error> {
        let Self(mut stream) = self;
        let gone = || Error::new(ErrorKind::System, "the daemon has ended before it answered");
        stream.set_read_timeout(Some(POLL)).map_err(|error| Error::io("socket", &error))?;
        stream.write_all(question.to_string().as_bytes()).map_err(|_| gone())?;
        stream.shutdown(Shutdown::Write).map_err(|_| gone())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            if let Some(signal) = signals.pending().next() {
                return Err(Error::interrupted(signal));
            }
            match stream.read(&mut buffer) {
                // A truncated answer is invalid.
                Ok(0) => return serde_json::from_slice(&answer).map_err(|_| gone()),
                Ok(count) => answer.extend_from_slice(&buffer[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Err(gone()),
                },
            }
        }
    }
}
