//! Requests in order cost no revolution, on any built-in disk whose data say so: the time of a
//! request is at most 1.25 times that of the slower of medium and command.

use seekless_model::hdd::spec::{HddSpec, ReadAhead, ZoneSpec};
use seekless_model::{DeviceModel, Op, Request, Tag, preset};
use seekless_units::{Lba, Nanos};

/// Maximum ratio of a request's time to the necessary time.
const SHARE: f64 = 1.25;

const KIB: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The requests of a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    op: Op,
    /// Requests in flight.
    depth: u64,
    sectors: u32,
    start: u64,
    /// From a completion to the next request.
    pause_us: u64,
}

fn disks() -> impl Iterator<Item = (&'static str, HddSpec)> {
    preset::names().filter_map(|name| Some((name, preset::spec(name).unwrap().hdd?)))
}

impl Run {
    fn request(&self, nth: u64) -> Request {
        let at = Lba::new(self.start + nth * u64::from(self.sectors));
        match self.op {
            Op::Write => Request::write(at, self.sectors),
            _ => Request::read(at, self.sectors),
        }
    }

    /// Enough to span many tracks, and to fill any buffer.
    fn count(&self) -> u64 {
        ((64 << 11) / u64::from(self.sectors)).min(3000)
    }

    /// Milliseconds per request, from the first completion to the last.
    fn time(&self, name: &str) -> f64 {
        let mut disk = preset(name).unwrap();
        let send = |disk: &mut Box<dyn DeviceModel>, nth: u64, at: Nanos| {
            disk.submit(at, Tag(nth), self.request(nth)).unwrap();
        };
        (0..self.depth).for_each(|nth| send(&mut disk, nth, Nanos::ZERO));
        let (mut first, mut last) = (None, Nanos::ZERO);
        for nth in 0..self.count() {
            last = disk.advance(Nanos::new(u64::MAX)).unwrap().at;
            first.get_or_insert(last);
            send(&mut disk, nth + self.depth, last + self.pause_us * 1000);
        }
        let steps = (self.count() - 1) as f64;
        last.saturating_since(first.unwrap()) as f64 / 1e6 / steps - self.pause_us as f64 / 1e3
    }

    /// Time in milliseconds of a request on the medium if tracks follow each other without a gap.
    fn media(&self, spec: &HddSpec, zone: &ZoneSpec) -> f64 {
        f64::from(self.sectors) * revolution(spec) / f64::from(zone.sectors_per_track)
    }

    /// Milliseconds of a command and its transfer.
    fn command(&self, spec: &HddSpec) -> f64 {
        let (times, bus) = (&spec.overhead, &spec.bus);
        let (own, each) = match self.op {
            Op::Write => (times.write_after_write + times.write_completion, bus.write_sector),
            _ => (times.read_hit_after_read + times.read_completion, bus.read_sector),
        };
        times.command + times.data_preparation + own + f64::from(self.sectors) * each
    }
}

fn revolution(spec: &HddSpec) -> f64 {
    60e3 / spec.rpm
}

/// The first, a middle and the last zone of a disk, each with a block in it.
fn zones(spec: &HddSpec) -> Vec<(u64, &ZoneSpec)> {
    let mut first = 0;
    let mut all = Vec::new();
    for zone in &spec.zones {
        let tracks =
            u64::from(zone.last_cylinder - zone.first_cylinder + 1) * u64::from(spec.heads);
        all.push((first + 777, zone));
        first += tracks * u64::from(zone.sectors_per_track);
    }
    vec![all[0], all[all.len() / 2], all[all.len() - 1]]
}

/// Runs that take longer than they should: all combinations of `pauses`, sizes and zones.
fn slow(
    op: Op,
    depth: u64,
    pauses: &[u64],
    wanted: impl Fn(&HddSpec) -> bool,
    needed: impl Fn(&Run, &HddSpec, &ZoneSpec) -> f64,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut runs = 0;
    for (name, spec) in disks().filter(|(_, spec)| wanted(spec)) {
        for (start, zone) in zones(&spec) {
            for (kib, &pause_us) in KIB.iter().flat_map(|kib| pauses.iter().map(move |p| (kib, p)))
            {
                let run = Run { op, depth, sectors: kib * 2, start, pause_us };
                let (time, needed) = (run.time(name), needed(&run, &spec, zone));
                runs += 1;
                if time > SHARE * needed {
                    found.push(format!("{name} {kib}K {run:?}: {time:.3} ms, not {needed:.3}"));
                }
            }
        }
    }
    assert!(runs >= 3 * KIB.len() * pauses.len(), "no disk was asked");
    found
}

