//! Shapes of volumes for the tests.

/// A volume, described by options of `mkfs.fat`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bits of a FAT entry.
    pub(crate) bits: u32,
    /// Bytes per sector.
    pub(crate) sector: u64,
    /// Sectors per cluster.
    pub(crate) cluster: u64,
    pub(crate) fats: u64,
    /// Whether the parts of the volume begin at multiples of a cluster.
    pub(crate) aligned: bool,
    /// Approximate number of clusters.
    pub(crate) clusters: u64,
}

impl Shape {
    /// Sectors of a volume with about that many clusters; exactly that many if it is not aligned.
    pub(crate) fn sectors(&self) -> u64 {
        let entries = self.clusters + 2;
        let fat = (entries * u64::from(self.bits)).div_ceil(8).div_ceil(self.sector);
        let reserved = if self.bits == 32 { 32 } else { 1 };
        let root = if self.bits == 32 { 0 } else { (512 * 32u64).div_ceil(self.sector) };
        reserved + fat * self.fats + root + self.clusters * self.cluster
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sectors() * self.sector
    }

    /// The options that `mkfs.fat` and `seekless mkfs` share.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options: Vec<String> =
            [("-S", self.sector), ("-s", self.cluster), ("-f", self.fats)]
                .iter()
                .flat_map(|(option, value)| [(*option).to_string(), value.to_string()])
                .collect();
        if !self.aligned {
            options.push("-a".into());
        }
        options
    }
}

/// Eighty shapes: all sector sizes, one FAT and two, aligned and not, with numbers of clusters next
/// to the limits between the widths (4,084 and 65,524 are the maxima of FAT12 and FAT16).
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (n, sector) in [512, 1024, 2048, 4096].into_iter().enumerate() {
        for fats in [1, 2] {
            let mut add = |bits, cluster, aligned, clusters| {
                shapes.push(Shape { bits, sector, cluster, fats, aligned, clusters });
            };
            add(12, 1, false, 4084);
            add(12, 4, true, 4070);
            add(12, 1 << n, false, 100);
            add(16, 1, false, 4087);
            add(16, 2, true, 4200);
            add(16, 1, false, 65_524);
            add(16, 1, true, 65_300);
            add(32, 1, false, 65_525);
            add(32, 1, true, 66_000);
            add(32, 2, false, 65_600 + 1000 * n as u64);
        }
    }
    assert_eq!(shapes.len(), 80);
    shapes
}
