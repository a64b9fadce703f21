#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    seekless_fuzz::run_quota_ufs(data);
});
