//! One tool of one server, as the agent's loop sees it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde_json::{Map, Value};
use zeroclaw_policy::{Action, CallHint, Permit};

use crate::{
    mcp::{call, names::tool_name, server::Server},
    model::ToolSpec,
    tool::{
        CallView, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::wrong_permit, show,
    },
};

/// Bytes of a description that go to the model; longer ones are cut. A description is read with every request.
const MAX_DESCRIPTION: usize = 4096;

/// Bytes of a schema; a tool with a larger one is left out.
const MAX_SCHEMA: usize = 64 * 1024;

/// A tool of a server.
pub(super) struct McpTool {
    server: Arc<Server>,
    /// Its name at the server.
    name: String,
    title: Option<String>,
    hint: CallHint,
    spec: ToolSpec,
}

impl fmt::Debug for McpTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("McpTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl McpTool {
    /// Takes a tool as the server described it; `None` when it cannot be offered to a model.
    pub(super) fn new(server: &Arc<Server>, tool: rmcp::model::Tool) -> Option<Self> {
        let parameters = Value::Object(Map::clone(&tool.input_schema));
        if tool.name.is_empty() || parameters.to_string().len() > MAX_SCHEMA {
            return None;
        }
        let mut description = tool.description.map(String::from).unwrap_or_default();
        description.truncate(description.floor_char_boundary(MAX_DESCRIPTION));
        let hints = tool.annotations.as_ref();
        let hint = match hints {
            Some(hints) if hints.read_only_hint == Some(true) => CallHint::ReadOnly,
            Some(hints) if hints.destructive_hint == Some(false) => CallHint::Additive,
            Some(hints) if hints.destructive_hint == Some(true) => CallHint::Destructive,
            Some(_) | None => CallHint::None,
        };
        let title = tool.title.or_else(|| hints.and_then(|hints| hints.title.clone()));
        Some(Self {
            spec: ToolSpec { name: tool_name(server.name(), &tool.name), description, parameters },
            name: tool.name.into_owned(),
            title: title.filter(|title| !title.trim().is_empty()),
            hint,
            server: Arc::clone(server),
        })
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        // What the server says of itself decides nothing, and `read` would say that it changes nothing.
        ToolKind::Other
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, _context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        if !arguments.is_object() {
            return Err(ToolFailure::Arguments("expected an object".to_owned()));
        }
        let action = Action::Call {
            server: self.server.name().to_owned(),
            origin: self.server.origin().to_owned(),
            tool: self.name.clone(),
            arguments: Arc::from(arguments.to_string()),
            hint: self.hint,
        };
        let what = self.title.as_deref().unwrap_or(&self.name);
        let title = show::title(&format!("{}: {what}", self.server.name()));
        Ok(Box::new(Call { server: Arc::clone(&self.server), action, title }))
    }
}

struct Call {
    server: Arc<Server>,
    action: Action,
    title: String,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        self.action.clone()
    }

    fn view(&self) -> CallView {
        let content = match &self.action {
            Action::Call { tool, arguments, .. } => {
                let pretty = serde_json::from_str::<Value>(arguments)
                    .ok()
                    .and_then(|value| serde_json::to_string_pretty(&value).ok())
                    .unwrap_or_else(|| arguments.to_string());
                let head = format!(
                    "Calls {} of the MCP server {} with:\n\n",
                    show::inline_code(&show::line(tool)),
                    show::inline_code(&show::line(self.server.name()))
                );
                vec![ToolContent::Text(head + &show::code_block("json", &pretty))]
            }
            Action::Read { .. } | Action::Write { .. } | Action::Run { .. } | Action::Converse => Vec::new(),
        };
        CallView { title: self.title.clone(), locations: Vec::new(), content }
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        let Action::Call { server, origin, tool, arguments, .. } = permit.into_action() else {
            return Err(wrong_permit());
        };
        if server != self.server.name() || origin != self.server.origin() {
            return Err(ToolFailure::Failed("the permit is for another server".to_owned()));
        }
        call::run(&self.server, tool, &arguments, context, progress).await
    }
}
