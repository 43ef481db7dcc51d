//! Paths as tools name them, resolved lexically into one of the session's roots.
//! Symbolic links are not this module's business: the file layer opens every path below a directory handle that cannot be left.

use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// Why a root is a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// The session's working directory; relative paths start here.
    Session,
    /// A further directory that the client or the operator opened for the session.
    Additional,
    /// The agent's own workspace.
    Agent,
    /// A directory that may be read, never written.
    ReadOnly,
}

/// One directory that tools may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    path: PathBuf,
    kind: RootKind,
}

impl Root {
    /// Makes a root; `path` is absolute and canonical.
    #[must_use]
    pub fn new(path: PathBuf, kind: RootKind) -> Self {
        Self { path, kind }
    }

    /// The absolute canonical directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why it is a root.
    #[must_use]
    pub fn kind(&self) -> RootKind {
        self.kind
    }
}

/// The directories of one session; the first is its working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots(Vec<Root>);

/// A path that lies lexically inside a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootedPath {
    // INVARIANT rooted: `relative` has normal components only, and `absolute` is the root's path joined with it.
    root: usize,
    relative: PathBuf,
    absolute: PathBuf,
}

impl RootedPath {
    /// Index of the root in [`Roots::iter`].
    #[must_use]
    pub fn root(&self) -> usize {
        self.root
    }

    /// The path below the root; empty for the root itself.
    #[must_use]
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// The absolute path, for display and the wire.
    #[must_use]
    pub fn absolute(&self) -> &Path {
        &self.absolute
    }
}

/// Why a path is not one that a tool may name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PathError {
    /// Nothing was given.
    #[error("the path is empty")]
    Empty,
    /// A NUL byte cannot be part of a path.
    #[error("the path contains a NUL byte")]
    Nul,
    /// `~` is not expanded: whose home it means depends on who reads it.
    #[error("`~` is not expanded; give a path inside the working directory")]
    Home,
    /// URIs are not paths.
    #[error("a URI is not a path; give a plain path inside the working directory")]
    Uri,
    /// Longer than any file system takes.
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
    /// Outside every root.
    #[error("`{0}` is outside the directories of this session")]
    Outside(String),
}

/// The longest path accepted, in bytes: Linux refuses longer ones, and errors that echo a path stay short.
pub const MAX_PATH: usize = 4096;

impl Roots {
    /// Makes the set; the first root is the working directory.
    #[must_use]
    pub fn new(roots: Vec<Root>) -> Self {
        Self(roots)
    }

    /// The roots in order.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        self.0.iter()
    }

    /// The root with this index.
    #[must_use]
    pub fn root(&self, index: usize) -> Option<&Root> {
        self.0.get(index)
    }

    /// Resolves a path as a tool named it: relative ones against the working directory, absolute ones against the root that holds them.
    ///
    /// # Errors
    /// Every text that is not a plain path inside a root, see [`PathError`].
    pub fn locate(&self, text: &str) -> Result<RootedPath, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        if text.contains('\0') {
            return Err(PathError::Nul);
        }
        if text == "~" || text.starts_with("~/") {
            return Err(PathError::Home);
        }
        if let Some((scheme, _)) = text.split_once("://")
            && !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        {
            return Err(PathError::Uri);
        }
        let outside = || PathError::Outside(text.to_owned());
        let given = Path::new(text);
        let base = self.0.first().ok_or_else(outside)?;
        let absolute = normalize(&base.path.join(given)).ok_or_else(outside)?;
        let (root, holder) = self.deepest(&absolute).ok_or_else(outside)?;
        let relative = absolute.strip_prefix(&holder.path).map_err(|_| outside())?.to_path_buf();
        // INVARIANT rooted: `normalize` left normal components only.
        Ok(RootedPath { root, relative, absolute })
    }

    /// The root that an absolute normal path lies in.
    #[must_use]
    pub fn holder(&self, path: &Path) -> Option<&Root> {
        self.deepest(path).map(|(_, root)| root)
    }

    /// The deepest root wins, so that a read-only directory inside a writable one stays read-only.
    fn deepest(&self, path: &Path) -> Option<(usize, &Root)> {
        let holders = self.0.iter().enumerate().filter(|(_, root)| path.starts_with(&root.path));
        holders.max_by_key(|(index, root)| (root.path.components().count(), usize::MAX - index))
    }
}

/// Whether `path` is `place` or lies below it; with `fold` regardless of letter case, as some file systems compare.
pub(crate) fn holds(place: &Path, path: &Path, fold: bool) -> bool {
    if !fold {
        return path.starts_with(place);
    }
    let lower = |path: &Path| PathBuf::from(path.to_string_lossy().to_lowercase());
    lower(path).starts_with(lower(place))
}

/// Removes `.` and resolves `..` by name; `None` when it climbs above the root directory.
pub(crate) fn normalize(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
        }
    }
    Some(out)
}
