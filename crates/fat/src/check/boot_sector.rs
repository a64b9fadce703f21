//! The boot sector that a check goes by: the one at the start; its copy, where that one is not
//! usable; or the one at the start with fields that the sectors they name contradict.

use super::layout::{self, RootLook, Subdirectories};
use super::problems;
use crate::boot::{Boot, Width, has_jump, is_medium, is_signed};
use crate::make::encode::jump_of;
use crate::ondisk::{
    BOOT_SIZE, BPB32_AT, Bpb, Bpb32, FsInfo, INFO_LEAD, INFO_STRUCT, INFO_TRAIL, INFO32_AT,
    SIGNATURE, SIGNATURE_AT,
};
use seekless_device::BlockDevice;
use seekless_fs::check::Problem;
use seekless_fs::field::{index, invalid, parse};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, ByteLen};
use std::mem::offset_of;

/// The place of the state byte of FAT32, which the copy does not follow.
pub(super) const STATE32_AT: usize = INFO32_AT + 1;
/// The place of the boot sector's copy in `mkfs.fat` and Microsoft's format.
const USUAL_COPY: u16 = 6;
/// The place of the counts there.
const USUAL_INFO: u16 = 1;
/// The medium's byte of disks that are not removed.
const FIXED_DISK: u8 = 0xF8;
/// Values of `BPB_FSInfo` and `BPB_BkBootSec` for no such sector.
const NONE: [u16; 2] = [0, 0xFFFF];

/// A usable copy of the boot sector, and its bytes.
type Copied = (Boot, [u8; BOOT_SIZE]);

/// A boot sector, and how it differs from the one at the start of the device.
pub(super) struct BootSector {
    pub(super) boot: Boot,
    pub(super) bytes: [u8; BOOT_SIZE],
    /// Empty where these bytes are those at the start.
    pub(super) found: Vec<(&'static Problem, String)>,
}

impl BootSector {
    /// Reads the boot sector, and its copy in the usual place.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] and [`FsError::Unsupported`] of the boot sector at the start when there
    /// is no usable copy; [`FsError::Device`].
    pub(super) fn find(device: &dyn BlockDevice) -> Result<Self, FsError> {
        let (bytes, copy) = (Boot::bytes(device)?, usual_copy(device));
        let mut this = match Boot::parse(&bytes, device.len().get()) {
            Ok(boot) => Self { boot, bytes, found: Vec::new() },
            Err(error @ (FsError::Corrupt { .. } | FsError::Unsupported(_))) => {
                if let Some((boot, bytes)) = copy.clone() {
                    let what = "it is not usable; its copy is".to_string();
                    Self { boot, bytes, found: vec![(problems::BOOT_UNUSABLE, what)] }
                } else if let Some((boot, bytes, what)) = layout::fitting(device, &bytes, false)? {
                    Self { boot, bytes, found: vec![(problems::BOOT_LAYOUT, what)] }
                } else {
                    return Err(error);
                }
            }
            Err(other) => return Err(other),
        };
        this.mend_marks(device, copy.as_ref());
        this.mend_medium(device, copy.as_ref())?;
        this.count_fats(device, copy.as_ref())?;
        this.mend_layout(device, copy.as_ref())?;
        if this.boot.width == Width::Fat32 {
            this.find_copy(device, copy.as_ref());
            this.find_info(device, copy.as_ref())?;
        }
        Ok(this)
    }

