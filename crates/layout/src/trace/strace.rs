//! Traces from the output of `strace`.
//!
//! `strace -f -tt` or `-ttt`, with or without `-y` and `-o`. File descriptors
//! and working directories are followed through `dup`, `clone`, `chdir` and
//! the rest; where `-y` names a descriptor's path, that is believed.

mod line;

use super::{Event, Op, TraceError, below, normal};
use line::{Call, Lines};
use seekless_units::Nanos;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::BufRead;
use std::rc::Rc;

/// How to read the output.
#[derive(Clone, Debug, Default)]
pub struct StraceOptions {
    /// The directory of the host that is the image's root; calls outside of it are left out.
    pub root: Option<Vec<u8>>,
    /// The working directory of the first process.
    pub cwd: Option<Vec<u8>>,
}

/// Reads the output of `strace`. Lines that are no system calls (signals, exits) and calls that
/// touch no file are skipped.
///
/// # Errors
/// When the input cannot be read.
pub fn read_strace(input: impl BufRead, options: &StraceOptions) -> Result<Vec<Event>, TraceError> {
    let mut replay = StraceReplay::new(options);
    let mut lines = Lines::new(input);
    while let Some(call) = lines.next_call()? {
        replay.call(&call);
    }
    Ok(replay.events)
}

/// An open file: where it is read next.
#[derive(Clone, Debug)]
struct Opened {
    path: Vec<u8>,
    /// Shared by duplicates.
    offset: Rc<RefCell<u64>>,
}

type Files = Rc<RefCell<HashMap<i64, Opened>>>;

#[derive(Clone, Debug)]
struct Process {
    cwd: Rc<RefCell<Vec<u8>>>,
    files: Files,
}

/// The state of the traced processes while their calls are read.
struct StraceReplay {
    root: Vec<u8>,
    first_cwd: Vec<u8>,
    processes: HashMap<u32, Process>,
    events: Vec<Event>,
}

const AT_FDCWD: i64 = -100;

impl StraceReplay {
    fn new(options: &StraceOptions) -> Self {
        Self {
            root: options.root.as_deref().map_or_else(|| b"/".to_vec(), normal),
            first_cwd: options.cwd.clone().unwrap_or_else(|| b"/".to_vec()),
            processes: HashMap::new(),
            events: Vec::new(),
        }
    }

    fn process(&mut self, pid: u32) -> Process {
        let cwd = &self.first_cwd;
        let new = || Process { cwd: Rc::new(RefCell::new(cwd.clone())), files: Files::default() };
        self.processes.entry(pid).or_insert_with(new).clone()
    }

    fn event(&mut self, call: &Call, op: Op, path: &[u8]) -> Option<&mut Event> {
        let path = below(path, &self.root)?.to_vec();
        self.events.push(Event::new(Nanos::new(call.time), op, path).by(call.pid));
        self.events.last_mut()
    }

    fn call(&mut self, call: &Call) {
        let process = self.process(call.pid);
        match call.name.as_str() {
            "open" | "creat" => self.open(call, &process, AT_FDCWD, call.text(0)),
            "openat" | "openat2" => self.open(call, &process, call.number(0), call.text(1)),
            "execve" => self.at(call, &process, Op::Exec, AT_FDCWD, call.text(0)),
            "execveat" => self.at(call, &process, Op::Exec, call.number(0), call.text(1)),
            "stat" | "lstat" | "access" | "stat64" | "lstat64" => {
                self.at(call, &process, Op::Stat, AT_FDCWD, call.text(0));
            }
            "newfstatat" | "fstatat64" | "statx" | "faccessat" | "faccessat2" => {
                self.at(call, &process, Op::Stat, call.number(0), call.text(1));
            }
            "readlink" => self.at(call, &process, Op::Readlink, AT_FDCWD, call.text(0)),
            "readlinkat" => self.at(call, &process, Op::Readlink, call.number(0), call.text(1)),
            "fstat" | "fstat64" => self.on_file(call, &process, Op::Stat, 0),
            "getdents" | "getdents64" => self.on_file(call, &process, Op::Readdir, 0),
            "read" | "readv" => self.sequential(call, &process, 0),
            "sendfile" | "sendfile64" if call.is_null(2) => self.sequential(call, &process, 1),
            "pread64" | "preadv" | "preadv2" => {
                self.range(call, &process, 0, call.number(3), call.result);
            }
            "mmap" | "mmap2" => {
                self.mapped(call, &process);
            }
            _ => self.bookkeeping(call, &process),
        }
    }

