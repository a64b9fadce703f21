//! A daemon that runs is asked by a socket beside its state. Whoever connects knows that
//! it runs, and takes no lock to find that out: a lock, held for a moment only, would turn
//! away a daemon that begins at that moment.

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

/// How often it is looked whether a signal has come.
const POLL: Duration = Duration::from_millis(200);

/// How long whoever asks may take to do so, or to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// No question has more bytes.
const LONGEST: u64 = 4096;

const SOCKET: &str = "socket";

/// The socket's path by way of an open directory: the address of a socket has at most
/// 108 bytes (unix(7)).
fn address(store: &Store) -> Result<(File, PathBuf), Error> {
    let dir = store.open()?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    Ok((dir, path.into()))
}

/// What a daemon is asked.
pub(crate) struct Requests {
    listener: UnixListener,
    /// Where the socket is, to be removed.
    path: PathBuf,
    /// What must wait until it has done what it does.
    waiting: VecDeque<Asked>,
}

/// A question, and who waits for the answer.
pub(crate) struct Asked {
    pub(crate) question: Value,
    stream: UnixStream,
}

impl Asked {
    fn read(mut stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut text = Vec::new();
        (&mut stream).take(LONGEST).read_to_end(&mut text)?;
        Ok(Self { question: serde_json::from_slice(&text)?, stream })
    }

    /// Answers. Whoever asked may have gone, which is no error of ours.
    pub(crate) fn answer(mut self, value: &Value) {
        let _ = self.stream.write_all(value.to_string().as_bytes());
    }
}

impl Requests {
    /// Begins to listen; the caller has the lock of `store`, so that a socket that is
    /// there is one of a daemon that was killed.
    pub(crate) fn new(store: &Store) -> Result<Self, Error> {
        let path = store.path(SOCKET);
        let failed = |error| Error::io(path.display(), &error);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let (_dir, address) = address(store)?;
        let listener = UnixListener::bind(address).map_err(failed)?;
        // Whatever the umask is: who may move files is for root to say.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, path, waiting: VecDeque::new() })
    }

    /// Who has connected, and asks something that can be understood.
    fn accept(&self) -> Option<Asked> {
        loop {
            let (stream, _) = self.listener.accept().ok()?;
            if let Ok(asked) = Asked::read(stream) {
                return Some(asked);
            }
        }
    }

    /// What is asked next.
    pub(crate) fn next(&mut self) -> Option<Asked> {
        self.waiting.pop_front().or_else(|| self.accept())
    }

    /// While work is done: tells those who ask for the state that it is kept, as it was
    /// when the work began. Others wait.
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

/// A daemon that runs.
pub struct Running(UnixStream);

impl Running {
    /// The daemon of `store`'s volume; `None` when none runs.
    ///
    /// # Errors
    /// What the system says.
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

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When the daemon ends before, or a signal comes.
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
                // An answer that is cut off is none.
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
