//! Measures the store on the disk it will live on: `cargo run --release --example throughput -- <directory>`.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use zeroclaw_session_store::{
    Batch, EventKind, EventRecord, NewSession, SessionStore, SqliteOptions, SqliteStore, SyncMode, TurnEnd, TurnStart,
    TurnState,
};

const BATCHES: u64 = 400;
const BATCH: u64 = 500;
const PAYLOAD: usize = 150;
const WRITERS: usize = 64;
const SINGLES: u64 = 500;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let directory = std::env::args_os().nth(1).ok_or("give a directory")?;
    let path = PathBuf::from(directory).join("throughput.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    runtime.block_on(measure(&path))
}

async fn measure(path: &Path) -> Outcome {
    let began = Instant::now();
    let store = Arc::new(open(path).await?);
    report("first open", 1, began.elapsed())?;

    for id in (0..WRITERS).map(name) {
        store.create_session(session(id)).await?;
    }

    let began = Instant::now();
    for number in 0..BATCHES {
        store.append("s0", batch(number * BATCH, BATCH)).await?;
    }
    report("events in batches of 500", BATCHES * BATCH, began.elapsed())?;

    let began = Instant::now();
    let writers: Vec<_> = (1..WRITERS)
        .map(|index| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for number in 0..SINGLES {
                    store.append(&name(index), batch(number, 1)).await?;
                }
                Ok::<(), zeroclaw_session_store::StoreError>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let singles = SINGLES * (WRITERS as u64 - 1);
    report("single events of 63 sessions", singles, began.elapsed())?;

    let began = Instant::now();
    for turn in 1..=50 {
        let start = TurnStart { turn, prompt: Bytes::from_static(b"[]"), started_at_ms: 0, batch: Batch::default() };
        store.begin_turn("s1", start).await?;
        let end =
            TurnEnd { turn, state: TurnState::Completed, stop_reason: None, ended_at_ms: 0, batch: Batch::default() };
        store.end_turn("s1", end).await?;
    }
    report("turns, begun and ended", 50, began.elapsed())?;

    let began = Instant::now();
    let (mut read, mut last) = (0_u64, 0);
    loop {
        let page = store.events("s0", last, 1_000).await?;
        let Some(event) = page.last() else { break };
        last = event.seq;
        read += page.len() as u64;
    }
    report("events read in pages of 1000", read, began.elapsed())?;

    let began = Instant::now();
    store.close().await?;
    report("close", 1, began.elapsed())?;
    let mut opens = Vec::new();
    for _ in 0..21 {
        let began = Instant::now();
        let store = open(path).await?;
        opens.push(began.elapsed());
        store.close().await?;
    }
    opens.sort_unstable();
    report("fastest open again", 1, opens[0])?;
    report("median open again", 1, opens[10])?;
    Ok(())
}

async fn open(path: &Path) -> Result<SqliteStore, Box<dyn Error>> {
    let options = SqliteOptions {
        path: path.to_owned(),
        sync: SyncMode::Turn,
        instance: "throughput".to_owned(),
        busy_timeout: Duration::from_secs(5),
    };
    Ok(SqliteStore::open(options).await?)
}

fn name(index: usize) -> String {
    format!("s{index}")
}

fn session(id: String) -> NewSession {
    NewSession {
        id: id.into(),
        workspace: PathBuf::from("/w"),
        agent: "main".to_owned(),
        created_at_ms: 0,
        additional_directories: Vec::new(),
    }
}

fn batch(after: u64, count: u64) -> Batch {
    let head = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#;
    let payload = Bytes::from(format!("{head}{:x<1$}\"}}}}", "", PAYLOAD - head.len() - 3));
    let event = |seq| EventRecord { seq, kind: EventKind::Update, turn: Some(1), payload: payload.clone() };
    Batch { events: (after + 1..=after + count).map(event).collect(), messages: Vec::new() }
}

fn report(what: &str, count: u64, took: Duration) -> std::io::Result<()> {
    let rate = count as f64 / took.as_secs_f64();
    writeln!(std::io::stdout(), "{what}: {count} in {:.2} ms, {rate:.0}/s", took.as_secs_f64() * 1e3)
}
