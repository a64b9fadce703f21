//! Serving writes: into the buffer, onto the medium.

use super::media::{Arrivals, Leg};
use super::overhead::ExtraDisconnect;
use super::queue::QueueKey;
use super::{Dirty, Hdd, Waiting};
use seekless_units::Nanos;

/// The starting times of a write's data and heads.
pub(super) struct Plan {
    /// The start of the transfer from the host.
    pub(super) bus: Nanos,
    /// The time at which the heads may leave.
    pub(super) ready: Nanos,
    /// Time to leave the bus after the data transfer.
    disconnect: u64,
    /// Time to win it back.
    reselect: u64,
}

impl Hdd {
    /// Serves a write that starts at `now`. Returns the time of its completion.
    pub(super) fn write(&mut self, waiting: Waiting, now: Nanos) -> Nanos {
        if let Some(segment) = self.continued(&waiting, now) {
            return self.append(waiting, now, segment);
        }
        if let Some(spot) = self.replaced(&waiting) {
            return self.replace(waiting, now, spot);
        }
        if let Some(spot) = self.joined(&waiting) {
            return self.join(waiting, now, spot);
        }
        let (start, end) = (waiting.start(), waiting.end());
        // The queue starts no write without a segment.
        let segment = self.buffer.victim(Some((start, end)), now).unwrap_or_default();
        let extra = self.extra(&waiting, now, segment);
        if self.heads.writing.is_some() || self.is_behind_others(&waiting) {
            return self.accept(waiting, now, segment);
        }
        self.stop_reading(now);
        self.buffer.invalidate(start, end, segment);
        self.buffer.reset(segment, start, true);
        self.buffer.touch(segment);
        self.buffer.extend(segment, end);
        let plan = self.plan(&waiting, now, extra);
        let sectors = u64::from(waiting.request.sectors);
        let data = Arrivals {
            first: start,
            start: plan.bus,
            each: self.overheads.write_sector,
            least: self.least(sectors),
        };
        let written = self.put_on_medium(start, end, plan.ready, &data);
        self.buffer.set_dirty(segment, written);
        let sent = plan.bus + sectors * self.overheads.write_sector;
        self.complete(&waiting, segment, sent, written, &plan)
    }

    /// Whether the buffer has writes that a new one must not overtake: otherwise, accepted writes
    /// would wait for as long as others come.
    fn is_behind_others(&self, waiting: &Waiting) -> bool {
        let buffer = &self.spec.buffer;
        let accepts = buffer.write_back && buffer.serve_while_writing && !waiting.request.durable;
        accepts && !self.dirty.is_empty()
    }

    /// Minimum number of sectors of a write in the buffer before the heads write.
    fn least(&self, sectors: u64) -> u64 {
        if self.spec.bus.hold_write {
            return sectors;
        }
        sectors.min(u64::from(self.spec.buffer.write_lead_sectors)).max(1)
    }

    /// The completion of a write whose transfer ends at `sent` and which is on the medium at
    /// `written`.
    pub(super) fn complete(
        &mut self,
        waiting: &Waiting,
        segment: usize,
        sent: Nanos,
        written: Nanos,
        plan: &Plan,
    ) -> Nanos {
        self.heads.writing = Some(segment);
        self.trail.sent = sent;
        let done = if self.spec.buffer.write_back && !waiting.request.durable {
            sent
        } else {
            let away = sent + plan.disconnect;
            away.max(written) + plan.reselect
        };
        done + self.overheads.write_completion
    }

    /// The times of an extra disconnect, if the drive leaves the bus once more: in a write that
    /// follows a write and does not continue it.
    fn extra(&self, waiting: &Waiting, now: Nanos, segment: usize) -> Option<ExtraDisconnect> {
        let at_once = now == waiting.arrived && !self.spec.bus.never_disconnect;
        let follows =
            self.buffer.just_written(segment) && self.buffer.get(segment).end != waiting.start();
        self.overheads.extra.filter(|_| at_once && follows)
    }

    pub(super) fn plan(
        &self,
        waiting: &Waiting,
        now: Nanos,
        extra: Option<ExtraDisconnect>,
    ) -> Plan {
        let times = &self.overheads;
        if let Some(extra) = extra {
            let at = |time: u64| waiting.arrived + times.command + time;
            let back = extra.command + extra.disconnect + extra.away + times.reselect;
            return Plan {
                bus: at(back + times.data_preparation),
                ready: at(extra.command + extra.seek_delta),
                disconnect: extra.second_disconnect,
                reselect: times.reselect_again,
            };
        }
        let command = times.command + times.write.get(self.after_read);
        Plan {
            bus: self.on_bus(*waiting, now, command),
            ready: (waiting.arrived + command).max(now),
            disconnect: times.write_disconnect,
            reselect: times.reselect,
        }
    }