    /// Corrects a number with which no subdirectory of the root is where its name leads, or neither
    /// the root directory nor the start of each FAT is found.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] where the root directory ends within a sector, which Linux refuses, and no
    /// subdirectory tells how long it is; [`FsError::Device`].
    fn mend_layout(
        &mut self,
        device: &dyn BlockDevice,
        copy: Option<&Copied>,
    ) -> Result<(), FsError> {
        let found = Subdirectories::of(device, &self.boot)?;
        let (counted, per) = (self.boot.root_entries, self.boot.slots_per_sector());
        let field = offset_of!(Bpb, BPB_RootEntCnt);
        let copied = copy.filter(|(copied, _)| self.boot.is_fat32() && *copied != self.boot);
        if let Some((copied, bytes)) = copied
            && !found.are_there()
            && begins_as_fat(device, copied, 0)?
        {
            let by_copy = Subdirectories::of(device, copied)?;
            let is_better = by_copy.root() > found.root() && by_copy.are_none() == found.are_none();
            if by_copy.are_there() || is_better {
                let what = "by its copy, the root directory is where it should be".to_string();
                (self.boot, self.bytes) = (copied.clone(), *bytes);
                self.found.push((problems::BOOT_LAYOUT, what));
                return Ok(());
            }
        }
        let has_names = found.root() == RootLook::Names;
        let is_bare = found.are_none() && !has_names && !begin_as_fats(device, &self.boot)?;
        if found.are_elsewhere() || is_bare {
            if let Some((boot, bytes, what)) = layout::fitting(device, &self.bytes, is_bare)? {
                (self.boot, self.bytes) = (boot, bytes);
                self.found.push((problems::BOOT_LAYOUT, what));
                return Ok(());
            }
        } else if found.are_there() && !counted.is_multiple_of(per) {
            // The rest of its last sector belongs to it in any case.
            let whole = counted.next_multiple_of(per);
            let value = u16::try_from(whole).unwrap_or(u16::MAX).to_le_bytes();
            let what = format!("{counted} entries of the root directory instead of {whole}");
            self.change(device, field, &value, (problems::BOOT_LAYOUT, what));
        }
        let counted = self.boot.root_entries;
        if counted.is_multiple_of(per) {
            if let Some((boot, bytes, what)) =
                layout::fitting_clusters(device, &self.boot, &self.bytes)?
            {
                (self.boot, self.bytes) = (boot, bytes);
                self.found.push((problems::BOOT_LAYOUT, what));
            }
            return Ok(());
        }
        let place = Location::of("boot sector").in_block(BlockNo::ZERO);
        Err(invalid("BPB_RootEntCnt", counted.into(), place))
    }

    /// Corrects the jump at the start of the boot sector and the signature at its end.
    fn mend_marks(&mut self, device: &dyn BlockDevice, copy: Option<&Copied>) {
        let jump = |bytes: &[u8; BOOT_SIZE]| {
            parse::<Bpb>(bytes, 0).filter(has_jump).map(|bpb| bpb.BS_jmpBoot)
        };
        if jump(&self.bytes).is_none() {
            let copied = copy.filter(|_| self.boot.is_fat32()).and_then(|(_, bytes)| jump(bytes));
            let jump = copied.unwrap_or_else(|| jump_of(self.boot.is_fat32()));
            let what = "it does not begin with a jump".to_string();
            self.change(device, 0, &jump, (problems::BOOT_MARKS, what));
        }
        if !is_signed(&self.bytes) {
            let what = "it does not end with 0x55 and 0xAA".to_string();
            self.change(device, SIGNATURE_AT, &SIGNATURE, (problems::BOOT_MARKS, what));
        }
    }

    /// Compares the medium's byte with the copies of it, in the boot sector's copy and in the first
    /// FAT: one that is none, or that both contradict, is replaced, rather than written to them.
    fn mend_medium(
        &mut self,
        device: &dyn BlockDevice,
        copy: Option<&Copied>,
    ) -> Result<(), FsError> {
        let boot = &self.boot;
        let copied = copy.filter(|_| boot.is_fat32()).map(|(copied, _)| copied.media);
        let copied = copied.filter(|&medium| is_medium(medium));
        let mask = boot.width.mask();
        let [medium, rest @ ..] = (first_entry(device, boot, 0)? & mask).to_le_bytes();
        let [_, wanted @ ..] = mask.to_le_bytes();
        let in_fat = (rest == wanted && is_medium(medium)).then_some(medium);
        let medium = if is_medium(boot.media) {
            in_fat.filter(|_| copied == in_fat).unwrap_or(boot.media)
        } else {
            copied.or(in_fat).unwrap_or(FIXED_DISK)
        };
        if medium != boot.media {
            let what = format!("the medium's byte is {:#04x} instead of {medium:#04x}", boot.media);
            let field = offset_of!(Bpb, BPB_Media);
            self.change(device, field, &[medium], (problems::BOOT_MEDIUM, what));
        }
        Ok(())
    }

