//! The drive compared with figures computed by hand.

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
        interval_us: 0.0,
        write_interval_us: None,
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
    let twice = us(&mut ssd, 10_000, Request::read(Lba::new(64), 64));
    assert!((5 + 100 + 8..=5 + 100 + 16 + 8).contains(&twice), "{twice}");
}

#[test]
fn a_page_in_the_register_of_its_die_is_not_sensed_again() {
    let mut ssd = Ssd::new(spec());
    assert_eq!(us(&mut ssd, 0, Request::read(Lba::new(0), 4)), 5 + 50 + 2);
    assert_eq!(us(&mut ssd, 1_000, Request::read(Lba::new(4), 4)), 5 + 2);
    // Another page of the same die replaces it.
    us(&mut ssd, 2_000, Request::read(Lba::new(32), 4));
    assert_eq!(us(&mut ssd, 3_000, Request::read(Lba::new(0), 4)), 5 + 50 + 2);
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
    // Four dies program a page each in 500 us.
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
fn writes_may_start_less_often_than_reads() {
    let spec = SsdSpec { write_cache: 1 << 20, interval_us: 7.0, ..spec() };
    for (write_interval_us, writes) in [(None, 7), (Some(20.0), 20), (Some(0.0), 1)] {
        let mut ssd = Ssd::new(SsdSpec { write_interval_us, ..spec.clone() });
        // Reads of pages on different channels, then writes.
        for page in 0..4 {
            let at = Lba::new(page * 8);
            let request = if page < 2 { Request::read(at, 8) } else { Request::write(at, 8) };
            ssd.submit(Nanos::new((page / 2) * 1_000_000), Tag(page), request).unwrap();
        }
        let next = |ssd: &mut Ssd| ssd.advance(Nanos::new(u64::MAX)).unwrap().at.get() / 1000;
        let done = [0; 4].map(|_| next(&mut ssd));
        assert_eq!(done, [60, 67, 1006, 1006 + writes], "{write_interval_us:?}");
    }
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

/// Requests per second with `depth` in flight; `at` gives the sector of each.
fn rate(preset: &str, depth: u64, write: bool, sectors: u32, at: impl Fn(u64) -> u64) -> f64 {
    let mut disk = crate::preset(preset).unwrap();
    let send = |disk: &mut Box<dyn DeviceModel>, nth: u64, now: Nanos| {
        let place = Lba::new(at(nth));
        let request =
            if write { Request::write(place, sectors) } else { Request::read(place, sectors) };
        disk.submit(now, Tag(nth), request).unwrap();
    };
    (0..depth).for_each(|nth| send(&mut disk, nth, Nanos::ZERO));
    let (count, mut last) = (300_000_u64.min(3_000_000 / u64::from(sectors)), Nanos::ZERO);
    for nth in 0..count {
        last = disk.advance(Nanos::new(u64::MAX)).unwrap().at;
        send(&mut disk, nth + depth, last);
    }
    count as f64 / (last.get() as f64 / 1e9)
}

fn anywhere(nth: u64) -> u64 {
    (nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) % 200_000_000 * 8
}

/// The figures cited by the presets.
#[test]
fn presets_have_the_rates_that_they_cite() {
    let near = |what: &str, found: f64, cited: f64| {
        assert!((found / cited - 1.0).abs() < 0.08, "{what}: {found:.0}, cited {cited:.0}");
    };
    let read = |preset, depth| rate(preset, depth, false, 8, anywhere);
    near("sata, depth 1", read("sata-ssd", 1), 13_000.0);
    near("sata, depth 32", read("sata-ssd", 32), 98_000.0);
    near("nvme, depth 1", read("nvme-ssd", 1), 22_000.0);
    let most = read("nvme-ssd", 512);
    assert!((0.7e6..=1.0e6).contains(&most), "nvme, depth 512: {most:.0}");
    let in_order = |nth: u64| nth * 2048;
    let bytes = |preset, write| rate(preset, 8, write, 2048, in_order) * 1048576.0;
    near("sata reads", bytes("sata-ssd", false), 560e6);
    near("sata writes", bytes("sata-ssd", true), 530e6);
    near("nvme reads", bytes("nvme-ssd", false), 7000e6);
    near("nvme writes", bytes("nvme-ssd", true), 5000e6);
}

#[test]
fn small_reads_in_order_are_no_slower_than_elsewhere() {
    for preset in ["nvme-ssd", "sata-ssd"] {
        for depth in [1, 8, 32] {
            let in_order = rate(preset, depth, false, 8, |nth| nth * 8);
            let elsewhere = rate(preset, depth, false, 8, anywhere);
            assert!(in_order >= 0.95 * elsewhere, "{preset} {depth}: {in_order:.0} {elsewhere:.0}");
        }
    }
}

#[test]
fn the_cache_bounds_writes_under_a_page() {
    for (preset, cited) in [("nvme-ssd", 5000e6), ("sata-ssd", 530e6)] {
        for place in [anywhere as fn(u64) -> u64, |nth| nth * 8] {
            let bytes = rate(preset, 32, true, 8, place) * 4096.0;
            assert!(bytes < 1.1 * cited, "{preset}: {bytes:.0} bytes a second");
        }
    }
    // Data waiting in the cache are programmed too: a flush takes no longer.
    let mut disk = Ssd::new(crate::preset::spec("nvme-ssd").unwrap().ssd.unwrap());
    let mut now = Nanos::ZERO;
    for nth in 0..65_536 {
        now = disk.serve(now, Request::write(Lba::new(anywhere(nth)), 8)).unwrap();
    }
    let flushed = disk.serve(now, Request::flush()).unwrap().saturating_since(now);
    assert!(flushed < 100_000_000, "{flushed} ns");
}

#[test]
fn a_flush_programs_what_fills_no_page() {
    let mut ssd = Ssd::new(SsdSpec { page: 16384, write_cache: 1 << 20, ..spec() });
    assert_eq!(us(&mut ssd, 0, Request::write(Lba::new(0), 8)), 5 + 1);
    let flushed = us(&mut ssd, 100, Request::flush());
    assert!(flushed >= 500, "{flushed}");
    assert_eq!(us(&mut ssd, 10_000, Request::flush()), 5);
}
