//! `seekless build` for FAT images.

use super::{BuildArgs, Destination, Family, Room, flags, write_built, wrong};
use crate::args::Global;
use crate::failure::Failure;
use crate::fat_args::{lost, warn_of_width};
use crate::source::source_date_epoch;
use crate::traces;
use crate::uuid::{WantedUuid, random};
use seekless_fat::{self as fat, FatWidth};
use seekless_fs::source::Source;
use seekless_fs::tree::{NodeId, Tree};
use seekless_fs::{FsError, Timestamp};
use seekless_layout::planner::Touch;
use seekless_layout::{by_path, planner};
use seekless_units::ByteLen;
use std::collections::HashMap;

impl BuildArgs {
    /// The width asked for of a FAT image; `None` for other formats.
    pub(super) fn fat_width(&self) -> Option<Option<FatWidth>> {
        match self.format {
            Family::Fat => Some(None),
            Family::Fat12 => Some(Some(FatWidth::Fat12)),
            Family::Fat16 => Some(Some(FatWidth::Fat16)),
            Family::Fat32 => Some(Some(FatWidth::Fat32)),
            _ => None,
        }
    }

    /// The options of a FAT image.
    pub(super) fn fat_options(
        &self,
        width: Option<FatWidth>,
        room: Room,
    ) -> Result<fat::BuildOptions, Failure> {
        for (given, option) in [
            (self.block_size.is_some(), "--block-size (--sectors-per-cluster is that of FAT)"),
            (self.inode_size.is_some(), "--inode-size"),
            (self.inodes.is_some(), "--inodes"),
            (self.features.is_some(), "--features"),
            (!self.compat.is_empty(), "--compat"),
            (self.journal_size.is_some(), "--journal-size"),
            (self.bytes_per_inode.is_some(), "--bytes-per-inode"),
            (self.ext.has_journal_options(), "-J"),
            (self.ext.has_extended(), "-E"),
            (self.reserved.is_some(), "--reserved"),
        ] {
            if given {
                return Err(Failure::usage(format!("{option} is not supported for FAT images")));
            }
        }
        let size = room.whole().unwrap_or_default();
        let make = self.fat.options(width, size, self.label.as_bytes(), [&None, &None, &None])?;
        let mut options = fat::BuildOptions::new(make);
        let id = match (self.uuid, self.fat.id(None)?) {
            (None, id) => id,
            (Some(WantedUuid::Random), None) => Some(u32::from_ne_bytes(random()?)),
            (Some(_), _) => {
                let why = "FAT images take --uuid random or --volume-id, one of them";
                return Err(Failure::usage(why));
            }
        };
        options.has_id = id.is_some();
        options.make.id = id.unwrap_or(0);
        options.is_fitted = room.whole().is_none();
        options.spare = room.spare();
        options.made = source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 });
        options.losses = self.fat_tree.losses();
        Ok(options)
    }
}

pub(super) fn write_fat(
    args: &BuildArgs,
    source: &dyn Source,
    options: &fat::BuildOptions,
    place: Destination<'_>,
    global: &Global,
) -> Result<ByteLen, Failure> {
    let about = |error: FsError| wrong(error).about(args.shown_sources());
    let builder = fat::Builder::new(source, options).map_err(about)?;
    if let Some(clusters) = builder.ambiguous_clusters() {
        warn_of_width(clusters);
    }
    if let Some(lost) = lost(&builder.lost()) {
        crate::say::warning!("{lost}");
    }
    flags::warn_of_lost(source, 0);
    let touches = touches(args, source, builder.block_size())?;
    let align = (args.chunk.get() / u64::from(builder.block_size())).max(1);
    let plan = planner::plan(builder.demand(), &builder.space(), &touches, align).map_err(about)?;
    write_built(&builder, &plan, &args.shown_sources(), place, global)
}

/// What the traces touch, in order. A trace of a FAT volume may have names in another case
/// than the source.
fn touches(args: &BuildArgs, source: &dyn Source, unit: u32) -> Result<Vec<Touch>, Failure> {
    let mut names = Names { tree: source.tree(), folded: HashMap::new() };
    let mut touches = Vec::new();
    for path in &args.trace {
        let mut events = traces::load(path)?;
        for event in &mut events {
            event.path = names.in_source(&event.path);
        }
        touches.extend(by_path::touches(&events, source.tree(), unit));
    }
    Ok(touches)
}

/// The names of a tree, without regard to case.
struct Names<'a> {
    tree: &'a Tree,
    /// Of directories in which a name was searched.
    folded: HashMap<NodeId, HashMap<Vec<u16>, Vec<u8>>>,
}

impl Names<'_> {
    /// A path as the source has it, as far as it has it.
    fn in_source(&mut self, path: &[u8]) -> Vec<u8> {
        let mut found: Vec<u8> = Vec::with_capacity(path.len());
        let mut dir = Some(NodeId::ROOT);
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let here = dir.and_then(|dir| self.child(dir, name));
            let name = here.as_deref().unwrap_or(name);
            found.push(b'/');
            found.extend_from_slice(name);
            dir = dir.and_then(|dir| match name {
                b"." => Some(dir),
                b".." => Some(self.tree.parent(dir)),
                _ => self.tree.child(dir, name).map(|entry| entry.node),
            });
        }
        found
    }

    /// A directory's own spelling of a name that it does not have as it stands.
    fn child(&mut self, dir: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        if self.tree.child(dir, name).is_some() {
            return None;
        }
        let tree = self.tree;
        let names = self.folded.entry(dir).or_insert_with(|| {
            let all = tree.children(dir).iter().map(|entry| tree.name(entry));
            all.filter_map(|name| Some((fat::fold_name(name)?, name.to_vec()))).collect()
        });
        names.get(&fat::fold_name(name)?).cloned()
    }
}
