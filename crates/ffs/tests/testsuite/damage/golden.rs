//! Damage made by recipe: what is done, what is to be found, and what becomes of
//! the files.

use super::patient::Field::{
    AttributeBlock, AttributeSize, Blocks, Direct, Flags, Indirect, Links, Mode, Size,
};
use super::patient::Patient;

/// A recipe and what comes of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) recipe: fn(&mut Patient),
    /// The codes of all that is found.
    pub(crate) codes: &'static [&'static str],
    /// Whether a crash may have done it.
    pub(crate) after_a_crash: bool,
    /// What has another name after a full repair, in `lost+found`.
    pub(crate) moved: &'static [&'static str],
    /// What is gone after it.
    pub(crate) gone: &'static [&'static str],
    /// Not on images of UFS1.
    of_ufs2: bool,
    /// Not on images of UFS2.
    of_ufs1: bool,
}

const fn case(
    name: &'static str,
    after_a_crash: bool,
    codes: &'static [&'static str],
    recipe: fn(&mut Patient),
) -> Case {
    Case {
        name,
        recipe,
        codes,
        after_a_crash,
        moved: &[],
        gone: &[],
        of_ufs2: false,
        of_ufs1: false,
    }
}

impl Case {
    const fn moved(mut self, paths: &'static [&'static str]) -> Self {
        self.moved = paths;
        self
    }

    const fn gone(mut self, paths: &'static [&'static str]) -> Self {
        self.gone = paths;
        self
    }

    /// Whether it can be done to an image.
    pub(crate) fn fits(&self, image: &str) -> bool {
        !(self.of_ufs2 && image.starts_with("ufs1") || self.of_ufs1 && image.starts_with("ufs2"))
    }

    const fn of_ufs1(mut self) -> Self {
        self.of_ufs1 = true;
        self
    }

    const fn of_ufs2(mut self) -> Self {
        self.of_ufs2 = true;
        self
    }
}

