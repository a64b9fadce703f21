//! An older volume as the base of a new one: its shape, its reserved sectors, and the slots and
//! short names of its files.

use super::objects::Objects;
use super::older::OlderDirectory;
use super::options::BuildOptions;
use super::reserved::ReservedSectors;
use super::sizing;
use super::table::Entries;
use crate::boot::Width;
use crate::check::{problems, refuse_damage};
use crate::entry::Slot;
use crate::files::ROOT;
use crate::image::FatImage;
use crate::make::geometry::Geometry;
use crate::make::options::{MOST_FAT12, MOST_FAT16, MOST_FAT32};
use crate::make::{FatWidth, MakeOptions};
use crate::ondisk::{ENTRY_SIZE, ShortEntry};
use crate::table::Table;
use seekless_fs::FsError;
use seekless_fs::check::Problem;
use seekless_fs::field::parse;
use seekless_fs::format::claim;
use seekless_fs::term::Text;
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Findings that do not keep a volume from being a base: the parts that they are in are written
/// again.
const HARMLESS: &[&Problem] = &[
    problems::BOOT_COPY,
    problems::FAT_COPIES_DIFFER,
    problems::DIRECTORY_DOT_DOT,
    problems::FSINFO_COUNT,
];
/// Fewest entries of a root directory that an option can ask for.
const FEWEST_ROOT_ENTRIES: u32 = 16;

/// An older volume, whose shape a new one takes over.
///
/// The new volume has its parameters, identifiers and boot program, and its FATs in the same
/// places, so that whatever else is equal lies in equal sectors.
pub struct BaseVolume {
    image: Arc<FatImage>,
    geometry: Geometry,
    /// Sectors in front of the volume on its disk.
    hidden: u32,
    /// The first two entries of the FAT: the medium, and flags.
    head: [u32; 2],
    /// Bad clusters, which stay bad.
    bad: Vec<u32>,
    /// The entry of the label in the root directory, and its slot.
    label: Option<(u32, ShortEntry)>,
}

impl BaseVolume {
    /// Reads the shape of a volume.
    ///
    /// # Errors
    /// [`FsError::Damaged`] for a volume with an error, or one that was not unmounted;
    /// [`FsError::Corrupt`].
    pub fn new(image: Arc<FatImage>) -> Result<Self, FsError> {
        Self::refuse_damage(&image)?;
        let volume = image.volume();
        let geometry = Geometry::of(&volume.boot);
        let hidden = volume.boot.hidden;
        let mut table = Table::new(volume);
        let head = [table.raw(0)?, table.raw(1)?];
        let (bad, label) = (table.bad_clusters()?, label_slot(&image)?);
        Ok(Self { geometry, hidden, head, bad, label, image })
    }

    /// Refuses a volume with an error, or one that was not unmounted.
    ///
    /// # Errors
    /// [`FsError::Damaged`] with the first error, [`FsError::Marks`] for a boot sector without the
    /// marks of one, and errors of reading it.
    pub fn refuse_damage(image: &FatImage) -> Result<(), FsError> {
        let device = image.volume().device();
        claim(&[crate::FORMAT], device.as_ref())?;
        refuse_damage(device.clone(), HARMLESS)
    }

    /// The volume's files.
    #[must_use]
    pub fn image(&self) -> &Arc<FatImage> {
        &self.image
    }

    /// Options of a volume with the same shape and marks; as large, or larger if need be. An empty
    /// label and a missing number are those of the older volume.
    #[must_use]
    pub fn options(&self) -> BuildOptions {
        let g = &self.geometry;
        let width = match g.width {
            Width::Fat12 => FatWidth::Fat12,
            Width::Fat16 => FatWidth::Fat16,
            Width::Fat32 => FatWidth::Fat32,
        };
        let entries = Some(g.root_entries).filter(|&entries| entries >= FEWEST_ROOT_ENTRIES);
        BuildOptions::new(MakeOptions {
            sector_size: g.sector,
            cluster: Some(g.spc),
            fats: g.fats,
            reserved: Some(g.reserved),
            root_entries: entries,
            backup: Some(g.backup).filter(|&sector| sector != 0),
            hidden: self.hidden,
            align: g.reserved.is_multiple_of(g.spc) && g.fat_sectors.is_multiple_of(g.spc),
            ..MakeOptions::new(Some(width), ByteLen::ZERO)
        })
    }

    /// Refuses another width than that of the options.
    pub(crate) fn refuse_width(&self, options: &MakeOptions) -> Result<(), FsError> {
        let width = self.geometry.width;
        match options.width.map(FatWidth::stored) {
            Some(asked) if asked != width => Err(FsError::Refused(Text::from(format!(
                "unsupported: the older volume is {}, not {}",
                width.shown(),
                asked.shown()
            )))),
            _ => Ok(()),
        }
    }

