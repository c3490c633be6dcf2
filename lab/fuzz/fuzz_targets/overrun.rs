#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    jostle_fuzz::overrun::check(data);
});
