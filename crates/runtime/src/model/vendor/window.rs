//! How many tokens well-known models can read. Only a default: the configuration's number always wins.

/// The window of a model by its name.
pub(super) fn of(model: &str) -> u64 {
    let model = model.to_ascii_lowercase();
    WINDOWS.iter().find(|(part, _)| model.contains(part)).map_or(DEFAULT, |(_, window)| *window)
}

/// Parts of names, the more special one first.
const WINDOWS: &[(&str, u64)] = &[
    ("claude", 200_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4", 8_192),
    ("gpt-3.5", 16_385),
    ("gpt-oss", 131_072),
    ("gemini", 1_048_576),
    ("qwen3-coder", 262_144),
    ("kimi-k2", 262_144),
    ("codestral", 256_000),
];
/// What most current models have at least.
const DEFAULT: u64 = 128_000;
