//! A session of FUSE, from the mount to the unmount.

use fuser::{Config, Filesystem, INodeNo, MountOption, Notifier, Session, SessionACL};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// The kernel's cache of a mount: attributes, names, contents of files and listings of directories.
/// Whatever the server changes by itself must be forgotten there.
#[derive(Clone, Debug, Default)]
pub struct KernelCache(Arc<OnceLock<Notifier>>);

impl KernelCache {
    /// Forgets the attributes of a file.
    pub(crate) fn forget(&self, ino: INodeNo) {
        self.notify(|kernel| kernel.inval_inode(ino, -1, 0));
    }

    /// Forgets the contents of a file or the listing of a directory, and the attributes. Waits for
    /// reads that are under way: not to be called by a thread that serves these.
    pub(crate) fn forget_contents(&self, ino: INodeNo) {
        self.notify(|kernel| kernel.inval_inode(ino, 0, 0));
    }

    /// Forgets a name, or that there is none. Waits for operations on the directory: not to be called
    /// by a thread that serves these.
    pub(crate) fn forget_name(&self, dir: INodeNo, name: &[u8]) {
        self.notify(|kernel| kernel.inval_entry(dir, OsStr::from_bytes(name)));
    }

    /// The kernel need not know the file. Other failures are those of the session, which ends.
    fn notify(&self, notify: impl FnOnce(&Notifier) -> io::Result<()>) {
        let _ = self.0.get().map(notify);
    }
}

/// Options for mounting.
pub struct MountOptions<'a> {
    /// The source shown by `mount(8)`.
    pub name: &'a Path,
    /// Threads that serve requests.
    pub threads: usize,
    /// Whether all users may access it, not only the mounting one.
    pub everyone: bool,
    /// Whether it is writable.
    pub writable: bool,
    /// Further options passed to the kernel.
    pub flags: &'a [MountOption],
    /// The cache of which the file system has the kernel forget parts.
    pub cached: KernelCache,
}

impl MountOptions<'_> {
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            if self.writable { MountOption::RW } else { MountOption::RO },
            MountOption::FSName(self.name.display().to_string()),
            subtype("seekless"),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.mount_options.extend_from_slice(self.flags);
        config.acl = if self.everyone { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.threads);
        config.clone_fd = self.threads > 1;
        config
    }
}

/// The second part of the type in `/proc/mounts`, as in `fuse.seekless`. fuser tells only `fusermount3`
/// of [`MountOption::Subtype`]: of a mount with the type `fuse`, mount(8) would run the source, which
/// is the image, as the program to remount it.
pub(crate) fn subtype(name: &str) -> MountOption {
    MountOption::CUSTOM(format!("subtype={name}"))
}

/// Mounts on a directory and serves until it is unmounted, by any process or by one of the signals.
/// `mounted` is called once the directory can be used.
///
/// # Errors
/// If it cannot be mounted, or the kernel ends the session with an error; those of `mounted`, after
/// which it is not mounted.
pub fn serve<FS: Filesystem + Send + 'static>(
    mount: FS,
    dir: &Path,
    options: &MountOptions<'_>,
    signals: Signals,
    mounted: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let dir = std::path::absolute(dir)?;
    let session = Session::new(mount, &dir, &options.config())?;
    options.cached.0.get_or_init(|| session.notifier());
    mounted()?;
    run(session, &dir, signals)
}

/// Serves a session until it is unmounted, by any process or by one of the signals.
pub(crate) fn run<FS: Filesystem + Send + 'static>(
    mut session: Session<FS>,
    dir: &Path,
    mut signals: Signals,
) -> io::Result<()> {
    let mut unmounter = session.unmount_callable();
    let (done, finished) = std::sync::mpsc::channel();
    let told = done.clone();
    let place = dir.to_path_buf();
    std::thread::spawn(move || {
        for _ in &mut signals {
            // If the mount is in use, it is detached: new users cannot access it, and the present
            // ones lose it when this process ends.
            if unmounter.unmount().is_err() {
                let _ = told.send(detach(&place));
            }
        }
    });
    std::thread::spawn(move || done.send(session.run()));
    finished.recv().unwrap_or(Ok(()))
}

/// Detaches a mount that is in use.
fn detach(dir: &Path) -> io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    if unmount(dir, UnmountFlags::DETACH).is_ok() {
        return Ok(());
    }
    let status = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(dir).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("fusermount3 failed to unmount it"))
    }
}
