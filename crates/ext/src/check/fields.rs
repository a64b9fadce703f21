//! Pass 1: flags and fields of an inode that its kind or the volume's features rule
//! out (e2fsck, `e2fsck_pass1` and `e2fsck_process_bad_inode`).

use super::fix::{Fix, Stage};
use super::inodes::InodePass;
use super::inodes::{has_target_inside, place};
use super::problems;
use crate::extent;
use crate::inode::Inode;
use crate::ondisk::{InodeCore, compat, flags, incompat, ro_compat, special};
use crate::superblock::Super;
use crate::xattr::inline_value;
use seekless_fs::FileKind;
use seekless_fs::field::le32;

/// Bytes of `i_block` that device numbers may take.
const DEVICE_NUMBERS: usize = 16;

/// Flags that an inode may not have.
pub(super) fn wrong_flags(sb: &Super, kind: FileKind, bits: u32) -> u32 {
    let is_dir = kind == FileKind::Directory;
    let mut wrong = 0;
    if !sb.has_compat(compat::IMAGIC_INODES) {
        wrong |= flags::IMAGIC;
    }
    if !sb.has_incompat(incompat::CASEFOLD) || !is_dir {
        wrong |= flags::CASEFOLD;
    }
    if !sb.has_incompat(incompat::ENCRYPT) {
        wrong |= flags::ENCRYPT;
    }
    let has_contents = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    if !sb.has_incompat(incompat::INLINE_DATA) || !has_contents {
        wrong |= flags::INLINE_DATA;
    }
    // Contents in an inode have no index.
    let is_inline = bits & flags::INLINE_DATA != 0;
    if !sb.has_compat(compat::DIR_INDEX) || !is_dir || is_inline {
        wrong |= flags::INDEX;
    }
    if !sb.has_incompat(incompat::EXTENTS) || !has_contents {
        wrong |= flags::EXTENTS;
    }
    if !matches!(kind, FileKind::Regular | FileKind::Directory) {
        wrong |= flags::IMMUTABLE | flags::APPEND;
    }
    bits & wrong
}

/// Whether `i_block` can be a map of block numbers of the volume, and contains one.
fn is_block_map(sb: &Super, core: &InodeCore) -> bool {
    let numbers = || core.i_block.0.chunks_exact(4).filter_map(|number| le32(number, 0));
    let is_number = |number: u32| number == 0 || u64::from(number) < sb.blocks;
    core.i_blocks_lo.get() != 0 && numbers().all(is_number) && numbers().any(|it| it != 0)
}

/// The flags that are wrong of the two for the format of `i_block`: where both are set (e2fsck,
/// `fix_inline_data_extents_file`), or where it contains the target of a symlink
/// (`PR_1_FAST_SYMLINK_EXTENT_FL`).
fn wrong_of_map(sb: &Super, kind: FileKind, core: &InodeCore) -> u32 {
    let both = flags::EXTENTS | flags::INLINE_DATA;
    let set = core.i_flags.get() & both;
    let is_tree = extent::is_root(&core.i_block.0);
    let is_target = kind == FileKind::Symlink && has_target_inside(core);
    match set {
        _ if set == both && is_tree => flags::INLINE_DATA,
        _ if set == both && is_block_map(sb, core) => both,
        _ if set == both || (set == flags::EXTENTS && is_target) => flags::EXTENTS,
        _ => 0,
    }
}

/// Whether a file has an extent tree without the flag for it.
pub(super) fn lacks_extents(sb: &Super, kind: FileKind, core: &InodeCore) -> bool {
    let bits = core.i_flags.get();
    let is_mapped = matches!(kind, FileKind::Regular | FileKind::Directory);
    is_mapped
        && sb.has_incompat(incompat::EXTENTS)
        && bits & (flags::EXTENTS | flags::INLINE_DATA) == 0
        && extent::is_root(&core.i_block.0)
}

