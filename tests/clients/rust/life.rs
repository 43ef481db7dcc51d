//! The official Rust client gets through a life of a session at the built daemon, over WebSocket and over streamable HTTP.

use std::{
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent_client_protocol::{
    Agent, Client, Error, on_receive_notification, on_receive_request,
    schema::ProtocolVersion,
    v1::{
        ConnectionTo,
        schema::{
            CancelNotification, CloseSessionRequest, ContentBlock, DeleteSessionRequest, InitializeRequest,
            ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PermissionOptionKind, PromptRequest,
            RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
            SessionId, SessionNotification, SessionUpdate, StopReason, TextContent,
        },
    },
};
use agent_client_protocol_http::HttpClient;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    sync::mpsc,
};
use zeroclaw_e2e::Lab;

/// Longer than anything here takes on a busy machine; only a fault waits for it.
const LIMIT: Duration = Duration::from_secs(120);

/// A running daemon on a port of its own, and a token for it.
struct Daemon {
    _child: Child,
    address: String,
    token: String,
}

impl Daemon {
    async fn start(lab: &Lab) -> Self {
        let mut command = lab.command("zeroclaw");
        command.args(["daemon", "--port", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // The rest is read too, so that the daemon never waits for its log.
        tokio::spawn(async move {
            let mut sender = Some(sender);
            while let Ok(Some(line)) = lines.next_line().await {
                let place = line.split_once("listening on http://").and_then(|(_, place)| place.split_once("/acp"));
                if let Some((address, _)) = place
                    && let Some(sender) = sender.take()
                {
                    sender.send(address.to_owned()).unwrap();
                }
            }
        });
        let address = tokio::time::timeout(LIMIT, receiver).await.expect("in time").expect("the daemon listens");
        let made = lab.command("zeroclaw").args(["tokens", "create", "sdk"]).output().await.unwrap();
        let token = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
        assert!(token.starts_with("zc_"), "a token is made");
        Self { _child: child, address, token }
    }

    fn client(&self, scheme: &str) -> HttpClient {
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        HttpClient::builder(format!("{scheme}://{}", self.address))
            .configure_http(|http| http.default_headers(headers).no_proxy())
            .build()
            .unwrap()
    }
}

/// What the handlers of one connection were given.
#[derive(Clone, Default)]
struct Seen {
    updates: Arc<Mutex<Vec<SessionUpdate>>>,
    asked: Arc<Mutex<u32>>,
}

impl Seen {
    fn text(&self, of_user: bool) -> String {
        let updates = self.updates.lock().unwrap();
        let chunks = updates.iter().filter_map(|update| match update {
            SessionUpdate::AgentMessageChunk(chunk) if !of_user => Some(&chunk.content),
            SessionUpdate::UserMessageChunk(chunk) if of_user => Some(&chunk.content),
            _ => None,
        });
        chunks
            .filter_map(|content| if let ContentBlock::Text(text) = content { Some(text.text.as_str()) } else { None })
            .collect()
    }
}

/// Runs a client over one connection. Every permission is given, unless `refuse` is set.
async fn connected<R>(
    client: HttpClient,
    seen: &Seen,
    refuse: &Arc<AtomicBool>,
    started: Option<mpsc::UnboundedSender<()>>,
    main: impl AsyncFnOnce(ConnectionTo<Agent>) -> Result<R, Error>,
) -> R {
    let (updates, asked, refuse) = (Arc::clone(&seen.updates), Arc::clone(&seen.asked), Arc::clone(refuse));
    let running = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                updates.lock().unwrap().push(notification.update);
                if let Some(started) = &started {
                    let _nobody_waits = started.send(());
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                *asked.lock().unwrap() += 1;
                let refused = refuse.load(Ordering::SeqCst);
                let kind = if refused { PermissionOptionKind::RejectOnce } else { PermissionOptionKind::AllowOnce };
                let option = request.options.iter().find(|option| option.kind == kind).expect("an option of this kind");
                let chosen = SelectedPermissionOutcome::new(option.option_id.clone());
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(chosen)))
            },
            on_receive_request!(),
        )
        .connect_with(client, main);
    tokio::time::timeout(LIMIT, running).await.expect("the conversation ends").expect("the connection holds")
}

