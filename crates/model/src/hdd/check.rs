//! Validation of a drive's figures.

use super::spec::{HddSpec, SpareUnit, ZoneSpec};

/// Bounds that no drive comes near, and within which nothing overflows.
const HEADS: u32 = 256;
const CYLINDERS: u32 = 1 << 24;
const SECTORS: u32 = 1 << 16;
const ZONES: usize = 1 << 12;
const SEGMENTS: u32 = 1 << 12;
const SEGMENT: u32 = 1 << 24;
const DEPTH: u32 = 1 << 10;
const LONGEST_MS: f64 = 1e5;
const SHORTEST_RPM: f64 = 60.0;
const HIGHEST_RPM: f64 = 1e6;

type Fault = (&'static str, String);

fn number(key: &'static str, value: u64, most: u64) -> Option<Fault> {
    (value == 0 || value > most).then(|| (key, format!("{value} is not in the range 1 to {most}")))
}

fn time(key: &'static str, ms: f64) -> Option<Fault> {
    let fine = (0.0..=LONGEST_MS).contains(&ms);
    (!fine).then(|| (key, format!("{ms} ms is not in the range 0 to {LONGEST_MS}")))
}

impl HddSpec {
    /// The first fault in the figures: key and reason.
    #[must_use]
    pub fn fault(&self) -> Option<(&'static str, String)> {
        number("heads", self.heads.into(), HEADS.into())
            .or_else(|| number("cylinders", self.cylinders.into(), CYLINDERS.into()))
            .or_else(|| {
                let fine = (SHORTEST_RPM..=HIGHEST_RPM).contains(&self.rpm);
                (!fine).then(|| ("rpm", format!("{} revolutions a minute", self.rpm)))
            })
            .or_else(|| self.seek_fault())
            .or_else(|| self.time_fault())
            .or_else(|| self.buffer_fault())
            .or_else(|| number("depth", self.queue.depth.into(), DEPTH.into()))
            .or_else(|| self.zones_fault())
    }

    fn seek_fault(&self) -> Option<Fault> {
        let seek = &self.seek;
        if seek.table.is_empty() && seek.curve.is_empty() {
            return Some(("seek", "a table or a curve is required".into()));
        }
        let rising = seek.table.windows(2).all(|two| two[0].0 < two[1].0);
        if !rising || seek.table.first().is_some_and(|first| first.0 == 0) {
            return Some(("table", "distances must increase, starting with 1".into()));
        }
        if !seek.curve.windows(2).all(|two| two[0].from < two[1].from) {
            return Some(("curve", "distances must increase".into()));
        }
        let bounds = -LONGEST_MS..=LONGEST_MS;
        let sane = |curve: &super::spec::CurveSpec| {
            [curve.constant, curve.sqrt, curve.linear].iter().all(|part| bounds.contains(part))
        };
        if !seek.curve.iter().all(sane) {
            return Some(("curve", "a coefficient is out of range".into()));
        }
        let settle = seek.write_settle_ms;
        seek.table
            .iter()
            .find_map(|point| time("table", point.1))
            .or_else(|| time("head_switch_ms", seek.head_switch_ms))
            .or_else(|| time("write_settle_ms", settle.abs()))
            .or_else(|| time("switch_settle_ms", seek.switch_settle_ms.unwrap_or_default().abs()))
    }

    fn time_fault(&self) -> Option<Fault> {
        let times = &self.overhead;
        let plain = [
            ("command", times.command),
            ("read_hit_after_read", times.read_hit_after_read),
            ("read_hit_after_write", times.read_hit_after_write),
            ("read_miss_after_read", times.read_miss_after_read),
            ("read_miss_after_write", times.read_miss_after_write),
            ("write_after_read", times.write_after_read),
            ("write_after_write", times.write_after_write),
            ("read_completion", times.read_completion),
            ("write_completion", times.write_completion),
            ("data_preparation", times.data_preparation),
            ("reselect", times.reselect),
            ("reselect_again", times.reselect_again),
            ("read_disconnect_after_read", times.read_disconnect_after_read),
            ("read_disconnect_after_write", times.read_disconnect_after_write),
            ("write_disconnect", times.write_disconnect),
            ("read_sector", self.bus.read_sector),
            ("write_sector", self.bus.write_sector),
            ("minimum_write_seek", self.buffer.minimum_write_seek),
        ];
        let extra = times.extra_disconnect.iter().flat_map(|extra| {
            [
                ("command", extra.command),
                ("disconnect", extra.disconnect),
                ("away", extra.away),
                ("second_disconnect", extra.second_disconnect),
                ("seek_delta", extra.seek_delta),
            ]
        });
        plain.into_iter().chain(extra).find_map(|(key, ms)| time(key, ms))
    }

    fn buffer_fault(&self) -> Option<Fault> {
        let buffer = &self.buffer;
        let fault = number("segments", buffer.segments.into(), SEGMENTS.into())
            .or_else(|| number("segment_sectors", buffer.segment_sectors.into(), SEGMENT.into()))
            .or_else(|| {
                let room = u64::from(buffer.segment_sectors) * u64::from(buffer.segments);
                let message = || format!("more than all segments have ({room})");
                let wrong = u64::from(buffer.read_room_sectors) > room;
                wrong.then(|| ("read_room_sectors", message()))
            })
            .or_else(|| {
                number("write_segments", buffer.write_segments.into(), buffer.segments.into())
            });
        if fault.is_some() {
            return fault;
        }
        if buffer.separate_write_segment && buffer.segments < 2 {
            return Some(("separate_write_segment", "requires at least 2 segments".into()));
        }
        let share = (0.0..=1.0).contains(&buffer.read_watermark);
        (!share).then(|| ("read_watermark", "must be from 0 to 1".into()))
    }

    fn zones_fault(&self) -> Option<Fault> {
        if self.zones.is_empty() || self.zones.len() > ZONES {
            return Some(("zone", format!("there must be 1 to {ZONES} zones")));
        }
        let range = self.sparing.range_cylinders;
        if self.sparing.unit == SpareUnit::Range && (range == 0 || range > self.cylinders) {
            return Some((
                "range_cylinders",
                format!("{range} is not in the range 1 to {}", self.cylinders),
            ));
        }
        let joined = self.zones.windows(2).all(|two| two[0].last_cylinder < two[1].first_cylinder);
        if !joined {
            return Some(("first_cylinder", "zones must be in order and must not overlap".into()));
        }
        self.zones.iter().find_map(|zone| self.zone_fault(zone))
    }

    fn zone_fault(&self, zone: &ZoneSpec) -> Option<Fault> {
        if zone.first_cylinder > zone.last_cylinder || zone.last_cylinder >= self.cylinders {
            let (first, last) = (zone.first_cylinder, zone.last_cylinder);
            return Some(("last_cylinder", format!("invalid zone: cylinders {first} to {last}")));
        }
        let fault = number("sectors_per_track", zone.sectors_per_track.into(), SECTORS.into());
        if fault.is_some() {
            return fault;
        }
        let bound = f64::from(SECTORS);
        let skews = [
            ("offset", zone.offset),
            ("track_skew", zone.track_skew),
            ("cylinder_skew", zone.cylinder_skew),
        ];
        if let Some((key, skew)) = skews.iter().find(|(_, skew)| !(0.0..=bound).contains(skew)) {
            return Some((key, format!("{skew} sectors")));
        }
        let tracks =
            u64::from(zone.last_cylinder - zone.first_cylinder + 1) * u64::from(self.heads);
        let slots = tracks * u64::from(zone.sectors_per_track);
        let numbers = if self.sparing.unit == SpareUnit::ZoneTracks { tracks } else { slots };
        if let Some(slip) = zone.slips.iter().find(|slip| **slip >= numbers) {
            return Some(("slips", format!("sector {slip} is not in the zone")));
        }
        let outside = |remap: &&(u64, u64)| remap.0 >= numbers || remap.1 >= numbers;
        if let Some(remap) = zone.remaps.iter().find(outside) {
            return Some((
                "remaps",
                format!("{} and {} are not both in the zone", remap.0, remap.1),
            ));
        }
        self.reserve_fault(zone, slots)
    }

    fn reserve_fault(&self, zone: &ZoneSpec, slots: u64) -> Option<Fault> {
        let sectors = u64::from(zone.sectors_per_track);
        let cylinder = sectors * u64::from(self.heads);
        let unit = match self.sparing.unit {
            SpareUnit::None => return (zone.reserved >= slots).then(|| no_room("reserved")),
            SpareUnit::ZoneTracks => slots / sectors,
            SpareUnit::Track => sectors,
            SpareUnit::Cylinder => cylinder,
            SpareUnit::Range => cylinder * u64::from(self.sparing.range_cylinders),
            SpareUnit::Zone => slots,
        };
        if zone.spares >= unit {
            return Some(no_room("spares"));
        }
        if !self.sparing.slip_to_end && crowded(zone, unit) {
            let why = format!("more slips than the {} spares of a unit", zone.spares);
            return Some(("slips", why));
        }
        let slips = zone.slips.len() as u64;
        let covered = match self.sparing.unit {
            SpareUnit::ZoneTracks => slips > zone.spares,
            SpareUnit::Zone if !self.sparing.slip_to_end => slips > zone.spares,
            _ => false,
        };
        if covered {
            return Some(("slips", format!("{slips} slips, {} spares", zone.spares)));
        }
        (zone.reserved + zone.spares + slips >= slots).then(|| no_room("reserved"))
    }
}

/// Whether a unit of `unit` sectors has more slips than spares. Tracks and zones as units are
/// counted as a whole.
fn crowded(zone: &ZoneSpec, unit: u64) -> bool {
    let mut slips = zone.slips.clone();
    slips.sort_unstable();
    slips.dedup();
    slips.chunk_by(|a, b| a / unit == b / unit).any(|unit| unit.len() as u64 > zone.spares)
}

fn no_room(key: &'static str) -> Fault {
    (key, "leaves no room in the zone".into())
}
