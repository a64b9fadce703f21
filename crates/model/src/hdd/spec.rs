//! The figures of a drive, as its parameter file gives them. Times are in
//! milliseconds, as in datasheets and measurements.

use serde::{Deserialize, Serialize};

/// A drive: geometry, mechanics, electronics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddSpec {
    /// Recording surfaces, each with its head.
    pub heads: u32,
    /// Cylinders.
    pub cylinders: u32,
    /// Revolutions a minute.
    pub rpm: f64,
    /// In which order the surfaces of a cylinder are filled.
    #[serde(default)]
    pub head_order: HeadOrder,
    /// How long the heads take to move.
    pub seek: SeekSpec,
    /// Time spent on commands, apart from the mechanics.
    #[serde(default)]
    pub overhead: OverheadSpec,
    /// The way to the host.
    #[serde(default)]
    pub bus: BusSpec,
    /// The drive's memory.
    pub buffer: BufferSpec,
    /// Which of several waiting requests is next.
    #[serde(default)]
    pub queue: QueueSpec,
    /// Where sectors are kept in reserve.
    #[serde(default)]
    pub sparing: SparingSpec,
    /// Zones of equal sectors per track, from cylinder 0 inwards.
    #[serde(rename = "zone")]
    pub zones: Vec<ZoneSpec>,
}

/// In which order the surfaces of a cylinder are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadOrder {
    /// From the first to the last on every cylinder.
    #[default]
    Rising,
    /// Back and forth, beginning anew with every zone.
    SerpentineInZone,
    /// Back and forth: odd cylinders from the last surface to the first.
    Serpentine,
}

/// How long the heads take to move.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekSpec {
    /// To another surface of the same cylinder, in ms.
    #[serde(default)]
    pub head_switch_ms: f64,
    /// What a write waits longer than a read after the heads have moved, in
    /// ms. Negative when the measured table is of writes.
    #[serde(default)]
    pub write_settle_ms: f64,
    /// The same after a step to another surface or to the next cylinder, for
    /// drives whose skews hide it; `write_settle_ms` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_settle_ms: Option<f64>,
    /// Measured: pairs of a distance in cylinders and ms, with rising
    /// distances. Linear between them and beyond the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<(u32, f64)>,
    /// Curves, each for the distances from `from` on; where there is no table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurveSpec>,
}

/// `constant + sqrt * sqrt(d) + linear * d` ms for a distance of d cylinders.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveSpec {
    /// The smallest distance it holds for.
    pub from: u32,
    /// In ms.
    #[serde(default)]
    pub constant: f64,
    /// In ms a square root of a cylinder.
    #[serde(default)]
    pub sqrt: f64,
    /// In ms a cylinder.
    #[serde(default)]
    pub linear: f64,
}

/// Time spent on commands, in ms.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverheadSpec {
    /// Of every command, before anything else.
    pub command: f64,
    /// Of a read that the buffer answers, the request before being a read.
    pub read_hit_after_read: f64,
    /// The same after a write.
    pub read_hit_after_write: f64,
    /// Of a read from the medium, after a read.
    pub read_miss_after_read: f64,
    /// The same after a write.
    pub read_miss_after_write: f64,
    /// Of a write, after a read.
    pub write_after_read: f64,
    /// Of a write, after a write.
    pub write_after_write: f64,
    /// At the end of a read.
    pub read_completion: f64,
    /// At the end of a write.
    pub write_completion: f64,
    /// Before data goes over the bus.
    pub data_preparation: f64,
    /// To win the bus back, the first time.
    pub reselect: f64,
    /// The same, after an extra disconnect.
    pub reselect_again: f64,
    /// To leave the bus during a read, after a read.
    pub read_disconnect_after_read: f64,
    /// The same after a write.
    pub read_disconnect_after_write: f64,
    /// To leave the bus during a write.
    pub write_disconnect: f64,
    /// Set when the drive leaves the bus once more in a write that follows a
    /// write and does not continue it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_disconnect: Option<ExtraDisconnectSpec>,
}

/// A drive that leaves the bus before it takes a write's data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraDisconnectSpec {
    /// The command's overhead then, in ms.
    pub command: f64,
    /// To leave the bus, in ms.
    pub disconnect: f64,
    /// Away from the bus, in ms.
    pub away: f64,
    /// To leave the bus when the data is over, in ms.
    pub second_disconnect: f64,
    /// From the command's end to the start of the seek, in ms.
    pub seek_delta: f64,
}

/// The way to the host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSpec {
    /// Of a sector to the host, in ms.
    pub read_sector: f64,
    /// Of a sector from the host, in ms.
    pub write_sector: f64,
    /// A read keeps the bus from its first sector to its last.
    pub hold_read: bool,
    /// A write keeps the bus until the buffer has all of it, and the heads
    /// write nothing before.
    pub hold_write: bool,
    /// A request keeps the bus from its command on.
    pub never_disconnect: bool,
}

/// What is read beyond what was asked for.
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
    /// `read_ahead_sectors` on, over whatever tracks that takes.
    Sectors,
    /// To the end of the track that the request ends before; when the segment
    /// reaches back to the track before, of the next one too.
    NextTrack,
}

