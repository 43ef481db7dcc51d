//! `zeroclaw login` and `zeroclaw logout`: keys of model providers, asked for, tested, stored and removed.
//!
//! A key comes from the terminal, unseen, or from standard input; never from an argument, which other users can read. It
//! is stored only after the provider has answered with it, unless that is switched off.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use zeroclaw_acp_server::{AgentSlot, ModelAccess};
use zeroclaw_config::{
    Config, Family, Loaded, ModelRef, Origin, Paths, Secret, check_alias, get, load, remove_keys, set, store_key,
};
use zeroclaw_runtime::model::{Message, ModelError, ModelEvent, ModelProvider, ModelRequest};

use super::keyboard::{Cancelled, line, secret};
use super::term::{one_line, visible};
use super::{Context, Failure, GlobalArgs, exit};
use crate::agents::{DEFAULT_ALIAS, key_variable, usual_model};
use crate::wiring::{Trial, agent_table};

/// How often a refused key may be typed anew.
const TRIES: usize = 3;

/// Models that are listed; of more, as routers have them, the name is typed.
const MAX_LISTED: usize = 40;

/// The providers that can be logged in to, in the order in which they are offered.
const PROVIDERS: [(Family, &str); 9] = [
    (Family::Anthropic, "Anthropic"),
    (Family::Openai, "OpenAI"),
    (Family::Openrouter, "OpenRouter"),
    (Family::Gemini, "Google Gemini"),
    (Family::Ollama, "Ollama, on this machine"),
    (Family::Llamacpp, "llama.cpp, on this machine"),
    (Family::Lmstudio, "LM Studio, on this machine"),
    (Family::Vllm, "vLLM, on this machine"),
    (Family::Custom, "another server that speaks the interface of OpenAI"),
];

#[derive(Debug, Clone, Default, Args)]
pub(super) struct LoginArgs {
    /// The provider, for example anthropic; asked for when left out
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// The name of the model's section in the configuration [default: the provider's only one, else default]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The address, where it is not the provider's own
    #[arg(long, value_name = "URI")]
    uri: Option<String>,
    /// The model; chosen from the provider's list when left out
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Read the key from the first line of standard input and ask nothing
    #[arg(long)]
    key_stdin: bool,
    /// Store the key without asking the provider whether it is good
    #[arg(long)]
    no_test: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub(super) struct LogoutArgs {
    /// Whose key is removed: a provider, or one model as PROVIDER.NAME [default: all]
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
}

/// How a login asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// A person is at the terminal.
    Asking,
    /// Everything was said.
    Silent,
}

/// Removes stored keys.
pub(super) fn logout(
    args: &LogoutArgs,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    let paths = context.paths(globals)?;
    let wanted = args.provider.as_deref();
    let meant = |model: &ModelRef| wanted.is_none_or(|name| model.family.as_str() == name || model.to_string() == name);
    if let Some(name) = wanted
        && Family::from_name(name).is_none()
        && let Err(error) = name.parse::<ModelRef>()
    {
        return Err(Failure::Usage(anyhow!("`{}` is no provider: {error}", one_line(name))));
    }
    let removed = remove_keys(&paths, meant).context("the key cannot be removed")?;
    let mut tell = || -> io::Result<()> {
        for model in &removed {
            writeln!(out, "Removed the key of {model}.")?;
        }
        if removed.is_empty() {
            writeln!(out, "No key is stored{}.", wanted.map(|name| format!(" for {name}")).unwrap_or_default())?;
        }
        out.flush()
    };
    tell().context("cannot write")?;
    Ok(exit::DONE)
}

/// Logs in and tells how that went; a person who gives up is no failure of the program.
pub(super) fn login(
    args: &LoginArgs,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    match run(args, globals, context, out) {
        Err(Failure::Failed(error)) if error.is::<Cancelled>() => {
            writeln!(out, "Nothing was changed.").context("cannot write")?;
            Ok(exit::CANCELLED)
        }
        other => other,
    }
}

