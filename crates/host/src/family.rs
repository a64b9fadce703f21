//! A program with all its descendants: the kernel reparents orphans to the nearest ancestor that
//! asked for them (`PR_SET_CHILD_SUBREAPER`, prctl(2)), here this process.

use crate::{HostError, program};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Interval of polling for ended processes.
const POLL: Duration = Duration::from_millis(1);

/// Time that processes have to end after a signal that they can handle.
const GRACE: Duration = Duration::from_secs(2);

/// Time that processes have to end after SIGKILL. A process that waits for a device ends when the
/// device answers.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// A running program in a process group of its own. Dropping this kills the program and all that it
/// has started; if this process dies, the kernel kills only the program itself.
#[derive(Debug)]
pub struct Family {
    program: Child,
    /// Children of this process that existed before, outside of the family.
    others: BTreeSet<u32>,
}

impl Family {
    /// Starts a program. The calling thread must live as long as the program should: the program
    /// dies with the thread.
    ///
    /// # Errors
    /// If there is no such program, or it cannot be executed.
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

    /// The program's standard output and standard error, if they are pipes; `None` after the first
    /// call.
    pub fn pipes(
        &mut self,
    ) -> (Option<std::process::ChildStdout>, Option<std::process::ChildStderr>) {
        (self.program.stdout.take(), self.program.stderr.take())
    }

    /// The exit status of the program, if it has ended.
    ///
    /// # Errors
    /// The system call's error.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>, HostError> {
        self.program.try_wait().map_err(|error| HostError::new("waiting for the program", error))
    }

    /// Asks the program's process group to end (SIGTERM), waits for two seconds at most, and kills
    /// the remaining processes as [`Family::end`] does.
    ///
    /// # Errors
    /// As for [`Family::end`].
    pub fn stop(mut self) -> Result<(), HostError> {
        // The group has the program's number until the program is waited for.
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

    /// Kills the program and all that it has started, and waits for them. Returns the names of the
    /// processes that were running, without the program itself, in order of their process numbers.
    ///
    /// # Errors
    /// If some do not end: they wait for a device, or start others faster than those can be killed.
    pub fn end(mut self) -> Result<Vec<String>, HostError> {
        self.kill_all()
    }

    fn kill_all(&mut self) -> Result<Vec<String>, HostError> {
        let mut left = BTreeMap::new();
        let since = Instant::now();
        loop {
            // Only children are killed, since their numbers cannot be reused before they are waited
            // for. Their children become ours as they end.
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
    /// It has ended and must be waited for (a zombie).
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
        // Processes that have gone meanwhile were waited for by their parent.
        let Ok(stat) = fs::read(entry.path().join("stat")) else { continue };
        if let Some((process, of)) = parse(&stat)
            && of == parent
        {
            found.insert(pid, process);
        }
    }
    Ok(found)
}

/// Parses a process and its parent from `pid (name) state ppid ...`; the name may contain any byte.
fn parse(stat: &[u8]) -> Option<(Process, u32)> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let mut fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((Process { name, ended }, fields.next()?.parse().ok()?))
}

/// Held by tests that have children: the end of a family kills all children of this process.
#[cfg(test)]
pub(crate) static CHILDREN: std::sync::Mutex<()> = std::sync::Mutex::new(());

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

    /// One test: two families would claim all children of this process.
    #[test]
    fn a_family_ends_to_the_last_process() {
        let _children = CHILDREN.lock();
        let mut other = Command::new("sleep").arg("100").spawn().unwrap();
        // One process in a session of its own whose parent ends, and one whose parent waits.
        let script = "(setsid sleep 100 &) ; sh -c 'sleep 101; :' & exit 3";
        let mut family = Family::start(Command::new("sh").args(["-c", script])).unwrap();
        let status = loop {
            if let Some(status) = family.poll().unwrap() {
                break status;
            }
            std::thread::sleep(POLL);
        };
        assert_eq!(status.code(), Some(3));
        // The last shell may not have executed its program yet and still has its own name.
        let left = family.end().unwrap();
        assert!((2..=4).contains(&left.len()), "{left:?}");
        assert!(left.iter().all(|name| ["sh", "sleep", "setsid"].contains(&&**name)), "{left:?}");
        let mut rest = children().unwrap();
        assert!(rest.remove(&other.id()).is_some_and(|child| !child.ended));
        assert!(rest.is_empty());

        // The program has no terminal: opening it fails, and stops nothing.
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