    /// Calls that move descriptors and directories about.
    fn bookkeeping(&mut self, call: &Call, process: &Process) {
        if call.result < 0 {
            return;
        }
        match call.name.as_str() {
            "clone" | "clone3" | "fork" | "vfork" => self.spawn(call, process),
            "chdir" => {
                if let Some(path) = call.text(0) {
                    let path = resolve(process, AT_FDCWD, None, path);
                    if let Some(path) = path {
                        *process.cwd.borrow_mut() = path;
                    }
                }
            }
            "fchdir" => {
                let path = self.file(call, process, 0).map(|file| file.path);
                if let Some(path) = path {
                    *process.cwd.borrow_mut() = path;
                }
            }
            "dup" | "dup2" | "dup3" => self.duplicate(call, process),
            "fcntl" | "fcntl64" if call.is_word(1, "F_DUPFD") => self.duplicate(call, process),
            "close" => drop(process.files.borrow_mut().remove(&call.number(0))),
            "lseek" | "_llseek" => {
                if let Some(file) = self.file(call, process, 0) {
                    *file.offset.borrow_mut() = call.result as u64;
                }
            }
            _ => {}
        }
    }

    fn spawn(&mut self, call: &Call, process: &Process) {
        let Ok(pid) = u32::try_from(call.result) else { return };
        let (shares_files, shares_cwd) = (call.mentions("CLONE_FILES"), call.mentions("CLONE_FS"));
        let copy = || Rc::new(RefCell::new(process.files.borrow().clone()));
        let files = if shares_files { process.files.clone() } else { copy() };
        let cwd = || Rc::new(RefCell::new(process.cwd.borrow().clone()));
        let cwd = if shares_cwd { process.cwd.clone() } else { cwd() };
        self.processes.insert(pid, Process { cwd, files });
    }

    fn duplicate(&mut self, call: &Call, process: &Process) {
        if let Some(file) = self.file(call, process, 0) {
            process.files.borrow_mut().insert(call.result, file);
        }
    }

    /// The file that argument `at` is a descriptor of.
    fn file(&self, call: &Call, process: &Process, at: usize) -> Option<Opened> {
        let mut files = process.files.borrow_mut();
        let fd = call.number(at);
        match call.fd_path(at) {
            Some(path) if path.starts_with(b"/") => {
                let stale = files.get(&fd).is_none_or(|known| known.path != path);
                if stale {
                    files.insert(fd, Opened { path: path.to_vec(), offset: Rc::default() });
                }
            }
            // A pipe or socket.
            Some(_) => return None,
            None => {}
        }
        files.get(&fd).cloned()
    }

    fn open(&mut self, call: &Call, process: &Process, dir: i64, path: Option<&[u8]>) {
        self.at(call, process, Op::Open, dir, path);
        if call.result < 0 {
            return;
        }
        let known = call.result_path.clone().filter(|path| path.starts_with(b"/"));
        let resolved = || resolve(process, dir, call.fd_path(0), path?);
        if let Some(path) = known.or_else(resolved) {
            process.files.borrow_mut().insert(call.result, Opened { path, offset: Rc::default() });
        }
    }

    /// Something done to a path relative to a directory.
    fn at(&mut self, call: &Call, process: &Process, op: Op, dir: i64, path: Option<&[u8]>) {
        let Some(path) = path.and_then(|path| resolve(process, dir, call.fd_path(0), path)) else {
            return;
        };
        if call.result >= 0 {
            self.event(call, op, &path);
        } else if call.error.as_deref() == Some("ENOENT")
            && let Some(event) = self.event(call, Op::Lookup, &path)
        {
            event.missing = true;
        }
    }

    fn on_file(&mut self, call: &Call, process: &Process, op: Op, at: usize) {
        if let Some(file) = self.file(call, process, at).filter(|_| call.result >= 0) {
            self.event(call, op, &file.path);
        }
    }

    fn range(&mut self, call: &Call, process: &Process, at: usize, offset: i64, length: i64) {
        let (Ok(offset), Ok(length)) = (u64::try_from(offset), u64::try_from(length)) else {
            return;
        };
        let Some(file) = self.file(call, process, at).filter(|_| length > 0) else { return };
        if let Some(event) = self.event(call, Op::Read, &file.path) {
            (event.offset, event.length) = (offset, Some(length));
        }
    }

    /// A read from the descriptor's offset.
    fn sequential(&mut self, call: &Call, process: &Process, at: usize) {
        let Some(file) = self.file(call, process, at) else { return };
        let offset = *file.offset.borrow();
        self.range(call, process, at, offset as i64, call.result);
        *file.offset.borrow_mut() = offset + call.result.max(0) as u64;
    }

    fn mapped(&mut self, call: &Call, process: &Process) -> Option<()> {
        if call.error.is_some() || call.mentions("MAP_ANONYMOUS") {
            return None;
        }
        let file = self.file(call, process, 4)?;
        let (offset, length) = (call.number(5).max(0) as u64, call.number(1).max(0) as u64);
        let event = self.event(call, Op::Mmap, &file.path)?;
        (event.offset, event.length) = (offset, Some(length));
        Some(())
    }
}