    /// Checks that a volume with these options can have this shape.
    pub(crate) fn suits(&self, options: &MakeOptions) -> Result<(), FsError> {
        let g = &self.geometry;
        let is = |wanted: Option<u32>, own: u32| wanted.is_none_or(|wanted| wanted == own);
        let is_fat32 = g.width == Width::Fat32;
        let rules = [
            (options.sector_size == g.sector, format!("sectors of {} bytes", g.sector)),
            (is(options.cluster, g.spc), format!("{} sectors in a cluster", g.spc)),
            (options.fats == g.fats, format!("{} FATs", g.fats)),
            (is(options.reserved, g.reserved), format!("{} reserved sectors", g.reserved)),
            (
                is_fat32 || is(options.root_entries, g.root_entries),
                format!("{} entries of the root directory", g.root_entries),
            ),
            (
                !is_fat32 || is(options.backup, g.backup),
                format!("the copy of its boot sector in sector {}", g.backup),
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, has)) => Err(FsError::Unsupported(format!("the older volume has {has}"))),
            None => Ok(()),
        }
    }

    /// The shape of a volume with these objects, and its length: that of the older one, with more
    /// clusters if they are needed and its FATs have entries for them.
    pub(crate) fn shape(
        &self,
        options: &BuildOptions,
        objects: &mut Objects,
    ) -> Result<(Geometry, ByteLen), FsError> {
        let mut geometry = self.geometry.clone();
        objects.fixed_root = geometry.width != Width::Fat32;
        self.fit_root(objects)?;
        let unsuited =
            |why: String| Err(FsError::Unsupported(format!("the older volume has {why}")));
        let cluster = geometry.cluster_bytes();
        // More than FATs can have entries for is refused below, however much it is.
        let spare = options.spare.bytes.get().div_ceil(cluster).min(u32::MAX.into());
        let used = objects.total(cluster) + self.bad.len() as u64 + spare;
        let needed = (used * 10_000).div_ceil(options.spare.left(0)?);
        let wanted = match options.is_fitted {
            true => needed.max(geometry.clusters.into()),
            false => self.clusters_within(options.make.size)?,
        };
        if needed > wanted {
            return unsuited(format!("{wanted} clusters in that size, {needed} are needed"));
        }
        let most = self.most_clusters();
        if wanted > most {
            return unsuited(format!("FATs for {most} clusters, {wanted} are needed"));
        }
        let device = self.image.volume().device().len().get();
        if wanted == u64::from(geometry.clusters) {
            let size = if options.is_fitted { device } else { options.make.size.get() };
            return Ok((geometry, ByteLen::new(size)));
        }
        let total = geometry.first_data() + wanted * u64::from(geometry.spc);
        let Ok(total) = u32::try_from(total) else {
            return unsuited(format!("no room for {wanted} clusters in its number of sectors"));
        };
        (geometry.total, geometry.clusters) = (total, wanted as u32);
        let size = match options.is_fitted {
            true => device.max(geometry.byte_of(total.into())),
            false => options.make.size.get(),
        };
        Ok((geometry, ByteLen::new(size)))
    }

    /// Packs a fixed root directory if its entries do not fit otherwise.
    fn fit_root(&self, objects: &mut Objects) -> Result<(), FsError> {
        let room = self.geometry.root_entries;
        if !objects.fixed_root || objects.dir_slots(0) <= u64::from(room) {
            return Ok(());
        }
        objects.pack(0);
        let slots = objects.dir_slots(0);
        if slots <= u64::from(room) {
            return Ok(());
        }
        Err(FsError::Unsupported(format!(
            "the older volume has {room} entries of the root directory, {slots} are needed"
        )))
    }

    /// The clusters of a volume of a requested size.
    fn clusters_within(&self, size: ByteLen) -> Result<u64, FsError> {
        let g = &self.geometry;
        let own = g.byte_of(g.total.into());
        if size.get() < own {
            return Err(FsError::Invalid(format!(
                "the new volume would be smaller than the older one: {size} bytes, not {own}"
            )));
        }
        let sectors = size.get() / u64::from(g.sector);
        // The sectors behind the last whole cluster stay as they are if no cluster is added.
        Ok((sectors - g.first_data()) / u64::from(g.spc))
    }

    /// Most clusters for which the FATs have entries.
    fn most_clusters(&self) -> u64 {
        let g = &self.geometry;
        let bytes = g.byte_of(g.fat_sectors.into());
        let (entries, limit) = match g.width {
            Width::Fat12 => (bytes * 2 / 3, MOST_FAT12),
            Width::Fat16 => (bytes / 2, MOST_FAT16),
            Width::Fat32 => (bytes / 4, MOST_FAT32),
        };
        (entries - 2).min(limit).max(g.clusters.into())
    }

    /// Bad clusters of a volume of its shape.
    pub(crate) fn bad(&self) -> &[u32] {
        &self.bad
    }

    /// Sets the entries of the FAT that belong to no file.
    pub(crate) fn mark(&self, entries: &mut Entries) -> Result<(), FsError> {
        for (number, value) in (0..).zip(self.head) {
            entries.set(number, value);
        }
        let mut table = Table::new(self.image.volume());
        for &cluster in &self.bad {
            entries.set(cluster, table.raw(cluster)?);
        }
        Ok(())
    }

    /// The reserved sectors of a volume of this shape, with those fields that are others.
    pub(crate) fn reserved(&self, geometry: &Geometry, hidden: u32) -> ReservedSectors<'_> {
        let mut reserved = ReservedSectors::new(self.image.volume());
        reserved.renew_copy();
        if geometry.total != self.geometry.total {
            reserved.set_total(geometry.total);
        }
        if hidden != self.hidden {
            reserved.set_hidden(hidden);
        }
        reserved
    }

    /// The volume's number, 0 if it has none.
    pub(crate) fn id(&self) -> u32 {
        self.image.volume().boot.id.unwrap_or(0)
    }

    /// The label in the boot sector.
    pub(crate) fn boot_label(&self) -> Option<[u8; 11]> {
        self.image.volume().boot.label
    }

    /// Gives the root directory a label in the slot of the older one. Without another label it is
    /// the older one, with its time, unless there shall be none.
    pub(crate) fn place_label(
        &self,
        objects: &mut Objects,
        other: Option<ShortEntry>,
        is_wanted: bool,
    ) {
        let own = self.label.as_ref().map(|(_, own)| own);
        let label = match &other {
            Some(label) if own.is_none_or(|own| own.DIR_Name != label.DIR_Name) => other.as_ref(),
            None if is_wanted => None,
            _ => own,
        };
        objects.front = label.map(|label| label.as_bytes().to_vec()).unwrap_or_default();
        match self.label {
            Some((slot, _)) => objects.front_slot = slot,
            None => objects.place_front(),
        }
    }

    /// The root directory.
    pub(crate) fn root(&self) -> Ino {
        ROOT
    }

    /// The names of a directory.
    pub(crate) fn directory(&self, dir: Ino) -> Result<OlderDirectory, FsError> {
        OlderDirectory::read(&self.image, dir)
    }

    /// Options of a volume with a shape of its own that has the marks of this one. Its clusters are
    /// at the same bytes, or a multiple of a cluster from there.
    pub(crate) fn with_marks(
        &self,
        options: &BuildOptions,
        objects: &mut Objects,
    ) -> Result<(MakeOptions, Geometry), FsError> {
        let mut options = options.clone();
        if !options.has_id {
            options.make.id = self.id();
        }
        if options.make.root_entries.is_some_and(|room| u64::from(room) < objects.dir_slots(0)) {
            options.make.root_entries = None;
        }
        let mut chosen = sizing::choose(&options, objects);
        if matches!(chosen, Err(FsError::NoSpace(_)))
            && options.make.cluster == Some(self.geometry.spc)
        {
            options.make.cluster = None;
            chosen = sizing::choose(&options, objects);
        }
        let (mut make, mut geometry) = chosen?;
        let mut aligned = geometry.clone();
        for _ in 0..ALIGNMENTS {
            let Some(sectors @ 1..) = self.sectors_apart(&aligned) else { break };
            options.make.reserved = Some(aligned.reserved + sectors);
            let Ok(again) = sizing::choose(&options, objects) else { break };
            aligned = again.1.clone();
            if self.sectors_apart(&aligned) == Some(0) {
                (make, geometry) = again;
            }
        }
        objects.fixed_root = geometry.width != Width::Fat32;
        Ok((make, geometry))
    }

    /// How many sectors further the clusters of a shape would have to begin so that clusters of this
    /// volume are at multiples of a cluster from there; `None` if these are no whole sectors.
    fn sectors_apart(&self, geometry: &Geometry) -> Option<u32> {
        let unit = geometry.cluster_bytes();
        let own = self.geometry.byte_of(self.geometry.first_data()) % unit;
        let here = geometry.byte_of(geometry.first_data()) % unit;
        let gap = (own + unit - here) % unit;
        let sector = u64::from(geometry.sector);
        gap.is_multiple_of(sector).then_some((gap / sector) as u32)
    }
}

/// How often a shape is chosen again so that its clusters begin where older ones do.
const ALIGNMENTS: u32 = 4;

/// The first label in the root directory, and its slot.
fn label_slot(image: &FatImage) -> Result<Option<(u32, ShortEntry)>, FsError> {
    let mut slot = 0;
    for sector in image.directory_sectors(ROOT)?.iter() {
        for bytes in image.volume().sector(sector)?.chunks(ENTRY_SIZE) {
            match Slot::parse(bytes) {
                None | Some(Slot::End) => return Ok(None),
                Some(Slot::Label(_)) => return Ok(parse(bytes, 0).map(|entry| (slot, entry))),
                Some(_) => slot += 1,
            }
        }
    }
    Ok(None)
}