    /// Writes blocks to the medium; the heads leave at `ready` or when they are free. Returns the
    /// time at which they are written.
    fn put_on_medium(&mut self, start: u64, end: u64, ready: Nanos, data: &Arrivals) -> Nanos {
        self.trail.clear();
        let depart = ready.max(self.heads.free);
        let mut leg = self.media.go(self.heads.place, depart, start, true);
        let moved = leg.on_track - depart;
        if moved < self.overheads.minimum_write_seek {
            let later = depart + (self.overheads.minimum_write_seek - moved);
            leg = self.media.go(self.heads.place, later, start, true);
        }
        if self.spec.buffer.zero_latency_write && data.all_by(end, leg.on_track) {
            leg = self.media.land(leg, end, false, true);
        }
        self.finish(leg, end, data)
    }

    /// Writes blocks that continue at the heads' position.
    pub(super) fn go_on_writing(
        &mut self,
        start: u64,
        end: u64,
        ready: Nanos,
        data: &Arrivals,
    ) -> Nanos {
        let depart = ready.max(self.heads.free);
        let leg = self.media.go(self.heads.place, depart, start, true);
        self.finish(leg, end, data)
    }

    fn finish(&mut self, leg: Leg, end: u64, data: &Arrivals) -> Nanos {
        let (last, written) = self.media.write(leg, end, data);
        self.heads.place = last.track.place;
        self.heads.free = written;
        self.trail.push(leg, end, *data, written);
        written
    }

    /// An accepted write that this write replaces, fully or in part.
    pub(super) fn replaced(&self, waiting: &Waiting) -> Option<QueueKey> {
        let buffer = &self.spec.buffer;
        if !buffer.replace_writes || !buffer.write_back || waiting.request.durable {
            return None;
        }
        let (start, end) = (waiting.start(), waiting.end());
        self.dirty.find(|dirty| dirty.start <= start && end <= dirty.end)
    }

    /// Puts a write in place of its old data in the buffer.
    fn replace(&mut self, waiting: Waiting, now: Nanos, spot: QueueKey) -> Nanos {
        let plan = self.plan(&waiting, now, None);
        let sent = u64::from(waiting.request.sectors) * self.overheads.write_sector;
        let accepted = plan.bus + sent;
        if let Some(dirty) = self.dirty.get_mut(spot) {
            dirty.accepted = accepted;
            self.buffer.touch(dirty.segment);
        }
        accepted + self.overheads.write_completion
    }

    /// Accepts a write into the buffer while the heads perform another one.
    fn accept(&mut self, waiting: Waiting, now: Nanos, segment: usize) -> Nanos {
        let (start, end) = (waiting.start(), waiting.end());
        let plan = self.plan(&waiting, now, None);
        self.buffer.invalidate(start, end, segment);
        self.buffer.reset(segment, start, true);
        self.buffer.touch(segment);
        self.buffer.extend(segment, end);
        self.buffer.set_dirty(segment, Nanos::new(u64::MAX));
        let sent = u64::from(waiting.request.sectors) * self.overheads.write_sector;
        let accepted = plan.bus + sent;
        let cylinder = waiting.cylinder;
        self.dirty.push(cylinder, Dirty { segment, start, end, accepted, last: None });
        accepted + self.overheads.write_completion
    }

    /// Starts writing an accepted write to the medium.
    pub(super) fn write_back(&mut self, spot: QueueKey, now: Nanos) {
        let Some(dirty) = self.dirty.remove(spot) else { return };
        self.stop_reading(now);
        let there = Arrivals { first: dirty.start, start: Nanos::ZERO, each: 0, least: 1 };
        let end = dirty.last.map_or(dirty.end, |last| last.first);
        let mut written = self.put_on_medium(dirty.start, end, now, &there);
        if let Some(last) = dirty.last {
            written = self.go_on_writing(last.first, dirty.end, now, &last);
        }
        self.trail.sent = now;
        self.buffer.set_dirty(dirty.segment, written);
        self.heads.writing = Some(dirty.segment);
    }
}
