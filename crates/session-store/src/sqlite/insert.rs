//! Puts many rows into one statement: handing a statement to SQLite's thread costs more than the row in it.
//!
//! There is a statement for each small number of rows and for two large ones, so that any number needs few of them and all
//! stay prepared.

use std::sync::{Arc, OnceLock};

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, Type};

use super::codec::{event_kind, store_error, to_column};
use crate::error::StoreError;
use crate::record::{EventRecord, MessageRecord};

/// Up to so many rows go into a statement made for exactly their number.
const EXACT: usize = 64;

/// The other numbers of rows that have a statement, largest first.
const LARGE: [usize; 2] = [256, 128];

/// The statements that both tables can need: all have to fit into the cache of the connection, beside the others.
pub(super) const MAX_STATEMENTS: usize = 2 * (EXACT + LARGE.len());

/// The statements for the two tables that only grow.
pub(super) struct Inserts {
    events: Statements,
    messages: Statements,
}

/// The statements for one table, written out when they are first needed.
struct Statements {
    head: &'static str,
    row: &'static str,
    columns: usize,
    exact: [OnceLock<Arc<str>>; EXACT],
    large: [OnceLock<Arc<str>>; LARGE.len()],
}

impl Inserts {
    pub(super) fn new() -> Inserts {
        Inserts {
            events: Statements::new("INSERT INTO events (session, seq, kind, turn, payload) VALUES ", "(?,?,?,?,?)", 5),
            messages: Statements::new(
                "INSERT INTO messages (session, position, turn, payload) VALUES ",
                "(?,?,?,?)",
                4,
            ),
        }
    }

    pub(super) async fn events(
        &self,
        connection: &mut SqliteConnection,
        rows: &[(i64, &EventRecord)],
    ) -> Result<(), StoreError> {
        insert(connection, &self.events, rows, |arguments, (session, event)| {
            add(arguments, *session)?;
            add(arguments, to_column(event.seq)?)?;
            add(arguments, event_kind(event.kind))?;
            add(arguments, event.turn.map(to_column).transpose()?)?;
            add(arguments, event.payload.as_ref())
        })
        .await
    }

    pub(super) async fn messages(
        &self,
        connection: &mut SqliteConnection,
        rows: &[(i64, &MessageRecord)],
    ) -> Result<(), StoreError> {
        insert(connection, &self.messages, rows, |arguments, (session, message)| {
            add(arguments, *session)?;
            add(arguments, to_column(message.position)?)?;
            add(arguments, to_column(message.turn)?)?;
            add(arguments, message.payload.as_ref())
        })
        .await
    }
}

fn add<'t, T>(arguments: &mut SqliteArguments, value: T) -> Result<(), StoreError>
where
    T: Encode<'t, Sqlite> + Type<Sqlite>,
{
    Arguments::add(arguments, value).map_err(|error| store_error(sqlx::Error::Encode(error)))
}

impl Statements {
    fn new(head: &'static str, row: &'static str, columns: usize) -> Statements {
        Statements {
            head,
            row,
            columns,
            exact: std::array::from_fn(|_| OnceLock::new()),
            large: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// The statement that takes most of `rows`, and how many it takes; `None` when there are none.
    fn best(&self, rows: usize) -> Option<(Arc<str>, usize)> {
        let large = LARGE.iter().zip(&self.large).find(|(size, _)| **size <= rows);
        let (slot, size) = match large {
            Some((size, slot)) => (slot, *size),
            None => {
                let size = rows.min(EXACT);
                (self.exact.get(size.checked_sub(1)?)?, size)
            }
        };
        let statement = slot.get_or_init(|| {
            let mut statement = String::from(self.head);
            for index in 0..size {
                if index > 0 {
                    statement.push(',');
                }
                statement.push_str(self.row);
            }
            statement.into()
        });
        Some((Arc::clone(statement), size))
    }
}

async fn insert<R>(
    connection: &mut SqliteConnection,
    statements: &Statements,
    mut rows: &[R],
    add: impl Fn(&mut SqliteArguments, &R) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    while let Some((statement, size)) = statements.best(rows.len()) {
        let Some((chunk, rest)) = rows.split_at_checked(size) else {
            break;
        };
        rows = rest;
        let mut arguments = SqliteArguments::default();
        arguments.reserve(size * statements.columns, 0);
        for row in chunk {
            add(&mut arguments, row)?;
        }
        sqlx::query_with(AssertSqlSafe(statement), arguments).execute(&mut *connection).await.map_err(store_error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
