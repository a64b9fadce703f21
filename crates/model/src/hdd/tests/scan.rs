//! The scheduler compared with a direct implementation: all waiting entries are examined, and the
//! least by start, policy and age is taken.

use super::*;
use crate::random::Random;
use queue::QueueKey;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Request(Tag),
    Writing(QueueKey),
}

/// A drive, and its waiting entries by age.
struct Scan<'a> {
    drive: &'a Hdd,
    queue: &'a [Waiting],
}

impl Scan<'_> {
    fn choice(&self) -> Option<(Nanos, Choice)> {
        let seen = self.seen().iter().enumerate();
        let requests = seen.filter_map(|(n, waiting)| {
            let rank = self.rank(waiting.cylinder);
            Some((self.can_start(waiting)?, rank, n, Choice::Request(waiting.tag)))
        });
        let dirty = self.drive.dirty.by_age().into_iter().enumerate();
        let writings = dirty.map(|(n, (spot, cylinder, dirty))| {
            let at = self.drive.heads.free.max(dirty.accepted);
            (at, self.rank(cylinder), n, Choice::Writing(spot))
        });
        let request = requests.min_by_key(|one| (one.0, one.1, one.2));
        let writing = writings.min_by_key(|one| (one.0, one.1, one.2));
        // A request before a write that could start at the same time.
        let first = request.into_iter().chain(writing).min_by_key(|one| one.0);
        first.map(|(at, _, _, choice)| (at, choice))
    }

    fn seen(&self) -> &[Waiting] {
        let flush = self.queue.iter().position(|waiting| waiting.request.op == Op::Flush);
        let until = flush.map_or(self.queue.len(), |flush| flush.max(1));
        &self.queue[..until.min(self.drive.spec.queue.depth as usize)]
    }

    fn rank(&self, cylinder: u32) -> u64 {
        let (here, there) = (u64::from(self.drive.heads.place.cylinder), u64::from(cylinder));
        match self.drive.spec.queue.policy {
            Policy::Fifo => 0,
            Policy::Sstf => there.abs_diff(here),
            Policy::CLook if there >= here => there - here,
            Policy::CLook => there + (1 << 40),
        }
    }

    fn can_start(&self, waiting: &Waiting) -> Option<Nanos> {
        let drive = self.drive;
        if let Some(at) = drive.can_continue(waiting) {
            return Some(at);
        }
        let at = waiting.arrived.max(drive.command_free);
        let writing = drive.heads.writing.is_some() && drive.heads.free > at;
        match waiting.request.op {
            Op::Flush if !drive.dirty.is_empty() => None,
            Op::Flush if writing => Some(drive.heads.free),
            Op::Flush => Some(at),
            _ if !writing => (drive.dirty.is_empty() || !self.full(waiting, at)).then_some(at),
            _ if self.needs_no_heads(waiting, at) => Some(at),
            _ => Some(drive.heads.free),
        }
    }

    fn full(&self, waiting: &Waiting, at: Nanos) -> bool {
        let read = waiting.request.op == Op::Read;
        let hit = read && self.hit(waiting).is_some();
        let joins = !read && self.drive.joined(waiting).is_some();
        !hit && !joins && !self.drive.buffer.room(!read, at)
    }

    fn needs_no_heads(&self, waiting: &Waiting, at: Nanos) -> bool {
        let (drive, buffer) = (self.drive, &self.drive.spec.buffer);
        if waiting.request.op == Op::Read {
            let whole = |hit: usize| drive.buffer.get(hit).end >= waiting.end();
            return buffer.serve_while_writing && self.hit(waiting).is_some_and(whole);
        }
        let accepted = buffer.serve_while_writing && buffer.write_back && !waiting.request.durable;
        accepted && (drive.buffer.room(true, at) || drive.joined(waiting).is_some())
    }

    fn hit(&self, waiting: &Waiting) -> Option<usize> {
        let spec = &self.drive.spec.buffer;
        let first = usize::from(spec.separate_write_segment);
        let hit = (first..spec.segments as usize)
            .map(|at| (at, self.drive.buffer.get(at)))
            .filter(|(_, segment)| (segment.start..segment.end).contains(&waiting.start()))
            .filter(|(_, segment)| spec.caching && (spec.hits_on_written || !segment.written))
            .max_by_key(|(_, segment)| (segment.end.min(waiting.end()), segment.last_used()))
            .map(|(at, _)| at);
        assert_eq!(hit, self.drive.buffer.hit(waiting.start(), waiting.end()));
        hit
    }
}