    /// Compares the number of FATs with those that are there: a wrong number would move all
    /// clusters. FAT32 volumes with the same number in the copy have that one.
    fn count_fats(
        &mut self,
        device: &dyn BlockDevice,
        copy: Option<&Copied>,
    ) -> Result<(), FsError> {
        let boot = &self.boot;
        let is_copied = copy.is_some_and(|(copied, _)| copied.fats == boot.fats);
        if (boot.is_fat32() && is_copied) || !begins_as_fat(device, boot, 0)? {
            return Ok(());
        }
        let mut fats = 1;
        match boot.fats {
            1 if begins_as_fat(device, boot, 1)? && repeats_first_fat(device, boot, 1)? => fats = 2,
            // Of two, the second may be damaged.
            1 | 2 => return Ok(()),
            counted => {
                let (mut same, mut last) = (0, 0);
                for number in 1..counted {
                    let is_fat = begins_as_fat(device, boot, number)?
                        || repeats_first_fat(device, boot, number)?;
                    if is_fat {
                        (same, last) = (same + 1, number);
                    }
                    if is_fat && number == fats {
                        fats += 1;
                    }
                }
                // One between others may be damaged.
                if last + 1 == counted && same * 2 >= counted - 1 {
                    fats = counted;
                }
            }
        }
        if fats == boot.fats {
            return Ok(());
        }
        let what = format!("it counts {} FATs, and {fats} are there", boot.fats);
        let number = u8::try_from(fats).unwrap_or(1);
        self.change(device, offset_of!(Bpb, BPB_NumFATs), &[number], (problems::BOOT_FATS, what));
        Ok(())
    }

    /// Where the boot sector names another sector than that of its copy.
    fn find_copy(&mut self, device: &dyn BlockDevice, copy: Option<&Copied>) {
        let named = self.fields().BPB_BkBootSec.get();
        if named == USUAL_COPY {
            return;
        }
        let Some((copied, copy)) = copy else { return };
        let is_boot = |sector: u32| {
            let mut bytes = [0; BOOT_SIZE];
            device.read_bytes(copied.byte_of(BlockNo::new(sector.into())), &mut bytes).is_ok()
                && Boot::parse(&bytes, device.len().get()).is_ok()
        };
        let field = BPB32_AT + offset_of!(Bpb32, BPB_BkBootSec);
        if NONE.contains(&named) {
            // There may be none; a copy that was left there differs in other fields too.
            let (mut bytes, mut copy) = (self.bytes, *copy);
            for bytes in [&mut bytes, &mut copy] {
                put(bytes, field, &[0, 0]);
                put(bytes, STATE32_AT, &[0]);
            }
            if bytes != copy {
                return;
            }
        } else if self.boot.backup.is_some_and(is_boot) {
            return;
        }
        let what = format!("it names sector {named} for its copy, which is in {USUAL_COPY}");
        self.change(device, field, &USUAL_COPY.to_le_bytes(), (problems::BOOT_SECTORS, what));
    }

    /// Where the boot sector names another sector than that of the counts.
    fn find_info(
        &mut self,
        device: &dyn BlockDevice,
        copy: Option<&Copied>,
    ) -> Result<(), FsError> {
        let named = self.fields().BPB_FSInfo.get();
        if NONE.contains(&named) {
            return Ok(());
        }
        let is_info = |sector: u16| -> Result<bool, FsError> {
            let sector = u32::from(sector);
            if sector == 0 || sector >= self.boot.reserved || Some(sector) == self.boot.backup {
                return Ok(false);
            }
            let mut bytes = [0; BOOT_SIZE];
            device.read_bytes(self.boot.byte_of(BlockNo::new(sector.into())), &mut bytes)?;
            Ok(parse::<FsInfo>(&bytes, 0).is_some_and(|info| info_is_signed(&info)))
        };
        if is_info(named)? {
            return Ok(());
        }
        let copied = copy
            .and_then(|(_, copy)| parse::<Bpb32>(copy, BPB32_AT))
            .map_or(USUAL_INFO, |copy| copy.BPB_FSInfo.get());
        let mut there = None;
        for sector in [copied, USUAL_INFO] {
            if there.is_none() && is_info(sector)? {
                there = Some(sector);
            }
        }
        let what = match there {
            Some(sector) => {
                format!("it names sector {named} for the counts, which are in {sector}")
            }
            // The sector is one for the counts, without them.
            None if self.boot.info.is_some() => return Ok(()),
            None => format!("it names sector {named} for the counts, which is not reserved"),
        };
        let field = BPB32_AT + offset_of!(Bpb32, BPB_FSInfo);
        let sector = there.unwrap_or(0).to_le_bytes();
        self.change(device, field, &sector, (problems::BOOT_SECTORS, what));
        Ok(())
    }

