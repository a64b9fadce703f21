//! Starting programs under observation, tying them to this process, and queries of processes.

use crate::HostError;
use rustix::process::{Pid, PidfdFlags};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

/// The calling thread's number.
#[must_use]
pub fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

/// Runs `before` on a new thread and then starts a program from it. The thread ends at once, so
/// that settings inherited by children (such as a filter that follows forks) apply to the program
/// alone. The program is killed when this process dies.
///
/// # Errors
/// The error of `before`; a failure to start the program.
pub fn spawn_from<E: From<HostError> + Send>(
    command: &[OsString],
    before: impl FnOnce(u32) -> Result<(), E> + Send,
) -> Result<Child, E> {
    let run = move || {
        before(thread_id())?;
        let (program, args) =
            command.split_first().map_or((None, &[][..]), |(program, args)| (Some(program), args));
        let program = program.cloned().unwrap_or_default();
        let failed = |error| HostError::new(program.to_string_lossy(), error);
        let mut command = Command::new(&program);
        command.args(args);
        command.spawn().map_err(|error| failed(error).into())
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Runs `work` on a thread of its own. The first program that it starts is PID 1 of a new process
/// namespace: when that program ends, the kernel kills all its descendants.
///
/// # Errors
/// Without the right to, and the error of `work`.
pub fn contained<T: Send, E: From<HostError> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let run = move || {
        let flags = rustix::thread::UnshareFlags::NEWPID;
        // SAFETY: nothing but the namespace of future children is unshared.
        unsafe { rustix::thread::unshare_unsafe(flags) }
            .map_err(|error| HostError::new("making a process namespace", error))?;
        work()
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Makes a program die with this process, however this process ends. Only the calling thread may
/// start the program, which would die with any other thread too.
pub fn tie(command: &mut Command) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the call above.
        match rustix::process::getppid() {
            Some(now) if now == parent => Ok(()),
            // The parent is outside of this process namespace.
            None => Ok(()),
            Some(_) => Err(std::io::Error::from(rustix::io::Errno::SRCH)),
        }
    };
    // SAFETY: between fork and exec only two system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(hook) };
}

/// Makes a program the leader of a new session. It has no terminal then: a program that asks for it
/// fails at once, instead of being stopped for being in the background.
pub fn lead_session(command: &mut Command) {
    let hook = || rustix::process::setsid().map(drop).map_err(std::io::Error::from);
    // SAFETY: between fork and exec only one system call is made, and nothing is
    // allocated.
    unsafe { command.pre_exec(hook) };
}

/// Makes a program see `root` as the root of all paths, its own included, and start there
/// (chroot(2)). This does not confine a program with the rights of root.
///
/// # Errors
/// If `root` contains a zero byte. Other failures are errors of starting the program.
pub fn change_root(command: &mut Command, root: &Path) -> Result<(), HostError> {
    let shown = || root.display().to_string();
    let dir = CString::new(root.as_os_str().as_bytes())
        .map_err(|error| HostError::new(shown(), std::io::Error::other(error)))?;
    let hook = move || {
        rustix::process::chroot(dir.as_c_str())?;
        Ok(rustix::process::chdir(c"/")?)
    };
    // SAFETY: between fork and exec only two system calls are made, and nothing
    // is allocated.
    unsafe { command.pre_exec(hook) };
    Ok(())
}

/// All threads of a process and of its descendants.
///
/// # Errors
/// When there is no such process.
pub fn threads_of(pid: u32) -> Result<Vec<u32>, HostError> {
    let mut threads = numbers(&format!("/proc/{pid}/task"))
        .map_err(|error| HostError::new(format!("process {pid}"), error))?;
    let mut at = 0;
    while let Some(&thread) = threads.get(at) {
        at += 1;
        // A thread that has ended has no children.
        let children = std::fs::read_to_string(format!("/proc/{thread}/task/{thread}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            threads.extend(numbers(&format!("/proc/{child}/task")).unwrap_or_default());
        }
    }
    Ok(threads)
}

fn numbers(dir: &str) -> std::io::Result<Vec<u32>> {
    let entries = std::fs::read_dir(dir)?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Whether a process exists and is no zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let handle = raw.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    handle.is_some_and(|handle| {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    })
}

/// The name of a thread.
#[must_use]
pub fn name_of(thread: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{thread}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// The process group of a process, and its name (proc_pid_stat(5)); `None` if the process is gone.
/// A group outside of this process namespace is replaced by the process itself.
#[must_use]
pub fn group_of(pid: u32) -> Option<(u32, String)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any byte, parentheses too.
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    // State, parent, group.
    let group = rest.split_ascii_whitespace().nth(2)?.parse().unwrap_or(0);
    Some((if group == 0 { pid } else { group }, name))
}
