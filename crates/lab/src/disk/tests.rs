//! Tests of a disk's requests.

use super::*;
use seekless_model::preset;

fn behind(disk: &Disk, at: Lba, buf: &[u8]) -> Result<Ticket, DeviceError> {
    let ticket = disk.submit(at, buf, Durable::AfterFlush)?;
    Ok(ticket.expect("it takes its time"))
}

fn disk(most: u32) -> (Disk, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    let model = preset("sata-7200").unwrap();
    let image = SparseDevice::new(ByteLen::new(1 << 30));
    (Disk::new(image, model, clock.clone(), most, None), clock)
}

#[test]
fn only_what_is_waited_for_takes_the_callers_time() {
    let (disk, clock) = disk(100);
    for at in 0..50 {
        behind(&disk, Lba::new(at * 30_000), &[1; 8192]).unwrap();
    }
    assert_eq!(clock.now(), Nanos::ZERO);
    disk.read(Lba::new(1_000_003), &mut [0; 512]).unwrap();
    let read = clock.now();
    assert!(read > Nanos::new(1_000_000), "waits for its turn and the drive");
    disk.drain().unwrap();
    assert!(clock.now() > read);
    let tally = disk.tally();
    assert_eq!((tally.reads, tally.async_writes, tally.sync_writes), (1, 50, 0));
    assert_eq!(tally.busy_ns, clock.now().get(), "it was never idle");
    let mut byte = [0; 512];
    disk.read(Lba::new(30_000), &mut byte).unwrap();
    assert_eq!(byte, [1; 512]);
}

#[test]
fn a_part_of_a_sector_is_read_as_a_whole_one() {
    let (disk, clock) = disk(100);
    let mut part = [1; 100];
    disk.read_bytes(ByteLen::new(512 * 9 + 200), &mut part).unwrap();
    assert_eq!(part, [0; 100]);
    disk.read_bytes(ByteLen::new(512 * 90), &mut [1; 513]).unwrap();
    let tally = disk.tally();
    assert_eq!((tally.reads, tally.read_bytes), (2, 3 * 512));
    assert!(clock.now() > Nanos::ZERO);
}

/// Where a test's log goes.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_picture_has_what_the_log_has_and_where() {
    let (mut disk, clock) = disk(20);
    let lines = Lines::default();
    disk.state.get_mut().unwrap().log = Some(Box::new(lines.clone()));
    behind(&disk, Lba::new(5), &[1; 512]).unwrap();
    behind(&disk, Lba::new(90), &[1; 512]).unwrap();
    let picture = disk.begin_plot("phase");
    let (origin, before) = (clock.now(), disk.tally());
    for at in 0..700u64 {
        let place = Lba::new(at * at * 7919 % (1 << 21));
        match at % 4 {
            0 => disk.read(place, &mut [0; 512]).unwrap(),
            1 => disk.write(place, &[1; 512]).unwrap(),
            _ => drop(behind(&disk, place, &[1; 512]).unwrap()),
        }
    }
    disk.end_plot(picture);
    let tally = disk.tally() - before;
    disk.read(Lba::new(3), &mut [0; 512]).unwrap();
    disk.drain().unwrap();
    let plot = disk.take_plot(picture);
    assert_eq!(plot.totals(), [tally.reads, tally.sync_writes, tally.async_writes]);
    assert_eq!(tally.reads + tally.sync_writes + tally.async_writes, 700);
    let mut left: Vec<_> = plot.bins().to_vec();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    // The drive had begun the first; the second was asked before, too.
    let (start, phase) = (lines.iter().position(|line| *line == "# phase"), &lines[2..]);
    assert_eq!((start, phase.len()), (Some(1), 702));
    // The last to be asked reads the lowest sector but that; it is no part.
    for line in phase.iter().filter(|line| !["5", "90", "3"].contains(&sector(line))) {
        take(&mut left, line, origin, plot.column());
    }
    assert!(left.iter().all(|bin| bin.counts == [0; 3]));
}

/// A writer with room for this many bytes.
struct BoundedWriter(usize);

impl Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_that_is_cut_short_is_told_at_its_end() {
    let ended = |log: Log| {
        let (mut disk, _) = disk(20);
        disk.state.get_mut().unwrap().log = Some(log);
        (0..3).for_each(|at| disk.read(Lba::new(at), &mut [0; 512]).unwrap());
        disk.end_log().map_err(|error| error.kind())
    };
    let full = Err(std::io::ErrorKind::StorageFull);
    assert_eq!(ended(Box::new(BoundedWriter(1000))), Ok(()));
    assert_eq!(ended(Box::new(BoundedWriter(50))), full);
    assert_eq!(
        ended(Box::new(std::io::BufWriter::new(BoundedWriter(50)))),
        full,
        "in the last flush"
    );
}

