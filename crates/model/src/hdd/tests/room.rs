//! Reads that borrow the room of several segments.

use super::*;

/// Eight segments of 10 sectors, up to six of them for writes.
fn roomy(read_room_sectors: u32) -> Hdd {
    drive(|spec| {
        let buffer = &mut spec.buffer;
        (buffer.segments, buffer.segment_sectors, buffer.write_segments) = (8, 10, 6);
        (buffer.read_ahead, buffer.read_ahead_sectors) = (ReadAhead::Sectors, 35);
        (buffer.read_room_sectors, buffer.write_back) = (read_room_sectors, true);
        buffer.serve_while_writing = true;
    })
}

#[test]
fn a_read_has_the_room_of_several_segments() {
    for (room, hits) in [(40, true), (0, false)] {
        let mut drive = roomy(room);
        us(&mut drive, 0, read(1000, 5));
        // Blocks read ahead meanwhile are there: more than one segment holds.
        drive.catch_up(Nanos::new(50_000_000));
        for at in [1010, 1020, 1025] {
            assert_eq!(drive.buffer.hit(at, at + 4).is_some(), hits, "{at}");
        }
        // A second read far away leaves the first one's.
        us(&mut drive, 60_000, read(5000, 5));
        assert_eq!(drive.buffer.hit(1020, 1024).is_some(), hits);
        // A third one ends its borrowing.
        us(&mut drive, 120_000, read(9000, 5));
        assert_eq!(drive.buffer.hit(1020, 1024), None);
    }
}

#[test]
fn writes_take_the_room_of_reads_apart() {
    let mut drive = roomy(40);
    us(&mut drive, 0, read(1000, 5));
    us(&mut drive, 100_000, read(5000, 5));
    // Six are accepted at once, whatever reads occupy; a seventh waits.
    let times = (0..7).map(|n| us(&mut drive, 200_000, write(9000 - n * 300, 5)));
    let times: Vec<u64> = times.collect();
    assert!(times[..6].iter().all(|&us| us == 0), "{times:?}");
    assert!(times[6] > 0, "{times:?}");
}

/// Sector 20 is read up to 2.1 ms, and read-ahead continues; at 2.5 ms sector 26 is requested.
#[test]
fn a_read_waits_for_what_is_being_read_ahead() {
    let time = |waits| {
        let mut drive = drive(|spec| {
            spec.overhead.command = 0.2;
            spec.buffer.read_ahead = ReadAhead::Sectors;
            spec.buffer.wait_for_read_ahead = waits;
        });
        us(&mut drive, 0, read(20, 1));
        us(&mut drive, 2_450, read(26, 1))
    };
    // It has passed at 2.7 ms; the command is processed at 2.65, too late to begin with it.
    assert_eq!((time(true), time(false)), (250, 10_250));
}

/// Sectors 20 to 50 are read ahead of a read of sector 19, which ends at 32 ms; meanwhile sector
/// 305 is requested at 32.5 ms, which the buffer has from an earlier read, and then sector 30,
/// which has passed at 33.1 ms.
#[test]
fn what_the_buffer_has_does_not_stop_reading_ahead() {
    let time = |through| {
        let mut drive = drive(|spec| {
            (spec.buffer.segments, spec.buffer.segment_sectors) = (4, 40);
            (spec.buffer.read_ahead, spec.buffer.read_ahead_sectors) = (ReadAhead::Sectors, 30);
            spec.buffer.wait_for_read_ahead = true;
            spec.buffer.read_ahead_after_hit = true;
            spec.buffer.read_ahead_through_hits = through;
        });
        us(&mut drive, 0, read(305, 1));
        us(&mut drive, 20_000, read(19, 1));
        let hit = us(&mut drive, 32_500, read(305, 1));
        (hit, us(&mut drive, 33_600, read(30, 1)))
    };
    let ((hit, through), (same, stopped)) = (time(true), time(false));
    assert!(hit < 100 && same < 100, "{hit} and {same} us: from the buffer");
    assert!(through < 100, "{through} us: it was read ahead");
    assert!(stopped > 5_000, "{stopped} us: it must come round again");
}
