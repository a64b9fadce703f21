//! Requests per second on one core: `cargo bench -p seekless-model`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use seekless_model::random::Random;
use seekless_model::{DeviceModel, Request, Tag, preset};
use seekless_units::{Lba, Nanos};

const REQUESTS: u64 = 100_000;
const SECTORS: u64 = 2_000_000;

fn main() {
    divan::main();
}

/// Random reads and writes of 4 KiB, a quarter of them sequential.
fn requests() -> Vec<Request> {
    let mut chance = Random::new(1);
    let mut at = 0;
    (0..REQUESTS)
        .map(|n| {
            if n % 4 != 0 {
                at = chance.below(SECTORS / 8) * 8;
            }
            let here = Lba::new(at);
            at = (at + 8) % SECTORS;
            if chance.below(3) == 0 { Request::write(here, 8) } else { Request::read(here, 8) }
        })
        .collect()
}

/// One request at a time.
fn closed(device: &mut dyn DeviceModel, requests: &[Request]) -> Nanos {
    requests.iter().fold(Nanos::ZERO, |now, request| device.serve(now, *request).unwrap_or(now))
}

/// 32 in flight.
fn deep(device: &mut dyn DeviceModel, requests: &[Request]) -> Nanos {
    let mut now = Nanos::ZERO;
    for (n, request) in requests.iter().enumerate() {
        if device.in_flight() >= 32
            && let Some(done) = device.advance(Nanos::new(u64::MAX))
        {
            now = now.max(done.at);
        }
        let _ = device.submit(now, Tag(n as u64), *request);
    }
    now
}

#[divan::bench(args = ["null", "gp3", "io2", "lazy-gp3", "cheetah-9lp", "hp-c3323", "sata-7200", "sata-ssd"], sample_count = 10)]
fn one_at_a_time(bencher: Bencher<'_, '_>, name: &str) {
    let requests = requests();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .with_inputs(|| preset(name).expect("preset"))
        .bench_values(|mut device| black_box(closed(device.as_mut(), &requests)));
}

#[divan::bench(args = ["gp3", "lazy-gp3", "sata-7200", "nvme-ssd"], sample_count = 10)]
fn thirty_two_in_flight(bencher: Bencher<'_, '_>, name: &str) {
    let requests = requests();
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .with_inputs(|| preset(name).expect("preset"))
        .bench_values(|mut device| black_box(deep(device.as_mut(), &requests)));
}
