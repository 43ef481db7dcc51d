//! The names of the models that a vendor has, for choosing one at a login. Not on the way of any prompt.

use futures::StreamExt;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio::time::timeout;

use crate::model::{
    ModelError,
    vendor::{Family, HttpClients, VendorConfig, failure, http, ollama},
};

/// Asks the vendor for the names of its models, in its order.
///
/// # Errors
/// What the vendor or the network said, or an address that cannot be used.
pub async fn models(config: &VendorConfig, clients: &HttpClients) -> Result<Vec<String>, ModelError> {
    let (url, headers) = match config.family {
        Family::Anthropic => {
            let mut url = http::address(&based(config, "messages"), "v1", "models")?;
            url.set_query(Some("limit=1000"));
            let mut headers = keyed("x-api-key", config)?;
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
            (url, headers)
        }
        Family::Gemini => {
            let mut url = http::address(config, "v1beta", "models")?;
            url.set_query(Some("pageSize=1000"));
            (url, keyed("x-goog-api-key", config)?)
        }
        Family::Ollama => (ollama::address(config, "api/tags")?, http::bearer(config.api_key.as_ref())?),
        Family::Openai | Family::Openrouter | Family::Llamacpp | Family::Lmstudio | Family::Vllm | Family::Custom => {
            let url = http::address(&based(config, "chat/completions"), "v1", "models")?;
            (url, http::bearer(config.api_key.as_ref())?)
        }
    };
    let response = clients.get(config, url, headers).await?;
    let mut body = response.bytes_stream();
    let mut text = Vec::new();
    loop {
        let next = timeout(config.idle_timeout, body.next());
        match next.await.map_err(|_| ModelError::Idle(config.idle_timeout.as_secs()))? {
            Some(Ok(bytes)) => text.extend_from_slice(&bytes),
            Some(Err(error)) => {
                return Err(ModelError::Stream(failure::chain(&error.without_url(), config.api_key.as_ref())));
            }
            None => return names(&text),
        }
        if text.len() > MAX_BYTES {
            return Err(ModelError::Stream(format!("the list of models is longer than {} MiB", MAX_BYTES >> 20)));
        }
    }
}

/// The configuration with an address that does not end in the path of a call.
fn based(config: &VendorConfig, call: &str) -> VendorConfig {
    let mut config = config.clone();
    if let Some(uri) = &mut config.uri {
        let base = uri.trim().trim_end_matches('/');
        *uri = base.strip_suffix(call).unwrap_or(base).to_owned();
    }
    config
}

fn keyed(name: &'static str, config: &VendorConfig) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = &config.api_key {
        headers.insert(name, http::secret_header(key.expose().trim())?);
    }
    Ok(headers)
}

#[derive(Deserialize)]
struct List {
    #[serde(default, alias = "models")]
    data: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    /// What the model can do, where the vendor says so.
    #[serde(default)]
    supported_generation_methods: Option<Vec<String>>,
}

fn names(body: &[u8]) -> Result<Vec<String>, ModelError> {
    let list: List = serde_json::from_slice(body)
        .map_err(|error| ModelError::Stream(format!("the list of models was not understood: {error}")))?;
    let talks = |model: &Listed| {
        let methods = model.supported_generation_methods.as_deref();
        methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
    };
    let named = list.data.into_iter().filter(talks).filter_map(|model| model.id.or(model.name));
    let plain = named.map(|name| name.strip_prefix("models/").unwrap_or(&name).to_owned());
    Ok(plain.filter(|name| !name.is_empty() && !name.chars().any(char::is_control)).take(MAX_MODELS).collect())
}

/// The longest known list has 500 models and one MiB.
const MAX_BYTES: usize = 8 << 20;
const MAX_MODELS: usize = 5_000;

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn every_form_of_a_list_is_read() {
        for (body, expected) in [
            (r#"{"object":"list","data":[{"id":"a","object":"model"},{"id":"b"}]}"#, vec!["a", "b"]),
            (r#"{"models":[{"name":"llama3.2:latest","size":1}]}"#, vec!["llama3.2:latest"]),
            (
                r#"{"models":[{"name":"models/g","supportedGenerationMethods":["generateContent"]},
                    {"name":"models/e","supportedGenerationMethods":["embedContent"]}]}"#,
                vec!["g"],
            ),
            (r#"{"data":[{"id":"x\u001b[2J"},{}]}"#, vec![]),
        ] {
            assert_eq!(names(body.as_bytes()).unwrap(), expected, "{body}");
        }
        assert!(names(b"<html>").is_err());
    }
}
