//! What every store promises, run against each of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use zeroclaw_session_store::{
    ApprovalQuery, ApprovalRecord, Batch, ClaimError, EventKind, EventRecord, ListCursor, ListQuery, MAX_APPROVALS,
    MAX_BATCH_BYTES, MAX_PAGE_BYTES, NewApproval, NewSession, Ruling, SessionPatch, SessionRecord, SessionStore,
    StoreError, TurnEnd, TurnRecord, TurnState,
};

use crate::support::{all_events, approval, end, event, events, message, messages, padded, session, start};

macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            use std::sync::Arc;
            use zeroclaw_session_store::MemoryStore;
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(Arc::new(MemoryStore::new())).await;
                }
            )*
        }
        mod sqlite {
            use std::sync::Arc;
            $(
                #[tokio::test]
                async fn $name() {
                    let directory = tempfile::tempdir().unwrap();
                    let store = Arc::new(crate::support::open(directory.path(), "one").await);
                    super::$name(store).await;
                }
            )*
        }
    };
}

contract!(
    a_new_session_reads_back,
    an_id_is_taken_once,
    events_come_back_in_pages_and_exactly,
    a_page_ends_by_size,
    what_does_not_follow_on_is_refused_whole,
    messages_come_back_in_order,
    a_turn_begins_and_ends_once,
    a_release_interrupts_and_a_repair_ends,
    a_patch_changes_what_it_names,
    the_list_pages_through_equal_times,
    the_list_knows_workspaces,
    a_deleted_session_is_gone,
    claims_know_their_session,
    a_batch_has_a_limit,
    concurrent_appends_all_land,
    a_conflict_hurts_only_its_caller,
    approvals_are_kept_by_agent_and_directory,
    approvals_have_a_limit,
    a_deleted_session_takes_its_approvals_along,
    nothing_works_after_close,
);

type Store = Arc<dyn SessionStore>;

async fn approvals_are_kept_by_agent_and_directory(store: Store) {
    let here = approval("git status");
    let elsewhere = NewApproval { workspace: PathBuf::from("/home/user"), ..here.clone() };
    let other = NewApproval { agent: "other".to_owned(), ruling: Ruling::Reject, ..here.clone() };
    let mut all = Vec::new();
    for approval in [&here, &elsewhere, &other] {
        let id = store.add_approval(approval.clone()).await.unwrap();
        all.push(ApprovalRecord { id, approval: approval.clone() });
    }
    assert!(all.is_sorted_by(|one, next| one.id < next.id));
    assert_eq!(store.approvals(ApprovalQuery::default()).await.unwrap(), all);
    let of = |agent: Option<&str>, workspace: Option<&str>| ApprovalQuery {
        agent: agent.map(str::to_owned),
        workspace: workspace.map(PathBuf::from),
    };
    assert_eq!(store.approvals(of(Some("main"), None)).await.unwrap(), all[..2]);
    assert_eq!(store.approvals(of(Some("main"), Some("/home/user"))).await.unwrap(), all[1..2]);
    assert_eq!(store.approvals(of(Some("none"), None)).await.unwrap(), []);

    // The later answer about the same counts.
    let changed = NewApproval { ruling: Ruling::Reject, session: "b".into(), created_at_ms: 5_000, ..here.clone() };
    assert_eq!(store.add_approval(changed.clone()).await.unwrap(), all[0].id);
    all[0].approval = changed;
    assert_eq!(store.approvals(ApprovalQuery::default()).await.unwrap(), all);

    assert!(store.revoke_approval(all[1].id).await.unwrap());
    assert!(!store.revoke_approval(all[1].id).await.unwrap());
    assert!(!store.revoke_approval(u64::MAX).await.unwrap());
    all.remove(1);
    assert_eq!(store.approvals(ApprovalQuery::default()).await.unwrap(), all);
}

async fn approvals_have_a_limit(store: Store) {
    let adding = (0..MAX_APPROVALS).map(|number| store.add_approval(approval(&number.to_string())));
    assert!(join_all(adding).await.iter().all(Result::is_ok));
    let more = store.add_approval(approval("one more")).await;
    assert!(matches!(more, Err(StoreError::TooMany { limit: MAX_APPROVALS })), "{more:?}");
    store.add_approval(approval("7")).await.unwrap();
    let other = NewApproval { agent: "other".to_owned(), ..approval("one more") };
    store.add_approval(other).await.unwrap();
    assert_eq!(store.approvals(ApprovalQuery::default()).await.unwrap().len(), MAX_APPROVALS + 1);
}

