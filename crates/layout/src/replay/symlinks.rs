//! Symlinks on the way to the files that a trace touched.
//!
//! A process that opens `/usr/lib/libz.so.1` reads the inode of this symlink before that of the
//! library it leads to, and recorders see only the library: the kernel reports files by their own
//! names, and reads an inode from the disk only if no other one in its block was read before.

use super::{MAX_LINKS, Replayed};
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::Ino;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Puts the symlinks that lead to an inode before it, where it is first needed.
///
/// # Errors
/// When the image is not sound.
pub fn add_symlinks(image: &dyn Inspect, replays: &mut [Replayed]) -> Result<(), FsError> {
    let wanted: HashSet<Ino> =
        replays.iter().flat_map(|replay| replay.inodes.iter().copied()).collect();
    let leading = leading_to(image, &wanted)?;
    for replay in replays {
        let mut done = HashSet::new();
        let mut inodes = Vec::with_capacity(replay.inodes.len());
        for &ino in &replay.inodes {
            let links = leading.get(&ino).into_iter().flatten();
            inodes.extend(links.chain([&ino]).copied().filter(|ino| done.insert(*ino)));
        }
        replay.inodes = inodes;
    }
    Ok(())
}

/// The symlinks of an image that lead to one of some inodes, by that inode, in the
/// order of a walk.
fn leading_to(
    image: &dyn Inspect,
    wanted: &HashSet<Ino>,
) -> Result<HashMap<Ino, Vec<Ino>>, FsError> {
    let mut found: HashMap<Ino, Vec<Ino>> = HashMap::new();
    let mut seen = HashSet::from([image.root()]);
    // Directories with those that they lie in, from the root.
    let mut waiting = vec![vec![image.root()]];
    while let Some(way) = waiting.pop() {
        let Some(&dir) = way.last() else { continue };
        let mut entries = Vec::new();
        image.read_dir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                entries.push((entry.ino, entry.kind));
            }
            ControlFlow::Continue(())
        })?;
        for (ino, kind) in entries {
            let kind = match kind {
                Some(kind) => kind,
                None => image.attr(ino)?.kind,
            };
            if kind == FileKind::Directory && seen.insert(ino) {
                waiting.push([&way[..], &[ino]].concat());
            }
            if kind != FileKind::Symlink {
                continue;
            }
            let target = follow(image, &way, &image.read_link(ino)?, &mut 0)?;
            let target = target.and_then(|way| way.last().copied());
            if let Some(target) = target.filter(|target| wanted.contains(target)) {
                found.entry(target).or_default().push(ino);
            }
        }
    }
    Ok(found)
}

/// Where a path leads from a directory, as the inodes from the root; `None` if
/// nowhere. `hops` counts the symlinks passed.
fn follow(
    image: &dyn Inspect,
    from: &[Ino],
    path: &[u8],
    hops: &mut u32,
) -> Result<Option<Vec<Ino>>, FsError> {
    let mut way = if path.starts_with(b"/") { vec![image.root()] } else { from.to_vec() };
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => way.truncate(way.len().saturating_sub(1).max(1)),
            _ => {
                let here = way.last().copied().unwrap_or(image.root());
                if image.attr(here)?.kind != FileKind::Directory {
                    return Ok(None);
                }
                let Some(ino) = image.lookup(here, name)? else { return Ok(None) };
                if image.attr(ino)?.kind != FileKind::Symlink {
                    way.push(ino);
                    continue;
                }
                *hops += 1;
                if *hops >= MAX_LINKS {
                    return Ok(None);
                }
                match follow(image, &way, &image.read_link(ino)?, hops)? {
                    Some(further) => way = further,
                    None => return Ok(None),
                }
            }
        }
    }
    Ok(Some(way))
}
