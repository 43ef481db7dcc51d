//! Lets libFuzzer look for bytes that break the property `replay` of `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zeroclaw_fuzz::hold("replay", bytes));