async fn a_deleted_session_takes_its_approvals_along(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.create_session(session("b")).await.unwrap();
    store.add_approval(approval("git status")).await.unwrap();
    let kept = NewApproval { session: "b".into(), ..approval("git diff") };
    let id = store.add_approval(kept.clone()).await.unwrap();
    assert!(store.delete("a").await.unwrap());
    let left = store.approvals(ApprovalQuery::default()).await.unwrap();
    assert_eq!(left, [ApprovalRecord { id, approval: kept }]);
}

fn record(id: &str) -> SessionRecord {
    let new = session(id);
    SessionRecord {
        id: new.id,
        workspace: new.workspace,
        agent: new.agent,
        title: None,
        created_at_ms: new.created_at_ms,
        last_activity_ms: new.created_at_ms,
        additional_directories: new.additional_directories,
        last_seq: 0,
        last_turn: None,
        config: None,
    }
}

async fn a_new_session_reads_back(store: Store) {
    assert_eq!(store.session("a").await.unwrap(), None);
    store.create_session(session("a")).await.unwrap();
    assert_eq!(store.session("a").await.unwrap(), Some(record("a")));
    assert_eq!(store.turns("a").await.unwrap(), []);
    assert_eq!(store.messages("a").await.unwrap(), []);
    assert_eq!(store.events("a", 0, 10).await.unwrap(), []);
}

async fn an_id_is_taken_once(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.append("a", events(1, 2)).await.unwrap();
    let again = store.create_session(session("a")).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists)));
    assert_eq!(store.session("a").await.unwrap().unwrap().last_seq, 2);
}

async fn events_come_back_in_pages_and_exactly(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.create_session(session("b")).await.unwrap();
    let mut expected: Vec<EventRecord> = (1..=300).map(event).collect();
    // Payloads come back byte for byte: nothing is written anew.
    expected[3].payload = Bytes::from_static(b"{}");
    expected[4].payload = Bytes::from("{ \"b\" :\t1.00,\"a\":\"'\\u00e9\\n\u{feff}\u{1f980}\",\"a\":-0 }");
    expected[5].kind = EventKind::UserPrompt;
    expected[6].kind = EventKind::ClientEvent;
    expected[6].turn = None;
    for chunk in expected.chunks(77) {
        let batch = Batch { events: chunk.to_vec(), messages: Vec::new() };
        store.append("a", batch).await.unwrap();
    }
    store.append("b", events(1, 3)).await.unwrap();
    assert_eq!(all_events(&*store, "a", 70).await, expected);
    assert_eq!(all_events(&*store, "a", 300).await, expected);
    assert_eq!(store.events("a", 297, 70).await.unwrap(), expected[297..]);
    assert_eq!(store.events("a", 300, 70).await.unwrap(), []);
    assert_eq!(store.events("a", u64::MAX, 70).await.unwrap(), []);
    assert_eq!(store.events("a", 0, 0).await.unwrap(), []);
    assert_eq!(store.events("none", 0, 70).await.unwrap(), []);
    assert_eq!(store.session("a").await.unwrap().unwrap().last_seq, 300);
}

async fn a_page_ends_by_size(store: Store) {
    store.create_session(session("a")).await.unwrap();
    let large = padded(MAX_PAGE_BYTES / 2);
    for seq in 1..=4 {
        let mut batch = events(seq, seq);
        batch.events[0].payload = large.clone();
        store.append("a", batch).await.unwrap();
    }
    let mut huge = events(5, 5);
    huge.events[0].payload = padded(MAX_PAGE_BYTES + 1);
    store.append("a", huge).await.unwrap();
    let page = |after| {
        let store = Arc::clone(&store);
        async move {
            let page = store.events("a", after, 100).await.unwrap();
            page.iter().map(|event| event.seq).collect::<Vec<_>>()
        }
    };
    assert_eq!(page(0).await, [1, 2]);
    assert_eq!(page(2).await, [3, 4]);
    assert_eq!(page(4).await, [5]);
    assert_eq!(page(5).await, [0_u64; 0]);
}

