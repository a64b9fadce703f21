//! Parameter files of devices: TOML, and DiskSim's with all files the same.
//! What is accepted serves a few requests.

#![no_main]

use seekless_model::preset::{Spec, parse};
use seekless_model::{Request, disksim};
use seekless_units::{Lba, Nanos};

fn serve(spec: &Spec) {
    let mut device = spec.build();
    let end = device.capacity().unwrap_or(1 << 40).saturating_sub(8);
    let mut now = Nanos::ZERO;
    for at in [0, end / 2, end, end / 3, 8] {
        for request in [Request::read(Lba::new(at), 8), Request::write(Lba::new(at), 8)] {
            now = device.serve(now, request).unwrap_or(now);
        }
    }
    let _ = device.serve(now, Request::flush());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(spec) = parse(text, "fuzz") {
        serve(&spec);
    }
    if let Ok(spec) = disksim::import("fuzz", &mut |_| Ok(text.to_string())) {
        serve(&spec);
    }
});
