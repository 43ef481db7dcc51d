//! Time and randomness, from the operating system.

use std::time::{SystemTime, UNIX_EPOCH};

use ulid::Ulid;

/// Milliseconds since the epoch; zero for a clock before it.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A new session id: `s-` and a lower-case ULID, whose 80 random bits nobody can guess.
pub(crate) fn session_id() -> String {
    let mut random = [0; 16];
    fill(&mut random);
    let ulid = Ulid::from_parts(u64::try_from(now_ms()).unwrap_or_default(), u128::from_le_bytes(random));
    format!("s-{}", ulid.to_string().to_ascii_lowercase())
}

/// A random number; nobody's safety hangs on it, so that it may be 0 where the system gives none.
pub(super) fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Fills a buffer with random bytes.
pub(super) fn fill(buffer: &mut [u8]) {
    if getrandom::fill(buffer).is_err() {
        // Without randomness an id or a token could be guessed. They are refused nowhere, so the process must not go on.
        tracing::error!("the operating system gives no random numbers");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::session_id;

    #[test]
    fn session_ids_look_as_documented_and_differ() {
        let (a, b) = (session_id(), session_id());
        assert_ne!(a, b);
        assert_eq!(a.len(), 28);
        assert!(a.starts_with("s-"));
        assert!(a[2..].bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase()));
    }
}
