//! The table of problems. Phases are e2fsck's passes: 0 for superblock, journal and descriptors, 1
//! for inodes and blocks, 2 for entries, 3 for unconnected directories, 4 for link counts, 5 for
//! bitmaps and counts.

use seekless_fs::check::{Class, Finding, Preen};

seekless_fs::problems! {
    SUPERBLOCK_CORRUPT = {
        code: "superblock.corrupt", phase: 0, preen: Preen::Stops,
        text: "it is invalid or missing; the first valid copy is used instead",
        question: Some("Restore the superblock from a copy?"),
        repair: "that copy is written",
    }
    SUPERBLOCK_CHECKSUM = {
        code: "superblock.checksum", phase: 0, preen: Preen::Stops,
        text: "wrong checksum; the first valid copy is used instead",
        question: Some("Restore the superblock from a copy?"),
        repair: "that copy is written; without one, the checksum is computed",
    }
    SUPERBLOCK_INODES = {
        code: "superblock.inodes", phase: 0, preen: Preen::Stops,
        text: "the number of inodes is not that of the groups, and there is no valid copy",
        question: Some("Set the number of inodes?"),
        repair: "it is set to the inodes of all groups",
    }
    SUPERBLOCK_REQUESTED = {
        code: "superblock.requested", phase: 0, preen: Preen::Repairs,
        text: "with `-b`: the copy in that block is used in its place",
        question: Some("Write the copy in its place?"),
        repair: "that copy is written",
    }
    SUPERBLOCK_ERRORS = {
        code: "superblock.errors", phase: 0, preen: Preen::Repairs,
        text: "it records errors",
        question: Some("Mark the volume clean?"),
        repair: "it is marked clean, last of all",
    }
    SUPERBLOCK_NOT_CLEAN = {
        code: "superblock.not-clean", phase: 0, preen: Preen::Repairs,
        text: "it is not marked clean",
        question: Some("Mark the volume clean?"),
        repair: "it is marked clean, last of all",
    }
    SUPERBLOCK_SIZE = {
        code: "superblock.size", phase: 0, preen: Preen::Stops,
        text: "the volume is longer than the device; without a copy of the superblock that fits, it \
               is checked as if zeros were missing",
        question: Some("Abort?"),
        repair: "nothing is written, the volume is refused",
    }
    SUPERBLOCK_SHARED = {
        code: "superblock.shared-blocks", phase: 0,
        preen: Preen::Depends("where there is room for the copies"),
        text: "with `-E unshare_blocks`: files may share blocks",
        question: Some("Copy the blocks?"),
        repair: "each file gets its own copy, and the feature is cleared; without room for all \
                 copies, nothing is copied",
    }
    SUPERBLOCK_MMP = {
        code: "superblock.mmp", phase: 0, preen: Preen::Depends("where the block is in the volume, and in no other metadata"),
        text: "the block of multiple mount protection is outside the volume, in other metadata, or \
               invalid",
        question: Some("Make the block?"),
        repair: "a wrong checksum: the block is made again; otherwise one in free space",
    }
    SUPERBLOCK_RESERVED = {
        code: "superblock.reserved", phase: 0, preen: Preen::Stops,
        text: "blocks reserved for further descriptors without the resize_inode feature",
        question: Some("Reserve none?"),
        repair: "their number becomes zero",
    }
    SUPERBLOCK_FIELDS = {
        code: "superblock.fields", phase: 0,
        preen: Preen::Depends("for the journal's inode, and for the first revision with features"),
        text: "values that no other field depends on, but for which e2fsck rejects the \
               superblock: revision, first_meta_bg, reserved blocks, clusters per group, flex_bg size, \
               descriptor size, journal inode",
        question: Some("Set the fields?"),
        repair: "they are set",
    }
    SUPERBLOCK_FEATURES = {
        code: "superblock.features", phase: 0, preen: Preen::Stops,
        text: "a feature is set or missing, contrary to the group descriptors and a copy of the \
               superblock, to an inode or its links, or to other features",
        question: Some("Set or clear the feature?"),
        repair: "the feature is set or cleared; no file changes",
    }
    SUPERBLOCK_UNSUPPORTED = {
        code: "superblock.unsupported", phase: 0, preen: Preen::Stops,
        text: "a feature that is unknown or not supported, or casefold without a known encoding",
        question: Some("Clear the feature if a copy of the superblock lacks it?"),
        repair: "a feature that has a name is cleared if the superblock has no checksum and a copy \
                 lacks it; others may be of a newer kernel, and the volume is refused by the name of \
                 the feature",
    }
    JOURNAL_PENDING = {
        code: "journal.pending", phase: 0,
        preen: Preen::Depends("where the volume's superblock says that there are any"),
        text: "the journal has pending changes, or has none although the superblock says so",
        question: Some("Replay the journal?"),
        repair: "they are written back, and the journal is emptied",
    }
    JOURNAL_CORRUPT = {
        code: "journal.corrupt", phase: 0, preen: Preen::Repairs,
        text: "its superblock is invalid, it cannot be replayed, or it lacks a block",
        question: Some("Empty the journal, or make a new one?"),
        repair: "transactions before the damage are written back, then it is emptied; or its inode \
                 is restored, or a new one is made; where there is no room for one it is removed",
    }
    JOURNAL_CHECKSUM = {
        code: "journal.checksum", phase: 0, preen: Preen::Repairs,
        text: "wrong checksum of the journal's superblock",
        question: Some("Empty the journal?"),
        repair: "it is emptied",
    }
    JOURNAL_FIELDS = {
        code: "journal.fields", phase: 0, preen: Preen::Repairs,
        text: "a superblock of a journal of version 1 with fields of version 2, or of a journal of \
               this volume alone with several users",
        question: Some("Clear the fields?"),
        repair: "they are cleared",
    }
    JOURNAL_ERROR = {
        code: "journal.error", phase: 0, preen: Preen::Repairs,
        text: "it was left after an error",
        question: Some("Empty the journal, and clear the error?"),
        repair: "it is emptied, and the error cleared",
    }
    GROUP_HEAD = {
        code: "group.head", phase: 0,
        preen: Preen::Depends(
            "for a pointer of a bitmap to block 0 where the group may begin there, and for marks",
        ),
        text: "a descriptor that points out of the volume, into other metadata or to a table \
               without inodes, or with marks of never written parts where it can have none",
        question: Some("Restore the descriptor, or place the bitmap elsewhere?"),
        repair: "it is written, with pointers of a copy; a bitmap for which no copy has one is made \
                 again in a free block if all inode tables are known, a table is left",
    }
    GROUP_CHECKSUM = {
        code: "group.checksum", phase: 0, preen: Preen::Repairs,
        text: "wrong checksum of a descriptor",
        question: Some("Compute the checksum?"),
        repair: "it is computed; marks of never written parts are removed",
    }
    ORPHAN_LIST = {
        code: "orphan.list", phase: 0, preen: Preen::Repairs,
        text: "a list of files to be deleted or truncated that a mount would drop",
        question: Some("Drop the list?"),
        repair: "it is dropped",
    }
    ORPHAN_FILE = {
        code: "orphan.file", phase: 0,
        preen: Preen::Depends("unless its blocks have checksums without metadata_csum"),
        text: "an orphan file with an invalid block, with inodes that are not in use, with inodes \
               though the superblock says that it is empty, or with checksums of blocks without \
               metadata_csum",
        question: Some("Write the orphan file again?"),
        repair: "it is written again",
    }
    ORPHAN_FILE_EMPTY = {
        code: "orphan.empty-file", phase: 0, preen: Preen::Repairs,
        text: "an orphan file without inodes though the superblock says that there are some, as \
               each crash leaves it",
        question: Some("Clear the mark in the superblock?"),
        repair: "it is cleared",
    }
    INODE_ORPHAN = {
        code: "inode.orphan", phase: 0, preen: Preen::Repairs,
        text: "a file that a mount would delete or truncate",
        question: Some("Delete or truncate the file?"),
        repair: "it is deleted, or truncated to its length",
    }
    INODE_UNREADABLE = {
        code: "inode.unreadable", phase: 1, preen: Preen::Depends("for `i_extra_isize`"),
        text: "impossible sizes; it is past the end of the device",
        question: Some("Set the size?"),
        repair: "`i_extra_isize` is set, a length becomes zero; past the end of the device it is \
                 left",
    }
    INODE_UNKNOWN_KIND = {
        code: "inode.unknown-kind", phase: 1, preen: Preen::Stops,
        text: "a mode without a valid file type, or of a device or pipe with the contents of a \
               directory",
        question: Some("Clear the inode, or make it a directory?"),
        repair: "it is cleared; a directory gets its mode back",
    }
    INODE_RESERVED = {
        code: "inode.reserved", phase: 1,
        preen: Preen::Depends(
            "for the journal and quotas, for contents of one kept for these, and for the mode of \
             one without a use",
        ),
        text: "a reserved inode with an invalid mode, or with a length, blocks or flags that it \
               cannot have; one kept for a journal or quotas that the volume does not have, with \
               contents",
        question: Some("Clear or restore the inode?"),
        repair: "the resize inode is written again, the journal's is restored or a new journal \
                 made, an orphan file is removed, a quota file and the boot loader's inode get \
                 their mode, others are cleared",
    }
    INODE_PARTLY_CLEARED = {
        code: "inode.partly-cleared", phase: 1, preen: Preen::Repairs,
        text: "not in use, without a deletion time",
        question: Some("Set the deletion time?"),
        repair: "it is set",
    }
    INODE_DELETION_TIME = {
        code: "inode.deletion-time", phase: 1,
        preen: Preen::Depends("unless it is the number of an inode"),
        text: "in use, with a deletion time; the number of an inode in the time's place",
        question: Some("Clear the deletion time?"),
        repair: "it is cleared; set where the inode is not in use",
    }
    INODE_TIME = {
        code: "inode.time", phase: 1, preen: Preen::Repairs,
        text: "a time after the year 2310, as older kernels wrote times before 1970",
        question: Some("Correct the time?"),
        repair: "it is the time before 1970",
    }
    INODE_CHECKSUM = {
        code: "inode.checksum", phase: 1, preen: Preen::Repairs,
        text: "wrong checksum",
        question: Some("Compute the checksum?"),
        repair: "it is computed",
    }
    INODE_FLAGS = {
        code: "inode.flags", phase: 1,
        preen: Preen::Depends(
            "for the flag of an index, that of an extent tree, and for `i_file_acl_hi` alone",
        ),
        text: "flags and fields that the kind of file or the features rule out; an extent tree \
               without its flag",
        question: Some("Correct the fields, or clear the inode?"),
        repair: "they are cleared or set; a device, pipe or socket with an index is cleared",
    }
    INODE_ENCRYPTION = {
        code: "inode.encryption", phase: 1, preen: Preen::Stops,
        text: "marked as encrypted without the attribute for it, or with an invalid one",
        question: Some("Clear the mark, or the inode?"),
        repair: "without the attribute the mark is cleared, with an invalid one the inode",
    }
    INODE_LENGTH = {
        code: "inode.length", phase: 1,
        preen: Preen::Depends(
            "unless it is that of a symlink, of one of the volume's own files, or of a file with \
             extents past it",
        ),
        text: "a length that does not match the blocks, the room in the inode or the target",
        question: Some("Correct the length?"),
        repair: "it is set; an empty symlink becomes a file, other symlinks and directories \
                 without blocks are cleared",
    }
    INODE_BLOCK_MAP = {
        code: "inode.block-map", phase: 1,
        preen: Preen::Depends(
            "for a resize inode that lists more or fewer blocks than it counts, and for a directory \
             with blocks that are marked as never written",
        ),
        text: "invalid extents or block numbers, blocks where the kind of file can have none or \
               that lie in a cluster otherwise than in the file, a resize inode that lists other \
               blocks than it should",
        question: Some("Write the map again?"),
        repair: "the map is written again, to free blocks, of what can be read",
    }
    INODE_MAP_CHECKSUM = {
        code: "inode.map-checksum", phase: 1, preen: Preen::Stops,
        text: "wrong checksum in an extent block",
        question: Some("Compute the checksum?"),
        repair: "it is computed",
    }
    INODE_BLOCK_RANGE = {
        code: "inode.block-range", phase: 1, preen: Preen::Stops,
        text: "blocks of the volume's own metadata; a block of attributes outside the volume",
        question: Some("Remove the blocks from the file?"),
        repair: "the map is written again, with copies of the blocks; attributes outside are \
                 removed",
    }
    INODE_DUPLICATE_BLOCKS = {
        code: "inode.duplicate-blocks", phase: 1, preen: Preen::Stops,
        text: "blocks that belong to another inode",
        question: Some("Copy the blocks?"),
        repair: "they are copied; without room for a copy the file with the lower inode number is \
                 removed",
    }
    INODE_BLOCK_COUNT = {
        code: "inode.block-count", phase: 1, preen: Preen::Repairs,
        text: "wrong `i_blocks`",
        question: Some("Set the count?"),
        repair: "it is set",
    }
    INODE_ATTRIBUTES = {
        code: "inode.attributes", phase: 1,
        preen: Preen::Depends("for a wrong hash, and for values in inodes of their own"),
        text: "invalid attributes, or such whose value is in an inode that has another one or is not \
               marked; inline data without the attribute for it",
        question: Some("Remove the attributes, or mark the inode?"),
        repair: "those in the inode, or those in its block, are removed; an inode with a value is \
                 marked; a file without its inline data becomes empty, a directory or symlink is \
                 cleared",
    }
    INODE_ATTRIBUTES_CHECKSUM = {
        code: "inode.attributes-checksum", phase: 1, preen: Preen::Stops,
        text: "wrong checksum of a block of attributes",
        question: Some("Compute the checksum?"),
        repair: "it is computed",
    }
    SUPERBLOCK_LARGE_FILE = {
        code: "superblock.large-file", phase: 2, preen: Preen::Repairs,
        text: "a file of 2 GiB or more without the large_file feature",
        question: Some("Set the feature?"),
        repair: "the feature is set",
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
        question: Some("Write the directory again?"),
        repair: "it is written again, without the hole",
    }
    DIRECTORY_CORRUPT = {
        code: "directory.corrupt", phase: 2, preen: Preen::Stops,
        text: "an invalid entry",
        question: Some("Write the directory again?"),
        repair: "it is written again, with the entries that can be read",
    }
    DIRECTORY_CHECKSUM = {
        code: "directory.checksum", phase: 2, preen: Preen::Repairs,
        text: "wrong checksum of a block, or no room for one",
        question: Some("Compute the checksum?"),
        repair: "it is computed; without room the directory is written again",
    }
    DIRECTORY_INDEX = {
        code: "directory.index", phase: 2,
        preen: Preen::Depends("for limits, counts, order and versions in the index"),
        text: "a hashed directory in which a lookup would not find every name, or with blocks \
               that are not in its index",
        question: Some("Write the directory again?"),
        repair: "it is written again, with a new index",
    }
    DIRECTORY_DOT = {
        code: "directory.dot", phase: 2,
        preen: Preen::Depends("for a name that does not end in a zero byte"),
        text: "`.` or `..` missing or wrong",
        question: Some("Correct the entry?"),
        repair: "`.` leads to the directory, names get their zero byte; else the directory is \
                 written again",
    }
    DIRECTORY_TWO_NAMES = {
        code: "directory.two-names", phase: 2, preen: Preen::Stops,
        text: "an additional name of a directory",
        question: Some("Remove the name?"),
        repair: "the name in the directory that `..` refers to is kept, or else the first name",
    }
    ENTRY_NAME = {
        code: "entry.name", phase: 2, preen: Preen::Stops,
        text: "an invalid name, or a second `.` or `..`",
        question: Some("Correct the name?"),
        repair: "bytes that no path can have become dots; a second `.` or `..` is removed",
    }
    ENTRY_ENCRYPTION = {
        code: "entry.encryption", phase: 2, preen: Preen::Stops,
        text: "a name in an encrypted directory that is too short, or of an inode that is not \
               encrypted or has another policy than the directory",
        question: Some("Remove the entry?"),
        repair: "it is removed; its file gets a name in `/lost+found`",
    }
    ENTRY_DUPLICATE = {
        code: "entry.duplicate", phase: 2, preen: Preen::Stops,
        text: "a duplicate name",
        question: Some("Rename the second entry?"),
        repair: "the second gets `~` and a number; in an inline or encrypted directory it is \
                 removed",
    }
    ENTRY_UNALLOCATED = {
        code: "entry.unallocated", phase: 2,
        preen: Preen::Depends(
            "for an inode that files may have, unless it lies in the unused part of its table and \
             has another file type",
        ),
        text: "an inode that is not in use",
        question: Some("Remove the entry?"),
        repair: "the entry is removed; for an inode in the unused part of its table, the part \
                 counts as used",
    }
    ENTRY_KIND = {
        code: "entry.kind", phase: 2,
        preen: Preen::Depends("on a volume without the filetype feature"),
        text: "a file type that differs from the inode's",
        question: Some("Set the file type?"),
        repair: "it is set",
    }
    DIRECTORY_DOT_DOT = {
        code: "directory.dot-dot", phase: 3, preen: Preen::Stops,
        text: "wrong inode in `..`",
        question: Some("Set the inode?"),
        repair: "it is set",
    }
    DIRECTORY_UNCONNECTED = {
        code: "directory.unconnected", phase: 3, preen: Preen::Stops,
        text: "the directory has no name",
        question: Some("Reconnect it in `/lost+found`?"),
        repair: "it is named `#` and its inode number in `/lost+found`",
    }
    DIRECTORY_LOOP = {
        code: "directory.loop", phase: 3, preen: Preen::Stops,
        text: "its only names are in directories below itself",
        question: Some("Remove a name in the loop?"),
        repair: "one name in the loop is removed; then as `directory.unconnected`",
    }
    LOST_FOUND_MISSING = {
        code: "lost-found.missing", phase: 3, preen: Preen::Repairs,
        text: "there is no `lost+found`, on a volume with other findings",
        question: Some("Make `lost+found`?"),
        repair: "it is made",
    }
    INODE_UNREFERENCED = {
        code: "inode.unreferenced", phase: 4,
        preen: Preen::Depends("if it is empty and all directories could be read"),
        text: "the inode has no name; the value of an attribute that no inode has",
        question: Some("Reconnect it in `/lost+found`, or clear it?"),
        repair: "it is named `#` and its inode number in `/lost+found`, a value as a file; an empty \
                 one is cleared",
    }
    INODE_LINKS_HIGH = {
        code: "inode.links-high", phase: 4, preen: Preen::Repairs,
        text: "link count too high",
        question: Some("Set the link count?"),
        repair: "it is set",
    }
    INODE_LINKS_LOW = {
        code: "inode.links-low", phase: 4, preen: Preen::Repairs,
        text: "link count too low",
        question: Some("Set the link count?"),
        repair: "it is set",
    }
    ATTRIBUTES_COUNT = {
        code: "attributes.count", phase: 4, preen: Preen::Depends("for an inode with a value"),
        text: "a shared block of attributes, or an inode with the value of some, with a wrong \
               reference count",
        question: Some("Set the reference count?"),
        repair: "it is set",
    }
    BITMAP_UNREADABLE = {
        code: "bitmap.unreadable", phase: 5, preen: Preen::Stops,
        text: "the bitmap cannot be read",
        question: None,
        repair: "(left)",
    }
    BITMAP_CHECKSUM = {
        code: "bitmap.checksum", phase: 5, preen: Preen::Repairs,
        text: "wrong checksum",
        question: Some("Compute the checksum?"),
        repair: "it is computed",
    }
    BITMAP_PADDING = {
        code: "bitmap.padding", phase: 5, preen: Preen::Repairs,
        text: "bits past the end of the group are not set",
        question: Some("Set the bits?"),
        repair: "they are set",
    }
    BITMAP_BLOCKS_LEAKED = {
        code: "bitmap.blocks-leaked", phase: 5, preen: Preen::Repairs,
        text: "blocks marked, but not in use",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    BITMAP_BLOCKS_FREE = {
        code: "bitmap.blocks-free", phase: 5, preen: Preen::Repairs,
        text: "blocks in use, but not marked",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    BITMAP_INODES_LEAKED = {
        code: "bitmap.inodes-leaked", phase: 5, preen: Preen::Repairs,
        text: "inodes marked, but not in use",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    BITMAP_INODES_FREE = {
        code: "bitmap.inodes-free", phase: 5, preen: Preen::Repairs,
        text: "inodes in use, but not marked",
        question: Some("Write the bitmap?"),
        repair: "the bitmap is written",
    }
    QUOTA_UNREADABLE = {
        code: "quota.unreadable", phase: 5, preen: Preen::Repairs,
        text: "a quota file that is not one of its kind, does not match its length, or has \
               references out of it",
        question: Some("Write the quota file?"),
        repair: "a new one is written, with the usage and the limits that can be read",
    }
    QUOTA_USAGE = {
        code: "quota.usage", phase: 5, preen: Preen::Repairs,
        text: "the usage of a user, group or project is not that of its files",
        question: Some("Write the quota file?"),
        repair: "it is written again, with the limits that it has",
    }
    GROUP_COUNTS = {
        code: "group.counts", phase: 5, preen: Preen::Repairs,
        text: "wrong counts of a group",
        question: Some("Set the counts?"),
        repair: "they are set",
    }
    SUPERBLOCK_TOTALS = {
        code: "superblock.totals", phase: 5, preen: Preen::Repairs,
        text: "wrong totals of the volume",
        question: Some("Set the totals?"),
        repair: "they are set",
    }
}

/// Whether e2fsck corrects a finding without printing it.
#[must_use]
pub fn is_silent(finding: &Finding) -> bool {
    let is_printed = finding.is(SUPERBLOCK_SHARED);
    (is_uncounted(finding) && !is_printed) || finding.is(SUPERBLOCK_NOT_CLEAN)
}

/// Whether e2fsck corrects a finding without an effect on its exit code.
#[must_use]
pub fn is_uncounted(finding: &Finding) -> bool {
    finding.class == Class::Expected
        && (finding.is(JOURNAL_PENDING)
            || finding.is(JOURNAL_ERROR)
            || finding.is(SUPERBLOCK_ERRORS)
            || finding.is(SUPERBLOCK_SHARED))
}

/// Whether `e2fsck -n` ends with 0 in spite of a finding.
#[must_use]
pub fn is_passed_over(finding: &Finding) -> bool {
    is_uncounted(finding) || is_silent(finding) || finding.is(SUPERBLOCK_SIZE)
}
