//! Which agent there is when the configuration names none. A pure decision over the environment that is handed in; it
//! never holds a key, only the name of the variable that has it.

use zeroclaw_config::{Env, Family};

/// The alias of the agent that exists without configuration.
pub const DEFAULT_ALIAS: &str = "main";
/// The variable that replaces the model of the default agent.
pub const MODEL_VARIABLE: &str = "ZEROCLAW_MODEL";

/// The vendors in the order in which their keys are looked for, each with a model that its users can be expected to
/// have. OpenRouter chooses a model by itself under the name given here.
const VENDORS: [(&str, Family, &str); 4] = [
    ("ANTHROPIC_API_KEY", Family::Anthropic, "claude-sonnet-5"),
    ("OPENAI_API_KEY", Family::Openai, "gpt-5.6"),
    ("OPENROUTER_API_KEY", Family::Openrouter, "openrouter/auto"),
    ("GEMINI_API_KEY", Family::Gemini, "gemini-3.5-flash"),
];

/// The agent that is used when nothing is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultAgent {
    /// Its alias.
    pub alias: &'static str,
    /// Which provider it talks to.
    pub family: Family,
    /// The model as its provider knows it; `None` for the builtin provider without an override.
    pub model: Option<String>,
    /// The variable that holds the key; `None` for the builtin provider, which needs none.
    pub key_variable: Option<&'static str>,
}

/// Chooses the agent of a program without configured agents: the first vendor whose key is set, else the builtin one.
pub fn default_agent(env: &Env) -> DefaultAgent {
    let wanted = env.get(MODEL_VARIABLE).map(str::trim).filter(|model| !model.is_empty());
    let has_key = |variable: &str| env.get(variable).is_some_and(|key| !key.trim().is_empty());
    match VENDORS.into_iter().find(|(variable, _, _)| has_key(variable)) {
        Some((variable, family, model)) => DefaultAgent {
            alias: DEFAULT_ALIAS,
            family,
            model: Some(wanted.unwrap_or(model).to_owned()),
            key_variable: Some(variable),
        },
        None => DefaultAgent {
            alias: DEFAULT_ALIAS,
            family: Family::Builtin,
            model: wanted.map(str::to_owned),
            key_variable: None,
        },
    }
}

/// The variable in which the users of a vendor keep their key; `None` for a family without one.
pub fn key_variable(family: Family) -> Option<&'static str> {
    VENDORS.into_iter().find(|(_, vendor, _)| *vendor == family).map(|(variable, _, _)| variable)
}

/// The model that users of a vendor can be expected to have.
pub fn usual_model(family: Family) -> Option<&'static str> {
    VENDORS.into_iter().find(|(_, vendor, _)| *vendor == family).map(|(_, _, model)| model)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> (Family, Option<String>, Option<&'static str>) {
        let env: Env = variables.iter().copied().collect();
        let agent = default_agent(&env);
        assert_eq!(agent.alias, "main");
        (agent.family, agent.model, agent.key_variable)
    }

    #[test]
    fn without_a_key_the_builtin_agent_is_chosen() {
        assert_eq!(chosen(&[]), (Family::Builtin, None, None));
        assert_eq!(chosen(&[("ANTHROPIC_API_KEY", ""), ("OPENAI_API_KEY", "  ")]), (Family::Builtin, None, None));
    }

    #[test]
    fn the_first_key_in_the_written_order_wins() {
        let all =
            [("GEMINI_API_KEY", "g"), ("OPENROUTER_API_KEY", "r"), ("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")];
        let order = ["GEMINI_API_KEY", "OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
        let families = [Family::Gemini, Family::Openrouter, Family::Openai, Family::Anthropic];
        for count in 1..=all.len() {
            let (family, model, variable) = chosen(&all[..count]);
            assert_eq!((family, variable), (families[count - 1], Some(order[count - 1])));
            assert!(model.is_some_and(|model| !model.is_empty()));
        }
    }

    #[test]
    fn a_blank_key_is_passed_over() {
        let (family, _, variable) = chosen(&[("ANTHROPIC_API_KEY", " \t"), ("GEMINI_API_KEY", "g")]);
        assert_eq!((family, variable), (Family::Gemini, Some("GEMINI_API_KEY")));
    }

    #[test]
    fn the_model_can_be_overridden_and_a_blank_override_is_none() {
        let (_, model, _) = chosen(&[("OPENAI_API_KEY", "o"), ("ZEROCLAW_MODEL", " gpt-5-mini ")]);
        assert_eq!(model.as_deref(), Some("gpt-5-mini"));
        let (_, model, _) = chosen(&[("OPENAI_API_KEY", "o"), ("ZEROCLAW_MODEL", "  ")]);
        assert_eq!(model.as_deref(), Some("gpt-5.6"));
        assert_eq!(chosen(&[("ZEROCLAW_MODEL", "tiny")]).1.as_deref(), Some("tiny"));
    }

    #[test]
    fn the_key_itself_is_nowhere_in_the_decision() {
        let env: Env = [("ANTHROPIC_API_KEY", "sk-very-secret")].into_iter().collect();
        assert!(!format!("{:?}", default_agent(&env)).contains("very-secret"));
    }
}
