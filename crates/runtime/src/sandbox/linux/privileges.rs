//! Takes from a command what only the superuser has. Files are guarded by Landlock whoever asks; this guards the machine.
//! Without the privilege to do this there is nothing to take.

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// What package managers and tests of the superuser need: to own, read and signal what the sandbox lets them reach.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Programs that this thread starts get none of the others, whoever runs them.
pub(super) fn drop_them() {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // It fails for a user who has no capabilities, and for one that the kernel does not know.
        let _ = remove_capability_from_bounding_set(capability);
    }
}
