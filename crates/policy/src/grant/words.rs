//! Words as people read them in a question.

/// The words as one line that a shell would read as these words.
pub(super) fn joined(words: &[String]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
            if !word.is_empty() && word.chars().all(plain) {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        })
        .collect();
    quoted.join(" ")
}
