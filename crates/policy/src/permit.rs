//! The proof that an action was judged.
//! Only this crate can make one; it is bound to one action, cannot be cloned, and using it consumes it.

use std::fmt::{self, Debug, Formatter};

use sha2::{Digest, Sha256};

use crate::{Action, CallHint, Pin, Pinned, Replaces, RootedPath};

/// Lets its holder perform exactly one action, once.
///
/// A tool takes paths, content and arguments from the permit, never from the model's call, so check and use cannot disagree.
///
/// Nobody else makes one:
///
/// ```compile_fail,E0451
/// fn forge(action: zeroclaw_policy::Action) -> zeroclaw_policy::Permit {
///     let fingerprint = action.fingerprint();
///     zeroclaw_policy::Permit { action, fingerprint }
/// }
/// ```
///
/// It cannot be copied:
///
/// ```compile_fail,E0599
/// fn copy(permit: zeroclaw_policy::Permit) -> [zeroclaw_policy::Permit; 2] {
///     [permit.clone(), permit]
/// }
/// ```
///
/// It is used once:
///
/// ```compile_fail,E0382
/// fn use_twice(permit: zeroclaw_policy::Permit) -> [zeroclaw_policy::Action; 2] {
///     [permit.into_action(), permit.into_action()]
/// }
/// ```
///
/// And one answer gives one:
///
/// ```compile_fail,E0382
/// fn approve_twice(pending: zeroclaw_policy::Pending) -> [zeroclaw_policy::Permit; 2] {
///     [pending.approve(), pending.approve()]
/// }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is dropped permits nothing"]
pub struct Permit {
    // INVARIANT judged: a value exists only for an action that `judge` allowed or whose `Pending` was approved.
    action: Action,
    // INVARIANT same: made from the action when it was judged.
    fingerprint: Fingerprint,
}

impl Permit {
    pub(crate) fn new(action: Action, fingerprint: Fingerprint) -> Self {
        // INVARIANT judged, same: called by `judge` and `Pending::approve` only, with what `judge` made of the action.
        Self { action, fingerprint }
    }

    /// The action this permit is for.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// What the action was when it was judged.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Uses the permit up and hands out what to do.
    #[must_use]
    pub fn into_action(self) -> Action {
        self.action
    }
}

/// A digest of everything that an action is: two that differ in anything but what is for display have different ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Debug for Fingerprint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Action {
    /// The digest of this action.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut out = Fields(Sha256::new());
        match self {
            Self::Read { path } => {
                out.field(b"read");
                out.path(path);
            }
            Self::Write { path, content, replaces, pins } => {
                out.field(b"write");
                out.path(path);
                out.field(content);
                match replaces {
                    Replaces::Nothing => out.field(b""),
                    Replaces::Content(digest) => out.field(digest),
                }
                out.pins(pins);
            }
            Self::Run { argv, cwd, shown, network, pins } => {
                out.field(b"run");
                out.field(&argv.len().to_be_bytes());
                argv.iter().for_each(|word| out.field(word.as_bytes()));
                out.path(cwd);
                out.field(shown.as_bytes());
                out.field(&[u8::from(*network)]);
                out.pins(pins);
            }
            Self::Call { server, origin, tool, arguments, hint } => {
                out.field(b"call");
                [server, origin, tool].into_iter().for_each(|text| out.field(text.as_bytes()));
                out.field(arguments.as_bytes());
                out.field(&[match hint {
                    CallHint::None => 0,
                    CallHint::ReadOnly => 1,
                    CallHint::Additive => 2,
                    CallHint::Destructive => 3,
                }]);
            }
            Self::Converse => out.field(b"converse"),
        }
        Fingerprint(out.0.finalize().into())
    }
}

/// Fields with their lengths, so that no two lists of fields are the same bytes.
struct Fields(Sha256);

impl Fields {
    fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn path(&mut self, path: &RootedPath) {
        self.field(&path.root().to_be_bytes());
        self.field(path.relative().as_os_str().as_encoded_bytes());
        self.field(path.absolute().as_os_str().as_encoded_bytes());
    }

    fn pins(&mut self, pins: &[Pin]) {
        self.field(&pins.len().to_be_bytes());
        for pin in pins {
            self.field(&[match pin.what {
                Pinned::Directory => 0,
                Pinned::Program => 1,
                Pinned::Place => 2,
                Pinned::Environment => 3,
            }]);
            self.field(pin.path.as_os_str().as_encoded_bytes());
            self.field(&pin.state);
        }
    }
}
