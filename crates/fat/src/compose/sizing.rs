//! How large an image must be.

use super::objects::Objects;
use super::options::BuildOptions;
use crate::boot::Width;
use crate::make::MakeOptions;
use crate::make::geometry::Geometry;
use crate::make::options::{FEWEST_FAT16, MOST_FAT12, MOST_FAT16};
use crate::ondisk::{ENTRY_SIZE, LEAST_FAT32};
use seekless_fs::FsError;
use seekless_fs::plan::Spare;
use seekless_units::ByteLen;
use std::collections::BTreeMap;

/// Clusters that a fitted volume keeps away from the limits between the widths, which are not the
/// same number in all systems (fatgen103, "FAT Volume Initialization").
const MARGIN: u64 = 16;

/// The space that the objects need, by the size of clusters.
struct Needs<'a> {
    objects: &'a Objects,
    clusters: BTreeMap<u64, u64>,
    root_slots: u64,
    spare: Spare,
}

impl Needs<'_> {
    /// Whether the volume has room for everything, and for the spare space.
    fn fit(&mut self, geometry: &Geometry) -> bool {
        let cluster = geometry.cluster_bytes();
        let root = geometry.root_entries;
        let objects = self.objects;
        let need = *self.clusters.entry(cluster).or_insert_with(|| objects.total(cluster));
        let need = need + self.spare.bytes.get().div_ceil(cluster);
        let left = 10_000 - u64::from(self.spare.share);
        let room = u128::from(geometry.clusters) * u128::from(left);
        u128::from(need) * 10_000 <= room
            && (geometry.width == Width::Fat32 || self.root_slots <= root.into())
    }
}

/// The options and the shape of the volume that holds the objects: of the requested size, or the
/// smallest.
pub(super) fn choose(
    options: &BuildOptions,
    objects: &mut Objects,
) -> Result<(MakeOptions, Geometry), FsError> {
    let mut make = options.make.clone();
    let root_slots = objects.dir_slots(0);
    // The fixed root is made large enough, unless its size was requested.
    if make.root_entries.is_none() && root_slots > 512 {
        let slots = u32::try_from(root_slots).unwrap_or(u32::MAX);
        make.root_entries = Some(slots.next_multiple_of(make.sector_size / ENTRY_SIZE as u32));
    }
    if options.is_fitted {
        return fit(&make, objects, options.spare);
    }
    let why = match Geometry::new(&make) {
        Ok(geometry) => {
            objects.fixed_root = geometry.width != Width::Fat32;
            let (clusters, spare) = (BTreeMap::new(), Spare::default());
            let mut needs = Needs { objects, clusters, root_slots, spare };
            if needs.fit(&geometry) {
                return Ok((make, geometry));
            }
            short(objects, &geometry, root_slots)
        }
        Err(FsError::NoSpace(why)) => why,
        Err(error) => return Err(error),
    };
    Err(match fit(&make, objects, Spare::default()) {
        Ok((fitted, _)) => {
            FsError::NoSpace(format!("{why}; a volume of at least {} bytes is needed", fitted.size))
        }
        Err(_) => FsError::NoSpace(why),
    })
}

/// The message for a volume that is too small.
fn short(objects: &Objects, geometry: &Geometry, root_slots: u64) -> String {
    if geometry.width != Width::Fat32 && root_slots > geometry.root_entries.into() {
        return format!(
            "the root directory needs {root_slots} entries and has {}",
            geometry.root_entries
        );
    }
    let cluster = geometry.cluster_bytes();
    format!(
        "the contents take {} clusters of {cluster} bytes, the volume has {}",
        objects.total(cluster),
        geometry.clusters
    )
}

/// Whether systems agree on the width of a volume.
fn is_clear(geometry: &Geometry) -> bool {
    let clusters = u64::from(geometry.clusters);
    match geometry.width {
        Width::Fat12 => clusters <= MOST_FAT12 - MARGIN,
        Width::Fat16 => (FEWEST_FAT16 + MARGIN..=MOST_FAT16 - MARGIN).contains(&clusters),
        Width::Fat32 => clusters >= u64::from(LEAST_FAT32) + MARGIN,
    }
}

fn fit(
    make: &MakeOptions,
    objects: &mut Objects,
    spare: Spare,
) -> Result<(MakeOptions, Geometry), FsError> {
    const MOST: u64 = 1 << 44;
    let root_slots = objects.dir_slots(0);
    let sector = u64::from(make.sector_size);
    let used = (objects.total(sector) * sector + spare.bytes.get().min(MOST)).min(MOST);
    let size = used * 10_000 / spare.left(0)?;
    let mut size = (64u64 << 10).max(size).next_multiple_of(sector);
    let mut by_root: [Option<BTreeMap<u64, u64>>; 2] = [None, None];
    // The last refusal of a size: that of the largest one.
    let mut refused = None;
    while size < MOST {
        let sized = MakeOptions { size: ByteLen::new(size), ..make.clone() };
        match Geometry::new(&sized) {
            Ok(geometry) => {
                // Nothing behind the last sector that is used; a floppy disk's size would
                // change the shape.
                let exact = u64::from(geometry.total) * sector;
                let sized = MakeOptions { size: ByteLen::new(exact), ..make.clone() };
                let again = Geometry::new(&sized);
                if let Ok(geometry) = again.as_ref()
                    && is_clear(geometry)
                {
                    objects.fixed_root = geometry.width != Width::Fat32;
                    let kept = &mut by_root[usize::from(objects.fixed_root)];
                    let clusters = kept.take().unwrap_or_default();
                    let mut needs = Needs { objects, clusters, root_slots, spare };
                    let fits = needs.fit(geometry);
                    let clusters = needs.clusters;
                    *kept = Some(clusters);
                    if fits {
                        return Ok((sized, geometry.clone()));
                    }
                }
            }
            // Another size may do.
            Err(FsError::NoSpace(why)) => refused = Some(why),
            Err(error) => return Err(error),
        }
        size += (size / 256).max(32 * sector).next_multiple_of(sector);
    }
    let why = refused.unwrap_or_else(|| "the contents do not fit in any volume".into());
    Err(FsError::NoSpace(why))
}