/// Corrects an inode's flags and fields.
pub(super) fn mend(sb: &Super, kind: FileKind, core: &mut InodeCore) {
    let bits = core.i_flags.get();
    let more = if lacks_extents(sb, kind, core) { flags::EXTENTS } else { 0 };
    let wrong = wrong_flags(sb, kind, bits) | wrong_of_map(sb, kind, core);
    core.i_flags = ((bits & !wrong) | more).into();
    core.i_obso_faddr = 0.into();
    if !sb.has_ro_compat(ro_compat::HUGE_FILE) {
        core.i_blocks_high = 0.into();
    }
    if !sb.has_incompat(incompat::BIT64) {
        core.i_file_acl_high = 0.into();
    }
}

impl InodePass<'_> {
    /// Checks the flags and fields of an inode in use; whether the rest of it is to be checked.
    pub(super) fn fields(&mut self, inode: &Inode, kind: FileKind) -> bool {
        let (ino, core) = (inode.ino, &inode.core);
        let bits = core.i_flags.get();
        let has_map = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        // Kernels leave more bytes than the device's number, but not under this flag.
        let numbers = core.i_block.0.get(DEVICE_NUMBERS..).unwrap_or_default();
        let is_full = bits & flags::IMMUTABLE != 0 && numbers.iter().any(|&byte| byte != 0);
        if !has_map && (is_full || bits & flags::INDEX != 0) {
            let what = format!("a device, pipe or socket with flags {bits:#x}");
            self.checker.unexpected(problems::INODE_FLAGS, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(ino));
            return false;
        }
        let sb = self.checker.sb();
        let wrong = wrong_flags(sb, kind, bits) | wrong_of_map(sb, kind, core);
        let lacking = lacks_extents(sb, kind, core);
        let blocks_high = !sb.has_ro_compat(ro_compat::HUGE_FILE) && core.i_blocks_high.get() != 0;
        let acl_high = !sb.has_incompat(incompat::BIT64) && core.i_file_acl_high.get() != 0;
        let high = blocks_high || acl_high;
        // e2fsck looks at it when it meets a name, which these do not have.
        let has_value = bits & flags::EA_INODE != 0 && sb.has_incompat(incompat::EA_INODE);
        let is_nameless =
            has_value || inode.ino.get() == special::RESIZE || sb.own_file(inode.ino).is_some();
        let address = core.i_obso_faddr.get() != 0 && !is_nameless;
        let foreign = has_map && wrong & flags::EXTENTS != 0 && extent::is_root(&core.i_block.0);
        if wrong != 0 {
            let what = format!("flags {wrong:#x}, which it may not have");
            self.checker.graded(wrong == flags::INDEX, problems::INODE_FLAGS, what, place(ino));
        }
        if lacking {
            let what = "an extent tree, without the flag for it".to_string();
            self.checker.expected(problems::INODE_FLAGS, what, place(ino));
        }
        if high || address {
            let what = "i_faddr, i_blocks_hi or i_file_acl_hi is not zero".to_string();
            let is_expected = acl_high && !address && !blocks_high;
            self.checker.graded(is_expected, problems::INODE_FLAGS, what, place(ino));
        }
        // Inline data begin in an attribute, which may be empty.
        let is_inline = bits & flags::INLINE_DATA != 0 && wrong & flags::INLINE_DATA == 0;
        if is_inline && has_map && matches!(inline_value(inode), Ok(None)) {
            let what = "inline data, without the attribute for it".to_string();
            self.checker.unexpected(problems::INODE_ATTRIBUTES, what, place(ino));
            let fix = if kind == FileKind::Regular { Fix::Empty } else { Fix::Clear };
            self.checker.fix(Stage::Inodes, fix(ino));
            return false;
        }
        if foreign {
            self.checker.fix(Stage::Inodes, Fix::Clear(ino));
        } else if wrong != 0 || lacking || high || address {
            self.checker.fix(Stage::Inodes, Fix::Fields(ino));
        }
        // A map of another kind than its flags say is not followed.
        wrong & (flags::EXTENTS | flags::INLINE_DATA) == 0 && !lacking
    }
}