/// A path relative to the directory that descriptor `dir` stands for, whose
/// path may have been printed with it.
fn resolve(process: &Process, dir: i64, dir_path: Option<&[u8]>, path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return Some(normal(path));
    }
    let base = match dir_path.filter(|path| path.starts_with(b"/")) {
        Some(known) => known.to_vec(),
        None if dir == AT_FDCWD => process.cwd.borrow().clone(),
        None => process.files.borrow().get(&dir)?.path.clone(),
    };
    Some(normal(&[base.as_slice(), path].join(&b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, root: &str) -> Vec<String> {
        let options = StraceOptions { root: Some(root.into()), cwd: Some(b"/r/home".to_vec()) };
        let events = read_strace(text.as_bytes(), &options).unwrap();
        let show = |event: &Event| {
            let path = String::from_utf8_lossy(&event.path).into_owned();
            let missing = if event.missing { " missing" } else { "" };
            let range = event.length.map(|length| format!(" {}+{length}", event.offset));
            let range = range.unwrap_or_default();
            format!("{} {} {path}{range}{missing}", event.pid, event.op.name())
        };
        events.iter().map(show).collect()
    }

    #[test]
    fn descriptors_and_directories_are_followed() {
        let text = r#"
10 10:00:00.000001 execve("/r/bin/x", ["x", "a,b)"], 0x7ffd /* 3 vars */) = 0
10 10:00:00.000002 openat(AT_FDCWD, "a b", O_RDONLY|O_CLOEXEC) = 3
10 10:00:00.000003 read(3, "\177ELF\"), = 7"..., 832) = 832
10 10:00:00.000004 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 11
11 10:00:00.000005 read(3,  <unfinished ...>
10 10:00:00.000006 pread64(3, ""..., 100, 4096) = 50
11 10:00:00.000007 <... read resumed>"abc", 10) = 3
11 10:00:00.000008 chdir("/r/etc") = 0
11 10:00:00.000009 open("gone", O_RDONLY) = -1 ENOENT (No such file or directory)
10 10:00:00.000010 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0x1000) = 0x7f0000000000
10 10:00:00.000011 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f1
10 10:00:00.000012 dup2(3, 7) = 7
10 10:00:00.000013 close(3) = 0
10 10:00:00.000014 lseek(7, 10, SEEK_SET) = 10
10 10:00:00.000015 read(7, "x", 1) = 1
10 10:00:00.000016 read(3, "x", 1) = -1 EBADF (Bad file descriptor)
10 10:00:00.000017 stat("/elsewhere", {st_mode=S_IFREG|0644, st_size=1, ...}) = 0
10 10:00:00.000018 newfstatat(7, "", {st_mode=S_IFDIR}, AT_EMPTY_PATH) = 0
10 10:00:00.000019 +++ exited with 0 +++
"#;
        assert_eq!(
            shown(text, "/r"),
            [
                "10 exec /bin/x",
                "10 open /home/a b",
                "10 read /home/a b 0+832",
                "10 read /home/a b 4096+50",
                "11 read /home/a b 832+3",
                "11 lookup /etc/gone missing",
                "10 mmap /home/a b 4096+8192",
                "10 read /home/a b 10+1",
                "10 stat /home/a b",
            ]
        );
    }

    #[test]
    fn paths_of_descriptors_are_believed() {
        let text = r#"
[pid    5] 1700000000.5 openat(4</r/d e>, "f", O_RDONLY) = 6</r/d e/f>
[pid    5] 1700000000.6 getdents64(4</r/d e>, 0x55 /* 3 entries */, 32768) = 80
[pid    5] 1700000000.7 read(6</r/d e/f>, ""..., 10) = 10
[pid    5] 1700000000.8 read(8<pipe:[123]>, ""..., 10) = 10
[pid    5] 1700000000.9 openat(AT_FDCWD</r/w>, "h\303\244", O_RDONLY) = 9</r/w/h\303\244>
"#;
        assert_eq!(
            shown(text, "/r"),
            ["5 open /d e/f", "5 readdir /d e", "5 read /d e/f 0+10", "5 open /w/h\u{e4}"]
        );
    }

    #[test]
    fn times_count_from_the_first_and_pass_midnight() {
        let text = "23:59:59.5 access(\"/a\", R_OK) = 0\n00:00:00.25 access(\"/b\", R_OK) = 0\n";
        let events = read_strace(text.as_bytes(), &StraceOptions::default()).unwrap();
        let times: Vec<u64> = events.iter().map(|event| event.time.get()).collect();
        assert_eq!(times, [0, 750_000_000]);
    }
}
