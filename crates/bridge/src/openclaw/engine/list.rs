//! The list of sessions: the gateway's, with the ids and directories that the ledger knows.

use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use zeroclaw_acp_protocol::{
    ErrorKind, RequestId,
    params::ListSessionsParams,
    result::{ListSessionsResult, SessionInfo},
};

use super::{Ask, Engine, open::id_of};
use crate::openclaw::{
    gateway::Repeat,
    ledger::{self, Place},
    prompt::clean_title,
    wire::{self, GatewayError, SessionRow, SessionsList},
};

/// Sessions of one page, unless the client asks for another number.
const PAGE: u32 = 50;

/// Sessions of one page, at most.
const MAX_PAGE: u32 = 100;

/// Sessions that are looked through for those of a directory.
const MAX_SEARCH: u32 = 1000;

/// A list that is being made.
pub(super) struct Listing {
    request: RequestId,
    cwd: Option<String>,
    limit: u32,
    offset: u32,
    places: Vec<Place>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Listed {
    sessions: Vec<SessionRow>,
    has_more: bool,
    next_offset: Option<u32>,
}

impl Engine {
    pub(super) fn list(&mut self, id: &RequestId, asked: ListSessionsParams, params: Option<&RawValue>, _now: Instant) {
        if asked.cwd.as_deref().is_some_and(|cwd| !std::path::Path::new(cwd).is_absolute()) {
            return self.fail(id, ErrorKind::InvalidParams, "`cwd` must be absolute");
        }
        let offset = match asked.cursor.as_deref().map(|cursor| cursor.strip_prefix("o").map(str::parse)) {
            None => 0,
            Some(Some(Ok(offset))) => offset,
            Some(Some(Err(_)) | None) => {
                return self.fail(id, ErrorKind::InvalidParams, "`cursor` is none of this list's");
            }
        };
        let limit = page_size(params).unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let op = self.next_op;
        self.next_op += 1;
        self.listing.insert(op, Listing { request: id.clone(), cwd: asked.cwd, limit, offset, places: Vec::new() });
        self.effects.ledger.push(ledger::Command::Places { op });
    }

    /// The ledger has told which sessions it knows.
    pub(in crate::openclaw) fn places(&mut self, op: u64, places: Vec<Place>, now: Instant) {
        self.now = now;
        let Some(listing) = self.listing.get_mut(&op) else { return };
        listing.places = places;
        let (limit, offset) = match listing.cwd {
            Some(_) => (MAX_SEARCH, None),
            None => (listing.limit, Some(listing.offset).filter(|offset| *offset > 0)),
        };
        let ask = SessionsList { limit, offset, include_derived_titles: true };
        self.ask("sessions.list", &ask, Ask::List(op), Repeat::Yes, now);
    }

    pub(super) fn list_reply(&mut self, op: u64, outcome: Result<Option<&RawValue>, GatewayError>) {
        let Some(listing) = self.listing.remove(&op) else { return };
        let listed = match outcome {
            Ok(payload) => payload.and_then(wire::read::<Listed>).unwrap_or_default(),
            Err(error) => return self.fail(&listing.request, ErrorKind::Internal, error.message),
        };
        let mut sessions: Vec<SessionInfo> = listed
            .sessions
            .iter()
            .filter_map(|row| {
                let place = listing.places.iter().find(|place| place.key == row.key);
                let cwd = place.map(|place| place.cwd.as_str()).filter(|cwd| !cwd.is_empty());
                let cwd = cwd.or(row.spawned_cwd.as_deref()).or(row.spawned_workspace_dir.as_deref());
                if let Some(wanted) = &listing.cwd
                    && cwd.is_none_or(|cwd| !same_directory(cwd, wanted))
                {
                    return None;
                }
                Some(SessionInfo {
                    session_id: id_of(&row.key).to_owned(),
                    // Where a session works that nobody said a directory for is the gateway's business.
                    cwd: cwd.unwrap_or("/").to_owned(),
                    title: place.and_then(|place| place.title.clone()).or_else(|| title_of(row)),
                    updated_at: iso(row.updated_at.unwrap_or_default()),
                    additional_directories: Vec::new(),
                })
            })
            .collect();
        let next_cursor = match listing.cwd {
            None => listed.next_offset.filter(|_| listed.has_more).map(|offset| format!("o{offset}")),
            Some(_) => {
                let start = (listing.offset as usize).min(sessions.len());
                sessions.drain(..start);
                let limit = listing.limit as usize;
                let more = sessions.len() > limit;
                sessions.truncate(limit);
                more.then(|| format!("o{}", listing.offset.saturating_add(listing.limit)))
            }
        };
        self.answer(&listing.request, &ListSessionsResult { sessions, next_cursor });
    }
}

fn same_directory(one: &str, other: &str) -> bool {
    let bare = |path: &str| path.trim_end_matches('/').to_owned();
    bare(one) == bare(other)
}

pub(super) fn title_of(row: &SessionRow) -> Option<String> {
    let derived = row.derived_title.as_deref().and_then(clean_title);
    derived.or_else(|| row.label.clone()).or_else(|| row.display_name.clone())
}

fn page_size(params: Option<&RawValue>) -> Option<u32> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "_meta")]
        meta: Option<Meta>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        limit: Option<u32>,
        page_size: Option<u32>,
    }
    let meta = serde_json::from_str::<Params>(params?.get()).ok()?.meta?;
    meta.limit.or(meta.page_size)
}

/// Milliseconds since 1970 as RFC 3339.
pub(in crate::openclaw) fn iso(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    // Days since 0000-03-01, so that a leap day ends its year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}
