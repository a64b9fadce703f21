//! The layout of sectors: logical block addresses on tracks, with zones, skews, reserves, slipped
//! and remapped sectors.
//!
//! Sectors of a zone have two numberings: by location ("slots": track by track in the order in
//! which tracks are filled), and by use ("blocks": without reserves and slipped sectors).

use super::seek::Place;
use super::spec::{HddSpec, HeadOrder, SpareUnit, ZoneSpec};

/// A track: its blocks and their rotational position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Track {
    /// First block of the device on it.
    pub(super) first: u64,
    /// The block after the last one.
    pub(super) end: u64,
    pub(super) place: Place,
    pub(super) sectors: u32,
    /// Angle of the track's sector 0, in revolutions from 0 up to 1.
    pub(super) angle: f64,
    zone: usize,
    /// The zone's slot of the track's sector 0.
    slot: u64,
}

impl Track {
    /// Whether the block is on this track.
    pub(super) fn holds(&self, block: u64) -> bool {
        (self.first..self.end).contains(&block)
    }
}

/// A zone, with precomputed values.
#[derive(Clone, Debug)]
struct Zone {
    first_block: u64,
    blocks: u64,
    first_cylinder: u32,
    tracks: u64,
    sectors: u64,
    reserved: u64,
    /// Slots in a unit of sparing, and blocks in it.
    unit: u64,
    used: u64,
    /// Slots before a unit's first block.
    front: u64,
    /// In slots; in tracks for whole-track sparing; with `slip_to_end` in slots that are not in a
    /// reserve.
    slips: Vec<u64>,
    remaps: Vec<(u64, u64)>,
    offset: f64,
    track_skew: f64,
    cylinder_skew: f64,
}

/// The layout of the whole device.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    zones: Vec<Zone>,
    heads: u64,
    order: HeadOrder,
    unit: SpareUnit,
    slip_to_end: bool,
    blocks: u64,
}

impl Layout {
    pub(super) fn new(spec: &HddSpec) -> Self {
        let mut layout = Self {
            zones: Vec::with_capacity(spec.zones.len()),
            heads: u64::from(spec.heads),
            order: spec.head_order,
            unit: spec.sparing.unit,
            slip_to_end: spec.sparing.slip_to_end || spec.sparing.unit == SpareUnit::Zone,
            blocks: 0,
        };
        for zone in &spec.zones {
            let mut zone = layout.zone(spec, zone);
            zone.blocks = layout.capacity(spec, &zone);
            layout.blocks += zone.blocks;
            layout.zones.push(zone);
        }
        layout
    }

