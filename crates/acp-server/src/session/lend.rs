//! What the client that sent a prompt lends to its turn: its files and its terminals, asked for over the connection.
//! It asks only for what the client advertised, and refuses to decide anything: the runtime has judged before.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use zeroclaw_acp_protocol::{
    Codes, ErrorObject, client as method,
    lend::{
        self, CreateTerminal, EnvVariable, ReadTextFile, TerminalCall, TerminalCreated, TerminalOutput, TextFile,
        WriteTextFile, read_answer,
    },
};
use zeroclaw_runtime::client::{
    ClientError, ClientFiles, ClientMeans, ClientTerminal, ClientTerminals, Lines, TerminalExit, TerminalProgram,
    TerminalText,
};

use super::Pump;
use crate::{
    client::{Client, PeerAnswer, Question},
    server::ServerSettings,
};

/// Characters of a client's error text that are passed on.
const MAX_ERROR: usize = 300;

/// The longest id of a terminal: it is repeated in every call about it.
const MAX_TERMINAL_ID: usize = 1024;

/// One client, as one session asks it.
#[derive(Clone, Debug)]
struct Lender {
    client: Arc<Client>,
    pump: Arc<Pump>,
    session: Arc<str>,
    /// How long an answer is waited for that should come at once.
    patience: Duration,
}

/// What the client of a prompt lends.
pub(super) fn means(settings: &ServerSettings, client: &Arc<Client>, pump: &Arc<Pump>) -> ClientMeans {
    let can = client.capabilities();
    let terminal = can.terminal && settings.client_terminal;
    if !(can.read_text_file || can.write_text_file || terminal) {
        return ClientMeans::default();
    }
    let lender = Arc::new(Lender {
        client: Arc::clone(client),
        pump: Arc::clone(pump),
        session: pump.session(),
        patience: settings.client_timeout,
    });
    ClientMeans {
        reader: can.read_text_file.then(|| Arc::clone(&lender) as _),
        writer: can.write_text_file.then(|| Arc::clone(&lender) as _),
        terminals: terminal.then_some(lender as _),
    }
}

type Answers = mpsc::Receiver<(u64, PeerAnswer)>;

impl Lender {
    fn ask<P: Serialize>(&self, method: &str, params: &P) -> Result<(Question, Answers), ClientError> {
        if self.client.is_leaving() {
            return Err(ClientError::Absent);
        }
        let (sender, answers) = mpsc::channel(1);
        let question = self.client.ask(&self.pump, sender).ok_or(ClientError::Busy)?;
        question.send(method, params);
        Ok((question, answers))
    }

    /// Waits for one answer as long as the client is there.
    async fn answer(&self, question: &mut Question, answers: &mut Answers) -> Result<Box<RawValue>, ClientError> {
        let answer = tokio::select! {
            biased;
            answer = answers.recv() => answer,
            () = self.client.left() => None,
        };
        match answer {
            Some((_, PeerAnswer::Result(raw))) => {
                question.settle();
                Ok(raw)
            }
            Some((_, PeerAnswer::Error(error))) => {
                question.settle();
                Err(refusal(&error))
            }
            None => Err(ClientError::Gone),
        }
    }

    async fn call<P: Serialize>(&self, method: &str, params: &P) -> Result<Box<RawValue>, ClientError> {
        let (mut question, mut answers) = self.ask(method, params)?;
        let answer = self.answer(&mut question, &mut answers);
        tokio::time::timeout(self.patience, answer).await.unwrap_or(Err(ClientError::TimedOut))
    }
}

/// What a client's error means. Its text goes to the model, so it is short and on one line.
fn refusal(error: &ErrorObject) -> ClientError {
    if error.code == Codes::RESOURCE_NOT_FOUND {
        return ClientError::Missing;
    }
    let text: String = error.message.chars().take(MAX_ERROR).map(|c| if c.is_control() { ' ' } else { c }).collect();
    ClientError::Refused(format!("{text} ({})", error.code))
}

fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, ClientError> {
    read_answer(raw).ok_or(ClientError::Unclear)
}

#[async_trait]
impl ClientFiles for Lender {
    async fn read(&self, path: &Path, lines: Lines) -> Result<String, ClientError> {
        // A name that is no text cannot be said in JSON.
        let path = path.to_str().ok_or(ClientError::Absent)?;
        let params = ReadTextFile { session_id: &self.session, path, line: lines.first, limit: lines.count };
        let file: TextFile = read(&self.call(method::READ_TEXT_FILE, &params).await?)?;
        Ok(file.content)
    }