/// The drive's memory: segments that each hold one run of sectors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// How many segments.
    pub segments: u32,
    /// Sectors in a segment.
    pub segment_sectors: u32,
    /// How many segments may hold what is not written yet.
    #[serde(default = "one")]
    pub write_segments: u32,
    /// A segment that serves reads in order takes the room of others, as far as
    /// `write_segments` and one more are left, and reads ahead as much further.
    #[serde(default)]
    pub adaptive_segments: bool,
    /// A read that the buffer cannot answer takes the room of others for its segment, up to so
    /// many sectors, of those that hold nothing which is not written yet. A write takes all of
    /// it apart again. How far is read ahead does not depend on it. 0 for a segment's worth.
    #[serde(default)]
    pub read_room_sectors: u32,
    /// One segment is for writes only, and reads never hit it.
    #[serde(default)]
    pub separate_write_segment: bool,
    /// What was read or written stays for later reads.
    #[serde(default = "yes")]
    pub caching: bool,
    /// Reads hit what was written.
    #[serde(default = "yes")]
    pub hits_on_written: bool,
    /// The share of a read that must have come from the medium before the
    /// drive returns to the bus.
    #[serde(default)]
    pub read_watermark: f64,
    /// The watermark is a share of the segment, not of the request.
    #[serde(default)]
    pub watermark_of_segment: bool,
    /// What is read beyond what was asked for.
    #[serde(default)]
    pub read_ahead: ReadAhead,
    /// The most read-ahead, in sectors; 0 for a segment's worth.
    #[serde(default)]
    pub read_ahead_sectors: u32,
    /// What the host has read is dropped; only read-ahead stays.
    #[serde(default)]
    pub discard_after_read: bool,
    /// A read of sectors that read-ahead is still to bring waits for them; otherwise only
    /// one of the very next sector does.
    #[serde(default)]
    pub wait_for_read_ahead: bool,
    /// A read that the buffer answers whole leaves read-ahead into another segment alone, as
    /// product manuals of desktop drives tell of them; otherwise that stops.
    #[serde(default)]
    pub read_ahead_through_hits: bool,
    /// A hit resumes read-ahead that had stopped.
    #[serde(default)]
    pub read_ahead_after_hit: bool,
    /// Sectors that pass before the ones asked for are kept as well.
    #[serde(default)]
    pub read_passing_sectors: bool,
    /// A read begins with whatever wanted sector passes first.
    #[serde(default)]
    pub zero_latency_read: bool,
    /// A write begins with whatever wanted sector passes first.
    #[serde(default)]
    pub zero_latency_write: bool,
    /// A write completes when the buffer has it.
    #[serde(default)]
    pub write_back: bool,
    /// A write that goes on where the one being written ends joins it.
    #[serde(default)]
    pub combine_writes: bool,
    /// A write that lies within one the buffer has accepted and the heads have
    /// not begun takes its place. Only with `write_back`.
    #[serde(default)]
    pub replace_writes: bool,
    /// Read-ahead stops within a sector; otherwise at its end.
    #[serde(default)]
    pub stop_in_sector: bool,
    /// Hits, and writes that find a segment, are served while the heads write.
    #[serde(default)]
    pub serve_while_writing: bool,
    /// Sectors of a write, or all there are, that the buffer holds before the
    /// heads write the first one.
    #[serde(default)]
    pub write_lead_sectors: u32,
    /// The least time from a write's command to its first sector, in ms.
    #[serde(default)]
    pub minimum_write_seek: f64,
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// Which of several waiting requests is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// First come, first served.
    #[default]
    Fifo,
    /// The one with the nearest cylinder (shortest seek time first).
    Sstf,
    /// The nearest ahead, rising; from the end back to the lowest (C-LOOK).
    CLook,
}

/// The drive's queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    /// Which one is next.
    pub policy: Policy,
    /// How many requests the drive sees at once; the others wait outside.
    pub depth: u32,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self { policy: Policy::Fifo, depth: 1 }
    }
}

/// What a reserve of sectors belongs to.
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

/// Where sectors are kept in reserve.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SparingSpec {
    /// What a reserve belongs to; a zone's `spares` says how many it has.
    pub unit: SpareUnit,
    /// Cylinders in a range.
    pub range_cylinders: u32,
    /// The reserve lies at the front of its unit.
    pub at_front: bool,
    /// A slipped sector moves all sectors up to the zone's end; otherwise up
    /// to its unit's end. Slips then take away from the zone's capacity.
    pub slip_to_end: bool,
}

/// Cylinders with equally many sectors per track.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// First cylinder.
    pub first_cylinder: u32,
    /// Last cylinder, itself included.
    pub last_cylinder: u32,
    /// Sectors on each track.
    pub sectors_per_track: u32,
    /// Angle of the zone's first sector, in sectors.
    #[serde(default)]
    pub offset: f64,
    /// Sectors at the zone's front that hold no data of the host.
    #[serde(default)]
    pub reserved: u64,
    /// Sectors that the next surface's first sector lies behind.
    #[serde(default)]
    pub track_skew: f64,
    /// The same for the next cylinder.
    #[serde(default)]
    pub cylinder_skew: f64,
    /// Reserve of each unit, in sectors (in tracks for `zone-tracks`).
    #[serde(default)]
    pub spares: u64,
    /// Slipped sectors (or tracks), counted from the zone's first: passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slips: Vec<u64>,
    /// Sectors (or tracks) that lie elsewhere: pairs of where it should be and
    /// where it is, counted from the zone's first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaps: Vec<(u64, u64)>,
}