fn plain(run: &Run, spec: &HddSpec, zone: &ZoneSpec) -> f64 {
    run.media(spec, zone).max(run.command(spec))
}

/// Whether a disk reads on for requests in order. A disk that reads ahead to the end of the next
/// track with segments shorter than a track drops blocks before they are requested: as measured,
/// its reads in order wait for the medium.
fn keeps_up(spec: &HddSpec) -> bool {
    let longest = spec.zones.iter().map(|zone| zone.sectors_per_track).max();
    spec.buffer.read_ahead != ReadAhead::NextTrack
        || longest.is_some_and(|longest| longest <= spec.buffer.segment_sectors)
}

#[test]
fn most_disks_keep_up_with_reads_in_order() {
    let (keep_up, others): (Vec<_>, Vec<_>) = disks().partition(|(_, spec)| keeps_up(spec));
    assert!(keep_up.len() > others.len(), "{} of {}", keep_up.len(), others.len());
}

/// The others have dropped what they read ahead when it is asked for after a pause of more than a
/// revolution, and wait for the medium: half a revolution, as a rule.
#[test]
fn disks_that_do_not_keep_up_wait_for_the_medium() {
    let mut found = Vec::new();
    for (name, spec) in disks().filter(|(_, spec)| !keeps_up(spec)) {
        let run = Run { op: Op::Read, depth: 1, sectors: 8, start: 777, pause_us: 10_000 };
        let (time, turn) = (run.time(name), revolution(&spec));
        found.push(name);
        assert!((0.4 * turn..1.1 * turn).contains(&time), "{name}: {time:.3} of {turn:.3} ms");
    }
    assert!(!found.is_empty(), "no disk was asked");
}

#[test]
fn reads_in_order_lose_no_revolution() {
    // A pause of some microseconds, as between two system calls, makes no difference.
    for depth in [1, 2] {
        let pauses: &[u64] = if depth == 1 { &[0, 3, 40] } else { &[0] };
        let found = slow(Op::Read, depth, pauses, keeps_up, plain);
        assert!(found.is_empty(), "{depth} in flight:\n{}", found.join("\n"));
    }
}

#[test]
fn writes_in_order_lose_no_revolution_where_the_buffer_accepts_them() {
    for depth in [1, 2] {
        let pauses: &[u64] = if depth == 1 { &[0, 3, 40] } else { &[0] };
        let found = slow(Op::Write, depth, pauses, |spec| spec.buffer.write_back, plain);
        assert!(found.is_empty(), "{depth} in flight:\n{}", found.join("\n"));
    }
}

/// With two in flight a write-through drive receives the second one's data while it writes the
/// first. The third comes when the first is done: if its command takes longer than the medium takes
/// for the second, the medium turns once for the two.
#[test]
fn two_writes_in_flight_join_where_the_drive_writes_through() {
    let through = |spec: &HddSpec| !spec.buffer.write_back;
    let found = slow(Op::Write, 2, &[0], through, |run, spec, zone| {
        let (media, command) = (run.media(spec, zone), run.command(spec));
        let turn = if media < command { f64::midpoint(revolution(spec), command) } else { 0.0 };
        media.max(command).max(turn)
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// One at a time, a write on a write-through drive comes too late for the next sector.
#[test]
fn writes_one_at_a_time_turn_once_where_the_drive_writes_through() {
    let mut runs = 0;
    for (name, spec) in disks().filter(|(_, spec)| !spec.buffer.write_back) {
        let run = Run { op: Op::Write, depth: 1, sectors: 8, start: 777, pause_us: 0 };
        let time = run.time(name);
        let turn = revolution(&spec);
        assert!((0.95 * turn..1.3 * turn).contains(&time), "{name}: {time:.3} ms of {turn:.3}");
        runs += 1;
    }
    assert!(runs >= 4, "{runs}");
}