fn sector(line: &str) -> &str {
    line.split('\t').nth(3).unwrap()
}

/// Takes a line's request out of the bin in which it must be.
fn take(left: &mut [crate::seekplot::Bin], line: &str, origin: Nanos, column: Nanos) {
    let words: Vec<_> = line.split('\t').collect();
    let [at, _, op, sector, _, waited] = words[..] else { panic!("{line}") };
    let kind = match (op, waited) {
        ("read", "yes") => RequestKind::Read,
        ("write", "yes") => RequestKind::SyncWrite,
        ("write", "no") => RequestKind::AsyncWrite,
        _ => panic!("{line}"),
    };
    // The log is exact to a microsecond.
    let since = (at.parse::<f64>().unwrap() * 1e6 - origin.get() as f64).max(0.0);
    let columns = [since - 500.0, since + 500.0].map(|ns| ns as usize / column.get() as usize);
    let row = (sector.parse::<usize>().unwrap() * crate::seekplot::ROWS) >> 21;
    let is = |bin: &&mut crate::seekplot::Bin| {
        bin.row == row && columns.contains(&bin.column) && bin.counts[kind as usize] > 0
    };
    let bin = left.iter_mut().find(is).unwrap_or_else(|| panic!("not in the picture: {line}"));
    bin.counts[kind as usize] -= 1;
}

#[test]
fn too_many_that_wait_hold_the_caller_up() {
    let (disk, clock) = disk(3);
    for at in 0..4 {
        behind(&disk, Lba::new(at * 30_000), &[1; 512]).unwrap();
    }
    assert_eq!(clock.now(), Nanos::ZERO, "one is served, three wait");
    behind(&disk, Lba::new(7), &[1; 512]).unwrap();
    assert!(clock.now() > Nanos::ZERO);
}

/// A write completes when the drive is done with it, in the drive's order.
#[test]
fn writes_complete_one_after_the_other() {
    let (disk, clock) = disk(100);
    let places = [500_000, 1_900_000, 600_000, 1_500_000];
    let tickets = places.map(|at| behind(&disk, Lba::new(at), &[1; 512]).unwrap());
    let over = |disk: &Disk| tickets.map(|ticket| disk.is_complete(ticket).unwrap());
    let mut seen = vec![over(&disk)];
    while let Some(done) = disk.next_done() {
        clock.sleep(Nanos::new(done.saturating_since(clock.now()) - 1));
        assert_eq!(Some(&over(&disk)), seen.last(), "a moment before it is done");
        clock.sleep(Nanos::new(1));
        seen.push(over(&disk));
    }
    let (no, yes) = (false, true);
    let upwards = [[no; 4], [yes, no, no, no], [yes, no, yes, no], [yes, no, yes, yes], [yes; 4]];
    assert_eq!(seen, upwards);
}

#[test]
fn who_waits_for_a_write_waits_until_it_has_completed() {
    let (disk, clock) = disk(100);
    let far = behind(&disk, Lba::new(1_900_000), &[1; 512]).unwrap();
    let near = behind(&disk, Lba::new(9), &[1; 512]).unwrap();
    disk.wait(far).unwrap();
    assert!(clock.now() > Nanos::ZERO && disk.is_complete(far).unwrap());
    assert!(!disk.is_complete(near).unwrap(), "it goes after that");
    disk.wait(near).unwrap();
    let now = clock.now();
    disk.wait(near).unwrap();
    assert_eq!(clock.now(), now, "it is over");
}

/// Steps done while time is stopped are requested when a process comes to them.
#[test]
fn a_write_that_is_written_down_completes_after_it_was_asked_for() {
    let (disk, clock) = disk(100);
    disk.stop_time();
    let ticket = behind(&disk, Lba::new(9), &[7; 512]).unwrap();
    disk.wait(ticket).unwrap();
    let steps = disk.go_on();
    let [ProcessStep::Ask(request, kind, asked), ProcessStep::Wait(waited)] = steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!((asked, waited, clock.now()), (Some(ticket), ticket, Nanos::ZERO));
    disk.drain().unwrap();
    assert!(!disk.is_complete(ticket).unwrap(), "the drive was not asked yet");
    disk.ask(request, kind, asked).unwrap();
    assert!(!disk.is_complete(ticket).unwrap());
    disk.drain().unwrap();
    assert!(disk.is_complete(ticket).unwrap());
}
