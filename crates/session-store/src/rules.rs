//! What may follow on what: the checks that every store makes before it changes anything.

use crate::error::StoreError;
use crate::record::Batch;

/// The numbers that a session has reached.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Numbers {
    pub(crate) last_seq: u64,
    pub(crate) last_position: Option<u64>,
    pub(crate) last_turn: Option<u64>,
    pub(crate) running: Option<u64>,
}

/// The largest number a store keeps: columns are signed.
const MAX_NUMBER: u64 = i64::MAX as u64;

impl Numbers {
    /// Begins a turn, or says why not.
    pub(crate) fn begin_turn(&mut self, turn: u64) -> Result<(), StoreError> {
        if self.running.is_some() {
            return Err(StoreError::TurnState);
        }
        match self.last_turn {
            Some(last) if turn <= last => {
                return Err(StoreError::Conflict { what: "turn", expected: last.saturating_add(1), got: turn });
            }
            Some(_) | None => {}
        }
        check_number(turn)?;
        self.last_turn = Some(turn);
        self.running = Some(turn);
        Ok(())
    }

    /// Notes that a turn has ended.
    pub(crate) fn end_turn(&mut self, turn: u64) {
        if self.running == Some(turn) {
            self.running = None;
        }
    }
}

/// What a row costs beside its payload. An estimate: it keeps a flood of empty rows from being free.
pub(crate) const ROW_BYTES: usize = 96;

/// What a batch counts against the limits.
pub(crate) fn batch_cost(batch: &Batch) -> usize {
    let rows = batch.events.len().saturating_add(batch.messages.len());
    batch.payload_bytes().saturating_add(rows.saturating_mul(ROW_BYTES))
}

/// Moves the numbers past a batch, or says why it does not follow on.
pub(crate) fn check_batch(numbers: &mut Numbers, batch: &Batch) -> Result<(), StoreError> {
    for event in &batch.events {
        let expected = numbers.last_seq.saturating_add(1);
        if event.seq != expected {
            return Err(StoreError::Conflict { what: "seq", expected, got: event.seq });
        }
        check_number(event.seq)?;
        check_number(event.turn.unwrap_or(0))?;
        numbers.last_seq = event.seq;
    }
    for message in &batch.messages {
        match numbers.last_position {
            Some(last) if message.position <= last => {
                return Err(StoreError::Conflict {
                    what: "position",
                    expected: last.saturating_add(1),
                    got: message.position,
                });
            }
            Some(_) | None => {}
        }
        check_number(message.position)?;
        check_number(message.turn)?;
        numbers.last_position = Some(message.position);
    }
    Ok(())
}

fn check_number(number: u64) -> Result<(), StoreError> {
    if number > MAX_NUMBER {
        return Err(StoreError::TooLarge);
    }
    Ok(())
}
