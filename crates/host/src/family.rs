//! A program with all that it starts, to the last process: the kernel hands
//! orphans to the nearest ancestor that asked for them
//! (`PR_SET_CHILD_SUBREAPER`, prctl(2)), which is this process.

use crate::{HostError, program};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Between two looks at whether processes have ended.
const POLL: Duration = Duration::from_millis(1);

/// How long processes may take to end after a signal that they can handle.
const GRACE: Duration = Duration::from_secs(2);

/// How long processes may take to end when they are killed. One that waits for a
/// device ends when the device answers.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// A running program in a process group of its own. When this is dropped, the
/// program and what it has started are killed; when this process dies, only the
/// program itself is.
#[derive(Debug)]
pub struct Family {
    program: Child,
    /// Children of this process that are no part of it.
    others: BTreeSet<u32>,
}

impl Family {
    /// Starts a program. The calling thread must live as long as the program
    /// shall: it dies with it.
    ///
    /// # Errors
    /// When there is no such program, or it cannot be executed.
    pub fn start(command: &mut Command) -> Result<Self, HostError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |error| HostError::new(&name, error);
        let own = Some(rustix::process::getpid());
        rustix::process::set_child_subreaper(own).map_err(|error| failed(error.into()))?;
        let others = children()?.into_keys().collect();
        program::tie(command);
        program::lead_session(command);
        let program = command.spawn().map_err(failed)?;
        Ok(Self { program, others })
    }

    /// The program's standard output and standard error, where they are pipes; the
    /// first time.
    pub fn pipes(
        &mut self,
    ) -> (Option<std::process::ChildStdout>, Option<std::process::ChildStderr>) {
        (self.program.stdout.take(), self.program.stderr.take())
    }

    /// How the program ended, if it has.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>, HostError> {
        self.program.try_wait().map_err(|error| HostError::new("waiting for the program", error))
    }

    /// Asks the program's process group to end (SIGTERM), waits for two seconds at
    /// most, and kills what is left as [`Family::end`] does.
    ///
    /// # Errors
    /// As for [`Family::end`].
    pub fn stop(mut self) -> Result<(), HostError> {
        // The group's number is the program's as long as nobody has waited for it.
        if self.poll()?.is_none() {
            let group = i32::try_from(self.program.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, Signal::TERM);
            }
            let since = Instant::now();
            while self.poll()?.is_none() && since.elapsed() < GRACE {
                std::thread::sleep(POLL);
            }
        }
        self.end().map(drop)
    }

    /// Kills the program and all that it has started, and waits for them. The names
    /// of those that were running, without the program itself, in order of their
    /// process numbers.
    ///
    /// # Errors
    /// When some do not end: they wait for a device, or start others faster than
    /// those can be killed.
    pub fn end(mut self) -> Result<Vec<String>, HostError> {
        self.kill_all()
    }

    fn kill_all(&mut self) -> Result<Vec<String>, HostError> {
        let mut left = BTreeMap::new();
        let since = Instant::now();
        loop {
            // Only children are killed, since nobody else can take their numbers
            // before they are waited for. Their children become ours as they end.
            let mut family = children()?;
            family.retain(|pid, _| !self.others.contains(pid));
            if family.is_empty() {
                return Ok(left.into_values().collect());
            }
            if since.elapsed() > KILL_GRACE {
                let busy = std::io::Error::from(rustix::io::Errno::BUSY);
                return Err(HostError::new(
                    format!("{} processes that were killed have not ended", family.len()),
                    busy,
                ));
            }
            for (pid, process) in family {
                self.kill(pid, process, &mut left)?;
            }
            std::thread::sleep(POLL);
        }
    }

    fn kill(
        &mut self,
        pid: u32,
        process: Process,
        left: &mut BTreeMap<u32, String>,
    ) -> Result<(), HostError> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        if !process.ended {
            let _ = rustix::process::kill_process(raw, Signal::KILL);
        }
        if pid == self.program.id() {
            return self.poll().map(drop);
        }
        if !process.ended {
            left.entry(pid).or_insert(process.name);
        }
        let _ = rustix::process::waitpid(Some(raw), WaitOptions::NOHANG);
        Ok(())
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = self.kill_all();
        let _ = rustix::process::set_child_subreaper(None);
    }
}

/// A child of this process.
struct Process {
    name: String,
    /// It has ended and is to be waited for.
    ended: bool,
}

/// The children of this process, by their numbers (proc_pid_stat(5)).
fn children() -> Result<BTreeMap<u32, Process>, HostError> {
    let parent = std::process::id();
    let entries = fs::read_dir("/proc").map_err(|error| HostError::new("/proc", error))?;
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has gone in the meantime was waited for by its parent.
        let Ok(stat) = fs::read(entry.path().join("stat")) else { continue };
        if let Some((process, of)) = parse(&stat)
            && of == parent
        {
            found.insert(pid, process);
        }
    }
    Ok(found)
}

/// A process and its parent: `pid (name) state ppid ...`, whose name may hold
/// anything.
fn parse(stat: &[u8]) -> Option<(Process, u32)> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let mut fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((Process { name, ended }, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let (process, parent) = parse(b"12 (a) Z 1 (b) S 34 12 12").unwrap();
        assert_eq!((process.name.as_str(), process.ended, parent), ("a) Z 1 (b", false, 34));
        assert!(parse(b"12 (a) Z 7").unwrap().0.ended);
        assert!(parse(b"12 a Z 7").is_none());
    }

    /// One test: all children of this process would belong to either of two.
    #[test]
    fn a_family_ends_to_the_last_process() {
        let mut other = Command::new("sleep").arg("100").spawn().unwrap();
        // One in a session of its own, whose parent ends; one whose parent waits.
        let script = "(setsid sleep 100 &) ; sh -c 'sleep 101; :' & exit 3";
        let mut family = Family::start(Command::new("sh").args(["-c", script])).unwrap();
        let status = loop {
            if let Some(status) = family.poll().unwrap() {
                break status;
            }
            std::thread::sleep(POLL);
        };
        assert_eq!(status.code(), Some(3));
        // The shell that ran last may have come to nothing but its own name yet.
        let left = family.end().unwrap();
        assert!((2..=4).contains(&left.len()), "{left:?}");
        assert!(left.iter().all(|name| ["sh", "sleep", "setsid"].contains(&&**name)), "{left:?}");
        let mut rest = children().unwrap();
        assert!(rest.remove(&other.id()).is_some_and(|child| !child.ended));
        assert!(rest.is_empty());

        // It has no terminal: asking for one fails, and stops nothing.
        let script = "read -r pid name state parent group session rest </proc/self/stat; \
                      [ $session = $$ ] && ! true </dev/tty";
        let mut family = Family::start(Command::new("sh").args(["-c", script])).unwrap();
        let status = loop {
            if let Some(status) = family.poll().unwrap() {
                break status;
            }
            std::thread::sleep(POLL);
        };
        assert_eq!(status.code(), Some(0));
        family.end().unwrap();

        let family = Family::start(Command::new("sleep").arg("100")).unwrap();
        family.stop().unwrap();
        assert_eq!(children().unwrap().len(), 1);

        let missing = Family::start(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(missing.to_string().starts_with("/no/such/program: "), "{missing}");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
