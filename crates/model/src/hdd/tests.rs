//! The drive compared with figures computed by hand: 6,000 revolutions per minute are 10 ms per
//! revolution, and 100 sectors on a track 100 us per sector.

mod order;
mod room;
mod scan;

use super::spec::*;
use super::*;
use seekless_units::Lba;

fn spec() -> HddSpec {
    HddSpec {
        heads: 2,
        cylinders: 100,
        rpm: 6000.0,
        head_order: HeadOrder::Rising,
        seek: SeekSpec {
            head_switch_ms: 0.9,
            write_settle_ms: 0.5,
            switch_settle_ms: None,
            table: vec![(1, 2.0), (99, 11.8)],
            curve: Vec::new(),
        },
        overhead: OverheadSpec::default(),
        bus: BusSpec::default(),
        buffer: BufferSpec {
            segments: 2,
            segment_sectors: 400,
            write_segments: 1,
            adaptive_segments: false,
            read_room_sectors: 0,
            separate_write_segment: false,
            caching: true,
            hits_on_written: true,
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
            stop_in_sector: true,
            serve_while_writing: false,
            write_lead_sectors: 0,
            minimum_write_seek: 0.0,
        },
        queue: QueueSpec::default(),
        sparing: SparingSpec::default(),
        zones: vec![ZoneSpec {
            first_cylinder: 0,
            last_cylinder: 99,
            sectors_per_track: 100,
            track_skew: 10.0,
            cylinder_skew: 30.0,
            ..ZoneSpec::default()
        }],
    }
}

fn drive(change: impl FnOnce(&mut HddSpec)) -> Hdd {
    let mut spec = spec();
    change(&mut spec);
    assert_eq!(spec.fault(), None);
    Hdd::new(spec)
}

/// Microseconds from a request's arrival to its end.
fn us(drive: &mut Hdd, at_us: u64, request: Request) -> u64 {
    let at = Nanos::new(at_us * 1000);
    let done = drive.serve(at, request).unwrap();
    (done.saturating_since(at) + 500) / 1000
}

fn read(at: u64, sectors: u32) -> Request {
    Request::read(Lba::new(at), sectors)
}

fn write(at: u64, sectors: u32) -> Request {
    Request::write(Lba::new(at), sectors)
}

#[test]
fn rotation_is_a_function_of_time() {
    // Sector 20 begins to pass at 2 ms, and a sector takes 0.1 ms.
    assert_eq!(us(&mut drive(|_| {}), 0, read(20, 1)), 2_100);
    assert_eq!(us(&mut drive(|_| {}), 500, read(20, 1)), 1_600);
    assert_eq!(us(&mut drive(|_| {}), 2_001, read(20, 1)), 10_099);
    assert_eq!(us(&mut drive(|_| {}), 70_000, read(20, 10)), 3_000);
}

#[test]
fn a_seek_and_skews_move_the_sector() {
    // Block 400 is sector 0 of cylinder 2, head 0. Skews: one head switch and one step per
    // cylinder, twice: 80 sectors, so it passes at 8 ms. The seek of two cylinders takes 2.1 ms.
    assert_eq!(us(&mut drive(|_| {}), 0, read(400, 1)), 8_100);
    assert_eq!(us(&mut drive(|_| {}), 6_000, read(400, 1)), 10_000 + 2_100);
    // Block 100 is on the other surface: it passes at 1 ms, just after the head switch; a write
    // settles too late and takes a revolution more.
    assert_eq!(us(&mut drive(|_| {}), 0, read(100, 1)), 1_100);
    assert_eq!(us(&mut drive(|_| {}), 0, write(100, 1)), 11_100);
}

#[test]
fn a_read_goes_on_over_track_and_cylinder() {
    // To the end of the track at 10 ms, head switch within the skew of 1 ms.
    assert_eq!(us(&mut drive(|_| {}), 0, read(90, 20)), 10_000 + 1_000 + 1_000);
    // Over a cylinder: skew of 4 ms and a seek of 2 ms. It arrives at 1 ms, begins at 10, is over
    // the cylinder at 14, ends at 15.
    assert_eq!(us(&mut drive(|_| {}), 1_000, read(190, 20)), 14_000);
}

