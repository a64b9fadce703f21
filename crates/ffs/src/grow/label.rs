//! A BSD label in front of the volume: the volume is a partition of it, and others may follow.

use crate::ondisk::bsd_label as label;
use crate::superblock::Order;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_units::{ByteLen, SECTOR};

/// Refuses a size beyond the partition that the label in the volume's second sector gives it
/// (`sys/disklabel.h`). Without a label, or with none whose partitions begin somewhere, every size
/// is right.
///
/// # Errors
/// [`FsError::NoSpace`] with the partition's size; errors of the device.
pub(super) fn refuse_beyond_label(device: &dyn BlockDevice, size: ByteLen) -> Result<(), FsError> {
    let mut bytes = [0; label::LEN];
    device.read_bytes(ByteLen::new(SECTOR), &mut bytes)?;
    let orders = [Order::Little, Order::Big];
    let Some(order) = orders.into_iter().find(|&order| is_label(order, &bytes)) else {
        return Ok(());
    };
    let Some(len) = first_partition(order, &bytes) else { return Ok(()) };
    if size > len {
        let what = "the BSD label in front of the volume gives its partition";
        return Err(FsError::NoSpace(format!("{what} {len} bytes, not {size}")));
    }
    Ok(())
}

fn is_label(order: Order, bytes: &[u8]) -> bool {
    [label::MAGIC_AT, label::MAGIC2_AT]
        .iter()
        .all(|&at| order.get_u32(bytes, at) == Some(label::MAGIC))
}

/// The length of the partition that begins first, as the volume does: of several, the shortest.
/// The third is the whole disk.
fn first_partition(order: Order, bytes: &[u8]) -> Option<ByteLen> {
    let count = usize::from(order.get_u16(bytes, label::COUNT_AT)?).min(label::MOST);
    let all = (0..count).filter(|&number| number != label::WHOLE).filter_map(|number| {
        let at = label::PARTITIONS_AT + number * label::PARTITION;
        let sectors = order.get_u32(bytes, at)?;
        let start = order.get_u32(bytes, at + label::OFFSET_AT)?;
        (sectors > 0).then_some((start, sectors))
    });
    let (_, sectors) = all.min()?;
    Some(ByteLen::new(u64::from(sectors) * SECTOR))
}
