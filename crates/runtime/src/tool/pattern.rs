//! File name patterns of the search tools.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::tool::ToolFailure;

/// Bytes of a pattern; longer ones take long to compile and mean nothing.
pub(super) const MAX_PATTERN: usize = 4096;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct FilePattern {
    matcher: GlobMatcher,
    /// Whether only the last part of a path is compared.
    name_only: bool,
}

impl FilePattern {
    /// Compiles a pattern. One without a slash means file names in every directory, as in `.gitignore`.
    pub(super) fn new(pattern: &str) -> Result<Self, ToolFailure> {
        if pattern.is_empty() || pattern.len() > MAX_PATTERN {
            return Err(ToolFailure::Arguments(format!("a pattern has 1 to {MAX_PATTERN} bytes")));
        }
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map_err(|error| ToolFailure::Arguments(error.to_string()))?;
        Ok(Self { matcher: glob.compile_matcher(), name_only: !pattern.contains('/') })
    }

    /// Whether a path below the searched directory fits.
    pub(super) fn fits(&self, relative: &Path) -> bool {
        if self.name_only {
            relative.file_name().is_some_and(|name| self.matcher.is_match(name))
        } else {
            self.matcher.is_match(relative)
        }
    }
}