    /// Number of blocks of the device.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    fn zone(&self, spec: &HddSpec, zone: &ZoneSpec) -> Zone {
        let sectors = u64::from(zone.sectors_per_track);
        let cylinders = u64::from(zone.last_cylinder.saturating_sub(zone.first_cylinder)) + 1;
        let tracks = cylinders * self.heads;
        let unit = match self.unit {
            SpareUnit::Track => sectors,
            SpareUnit::Cylinder => sectors * self.heads,
            SpareUnit::Range => sectors * self.heads * u64::from(spec.sparing.range_cylinders),
            SpareUnit::None | SpareUnit::ZoneTracks | SpareUnit::Zone => sectors * tracks,
        };
        let spares = match self.unit {
            SpareUnit::None | SpareUnit::ZoneTracks | SpareUnit::Zone => 0,
            _ => zone.spares.min(unit - 1),
        };
        let front = if spec.sparing.at_front { spares } else { 0 };
        let mut zone = Zone {
            first_block: self.blocks,
            blocks: 0,
            first_cylinder: zone.first_cylinder,
            tracks,
            sectors,
            reserved: zone.reserved,
            unit,
            used: unit - spares,
            front,
            slips: zone.slips.clone(),
            remaps: zone.remaps.iter().copied().filter(|(from, to)| from != to).collect(),
            offset: zone.offset.trunc(),
            track_skew: zone.track_skew.trunc(),
            cylinder_skew: zone.cylinder_skew.trunc(),
        };
        if self.unit == SpareUnit::None && !self.slip_to_end {
            // There are no spare sectors into which slipped ones could move.
            zone.slips.clear();
        }
        // A bad sector in a reserve displaces nothing.
        let (unit, front, used) = (zone.unit, zone.front, zone.used);
        if front > 0 {
            zone.slips.retain(|slip| slip % unit >= front);
        }
        if self.slip_to_end {
            zone.slips.retain(|slip| slip % unit < front + used);
            for slip in &mut zone.slips {
                *slip = *slip / unit * used + (*slip % unit - front);
            }
        }
        zone.slips.sort_unstable();
        zone.slips.dedup();
        zone.remaps.sort_unstable();
        zone
    }

    /// Number of blocks of a zone. Reserves of a whole zone cover its slips; those of smaller units
    /// are subtracted unit by unit.
    fn capacity(&self, spec: &HddSpec, zone: &Zone) -> u64 {
        let slots = zone.tracks * zone.sectors;
        let spares = spec.zones.get(self.zones.len()).map_or(0, |zone| zone.spares);
        let taken = match self.unit {
            SpareUnit::None => 0,
            SpareUnit::ZoneTracks => spares * zone.sectors,
            SpareUnit::Zone => spares,
            _ => (slots / zone.unit) * (zone.unit - zone.used),
        };
        let slipped = if spec.sparing.slip_to_end { zone.slips.len() as u64 } else { 0 };
        slots.saturating_sub(taken + slipped + zone.reserved)
    }

    fn zone_of(&self, block: u64) -> usize {
        self.zones.partition_point(|zone| zone.first_block <= block).saturating_sub(1)
    }

    /// The track of a block of the device, without remapping.
    pub(super) fn track(&self, block: u64) -> Track {
        let at = self.zone_of(block);
        let zone = &self.zones[at];
        let slot = self.slot(zone, block);
        self.track_at(at, slot / zone.sectors)
    }

    /// The block's sector number on its track.
    pub(super) fn sector(&self, track: &Track, block: u64) -> u32 {
        let slot = self.slot(&self.zones[track.zone], block);
        u32::try_from(slot.saturating_sub(track.slot)).unwrap_or(u32::MAX)
    }

    /// The first remapped block in the range, if any, with the track and sector of its location.
    pub(super) fn remapped(&self, track: &Track, from: u64, to: u64) -> Option<(u64, Track, u32)> {
        let zone = &self.zones[track.zone];
        if zone.remaps.is_empty() || self.unit == SpareUnit::ZoneTracks {
            return None;
        }
        let (low, high) = (self.slot(zone, from), self.slot(zone, to.checked_sub(1)?));
        let at = zone.remaps.partition_point(|remap| remap.0 < low);
        let &(slot, target) = zone.remaps.get(at).filter(|remap| remap.0 <= high)?;
        let block = self.blocks_before(zone, slot) - zone.reserved + zone.first_block;
        let target = target.min(zone.tracks * zone.sectors - 1);
        let sector = u32::try_from(target % zone.sectors).unwrap_or(u32::MAX);
        Some((block, self.track_at(track.zone, target / zone.sectors), sector))
    }

    /// The first block of the track at or behind a sector.
    pub(super) fn block_from(&self, track: &Track, sector: u64) -> u64 {
        let zone = &self.zones[track.zone];
        let block = self.blocks_before(zone, track.slot + sector).saturating_sub(zone.reserved);
        (zone.first_block + block).clamp(track.first, track.end)
    }

    fn track_at(&self, at: usize, number: u64) -> Track {
        let zone = &self.zones[at];
        let data = self.data_track(zone, number);
        let bound = |slot| {
            let block = self.blocks_before(zone, slot).saturating_sub(zone.reserved);
            zone.first_block + block.min(zone.blocks)
        };
        let (cylinder, nth) = (number / self.heads, number % self.heads);
        let head = self.head(zone, cylinder, nth);
        let cylinder = u32::try_from(cylinder).unwrap_or(u32::MAX);
        Track {
            first: bound(data * zone.sectors),
            end: bound((data + 1) * zone.sectors),
            place: Place { cylinder: zone.first_cylinder + cylinder, head },
            sectors: u32::try_from(zone.sectors).unwrap_or(u32::MAX),
            angle: self.angle(zone, u64::from(cylinder), nth),
            zone: at,
            slot: number * zone.sectors,
        }
    }

    /// The track whose blocks a track contains: another one if whole tracks are remapped.
    fn data_track(&self, zone: &Zone, number: u64) -> u64 {
        if self.unit != SpareUnit::ZoneTracks {
            return number;
        }
        zone.remaps.iter().find(|remap| remap.1 == number).map_or(number, |remap| remap.0)
    }

    fn head(&self, zone: &Zone, cylinder: u64, nth: u64) -> u32 {
        let odd = match self.order {
            HeadOrder::Rising => false,
            HeadOrder::SerpentineInZone => cylinder % 2 == 1,
            HeadOrder::Serpentine => (cylinder + u64::from(zone.first_cylinder)) % 2 == 1,
        };
        let head = if odd { self.heads - 1 - nth } else { nth };
        u32::try_from(head).unwrap_or(u32::MAX)
    }

    /// Angle of a track's sector 0: every head switch and every step to the next cylinder adds its
    /// skew. If the reserve belongs to a track or a cylinder, slipped sectors advance the angle as
    /// well.
    fn angle(&self, zone: &Zone, cylinder: u64, nth: u64) -> f64 {
        let switches = nth + (self.heads - 1) * cylinder;
        let pushed = match self.unit {
            SpareUnit::Track => self.slips_before(zone, cylinder * self.heads + nth),
            SpareUnit::Cylinder => self.slips_before(zone, cylinder * self.heads),
            _ => 0,
        };
        let sectors = zone.offset
            + switches as f64 * zone.track_skew
            + cylinder as f64 * zone.cylinder_skew
            + pushed as f64;
        (sectors / zone.sectors as f64).rem_euclid(1.0)
    }

    fn slips_before(&self, zone: &Zone, track: u64) -> u64 {
        let slot = track * zone.sectors;
        zone.slips.partition_point(|&slip| slip < slot) as u64
    }

    /// The slot of a block of the device.
    fn slot(&self, zone: &Zone, block: u64) -> u64 {
        let block = block.saturating_sub(zone.first_block) + zone.reserved;
        if self.unit == SpareUnit::ZoneTracks {
            let track = skip(&zone.slips, block / zone.sectors);
            let remap = zone.remaps.iter().find(|remap| remap.0 == track);
            return remap.map_or(track, |remap| remap.1) * zone.sectors + block % zone.sectors;
        }
        if self.slip_to_end {
            let block = skip(&zone.slips, block);
            return block / zone.used * zone.unit + zone.front + block % zone.used;
        }
        let (unit, within) = (block / zone.used * zone.unit, block % zone.used);
        let slips = self.slips_in(zone, unit);
        let front = reserve(zone, slips);
        // Slips count from the zone's front, `within` from the unit's.
        let passed = slips
            .iter()
            .enumerate()
            .take_while(|(n, slip)| **slip - unit - (*n as u64) <= within + front)
            .count();
        unit + front + within + passed as u64
    }

    /// The slips in the unit that begins at a slot.
    fn slips_in<'a>(&self, zone: &'a Zone, unit: u64) -> &'a [u64] {
        let from = zone.slips.partition_point(|&slip| slip < unit);
        let to = zone.slips.partition_point(|&slip| slip < unit + zone.unit);
        &zone.slips[from..to]
    }

    /// Number of blocks before a slot, including reserved ones.
    fn blocks_before(&self, zone: &Zone, slot: u64) -> u64 {
        if self.unit == SpareUnit::ZoneTracks {
            let track = slot / zone.sectors;
            let slipped = zone.slips.partition_point(|&slip| slip < track) as u64;
            return (track - slipped) * zone.sectors + slot % zone.sectors;
        }
        let (unit, within) = (slot / zone.unit, slot % zone.unit);
        if self.slip_to_end {
            let within = within.saturating_sub(zone.front);
            let block = unit * zone.used + within.min(zone.used);
            return block - zone.slips.partition_point(|&slip| slip < block) as u64;
        }
        let slips = self.slips_in(zone, unit * zone.unit);
        let passed = slips.partition_point(|&s| s < slot) as u64;
        let within = within.saturating_sub(reserve(zone, slips) + passed);
        unit * zone.used + within.min(zone.used)
    }
}

/// Unused slots at the front of a unit: its reserve minus the slots used for slips.
fn reserve(zone: &Zone, slips: &[u64]) -> u64 {
    zone.front.saturating_sub(slips.len() as u64)
}

/// The `nth` number that is not in the list, counted from 0.
fn skip(list: &[u64], nth: u64) -> u64 {
    // list[i] - i, the rank of the first number after list[i], never decreases.
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let mid = usize::midpoint(low, high);
        if list[mid] - mid as u64 <= nth { low = mid + 1 } else { high = mid }
    }
    nth + low as u64
}
