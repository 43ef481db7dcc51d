//! Lists one directory. Links are named as links, their targets are not looked at.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroclaw_policy::{Action, Permit, RootedPath};

use crate::{
    jail::{EntryKind, Listing},
    model::ToolSpec,
    tool::{
        CallView, Location, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::{locate, parse, reading, shown_path, spec, wrong_permit},
        output::bounded,
        show,
    },
};

/// Names listed; a model has no use for more.
const MAX_ENTRIES: usize = 2000;

/// The tool `list_dir`.
#[derive(Debug)]
pub(super) struct ListDir {
    spec: ToolSpec,
}

impl ListDir {
    pub(super) fn new() -> Self {
        let spec = spec(
            "list_dir",
            "Lists the names in a directory: directories end with `/`, links with `@`, files show their size.",
            json!({ "path": { "type": "string", "description": "The directory; the working directory by default." } }),
            &[],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
}

#[async_trait]
impl Tool for ListDir {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn parallel_safe(&self) -> bool {
        true
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let arguments: Arguments = parse(arguments)?;
        let path = locate(context, arguments.path.as_deref().unwrap_or("."))?;
        let title = show::title(&format!("List {}", shown_path(context.jail.roots(), path.absolute())));
        Ok(Box::new(Call { path, title }))
    }
}

struct Call {
    path: RootedPath,
    title: String,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Read { path: self.path.clone() }
    }

    fn view(&self) -> CallView {
        let location = Location { path: self.path.absolute().to_owned(), line: None };
        CallView { title: self.title.clone(), locations: vec![location], content: Vec::new() }
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        _progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        let Action::Read { path } = permit.into_action() else {
            return Err(wrong_permit());
        };
        let listing = reading(context, move |files| Ok(files.read_dir(&path, MAX_ENTRIES)?)).await?;
        let text = bounded(&render(&listing), context.settings.max_output_bytes);
        Ok(ToolOutcome {
            content: vec![ToolContent::Text(show::fenced("", &text))],
            model_text: text,
            locations: Vec::new(),
            title: None,
            failed: false,
        })
    }
}

fn render(listing: &Listing) -> String {
    let mut out = String::new();
    for entry in &listing.entries {
        let name = show::line(&entry.name.to_string_lossy());
        match entry.kind {
            EntryKind::File => out.push_str(&format!("{name} ({} bytes)\n", entry.size)),
            EntryKind::Directory => out.push_str(&format!("{name}/\n")),
            EntryKind::Link => out.push_str(&format!("{name}@\n")),
            EntryKind::Special => out.push_str(&format!("{name} (pipe, socket or device)\n")),
        }
    }
    if listing.cut {
        out.push_str(&format!("[more than {MAX_ENTRIES} names]\n"));
    }
    if out.is_empty() {
        out.push_str("[the directory is empty]\n");
    }
    out
}
