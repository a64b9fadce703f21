//! Runs a program repeatedly on a cold mount of an image.

use super::attached::{AttachedImage, RequestCounter, Requests};
use super::reread::least_reread;
use super::scratch_dir::{CHANGES, ROOT};
use super::uninterrupted;
use rustix::mount::MountFlags;
use seekless_fs::term::{Term, Text};
use seekless_host::family::Family;
use seekless_host::program;
use seekless_host::scratch::Mounted;
use seekless_images::{Error, ErrorKind};
use seekless_report::disk::Usage;
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Placeholder for the mount point in a command.
const MOUNT: &[u8] = b"{}";

/// Interval between checks for the end of a command.
const POLL: Duration = Duration::from_millis(5);

/// Directories of the host that a command needs if the image is its root.
const OF_THE_HOST: [&str; 2] = ["proc", "dev"];

/// A program and the parameters of its runs.
#[derive(Debug)]
pub struct Program<'a> {
    /// The program and its arguments, with `{}` for the mount point unless the mount is its root.
    pub command: &'a [OsString],
    /// Whether the mount becomes the program's root directory.
    pub chroot: bool,
    /// Whether writes fail, instead of going to an overlay.
    pub read_only: bool,
    /// Number of cold runs, at least one.
    pub runs: u32,
    /// Limit for each run.
    pub timeout: Duration,
}

/// A cold run of a program.
pub struct ProgramRun {
    /// The kernel's requests until the program ended.
    pub requests: Requests,
    /// Exit code or signal of the program.
    pub status: ExitStatus,
    /// Names of the processes that the program left behind.
    pub left: Vec<String>,
}

