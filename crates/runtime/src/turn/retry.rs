//! When a failed model call is worth another try.
//! It refuses to wait long: what a vendor wants to delay beyond the bound is told to the user instead.

use std::time::Duration;

use crate::model::ModelError;

/// How often and how long a model call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Requests in all, the first included.
    pub max_attempts: u32,
    /// The wait before the second request; doubled for each further one.
    pub first_wait: Duration,
    /// The longest wait. A vendor that asks for more is not waited for at all.
    pub max_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, first_wait: Duration::from_millis(500), max_wait: Duration::from_secs(60) }
    }
}

impl RetryPolicy {
    /// How long to wait before request number `attempt + 1`; `None` when there is to be none. `chance` is a random number:
    /// clients that were refused together must not come back together.
    #[must_use]
    pub fn wait(&self, attempt: u32, error: &ModelError, chance: u64) -> Option<Duration> {
        let ModelError::Transient { retry_after, .. } = error else { return None };
        if attempt >= self.max_attempts {
            return None;
        }
        let part = u32::try_from(chance % u64::from(PARTS)).unwrap_or(0);
        match retry_after {
            Some(asked) if *asked > self.max_wait => None,
            // Never before the vendor said.
            Some(asked) => Some(asked.saturating_add((*asked / 10).min(MOST_LATER) / PARTS * part)),
            None => {
                let factor = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
                let wait = self.first_wait.saturating_mul(factor).min(self.max_wait);
                Some(wait - wait / 4 / PARTS * part)
            }
        }
    }

    /// The policy where another model can take over: nobody waits long for the first one.
    #[must_use]
    pub fn before_another(self) -> Self {
        Self { max_attempts: self.max_attempts.min(2), max_wait: self.max_wait.min(Duration::from_secs(5)), ..self }
    }
}

/// Into how many steps a random part of a wait is divided.
const PARTS: u32 = 1_024;
/// The longest that is waited beyond what a vendor asked for.
const MOST_LATER: Duration = Duration::from_secs(2);
