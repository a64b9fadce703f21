//! `dm_disk` blocks: mechanics and layout.

use super::fields::{Fields, whole};
use super::syntax::Value;
use super::{Files, ImportError};
use crate::hdd::spec::{
    BufferSpec, BusSpec, CurveSpec, HddSpec, HeadOrder, OverheadSpec, QueueSpec, ReadAhead,
    SeekSpec, SpareUnit, SparingSpec, ZoneSpec,
};

/// A drive with this geometry and mechanics, and a buffer of one segment.
pub(super) fn drive(disk: Fields<'_>, files: &mut Files<'_>) -> Result<HddSpec, ImportError> {
    let mechanics = disk.block("Mechanical Model")?;
    let layout = disk.block("Layout Model")?;
    let zones = zones(layout)?;
    // DiskSim relies on the zones, and in some files the last zone ends behind the last cylinder.
    let last = zones.iter().map(|zone| zone.last_cylinder).max().unwrap_or(0);
    let cylinders = disk.count::<u32>("Number of cylinders")?.max(last.saturating_add(1));
    let sparing = sparing(layout)?;
    Ok(HddSpec {
        heads: disk.count("Number of data surfaces")?,
        cylinders,
        rpm: mechanics.number("Rotation speed (in rpms)")?,
        head_order: head_order(layout)?,
        seek: seek(mechanics, cylinders, files)?,
        overhead: OverheadSpec::default(),
        bus: BusSpec::default(),
        buffer: bare_buffer(),
        queue: QueueSpec::default(),
        zones,
        sparing,
    })
}

fn bare_buffer() -> BufferSpec {
    BufferSpec {
        segments: 1,
        segment_sectors: 256,
        write_segments: 1,
        adaptive_segments: false,
        read_room_sectors: 0,
        separate_write_segment: false,
        caching: false,
        hits_on_written: false,
        read_watermark: 0.0,
        watermark_of_segment: false,
        read_ahead: ReadAhead::None,
        read_ahead_sectors: 0,
        discard_after_read: false,
        wait_for_read_ahead: false,
        read_ahead_through_hits: false,
        read_ahead_after_hit: false,
        read_passing_sectors: false,
        zero_latency_read: false,
        zero_latency_write: false,
        write_back: false,
        combine_writes: false,
        replace_writes: false,
        stop_in_sector: false,
        serve_while_writing: false,
        write_lead_sectors: 0,
        minimum_write_seek: 0.0,
    }
}

fn head_order(layout: Fields<'_>) -> Result<HeadOrder, ImportError> {
    const KEY: &str = "LBN-to-PBN mapping scheme";
    match layout.count_or::<u32>(KEY, 0)? {
        0 => Ok(HeadOrder::Rising),
        1 => Ok(HeadOrder::SerpentineInZone),
        2 => Ok(HeadOrder::Serpentine),
        other => Err(layout.error(KEY, format!("{other} is not 0 to 2"))),
    }
}

fn sparing(layout: Fields<'_>) -> Result<SparingSpec, ImportError> {
    const KEY: &str = "Sparing scheme used";
    let (unit, at_front, slip_to_end) = match layout.count_or::<u32>(KEY, 0)? {
        0 => (SpareUnit::None, false, false),
        1 => (SpareUnit::ZoneTracks, false, false),
        2 => (SpareUnit::Cylinder, false, false),
        3 => (SpareUnit::Track, false, false),
        4 => (SpareUnit::Cylinder, false, true),
        5 => (SpareUnit::Cylinder, true, false),
        6 => (SpareUnit::Cylinder, true, true),
        7 | 10 => (SpareUnit::Zone, false, true),
        8 => (SpareUnit::Range, false, false),
        9 => (SpareUnit::Zone, false, false),
        other => return Err(layout.error(KEY, format!("{other} is not 0 to 10"))),
    };
    let range_cylinders = match unit {
        SpareUnit::Range => layout.count("Rangesize for sparing")?,
        _ => 0,
    };
    Ok(SparingSpec { unit, range_cylinders, at_front, slip_to_end })
}

fn zones(layout: Fields<'_>) -> Result<Vec<ZoneSpec>, ImportError> {
    let zone = |item: &super::syntax::Spanned<Value>| match &item.value {
        Value::Block(block) => zone(Fields { block, file: layout.file }),
        _ => Err(layout.error("Zones", "a list of zones expected")),
    };
    layout.list("Zones")?.iter().map(zone).collect()
}

fn zone(zone: Fields<'_>) -> Result<ZoneSpec, ImportError> {
    let defects = zone.counts("defects")?;
    let pairs = defects.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(zone.error("defects", "an even number of sectors expected"));
    }
    let pair = |pair: &[u64]| match pair {
        [from, to] => Some((*from, *to)),
        _ => None,
    };
    let sectors: u32 = zone.count("Blocks per track")?;
    let turns = if zone.words("Skew units").is_ok_and(|units| units == "revolutions") {
        f64::from(sectors)
    } else {
        1.0
    };
    Ok(ZoneSpec {
        first_cylinder: zone.count("First cylinder number")?,
        last_cylinder: zone.count("Last cylinder number")?,
        sectors_per_track: sectors,
        offset: zone.number_or("Offset of first block", 0.0)? * turns,
        reserved: zone.count_or("Empty space at zone front", 0)?,
        track_skew: zone.number_or("Skew for track switch", 0.0)? * turns,
        cylinder_skew: zone.number_or("Skew for cylinder switch", 0.0)? * turns,
        spares: zone.count_or("Number of spares", 0)?,
        slips: zone.counts("slips")?,
        remaps: pairs.filter_map(pair).collect(),
    })
}

