//! The kernel's requests to a file system in use.

use super::LiveMount;
use super::{flags, trim};
use crate::caller::{is_in_charge, may_keep_setgid, sets_any_id};
use crate::kernel::{
    answer_attr, answer_data, answer_empty, answer_entry, answer_names, answer_value,
    check_attribute, errno, file_type, kernel_device, missing, moment,
};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use seekless_fs::acl::AclKind;
use seekless_fs::operate::{NewFile, Operate, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError, inode_flag};
use seekless_host::check_request::{BEGIN_CHECK, CORRECT, Corrected, END_CHECK, decode_end};
use seekless_host::growth_request::GROW;
use seekless_host::snapshot_request::{LIST_SNAPSHOTS, Listed, RELEASE_SNAPSHOT, TAKE_SNAPSHOT};
use seekless_host::tuning_request::{ADJUST, Adjustment, READ_JSON, READ_TEXT, TEXT_BYTES};
use seekless_images::{check_mounted, grow_mounted};
use seekless_units::{ByteLen, Ino};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// Maximum size of the kernel's reads and writes in bytes.
const LARGEST: u32 = 1 << 20;
/// `FALLOC_FL_KEEP_SIZE`.
const KEEP_SIZE: i32 = 1;
/// `XATTR_CREATE`, `XATTR_REPLACE`.
const XATTR_FLAGS: [(i32, XattrMode); 3] =
    [(0, XattrMode::Any), (1, XattrMode::Create), (2, XattrMode::Replace)];

/// `XATTR_CREATE | XATTR_REPLACE`, which Linux's file systems answer with the error of one of them.
const XATTR_NEVER: i32 = 3;

/// Formats without flags have no such call.
fn no_flags(error: FsError) -> Errno {
    match error {
        FsError::Unsupported(_) => Errno::ENOTTY,
        other => errno(other),
    }
}

/// The volume may be in a state in which a request is refused.
fn busy(error: FsError) -> Errno {
    match error {
        FsError::Refused(_) => Errno::EBUSY,
        error => errno(error),
    }
}

/// The answer to a request of a check, unless another one has begun meanwhile.
fn answer_check(done: Option<Result<(), FsError>>) -> Result<Vec<u8>, Errno> {
    let done = done.ok_or(Errno::ECANCELED)?;
    done.map(|()| Vec::new()).map_err(busy)
}

impl LiveMount {
    /// Settings and counters, and zeros behind them.
    fn statistics_text(&self, json: bool) -> Result<Vec<u8>, Errno> {
        let (config, counters) = (self.volume.config(), self.volume.counters());
        let mut text = (self.statistics)(&config, &counters, json).into_bytes();
        if text.len() > TEXT_BYTES {
            return Err(Errno::EMSGSIZE);
        }
        text.resize(TEXT_BYTES, 0);
        Ok(text)
    }

    /// Serves a request for growth on a thread of its own: contents that the kernel is to forget may
    /// be read meanwhile.
    fn answer_grow(&self, data: &[u8], reply: ReplyIoctl) {
        let volume = self.volume.clone();
        let wanted = grow_mounted::decode(data);
        let serve = move || match wanted {
            Some(wanted) => reply.ioctl(0, &grow_mounted::encode(volume.grow(wanted))),
            None => reply.error(Errno::EINVAL),
        };
        // Without a thread, the reply is dropped with the closure: EIO.
        let _ = std::thread::Builder::new().spawn(serve);
    }

    /// Serves a request for corrections on a thread of its own, which may wait for operations that are
    /// served meanwhile.
    fn answer_correct(&self, data: &[u8], reply: ReplyIoctl) {
        let volume = self.volume.clone();
        let asked = Corrected::decode(data).and_then(|Corrected { check, some }| {
            let some = some.into_iter().map(check_mounted::decode);
            Some((check, some.collect::<Option<Vec<_>>>()?))
        });
        let serve = move || {
            let done = asked.ok_or(Errno::EINVAL);
            let done = done.and_then(|(check, some)| answer_check(volume.correct(check, &some)));
            match done {
                Ok(data) => reply.ioctl(0, &data),
                Err(error) => reply.error(error),
            }
        };
        // Without a thread, the reply is dropped with the closure: EIO.
        let _ = std::thread::Builder::new().spawn(serve);
    }
}