async fn what_does_not_follow_on_is_refused_whole(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.append("a", events(1, 3)).await.unwrap();
    store.append("a", messages(&[4, 9])).await.unwrap();

    let conflict = |error, expected: (&'static str, u64, u64)| match error {
        Err(StoreError::Conflict { what, expected: wanted, got }) => assert_eq!((what, wanted, got), expected),
        other => panic!("{other:?}"),
    };
    let repeated = store.append("a", events(3, 4)).await;
    conflict(repeated, ("seq", 4, 3));
    let after_a_gap = store.append("a", events(5, 6)).await;
    conflict(after_a_gap, ("seq", 4, 5));
    let mut with_a_gap = events(4, 4);
    with_a_gap.events.push(event(6));
    conflict(store.append("a", with_a_gap).await, ("seq", 5, 6));
    let mut good_events = events(4, 5);
    good_events.messages = vec![message(9)];
    conflict(store.append("a", good_events).await, ("position", 10, 9));

    let mut beyond = messages(&[10]);
    beyond.messages[0].position = u64::MAX;
    let beyond = store.append("a", beyond).await;
    assert!(matches!(beyond, Err(StoreError::TooLarge)));

    assert!(matches!(store.append("none", events(1, 1)).await, Err(StoreError::NotFound)));
    let kept = events(1, 3).events;
    assert_eq!(all_events(&*store, "a", 10).await, kept);
    let kept = messages(&[4, 9]).messages;
    assert_eq!(store.messages("a").await.unwrap(), kept);
    store.append("a", events(4, 4)).await.unwrap();
    assert_eq!(store.session("a").await.unwrap().unwrap().last_seq, 4);
}

async fn messages_come_back_in_order(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.append("a", messages(&[0, 1, 2])).await.unwrap();
    store.append("a", messages(&[10, 11])).await.unwrap();
    let expected = messages(&[0, 1, 2, 10, 11]).messages;
    assert_eq!(store.messages("a").await.unwrap(), expected);
    assert_eq!(store.messages("none").await.unwrap(), []);
}

async fn a_turn_begins_and_ends_once(store: Store) {
    store.create_session(session("a")).await.unwrap();
    let mut first = start(1);
    first.batch = events(1, 1);
    store.begin_turn("a", first).await.unwrap();
    let running = TurnRecord {
        turn: 1,
        state: TurnState::Running,
        prompt: start(1).prompt,
        stop_reason: None,
        started_at_ms: 2_000,
        ended_at_ms: None,
        last_seq: None,
    };
    let expected =
        SessionRecord { last_activity_ms: 2_000, last_seq: 1, last_turn: Some(running.clone()), ..record("a") };
    assert_eq!(store.session("a").await.unwrap(), Some(expected));

    assert!(matches!(store.begin_turn("a", start(2)).await, Err(StoreError::TurnState)));
    assert!(matches!(store.end_turn("a", end(2)).await, Err(StoreError::NotFound)));
    let still_running = TurnEnd { state: TurnState::Running, ..end(1) };
    assert!(matches!(store.end_turn("a", still_running).await, Err(StoreError::TurnState)));

    let last = TurnEnd { batch: Batch { events: events(2, 5).events, messages: messages(&[0, 1]).messages }, ..end(1) };
    store.end_turn("a", last).await.unwrap();
    let completed = TurnRecord {
        state: TurnState::Completed,
        stop_reason: Some("end_turn".to_owned()),
        ended_at_ms: Some(3_000),
        last_seq: Some(5),
        ..running
    };
    assert_eq!(store.turns("a").await.unwrap(), slice::from_ref(&completed));
    assert!(matches!(store.end_turn("a", end(1)).await, Err(StoreError::TurnState)));
    assert!(matches!(
        store.begin_turn("a", start(1)).await,
        Err(StoreError::Conflict { what: "turn", expected: 2, got: 1 })
    ));

    // A turn whose first batch does not fit has not begun.
    let mut bad = start(2);
    bad.batch = events(5, 5);
    assert!(matches!(store.begin_turn("a", bad).await, Err(StoreError::Conflict { what: "seq", .. })));
    store.begin_turn("a", start(2)).await.unwrap();
    for (state, turn) in [(TurnState::Cancelled, 2), (TurnState::Failed, 3)] {
        if turn == 3 {
            store.begin_turn("a", start(3)).await.unwrap();
        }
        let ended = TurnEnd { state, stop_reason: None, ..end(turn) };
        store.end_turn("a", ended).await.unwrap();
    }
    let states: Vec<_> =
        store.turns("a").await.unwrap().iter().map(|turn| (turn.turn, turn.state, turn.last_seq)).collect();
    let expected =
        [(1, TurnState::Completed, Some(5)), (2, TurnState::Cancelled, Some(5)), (3, TurnState::Failed, Some(5))];
    assert_eq!(states, expected);
    assert_eq!(store.turns("none").await.unwrap(), []);
}