fn seek(mech: Fields<'_>, cylinders: u32, files: &mut Files<'_>) -> Result<SeekSpec, ImportError> {
    let mut seek = SeekSpec {
        head_switch_ms: mech.number_or("Head switch time", 0.0)?,
        write_settle_ms: mech.number_or("Add. write settling delay", 0.0)?,
        ..SeekSpec::default()
    };
    match mech.words("Seek type")? {
        "extracted" => {
            let file = mech.words("Full seek curve")?;
            let text = files.text(file)?;
            seek.table = table(&text, file)?;
        }
        "constant" => seek.curve = vec![curve(1, mech.number("Constant seek time")?, 0.0, 0.0)],
        "threepointline" => seek.table = three_points(mech, cylinders)?,
        "threepointcurve" => seek.curve = vec![three_point_curve(mech, cylinders)?],
        "hpl" => seek.curve = hpl(mech)?,
        "hplplus10" => {
            seek.curve = hpl(mech)?;
            let first = mech.numbers("First ten seek times")?;
            let from = u32::try_from(first.len()).unwrap_or(u32::MAX) + 1;
            if let Some(curve) = seek.curve.first_mut() {
                curve.from = curve.from.max(from);
            }
            let times = (1u32..).zip(first).map(|(at, ms)| curve(at, ms, 0.0, 0.0));
            seek.curve.splice(0..0, times);
        }
        other => return Err(mech.error("Seek type", format!("'{other}' is not known"))),
    }
    Ok(seek)
}

fn curve(from: u32, constant: f64, sqrt: f64, linear: f64) -> CurveSpec {
    CurveSpec { from, constant, sqrt, linear }
}

/// Ruemmler and Wilkes 1994: a square root up to a distance, a line from there.
fn hpl(mech: Fields<'_>) -> Result<Vec<CurveSpec>, ImportError> {
    const KEY: &str = "HPL seek equation values";
    let values = mech.numbers(KEY)?;
    let &[until, near, sqrt, far, linear, single] = values.as_slice() else {
        return Err(mech.error(KEY, "six numbers expected"));
    };
    let until: u32 = whole(until.trunc())
        .ok_or_else(|| mech.error(KEY, "the first value must be a distance"))?;
    let mut curves = vec![curve(1, near, sqrt, 0.0), curve(until.max(2), far, 0.0, linear)];
    if single >= 0.0 {
        let at = mech.number_or("Single cylinder seek time", single)?;
        if let Some(first) = curves.first_mut() {
            first.from = 2;
        }
        curves.insert(0, curve(1, at, 0.0, 0.0));
    }
    Ok(curves)
}

fn three(mech: Fields<'_>) -> Result<(f64, f64, f64), ImportError> {
    Ok((
        mech.number("Single cylinder seek time")?,
        mech.number("Average seek time")?,
        mech.number("Full strobe seek time")?,
    ))
}

/// Lines through the single-cylinder, average and full seek; the average is that of a third of the
/// cylinders.
fn three_points(mech: Fields<'_>, cylinders: u32) -> Result<Vec<(u32, f64)>, ImportError> {
    let (single, average, full) = three(mech)?;
    let third = (cylinders / 3).max(2);
    Ok(vec![(1, single), (third, average), (cylinders.max(third.saturating_add(1)), full)])
}

/// `a + b sqrt(d) + c d` through the same three points.
fn three_point_curve(mech: Fields<'_>, cylinders: u32) -> Result<CurveSpec, ImportError> {
    let (single, average, full) = three(mech)?;
    let (third, all) = (f64::from((cylinders / 3).max(2)), f64::from(cylinders.max(3)));
    // Eliminate a, then c.
    let (p, q) = (third.sqrt() - 1.0, third - 1.0);
    let (r, s) = (all.sqrt() - 1.0, all - 1.0);
    let (u, v) = (average - single, full - single);
    let sqrt = (u * s - v * q) / (p * s - r * q);
    let linear = (v - sqrt * r) / s;
    Ok(curve(1, single - sqrt - linear, sqrt, linear))
}

/// A measured curve: a headline, then one line per distance with its time in ms.
fn table(text: &str, file: &str) -> Result<Vec<(u32, f64)>, ImportError> {
    let mut table = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1) {
        let line_error = |message: String| ImportError::Invalid {
            file: file.into(),
            line: at + 1,
            key: "seek".into(),
            message,
        };
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let parsed = line.split_once(',').and_then(|(distance, ms)| {
            Some((distance.trim().parse().ok()?, ms.trim().parse().ok()?))
        });
        let point: (u32, f64) =
            parsed.ok_or_else(|| line_error(format!("'{line}' is not a distance and a time")))?;
        if table.last().is_some_and(|last: &(u32, f64)| last.0 >= point.0) {
            return Err(line_error(format!(
                "distance {} is not larger than the one before",
                point.0
            )));
        }
        table.push(point);
    }
    Ok(table)
}
