//! Serving reads: from the buffer, from read-ahead in progress, from the medium.

use super::buffer::Segment;
use super::media::{Media, Stream};
use super::spec::ReadAhead;
use super::{Hdd, Reading, Waiting};
use seekless_units::Nanos;

impl Hdd {
    /// Serves a read that starts at `now`. Returns the time of its completion.
    pub(super) fn read(&mut self, waiting: Waiting, now: Nanos) -> Nanos {
        let hit = self.buffer.hit(waiting.start(), waiting.end());
        match hit.or_else(|| self.about_to_read(waiting.start())) {
            Some(segment) => self.read_hit(waiting, now, segment),
            None => self.read_miss(waiting, now),
        }
    }

    /// The segment that read-ahead is about to fill with a block: the block passes under the heads
    /// next, or soon, and stopping could cost a revolution.
    fn about_to_read(&self, block: u64) -> Option<usize> {
        let reading = self.reading.as_ref()?;
        let held = self.buffer.get(reading.segment);
        let comes = held.end == block || self.spec.buffer.wait_for_read_ahead && held.end < block;
        (comes && block < held.limit).then_some(reading.segment)
    }

    /// Whether the drive continues reading for reads in order. A drive that stops at a track's end
    /// does so, as measured, unless the host's next request follows at once.
    fn goes_on(&self, held: &Segment, arrived: Nanos) -> bool {
        let pause = arrived.saturating_since(held.served_at);
        self.spec.buffer.read_ahead != ReadAhead::NextTrack || pause < self.media.period()
    }

    fn read_hit(&mut self, waiting: Waiting, now: Nanos, segment: usize) -> Nanos {
        let times = self.overheads;
        let hit = times.command + times.read_hit.get(self.after_read);
        let bus = self.on_bus(waiting, now, hit);
        let ahead = self.reading.is_some_and(|reading| reading.segment == segment);
        let while_writing = self.heads.writing.is_some();
        self.buffer.touch(segment);
        let elsewhere = self.reading.is_some() && !ahead;
        let whole = self.buffer.get(segment).end >= waiting.end();
        if elsewhere && whole && self.spec.buffer.read_ahead_through_hits {
            return self.transfer(waiting, bus, segment);
        }
        if !ahead && !while_writing {
            self.stop_reading(now);
        }
        let held = self.buffer.get(segment);
        let in_order = held.served == waiting.start() && self.goes_on(held, waiting.arrived);
        if in_order {
            self.buffer.grow(segment, now);
        }
        let limit = self.limit(segment, waiting, in_order);
        let held = self.buffer.get(segment);
        let (held_end, held_limit) = (held.end, held.limit.max(limit));
        self.buffer.set_limit(segment, held_limit);
        let missing = held_end < waiting.end();
        let resumes = self.spec.buffer.read_ahead_after_hit || in_order;
        let resumed = resumes && held_end < held_limit;
        if !ahead && !while_writing && (missing || resumed) {
            let depart = self.depart(waiting, now);
            let leg = self.media.go(self.heads.place, depart, held_end, false);
            self.reading = Some(Reading { segment, stream: Stream::new(leg) });
        } else if !ahead {
            self.buffer.set_limit(segment, held_end);
        }
        self.transfer(waiting, bus, segment)
    }

    fn read_miss(&mut self, waiting: Waiting, now: Nanos) -> Nanos {
        let times = self.overheads;
        self.stop_reading(now);
        // Reads always find a segment: the queue starts none while all contain unwritten data.
        let segment = self.buffer.victim(None, now).unwrap_or_default();
        self.buffer.reset_for_read(segment, waiting.start(), now);
        self.buffer.touch(segment);
        let limit = self.limit(segment, waiting, false);
        let depart = self.depart(waiting, now);
        let leg = self.media.go(self.heads.place, depart, waiting.start(), false);
        let buffer = &self.spec.buffer;
        let (passing, zero) = (buffer.read_passing_sectors, buffer.zero_latency_read);
        let leg = self.media.land(leg, waiting.end(), passing && buffer.caching, zero);
        self.buffer.reset_for_read(segment, leg.first, now);
        self.buffer.set_limit(segment, limit);
        self.reading = Some(Reading { segment, stream: Stream::new(leg) });
        let miss = times.command + times.read_miss.get(self.after_read);
        if self.spec.bus.never_disconnect {
            let bus = waiting.arrived.max(now) + miss + times.data_preparation;
            return self.transfer(waiting, bus, segment);
        }
        let left = miss + times.read_disconnect.get(self.after_read);
        let bus = self.reconnect(waiting, (waiting.arrived + left).max(now));
        self.transfer(waiting, bus, segment)
    }

    /// The time at which the heads may leave for a read.
    fn depart(&self, waiting: Waiting, now: Nanos) -> Nanos {
        let miss = self.overheads.command + self.overheads.read_miss.get(self.after_read);
        (waiting.arrived + miss).max(now).max(self.heads.free)
    }

