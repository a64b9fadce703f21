//! Damage by recipe: what is done to a sound image, what is found, and what fsck.fat says.

use super::patient::Patient;

/// One piece of damage.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    /// The widths that it is for: of 12, 16 and 32.
    pub(crate) bits: &'static [u32],
    /// The codes that are found, in the order of the check.
    pub(crate) codes: &'static [&'static str],
    /// Whether a crash may leave it: a preen repairs it then.
    pub(crate) expected: bool,
    /// Whether fsck.fat finds something, too.
    pub(crate) judged: bool,
    pub(crate) damage: fn(&mut Patient),
}

const ALL: &[u32] = &[12, 16, 32];
const OLD: &[u32] = &[12, 16];
const NEW: &[u32] = &[32];

impl Patient {
    /// The mark of a chain's end.
    fn end(&self) -> u32 {
        if self.bits == 12 { 0xFFF } else { 0x0FFF_FFFF }
    }

    /// The mark of a bad cluster.
    fn bad(&self) -> u32 {
        match self.bits {
            12 => 0xFF7,
            16 => 0xFFF7,
            _ => 0x0FFF_FFF7,
        }
    }

    fn state(&self) -> usize {
        if self.bits == 32 { 65 } else { 37 }
    }

    fn label(&self) -> usize {
        if self.bits == 32 { 71 } else { 43 }
    }
}

