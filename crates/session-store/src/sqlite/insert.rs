//! Puts many rows into one statement, because the cost of a statement is larger than that of a row.
//!
//! The sizes are powers of two, so that any number of rows needs few statements and all of them stay prepared.

use std::sync::Arc;

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, Type};

use super::codec::{event_kind, store_error, to_column};
use crate::error::StoreError;
use crate::record::{EventRecord, MessageRecord};

/// The rows of the largest statement: 2 to the power of this, less one step.
const SIZES: usize = 8;

/// The statements, each for twice as many rows as the one before; the first is for one.
pub(super) struct Inserts {
    events: [Arc<str>; SIZES],
    messages: [Arc<str>; SIZES],
}

impl Inserts {
    pub(super) fn new() -> Inserts {
        Inserts {
            events: statements("INSERT INTO events (session, seq, kind, turn, payload) VALUES ", "(?,?,?,?,?)"),
            messages: statements("INSERT INTO messages (session, position, turn, payload) VALUES ", "(?,?,?,?)"),
        }
    }

    pub(super) async fn events(
        &self,
        connection: &mut SqliteConnection,
        rows: &[(i64, &EventRecord)],
    ) -> Result<(), StoreError> {
        insert(connection, &self.events, rows, 5, |arguments, (session, event)| {
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
        insert(connection, &self.messages, rows, 4, |arguments, (session, message)| {
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

fn statements(head: &str, row: &str) -> [Arc<str>; SIZES] {
    std::array::from_fn(|power| {
        let mut statement = String::from(head);
        for index in 0..1_usize << power {
            if index > 0 {
                statement.push(',');
            }
            statement.push_str(row);
        }
        statement.into()
    })
}

async fn insert<R>(
    connection: &mut SqliteConnection,
    statements: &[Arc<str>; SIZES],
    mut rows: &[R],
    columns: usize,
    add: impl Fn(&mut SqliteArguments, &R) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for (power, statement) in statements.iter().enumerate().rev() {
        let size = 1_usize << power;
        while let Some((chunk, rest)) = rows.split_at_checked(size) {
            rows = rest;
            let mut arguments = SqliteArguments::default();
            arguments.reserve(size * columns, 0);
            for row in chunk {
                add(&mut arguments, row)?;
            }
            sqlx::query_with(AssertSqlSafe(Arc::clone(statement)), arguments)
                .execute(&mut *connection)
                .await
                .map_err(store_error)?;
        }
    }
    Ok(())
}