#[test]
fn slips_and_spares_shift_what_lies_behind() {
    // One spare sector per track; sector 5 is bad.
    let mut slipped = drive(|spec| {
        spec.sparing.unit = SpareUnit::Track;
        spec.zones[0].spares = 1;
        spec.zones[0].slips = vec![5];
        spec.zones[0].track_skew = 0.0;
        spec.zones[0].cylinder_skew = 0.0;
    });
    assert_eq!(slipped.capacity(), Some(200 * 99));
    // Blocks 3 to 6 are sectors 3, 4, 6 and 7.
    assert_eq!(us(&mut slipped, 0, read(3, 4)), 800);
    // Block 98 is the last on the track.
    assert_eq!(us(&mut slipped, 10_000, read(98, 1)), 10_000);
    // Whole-zone reserves shift over track ends.
    let mut zone = drive(|spec| {
        spec.sparing.unit = SpareUnit::Zone;
        spec.zones[0].spares = 10;
        spec.zones[0].slips = vec![5, 6];
        spec.zones[0].track_skew = 0.0;
    });
    assert_eq!(zone.capacity(), Some(20_000 - 10));
    assert_eq!(us(&mut zone, 0, read(97, 1)), 10_000);
    assert_eq!(us(&mut zone, 10_900, read(98, 1)), 9_200);
}

#[test]
fn every_block_has_a_place_of_its_own() {
    for unit in [
        SpareUnit::None,
        SpareUnit::ZoneTracks,
        SpareUnit::Track,
        SpareUnit::Cylinder,
        SpareUnit::Range,
        SpareUnit::Zone,
    ] {
        for (at_front, slip_to_end) in [(false, false), (true, false), (false, true), (true, true)]
        {
            let mut spec = spec();
            spec.cylinders = 30;
            spec.sparing = SparingSpec { unit, range_cylinders: 5, at_front, slip_to_end };
            spec.zones[0].last_cylinder = 29;
            spec.zones[0].reserved = 17;
            spec.zones[0].spares = 6;
            spec.zones[0].slips = vec![3, 4, 20, 21, 45];
            assert_eq!(spec.fault(), None, "{unit:?}");
            let layout = layout::Layout::new(&spec);
            let mut places = std::collections::BTreeSet::new();
            for block in 0..layout.blocks() {
                let track = layout.track(block);
                assert!(track.holds(block), "{unit:?} {at_front} {slip_to_end} {block} {track:?}");
                let sector = layout.sector(&track, block);
                assert!(sector < 100);
                assert_eq!(layout.block_from(&track, u64::from(sector)), block);
                assert!(places.insert((track.place.cylinder, track.place.head, sector)));
            }
            assert!(layout.blocks() > 3_000, "{unit:?}");
        }
    }
}

#[test]
fn remapped_sectors_cost_the_way_there_and_back() {
    let plain = us(&mut drive(|_| {}), 0, read(0, 10));
    let remap = |spec: &mut HddSpec| spec.zones[0].remaps = vec![(5, 19_999)];
    let far = us(&mut drive(remap), 0, read(0, 10));
    assert_eq!(plain, 1_000);
    // Two seeks over 99 cylinders and the turns between.
    assert!((23_600..45_000).contains(&far), "{far}");
}

