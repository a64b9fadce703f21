//! How long a replay takes on a device.

use crate::replay::{Purpose, Request};
use crate::trace::Events;
use seekless_model::{DeviceModel, Refused, Tag};
use seekless_units::{ByteLen, Extent, Lba, Nanos, SECTOR};
use std::ops::Range;

/// Requests for one file's data that an event has in flight at once: Linux
/// reads one window ahead while it waits for the one before.
const AHEAD: usize = 2;

/// The most sectors of one request to the device (a `max_sectors_kb` of 1280).
const LARGEST: u64 = 2560;

/// The time that passes between the events of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThinkTime {
    /// None: the next one begins when the reads of the one before are done.
    #[default]
    Zero,
    /// The time between them in the trace, from start to start; the next one
    /// begins later when the one before still waits for the device.
    Trace,
}

/// A replay's time on a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// From the cold start to the last read's end.
    pub total: Nanos,
    /// For how long the device had something to do.
    pub busy: Nanos,
    /// For each request, how long after the cold start it was made.
    pub begins: Vec<Nanos>,
    /// For each request, how long after the cold start all of it had been read.
    pub ends: Vec<Nanos>,
}

/// A time in which the process of an event waits for the device, or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The event, by its place in the trace.
    pub event: usize,
    /// From and to, after the cold start.
    pub time: Range<Nanos>,
    /// Whether the process waits for the device. If not, the time passes in front of the event: its
    /// process works, or waits for something else.
    pub waits: bool,
}

impl Timing {
    /// Divides the time into waits for the device and the times between them; `requests` are those
    /// of [`time`]. Spans are in order of time and do not overlap. Requests of one event that follow each other are one span.
    #[must_use]
    pub fn spans(&self, requests: &[Request]) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut until = Nanos::ZERO;
        for ((request, &begin), &end) in requests.iter().zip(&self.begins).zip(&self.ends) {
            let event = request.event;
            if begin > until {
                spans.push(Span { event, time: until..begin, waits: false });
            }
            match spans.last_mut() {
                Some(last) if last.waits && last.event == event && begin <= last.time.end => {
                    last.time.end = last.time.end.max(end);
                }
                _ => spans.push(Span { event, time: begin.max(until)..end, waits: true }),
            }
            until = until.max(end);
        }
        spans
    }
}

/// Times a replay's requests on a device that is at rest. Requests follow each
/// other as the replay waits for them: metadata one by one, a file's data with
/// one request ahead.
///
/// # Errors
/// [`Refused`] when the image is larger than the device.
pub fn time(
    device: &mut dyn DeviceModel,
    requests: &[Request],
    events: &Events,
    block_size: ByteLen,
    think: ThinkTime,
) -> Result<Timing, Refused> {
    let mut clock = Clock::new(device, block_size);
    let mut started = Nanos::ZERO;
    let mut recorded = events.get(0).map_or(Nanos::ZERO, |event| event.time);
    let mut last = None;
    for request in requests {
        if last.is_some_and(|last: &Request| !together(last, request)) {
            clock.wait(0);
        }
        if think == ThinkTime::Trace && last.is_none_or(|last| last.event != request.event) {
            let at = events.get(request.event).map_or(recorded, |event| event.time.max(recorded));
            started = (started + at.saturating_since(recorded)).max(clock.now);
            recorded = at;
            clock.now = started;
        }
        clock.submit(request.extent)?;
        last = Some(request);
    }
    Ok(clock.finish())
}

/// Times requests that follow each other one at a time, in a given order, on a device that is at
/// rest.
///
/// # Errors
/// [`Refused`] when the image is larger than the device.
pub fn in_order(
    device: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = Extent>,
    block_size: ByteLen,
) -> Result<Timing, Refused> {
    let mut clock = Clock::new(device, block_size);
    for extent in requests {
        clock.submit(extent)?;
        clock.wait(0);
    }
    Ok(clock.finish())
}

/// Whether a request may be in flight beside the one before.
fn together(before: &Request, request: &Request) -> bool {
    let data = |request: &Request| request.purpose == Purpose::Data;
    data(before) && data(request) && (before.event, before.ino) == (request.event, request.ino)
}

struct Clock<'a> {
    device: &'a mut dyn DeviceModel,
    flying: usize,
    now: Nanos,
    block_size: u64,
    /// See [`Timing::begins`] and [`Timing::ends`].
    begins: Vec<Nanos>,
    ends: Vec<Nanos>,
}

impl<'a> Clock<'a> {
    fn new(device: &'a mut dyn DeviceModel, block_size: ByteLen) -> Self {
        let block_size = block_size.get();
        let (begins, ends) = (Vec::new(), Vec::new());
        Self { device, flying: 0, now: Nanos::ZERO, block_size, begins, ends }
    }

    fn finish(mut self) -> Timing {
        self.wait(0);
        let (begins, ends) = (self.begins, self.ends);
        Timing { total: self.now, busy: self.device.busy(), begins, ends }
    }