fn run(args: &LoginArgs, globals: &GlobalArgs, context: &Context, out: &mut impl Write) -> Result<u8, Failure> {
    let manner = if context.streams.in_terminal && !args.key_stdin { Manner::Asking } else { Manner::Silent };
    if manner == Manner::Silent && !args.key_stdin {
        return Err(Failure::Usage(anyhow!("there is no terminal to ask; use --provider and --key-stdin")));
    }
    let paths = context.paths(globals)?;
    let loaded = load(&paths, &context.env).context("the configuration cannot be used")?;
    let family = family(args, manner, out)?;
    let model = reference(args, family, &loaded.config)?;
    let configured = loaded.config.models.get(&model).cloned().unwrap_or_default();
    let mut uri = args.uri.clone().or(configured.uri.clone());
    if family == Family::Custom && uri.is_none() {
        if manner == Manner::Silent {
            return Err(Failure::Usage(anyhow!("the provider `custom` needs an address: --uri")));
        }
        uri = Some(asked(out, "Address, for example http://127.0.0.1:8000/v1")?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let known = args.model.clone().or(configured.model.clone());
    let mut trial = Trial { family, uri, key: None, model: String::new() };
    let mut tries = 0;
    let chosen = loop {
        tries += 1;
        trial.key = key(&trial, manner, out)?;
        let tested = runtime.block_on(test(&mut trial, known.as_deref(), args, context, manner, out));
        match tested {
            Ok(chosen) => break chosen,
            Err(error) if manner == Manner::Asking && tries < TRIES && is_refusal(&error) => {
                writeln!(out, "{}.", visible(&format!("{error:#}"))).context("cannot write")?;
            }
            Err(error) => return Err(Failure::Failed(error)),
        }
    };
    keep(&paths, context, &model, args, &trial, &chosen, out)?;
    Ok(exit::DONE)
}

fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ModelError>(), Some(ModelError::Auth(_)))
}

fn asked(out: &mut impl Write, question: &str) -> anyhow::Result<String> {
    write!(out, "{question}: ")?;
    out.flush()?;
    line(&mut io::stdin().lock())
}

fn family(args: &LoginArgs, manner: Manner, out: &mut impl Write) -> Result<Family, Failure> {
    let of = |name: &str| {
        let found = Family::from_name(name).filter(|family| PROVIDERS.iter().any(|(known, _)| known == family));
        found.ok_or_else(|| {
            let known: Vec<&str> = PROVIDERS.iter().map(|(family, _)| family.as_str()).collect();
            anyhow!("`{}` is no provider to log in to; there are {}", one_line(name), known.join(", "))
        })
    };
    match (&args.provider, manner) {
        (Some(name), _) => of(name).map_err(Failure::Usage),
        (None, Manner::Silent) => Err(Failure::Usage(anyhow!("the provider is not said: --provider"))),
        (None, Manner::Asking) => {
            let names: Vec<String> = PROVIDERS.iter().map(|(_, name)| (*name).to_owned()).collect();
            let at = pick(out, "Provider", &names, 0)?;
            let number = names.iter().position(|name| *name == at);
            match number.and_then(|number| PROVIDERS.get(number)) {
                Some((family, _)) => Ok(*family),
                None => Ok(of(&at)?),
            }
        }
    }
}

/// Lets a person choose by number or by name; the enter key alone takes the default.
fn pick(out: &mut impl Write, what: &str, names: &[String], default: usize) -> anyhow::Result<String> {
    for (at, name) in names.iter().take(MAX_LISTED).enumerate() {
        writeln!(out, "{:>3}  {}", at + 1, visible(name))?;
    }
    if names.len() > MAX_LISTED {
        writeln!(out, "     and {} more, by name", names.len() - MAX_LISTED)?;
    }
    let answer = asked(out, &format!("{what}, by number or name [{}]", default + 1))?;
    if answer.is_empty() {
        return names.get(default).cloned().context("there is nothing to choose from");
    }
    match answer.parse::<usize>() {
        Ok(number) => number.checked_sub(1).and_then(|at| names.get(at)).cloned().context("there is no such number"),
        Err(_) => Ok(answer),
    }
}

/// The section that the login is for.
fn reference(args: &LoginArgs, family: Family, config: &Config) -> Result<ModelRef, Failure> {
    let alias = match &args.name {
        Some(name) => {
            check_alias(name).map_err(|error| Failure::Usage(anyhow!("--name: {error}")))?;
            name.clone()
        }
        None => {
            let mut of_family = config.models.keys().filter(|model| model.family == family);
            match (of_family.next(), of_family.next()) {
                (Some(only), None) => only.alias.clone(),
                (_, _) => "default".to_owned(),
            }
        }
    };
    Ok(ModelRef { family, alias })
}

fn key(trial: &Trial, manner: Manner, out: &mut impl Write) -> anyhow::Result<Option<Secret>> {
    let needed = key_variable(trial.family).is_some() && trial.uri.is_none();
    let key = match manner {
        Manner::Silent => line(&mut io::stdin().lock()).or_else(|error| match error.is::<Cancelled>() {
            true => Ok(String::new()),
            false => Err(error),
        })?,
        Manner::Asking => {
            secret(out, if needed { "API key, not shown" } else { "API key, not shown (enter for none)" })?
        }
    };
    match key.is_empty() {
        true if needed => bail!("a key is needed"),
        true => Ok(None),
        false if key.chars().all(|letter| letter.is_ascii_graphic()) => Ok(Some(Secret::new(key))),
        false => bail!("the key has characters that no key has"),
    }
}