    async fn write(&self, path: &Path, content: &str) -> Result<(), ClientError> {
        let path = path.to_str().ok_or(ClientError::Absent)?;
        let params = WriteTextFile { session_id: &self.session, path, content };
        self.call(method::WRITE_TEXT_FILE, &params).await.map(drop)
    }
}

#[async_trait]
impl ClientTerminals for Lender {
    async fn create(&self, program: TerminalProgram<'_>) -> Result<Box<dyn ClientTerminal>, ClientError> {
        let [command, args @ ..] = program.argv else { return Err(ClientError::Unclear) };
        let env: Vec<EnvVariable<'_>> = program.env.iter().map(|(name, value)| EnvVariable { name, value }).collect();
        let params = CreateTerminal {
            session_id: &self.session,
            command,
            args,
            env: &env,
            cwd: Some(program.cwd.to_str().ok_or(ClientError::Absent)?),
            output_byte_limit: Some(program.max_output_bytes),
        };
        let (question, answers) = self.ask(method::TERMINAL_CREATE, &params)?;
        question.outlasts_cancel();
        let (made, making) = oneshot::channel();
        // A task of its own: whoever waits may go, and a terminal that is made then has nobody else to release it.
        tokio::spawn(take_terminal(self.clone(), question, answers, made));
        match tokio::time::timeout(self.patience, making).await {
            Ok(Ok(made)) => made.map(|terminal| Box::new(terminal) as _),
            Ok(Err(_)) => Err(ClientError::Gone),
            Err(_) => Err(ClientError::TimedOut),
        }
    }
}

/// Waits for a terminal, and hands it over. When nobody waits any more the question is withdrawn, and a terminal that
/// comes all the same is dropped, which releases it. Ends with the client at the latest.
async fn take_terminal(
    lender: Lender,
    mut question: Question,
    mut answers: Answers,
    mut made: oneshot::Sender<Result<Terminal, ClientError>>,
) {
    let waited = tokio::select! {
        biased;
        answer = lender.answer(&mut question, &mut answers) => Some(answer),
        () = made.closed() => None,
    };
    let answer = match waited {
        Some(answer) => answer,
        None => {
            question.withdraw();
            lender.answer(&mut question, &mut answers).await
        }
    };
    let terminal = answer.and_then(|raw| {
        let TerminalCreated { terminal_id } = read(&raw)?;
        if terminal_id.len() > MAX_TERMINAL_ID {
            return Err(ClientError::Unclear);
        }
        Ok(Terminal { lender, id: terminal_id })
    });
    drop(made.send(terminal));
}

/// A terminal of the client that is not released yet.
#[derive(Debug)]
struct Terminal {
    lender: Lender,
    id: String,
}

impl Terminal {
    fn params(&self) -> TerminalCall<'_> {
        TerminalCall { session_id: &self.lender.session, terminal_id: &self.id }
    }

    /// Sends a request whose answer changes nothing.
    fn tell(&self, method: &str) {
        self.lender.client.tell(&self.lender.pump, method, &self.params());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tell(method::TERMINAL_RELEASE);
    }
}

#[async_trait]
impl ClientTerminal for Terminal {
    fn id(&self) -> &str {
        &self.id
    }

    async fn exited(&self) -> Result<TerminalExit, ClientError> {
        let (mut question, mut answers) = self.lender.ask(method::TERMINAL_WAIT_FOR_EXIT, &self.params())?;
        // As long as the program runs; whoever waits has the limit.
        let raw = self.lender.answer(&mut question, &mut answers).await?;
        let lend::TerminalExit { exit_code, signal } = read(&raw)?;
        Ok(TerminalExit { code: exit_code, signal })
    }

    async fn output(&self) -> Result<TerminalText, ClientError> {
        let raw = self.lender.call(method::TERMINAL_OUTPUT, &self.params()).await?;
        let TerminalOutput { output, truncated, exit_status: _ } = read(&raw)?;
        Ok(TerminalText { text: output, cut: truncated })
    }

    fn kill(&self) {
        self.tell(method::TERMINAL_KILL);
    }
}