#[test]
fn read_ahead_answers_what_comes_next() {
    let ahead = |spec: &mut HddSpec| {
        spec.buffer.read_ahead = ReadAhead::Sectors;
        spec.buffer.read_ahead_sectors = 50;
        spec.overhead.read_hit_after_read = 0.3;
        spec.overhead.read_miss_after_read = 0.7;
        spec.bus.read_sector = 0.01;
    };
    let mut drive = drive(ahead);
    // The wait for sector 20 hides the overhead; a sector goes over the bus.
    assert_eq!(us(&mut drive, 0, read(20, 4)), 2_400 + 10);
    // 26 ms later read-ahead has long reached sector 74.
    assert_eq!(us(&mut drive, 30_000, read(30, 10)), 300 + 100);
    // In progress: at 40 ms a miss; sectors 20 to 30 have passed at 43 ms.
    let mut drive = super::tests::drive(ahead);
    us(&mut drive, 0, read(20, 4));
    // Sector 59 has passed at 6 ms.
    assert_eq!(us(&mut drive, 2_500, read(50, 10)), 6_000 + 10 - 2_500);
}

#[test]
fn what_was_read_may_be_dropped() {
    let mut keeps = drive(|_| {});
    us(&mut keeps, 0, read(20, 4));
    assert_eq!(us(&mut keeps, 30_000, read(20, 4)), 0);
    let mut drops = drive(|spec| spec.buffer.discard_after_read = true);
    us(&mut drops, 0, read(20, 4));
    assert_eq!(us(&mut drops, 30_000, read(20, 4)), 2_400);
}

#[test]
fn a_read_may_begin_in_the_middle() {
    let mut zero = drive(|spec| spec.buffer.zero_latency_read = true);
    // The heads land on sector 50 of 100: a revolution, and two sectors to determine their
    // position.
    assert_eq!(us(&mut zero, 5_000, read(0, 100)), 10_200);
    assert_eq!(us(&mut drive(|_| {}), 5_000, read(0, 100)), 15_000);
}

#[test]
fn a_write_needs_its_data_in_time() {
    let bus = |ms: f64| move |spec: &mut HddSpec| spec.bus.write_sector = ms;
    // Fast bus: the data of sector 20 is there at 0.05 ms.
    assert_eq!(us(&mut drive(bus(0.05)), 0, write(20, 4)), 2_400);
    // The data comes at 2.5 ms: the next revolution.
    assert_eq!(us(&mut drive(bus(2.5)), 0, write(20, 1)), 12_100);
    // A bus at half the medium's pace: half the sectors each revolution.
    let slow = us(&mut drive(bus(0.2)), 0, write(2, 20));
    assert!((10_000..40_000).contains(&slow), "{slow}");
}

#[test]
fn written_data_is_buffered_and_flushed() {
    let back = |spec: &mut HddSpec| {
        spec.buffer.write_back = true;
        spec.bus.write_sector = 0.01;
    };
    let mut drive = drive(back);
    assert_eq!(us(&mut drive, 0, write(20, 4)), 40);
    // On the medium at 2.4 ms; a flush waits until then.
    assert_eq!(us(&mut drive, 100, Request::flush()), 2_300);
    assert_eq!(us(&mut drive, 30_000, write(20, 4).durable()), 2_400);
    assert_eq!(us(&mut drive, 60_000, read(20, 4)), 0);
}

/// The order in which requests that arrive together complete.
fn order(policy: Policy) -> Vec<u64> {
    let mut drive = drive(|spec| spec.queue = QueueSpec { policy, depth: 32 });
    // The heads are on cylinder 50 when the four arrive.
    us(&mut drive, 0, read(50 * 200, 1));
    let at = Nanos::new(100_000_000);
    for cylinder in [10, 60, 45, 90] {
        drive.submit(at, Tag(cylinder), read(cylinder * 200, 1)).unwrap();
    }
    let mut order = Vec::new();
    while let Some(done) = drive.advance(Nanos::new(u64::MAX)) {
        order.push(done.tag.0);
    }
    order
}

#[test]
fn the_queue_follows_its_policy() {
    assert_eq!(order(Policy::Fifo), [10, 60, 45, 90]);
    assert_eq!(order(Policy::Sstf), [45, 60, 90, 10]);
    assert_eq!(order(Policy::CLook), [60, 90, 10, 45]);
}

