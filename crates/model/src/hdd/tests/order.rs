//! Requests in order: a request without a pause finds the heads on their way.

use super::*;

#[test]
fn read_ahead_under_way_answers_the_very_next_block() {
    let mut drive = drive(|spec| {
        spec.buffer.read_ahead = ReadAhead::Sectors;
        spec.bus.read_sector = 0.01;
    });
    // Sectors 20 to 23 have passed at 2.4 ms, the last is sent 10 us later;
    // sector 24 passes up to 2.5 ms, and so on.
    assert_eq!(us(&mut drive, 0, read(20, 4)), 2_410);
    assert_eq!(us(&mut drive, 2_410, read(24, 4)), 2_810 - 2_410);
    assert_eq!(us(&mut drive, 2_810, read(28, 1)), 2_910 - 2_810);
}

#[test]
fn reads_in_order_borrow_segments_and_give_them_back() {
    let mut drive = drive(|spec| {
        spec.buffer.read_ahead = ReadAhead::Sectors;
        spec.buffer.read_ahead_sectors = 40;
        spec.buffer.segment_sectors = 50;
        spec.buffer.segments = 6;
        spec.buffer.write_segments = 2;
        spec.buffer.adaptive_segments = true;
        spec.bus.read_sector = 0.001;
    });
    for (nth, room) in [50, 100, 150, 200, 200].into_iter().enumerate() {
        us(&mut drive, nth as u64 * 50_000, read(nth as u64 * 10, 10));
        let held = drive.buffer.hit(nth as u64 * 10, nth as u64 * 10 + 10).unwrap();
        assert_eq!(drive.buffer.room_of(held), room);
    }
    // At 300 ms all is read up to block 50 + 40 + 150; the two segments for writes and one more are
    // still there.
    drive.catch_up(Nanos::new(300_000_000));
    let held = drive.buffer.hit(200, 240).unwrap();
    assert_eq!((drive.buffer.get(held).end, drive.buffer.room(true, Nanos::ZERO)), (240, true));
    for far in 0..6 {
        us(&mut drive, 400_000 + far * 50_000, read(5_000 + far * 1_000, 10));
    }
    assert_eq!(drive.buffer.hit(200, 240), None);
    let lent = (0..6).filter(|&at| drive.buffer.room_of(at) != 50).count();
    assert_eq!(lent, 0);
}

#[test]
fn writes_in_order_join_on_their_way_to_the_medium() {
    let join = |write_back: bool| {
        drive(|spec| {
            spec.buffer.write_back = write_back;
            spec.buffer.combine_writes = true;
            spec.bus.write_sector = 0.01;
        })
    };
    // Sectors 20 to 23 pass from 2 to 2.4 ms; the second write's data arrive before that, and
    // follow them.
    let mut back = join(true);
    assert_eq!(us(&mut back, 0, write(20, 4)), 40);
    assert_eq!(us(&mut back, 40, write(24, 4)), 40);
    assert_eq!(us(&mut back, 100, Request::flush()), 2_800 - 100);
    // Written through, it does so if it comes before the first is done.
    let mut through = join(false);
    for (tag, at) in [(1, 20), (2, 24)] {
        through.submit(Nanos::ZERO, Tag(tag), write(at, 4)).unwrap();
    }
    let mut done = || through.advance(Nanos::new(u64::MAX)).map(|one| (one.tag.0, one.at.get()));
    assert_eq!((done(), done()), (Some((1, 2_400_000)), Some((2, 2_800_000))));
    // A write that comes when the first is done finds that its sector has passed.
    assert_eq!(us(&mut through, 20_000, write(20, 4)), 2_400);
    assert_eq!(us(&mut through, 22_400, write(24, 4)), 10_400);
}

#[test]
fn what_waits_for_the_heads_is_joined() {
    let mut drive = drive(|spec| {
        spec.buffer.write_back = true;
        spec.buffer.combine_writes = true;
        spec.buffer.serve_while_writing = true;
        (spec.buffer.segments, spec.buffer.write_segments) = (3, 2);
        spec.bus.write_sector = 0.01;
    });
    // The heads are busy with the first for 2.4 ms; one of the two segments for writes is left, and
    // takes all following writes in order.
    assert_eq!(us(&mut drive, 0, write(20, 4)), 40);
    for nth in 0..20 {
        assert_eq!(us(&mut drive, 50 + nth * 50, write(10_000 + nth * 4, 4)), 40);
    }
    assert_eq!(drive.dirty.len(), 1);
}
