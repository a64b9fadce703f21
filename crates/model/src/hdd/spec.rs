//! The figures of a drive, as in its parameter file. Times are in milliseconds, as in datasheets
//! and measurements.

use serde::{Deserialize, Serialize};

/// A drive: geometry, mechanics, electronics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddSpec {
    /// Recording surfaces, each with its head.
    pub heads: u32,
    /// Cylinders.
    pub cylinders: u32,
    /// Revolutions per minute.
    pub rpm: f64,
    /// The order in which the surfaces of a cylinder are filled.
    #[serde(default)]
    pub head_order: HeadOrder,
    /// Times of head movements.
    pub seek: SeekSpec,
    /// Time spent on commands, apart from the mechanics.
    #[serde(default)]
    pub overhead: OverheadSpec,
    /// The bus to the host.
    #[serde(default)]
    pub bus: BusSpec,
    /// The drive's buffer.
    pub buffer: BufferSpec,
    /// The scheduling of waiting requests.
    #[serde(default)]
    pub queue: QueueSpec,
    /// The location of spare sectors.
    #[serde(default)]
    pub sparing: SparingSpec,
    /// Zones of equal sectors per track, from cylinder 0 inwards.
    #[serde(rename = "zone")]
    pub zones: Vec<ZoneSpec>,
}

/// The order in which the surfaces of a cylinder are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadOrder {
    /// From the first to the last on every cylinder.
    #[default]
    Rising,
    /// Back and forth, restarting in every zone.
    SerpentineInZone,
    /// Back and forth: odd cylinders from the last surface to the first.
    Serpentine,
}

/// Times of head movements.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekSpec {
    /// To another surface of the same cylinder, in ms.
    #[serde(default)]
    pub head_switch_ms: f64,
    /// Additional settling time of a write over a read after a movement, in ms. Negative if the
    /// measured table is of writes.
    #[serde(default)]
    pub write_settle_ms: f64,
    /// The same after a step to another surface or to the next cylinder, for drives whose skews
    /// hide it; `write_settle_ms` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_settle_ms: Option<f64>,
    /// Measured: pairs of a distance in cylinders and ms, with rising distances. Linear between
    /// them and beyond the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<(u32, f64)>,
    /// Curves, each for the distances from `from` on; used without a table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurveSpec>,
}

/// `constant + sqrt * sqrt(d) + linear * d` ms for a distance of d cylinders.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveSpec {
    /// The smallest distance for which it applies.
    pub from: u32,
    /// In ms.
    #[serde(default)]
    pub constant: f64,
    /// In ms per square root of a cylinder.
    #[serde(default)]
    pub sqrt: f64,
    /// In ms per cylinder.
    #[serde(default)]
    pub linear: f64,
}

/// Time spent on commands, in ms.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverheadSpec {
    /// For every command, before anything else.
    pub command: f64,
    /// For a read hit in the buffer, after a read.
    pub read_hit_after_read: f64,
    /// The same after a write.
    pub read_hit_after_write: f64,
    /// For a read from the medium, after a read.
    pub read_miss_after_read: f64,
    /// The same after a write.
    pub read_miss_after_write: f64,
    /// For a write, after a read.
    pub write_after_read: f64,
    /// For a write, after a write.
    pub write_after_write: f64,
    /// At the end of a read.
    pub read_completion: f64,
    /// At the end of a write.
    pub write_completion: f64,
    /// Before the data transfer.
    pub data_preparation: f64,
    /// For winning the bus back, the first time.
    pub reselect: f64,
    /// The same, after an extra disconnect.
    pub reselect_again: f64,
    /// For leaving the bus during a read, after a read.
    pub read_disconnect_after_read: f64,
    /// The same after a write.
    pub read_disconnect_after_write: f64,
    /// For leaving the bus during a write.
    pub write_disconnect: f64,
    /// Set if the drive leaves the bus once more in a write that follows a write and does not
    /// continue it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_disconnect: Option<ExtraDisconnectSpec>,
}

/// The times of a drive that leaves the bus before it receives a write's data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraDisconnectSpec {
    /// The command's overhead in this case, in ms.
    pub command: f64,
    /// For leaving the bus, in ms.
    pub disconnect: f64,
    /// Time away from the bus, in ms.
    pub away: f64,
    /// For leaving the bus after the data transfer, in ms.
    pub second_disconnect: f64,
    /// From the command's end to the start of the seek, in ms.
    pub seek_delta: f64,
}

/// The bus to the host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSpec {
    /// Transfer time per sector to the host, in ms.
    pub read_sector: f64,
    /// Transfer time per sector from the host, in ms.
    pub write_sector: f64,
    /// A read keeps the bus from its first sector to its last.
    pub hold_read: bool,
    /// A write keeps the bus until the buffer has all of it, and the heads write nothing before.
    pub hold_write: bool,
    /// A request keeps the bus from its command on.
    pub never_disconnect: bool,
}

/// The extent of read-ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// Nothing.
    #[default]
    None,
    /// To the end of the track.
    Track,
    /// To the end of the cylinder.
    Cylinder,
    /// `read_ahead_sectors` further, over as many tracks as needed.
    Sectors,
    /// To the end of the track of the block after the request; if the segment reaches back to the
    /// previous track, by one more track.
    NextTrack,
}