#[test]
fn nothing_is_lost_under_load() {
    let mut drive = drive(|spec| {
        spec.queue = QueueSpec { policy: Policy::CLook, depth: 8 };
        spec.buffer.segments = 8;
        spec.buffer.write_segments = 3;
        spec.buffer.write_back = true;
        spec.buffer.serve_while_writing = true;
        spec.buffer.combine_writes = true;
        spec.buffer.read_ahead = ReadAhead::Sectors;
    });
    let mut chance = crate::random::Random::new(7);
    let (mut now, mut done, mut last) = (0, 0, Nanos::ZERO);
    for tag in 0..5_000 {
        now += chance.below(20_000_000);
        let at = chance.below(19_900);
        let sectors = 1 + chance.below(99) as u32;
        let request = match chance.below(10) {
            0 => Request::flush(),
            1..5 => write(at, sectors),
            _ => read(at, sectors),
        };
        while let Some(one) = drive.advance(Nanos::new(now)) {
            assert!(one.at >= last && one.at <= Nanos::new(now));
            last = one.at;
            done += 1;
        }
        drive.submit(Nanos::new(now), Tag(tag), request).unwrap();
        assert!(drive.next_event().is_some());
    }
    while let Some(one) = drive.advance(Nanos::new(u64::MAX)) {
        assert!(one.at >= last);
        last = one.at;
        done += 1;
    }
    assert_eq!((done, drive.in_flight()), (5_000, 0));
    assert!(drive.busy() <= last);
}

/// However writes overlap each other, every segment is free in the end.
#[test]
fn no_segment_stays_dirty() {
    let presets = ["dtla-307045", "ic35l060avv207"];
    let spec = |name| crate::preset::spec(name).unwrap().hdd.unwrap();
    for (name, replace) in presets.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let mut spec = spec(name);
        spec.buffer.replace_writes = replace;
        let mut drive = Hdd::new(spec.clone());
        let mut chance = crate::random::Random::new(1);
        let mut now = Nanos::ZERO;
        for _ in 0..20_000 {
            let start = chance.below(12) * 8;
            let sectors = [2, 4, 16][chance.below(3) as usize];
            let at = Lba::new(74_000_000 + start);
            let request = if chance.below(8) == 0 {
                Request::read(at, sectors)
            } else {
                Request::write(at, sectors)
            };
            now = drive.serve(now, request).unwrap();
        }
        let rest = Nanos::new(now.get() + 10_000_000_000);
        assert_eq!(drive.advance(rest), None);
        drive.run(rest);
        assert!(drive.dirty.is_empty());
        assert_eq!(drive.buffer.dirty(rest), 0, "replace {replace}");
    }
}

/// The drive accepts four writes; three go to distant places, then writes to one place follow,
/// again and again.
#[test]
fn what_was_accepted_does_not_wait_for_ever() {
    let mut spec = crate::preset::spec("dtla-307045").unwrap().hdd.unwrap();
    (spec.buffer.write_segments, spec.buffer.replace_writes) = (4, false);
    let mut drive = Hdd::new(spec.clone());
    let mut now = Nanos::ZERO;
    for far in [10_000_000, 20_000_000, 30_000_000] {
        now = drive.serve(now, Request::write(Lba::new(far), 8)).unwrap();
    }
    for near in 0..50 {
        now = drive.serve(now, Request::write(Lba::new(80_000_000 + near % 2 * 800), 8)).unwrap();
    }
    let waiting: Vec<u64> = drive.dirty.by_age().iter().map(|one| one.2.start).collect();
    assert!(waiting.iter().all(|&start| start >= 80_000_000), "{waiting:?}");
    // The same writes replace each other if the drive supports that: 50 are accepted in the time of
    // a few commands.
    spec.buffer.replace_writes = true;
    let mut drive = Hdd::new(spec);
    let mut now = Nanos::ZERO;
    for near in 0..50 {
        now = drive.serve(now, Request::write(Lba::new(80_000_000 + near % 2 * 800), 8)).unwrap();
    }
    assert!(now < Nanos::new(50 * 400_000), "{now:?}");
    assert!(drive.dirty.len() <= 2);
}
