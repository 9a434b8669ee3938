//! The fuzzer. `POSTRIDER_FUZZ_TARGET` names what is done with each input: one program for all targets is linked once.
#![no_main]

use std::sync::LazyLock;

/// Read at the first input, so that a wrong name ends the fuzzer at once.
static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("POSTRIDER_FUZZ_TARGET").unwrap_or_default();
    postrider_fuzz::target(&name).unwrap_or_else(|| panic!("POSTRIDER_FUZZ_TARGET is {name:?}, and no target"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