/// Finds the model and asks it one thing with the key; gives back its name.
async fn test(
    trial: &mut Trial,
    known: Option<&str>,
    args: &LoginArgs,
    context: &Context,
    manner: Manner,
    out: &mut impl Write,
) -> anyhow::Result<String> {
    let chosen = match (&args.model, known, manner) {
        (Some(model), _, _) => model.clone(),
        (None, Some(model), Manner::Silent) => model.to_owned(),
        (None, None, Manner::Silent) if usual_model(trial.family).is_some() => {
            usual_model(trial.family).unwrap_or_default().to_owned()
        }
        (None, known, _) => {
            let names = trial.models(&context.env).await?;
            if names.is_empty() {
                bail!("the provider names no model; say one with --model");
            }
            if manner == Manner::Asking {
                let wanted = known.or(usual_model(trial.family));
                let default = names.iter().position(|name| Some(name.as_str()) == wanted).unwrap_or(0);
                pick(out, "Model", &names, default)?
            } else {
                match names.as_slice() {
                    [only] => only.clone(),
                    _ => bail!("the provider has {} models; say one with --model", names.len()),
                }
            }
        }
    };
    trial.model.clone_from(&chosen);
    if !args.no_test {
        answers(trial.provider(&context.env)).await?;
    }
    Ok(chosen)
}

/// Asks the model for a word. What it says does not matter; that it says anything shows that key and model are good.
async fn answers(provider: impl ModelProvider) -> Result<(), ModelError> {
    use futures::StreamExt as _;
    let request = ModelRequest {
        system: Arc::from(""),
        messages: vec![Arc::new(Message::User { text: "Answer with the word: ok".to_owned() })],
        tools: Arc::from([]),
        max_output_tokens: Some(TEST_TOKENS),
        thinking: None,
    };
    let mut stream = provider.stream(request).await?;
    while let Some(event) = stream.next().await {
        if let ModelEvent::Stop(_) = event? {
            return Ok(());
        }
    }
    Err(ModelError::Stream("it ended without a final event".to_owned()))
}

/// Stores the key, writes the section, and gives the model to the default agent if that one cannot work without.
fn keep(
    paths: &Paths,
    context: &Context,
    model: &ModelRef,
    args: &LoginArgs,
    trial: &Trial,
    chosen: &str,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let of = |name: &str| format!("providers.models.{}.{}.{name}", model.family, model.alias);
    set(paths, &of("model"), chosen)?;
    if let Some(uri) = trial.uri.as_deref().filter(|_| args.uri.is_some() || model.family == Family::Custom) {
        set(paths, &of("uri"), uri)?;
    }
    if let Some(key) = &trial.key {
        store_key(paths, model, key)?;
        match get(paths, &context.env, &of("api_key")).map(|entry| (entry.value, entry.origin)) {
            Ok((Some(_), Origin::File)) => {
                // It would win over the new one.
                set(paths, &of("api_key"), "")?;
                writeln!(out, "The key that stood in the configuration was taken out.")?;
            }
            Ok((Some(_), Origin::Env { variable })) => {
                writeln!(out, "The variable {variable} has a key too, and wins while it is set.")?;
            }
            Ok(_) | Err(_) => {}
        }
        writeln!(out, "Stored the key of {model} in {}.", visible(&paths.credentials_file().to_string_lossy()))?;
    }
    let loaded = load(paths, &context.env)?;
    match to_be_given(&loaded, context) {
        Some(alias) => {
            set(paths, &format!("agents.{alias}.model_provider"), &model.to_string())?;
            writeln!(out, "The agent `{alias}` uses {} of {model}.", visible(chosen))?;
        }
        None => writeln!(out, "{} of {model} can be chosen as a model.", visible(chosen))?,
    }
    Ok(out.flush()?)
}

/// The agent that needs the new model: the default one, unless it works already.
fn to_be_given(loaded: &Loaded, context: &Context) -> Option<String> {
    let config = &loaded.config;
    if config.agents.is_empty() {
        return Some(DEFAULT_ALIAS.to_owned());
    }
    let mut names = config.agents.keys();
    let alias = match (&config.acp.default_agent, names.next(), names.next()) {
        (Some(alias), _, _) => alias.clone(),
        (None, Some(only), None) => only.clone(),
        // Nobody can say which.
        (None, _, _) => return None,
    };
    let table = agent_table(loaded, &context.env);
    match table.agents.get(&alias) {
        Some(AgentSlot::Ready(entry)) if entry.access == ModelAccess::Ready => None,
        Some(AgentSlot::Ready(_)) => Some(alias),
        // What is switched off stays off.
        Some(AgentSlot::Unavailable(_)) => {
            config.agents.get(&alias).is_some_and(|agent| agent.enabled).then_some(alias)
        }
        None => None,
    }
}

/// Enough for a model that thinks first, and nothing that costs.
const TEST_TOKENS: u32 = 64;