/// Whether a user may set flags of a file: the owner those that restrict nobody, root all. Since
/// Linux 5.13 the kernel has asked that before (`fileattr_set_prepare`), by capabilities.
fn may_set_flags(live: &mut dyn Operate, uid: u32, ino: Ino, flags: u32) -> Result<(), Errno> {
    let old = live.file_flags(ino).map_err(no_flags)?;
    let restricts = (old ^ flags) & (inode_flag::IMMUTABLE | inode_flag::APPEND) != 0;
    let is_owner = live.attr(ino).map_err(errno)?.uid == uid;
    if uid == 0 || (is_owner && !restricts) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Set-group-id, and the group's execute permission.
const SETGID: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o010;

/// The permissions of a file without set-user-id and set-group-id, which a user's change clears;
/// `None` if the file has neither.
fn without_set_id(
    live: &mut dyn Operate,
    request: &Request,
    ino: Ino,
) -> Result<Option<u16>, Errno> {
    let attr = live.attr(ino).map_err(errno)?;
    // Without the group's execute permission, set-group-id means locking, and is cleared only for
    // callers who could not set it.
    let locks = attr.perm & (SETGID | GROUP_EXECUTES) == SETGID;
    let group = if locks && may_keep_setgid(request, attr.gid) { 0 } else { SETGID };
    let perm = attr.perm & !(0o4000 | group);
    Ok((attr.kind != FileKind::Directory && perm != attr.perm).then_some(perm))
}

impl Filesystem for LiveMount {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Unsupported capabilities are not needed.
        for flag in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_READ,
            // The kernel then does not request capabilities with every write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            let _ = config.add_capabilities(flag);
        }
        if self.volume.lock().keeps_acls() {
            // The kernel then checks ACLs for each access, and leaves the umask to us.
            let acls = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
            let _ = config.add_capabilities(acls);
        }
        let _ = config.set_max_write(LARGEST);
        let _ = config.set_max_readahead(LARGEST);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut live = self.volume.lock();
        let found = (|| {
            let dir = self.ino(parent)?;
            let Some(ino) = live.lookup(dir, self.name(name)?).map_err(errno)? else {
                return Ok((missing(), Generation(0)));
            };
            let attr = live.attr(ino).map_err(errno)?;
            self.remember(&mut *live, ino)?;
            Ok(self.shown(&attr))
        })();
        drop(live);
        answer_entry(reply, found, self.keep());
    }

    fn forget(&self, _request: &Request, ino: INodeNo, times: u64) {
        self.forget_times(ino.0, times);
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let attr = self.ino(ino).and_then(|ino| self.volume.lock().attr(ino).map_err(errno));
        answer_attr(reply, attr.map(|attr| self.shown(&attr).0), self.keep_attr());
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let perm = mode.map(|mode| (mode & 0o7777) as u16);
        let owner = uid.is_some() || gid.is_some();
        let set =
            SetAttr { perm, uid, gid, size, atime: atime.map(moment), mtime: mtime.map(moment) };
        let attr = self.change(request.uid(), |live| {
            let ino = self.ino(ino)?;
            let changes = owner || size.is_some();
            let without = if changes { without_set_id(live, request, ino)? } else { None };
            let without = without.filter(|_| owner || !sets_any_id(request));
            live.set_attr(ino, &SetAttr { perm: set.perm.or(without), ..set }).map_err(errno)
        });
        answer_attr(reply, attr.map(|attr| self.shown(&attr).0), self.keep_attr());
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.ino(ino).and_then(|ino| self.volume.lock().read_link(ino).map_err(errno));
        answer_data(reply, target);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = match FileKind::from_mode((mode & 0o170_000) as u16) {
            Some(FileKind::Regular) => NewFile::Regular,
            Some(kind @ (FileKind::CharDevice | FileKind::BlockDevice)) => {
                NewFile::Device(kind, kernel_device(rdev))
            }
            Some(kind @ (FileKind::Fifo | FileKind::Socket)) => NewFile::Special(kind),
            _ => return reply.error(Errno::EINVAL),
        };
        self.make(request, (parent, name), new, (mode, umask), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, (parent, name), NewFile::Directory, (mode, umask), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = NewFile::Symlink(target.as_os_str().as_bytes());
        self.make(request, (parent, name), new, (0o777, 0), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(request, reply, |live| {
            live.unlink(self.ino(parent)?, self.name(name)?).map_err(errno)
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = match (self.ino(parent), self.name(name)) {
            (Ok(parent), Ok(name)) => (parent, name.to_vec()),
            (Err(error), _) | (_, Err(error)) => return reply.error(error),
        };
        let is_of_directory = |_: &mut dyn Operate| Ok(true);
        self.change_names(request, reply, is_of_directory, move |live| {
            live.rmdir(parent, &name).map_err(errno)
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            _ if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::KeepTarget,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let place = |dir, name| Ok::<_, Errno>((self.ino(dir)?, self.name(name)?.to_vec()));
        let (from, to) = match (place(parent, name), place(newparent, newname)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return reply.error(error),
        };
        let names = [from.clone(), to.clone()];
        let is_of_directory = move |live: &mut dyn Operate| {
            for (dir, name) in names {
                let Some(ino) = live.lookup(dir, &name).map_err(errno)? else { continue };
                if live.attr(ino).map_err(errno)?.kind == FileKind::Directory {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        self.change_names(request, reply, is_of_directory, move |live| {
            live.rename((from.0, &from.1), (to.0, &to.1), mode).map_err(errno)
        });
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.entry(request, reply, |live| {
            live.link(self.ino(ino)?, self.ino(newparent)?, self.name(newname)?).map_err(errno)
        });
    }

    /// The kernel then opens and closes without a request, and keeps pages.
    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    /// The kernel then opens and closes directories without a request, and keeps listings.
    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.ino(ino).and_then(|ino| {
            let mut buf = vec![0; size as usize];
            let len =
                self.volume.lock().read(ino, ByteLen::new(offset), &mut buf).map_err(errno)?;
            buf.truncate(len);
            Ok(buf)
        });
        answer_data(reply, read);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.change(request.uid(), |live| {
            let ino = self.ino(ino)?;
            let written = live.write(ino, ByteLen::new(offset), data).map_err(errno)?;
            // The result of a partial write is not reported for cached pages.
            if written < data.len() && write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                return Err(Errno::ENOSPC);
            }
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                let perm = without_set_id(live, request, ino)?;
                if perm.is_some() {
                    live.set_attr(ino, &SetAttr { perm, ..SetAttr::default() }).map_err(errno)?;
                }
            }
            Ok(written)
        });
        match written {
            // At most `LARGEST`.
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.ino(ino).and_then(|ino| self.durable(request, ino)));
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.ino(ino).and_then(|ino| self.durable(request, ino)));
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & !KEEP_SIZE != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (offset, length) = (ByteLen::new(offset), ByteLen::new(length));
        let keep = mode & KEEP_SIZE != 0;
        self.done(request, reply, |live| {
            let ino = self.ino(ino)?;
            live.allocate(ino, offset, length, keep).map_err(errno)?;
            let perm = without_set_id(live, request, ino)?.filter(|_| !sets_any_id(request));
            if perm.is_some() {
                live.set_attr(ino, &SetAttr { perm, ..SetAttr::default() }).map_err(errno)?;
            }
            Ok(())
        });
    }

    /// `fstrim`, flags of files (`lsattr`, `chattr`), and our requests: to convert a file into a
    /// snapshot and back, for the list of snapshots, and of checks.
    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        _out: u32,
        reply: ReplyIoctl,
    ) {
        if command == trim::FITRIM {
            return match is_in_charge(request) {
                true => trim::answer(&self.volume, data, reply),
                false => reply.error(Errno::EPERM),
            };
        }
        if command == GROW {
            return match is_in_charge(request) {
                true => self.answer_grow(data, reply),
                false => reply.error(Errno::EPERM),
            };
        }
        if command == CORRECT {
            return match is_in_charge(request) {
                true => self.answer_correct(data, reply),
                false => reply.error(Errno::EPERM),
            };
        }
        let done = self.ino(ino).and_then(|ino| {
            let flags = || self.volume.lock().file_flags(ino).map_err(no_flags);
            let set = |flags| {
                let set = |live: &mut dyn Operate| {
                    may_set_flags(live, request.uid(), ino, flags)?;
                    live.set_file_flags(ino, flags).map_err(errno)
                };
                let set = self.change(request.uid(), set).map(|()| Vec::new());
                // The kernel keeps the time of the change, which this request gives no new value.
                self.volume.cached().forget(self.number(ino));
                set
            };
            match command {
                flags::GET => Ok(flags()?.to_ne_bytes().to_vec()),
                flags::SET => set(flags::word(data).ok_or(Errno::EINVAL)?),
                flags::GET_EXTENDED => Ok(flags::extended(flags()?)),
                flags::SET_EXTENDED => set(flags::from_extended(flags()?, data)?),
                TAKE_SNAPSHOT | RELEASE_SNAPSHOT if !is_in_charge(request) => Err(Errno::EPERM),
                TAKE_SNAPSHOT | RELEASE_SNAPSHOT => {
                    let convert = |live: &mut dyn Operate| {
                        let done = match command {
                            TAKE_SNAPSHOT => live.take_snapshot(ino),
                            _ => live.release_snapshot(ino),
                        };
                        done.map_err(busy)
                    };
                    self.change(request.uid(), convert).map(|()| Vec::new())
                }
                LIST_SNAPSHOTS => {
                    let found = self.volume.lock().snapshots().map_err(errno)?;
                    let listed = found.iter().map(|it| Listed {
                        inode: it.ino.get().into(),
                        made: it.made,
                        held: it.held.get(),
                    });
                    Ok(Listed::encode(&listed.collect::<Vec<_>>()))
                }
                ADJUST if !is_in_charge(request) => Err(Errno::EPERM),
                ADJUST => {
                    let asked = Adjustment::decode(data).ok_or(Errno::EINVAL)?;
                    self.volume.adjust(&asked).map(|()| Vec::new()).map_err(errno)
                }
                READ_TEXT | READ_JSON => self.statistics_text(command == READ_JSON),
                BEGIN_CHECK | END_CHECK if !is_in_charge(request) => Err(Errno::EPERM),
                BEGIN_CHECK => Ok(self.volume.begin_check().to_ne_bytes().to_vec()),
                END_CHECK => {
                    let (check, sound) = decode_end(data).ok_or(Errno::EINVAL)?;
                    answer_check(self.volume.end_check(check, sound))
                }
                _ => Err(Errno::ENOTTY),
            }
        });
        match done {
            Ok(data) => reply.ioctl(0, &data),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.ino(ino).and_then(|dir| {
            self.listings.after(&mut *self.volume.lock(), dir, offset).map_err(errno)
        });
        match listed {
            Ok(listing) => {
                for entry in listing.entries() {
                    // Every entry of 4.4BSD and later has a kind.
                    let kind = entry.kind.map_or(fuser::FileType::RegularFile, file_type);
                    let name = OsStr::from_bytes(entry.name);
                    if reply.add(self.number(entry.ino), entry.cookie, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut live = self.volume.lock();
        let listed = (|| {
            let dir = self.ino(ino)?;
            let listing = self.listings.after(&mut *live, dir, offset).map_err(errno)?;
            let (keep, mut told) = (self.keep(), 0);
            for entry in listing.entries() {
                let is_dot = matches!(entry.name, b"." | b"..");
                // The entry may have been removed meanwhile, and the kernel caches the answer.
                let found = match is_dot {
                    true => Ok(Some(entry.ino)),
                    false => live.lookup(dir, entry.name),
                };
                let attr = match found.and_then(|found| {
                    found.filter(|&ino| ino == entry.ino).map(|ino| live.attr(ino)).transpose()
                }) {
                    Ok(Some(attr)) => attr,
                    Ok(None) => continue,
                    // The kernel keeps the entries sent so far: the error is returned when it
                    // continues from there.
                    Err(_) if told > 0 => break,
                    Err(error) => return Err(errno(error)),
                };
                let (shown, generation) = self.shown(&attr);
                let (number, name) = (self.number(entry.ino), OsStr::from_bytes(entry.name));
                if reply.add(number, entry.cookie, name, &keep, &shown, generation) {
                    break;
                }
                told += 1;
                if !is_dot {
                    self.remember(&mut *live, entry.ino)?;
                }
            }
            Ok(())
        })();
        drop(live);
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let space = self.volume.lock().space();
        reply.statfs(
            space.blocks,
            space.free,
            space.available,
            space.inodes,
            space.free_inodes,
            space.block_size,
            space.name_max,
            space.block_size,
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = XATTR_FLAGS.into_iter().find(|(flag, _)| *flag == flags);
        let Some(mode) =
            mode.map(|(_, mode)| mode).or((flags == XATTR_NEVER).then_some(XattrMode::Create))
        else {
            return reply.error(Errno::EINVAL);
        };
        self.done(request, reply, |live| {
            check_attribute(name)?;
            let (ino, name) = (self.ino(ino)?, name.as_bytes());
            if flags == XATTR_NEVER {
                let all = live.xattrs(ino).map_err(errno)?;
                let exists = all.iter().any(|xattr| xattr.name == name);
                return Err(if exists { Errno::EEXIST } else { Errno::ENODATA });
            }
            let Some(kind) = AclKind::of(name) else {
                return live.set_xattr(ino, name, value, mode).map_err(errno);
            };
            let attr = live.attr(ino).map_err(errno)?;
            let keeps = attr.perm & SETGID == 0 || may_keep_setgid(request, attr.gid);
            live.set_acl(ino, kind, Some(value), keeps).map_err(errno)
        });
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let xattrs = self.ino(ino).and_then(|ino| self.volume.lock().xattrs(ino).map_err(errno));
        answer_value(reply, size, name, xattrs);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let xattrs = self.ino(ino).and_then(|ino| self.volume.lock().xattrs(ino).map_err(errno));
        answer_names(reply, size, request, xattrs);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(request, reply, |live| {
            check_attribute(name)?;
            live.remove_xattr(self.ino(ino)?, name.as_bytes()).map_err(errno)
        });
    }
}