/// The drive's buffer: segments of one run of sectors each.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Number of segments.
    pub segments: u32,
    /// Sectors in a segment.
    pub segment_sectors: u32,
    /// Maximum number of segments with unwritten data.
    #[serde(default = "one")]
    pub write_segments: u32,
    /// A segment that serves reads in order borrows the room of others, as long as `write_segments`
    /// and one more are left, and reads ahead as much further.
    #[serde(default)]
    pub adaptive_segments: bool,
    /// A read miss borrows the room of segments without unwritten data for its segment, up to this
    /// many sectors. A write returns all of it. The extent of read-ahead does not depend on it. 0
    /// for a segment's worth.
    #[serde(default)]
    pub read_room_sectors: u32,
    /// One segment is for writes only, and reads never hit it.
    #[serde(default)]
    pub separate_write_segment: bool,
    /// Data read or written stay for later reads.
    #[serde(default = "yes")]
    pub caching: bool,
    /// Reads hit written data.
    #[serde(default = "yes")]
    pub hits_on_written: bool,
    /// The fraction of a read that must have come from the medium before the drive returns to the
    /// bus.
    #[serde(default)]
    pub read_watermark: f64,
    /// The watermark is a fraction of the segment, not of the request.
    #[serde(default)]
    pub watermark_of_segment: bool,
    /// The extent of read-ahead.
    #[serde(default)]
    pub read_ahead: ReadAhead,
    /// Maximum read-ahead, in sectors; 0 for a segment's worth.
    #[serde(default)]
    pub read_ahead_sectors: u32,
    /// Data sent to the host are dropped; only read-ahead stays.
    #[serde(default)]
    pub discard_after_read: bool,
    /// A read of sectors that read-ahead has yet to read waits for them; otherwise only a read of
    /// the very next sector does.
    #[serde(default)]
    pub wait_for_read_ahead: bool,
    /// A read fully served from the buffer does not stop read-ahead into another segment, as
    /// documented in product manuals of desktop drives; otherwise it does.
    #[serde(default)]
    pub read_ahead_through_hits: bool,
    /// A hit resumes read-ahead that had stopped.
    #[serde(default)]
    pub read_ahead_after_hit: bool,
    /// Sectors that pass before the requested ones are kept as well.
    #[serde(default)]
    pub read_passing_sectors: bool,
    /// A read begins with the first requested sector to pass.
    #[serde(default)]
    pub zero_latency_read: bool,
    /// A write begins with the first requested sector to pass.
    #[serde(default)]
    pub zero_latency_write: bool,
    /// A write completes when it is in the buffer.
    #[serde(default)]
    pub write_back: bool,
    /// A write that continues the one being written joins it.
    #[serde(default)]
    pub combine_writes: bool,
    /// A write within an accepted one that the heads have not begun replaces it. Only with
    /// `write_back`.
    #[serde(default)]
    pub replace_writes: bool,
    /// Read-ahead stops within a sector; otherwise at its end.
    #[serde(default)]
    pub stop_in_sector: bool,
    /// Hits, and writes that find a segment, are served while the heads write.
    #[serde(default)]
    pub serve_while_writing: bool,
    /// Sectors of a write, or all if it has fewer, that must be in the buffer before the heads
    /// write the first one.
    #[serde(default)]
    pub write_lead_sectors: u32,
    /// Minimum time from a write's command to its first sector, in ms.
    #[serde(default)]
    pub minimum_write_seek: f64,
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// The scheduling of waiting requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// First come, first served.
    #[default]
    Fifo,
    /// The request on the nearest cylinder (shortest seek time first).
    Sstf,
    /// The nearest ahead, rising; from the end back to the lowest (C-LOOK).
    CLook,
}

/// The drive's queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    /// The scheduling policy.
    pub policy: Policy,
    /// Number of requests that the drive sees at once; the others wait outside.
    pub depth: u32,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self { policy: Policy::Fifo, depth: 1 }
    }
}

/// The unit to which a reserve of sectors belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpareUnit {
    /// No reserve.
    #[default]
    None,
    /// Whole tracks at the end of a zone; slips and remaps count tracks.
    ZoneTracks,
    /// Sectors at the end of each track.
    Track,
    /// Sectors at the end of each cylinder.
    Cylinder,
    /// Sectors at the end of each range of cylinders.
    Range,
    /// Sectors at the end of the zone.
    Zone,
}

/// The location of spare sectors.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SparingSpec {
    /// The unit of a reserve; a zone's `spares` is the number of spares per unit.
    pub unit: SpareUnit,
    /// Cylinders in a range.
    pub range_cylinders: u32,
    /// The reserve is at the front of its unit.
    pub at_front: bool,
    /// A slipped sector displaces all sectors up to the zone's end; otherwise up to its unit's end.
    /// Slips then reduce the zone's capacity.
    pub slip_to_end: bool,
}

/// Cylinders with the same number of sectors per track.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// First cylinder.
    pub first_cylinder: u32,
    /// Last cylinder, inclusive.
    pub last_cylinder: u32,
    /// Sectors on each track.
    pub sectors_per_track: u32,
    /// Angle of the zone's first sector, in sectors.
    #[serde(default)]
    pub offset: f64,
    /// Sectors at the zone's front without data of the host.
    #[serde(default)]
    pub reserved: u64,
    /// Offset of the next surface's first sector, in sectors.
    #[serde(default)]
    pub track_skew: f64,
    /// The same for the next cylinder.
    #[serde(default)]
    pub cylinder_skew: f64,
    /// Reserve of each unit, in sectors (in tracks for `zone-tracks`).
    #[serde(default)]
    pub spares: u64,
    /// Slipped (skipped) sectors or tracks, counted from the zone's first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slips: Vec<u64>,
    /// Remapped sectors (or tracks): pairs of original and actual location, counted from the zone's
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaps: Vec<(u64, u64)>,
}
