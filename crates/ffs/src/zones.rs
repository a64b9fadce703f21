//! The volume as placement policies see it.

use crate::superblock::Super;
use seekless_placement::block::Zones;
use seekless_placement::directory::Expected;
use seekless_placement::{Groups, Shape};
use seekless_units::{BlockNo, GroupNo};

impl Super {
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            ncg: self.ncg,
            ipg: self.ipg,
            fpg: self.fpg,
            fsize: self.fsize,
            frag: self.frag,
            size: self.size,
            skip: 0,
        }
    }

    /// The groups, with nothing free yet.
    pub(crate) fn groups(&self) -> Groups {
        Groups::new(self.shape(), |group| self.meta_zone(group))
    }

    pub(crate) fn zones(&self) -> Zones {
        Zones {
            metaspace: self.tuning.metaspace,
            nindir: self.pointers(),
            maxbpg: self.tuning.maxbpg,
            maxcontig: self.tuning.maxcontig,
            rotdelay_frags: 0,
        }
    }

    pub(crate) fn expected(&self) -> Expected {
        Expected { avgfilesize: self.tuning.avgfilesize, avgfpdir: self.tuning.avgfpdir }
    }

    /// `cgmeta`: the start of a group's data, and of its zone for metadata.
    pub(crate) fn meta_zone(&self, group: GroupNo) -> BlockNo {
        self.in_group(group, self.dblkno)
    }

    /// `cgdata`: the start of a group's zone for data.
    pub(crate) fn data_zone(&self, group: GroupNo) -> BlockNo {
        self.meta_zone(group) + self.tuning.metaspace
    }
}

#[cfg(test)]
mod tests {
    use crate::superblock::Super;
    use crate::{MakeOptions, Version, make};
    use seekless_device::MemoryDevice;
    use seekless_units::{BlockNo, ByteLen, GroupNo};

    /// In UFS1 each further group of a cylinder has its metadata one track further
    /// on, where volumes from before 4.4BSD have tracks.
    #[test]
    fn data_of_old_volumes_are_shifted() {
        for (version, shift) in [(Version::Ufs1, 2 * 16), (Version::Ufs2, 0)] {
            let device = MemoryDevice::new(vec![0; 16 << 20]);
            let mut options = MakeOptions::new(version, ByteLen::new(16 << 20));
            (options.block_size, options.fragment_size) = (4096, 512);
            options.blocks_per_group = Some(256);
            make(&device, &options).unwrap();
            let mut sb = Super::read(&device, false).unwrap();
            (sb.old_cgoffset, sb.old_cgmask) = (16, !3);
            let (groups, number) = (sb.groups(), GroupNo::new(6));
            assert!(groups.shape().ncg > 6, "{:?}", groups.shape());
            let base = 6 * u64::from(sb.fpg);
            let meta = BlockNo::new(base + u64::from(sb.dblkno) + shift);
            assert_eq!(groups.data_start(number), meta, "{version:?}");
            let data = meta + sb.tuning.metaspace;
            assert_eq!(sb.zones().data_zone(&groups, number), data);
            assert_eq!(sb.data_zone(number), data);
            assert_eq!(groups.shape().group_of(data), number);
        }
    }
}