pub(crate) const CASES: &[Case] = &[
    case("not clean", true, &["superblock.not-clean"], |p| {
        let at = p.superblock() + 209;
        p.bytes[at] = 0;
    }),
    case("marked for a check", true, &["superblock.not-clean"], |p| {
        let at = p.superblock() + 1312;
        let flags = p.number(at, 4);
        p.put(at, 4, flags | 4);
    }),
    case("totals", true, &["superblock.totals"], |p| {
        let at = p.superblock() + 1008;
        p.put(at, 8, 77);
    }),
    case("impossible totals", true, &["superblock.totals"], |p| {
        let at = p.superblock() + 1016;
        p.put(at, 8, u64::MAX);
    }),
    case("a superblock of zeros", false, &["superblock.unusable"], |p| {
        let at = p.superblock();
        p.bytes[at..at + 1376].fill(0);
    }),
    case("a superblock of noise", false, &["superblock.unusable"], |p| {
        let at = p.superblock();
        p.bytes[at..at + 512].fill(0xA5);
    }),
    case("impossible sizes", false, &["superblock.unusable"], |p| {
        let at = p.superblock() + 48;
        p.put(at, 4, 4097);
    }),
    case("fewer inodes in a group", false, &["superblock.fixed"], |p| {
        let at = p.superblock() + 184;
        let ipg = p.number(at, 4);
        p.put(at, 4, ipg - 8);
    }),
    case("inodes elsewhere", false, &["superblock.unusable"], |p| {
        let at = p.superblock() + 16;
        let iblkno = p.number(at, 4);
        p.put(at, 4, iblkno + 1);
    }),
    case(
        "larger than a superblock can be",
        false,
        &["superblock.derived", "superblock.copy"],
        |p| {
            for at in p.superblocks() {
                p.put(at + 104, 4, 16384);
            }
        },
    ),
    case("wrong shifts", false, &["superblock.derived"], |p| {
        let at = p.superblock() + 80;
        p.put(at, 4, 31);
    }),
    case("more kept free than there is", false, &["superblock.tuning"], |p| {
        let at = p.superblock() + 60;
        p.put(at, 4, 200);
    }),
    case("more than FreeBSD takes for possible", false, &["superblock.tuning"], |p| {
        let (at, fpg) = (p.superblock(), p.number(p.superblock() + 188, 4));
        p.put(at + 88, 4, 257);
        p.put(at + 860, 4, 3 << 12);
        p.put(at + 880, 8, fpg / 2 + 1);
    }),
    case("cylinders of all groups", false, &["superblock.fixed"], |p| {
        let at = p.superblock() + 180;
        p.put(at, 4, 50_000);
    }),
    case("a longest file of no length", false, &["superblock.derived"], |p| {
        let at = p.superblock() + 1328;
        p.put(at, 8, 0);
    }),
    case("a disk with delays", false, &["superblock.derived"], |p| {
        let at = p.superblock() + 64;
        p.put(at, 4, 4);
    })
    .of_ufs1(),
    case("a superblock that lies elsewhere", false, &["superblock.derived"], |p| {
        let at = p.superblock() + 992;
        p.put(at, 8, 1 << 20);
    }),
    case("clusters of a length that is not counted", false, &["superblock.tuning"], |p| {
        let at = p.superblock() + 88;
        p.put(at, 4, 0);
    }),
    case("a snapshot that is none", false, &["superblock.tuning"], |p| {
        let at = p.superblock() + 1116;
        p.put(at, 4, 3);
    }),
    case("a superblock that says it is old", false, &["superblock.fixed"], |p| {
        let at = p.superblock() + 211;
        p.bytes[at] = 0;
    })
    .of_ufs1(),
    case("a copy of noise", false, &["superblock.copy"], |p| {
        let at = p.superblocks()[1];
        p.bytes[at..at + 1376].fill(0x5A);
    }),
    case(
        "check hashes of which none is right",
        false,
        &["superblock.check-hash", "group.check-hash", "inode.check-hash"],
        |p| {
            for at in p.superblocks() {
                let flags = p.number(at + 1312, 4);
                p.put(at + 1312, 4, flags | 0x200);
                p.put(at + 1308, 4, 7);
            }
        },
    )
    .of_ufs2(),
    case("check hashes that one superblock asks for", false, &["superblock.fixed"], |p| {
        let at = p.superblock();
        let flags = p.number(at + 1312, 4);
        p.put(at + 1312, 4, flags | 0x200);
        p.put(at + 1308, 4, 7);
    }),
    case("a link too many", true, &["inode.links-high"], |p| p.set("/dir/small", Links, 3)),
    case("a link too few", false, &["inode.links-low"], |p| p.set("/dir/small", Links, 1)),
    case("no links", false, &["inode.links-low"], |p| p.set("/dir/small", Links, 0)),
    case("fewer links than none", false, &["inode.links-low"], |p| {
        p.set("/dir/small", Links, 0xFFFF);
    }),
    case("a directory's links", true, &["inode.links-high"], |p| p.set("/dir", Links, 9)),
    case(
        "no kind of file",
        false,
        &[
            "inode.unknown-kind",
            "entry.unallocated",
            "bitmap.inodes-leaked",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/pieces", Mode, 0o001_644),
    )
    .gone(&["/pieces"]),
    case("another kind", false, &["entry.kind"], |p| p.set("/dir/fifo", Mode, 0o140_644))
        .gone(&["/dir/fifo"]),
    case(
        "cleared in part",
        false,
        &[
            "inode.partly-cleared",
            "entry.unallocated",
            "bitmap.inodes-leaked",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/pieces", Mode, 0),
    )
    .gone(&["/pieces"]),
    case("blocks counted wrong", true, &["inode.block-count"], |p| p.set("/pieces", Blocks, 4)),
    case(
        "a block outside",
        false,
        &[
            "inode.block-range",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/dir/small", Direct(0), 1 << 30),
    )
    .gone(&["/dir/small", "/dir/hard"]),
    case(
        "two owners",
        false,
        &[
            "inode.duplicate-blocks",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| {
            let number = p.get("/dir/small", Direct(0));
            p.set("/dir/slow", Direct(0), number);
        },
    )
    // Which of them is the later depends on the order makefs numbers them in.
    .gone(&["/dir/small", "/dir/hard", "/dir/slow"]),
    case(
        "a group's own block",
        false,
        &[
            "inode.duplicate-blocks",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| {
            let group = p.group() / p.fragment();
            p.set("/dir/small", Direct(0), group as u64);
        },
    )
    .gone(&["/dir/small", "/dir/hard"]),
    case("a block past the end", false, &["inode.block-past-end"], |p| {
        let number = p.get("/dir/small", Direct(0));
        p.set("/dir/small", Direct(1), number);
    }),
    case("a block past the end, far behind", false, &["inode.block-past-end"], |p| {
        let (block, free) = (p.get("/pieces", Indirect(0)), p.free_block());
        p.put_pointer(block, 200, free);
    }),
    case("a length of a pipe", false, &["inode.length"], |p| p.set("/dir/fifo", Size, 1)),
    case("a device without a number", false, &["inode.device", "entry.kind"], |p| {
        p.set("/dir/fifo", Mode, 0o020_644);
        p.set("/dir/fifo", Direct(0), u64::MAX);
    })
    .gone(&["/dir/fifo"]),
    case("a block of a pipe", false, &["inode.block-past-end"], |p| {
        let block = p.free_block();
        p.set("/dir/fifo", Direct(0), block);
    }),
    case("a tree of a socket", false, &["inode.block-past-end", "entry.kind"], |p| {
        p.set("/dir/fifo", Mode, 0o140_644);
        p.set("/dir/fifo", Indirect(2), 5);
    })
    .gone(&["/dir/fifo"]),
    case("more than a device's number", false, &["inode.block-past-end", "entry.kind"], |p| {
        p.set("/dir/fifo", Mode, 0o020_644);
        p.set("/dir/fifo", Direct(0), 0x0103);
        p.set("/dir/fifo", Direct(1), 9);
    })
    .gone(&["/dir/fifo"]),
    case("a tree past the end", false, &["inode.block-past-end"], |p| {
        let free = p.free_block();
        p.set("/dir/small", Indirect(1), free);
    }),
    case("a file that ends in a hole", true, &["inode.size-past-blocks"], |p| {
        let size = p.get("/pieces", Size);
        p.set("/pieces", Size, size + 300_000);
    })
    .gone(&["/pieces"]),
    case(
        "a short file that ends in a hole",
        false,
        &[
            "inode.size-past-blocks",
            "inode.block-count",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/dir/small", Direct(0), 0),
    )
    .gone(&["/dir/small", "/dir/hard"]),
    case("a name that is there twice", false, &["entry.duplicate"], |p| {
        let small = p.find("/dir/small");
        p.add_entry("/dir", "fifo", small, 8);
    }),
    case(
        "an indirect block in itself",
        false,
        &[
            "inode.duplicate-blocks",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| {
            let block = p.get("/pieces", Indirect(0));
            p.put_pointer(block, 0, block);
        },
    )
    .gone(&["/pieces"]),
    case(
        "an endless file",
        false,
        &[
            "inode.length",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/dir/small", Size, u64::MAX),
    )
    .gone(&["/dir/small", "/dir/hard"]),
    case(
        "a symlink without its target",
        false,
        &[
            "inode.length",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/dir/slow", Direct(0), 0),
    )
    .gone(&["/dir/slow"]),
    case("a symlink's blocks counted wrong", true, &["inode.block-count"], |p| {
        p.set("/dir/slow", Blocks, 0);
    }),
    case("attributes outside", false, &["inode.block-range", "inode.block-count"], |p| {
        p.set("/dir/small", AttributeSize, 512);
        p.set("/dir/small", AttributeBlock, 1 << 40);
        p.set("/pieces", Blocks, 4);
    })
    .of_ufs2(),
    case("attributes of noise", false, &["inode.attributes"], |p| {
        let free = p.free_block();
        let at = free as usize * p.fragment();
        p.bytes[at..at + 512].fill(0x33);
        p.set("/dir/small", AttributeSize, 512);
        p.set("/dir/small", AttributeBlock, free);
    })
    .of_ufs2(),
    case("a mark of a snapshot", false, &["inode.snapshot"], |p| {
        p.set("/dir/small", Flags, 0x0020_0000);
    }),
    case(
        "a directory of odd length",
        false,
        &[
            "inode.length",
            "directory.unconnected",
            "inode.links-high",
            "inode.unreferenced",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/dir", Size, 511),
    ),
    case(
        "a directory without length",
        false,
        &[
            "inode.length",
            "inode.unreferenced",
            "inode.links-high",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/dir/below", Size, 0),
    ),
    case(
        "a directory without blocks",
        false,
        &[
            "directory.hole",
            "directory.dot",
            "inode.unreferenced",
            "inode.links-high",
            "inode.block-count",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/many", Direct(0), 0),
    )
    .moved(&["/many/"])
    .gone(&["/many"]),
    case("a name of nothing", false, &["entry.unallocated", "inode.unreferenced"], |p| {
        let at = p.entry("/dir", "fifo");
        p.put(at, 4, 900);
    })
    .moved(&["/dir/fifo"]),
    case("a lost name", true, &["inode.unreferenced"], |p| {
        let at = p.entry("/dir", "fifo");
        p.put(at, 4, 0);
    })
    .moved(&["/dir/fifo"]),
    case("a file that was unlinked", true, &["inode.unreferenced"], |p| {
        let at = p.entry("/", "pieces");
        p.set("/pieces", Links, 0);
        p.put(at, 4, 0);
    })
    .gone(&["/pieces"]),
    case("a lost name, and a file in the way", true, &["inode.unreferenced"], |p| {
        let at = p.entry("/dir", "fifo");
        p.put(at, 4, 0);
        let at = p.entry("/", "pieces");
        p.put(at, 4, 0);
        let pieces = p.find("/pieces");
        p.add_entry("/", "lost+found", pieces, 8);
    })
    .moved(&["/dir/fifo", "/pieces"]),
    case("one name fewer", true, &["inode.links-high"], |p| {
        let at = p.entry("/dir", "hard");
        p.put(at, 4, 0);
    })
    .gone(&["/dir/hard"]),
    case("a slash in a name", false, &["entry.name"], |p| {
        let at = p.entry("/dir", "fifo");
        p.bytes[at + 9] = b'/';
    })
    .moved(&["/dir/fifo"]),
    case("no zero behind a name", false, &["entry.ending"], |p| {
        let at = p.entry("/dir", "fifo") + 12;
        p.bytes[at] = b'x';
    }),
    case("no room for a zero", false, &["entry.ending", "inode.links-low"], |p| {
        let fifo = p.find("/dir/fifo");
        p.add_entry("/dir", "four", fifo, 1);
        let at = p.entry("/dir", "four");
        let len = p.number(at + 4, 2);
        p.put(at + 4, 2, 12);
        p.put(at + 12, 4, 0);
        p.put(at + 16, 4, 0);
        p.put(at + 16, 2, len - 12);
    }),
    case("a second dot", false, &["entry.name", "inode.unreferenced"], |p| {
        let at = p.entry("/dir", "fifo");
        p.bytes[at + 7..at + 10].copy_from_slice(&[1, b'.', 0]);
    })
    .moved(&["/dir/fifo"]),
    case("an entry that says another kind", false, &["entry.kind"], |p| {
        let at = p.entry("/dir", "small");
        p.bytes[at + 6] = 10;
    }),
    case(
        "an entry across the unit",
        false,
        &["directory.corrupt", "inode.unreferenced", "inode.links-high"],
        |p| {
            let at = p.entry("/dir", "fifo");
            p.put(at + 4, 2, 1024);
        },
    )
    .moved(&["/dir/"])
    // Two names of one file.
    .gone(&["/dir/small", "/dir/hard"]),
    case("a unit of noise", false, &["directory.corrupt", "inode.unreferenced"], |p| {
        let at = p.data("/many") + 512;
        p.bytes[at..at + 512].fill(0xEE);
    })
    .moved(&["/many/"]),
    case(
        "no dots at all",
        false,
        &["directory.corrupt", "directory.dot", "inode.unreferenced", "inode.links-high"],
        |p| {
            let at = p.data("/dir/below");
            p.bytes[at..at + 512].fill(0xEE);
        },
    )
    .moved(&["/dir/below/text"]),
    case("`.` elsewhere", false, &["directory.dot", "inode.links-high"], |p| {
        let at = p.data("/dir");
        p.put(at, 4, 2);
    }),
    case("`.` by another name", false, &["directory.dot", "directory.two-names"], |p| {
        let at = p.data("/dir/below");
        p.bytes[at + 8] = b'x';
    }),
    case(
        "`..` elsewhere",
        false,
        &["directory.dot-dot", "inode.links-low", "inode.links-high"],
        |p| {
            let (dir, at) = (p.find("/dir"), p.data("/dir") + 12);
            p.put(at, 4, u64::from(dir.get()));
        },
    ),
    case("a directory adrift", true, &["directory.unconnected", "inode.links-high"], |p| {
        let at = p.entry("/", "dir");
        p.put(at, 4, 0);
    })
    .moved(&["/dir"]),
    case("a loop", false, &["directory.loop", "directory.dot-dot", "inode.unreferenced"], |p| {
        let dir = p.find("/dir");
        let (at, text) = (p.entry("/", "dir"), p.entry("/dir/below", "text"));
        p.put(at, 4, 0);
        p.put(text, 4, u64::from(dir.get()));
        p.bytes[text + 6] = 4;
    })
    .moved(&["/dir"]),
    case(
        "two names of a directory",
        false,
        &["directory.two-names", "inode.links-low", "inode.unreferenced"],
        |p| {
            let below = p.find("/dir/below");
            let at = p.entry("/dir", "fifo");
            p.put(at, 4, u64::from(below.get()));
            p.bytes[at + 6] = 4;
        },
    )
    .moved(&["/dir/fifo"]),
    case(
        "a name of the root",
        false,
        &["directory.two-names", "inode.links-low", "inode.unreferenced"],
        |p| {
            let at = p.entry("/dir", "fifo");
            p.put(at, 4, 2);
            p.bytes[at + 6] = 4;
        },
    )
    .moved(&["/dir/fifo"]),
    case(
        "no root",
        false,
        &[
            "root.missing",
            "inode.partly-cleared",
            "inode.unreferenced",
            "directory.unconnected",
            "bitmap.inodes-leaked",
            "bitmap.blocks-leaked",
            "group.summary",
            "group.counts",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/", Mode, 0),
    )
    .moved(&["/"]),
    case(
        "a root that is a file",
        false,
        &[
            "root.not-directory",
            "inode.unreferenced",
            "directory.unconnected",
            "group.summary",
            "summary-area",
            "superblock.totals",
        ],
        |p| p.set("/", Mode, 0o100_644),
    )
    .moved(&["/"]),
    case("an inode said to be free", false, &["bitmap.inodes-free"], |p| {
        let ino = p.find("/dir/small").get();
        let at = p.inode_map() + ino as usize / 8;
        p.bytes[at] &= !(1 << (ino % 8));
    }),
    case("an inode that leaked", true, &["bitmap.inodes-leaked"], |p| {
        use seekless_fs::Inspect;
        let ino = p.image.geometry().inodes_per_group as usize - 1;
        let at = p.inode_map() + ino / 8;
        p.bytes[at] |= 1 << (ino % 8);
    }),
    case("a block said to be free", false, &["bitmap.blocks-free"], |p| {
        let block = p.data("/dir/small") / p.fragment();
        let at = p.block_map() + block / 8;
        p.bytes[at] |= 1 << (block % 8);
    }),
    case("a block that leaked", true, &["bitmap.blocks-leaked", "group.clusters"], |p| {
        let block = p.free_block() as usize;
        let at = p.block_map() + block / 8;
        p.bytes[at] &= !(1 << (block % 8));
    }),
    case(
        "a map of noise",
        false,
        &["bitmap.blocks-leaked", "bitmap.blocks-free", "group.clusters"],
        |p| {
            let at = p.block_map();
            p.bytes[at..at + 64].fill(0x66);
        },
    ),
    case("a group's counts", true, &["group.summary"], |p| {
        let at = p.group() + 24;
        p.bytes[at + 3] ^= 1;
    }),
    case("a group's runs", true, &["group.counts"], |p| {
        let at = p.group() + 52 + 4;
        p.bytes[at] ^= 1;
    }),
    case("the summary area", true, &["summary-area"], |p| {
        let at = p.superblock() + 1096;
        let area = p.number(at, 8) as usize * p.fragment();
        p.bytes[area..area + 16].fill(0xFF);
    }),
    case("more than the four totals", true, &["superblock.totals"], |p| {
        let at = p.superblock() + 1008;
        p.put(at + 32, 8, 5);
        p.put(at + 56, 8, 1);
    }),
    case("a head that ends elsewhere", false, &["group.fields"], |p| {
        let at = p.group() + 100;
        p.put(at, 4, 400);
    }),
    case("old tables elsewhere", false, &["group.fields"], |p| {
        let at = p.group() + 84;
        p.put(at, 4, 160);
        p.put(at + 4, 4, 164);
    }),
    case("cylinders of a group", false, &["group.fields"], |p| {
        let at = p.group() + 16;
        p.put(at, 2, 9);
    }),
    case("a map elsewhere, where it has room", false, &["group.head"], |p| {
        let at = p.group() + 92;
        p.put(at, 4, 480);
    }),
    case("a hash where there are none", true, &["group.check-hash"], |p| {
        let at = p.group() + 132;
        p.put(at, 4, 0x1234_5678);
    }),
    case("a rotor outside", false, &["group.rotor"], |p| {
        let at = p.group() + 40;
        p.put(at, 4, 1 << 20);
    }),
    case("inodes of a group counted wrong", false, &["group.fields"], |p| {
        let (at, width) = (p.group() + if p.is_ufs1 { 18 } else { 116 }, 2);
        p.put(at, width, 77);
    }),
    case("something in a field that is unused", false, &["group.fields"], |p| {
        let at = p.group() + 144;
        p.put(at, 8, 1);
    }),
    case("a bit behind the map of a group", false, &["group.padding"], |p| {
        let at = p.behind_the_maps();
        p.bytes[at] |= 0x80;
    }),
    case("no group", false, &["group.head"], |p| {
        let at = p.group() + 4;
        p.bytes[at..at + 4].fill(0);
    }),
    case("a group of zeros", false, &["group.head"], |p| {
        let at = p.group();
        p.bytes[at..at + 4096].fill(0);
    }),
    case("maps that overlap", false, &["group.head"], |p| {
        let at = p.group();
        p.put(at + 96, 4, 168);
    }),
    case("inodes that were never written", false, &["group.initialised"], |p| {
        let at = p.group() + 120;
        p.put(at, 4, 0);
    })
    .of_ufs2(),
];
