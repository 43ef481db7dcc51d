//! The tools that talk to the user through the client and touch nothing else: `todo_write`, `ask_user`, `escalate_to_human`.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroclaw_policy::{Action, Permit};

use crate::{
    model::ToolSpec,
    tool::{
        CallView, PlanEntry, PlanPriority, PlanStatus, PreparedCall, Progress, Tool, ToolContent, ToolContext,
        ToolFailure, ToolKind, ToolOutcome,
        args::{parse, spec, wrong_permit},
        show,
    },
    turn::Answer,
};

/// Steps of a plan.
const MAX_STEPS: usize = 200;

/// Bytes of a question, a summary or a step.
const MAX_TEXT: usize = 8 * 1024;

/// Choices of a question, and bytes of each: clients show them as buttons.
const MAX_CHOICES: usize = 20;
const MAX_CHOICE: usize = 500;

/// The answers offered when a person is waited for.
const ESCALATION_CHOICES: [&str; 2] = ["Continue", "Stop"];

/// The tool `todo_write`.
#[derive(Debug)]
pub(super) struct TodoWrite {
    spec: ToolSpec,
}

impl TodoWrite {
    pub(super) fn new() -> Self {
        let spec = spec(
            "todo_write",
            "Shows the user the plan of work. Always give the complete list; it replaces the former one.",
            json!({
                "todos": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "content": { "type": "string" },
                            "status": { "type": "string", "enum": ["pending", "in_progress", "completed"] },
                            "priority": { "type": "string", "enum": ["high", "medium", "low"] }
                        },
                        "required": ["content", "status"]
                    }
                }
            }),
            &["todos"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Todos {
    todos: Vec<Todo>,
}

#[derive(Deserialize)]
struct Todo {
    content: String,
    status: Status,
    #[serde(default)]
    priority: Priority,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

impl From<Todo> for PlanEntry {
    fn from(todo: Todo) -> Self {
        Self {
            content: todo.content,
            priority: match todo.priority {
                Priority::High => PlanPriority::High,
                Priority::Medium => PlanPriority::Medium,
                Priority::Low => PlanPriority::Low,
            },
            status: match todo.status {
                Status::Pending => PlanStatus::Pending,
                Status::InProgress => PlanStatus::InProgress,
                Status::Completed => PlanStatus::Completed,
            },
        }
    }
}

#[async_trait]
impl Tool for TodoWrite {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, _context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let todos = parse::<Todos>(arguments)?.todos;
        if todos.len() > MAX_STEPS {
            return Err(ToolFailure::Arguments(format!("a plan has at most {MAX_STEPS} steps")));
        }
        for todo in &todos {
            within("content", &todo.content, MAX_TEXT)?;
        }
        let entries: Vec<PlanEntry> = todos.into_iter().map(PlanEntry::from).collect();
        let title = format!("Update the plan ({} steps)", entries.len());
        Ok(Box::new(Call { title, content: Vec::new(), talk: Talk::Plan(entries) }))
    }
}

/// The tool `ask_user`.
#[derive(Debug)]
pub(super) struct AskUser {
    spec: ToolSpec,
}

impl AskUser {
    pub(super) fn new() -> Self {
        let spec = spec(
            "ask_user",
            "Asks the user a question and waits for the answer. Give `choices` whenever the possible answers are known.",
            json!({
                "question": { "type": "string" },
                "choices": { "type": "array", "items": { "type": "string" }, "maxItems": MAX_CHOICES }
            }),
            &["question"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Question {
    question: String,
    choices: Option<Vec<String>>,
}

#[async_trait]
impl Tool for AskUser {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, _context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let Question { question, choices } = parse(arguments)?;
        let choices = choices.unwrap_or_default();
        within("question", &question, MAX_TEXT)?;
        if choices.len() > MAX_CHOICES {
            return Err(ToolFailure::Arguments(format!("a question has at most {MAX_CHOICES} choices")));
        }
        for (index, choice) in choices.iter().enumerate() {
            within("choices", choice, MAX_CHOICE)?;
            if choices.iter().take(index).any(|other| other == choice) {
                return Err(ToolFailure::Arguments(format!("the choice `{choice}` is given twice")));
            }
        }
        let title = show::title(&format!("Ask: {question}"));
        let content = vec![ToolContent::Text(show::text(&question))];
        Ok(Box::new(Call { title, content, talk: Talk::Question { question, choices } }))
    }
}

/// The tool `escalate_to_human`.
#[derive(Debug)]
pub(super) struct EscalateToHuman {
    spec: ToolSpec,
}

impl EscalateToHuman {
    pub(super) fn new() -> Self {
        let spec = spec(
            "escalate_to_human",
            "Tells the user about something that needs a person. With `wait` the work goes on only after an answer.",
            json!({
                "summary": { "type": "string" },
                "urgency": { "type": "string", "enum": ["low", "medium", "high"] },
                "wait": { "type": "boolean" }
            }),
            &["summary", "urgency"],
        );
        Self { spec }
    }
}

#[derive(Deserialize)]
struct Escalation {
    summary: String,
    urgency: Priority,
    wait: Option<bool>,
}

#[async_trait]
impl Tool for EscalateToHuman {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }

    fn parallel_safe(&self) -> bool {
        false
    }

    async fn prepare(&self, arguments: &Value, _context: &ToolContext) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let Escalation { summary, urgency, wait } = parse(arguments)?;
        within("summary", &summary, MAX_TEXT)?;
        let urgency = match urgency {
            Priority::High => "high",
            Priority::Medium => "medium",
            Priority::Low => "low",
        };
        let title = show::title(&format!("Escalate ({urgency}): {summary}"));
        let content = vec![ToolContent::Text(show::text(&summary))];
        let message = format!("**[Needs a person, urgency {urgency}]** {}", show::text(&summary));
        let talk = Talk::Escalation { summary, message, wait: wait.unwrap_or(false) };
        Ok(Box::new(Call { title, content, talk }))
    }
}

fn within(name: &str, text: &str, most: usize) -> Result<(), ToolFailure> {
    if text.trim().is_empty() {
        return Err(ToolFailure::Arguments(format!("`{name}` is empty")));
    }
    if text.len() > most {
        return Err(ToolFailure::Arguments(format!(
            "`{name}` has {} bytes, more than the limit of {most}",
            text.len()
        )));
    }
    Ok(())
}

enum Talk {
    Plan(Vec<PlanEntry>),
    Question { question: String, choices: Vec<String> },
    Escalation { summary: String, message: String, wait: bool },
}

struct Call {
    title: String,
    content: Vec<ToolContent>,
    talk: Talk,
}

#[async_trait]
impl PreparedCall for Call {
    fn action(&self) -> Action {
        Action::Converse
    }

    fn view(&self) -> CallView {
        CallView { title: self.title.clone(), locations: Vec::new(), content: self.content.clone() }
    }

    async fn run(
        self: Box<Self>,
        permit: Permit,
        context: &ToolContext,
        progress: &dyn Progress,
    ) -> Result<ToolOutcome, ToolFailure> {
        let Action::Converse = permit.into_action() else {
            return Err(wrong_permit());
        };
        match self.talk {
            Talk::Plan(entries) => {
                progress.plan(&entries);
                Ok(said(format!("The plan has {} steps.", entries.len())))
            }
            Talk::Question { question, choices } => ask(context, &question, &choices).await,
            Talk::Escalation { summary, message, wait } => {
                progress.message(&message);
                if !wait {
                    return Ok(said("The user was told.".to_owned()));
                }
                let choices = ESCALATION_CHOICES.map(str::to_owned);
                ask(context, &summary, &choices).await
            }
        }
    }
}

/// Asks and waits; a cancelled turn does not wait for its answer.
async fn ask(context: &ToolContext, question: &str, choices: &[String]) -> Result<ToolOutcome, ToolFailure> {
    let answer = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
        answer = context.asker.ask(&context.call_id, question, choices) => answer,
    };
    match answer {
        Answer::Choice(choice) => {
            let mut outcome = said(format!("The user answered: {choice}"));
            // What both wrote is shown with its hidden characters visible; the model gets the answer as it is.
            outcome.content = vec![ToolContent::Text(show::text(&format!("{question}\n\n{}", outcome.model_text)))];
            Ok(outcome)
        }
        Answer::None(why) => Ok(said(format!("The user gave no answer: {why}"))),
        Answer::Unsupported(why) if choices.is_empty() => {
            Err(ToolFailure::Failed(format!("the client cannot ask for free text ({why}); give `choices`")))
        }
        Answer::Unsupported(why) => Err(ToolFailure::Failed(format!("the client cannot ask: {why}"))),
    }
}

fn said(text: String) -> ToolOutcome {
    ToolOutcome {
        content: vec![ToolContent::Text(text.clone())],
        model_text: text,
        locations: Vec::new(),
        title: None,
        failed: false,
    }
}