    /// Waits until at most `left` requests are in flight.
    fn wait(&mut self, left: usize) {
        while self.flying > left
            && let Some(done) = self.device.advance(Nanos::new(u64::MAX))
        {
            self.flying -= 1;
            self.now = self.now.max(done.at);
            let end = usize::try_from(done.tag.0).ok().and_then(|tag| self.ends.get_mut(tag));
            debug_assert!(end.is_some(), "a request is tagged with its place in `ends`");
            if let Some(end) = end {
                *end = done.at.max(*end);
            }
        }
    }

    fn submit(&mut self, extent: Extent) -> Result<(), Refused> {
        let per_block = self.block_size / SECTOR;
        let mut at = extent.start.get() * per_block;
        let mut left = extent.len * per_block;
        let tag = Tag(self.ends.len() as u64);
        self.begins.push(self.now);
        self.ends.push(self.now);
        while left > 0 {
            self.wait(AHEAD - 1);
            let sectors = left.min(LARGEST);
            let part = u32::try_from(sectors).unwrap_or(u32::MAX);
            let read = seekless_model::Request::read(Lba::new(at), part);
            self.device.submit(self.now, tag, read)?;
            self.flying += 1;
            at += sectors;
            left -= sectors;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Op};
    use seekless_model::from_toml;
    use seekless_units::{BlockNo, Ino, Lbn};

    /// A device on which a 4 KiB read takes a millisecond of latency and next
    /// to no transfer.
    fn device() -> Box<dyn DeviceModel> {
        let text = r#"
            name = "t"
            summary = ""
            [volume]
            sectors = 100000
            iops = { rate = 1000000000 }
            bandwidth = { rate = 1000000000000 }
            io_size = 1048576
            read_latency = [{ share = 1.0, us = 1000.0 }]
            write_latency = [{ share = 1.0, us = 1000.0 }]
        "#;
        from_toml(text, "t").unwrap()
    }

    fn request(start: u64, purpose: Purpose, event: usize) -> Request {
        let extent = Extent::new(BlockNo::new(start), 1);
        Request { extent, purpose, ino: Ino::new(12), lbn: Lbn::ZERO, event }
    }

    fn ms(timing: Nanos) -> u64 {
        timing.get() / 1_000_000
    }

    fn run(requests: &[Request], events: &[Event], think: ThinkTime) -> Timing {
        let events = events.iter().cloned().collect();
        time(device().as_mut(), requests, &events, ByteLen::new(4096), think).unwrap()
    }

    #[test]
    fn metadata_is_waited_for_and_data_has_one_ahead() {
        let metadata = [1, 2, 3, 4].map(|at| request(at, Purpose::Inode, 0));
        assert_eq!(ms(run(&metadata, &[], ThinkTime::Zero).total), 4);
        let data = [1, 2, 3, 4].map(|at| request(at, Purpose::Data, 0));
        let timing = run(&data, &[], ThinkTime::Zero);
        assert_eq!((ms(timing.total), ms(timing.busy)), (2, 2));
        assert_eq!(timing.ends.iter().map(|&end| ms(end)).collect::<Vec<_>>(), [1, 1, 2, 2]);
        let extents = data.iter().map(|request| request.extent);
        let timing = in_order(device().as_mut(), extents, ByteLen::new(4096)).unwrap();
        assert_eq!((ms(timing.total), ms(timing.busy)), (4, 4));
    }

    #[test]
    fn time_between_events_counts_from_start_to_start() {
        let event = |ms: u64| Event::new(Nanos::new(ms * 1_000_000), Op::Read, b"/a".to_vec());
        let events = [event(100), event(110), event(110)];
        let requests = [0, 1, 2].map(|n| request(n as u64 + 5, Purpose::Inode, n));
        assert_eq!(ms(run(&requests, &events, ThinkTime::Zero).total), 3);
        let timing = run(&requests, &events, ThinkTime::Trace);
        assert_eq!((ms(timing.total), ms(timing.busy)), (12, 3));
    }

    /// Each moment belongs to one event, which waits or does not.
    #[test]
    fn spans_follow_each_other() {
        let event = |ms: u64| Event::new(Nanos::new(ms * 1_000_000), Op::Read, b"/a".to_vec());
        let events = [event(100), event(110), event(110)];
        let mut requests = vec![request(5, Purpose::Inode, 0), request(6, Purpose::Inode, 1)];
        requests.extend([7, 8, 9].map(|at| request(at, Purpose::Data, 1)));
        requests.push(request(4, Purpose::Inode, 2));
        let timing = run(&requests, &events, ThinkTime::Trace);
        let spans = timing.spans(&requests);
        let found: Vec<_> = spans
            .iter()
            .map(|span| (span.event, ms(span.time.start), ms(span.time.end), span.waits))
            .collect();
        let waits = |event, from, to| (event, from, to, true);
        assert_eq!(found, [waits(0, 0, 1), (1, 1, 10, false), waits(1, 10, 13), waits(2, 13, 14)]);
        assert_eq!(spans.last().unwrap().time.end, timing.total);
    }

    #[test]
    fn an_image_larger_than_the_device_is_refused() {
        let requests = [request(50_000, Purpose::Data, 0)];
        let refused = time(
            device().as_mut(),
            &requests,
            &Events::default(),
            ByteLen::new(4096),
            ThinkTime::Zero,
        )
        .unwrap_err();
        assert!(matches!(refused, Refused::PastTheEnd { capacity: 100_000, .. }));
    }
}