/// All recipes.
pub(crate) fn all() -> Vec<Recipe> {
    let mut all = Vec::new();
    let mut add = |name, bits, codes, expected, judged, damage: fn(&mut Patient)| {
        all.push(Recipe { name, bits, codes, expected, judged, damage });
    };
    // The head.
    add("the state byte is set", ALL, &["boot.dirty"], true, true, |p| {
        let at = p.state();
        p.put(at, &[1]);
    });
    add("the clean bit is clear", &[16, 32], &["fat.not-clean"], true, true, |p| {
        let value = if p.bits == 16 { 0x7FFF } else { 0x07FF_FFFF };
        p.link(1, value);
    });
    add("the copy of the boot sector differs", NEW, &["boot.copy"], true, true, |p| {
        p.put(6 * 512 + 100, &[0x17]);
    });
    add("the boot sector is gone", NEW, &["boot.unusable"], false, true, |p| {
        p.put(11, &[0; 30]);
    });
    add("the boot sector is of another version", NEW, &["boot.unusable"], false, true, |p| {
        p.put(42, &[1]);
    });
    add("the boot sector does not begin with a jump", OLD, &["boot.marks"], false, false, |p| {
        p.put(0, &[0]);
    });
    add("the boot sector alone has no jump", NEW, &["boot.marks"], false, true, |p| {
        p.put(0, &[0]);
    });
    add("the boot sector has no end", OLD, &["boot.marks"], false, false, |p| {
        p.put(510, &[0x54]);
    });
    add("the boot sector alone has no end", NEW, &["boot.marks"], false, true, |p| {
        p.put(511, &[0]);
    });
    add("the root directory is said to be longer", OLD, &["boot.layout"], false, true, |p| {
        p.put(17, &[0x10, 3]);
    });
    add("the root directory is said to be shorter", OLD, &["boot.layout"], false, true, |p| {
        p.put(17, &[0x20, 0]);
    });
    add("the root directory ends within a sector", OLD, &["boot.layout"], false, true, |p| {
        p.put(17, &[0xF1, 1]);
    });
    add("clusters are said to be longer", ALL, &["boot.layout"], false, true, |p| {
        p.put(13, &[2]);
    });
    add("FATs are said to begin later", ALL, &["boot.layout"], false, true, |p| {
        let reserved = p.le16(14) as u8 + 1;
        p.put(14, &[reserved]);
    });
    add("the boot sector has no medium", OLD, &["boot.medium"], false, false, |p| {
        p.put(21, &[7]);
    });
    add("the boot sector has no medium, its copy has", NEW, &["boot.medium"], false, true, |p| {
        p.put(21, &[7]);
    });
    add("the boot sector alone has another medium", NEW, &["boot.medium"], false, true, |p| {
        p.put(21, &[0xF0]);
    });
    add("the boot sector counts three FATs", ALL, &["boot.fats"], false, true, |p| {
        p.put(16, &[3]);
    });
    add("the boot sector counts one FAT", ALL, &["boot.fats"], false, true, |p| {
        p.put(16, &[1]);
    });
    add("the counts are said to lie in the FAT", NEW, &["boot.sectors"], false, true, |p| {
        p.put(48, &[200]);
    });
    add("the counts are said to lie in the copy", NEW, &["boot.sectors"], false, true, |p| {
        p.put(48, &[6]);
    });
    add("the copy is said to lie in the counts", NEW, &["boot.sectors"], false, true, |p| {
        p.put(50, &[1]);
    });
    add("there is said to be no copy", NEW, &["boot.sectors"], false, true, |p| {
        p.put(50, &[0]);
    });
    add("the first entry has another medium", ALL, &["fat.first-entry"], false, false, |p| {
        let value = if p.bits == 12 { 0xF00 } else { 0x0FFF_FF00 } | 0xF0;
        p.link(0, value);
    });
    add("the first FAT lost its first entry", ALL, &["fat.first-entry"], false, true, |p| {
        p.link_in(0, 0, 0);
    });
    add("the second FAT is behind", ALL, &["fat.copies-differ"], true, true, |p| {
        let first = p.first("/pieces");
        p.link_in(1, first, 0);
    });
    add("the second FAT is ahead", ALL, &["fat.copies-differ"], true, true, |p| {
        let end = p.end();
        p.link_in(1, 200, end);
    });
    let found = &["fat.copies-differ", "fat.entry"];
    add("the first FAT leads back into the chain", ALL, found, false, true, |p| {
        let chain = p.chain("/pieces");
        p.link_in(0, chain[1], chain[4] as u32);
    });
    add("the first FAT leads past the end", ALL, found, false, true, |p| {
        let chain = p.chain("/pieces");
        p.link_in(0, chain[4], if p.bits == 16 { 0xFFF0 } else { 0xFF0 });
    });
    add(
        "a free cluster's entry is past the end",
        ALL,
        &["fat.range", "chain.lost"],
        false,
        true,
        |p| {
            let value = if p.bits == 16 { 0xFFF0 } else { 0xFF0 };
            p.link(300, value);
        },
    );
    add("a file's chain leads past the end", ALL, &["fat.range", "chain.lost"], false, true, |p| {
        let chain = p.chain("/pieces");
        let value = if p.bits == 16 { 0xFFF0 } else { 0xFF0 };
        p.link(chain[4], value);
    });
    add("a file's chain leads to cluster 1", ALL, &["fat.range", "chain.lost"], false, true, |p| {
        let chain = p.chain("/pieces");
        p.link(chain[4], 1);
    });
    add("the label of the boot sector is another", ALL, &["label.differs"], true, true, |p| {
        let at = p.label();
        p.put(at, b"OTHER      ");
        if p.bits == 32 {
            p.put(6 * 512 + at, b"OTHER      ");
        }
    });
    add("the boot sector lost its signature", ALL, &["boot.signature"], true, true, |p| {
        let at = p.label() - 5;
        p.put(at, &[0x69]);
        if p.bits == 32 {
            p.put(6 * 512 + at, &[0x69]);
        }
    });
    // Directories.
    add("a directory has no entry for itself", ALL, &["directory.dot"], false, true, |p| {
        let at = p.cluster(p.first("/dir"));
        p.put(at, &[0xE5]);
    });
    add(
        "a directory's entry for itself leads elsewhere",
        ALL,
        &["directory.dot"],
        false,
        true,
        |p| {
            let at = p.cluster(p.first("/dir"));
            let other = p.first("/many") as u16;
            p.put(at + 26, &other.to_le_bytes());
        },
    );
    add("a directory's .. leads elsewhere", ALL, &["directory.dot-dot"], true, true, |p| {
        let at = p.cluster(p.first("/dir/below")) + 32;
        let other = p.first("/many") as u16;
        p.put(at + 26, &other.to_le_bytes());
    });
    add(
        "the first cluster of a new directory is zero",
        ALL,
        &["directory.dot", "directory.dot", "chain.lost"],
        false,
        true,
        |p| {
            let at = p.cluster(p.first("/dir/below"));
            p.put(at, &[0; 512]);
        },
    );
    add(
        "a directory holds text",
        ALL,
        &["directory.garbage", "chain.lost", "chain.lost"],
        false,
        true,
        |p| {
            let at = p.cluster(p.first("/dir/below"));
            p.put(at, &[b'x'; 512]);
        },
    );
    add("a directory has a length", ALL, &["directory.length"], false, true, |p| {
        p.set_size("/dir", 512);
    });
    add(
        "names stand behind the end of a directory",
        ALL,
        &["directory.hidden"],
        true,
        false,
        |p| {
            // The long name and the short entry in front of the last file of `dir`.
            let at = p.short("/dir/empty");
            let start = if p.bytes[at - 32 + 11] == 0x0F { at - 32 } else { at };
            let zeros = vec![0; at + 32 - start];
            p.put(start, &zeros);
        },
    );
    add("the root has an entry for itself", ALL, &["entry.dots"], false, true, |p| {
        let (at, first) = (p.short("/STAYS"), p.first("/STAYS"));
        p.put(at, b".          \x10").put(at + 26, &[0; 6]).link(first, 0);
    });
    // Names.
    add(
        "pieces of a long name have no entry",
        ALL,
        &["name.pieces", "chain.lost"],
        true,
        true,
        |p| {
            let at = p.short("/dir/below/a text with a long name.text");
            p.put(at, &[0xE5]);
        },
    );
    add("a long name lost its first piece", ALL, &["name.pieces"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at - 32, &[0xE5]);
    });
    add("a long name lost its last piece", ALL, &["name.pieces"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at - 96, &[0xE5]);
    });
    add("a long name has another checksum", ALL, &["name.checksum"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        for piece in [at - 96, at - 64, at - 32] {
            p.put(piece + 13, &[0x17]);
        }
    });
    add("a piece of a long name has another checksum", ALL, &["name.checksum"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at - 64 + 13, &[0x17]);
    });
    add("a piece of a long name has a cluster", ALL, &["name.fields"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at - 64 + 26, &[1]);
    });
    add("a piece of a long name has a type", ALL, &["name.fields"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at - 32 + 12, &[0x80]);
    });
    add("a long name is that of another entry", ALL, &["name.pieces"], true, true, |p| {
        // As DOS renames it.
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at, b"RENAMED TXT");
    });
    add("a long name's pieces are out of order", ALL, &["name.pieces"], true, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at - 64, &[3]);
    });
    add("a short name has a control character", ALL, &["name.short"], false, true, |p| {
        let at = p.short("/STAYS");
        p.put(at + 2, &[1]);
    });
    add("a short name has a slash", ALL, &["name.short"], false, true, |p| {
        let at = p.short("/STAYS");
        p.put(at + 2, b"/");
    });
    add("a short name begins with a blank", ALL, &["name.short"], false, true, |p| {
        let at = p.short("/STAYS");
        p.put(at, b" ");
    });
    add("a name with long pieces has a bad short one", ALL, &["name.short"], false, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        p.put(at + 2, b"*");
        let sum = checksum(&p.bytes[at..at + 11]);
        for piece in [at - 96, at - 64, at - 32] {
            p.put(piece + 13, &[sum]);
        }
    });
    add("two files have one short name", ALL, &["name.duplicate"], false, true, |p| {
        let at = p.short("/dir/SMALL.TXT");
        let name: [u8; 11] = p.bytes[at..at + 11].try_into().expect("name");
        // Its long name is gone with its sum.
        let other = p.short("/dir/empty");
        p.put(other, &name);
        if p.bytes[other - 32 + 11] == 0x0F {
            p.put(other - 32, &[0xE5]);
        }
    });
    // Chains and lengths.
    add("a file begins past the end", ALL, &["chain.start"], false, true, |p| {
        let first = p.first("/STAYS");
        p.set_first("/STAYS", 5000).link(first, 0);
    });
    add("a file begins at a free cluster", ALL, &["chain.free"], false, true, |p| {
        let first = p.first("/STAYS");
        p.link(first, 0);
    });
    add("a chain leads to a free cluster", ALL, &["chain.free", "chain.lost"], false, true, |p| {
        let chain = p.chain("/pieces");
        p.link(chain[4], 350);
    });
    add("a chain leads to a bad cluster", ALL, &["chain.bad", "chain.lost"], false, true, |p| {
        let (chain, bad) = (p.chain("/pieces"), p.bad());
        p.link(350, bad).link(chain[4], 350);
    });
    add("a file's cluster is marked bad", ALL, &["chain.bad", "chain.lost"], false, true, |p| {
        let (chain, bad) = (p.chain("/pieces"), p.bad());
        p.link(chain[5], bad);
    });
    add("a chain leads back to its start", ALL, &["chain.cycle", "chain.lost"], false, true, |p| {
        let chain = p.chain("/pieces");
        p.link(chain[4], chain[0] as u32);
    });
    add("a cluster leads to itself", ALL, &["chain.cycle", "chain.lost"], false, true, |p| {
        let chain = p.chain("/pieces");
        p.link(chain[4], chain[4] as u32);
    });
    add("two files have one chain", ALL, &["chain.shared", "chain.lost"], false, true, |p| {
        let at = p.short("/dir/below/a text with a long name.text");
        let pieces = p.first("/pieces") as u16;
        p.put(at + 26, &pieces.to_le_bytes());
    });
    add("a file begins within another", ALL, &["chain.shared", "chain.lost"], false, true, |p| {
        let pieces = p.chain("/pieces");
        p.set_first("/STAYS", pieces[1]);
    });
    add("a file leads into another", ALL, &["chain.shared", "chain.lost"], false, true, |p| {
        let (text, pieces) =
            (p.chain("/dir/below/a text with a long name.text"), p.chain("/pieces"));
        p.link(text[1], pieces[6] as u32);
    });
    add("a file leads into a directory", ALL, &["chain.shared", "chain.lost"], false, true, |p| {
        let (text, many) = (p.chain("/dir/below/a text with a long name.text"), p.chain("/many"));
        p.link(text[1], many[1] as u32);
    });
    add(
        "a directory is in itself",
        ALL,
        &["chain.shared", "chain.lost", "chain.lost"],
        false,
        true,
        |p| {
            let dir = p.first("/dir");
            p.set_first("/dir/below", dir);
        },
    );
    add(
        "a directory has no cluster",
        ALL,
        &["chain.start", "chain.lost", "chain.lost"],
        false,
        true,
        |p| {
            p.set_first("/dir/below", 0);
        },
    );
    add("a directory's cluster is free", ALL, &["chain.free", "chain.lost"], false, true, |p| {
        let below = p.first("/dir/below");
        p.link(below, 0);
    });
    add("a directory's chain loops", ALL, &["chain.cycle", "chain.lost"], false, true, |p| {
        let chain = p.chain("/many");
        p.link(chain[1], chain[0] as u32);
    });
    add("a file is shorter than its chain", ALL, &["chain.past-size"], true, true, |p| {
        p.set_size("/pieces", 1000);
    });
    add("a file of no length has a chain", ALL, &["chain.past-size"], true, true, |p| {
        p.set_size("/pieces", 0);
    });
    add(
        "a file is longer than its chain",
        ALL,
        &["file.size-past-chain", "chain.lost"],
        false,
        true,
        |p| {
            p.set_size("/pieces", 100_000);
        },
    );
    add("a file has a length and no chain", ALL, &["file.no-chain"], false, true, |p| {
        p.set_size("/dir/empty", 77);
    });
    add("a chain has no name", ALL, &["chain.lost"], true, true, |p| {
        let end = p.end();
        p.link(200, 201).link(201, 202).link(202, end);
    });
    add("a chain without a name loops", ALL, &["chain.lost"], true, true, |p| {
        p.link(200, 201).link(201, 202).link(202, 200);
    });
    add("a file was removed, its chain was not", ALL, &["chain.lost"], true, true, |p| {
        let at = p.short("/STAYS");
        p.put(at, &[0xE5]);
    });
    add("a chain without a name leads into a file", ALL, &["chain.lost"], true, true, |p| {
        let pieces = p.chain("/pieces");
        p.link(200, 201).link(201, pieces[3] as u32);
    });
    // Counts.
    add("too many clusters are free by the count", NEW, &["fsinfo.count"], true, true, |p| {
        let count = p.le32(512 + 488) as u32 + 3;
        p.put(512 + 488, &count.to_le_bytes());
    });
    add("the count has no signature", NEW, &["fsinfo.signature"], false, true, |p| {
        p.put(512 + 484, &[0; 4]);
    });
    all
}

/// The sum of a short name, computed as the description has it.
fn checksum(name: &[u8]) -> u8 {
    name.iter().fold(0u8, |sum, byte| {
        let carried = if sum & 1 == 1 { 0x80 } else { 0 };
        (carried + (sum >> 1)).wrapping_add(*byte)
    })
}
