//! A server that answers as a test wants it, in HTTP/1.1 without TLS, one request per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// The first byte that is wanted.
    pub(crate) start: Option<usize>,
    pub(crate) authorization: Option<String>,
}

/// An answer.
pub(crate) enum Answer {
    /// A status, headers and a body.
    Is(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// The first bytes of a body of this length, and the end of the connection.
    Cut(Vec<u8>, usize),
    /// As `Cut`, from a byte on: a part that was asked for.
    Part(Vec<u8>, usize),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// The first bytes of a body of this length, and nothing more.
    Stall(Vec<u8>, usize),
    /// A body of this length, ten bytes in a second.
    Trickle(usize),
    /// Nothing.
    Silence,
}

impl Answer {
    pub(crate) fn ok(kind: &str, body: &[u8]) -> Self {
        Self::Is(200, vec![("Content-Type", kind.into())], body.to_vec())
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Is(status, Vec::new(), Vec::new())
    }
}

/// A server, which ends with the process.
pub(crate) struct Server {
    /// Host and port.
    pub(crate) host: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Request, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let host = listener.local_addr().expect("address").to_string();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (seen, answer, own) = (requests.clone(), Arc::new(answer), host.clone());
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (seen, answer, own) = (seen.clone(), answer.clone(), own.clone());
                thread::spawn(move || {
                    let Some(request) = read(&connection) else { return };
                    seen.lock().expect("no panic").push(request.clone());
                    // A client that is gone does not matter.
                    let _ = write(connection, answer(&request, &own));
                });
            }
        });
        Self { host, requests }
    }

    /// The requests so far, but those that only look for the protocol.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|request| request.path != "/v2/").cloned().collect()
    }
}

/// A request; `None` for the greeting of TLS.
fn read(connection: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(connection.take(1 << 16));
    if lines.fill_buf().ok()?.first() == Some(&0x16) {
        return None;
    }
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let mut request = Request { path: line.split(' ').nth(1)?.to_string(), ..Request::default() };
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { return Some(request) };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = Some(value.into()),
            "range" => {
                let start = value.strip_prefix("bytes=")?.strip_suffix('-')?;
                request.start = Some(start.parse().ok()?);
            }
            _ => {}
        }
    }
}

fn write(mut to: TcpStream, answer: Answer) -> std::io::Result<()> {
    let head = |status: u16, len: usize| {
        format!("HTTP/1.1 {status} Status\r\nConnection: close\r\nContent-Length: {len}\r\n")
    };
    match answer {
        Answer::Is(status, headers, body) => {
            let mut text = head(status, body.len());
            for (name, value) in headers {
                text += &format!("{name}: {value}\r\n");
            }
            to.write_all(format!("{text}\r\n").as_bytes())?;
            to.write_all(&body)
        }
        Answer::Cut(body, len) => {
            to.write_all(format!("{}\r\n", head(200, len)).as_bytes())?;
            to.write_all(&body)
        }
        Answer::Part(body, start) => {
            let end = start + body.len();
            let range = format!("Content-Range: bytes {start}-{}/{end}\r\n", end - 1);
            to.write_all(format!("{}{range}\r\n", head(206, body.len())).as_bytes())?;
            to.write_all(&body)
        }
        Answer::Raw(bytes) => to.write_all(&bytes),
        Answer::Stall(body, len) => {
            to.write_all(format!("{}\r\n", head(200, len)).as_bytes())?;
            to.write_all(&body)?;
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Answer::Trickle(len) => {
            to.write_all(format!("{}\r\n", head(200, len)).as_bytes())?;
            for _ in 0..600 {
                to.write_all(b" ")?;
                thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
        Answer::Silence => {
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
    }
}