async fn prompt(agent: &ConnectionTo<Agent>, session: &SessionId, text: &str) -> Result<StopReason, Error> {
    let blocks = vec![ContentBlock::Text(TextContent::new(text))];
    Ok(agent.send_request(PromptRequest::new(session.clone(), blocks)).block_task().await?.stop_reason)
}

async fn life(scheme: &str) {
    let lab = Lab::new();
    let daemon = Daemon::start(&lab).await;
    let (live, refuse, project) = (Seen::default(), Arc::<AtomicBool>::default(), lab.project());
    let (started, mut events) = mpsc::unbounded_channel();
    let (refusing, made) = (Arc::clone(&refuse), project.join("made.txt"));
    let session = connected(daemon.client(scheme), &live, &refuse, Some(started), async |agent| {
        agent.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
        let session = agent.send_request(NewSessionRequest::new(project.clone())).block_task().await?.session_id;
        assert_eq!(prompt(&agent, &session, "/say 3").await?, StopReason::EndTurn);
        assert_eq!(prompt(&agent, &session, "/run touch made.txt").await?, StopReason::EndTurn);
        assert!(made.exists(), "the permitted command ran");
        refusing.store(true, Ordering::SeqCst);
        assert_eq!(prompt(&agent, &session, "/run touch refused.txt").await?, StopReason::EndTurn);
        assert!(!made.with_file_name("refused.txt").exists(), "the refused command did not run");
        refusing.store(false, Ordering::SeqCst);
        while events.try_recv().is_ok() {}
        let running = prompt(&agent, &session, "/say 1\n/run sleep 3600");
        let cancelling = async {
            events.recv().await.expect("the turn streams");
            agent.send_notification(CancelNotification::new(session.clone()))
        };
        let (stopped, cancelled) = tokio::join!(running, cancelling);
        cancelled?;
        assert_eq!(stopped?, StopReason::Cancelled);
        agent.send_request(CloseSessionRequest::new(session.clone())).block_task().await?;
        Ok(session)
    })
    .await;
    assert!(live.text(false).starts_with("chunk 1 chunk 2 chunk 3 "), "{}", live.text(false));
    assert!(*live.asked.lock().unwrap() >= 2);

    let replayed = Seen::default();
    connected(daemon.client(scheme), &replayed, &refuse, None, async |agent| {
        agent.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
        let listed = agent.send_request(ListSessionsRequest::new()).block_task().await?;
        assert_eq!(listed.sessions.iter().map(|listed| &listed.session_id).collect::<Vec<_>>(), [&session]);
        agent.send_request(LoadSessionRequest::new(session.clone(), project.clone())).block_task().await?;
        // Before anything else is asked: the replay comes before the answer.
        assert_eq!(replayed.text(false), live.text(false));
        let asked = "/say 3/run touch made.txt/run touch refused.txt/say 1\n/run sleep 3600";
        assert_eq!(replayed.text(true), asked);
        agent.send_request(CloseSessionRequest::new(session.clone())).block_task().await?;
        agent.send_request(DeleteSessionRequest::new(session.clone())).block_task().await?;
        let left = agent.send_request(ListSessionsRequest::new()).block_task().await?;
        assert!(left.sessions.is_empty(), "{:?}", left.sessions);
        let gone = agent.send_request(LoadSessionRequest::new(session.clone(), project.clone())).block_task().await;
        assert!(gone.is_err(), "a deleted session is not loaded");
        Ok(())
    })
    .await;
}

/// A client library that opens its streams in another order than ours would hang at the first answer.
#[tokio::test]
async fn client_12_the_official_rust_client_gets_through_a_life_over_http() {
    life("http").await;
}

#[tokio::test]
async fn client_13_the_official_rust_client_gets_through_a_life_over_websocket() {
    life("ws").await;
}
