//! The places that no level opens: forbidden ones, and private ones that only a directory of the session inside them opens.

use std::path::{Path, PathBuf};

use crate::{Roots, path::holds};

/// The forbidden places of one session, all of them absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    places: Vec<PathBuf>,
    private: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    fold: bool,
}

impl Forbidden {
    pub(crate) fn new(places: Vec<PathBuf>, private: Vec<PathBuf>, roots: &Roots, fold: bool) -> Self {
        let roots = roots.iter().map(|root| root.path().to_owned()).collect();
        Self { places, private, roots, fold }
    }

    /// Adds the real place of every name: one that is a link, or lies behind one, is forbidden as well.
    #[must_use]
    pub fn with_real(mut self, real: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        for list in [&mut self.places, &mut self.private] {
            let found: Vec<PathBuf> = list.iter().filter_map(|path| real(path)).collect();
            list.extend(found);
            list.sort();
            list.dedup();
        }
        self
    }

    /// Whether an absolute path is forbidden.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        if self.places.iter().any(|place| holds(place, path, self.fold)) {
            return true;
        }
        self.private.iter().any(|place| {
            let opened = |root: &PathBuf| root.starts_with(place) && holds(root, path, self.fold);
            holds(place, path, self.fold) && !self.roots.iter().any(opened)
        })
    }

    /// The places that are forbidden without exception.
    #[must_use]
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }
}
