//! Which levels of thinking a model has, by its name. A model that is not known here has none unless it is configured.

use crate::model::{Thinking, vendor::Family};

/// The levels that can be chosen for this model, the least first; empty when its thinking cannot be set.
#[must_use]
pub fn levels(family: Family, model: &str) -> &'static [Thinking] {
    let name = model.to_ascii_lowercase();
    // Routers put the maker before the name.
    let name = name.rsplit('/').next().unwrap_or(&name);
    match family {
        Family::Anthropic => claude(name),
        Family::Openai => openai(name),
        Family::Gemini => gemini(name),
        Family::Openrouter => {
            [claude(name), openai(name), gemini(name), open(name)].into_iter().find(|of| !of.is_empty()).unwrap_or(NONE)
        }
        Family::Ollama if knows_how_much(name) => MUST,
        Family::Ollama if open(name).is_empty() => NONE,
        Family::Ollama => WHETHER,
        Family::Llamacpp | Family::Lmstudio | Family::Vllm | Family::Custom if knows_how_much(name) => MUST,
        Family::Llamacpp | Family::Lmstudio | Family::Vllm | Family::Custom => NONE,
    }
}

/// Open models that take a level where others only take yes or no.
pub(super) fn knows_how_much(model: &str) -> bool {
    model.to_ascii_lowercase().contains("gpt-oss")
}

/// The generation of a Claude model: `claude-sonnet-4-5-20250929` is of 4.5.
pub(super) fn generation(model: &str) -> Option<(u32, u32)> {
    let (_, rest) = model.split_once("claude")?;
    // A date is no generation.
    let mut numbers =
        rest.split(['-', '.', '@', ':', '_']).filter_map(|word| word.parse().ok()).filter(|number: &u32| *number < 100);
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

fn claude(name: &str) -> &'static [Thinking] {
    if generation(name).is_some_and(|generation| generation >= (3, 7)) { &Thinking::ALL } else { NONE }
}

fn openai(name: &str) -> &'static [Thinking] {
    if name.starts_with("gpt-5.") && !name.contains("chat") {
        &Thinking::ALL
    } else if name.starts_with("gpt-5") && !name.contains("chat")
        || ["o1", "o3", "o4"].iter().any(|start| name == *start || name.starts_with(&format!("{start}-")))
            && !name.starts_with("o1-mini")
            && !name.starts_with("o1-preview")
    {
        MUST
    } else {
        NONE
    }
}

fn gemini(name: &str) -> &'static [Thinking] {
    if name.starts_with("gemini-2.5-flash") {
        &Thinking::ALL
    } else if name.starts_with("gemini-2.5-pro") || name.starts_with("gemini-3") {
        MUST
    } else {
        NONE
    }
}

/// Open models that think.
fn open(name: &str) -> &'static [Thinking] {
    const THINKERS: [&str; 7] =
        ["gpt-oss", "qwen3", "deepseek-r1", "deepseek-v3.1", "deepseek-v3.2", "magistral", "glm-4."];
    if THINKERS.iter().any(|start| name.starts_with(start)) { &Thinking::ALL } else { NONE }
}

const NONE: &[Thinking] = &[];
/// Such a model always thinks.
const MUST: &[Thinking] = &[Thinking::Low, Thinking::Medium, Thinking::High];
/// Such a model thinks or does not.
const WHETHER: &[Thinking] = &[Thinking::Off, Thinking::High];

#[cfg(test)]
mod tests {
    use super::{Family, Thinking, generation, levels};

    #[test]
    fn a_generation_is_read_from_every_form_of_the_name() {
        for (name, expected) in [
            ("claude-3-5-sonnet-20241022", Some((3, 5))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("claude-sonnet-4-5-20250929", Some((4, 5))),
            ("anthropic/claude-opus-4.6", Some((4, 6))),
            ("claude-sonnet-5", Some((5, 0))),
            ("claude-instant", None),
            ("test-model", None),
        ] {
            assert_eq!(generation(name), expected, "{name}");
        }
    }

    #[test]
    fn only_models_that_think_have_levels() {
        use Thinking::{High, Low, Medium, Off};
        for (family, name, expected) in [
            (Family::Anthropic, "claude-3-5-haiku-latest", &[][..]),
            (Family::Anthropic, "claude-sonnet-5", &[Off, Low, Medium, High]),
            (Family::Openai, "gpt-4.1", &[]),
            (Family::Openai, "o1-mini", &[]),
            (Family::Openai, "o3", &[Low, Medium, High]),
            (Family::Openai, "gpt-5-mini", &[Low, Medium, High]),
            (Family::Openai, "gpt-5.6", &[Off, Low, Medium, High]),
            (Family::Openrouter, "anthropic/claude-sonnet-4.5", &[Off, Low, Medium, High]),
            (Family::Openrouter, "openrouter/auto", &[]),
            (Family::Gemini, "gemini-2.5-pro", &[Low, Medium, High]),
            (Family::Gemini, "gemini-2.0-flash", &[]),
            (Family::Ollama, "qwen3:8b", &[Off, High]),
            (Family::Ollama, "gpt-oss:20b", &[Low, Medium, High]),
            (Family::Ollama, "llama3.2", &[]),
            (Family::Custom, "qwen3-32b", &[]),
            (Family::Vllm, "openai/gpt-oss-120b", &[Low, Medium, High]),
        ] {
            assert_eq!(levels(family, name), expected, "{name}");
        }
    }
}