    /// The time at which data of a request that needs nothing else can be transferred: at the
    /// command's end, or, after a wait, when the bus is won back.
    pub(super) fn on_bus(&self, waiting: Waiting, now: Nanos, command: u64) -> Nanos {
        let prepared = self.overheads.data_preparation;
        if now > waiting.arrived {
            let told = waiting.arrived + command;
            return told.max(now) + self.overheads.reselect + prepared;
        }
        now + command + prepared
    }

    /// The time at which the bus is won back: when enough of the read has come from the medium.
    fn reconnect(&mut self, waiting: Waiting, away: Nanos) -> Nanos {
        let buffer = &self.spec.buffer;
        let sectors = u64::from(waiting.request.sectors);
        let room = u64::from(buffer.segment_sectors);
        let whole = if buffer.watermark_of_segment { room } else { sectors.min(room) };
        let enough = ((whole as f64 * buffer.read_watermark) as u64).clamp(1, sectors);
        let enough = waiting.start() + enough;
        let there = self.reading.as_mut().map(|r| r.stream.done(&self.media, enough));
        let times = &self.overheads;
        there.map_or(away, |there| there.max(away)) + times.reselect + times.data_preparation
    }

    /// Sends a read's sectors to the host as they come, from `bus` on. Returns the time of the
    /// read's completion.
    fn transfer(&mut self, waiting: Waiting, bus: Nanos, segment: usize) -> Nanos {
        let times = self.overheads;
        let (end, mut sent, mut now) = (waiting.end(), waiting.start(), bus);
        let hold = self.spec.bus.hold_read || self.spec.bus.never_disconnect;
        while sent < end {
            let held = self.read_so_far(segment, now, end);
            if held > sent {
                now += (held - sent) * times.read_sector;
                sent = held;
                continue;
            }
            let Some(reading) = self.reading.as_mut() else { break };
            let next = reading.stream.done(&self.media, sent + 1);
            now = now.max(next);
            if !hold {
                let left = times.read_disconnect.get(self.after_read);
                now += left + times.reselect + times.data_preparation;
            }
        }
        self.after_transfer(waiting, segment);
        let done = now + times.read_completion;
        self.buffer.set_served(segment, waiting.end(), done);
        done
    }

    /// The end of the requested blocks that a segment contains at a moment.
    fn read_so_far(&mut self, segment: usize, now: Nanos, end: u64) -> u64 {
        let held = self.buffer.get(segment).end;
        match self.reading.as_mut().filter(|reading| reading.segment == segment) {
            Some(reading) if held < end => {
                held.max(reading.stream.read_by(&self.media, now, end)).min(end)
            }
            _ => held.min(end),
        }
    }

    /// Updates the segment after a read: it contains the request, and read-ahead, if there is any,
    /// continues.
    fn after_transfer(&mut self, waiting: Waiting, segment: usize) {
        self.buffer.extend(segment, waiting.end());
        if self.spec.buffer.discard_after_read {
            self.buffer.drop_before(segment, waiting.end());
        }
        let limit = self.buffer.get(segment).limit;
        let Some(reading) = self.reading.as_mut().filter(|reading| reading.segment == segment)
        else {
            return;
        };
        if limit <= waiting.end() {
            let done = reading.stream.done(&self.media, waiting.end());
            self.heads.place = reading.stream.leg.track.place;
            self.heads.free = self.heads.free.max(done);
            self.reading = None;
        }
    }

    /// The end of the read for a request, including read-ahead: a block.
    fn limit(&self, segment: usize, waiting: Waiting, in_order: bool) -> u64 {
        let buffer = &self.spec.buffer;
        let end = waiting.end();
        let most = match buffer.read_ahead_sectors {
            0 => buffer.segment_sectors,
            sectors => sectors,
        };
        // The room that every read takes is not all for read-ahead.
        let own = u64::from(buffer.segment_sectors.max(buffer.read_room_sectors));
        let lent = self.buffer.room_of(segment).saturating_sub(own);
        let most = end + u64::from(most) + lent;
        let limit = match buffer.read_ahead {
            _ if !buffer.caching => end,
            ReadAhead::None => end,
            _ if in_order => most,
            ReadAhead::Sectors => most,
            ReadAhead::Track => most.min(self.media.layout.track(end - 1).end),
            ReadAhead::Cylinder => most.min(cylinder_end(&self.media, end - 1)),
            ReadAhead::NextTrack if end < self.media.layout.blocks() => {
                let track = self.media.layout.track(end);
                let back = self.buffer.get(segment).start < track.first;
                // Also if a track is longer than a segment: a measured drive of that kind reads on
                // and drops blocks for which it has no room.
                track.end + if back { u64::from(track.sectors) } else { 0 }
            }
            ReadAhead::NextTrack => end,
        };
        limit.min(self.media.layout.blocks()).max(end)
    }
}

/// The block behind the cylinder of a block.
fn cylinder_end(media: &Media, block: u64) -> u64 {
    let first = media.layout.track(block);
    let mut end = first.end;
    while end < media.layout.blocks() {
        let track = media.layout.track(end);
        if track.place.cylinder != first.place.cylinder || track.end <= end {
            break;
        }
        end = track.end;
    }
    end
}
