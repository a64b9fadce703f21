//! An image laid out again: the same entries and contents, clusters elsewhere, and the entries of
//! each directory in another order.
//!
//! Entries are copied as they are, with long and short names, attributes and times; only the
//! numbers of first clusters change. Deleted entries and the contents of free clusters are dropped.
//! Everything here has been checked, so plain arithmetic is allowed.
#![allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "values of an image that was checked"
)]

use crate::check::{problems, refuse_damage};
use crate::compose::objects::{Object, Objects};
use crate::compose::reserved::ReservedSectors;
use crate::compose::table::Entries;
use crate::compose::write::{Data, ImageWriter};
use crate::compose::{blocks, space};
use crate::directory::VisitedEntry;
use crate::files::ROOT;
use crate::image::FatImage;
use crate::make::MakeOptions;
use crate::make::encode::Encoder;
use crate::make::geometry::Geometry;
use crate::ondisk::ENTRY_SIZE;
use crate::table::Table;
use seekless_device::BlockDevice;
use seekless_fs::check::Problem;
use seekless_fs::mapped::MappedContent;
use seekless_fs::plan::{Demand, ObjectId, Plan, Rearrange, Space};
use seekless_fs::source::Content;
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;
use zerocopy::IntoBytes;

/// Findings that do not keep an image from being laid out again: they are in parts that are copied
/// as they are or rewritten.
const HARMLESS: &[&Problem] = &[
    problems::BOOT_COPY,
    problems::BOOT_DIRTY,
    problems::FAT_NOT_CLEAN,
    problems::FAT_COPIES_DIFFER,
    problems::LABEL_DIFFERS,
    problems::DIRECTORY_DOT_DOT,
    problems::FSINFO_COUNT,
];

/// An image about to be laid out again.
pub struct Relayout<'a> {
    image: &'a FatImage,
    objects: Objects,
    geometry: Geometry,
    options: MakeOptions,
    /// Bad clusters, which stay bad.
    bad: Vec<u32>,
}

impl<'a> Relayout<'a> {
    /// Checks an image and examines it.
    ///
    /// # Errors
    /// [`FsError::Damaged`] for any finding of a check outside the parts that are always rewritten
    /// (marks of a volume that was not unmounted, counts, copies); errors of reading the image.
    pub fn new(image: &'a FatImage) -> Result<Self, FsError> {
        refuse_damage(image.volume().device().clone(), HARMLESS)?;
        let boot = &image.volume().boot;
        let geometry = Geometry::of(boot);
        let files = image.geometry().inodes as usize;
        let mut objects = Objects {
            all: vec![Object::default(); files],
            fixed_root: boot.root_cluster == 0,
            cluster: boot.cluster_bytes(),
            ..Objects::default()
        };
        for at in 0..files {
            let ino = Ino::new(at as u32 + 1);
            let attr = image.attr(ino)?;
            let object = &mut objects.all[at];
            object.is_kept = true;
            object.is_dir = attr.kind == FileKind::Directory;
            if object.is_dir {
                // It keeps its length, even if its entries need less.
                object.least_clusters = attr.size / boot.cluster_bytes();
            } else {
                object.size = attr.size;
            }
        }
        let mut relayout = Self {
            image,
            objects,
            geometry,
            options: MakeOptions::new(None, ByteLen::ZERO),
            bad: Vec::new(),
        };
        for at in 0..files {
            if relayout.objects.all[at].is_dir {
                relayout.take_directory(at)?;
            }
        }
        relayout.bad = Table::new(image.volume()).bad_clusters()?;
        Ok(relayout)
    }

    /// Takes the entries of a directory.
    fn take_directory(&mut self, at: usize) -> Result<(), FsError> {
        let (image, dir) = (self.image, Ino::new(at as u32 + 1));
        let volume = image.volume();
        let sectors = image.directory_sectors(dir)?;
        let mut bytes = Vec::new();
        for sector in sectors.iter() {
            bytes.extend_from_slice(&volume.sector(sector)?);
        }
        let objects = &mut self.objects;
        if at > 0 {
            let dots = &bytes[..2 * ENTRY_SIZE];
            debug_assert!(dots.chunks(ENTRY_SIZE).all(|dot| dot[0] == b'.'), "checked");
            objects.all[at].dots = dots.to_vec();
        }
        let mut children = Vec::new();
        volume.visit(dir, dir == ROOT, sectors, 0, &mut |met| {
            match met {
                VisitedEntry::Label(label) => {
                    objects.front.extend_from_slice(label.as_bytes());
                }
                VisitedEntry::File(entry) => {
                    let Some(ino) = image.in_slot(dir, entry.slot) else {
                        return Ok(ControlFlow::Continue(()));
                    };
                    let child = ino.get() as usize - 1;
                    let (from, to) = (entry.head.start as usize, entry.slot as usize + 1);
                    let object = &mut objects.all[child];
                    debug_assert!(object.slots.is_empty(), "a file has one name");
                    object.slots = bytes[from * ENTRY_SIZE..to * ENTRY_SIZE].to_vec();
                    object.parent = at as u32;
                    children.push(child as u32);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        objects.all[at].children = children;
        Ok(())
    }
}

/// Blocks are counted in clusters, and lie anywhere but on bad ones. The boot sector is written
/// last.
impl Rearrange for Relayout<'_> {
    fn object(&self, ino: Ino) -> Option<ObjectId> {
        let at = ino.get().checked_sub(1)?;
        ((at as usize) < self.objects.all.len()).then(|| ObjectId::new(at))
    }

    fn demand(&self) -> &dyn Demand {
        &self.objects
    }

    fn space(&self) -> Space {
        space(&self.objects, &self.geometry, &self.bad)
    }

    fn cluster_blocks(&self) -> u64 {
        self.geometry.spc.into()
    }

    fn size(&self) -> ByteLen {
        self.image.volume().device().len()
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        let (geometry, options) = (&self.geometry, &self.options);
        let encoder = Encoder { geometry, options, label: None, device };
        let writer = ImageWriter {
            objects: &self.objects,
            encoder,
            blocks: blocks(geometry),
            plan,
            data: self,
            progress,
        };
        let mut entries = Entries::new(geometry.width, geometry.clusters);
        let mut table = Table::new(self.image.volume());
        // The flags of the volume stay, and so do bad clusters.
        for cluster in (0..2).chain(self.bad.iter().copied()) {
            entries.set(cluster, table.raw(cluster)?);
        }
        let (free, last) = writer.body(entries)?;
        let mut reserved = ReservedSectors::new(self.image.volume());
        reserved.set_root(writer.first(0));
        reserved.write(&writer.encoder, free, last)
    }
}

impl Data for Relayout<'_> {
    fn read(&self, object: usize, offset: u64, out: &mut [u8]) -> Result<(), FsError> {
        let ino = Ino::new(object as u32 + 1);
        let mut done = 0;
        while done < out.len() {
            let at = ByteLen::new(offset + done as u64);
            match self.image.read(ino, at, &mut out[done..])? {
                0 => return Err(FsError::Invalid(format!("file {ino} ends early"))),
                got => done += got,
            }
        }
        Ok(())
    }

    fn open(&self, object: usize) -> Result<Box<dyn Content + '_>, FsError> {
        let ino = Ino::new(object as u32 + 1);
        let (map, size) = (self.image.block_map(ino)?, self.image.attr(ino)?.size);
        let volume = self.image.volume();
        let contents = MappedContent::new(map.runs, volume.boot.sector, volume.device().as_ref());
        Ok(Box::new(contents.up_to(size)))
    }
}