async fn a_release_interrupts_and_a_repair_ends(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.begin_turn("a", start(1)).await.unwrap();
    store.append("a", events(1, 2)).await.unwrap();
    store.release("a").await.unwrap();
    store.release("a").await.unwrap();
    store.release("none").await.unwrap();
    for refused in [
        store.append("a", events(3, 3)).await,
        store.end_turn("a", end(1)).await,
        store.begin_turn("a", start(2)).await,
    ] {
        assert!(matches!(refused, Err(StoreError::NotClaimed)));
    }
    let last = store.session("a").await.unwrap().unwrap().last_turn.unwrap();
    assert_eq!(last.state, TurnState::Interrupted);
    assert_eq!((last.ended_at_ms, last.last_seq), (None, None));

    store.claim("a").await.unwrap();
    let repair = TurnEnd { state: TurnState::Interrupted, stop_reason: None, batch: events(3, 3), ..end(1) };
    store.end_turn("a", repair.clone()).await.unwrap();
    let last = store.session("a").await.unwrap().unwrap().last_turn.unwrap();
    assert_eq!(last.state, TurnState::Interrupted);
    assert_eq!((last.ended_at_ms, last.last_seq), (Some(3_000), Some(3)));
    let again = TurnEnd { batch: Batch::default(), ..repair };
    assert!(matches!(store.end_turn("a", again).await, Err(StoreError::TurnState)));
    store.begin_turn("a", start(2)).await.unwrap();
}

