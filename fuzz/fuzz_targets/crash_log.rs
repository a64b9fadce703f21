//! Logs of dm-log-writes: what can be read is written again and reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| seekless_fuzz::run_crash_log(data));
