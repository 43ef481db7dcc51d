//! Names of tools as models take them: letters, digits, `_` and `-`, 64 characters at most.

use sha2::{Digest, Sha256};

/// The longest name that all vendors take.
const MAX: usize = 64;

/// `<server>__<tool>`, in the characters and the length that every vendor takes. What had to be changed is told apart by a
/// digest, so that two tools never get one name by it.
pub(super) fn tool_name(server: &str, tool: &str) -> String {
    let plain: String = format!("{server}__{tool}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    let unchanged = plain.len() <= MAX && plain.split_once("__").is_some_and(|(a, b)| a == server && b == tool);
    if unchanged {
        return plain;
    }
    let mut digest = Sha256::new();
    digest.update((server.len() as u64).to_le_bytes());
    digest.update(server);
    digest.update(tool);
    let mark: String = digest.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let mark = format!("_{mark}");
    let kept: String = plain.chars().take(MAX - mark.len()).collect();
    kept + &mark
}
