//! The drive against figures worked out by hand.

use super::*;
use seekless_units::Lba;

/// Two channels of two dies; a page passes a channel in 4 us and the link in 1.
fn spec() -> SsdSpec {
    SsdSpec {
        sectors: 8 * 4 * 16 * 100,
        channels: 2,
        dies_per_channel: 2,
        page: 4096,
        pages_per_block: 16,
        spare: 0.1,
        read_us: 50.0,
        program_us: 500.0,
        erase_us: 3000.0,
        channel_bandwidth: 1_024_000_000,
        link_bandwidth: 4_096_000_000,
        command_us: 5.0,
        queue_depth: 32,
        write_cache: 0,
        power_safe: false,
        history: History::Sequential,
    }
}

fn us(ssd: &mut Ssd, at: u64, request: Request) -> u64 {
    let at = Nanos::new(at * 1000);
    ssd.serve(at, request).unwrap().saturating_since(at) / 1000
}

#[test]
fn a_page_takes_command_sensing_channel_and_link() {
    let mut ssd = Ssd::new(spec());
    assert_eq!(us(&mut ssd, 0, Request::read(Lba::new(0), 8)), 5 + 50 + 4 + 1);
}

#[test]
fn pages_on_different_dies_are_read_at_once() {
    let mut ssd = Ssd::new(spec());
    // Four pages on four dies: two follow each other on each channel.
    assert_eq!(us(&mut ssd, 0, Request::read(Lba::new(0), 32)), 5 + 50 + 8 + 1);
    // Eight pages: every die twice.
    let twice = us(&mut ssd, 10_000, Request::read(Lba::new(0), 64));
    assert!((5 + 100 + 8..=5 + 100 + 16 + 8).contains(&twice), "{twice}");
}

#[test]
fn a_write_waits_for_its_page_unless_it_is_cached() {
    let mut ssd = Ssd::new(spec());
    assert_eq!(us(&mut ssd, 0, Request::write(Lba::new(0), 8)), 5 + 1 + 4 + 500);
    let mut ssd = Ssd::new(SsdSpec { write_cache: 1 << 20, ..spec() });
    assert_eq!(us(&mut ssd, 0, Request::write(Lba::new(0), 8)), 5 + 1);
    assert_eq!(us(&mut ssd, 6, Request::flush()), 510 - 6);
    assert_eq!(us(&mut ssd, 10_000, Request::write(Lba::new(0), 8).durable()), 510);
    let safe = SsdSpec { write_cache: 1 << 20, power_safe: true, ..spec() };
    let mut ssd = Ssd::new(safe);
    us(&mut ssd, 0, Request::write(Lba::new(0), 8));
    assert_eq!(us(&mut ssd, 6, Request::flush()), 5);
}

#[test]
fn a_full_cache_is_as_slow_as_the_flash() {
    let mut ssd = Ssd::new(SsdSpec { write_cache: 4 * 4096, ..spec() });
    let mut now = 0;
    for page in 0..400 {
        now += us(&mut ssd, now, Request::write(Lba::new(page * 8), 8));
    }
    // Four dies program a page each 500 us.
    assert!((48_000..52_000).contains(&now), "{now}");
}

#[test]
fn pages_written_later_lie_where_they_were_written() {
    let mut ssd = Ssd::new(spec());
    for page in [40, 3, 17, 9] {
        us(&mut ssd, page * 100_000, Request::write(Lba::new(page * 8), 8));
    }
    let dies: Vec<usize> = [40, 3, 17, 9].map(|page| ssd.translation.die(page)).to_vec();
    assert_eq!(dies, [0, 1, 2, 3]);
}

#[test]
fn only_so_many_commands_run_at_once() {
    let mut ssd = Ssd::new(SsdSpec { queue_depth: 1, ..spec() });
    for page in 0..2 {
        ssd.submit(Nanos::ZERO, Tag(page), Request::read(Lba::new(page * 8), 8)).unwrap();
    }
    let mut done = Vec::new();
    while let Some(one) = ssd.advance(Nanos::new(u64::MAX)) {
        done.push(one.at.get() / 1000);
    }
    assert_eq!(done, [60, 120]);
}
