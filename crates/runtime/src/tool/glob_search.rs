//! Finds files by name. Results are absolute, sorted by directory, and never more than a fixed number.

use std::ops::ControlFlow;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroclaw_policy::{Action, Permit, RootedPath};

use crate::{
    model::ToolSpec,
    tool::{
        CallView, Location, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure, ToolKind, ToolOutcome,
        args::{locate, parse, reading, shown_path, spec, wrong_permit},
        output::bounded,
        pattern::FilePattern,
        show,
        walk::{End, walk},
    },
};

/// Files listed.
const MAX_RESULTS: usize = 1000;

/// The tool `glob_search`.
#[derive(Debug)]
pub(super) struct GlobSearch {
    spec: ToolSpec,
}

impl GlobSearch {
    pub(super) fn new() -> Self {
        let spec = spec(
            "glob_search",
            "Finds files by a name pattern such as `*.rs` (any directory) or `src/**/*.rs`. Files named by `.gitignore` are left out.",
            json!({
                "pattern": { "type": "string", "description": "The pattern, relative to `path`." },
                "path": { "type": "string", "description": "Where to search; the working directory by default." }
            }),
            &["pattern"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
}

#[async_trait]
impl Tool for GlobSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn parallel_safe(&self) -> bool {
        true
    }

    async fn prepare(&self, arguments: &Value, context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let arguments: Arguments = parse(arguments)?;
        let base = locate(context, arguments.path.as_deref().unwrap_or("."))?;
        let pattern = FilePattern::new(&arguments.pattern)?;
        let place = shown_path(context.jail.roots(), base.absolute());
        let title = show::title(&format!("Find {} in {place}", arguments.pattern));
        Ok(Box::new(Call { base, pattern, title }))
    }
}

struct Call {
    base: RootedPath,
    pattern: FilePattern,
    title: String,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Read { path: self.base.clone() }
    }

    fn view(&self) -> CallView {
        let location = Location { path: self.base.absolute().to_owned(), line: None };
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
        let (jail, cancel, pattern) = (context.jail.clone(), context.cancel.clone(), self.pattern);
        let (found, end) = reading(context, move |files| {
            let mut found = Vec::new();
            let end = walk(files, jail.roots(), &path, &cancel, |file| {
                if pattern.fits(file.relative) {
                    if found.len() == MAX_RESULTS {
                        return ControlFlow::Break(());
                    }
                    found.push(file.path.to_owned());
                }
                ControlFlow::Continue(())
            })?;
            Ok((found, end))
        })
        .await?;
        let mut text = String::new();
        for path in &found {
            text.push_str(&show::line(&path.display().to_string()));
            text.push('\n');
        }
        if found.is_empty() {
            text.push_str("[no file fits]\n");
        }
        match end {
            End::Complete => {}
            End::Stopped => text.push_str(&format!("[more than {MAX_RESULTS} files fit; use a narrower pattern]\n")),
            End::Limited => text.push_str("[the directory is too large; not everything was searched]\n"),
        }
        let text = bounded(&text, context.settings.max_output_bytes);
        Ok(ToolOutcome {
            content: vec![ToolContent::Text(show::fenced("", &text))],
            model_text: text,
            locations: Vec::new(),
            title: None,
            failed: false,
        })
    }
}
