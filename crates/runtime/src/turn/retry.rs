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
    /// How long to wait before request number `attempt + 1`; `None` when there is to be none.
    #[must_use]
    pub fn wait(&self, attempt: u32, error: &ModelError) -> Option<Duration> {
        let ModelError::Transient { retry_after, .. } = error else { return None };
        if attempt >= self.max_attempts {
            return None;
        }
        match retry_after {
            Some(asked) if *asked > self.max_wait => None,
            Some(asked) => Some(*asked),
            None => {
                let factor = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
                Some(self.first_wait.saturating_mul(factor).min(self.max_wait))
            }
        }
    }
}