/// The drive's next action, which equals that of the scan.
fn next(drive: &Hdd, queue: &[Waiting]) -> Option<(Nanos, schedule::Start, Choice)> {
    let named = drive.next.map(|(at, start)| {
        let choice = match start {
            schedule::Start::Request(spot) => Choice::Request(drive.queue.seen().get(spot).tag),
            schedule::Start::Flush => Choice::Request(drive.queue.flush().expect("flush").tag),
            schedule::Start::Writing(spot) => Choice::Writing(spot),
        };
        (at, start, choice)
    });
    let scanned = Scan { drive, queue }.choice();
    assert_eq!(named.map(|(at, _, choice)| (at, choice)), scanned);
    named
}

fn random_drive(chance: &mut Random) -> Hdd {
    let mut flag = || chance.below(2) == 0;
    let mut spec = spec();
    let buffer = &mut spec.buffer;
    buffer.serve_while_writing = flag();
    buffer.write_back = flag() || flag();
    buffer.combine_writes = flag();
    buffer.separate_write_segment = flag() && flag();
    buffer.adaptive_segments = flag();
    buffer.hits_on_written = flag();
    buffer.discard_after_read = flag();
    buffer.read_passing_sectors = flag();
    buffer.read_ahead = if flag() { ReadAhead::Sectors } else { ReadAhead::None };
    spec.bus.write_sector = if flag() { 0.0 } else { 0.02 };
    buffer.segments = 2 + chance.below(8) as u32;
    buffer.write_segments = 1 + chance.below(u64::from(buffer.segments)) as u32;
    let policy = [Policy::Fifo, Policy::Sstf, Policy::CLook][chance.below(3) as usize];
    spec.queue = QueueSpec { policy, depth: [1, 2, 7, 32][chance.below(4) as usize] };
    assert_eq!(spec.fault(), None);
    Hdd::new(spec)
}

fn random_request(chance: &mut Random, last: u64) -> Request {
    // Few cylinders, so that many requests wait on the same one; now and then a request continues,
    // or repeats, the previous one.
    let at = match chance.below(4) {
        0 => last.min(19_800),
        _ => chance.below(20) * 1000 + chance.below(60),
    };
    let sectors = 1 + chance.below(40) as u32;
    match chance.below(20) {
        0 => Request::flush(),
        1 => write(at, sectors).durable(),
        2..11 => write(at, sectors),
        _ => read(at, sectors),
    }
}

#[test]
fn the_sorted_queue_chooses_what_a_scan_chooses() {
    let (mut overtaking, mut writings, mut beside) = (0, 0, 0);
    for seed in 0..300 {
        let mut chance = Random::new(seed);
        let mut drive = random_drive(&mut chance);
        let mut queue: Vec<Waiting> = Vec::new();
        let (mut now, mut last) = (Nanos::ZERO, 0);
        for tag in 0..200 {
            now += chance.below(3) * chance.below(15_000_000);
            while let Some((at, start, choice)) = next(&drive, &queue).filter(|one| one.0 < now) {
                beside += u32::from(drive.heads.writing.is_some() && drive.heads.free > at);
                match choice {
                    Choice::Writing(_) => writings += 1,
                    Choice::Request(tag) => {
                        let n = queue.iter().position(|one| one.tag == tag).expect("waits");
                        overtaking += u32::from(n > 0);
                        queue.remove(n);
                    }
                }
                drive.begin(at, start);
            }
            let request = random_request(&mut chance, last);
            last = request.end().get();
            drive.submit(now, Tag(tag), request).unwrap();
            let cylinder = drive.media.layout.track(request.at.get()).place.cylinder;
            queue.push(Waiting { tag: Tag(tag), request, arrived: now, cylinder });
            assert_eq!(drive.queue.len(), queue.len());
        }
    }
    // Every feature of the scheduler has been used.
    assert!(
        overtaking > 5_000 && writings > 1_000 && beside > 1_000,
        "{overtaking} {writings} {beside}"
    );
}