async fn a_patch_changes_what_it_names(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.release("a").await.unwrap();
    let all = SessionPatch {
        title: Some(Some("A title".to_owned())),
        config: Some(Bytes::from_static(br#"{"mode":"ask"}"#)),
        last_activity_ms: Some(7_000),
        additional_directories: Some(vec![PathBuf::from("/three")]),
    };
    store.update_session("a", all).await.unwrap();
    let patched = SessionRecord {
        title: Some("A title".to_owned()),
        config: Some(Bytes::from_static(br#"{"mode":"ask"}"#)),
        last_activity_ms: 7_000,
        additional_directories: vec![PathBuf::from("/three")],
        ..record("a")
    };
    assert_eq!(store.session("a").await.unwrap(), Some(patched.clone()));
    let nothing = SessionPatch::default();
    store.update_session("a", nothing.clone()).await.unwrap();
    assert_eq!(store.session("a").await.unwrap(), Some(patched.clone()));
    let less = SessionPatch { title: Some(None), additional_directories: Some(Vec::new()), ..SessionPatch::default() };
    store.update_session("a", less).await.unwrap();
    let patched = SessionRecord { title: None, additional_directories: Vec::new(), ..patched };
    assert_eq!(store.session("a").await.unwrap(), Some(patched));
    assert!(matches!(store.update_session("none", nothing).await, Err(StoreError::NotFound)));
}

async fn the_list_pages_through_equal_times(store: Store) {
    // A cursor of the time alone lost or repeated sessions that were made in the same second.
    for number in (0..60).rev() {
        let id = format!("s{number:02}");
        store.create_session(session(&id)).await.unwrap();
    }
    let newer = NewSession { created_at_ms: 5_000, ..session("z-newest") };
    store.create_session(newer).await.unwrap();
    let older = NewSession { created_at_ms: -5, ..session("a-oldest") };
    store.create_session(older).await.unwrap();

    let mut query = ListQuery { limit: 25, ..ListQuery::default() };
    let mut ids = Vec::new();
    let mut pages = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        let Some(last) = page.last() else { break };
        query.before = Some(ListCursor { last_activity_ms: last.last_activity_ms, id: Arc::clone(&last.id) });
        pages.push(page.len());
        ids.extend(page.into_iter().map(|record| record.id.to_string()));
    }
    let mut expected = vec!["z-newest".to_owned()];
    expected.extend((0..60).map(|number| format!("s{number:02}")));
    expected.push("a-oldest".to_owned());
    assert_eq!(ids, expected);
    assert_eq!(pages, [25, 25, 12]);
}

async fn the_list_knows_workspaces(store: Store) {
    for (id, workspace) in [("a", "/x"), ("b", "/y"), ("c", "/x")] {
        let new = NewSession { workspace: PathBuf::from(workspace), ..session(id) };
        store.create_session(new).await.unwrap();
    }
    store.begin_turn("c", start(1)).await.unwrap();
    let list = |workspace: Option<&str>| {
        let query = ListQuery { workspace: workspace.map(PathBuf::from), before: None, limit: 10 };
        let store = Arc::clone(&store);
        async move {
            let found = store.list(query).await.unwrap();
            found.iter().map(|record| record.id.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(list(None).await, ["c", "a", "b"]);
    assert_eq!(list(Some("/x")).await, ["c", "a"]);
    assert_eq!(list(Some("/x/")).await, [""; 0]);
    let first = store.list(ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap();
    let mut expected = store.session("c").await.unwrap().unwrap();
    expected.last_turn.as_mut().unwrap().prompt = Bytes::new();
    assert_eq!(first, [expected]);
}

async fn a_deleted_session_is_gone(store: Store) {
    assert!(!store.delete("a").await.unwrap());
    store.create_session(session("a")).await.unwrap();
    store.create_session(session("b")).await.unwrap();
    for id in ["a", "b"] {
        store.begin_turn(id, start(1)).await.unwrap();
        store.append(id, events(1, 3)).await.unwrap();
        store.append(id, messages(&[1])).await.unwrap();
    }
    assert!(store.delete("a").await.unwrap());
    assert!(!store.delete("a").await.unwrap());
    assert_eq!(store.session("a").await.unwrap(), None);
    assert!(matches!(store.append("a", events(4, 4)).await, Err(StoreError::NotFound)));
    assert_eq!(all_events(&*store, "b", 10).await, events(1, 3).events);
    // The id may be used again, and nothing of the old session shows.
    store.create_session(session("a")).await.unwrap();
    assert_eq!(store.session("a").await.unwrap(), Some(record("a")));
    assert_eq!(store.messages("a").await.unwrap(), []);
    assert_eq!(store.turns("a").await.unwrap(), []);
    store.append("a", events(1, 1)).await.unwrap();
}

async fn claims_know_their_session(store: Store) {
    assert!(matches!(store.claim("a").await, Err(ClaimError::NotFound)));
    store.create_session(session("a")).await.unwrap();
    store.begin_turn("a", start(1)).await.unwrap();
    store.claim("a").await.unwrap();
    let last = store.session("a").await.unwrap().unwrap().last_turn;
    assert_eq!(last.unwrap().state, TurnState::Running);
}

async fn a_batch_has_a_limit(store: Store) {
    store.create_session(session("a")).await.unwrap();
    let mut batch = events(1, 1);
    batch.events[0].payload = Bytes::from(vec![b'x'; MAX_BATCH_BYTES + 1]);
    assert!(matches!(store.append("a", batch).await, Err(StoreError::TooLarge)));
    store.append("a", events(1, 1)).await.unwrap();
}

async fn concurrent_appends_all_land(store: Store) {
    let ids: Vec<String> = (0..40).map(|number| format!("s{number:02}")).collect();
    join_all(ids.iter().map(|id| store.create_session(session(id))))
        .await
        .into_iter()
        .for_each(|created| created.unwrap());
    // One call of each session waits at any time, so forty share a transaction.
    join_all(ids.iter().map(|id| async {
        for round in 1..=25 {
            let batch = events(round * 3 - 2, round * 3);
            store.append(id, batch).await.unwrap();
        }
    }))
    .await;
    for id in &ids {
        assert_eq!(all_events(&*store, id, 1_000).await, events(1, 75).events);
    }
}

async fn a_conflict_hurts_only_its_caller(store: Store) {
    for id in ["a", "b", "c"] {
        store.create_session(session(id)).await.unwrap();
    }
    let results = join_all([
        store.append("a", events(1, 2)),
        store.append("b", events(2, 2)),
        store.append("none", events(1, 1)),
        store.append("c", events(1, 4)),
        store.append("a", events(3, 3)),
        store.append("a", events(3, 3)),
    ])
    .await;
    let landed: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(landed, [true, false, false, true, true, false]);
    assert_eq!(all_events(&*store, "a", 10).await, events(1, 3).events);
    assert_eq!(all_events(&*store, "b", 10).await, []);
    assert_eq!(all_events(&*store, "c", 10).await, events(1, 4).events);
}

async fn nothing_works_after_close(store: Store) {
    store.create_session(session("a")).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    let patch = SessionPatch::default();
    let results: BTreeSet<String> = [
        store.create_session(session("b")).await.err(),
        store.append("a", events(1, 1)).await.err(),
        store.begin_turn("a", start(1)).await.err(),
        store.end_turn("a", end(1)).await.err(),
        store.session("a").await.err(),
        store.events("a", 0, 1).await.err(),
        store.messages("a").await.err(),
        store.turns("a").await.err(),
        store.update_session("a", patch).await.err(),
        store.list(ListQuery::default()).await.err(),
        store.delete("a").await.err(),
        store.release("a").await.err(),
    ]
    .into_iter()
    .map(|error| format!("{error:?}"))
    .collect();
    assert_eq!(results, BTreeSet::from(["Some(Closed)".to_owned()]));
    assert!(matches!(store.claim("a").await, Err(ClaimError::Store(StoreError::Closed))));
}
