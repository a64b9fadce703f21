//! The table of problems. Phases are those of fsck_ffs: 1 for inodes and blocks, 2 for entries, 3
//! for unconnected directories, 4 for link counts, 5 for bitmaps and counts; 0 is the superblock.

use seekless_fs::check::Preen;

/// Missing names are no sign of a crash where some were not read.
const NAMES_ARE_KNOWN: Preen = Preen::Depends("where all directories could be read");
/// Without soft updates bitmaps are written at any time.
const BITMAPS_ARE_LATE: Preen =
    Preen::Depends("on a volume without soft updates that is not marked clean");

seekless_fs::problems! {
    SUPERBLOCK_UNUSABLE = {
        code: "superblock.unusable", phase: 0, preen: Preen::Stops,
        text: "it is invalid or missing",
        question: Some("Restore the superblock from a copy?"),
        repair: "it is restored from a copy",
    }
    SUPERBLOCK_FIXED = {
        code: "superblock.fixed", phase: 0, preen: Preen::Stops,
        text: "sizes or positions that match neither the copies nor the groups",
        question: Some("Restore the fields from a copy?"),
        repair: "those fields are restored from a copy",
    }
    SUPERBLOCK_DERIVED = {
        code: "superblock.derived", phase: 0, preen: Preen::Stops,
        text: "shifts, masks and `fs_maxfilesize` that do not match the sizes; `fs_sbsize` over \
               8,192; a wrong `fs_sblockloc` or `fs_sblockactualloc`; UFS1: fields for the \
               geometry of cylinders that newfs has set to fixed values since 2002, which FreeBSD \
               demands (`validate_sblock`)",
        question: Some("Compute the fields?"),
        repair: "they are computed",
    }
    SUPERBLOCK_TUNING = {
        code: "superblock.tuning", phase: 0, preen: Preen::Stops,
        text: "values out of range; `fs_maxcontig` that does not match `fs_contigsumsize`; listed \
               snapshots that are not snapshot files",
        question: Some("Set the fields?"),
        repair: "they are set from a copy, or to newfs's defaults",
    }
    SUPERBLOCK_CHECK_HASH = {
        code: "superblock.check-hash", phase: 0, preen: Preen::Repairs,
        text: "wrong check hash (a torn write), with no other error",
        question: Some("Compute the check hash?"),
        repair: "it is computed",
    }
    SUPERBLOCK_COPY = {
        code: "superblock.copy", phase: 0, preen: Preen::Stops,
        text: "a copy that has other sizes or is invalid",
        question: Some("Write the copy?"),
        repair: "it is written",
    }
    SUPERBLOCK_NOT_CLEAN = {
        code: "superblock.not-clean", phase: 0, preen: Preen::Repairs,
        text: "not unmounted, or marked for a check",
        question: Some("Mark the volume clean?"),
        repair: "it is marked clean, last of all",
    }
    JOURNAL_PENDING = {
        code: "journal.pending", phase: 0, preen: Preen::Repairs,
        text: "a journal of soft updates (`.sujournal`) of a volume that was not unmounted",
        question: Some("Use the journal?"),
        repair: "names, links and blocks in its records are completed or released, in place of a \
                 check of the whole volume",
    }
    JOURNAL_UNUSABLE = {
        code: "journal.unusable", phase: 0, preen: Preen::Repairs,
        text: "the superblock says that there is a journal, but there is none of the last mount: no \
               file `.sujournal` in the root, or one with other attributes, with holes, too long or \
               of another mount; or the volume has snapshots; or a block of the journal, or one that \
               it leads to, cannot be read; or nothing tells where the name of a directory is",
        question: Some("Check the whole volume?"),
        repair: "it is not used, and the whole volume is checked; without the file, the superblock \
                 does not say so any more",
    }
    JOURNAL_DAMAGED = {
        code: "journal.damaged", phase: 0, preen: Preen::Stops,
        text: "a journal that contradicts itself or the volume: segments are missing or have \
               records of no kind or of places that the volume does not have, or directories, maps \
               or link counts do not match the records",
        question: Some("Check the whole volume?"),
        repair: "it is not used, and the whole volume is checked",
    }
    GROUP_HEAD = {
        code: "group.head", phase: 1, preen: Preen::Stops,
        text: "the group has no header, or a bitmap is not where the sizes put it \
               (`check_cgmagic`)",
        question: Some("Rebuild the group?"),
        repair: "the header is written. UFS2: where it does not tell how many inodes were ever \
                 initialised, blocks of inodes count up to the first with something else in it",
    }
    GROUP_INITIALISED = {
        code: "group.initialised", phase: 1, preen: Preen::Stops,
        text: "UFS2: `cg_initediblk` excludes inodes in use, or is not a multiple of the inodes \
               in a block",
        question: Some("Raise it?"),
        repair: "it is raised, unused inodes up to it are zeroed",
    }
    INODE_UNREADABLE = {
        code: "inode.unreadable", phase: 1, preen: Preen::Stops,
        text: "it is past the end of the device",
        question: None,
        repair: "(left)",
    }
    INODE_UNKNOWN_KIND = {
        code: "inode.unknown-kind", phase: 1, preen: Preen::Stops,
        text: "its mode has no valid file type",
        question: Some("Clear the inode?"),
        repair: "it is cleared",
    }
    INODE_PARTLY_CLEARED = {
        code: "inode.partly-cleared", phase: 1, preen: Preen::Stops,
        text: "not in use, but with a length or blocks",
        question: Some("Clear the inode?"),
        repair: "it is cleared",
    }
    INODE_CHECK_HASH = {
        code: "inode.check-hash", phase: 1, preen: Preen::Stops,
        text: "wrong check hash",
        question: Some("Compute the check hash?"),
        repair: "it is computed; the inode's contents are checked like those of others",
    }
    INODE_SNAPSHOT = {
        code: "inode.snapshot", phase: 1,
        preen: Preen::Depends("for a file of a snapshot's length, whose removal was cut off"),
        text: "marked as a snapshot, but not listed in the superblock",
        question: Some("Remove the mark?"),
        repair: "the mark is removed; blocks that were not to be kept become holes",
    }
    INODE_LENGTH = {
        code: "inode.length", phase: 1,
        preen: Preen::Depends("for a directory removed in use, without a length or blocks"),
        text: "an impossible length; a length of a pipe, socket or device; a symlink without its \
               block; a directory without a length or blocks",
        question: Some("Correct the length, or clear the inode?"),
        repair: "a directory's length is rounded up, that of a pipe, socket or device becomes zero, a \
                 file or directory longer than any gets the length of its map; other inodes are \
                 cleared",
    }
    INODE_DEVICE = {
        code: "inode.device", phase: 1, preen: Preen::Stops,
        text: "a device file without a device number (`NODEV`)",
        question: Some("Clear the inode?"),
        repair: "it is cleared",
    }
    INODE_BLOCK_RANGE = {
        code: "inode.block-range", phase: 1, preen: Preen::Stops,
        text: "a block outside the volume, or one that crosses a block boundary",
        question: Some("Drop the block number?"),
        repair: "the file gets a hole there; it is cleared if nothing else of it is left, if more than ten \
                 of its block numbers are wrong, or if it is a symlink",
    }
    INODE_DUPLICATE_BLOCKS = {
        code: "inode.duplicate-blocks", phase: 1, preen: Preen::Stops,
        text: "a block that belongs to another inode, or to the volume's metadata",
        question: Some("Copy the block?"),
        repair: "the later claimer gets a copy, see below",
    }
    INODE_BLOCK_PAST_END = {
        code: "inode.block-past-end", phase: 1, preen: Preen::Stops,
        text: "block numbers past the end; in sockets, pipes, devices and short symlinks, \
               anything except the device number or the target",
        question: Some("Correct the length, or clear the block numbers?"),
        repair: "the file gets the length of its map if `di_blocks` counts all of that; else they are \
                 set to zero",
    }
    INODE_SIZE_PAST_BLOCKS = {
        code: "inode.size-past-blocks", phase: 1, preen: Preen::Depends("from block 12 on"),
        text: "a regular file that ends in a hole",
        question: Some("Shorten the file?"),
        repair: "it is shortened to its last block",
    }
    INODE_BLOCK_COUNT = {
        code: "inode.block-count", phase: 1, preen: Preen::Repairs,
        text: "wrong `di_blocks`",
        question: Some("Set the count?"),
        repair: "it is set",
    }
    INODE_ATTRIBUTES = {
        code: "inode.attributes", phase: 1, preen: Preen::Stops,
        text: "UFS2: invalid extended attributes",
        question: Some("Remove the attributes?"),
        repair: "all attributes of the inode are removed",
    }
    ROOT_MISSING = {
        code: "root.missing", phase: 2, preen: Preen::Stops,
        text: "there is no root directory",
        question: Some("Make a root directory?"),
        repair: "one is made",
    }
    ROOT_NOT_DIRECTORY = {
        code: "root.not-directory", phase: 2, preen: Preen::Stops,
        text: "the root is not a directory",
        question: Some("Clear it, and make a root directory?"),
        repair: "it is cleared, then made",
    }
    DIRECTORY_HOLE = {
        code: "directory.hole", phase: 2, preen: Preen::Stops,
        text: "a block is missing",
        question: Some("Cut the directory off there?"),
        repair: "the directory is cut off there; if its first block is missing, it is cleared",
    }
    DIRECTORY_CORRUPT = {
        code: "directory.corrupt", phase: 2, preen: Preen::Stops,
        text: "an invalid entry",
        question: Some("Drop the rest of its 512 bytes?"),
        repair: "the rest of its 512 bytes becomes unused",
    }
    DIRECTORY_DOT = {
        code: "directory.dot", phase: 2, preen: Preen::Stops,
        text: "`.` or `..` missing or in the wrong place, or wrong inode in `.`",
        question: Some("Put both in front?"),
        repair: "they are put in front",
    }
    DIRECTORY_DOT_DOT = {
        code: "directory.dot-dot", phase: 2, preen: Preen::Repairs,
        text: "wrong inode in `..`",
        question: Some("Set the inode?"),
        repair: "it is set to the directory that has the name",
    }
    DIRECTORY_TWO_NAMES = {
        code: "directory.two-names", phase: 2, preen: Preen::Depends("unless it is the root"),
        text: "an additional name of a directory",
        question: Some("Remove the name?"),
        repair: "the name in the directory that `..` refers to is kept, or else the first name",
    }
    ENTRY_NAME = {
        code: "entry.name", phase: 2, preen: Preen::Stops,
        text: "a name with `/` or a zero byte, or a second `.`",
        question: Some("Remove the entry?"),
        repair: "it is removed",
    }
    ENTRY_ENDING = {
        code: "entry.ending", phase: 2, preen: Preen::Stops,
        text: "no zero byte after a name",
        question: Some("Write the zero byte?"),
        repair: "it is written; where there is no room for it, the name is removed",
    }
    ENTRY_UNALLOCATED = {
        code: "entry.unallocated", phase: 2, preen: Preen::Stops,
        text: "the inode of the name is not in use",
        question: Some("Remove the entry?"),
        repair: "the name is removed",
    }
    ENTRY_DUPLICATE = {
        code: "entry.duplicate", phase: 2, preen: Preen::Stops,
        text: "the same name twice in a directory",
        question: Some("Remove the later entry?"),
        repair: "the later one is removed",
    }
    ENTRY_KIND = {
        code: "entry.kind", phase: 2, preen: Preen::Stops,
        text: "the file type differs from that of the inode",
        question: Some("Set the file type?"),
        repair: "it is set",
    }
    DIRECTORY_UNCONNECTED = {
        code: "directory.unconnected", phase: 3, preen: NAMES_ARE_KNOWN,
        text: "the directory has no name",
        question: Some("Reconnect it in `/lost+found`?"),
        repair: "see below",
    }
    DIRECTORY_LOOP = {
        code: "directory.loop", phase: 3, preen: Preen::Stops,
        text: "its only names are in directories below itself",
        question: Some("Remove a name in the loop?"),
        repair: "one name in the loop is removed; then as `directory.unconnected`",
    }
    INODE_UNREFERENCED = {
        code: "inode.unreferenced", phase: 4, preen: NAMES_ARE_KNOWN,
        text: "the inode has no name",
        question: Some("Reconnect it in `/lost+found`?"),
        repair: "see below",
    }
    INODE_LINKS_HIGH = {
        code: "inode.links-high", phase: 4, preen: NAMES_ARE_KNOWN,
        text: "link count higher than the number of names",
        question: Some("Set the link count?"),
        repair: "it is set",
    }
    INODE_LINKS_LOW = {
        code: "inode.links-low", phase: 4, preen: Preen::Stops,
        text: "link count lower than the number of names",
        question: Some("Set the link count?"),
        repair: "it is set",
    }
    GROUP_CHECK_HASH = {
        code: "group.check-hash", phase: 5,
        preen: Preen::Depends("on a volume not marked clean or without hashes of groups"),
        text: "wrong check hash; a check hash on a volume without hashes of groups, where \
               fsck_ffs from before FreeBSD 12 expects zero",
        question: Some("Compute the check hash?"),
        repair: "it is computed, or becomes zero",
    }
    GROUP_SUMMARY = {
        code: "group.summary", phase: 5, preen: Preen::Repairs,
        text: "counts that do not match the bitmaps",
        question: Some("Compute the counts?"),
        repair: "they are computed",
    }
    GROUP_COUNTS = {
        code: "group.counts", phase: 5, preen: Preen::Repairs,
        text: "counts of runs of fragments or of clusters that do not match the bitmaps",
        question: Some("Compute the counts?"),
        repair: "they are computed",
    }
    GROUP_CLUSTERS = {
        code: "group.clusters", phase: 5, preen: Preen::Repairs,
        text: "a map of free blocks that does not match that of fragments",
        question: Some("Compute the map?"),
        repair: "it is computed",
    }
    GROUP_ROTOR = {
        code: "group.rotor", phase: 5, preen: Preen::Stops,
        text: "a search would begin outside the group",
        question: Some("Set it to the group's start?"),
        repair: "it is set to the group's start",
    }
    GROUP_FIELDS = {
        code: "group.fields", phase: 5, preen: Preen::Stops,
        text: "`cg_niblk`, `cg_old_niblk`, `cg_old_ncyl`, `cg_old_btotoff`, `cg_old_boff` or \
               `cg_nextfreeoff` does not match the superblock; an unused field is not zero",
        question: Some("Set the fields?"),
        repair: "they are set",
    }
    GROUP_PADDING = {
        code: "group.padding", phase: 5, preen: Preen::Stops,
        text: "bits set in the bitmaps past the group's end",
        question: Some("Clear the bits?"),
        repair: "they are cleared",
    }
    BITMAP_INODES_LEAKED = {
        code: "bitmap.inodes-leaked", phase: 5, preen: Preen::Repairs,
        text: "inodes marked as in use, but free",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    BITMAP_INODES_FREE = {
        code: "bitmap.inodes-free", phase: 5, preen: BITMAPS_ARE_LATE,
        text: "inodes in use, but marked as free",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    BITMAP_BLOCKS_LEAKED = {
        code: "bitmap.blocks-leaked", phase: 5, preen: Preen::Repairs,
        text: "fragments marked as in use, but free",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    BITMAP_BLOCKS_FREE = {
        code: "bitmap.blocks-free", phase: 5, preen: BITMAPS_ARE_LATE,
        text: "fragments in use, but marked as free",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    SUMMARY_AREA = {
        code: "summary-area", phase: 5, preen: Preen::Repairs,
        text: "counts that do not match the groups",
        question: Some("Write the summary area?"),
        repair: "they are written",
    }
    SUPERBLOCK_TOTALS = {
        code: "superblock.totals", phase: 5, preen: Preen::Repairs,
        text: "sums that do not match the groups; more than the four totals in `fs_cstotal`",
        question: Some("Compute the totals?"),
        repair: "they are computed",
    }
}
