//! Encrypted inodes: the policy of each (pass 1), and whether it is that of its directory (pass 2),
//! as in `encrypted_files.c` of e2fsck.

use super::fix::{Fix, Spot, Stage};
use super::inodes::{InodePass, place};
use super::names::NamePass;
use super::problems;
use crate::inode::Inode;
use crate::ondisk::{flags, incompat};
use seekless_fs::{FileKind, FsError};
use seekless_units::Ino;

/// The shortest encrypted name, in bytes (`EXT4_CRYPTO_BLOCK_SIZE`).
const SHORTEST_NAME: usize = 16;
/// Bytes of a context of either version, and how many of them are its policy: the rest is the
/// inode's nonce.
const CONTEXTS: [(u8, usize, usize); 2] = [(1, 28, 12), (2, 40, 24)];

/// The policy with which an inode is encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    Known(Vec<u8>),
    /// Of an unsupported version.
    Unknown,
    /// Its attributes cannot be read.
    Unread,
}

impl Policy {
    /// The policy of a context; `None` for one that cannot be.
    fn of(context: &[u8]) -> Option<Self> {
        let version = context.first().copied().filter(|version| *version > 0)?;
        let Some((_, len, policy)) = CONTEXTS.into_iter().find(|(it, ..)| *it == version) else {
            return Some(Self::Unknown);
        };
        let policy = context.get(..policy).filter(|_| context.len() == len)?;
        Some(Self::Known(policy.to_vec()))
    }
}

impl InodePass<'_> {
    /// Notes the policy of an inode that is marked as encrypted.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn encryption(&mut self, inode: &Inode) -> Result<(), FsError> {
        // A mark without the feature is a wrong flag.
        if !inode.has_flag(flags::ENCRYPT) || !self.checker.sb().has_incompat(incompat::ENCRYPT) {
            return Ok(());
        }
        let ino = inode.ino;
        let context = match self.checker.volume.attributes().encryption_context(inode) {
            // They are reported and dropped; the next round looks at the others.
            Err(FsError::Corrupt { .. }) => {
                self.checker.policies.insert(ino, Policy::Unread);
                return Ok(());
            }
            context => context?,
        };
        let Some(context) = context else {
            let what = "marked as encrypted, without the attribute for it".to_string();
            self.checker.found(problems::INODE_ENCRYPTION, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Decrypt(ino));
            return Ok(());
        };
        let Some(policy) = Policy::of(&context) else {
            let what = "the attribute with its encryption policy is invalid".to_string();
            self.checker.found(problems::INODE_ENCRYPTION, what, place(ino));
            self.checker.fix(Stage::Inodes, Fix::Clear(ino));
            return Ok(());
        };
        self.checker.policies.insert(ino, policy);
        Ok(())
    }
}

impl NamePass<'_> {
    /// Checks a name of an encrypted directory, behind `.` and `..`; whether it stays.
    pub(super) fn encrypted(&mut self, spot: Spot, name: &[u8], code: u8, ino: Ino) -> bool {
        let policies = &self.checker.policies;
        let Some(policy) = policies.get(&spot.dir).filter(|it| **it != Policy::Unread) else {
            return true;
        };
        let told = policies.get(&ino);
        let kind =
            crate::dir::kind_of(code).or_else(|| self.checker.seen.get(ino).map(|seen| seen.kind));
        let is_never_encrypted =
            !matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
        let fault = match told {
            _ if name.len() < SHORTEST_NAME => "is too short for an encrypted name",
            Some(told) if told == policy || *told == Policy::Unread => return true,
            Some(_) => "leads to an inode with another encryption policy",
            None if is_never_encrypted => return true,
            None => "leads to an inode that is not encrypted",
        };
        let what = format!("`{}` {fault}", name.escape_ascii());
        self.checker.found(problems::ENTRY_ENCRYPTION, what, super::names::place(spot.dir));
        self.checker.fix(Stage::Names, Fix::Remove(spot));
        false
    }
}
