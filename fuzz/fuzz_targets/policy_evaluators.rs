//! Lets libFuzzer look for bytes that break the property `policy_evaluators` of `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zeroclaw_fuzz::hold("policy_evaluators", bytes));
