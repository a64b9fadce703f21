#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    seekless_fuzz::run_definitions(data);
});