    fn fields(&self) -> Bpb32 {
        let fields = parse(&self.bytes, BPB32_AT);
        debug_assert!(fields.is_some(), "a boot sector has its fields");
        fields.unwrap_or_else(zerocopy::FromZeros::new_zeroed)
    }

    /// Changes a field, unless the boot sector would not be usable with it.
    fn change(
        &mut self,
        device: &dyn BlockDevice,
        at: usize,
        value: &[u8],
        why: (&'static Problem, String),
    ) {
        let mut bytes = self.bytes;
        put(&mut bytes, at, value);
        if let Ok(boot) = Boot::parse(&bytes, device.len().get()) {
            (self.boot, self.bytes) = (boot, bytes);
            self.found.push(why);
        }
    }
}

/// The four bytes with which the sectors of a FAT begin: its first entry, and others behind it.
fn first_entry(device: &dyn BlockDevice, boot: &Boot, number: u32) -> Result<u32, FsError> {
    let mut bytes = [0; 4];
    device.read_bytes(boot.byte_of(boot.fat_start(number)), &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Whether the sectors of a FAT begin with the medium's byte and otherwise set bits.
fn begins_as_fat(device: &dyn BlockDevice, boot: &Boot, number: u32) -> Result<bool, FsError> {
    let mask = boot.width.mask();
    let wanted = (mask & !0xFF) | u32::from(boot.media);
    Ok(first_entry(device, boot, number)? & mask == wanted)
}

/// Whether FATs begin where the boot sector puts them: both, where there are several.
pub(super) fn begin_as_fats(device: &dyn BlockDevice, boot: &Boot) -> Result<bool, FsError> {
    Ok(begins_as_fat(device, boot, 0)? && (boot.fats == 1 || begins_as_fat(device, boot, 1)?))
}

/// Whether a sector of the first FAT, other than zeros, stands in the same place of another.
fn repeats_first_fat(device: &dyn BlockDevice, boot: &Boot, number: u32) -> Result<bool, FsError> {
    if boot.fat_start(number).get() + u64::from(boot.fat_sectors) > u64::from(boot.total) {
        return Ok(false);
    }
    let (mut first, mut other) = (vec![0; index(boot.sector)], vec![0; index(boot.sector)]);
    for sector in 0..u64::from(boot.fat_sectors) {
        device.read_bytes(boot.byte_of(boot.fat_start(0) + sector), &mut first)?;
        if first.iter().all(|byte| *byte == 0) {
            continue;
        }
        device.read_bytes(boot.byte_of(boot.fat_start(number) + sector), &mut other)?;
        if first == other {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a sector of counts has its signatures.
pub(super) fn info_is_signed(info: &FsInfo) -> bool {
    info.FSI_LeadSig.get() == INFO_LEAD
        && info.FSI_StrucSig.get() == INFO_STRUCT
        && info.FSI_TrailSig.get() == INFO_TRAIL
}

/// A usable copy of the boot sector in its usual place, by any length of sectors.
fn usual_copy(device: &dyn BlockDevice) -> Option<Copied> {
    [512u64, 1024, 2048, 4096].into_iter().find_map(|sector| {
        let mut bytes = [0; BOOT_SIZE];
        device.read_bytes(ByteLen::new(u64::from(USUAL_COPY) * sector), &mut bytes).ok()?;
        let boot = Boot::parse(&bytes, device.len().get()).ok()?;
        let is_there = boot.backup == Some(USUAL_COPY.into()) && u64::from(boot.sector) == sector;
        is_there.then_some((boot, bytes))
    })
}

fn put(bytes: &mut [u8; BOOT_SIZE], at: usize, value: &[u8]) {
    let there = bytes.get_mut(at..at + value.len());
    debug_assert!(there.is_some(), "byte {at} of the boot sector");
    if let Some(there) = there {
        there.copy_from_slice(value);
    }
}
