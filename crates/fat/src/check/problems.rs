//! The table of problems. Phases: 0 for the boot sector and the FATs, 1 for directories and names,
//! 2 for chains and lengths, 3 for chains without a name, 4 for counts.

use seekless_fs::check::Preen;

seekless_fs::problems! {
    BOOT_UNUSABLE = {
        code: "boot.unusable", phase: 0, preen: Preen::Stops,
        text: "FAT32: the boot sector is invalid or of another version, its copy in sector 6 is not",
        question: Some("Restore the boot sector from its copy?"),
        repair: "it is restored",
    }
    BOOT_MARKS = {
        code: "boot.marks", phase: 0, preen: Preen::Stops,
        text: "the boot sector does not begin with a jump, or does not end with the bytes 0x55 and \
               0xAA: Windows and FreeBSD refuse the volume",
        question: Some("Write the jump and these bytes?"),
        repair: "they are written",
    }
    BOOT_LAYOUT = {
        code: "boot.layout", phase: 0, preen: Preen::Stops,
        text: "a number in the boot sector with which no subdirectory of the root is where its name \
               leads, or no length of a file there fits its chain, and another one with which they \
               are and do; a root directory that ends within a sector",
        question: Some("Correct the number?"),
        repair: "the number is corrected, FAT32: or the boot sector is restored from its copy",
    }
    BOOT_FATS = {
        code: "boot.fats", phase: 0, preen: Preen::Stops,
        text: "the boot sector counts more FATs than there are, or one where there are two",
        question: Some("Correct the number of FATs?"),
        repair: "the number is corrected",
    }
    BOOT_MEDIUM = {
        code: "boot.medium", phase: 0, preen: Preen::Stops,
        text: "the medium's byte in the boot sector is none, or not that of its copy and of the FAT",
        question: Some("Correct the byte?"),
        repair: "it becomes that of the copy, or else that of the first FAT, or else 0xF8",
    }
    BOOT_SECTORS = {
        code: "boot.sectors", phase: 0, preen: Preen::Stops,
        text: "FAT32: the boot sector names another sector than that of its copy or of the counts",
        question: Some("Correct the number of the sector?"),
        repair: "the number is corrected; 0 where there are no counts in the reserved sectors",
    }
    BOOT_COPY = {
        code: "boot.copy", phase: 0, preen: Preen::Repairs,
        text: "FAT32: the copy of the boot sector differs (the state byte aside)",
        question: Some("Write the copy?"),
        repair: "it is written",
    }
    BOOT_DIRTY = {
        code: "boot.dirty", phase: 0, preen: Preen::Repairs,
        text: "not unmounted, by the state byte (Linux)",
        question: Some("Mark the volume clean?"),
        repair: "it is marked clean, last of all",
    }
    BOOT_SIGNATURE = {
        code: "boot.signature", phase: 0, preen: Preen::Repairs,
        text: "the type of the file system stands in the boot sector, but not the signature of the \
               fields with it: number, label and type do not count",
        question: Some("Set the signature?"),
        repair: "it is set",
    }
    FAT_FIRST_ENTRY = {
        code: "fat.first-entry", phase: 0, preen: Preen::Stops,
        text: "the first entry is not the medium's byte; if another FAT has it, that one is used",
        question: Some("Set the first entry?"),
        repair: "it is set",
    }
    FAT_NOT_CLEAN = {
        code: "fat.not-clean", phase: 0, preen: Preen::Repairs,
        text: "not unmounted, by the flag in the FAT (Windows, BSD)",
        question: Some("Mark the volume clean?"),
        repair: "it is marked clean, last of all",
    }
    FAT_COPIES_DIFFER = {
        code: "fat.copies-differ", phase: 0, preen: Preen::Repairs,
        text: "FATs differ",
        question: Some("Copy the first FAT to the others?"),
        repair: "the first one is copied to the others",
    }
    FAT_ENTRY = {
        code: "fat.entry", phase: 0, preen: Preen::Stops,
        text: "an entry of the first FAT that is no cluster, or one to which another entry leads, \
               where another FAT has a possible one",
        question: Some("Take the entry of the other FAT?"),
        repair: "that of the other FAT is taken",
    }
    FAT_RANGE = {
        code: "fat.range", phase: 0, preen: Preen::Stops,
        text: "an entry with a number that is no cluster",
        question: Some("End the chain there?"),
        repair: "it becomes the end of its chain",
    }
    ROOT_CLUSTER = {
        code: "root.cluster", phase: 0, preen: Preen::Stops,
        text: "FAT32: the root directory's cluster is free",
        question: Some("Take the cluster again?"),
        repair: "it is taken again",
    }
    LABEL_DIFFERS = {
        code: "label.differs", phase: 0, preen: Preen::Repairs,
        text: "boot sector and root directory have different labels",
        question: Some("Copy the label of the root directory?"),
        repair: "that of the root directory is copied",
    }
    DIRECTORY_DOT = {
        code: "directory.dot", phase: 1, preen: Preen::Stops,
        text: "`.` or `..` is missing or damaged, or another entry stands in its place; wrong \
               cluster in `.`",
        question: Some("Write the entry?"),
        repair: "they are written; the other entry moves to a free slot behind them",
    }
    DIRECTORY_DOT_DOT = {
        code: "directory.dot-dot", phase: 1, preen: Preen::Repairs,
        text: "wrong cluster in `..`",
        question: Some("Set the cluster?"),
        repair: "it is set",
    }
    DIRECTORY_GARBAGE = {
        code: "directory.garbage", phase: 1, preen: Preen::Stops,
        text: "nothing in it is a directory: neither `.` nor `..`, nor entries most of which are \
               possible",
        question: Some("Remove its name?"),
        repair: "its name is removed; its clusters become a file in the root",
    }
    DIRECTORY_HIDDEN = {
        code: "directory.hidden", phase: 1, preen: Preen::Repairs,
        text: "entries behind the mark of the end, which Linux and fsck.fat see and others do not",
        question: Some("Remove the mark?"),
        repair: "the mark is removed, so that all see them",
    }
    DIRECTORY_LENGTH = {
        code: "directory.length", phase: 1, preen: Preen::Stops,
        text: "a directory with a length",
        question: Some("Set the length to 0?"),
        repair: "it is set to 0",
    }
    DIRECTORY_TOO_LONG = {
        code: "directory.too-long", phase: 1, preen: Preen::Stops,
        text: "more than 65,536 entries",
        question: Some("Cut the directory off there?"),
        repair: "it is cut off there",
    }
    ENTRY_DOTS = {
        code: "entry.dots", phase: 1, preen: Preen::Stops,
        text: "`.` or `..` where none belongs",
        question: Some("Remove the entry?"),
        repair: "it is removed; a file with such a name is kept, as `FSCKnnnn.REC`",
    }
    ENTRY_LABEL = {
        code: "entry.label", phase: 1, preen: Preen::Stops,
        text: "a label where none belongs, or with invalid characters",
        question: Some("Remove the label, or the mark of a file as one?"),
        repair: "it is removed; a file with such a mark is kept, without the mark",
    }
    ENTRY_KIND = {
        code: "entry.kind", phase: 1, preen: Preen::Stops,
        text: "a directory that is marked as a file, or a file with a length that is marked as a \
               directory",
        question: Some("Correct the mark?"),
        repair: "the mark is corrected",
    }
    NAME_PIECES = {
        code: "name.pieces", phase: 1, preen: Preen::Repairs,
        text: "pieces of a long name that belong to no entry",
        question: Some("Remove the pieces?"),
        repair: "they are removed; a file without its long name keeps the short one",
    }
    NAME_CHECKSUM = {
        code: "name.checksum", phase: 1, preen: Preen::Repairs,
        text: "wrong checksums in the pieces of a long name, which is that of the entry by another \
               piece or by the short name",
        question: Some("Set the checksums?"),
        repair: "they are set, so that the entry has its long name again",
    }
    NAME_FIELDS = {
        code: "name.fields", phase: 1, preen: Preen::Repairs,
        text: "a cluster or a type in a piece of a long name",
        question: Some("Clear the fields?"),
        repair: "they are cleared",
    }
    NAME_SHORT = {
        code: "name.short", phase: 1, preen: Preen::Stops,
        text: "an invalid short name",
        question: Some("Give it a new short name?"),
        repair: "it becomes `FSCKnnnn.REC`; the long name is kept",
    }
    NAME_DUPLICATE = {
        code: "name.duplicate", phase: 1, preen: Preen::Stops,
        text: "a short name that is there twice",
        question: Some("Give the second a new short name?"),
        repair: "it becomes `FSCKnnnn.REC`; the long name is kept",
    }
    NAME_DUPLICATE_LONG = {
        code: "name.duplicate-long", phase: 1, preen: Preen::Stops,
        text: "a long name that is there twice",
        question: Some("Remove the second long name?"),
        repair: "the second is removed; its file keeps the short name",
    }
    CHAIN_START = {
        code: "chain.start", phase: 2, preen: Preen::Stops,
        text: "the chain begins with a number that is no cluster",
        question: Some("Cut the chain off there?"),
        repair: "the file becomes empty; a directory is removed",
    }
    CHAIN_FREE = {
        code: "chain.free", phase: 2, preen: Preen::Stops,
        text: "the chain leads to a free cluster",
        question: Some("Cut the chain off there?"),
        repair: "it is cut off there, and the file's length with it; a directory without clusters \
                 is removed",
    }
    CHAIN_BAD = {
        code: "chain.bad", phase: 2, preen: Preen::Stops,
        text: "the chain leads to a bad cluster",
        question: Some("Cut the chain off there?"),
        repair: "it is cut off there, and the file's length with it; a directory without clusters \
                 is removed",
    }
    CHAIN_CYCLE = {
        code: "chain.cycle", phase: 2, preen: Preen::Stops,
        text: "the chain leads back to itself",
        question: Some("Cut the chain off there?"),
        repair: "it is cut off there, and the file's length with it",
    }
    CHAIN_SHARED = {
        code: "chain.shared", phase: 2, preen: Preen::Stops,
        text: "a cluster of another file",
        question: Some("Cut the second file off there?"),
        repair: "the file found second is cut off there; a directory without clusters is removed",
    }
    CHAIN_PAST_SIZE = {
        code: "chain.past-size", phase: 2, preen: Preen::Repairs,
        text: "more clusters than the length needs",
        question: Some("Free the rest of the chain?"),
        repair: "the rest is freed",
    }
    FILE_SIZE_PAST_CHAIN = {
        code: "file.size-past-chain", phase: 2, preen: Preen::Stops,
        text: "a file longer than its chain",
        question: Some("Shorten the file?"),
        repair: "see below",
    }
    FILE_NO_CHAIN = {
        code: "file.no-chain", phase: 2, preen: Preen::Stops,
        text: "a length without clusters",
        question: Some("Set the length to 0?"),
        repair: "it is set to 0",
    }
    CHAIN_LOST = {
        code: "chain.lost", phase: 3, preen: Preen::Repairs,
        text: "clusters that no file has",
        question: Some("Make a file of them?"),
        repair: "a file `FSCKnnnn.REC` in the root directory; with `--lost free`, and after a \
                 crash of a mount with `softdep` or `sync` ([below](#clusters-without-a-name)), \
                 they are freed",
    }
    ROOT_FULL = {
        code: "root.full", phase: 3, preen: Preen::Repairs,
        text: "the root directory of FAT12 or FAT16 has fewer free slots than there are chains \
               without a name",
        question: Some("Make files of them in a directory?"),
        repair: "they become files in a directory `FSCKnnnn.DIR`; without a free slot they are \
                 freed",
    }
    FSINFO_SIGNATURE = {
        code: "fsinfo.signature", phase: 4, preen: Preen::Stops,
        text: "FAT32: no signature",
        question: Some("Write it?"),
        repair: "it is written",
    }
    FSINFO_COUNT = {
        code: "fsinfo.count", phase: 4, preen: Preen::Repairs,
        text: "FAT32: a wrong count of free clusters. A count that says that it is not known is \
               no finding",
        question: Some("Set the count?"),
        repair: "it is set",
    }
}