impl Program<'_> {
    /// Checks the parameters before anything is mounted.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if no argument contains `{}`, or the limit is 0.
    pub fn check(&self) -> Result<(), Error> {
        let named = |word: &OsString| word.as_bytes().windows(2).any(|at| at == MOUNT);
        if !self.chroot && !self.command.iter().any(named) {
            let what = "the command must contain {}, which stands for the mount of the image, or \
                        be run with ";
            return Err(Error::usage(Text::from(what).then(Term::Chroot)));
        }
        if self.timeout.is_zero() {
            return Err(Error::usage(Text::from(Term::Timeout).then(" must be longer than 0")));
        }
        Ok(())
    }

    /// Runs the program on the image, each time with cold caches, and counts the kernel's requests
    /// to the device until the program ends. Its changes are discarded, and the processes that it
    /// leaves behind are killed. A run in which blocks are read twice is repeated up to twice.
    /// `usage` is the use of the blocks of the image.
    ///
    /// The program's standard output is discarded, and its standard error after the first run.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the kernel cannot mount the image, has no trace events or loses
    /// some, if the program cannot be started or does not end in time, or if a signal arrives.
    pub fn measure(
        &self,
        attached: &AttachedImage<'_>,
        usage: &Usage,
        signals: &mut Signals,
    ) -> Result<Vec<ProgramRun>, Error> {
        let mut first = true;
        let mut run = || self.run(attached, usage, std::mem::take(&mut first), signals);
        (0..self.runs).map(|_| least_reread(&mut run, |run: &ProgramRun| &run.requests)).collect()
    }

    fn run(
        &self,
        attached: &AttachedImage<'_>,
        usage: &Usage,
        first: bool,
        signals: &mut Signals,
    ) -> Result<ProgramRun, Error> {
        uninterrupted(signals)?;
        let mounts = RunMounts::new(attached, self)?;
        let mut command = self.command(mounts.root())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(if first { Stdio::inherit() } else { Stdio::piped() });
        let ((family, status), requests) =
            attached.count(usage, |counter| self.perform(&mut command, counter, signals))?;
        let left = family.end()?;
        mounts.unmount()?;
        Ok(ProgramRun { requests, status, left })
    }

    /// The command for a mount at `root`.
    fn command(&self, root: &Path) -> Result<Command, Error> {
        let words: Vec<OsString> = if self.chroot {
            self.command.to_vec()
        } else {
            self.command.iter().map(|word| with_mount(word, root.as_os_str())).collect()
        };
        let Some((program, args)) = words.split_first() else {
            return Err(Error::usage("there is no command"));
        };
        let mut command = Command::new(program);
        command.args(args);
        if self.chroot {
            program::change_root(&mut command, root)?;
        }
        Ok(command)
    }

    /// Runs the program to its end, and stops the counter.
    fn perform(
        &self,
        command: &mut Command,
        counter: &mut RequestCounter,
        signals: &mut Signals,
    ) -> Result<(Family, ExitStatus), Error> {
        let since = Instant::now();
        let mut family = Family::start(command)
            .map_err(|error| Error::from(error).about("the command cannot be started"))?;
        let (out, errors) = family.pipes();
        // Pipes, since some programs recognize /dev/null and read less.
        out.into_iter().for_each(discard);
        errors.into_iter().for_each(discard);
        loop {
            if let Some(status) = family.poll()? {
                counter.stop()?;
                return Ok((family, status));
            }
            counter.take()?;
            if let Err(interrupted) = uninterrupted(signals) {
                family.stop()?;
                return Err(interrupted);
            }
            if since.elapsed() >= self.timeout {
                family.stop()?;
                let seconds = self.timeout.as_secs_f64();
                let what = format!("the command has not ended after {seconds} s and was killed");
                return Err(Error::new(ErrorKind::System, what)
                    .hint(Text::from(Term::Timeout).then(" sets another limit")));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Reads and discards the output of a command, until no process can write any more.
fn discard(mut pipe: impl Read + Send + 'static) {
    std::thread::spawn(move || io::copy(&mut pipe, &mut io::sink()));
}

/// A word with each `{}` replaced by the mount point.
fn with_mount(word: &OsStr, root: &OsStr) -> OsString {
    let mut whole = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(MOUNT.len()).position(|part| part == MOUNT) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(root.as_bytes());
        rest = &rest[at + MOUNT.len()..];
    }
    whole.extend_from_slice(rest);
    OsString::from_vec(whole)
}

/// The mounts for a run, unmounted in reverse order.
struct RunMounts {
    host: Vec<Mounted>,
    overlay: Option<Mounted>,
    changes: Option<Mounted>,
    image: Mounted,
}

impl RunMounts {
    fn new(attached: &AttachedImage<'_>, program: &Program<'_>) -> Result<Self, Error> {
        let image = attached.mount()?;
        let mut mounts = Self { host: Vec::new(), overlay: None, changes: None, image };
        if !program.read_only {
            let flags = MountFlags::NODEV | MountFlags::NOSUID;
            let changes = attached.dir(CHANGES);
            let changes = Mounted::new(Path::new("tmpfs"), &changes, "tmpfs", flags, "mode=0755")?;
            let root = attached.dir(ROOT);
            let overlay = Mounted::overlay(mounts.image.dir(), changes.dir(), &root);
            mounts.changes = Some(changes);
            mounts.overlay = Some(overlay.map_err(|error| {
                Error::from(error)
                    .hint(Text::from(Term::ReadOnly).then(" runs the command without an overlay"))
            })?);
        }
        if program.chroot {
            for name in OF_THE_HOST {
                let (from, to) = (Path::new("/").join(name), mounts.root().join(name));
                // A bind mount through a symlink would be on a directory of the host.
                let is_dir = to.symlink_metadata().is_ok_and(|meta| meta.is_dir());
                if is_dir {
                    mounts.host.push(Mounted::bind(&from, &to)?);
                }
            }
        }
        Ok(mounts)
    }

    /// The directory in which the program finds the image.
    fn root(&self) -> &Path {
        self.overlay.as_ref().unwrap_or(&self.image).dir()
    }

    fn unmount(self) -> Result<(), Error> {
        self.take_off().map_err(|error| {
            error.hint("the command mounted something on the image, or unmounted it")
        })
    }

    fn take_off(self) -> Result<(), Error> {
        for mounted in self.host {
            mounted.detach()?;
        }
        for mounted in [self.overlay, self.changes].into_iter().flatten() {
            mounted.unmount()?;
        }
        Ok(self.image.unmount()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_takes_the_place_of_all_braces() {
        let put = |word: &str| with_mount(word.as_ref(), "/m".as_ref());
        assert_eq!(put("{}/a:{}"), "/m/a:/m");
        assert_eq!(put("{{}}{"), "{/m}{");
        assert_eq!(put("plain"), "plain");
    }
}
