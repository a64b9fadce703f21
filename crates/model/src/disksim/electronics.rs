//! `disksim_disk` blocks: overheads, buffer, bus.

use super::ImportError;
use super::fields::Fields;
use super::slower;
use crate::hdd::spec::{
    BufferSpec, BusSpec, ExtraDisconnectSpec, HddSpec, OverheadSpec, Policy, QueueSpec, ReadAhead,
};

/// DiskSim's rule for drives with extra write disconnects: the heads wait for ten sectors. It
/// applies to the others as well: without it, writes right behind a write catch revolutions that
/// the measured drives miss.
const WRITE_LEAD: u32 = 10;

/// Imports a drive's electronics.
pub(super) fn apply(disk: Fields<'_>, hdd: &mut HddSpec) -> Result<(), ImportError> {
    hdd.overhead = overheads(disk)?;
    hdd.buffer = buffer(disk)?;
    hdd.queue = queue(disk)?;
    hdd.bus = BusSpec {
        hold_read: disk.switch("Hold bus entire read xfer")?,
        hold_write: disk.switch("Hold bus entire write xfer")?,
        never_disconnect: disk.switch("Never disconnect")?,
        ..BusSpec::default()
    };
    Ok(())
}

/// Sets the pace of a transfer to the slowest of bus, controller and drive.
pub(super) fn bus_times(
    above: Vec<Fields<'_>>,
    disk: Fields<'_>,
    bus: &mut BusSpec,
) -> Result<(), ImportError> {
    let own = disk.number_or("Bulk sector transfer time", 0.0)?;
    slower(bus, own, own);
    for fields in above {
        let bulk = fields.number_or("Bulk sector transfer time", 0.0)?;
        let read = fields.number_or("Read block transfer time", bulk)?;
        let write = fields.number_or("Write block transfer time", bulk)?;
        slower(bus, read, write);
    }
    Ok(())
}

fn overheads(disk: Fields<'_>) -> Result<OverheadSpec, ImportError> {
    let scale = disk.number_or("Time scale for overheads", 1.0)?;
    let time = |key| disk.number_or(key, 0.0).map(|ms| ms * scale);
    let write_back = disk.number_or("Fast write level", 0.0)? > 0.0;
    // A drive that completes writes early always has the overhead of a hit.
    let write = if write_back {
        ["Write hit over. after read", "Write hit over. after write"]
    } else {
        ["Write miss over. after read", "Write miss over. after write"]
    };
    let [write_after_read, write_after_write] = write;
    let extra = ExtraDisconnectSpec {
        command: time("Extradisc command overhead")?,
        disconnect: time("Extradisc disconnect overhead")?,
        away: time("Extradisc inter-disconnect delay")?,
        second_disconnect: time("Extradisc 2nd disconnect overhead")?,
        seek_delta: time("Extradisc seek delta")?,
    };
    Ok(OverheadSpec {
        command: time("Per-request overhead time")?,
        read_hit_after_read: time("Read hit over. after read")?,
        read_hit_after_write: time("Read hit over. after write")?,
        read_miss_after_read: time("Read miss over. after read")?,
        read_miss_after_write: time("Read miss over. after write")?,
        write_after_read: time(write_after_read)?,
        write_after_write: time(write_after_write)?,
        read_completion: time("Read completion overhead")?,
        write_completion: time("Write completion overhead")?,
        data_preparation: time("Data preparation overhead")?,
        reselect: time("First reselect overhead")?,
        reselect_again: time("Other reselect overhead")?,
        read_disconnect_after_read: time("Read disconnect afterread")?,
        read_disconnect_after_write: time("Read disconnect afterwrite")?,
        write_disconnect: time("Write disconnect overhead")?,
        extra_disconnect: disk.switch("Extra write disconnect")?.then_some(extra),
    })
}

fn buffer(disk: Fields<'_>) -> Result<BufferSpec, ImportError> {
    let ahead = disk.count_or::<u32>("Buffer continuous read", 0)?;
    let read_ahead = match ahead {
        0 => ReadAhead::None,
        1 => ReadAhead::Track,
        2 => ReadAhead::Cylinder,
        3 => ReadAhead::Sectors,
        4 => ReadAhead::NextTrack,
        other => return Err(disk.error("Buffer continuous read", format!("{other} is not 0 to 4"))),
    };
    Ok(BufferSpec {
        segments: disk.count("Number of buffer segments")?,
        segment_sectors: disk.count("Segment size (in blks)")?,
        write_segments: disk.count_or("Maximum number of write segments", 1)?,
        adaptive_segments: false,
        read_room_sectors: 0,
        separate_write_segment: disk.switch("Use separate write segment")?,
        caching: disk.switch("Enable caching in buffer")?,
        hits_on_written: disk.switch("Allow read hits on write data")?,
        read_watermark: disk.number_or("High (read) water mark", 0.0)?,
        watermark_of_segment: !disk.switch("Set watermark by reqsize")?,
        read_ahead,
        read_ahead_sectors: disk.count_or("Maximum read-ahead (blks)", 0)?,
        // The tool that extracts drives writes the drive's "discard requested data after read"
        // here. DiskSim drops nothing; the measured drives do.
        discard_after_read: disk.number_or("Read-ahead over requested", 0.0)? == 1.0,
        wait_for_read_ahead: false,
        read_ahead_through_hits: false,
        read_ahead_after_hit: disk.switch("Read-ahead on idle hit")?,
        read_passing_sectors: disk.switch("Read any free blocks")?,
        zero_latency_read: disk.switch("Immediate buffer read")?,
        zero_latency_write: disk.switch("Immediate buffer write")?,
        write_back: disk.switch("Fast write level")?,
        combine_writes: disk.switch("Combine seq writes")?,
        replace_writes: false,
        stop_in_sector: disk.switch("Stop prefetch in sector")?,
        serve_while_writing: disk.switch("Allow write prebuffering")?
            || disk.switch("Allow sneaky full read hits")?,
        write_lead_sectors: WRITE_LEAD,
        minimum_write_seek: disk.number_or("Minimum seek delay", 0.0)?,
    })
}

fn queue(disk: Fields<'_>) -> Result<QueueSpec, ImportError> {
    let depth = disk.count_or::<u32>("Max queue length", 1)?.max(1);
    if disk.get("Scheduler").is_none() {
        return Ok(QueueSpec { depth, ..QueueSpec::default() });
    }
    let scheduler = disk.block("Scheduler")?;
    let policy = match scheduler.count_or::<u32>("Scheduling policy", 1)? {
        1 => Policy::Fifo,
        // Elevator and cyclical scans, by block or by cylinder.
        2 | 3 | 6 | 7 => Policy::CLook,
        4 | 8 => Policy::Sstf,
        other => {
            let why = format!("policy {other} is not one of 1 to 4, 6 to 8");
            return Err(scheduler.error("Scheduling policy", why));
        }
    };
    Ok(QueueSpec { policy, depth })
}
