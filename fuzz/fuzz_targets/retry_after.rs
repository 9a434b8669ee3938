#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| postrider_fuzz::bodies::retry_after_header(data));
