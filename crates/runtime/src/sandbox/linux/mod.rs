//! The sandbox of Linux: Landlock for files, TCP, signals and abstract sockets, seccomp for what Landlock does not know, and no
//! new privileges. The thread that starts the command confines itself, and its child inherits that for good.

mod filter;
mod privileges;
mod rules;

use std::{ffi::OsString, io, sync::Arc, thread};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::sandbox::{Confine, Confined, Order, Sandbox, Wrapped, variables};

/// The newest interface whose rights are named here; an older kernel enforces what it knows of it.
const NEWEST: ABI = ABI::V9;

/// Finds out what the kernel has.
pub(super) fn find() -> Result<Arc<dyn Sandbox>, String> {
    match probe() {
        Ok(LandlockStatus::Available { effective_abi, .. }) => Ok(Arc::new(Landlock { abi: effective_abi })),
        Ok(LandlockStatus::NotEnabled) => Err("Landlock is switched off in this kernel".to_owned()),
        Ok(LandlockStatus::NotImplemented) => Err("this kernel has no Landlock (Linux 5.13 has)".to_owned()),
        Err(error) => Err(error),
    }
}

/// Confines a thread that does nothing else and then ends: what it reports is what a command would get.
fn probe() -> Result<LandlockStatus, String> {
    let text = |error: io::Error| error.to_string();
    let thread = thread::Builder::new().name("sandbox-probe".to_owned()).spawn(|| {
        let status = restrict(&Confine::default()).map_err(|error| error.to_string())?;
        if !matches!(status.landlock, LandlockStatus::Available { .. }) {
            return Ok(status.landlock);
        }
        filter::apply(&filter::Wanted { network: false, local_sockets: false })
            .map_err(|error| format!("seccomp filters are not available: {error}"))?;
        Ok(status.landlock)
    });
    thread.map_err(text)?.join().map_err(|_| "the kernel could not be asked".to_owned())?
}

#[derive(Debug)]
struct Landlock {
    abi: ABI,
}

impl Sandbox for Landlock {
    fn description(&self) -> String {
        let mut parts = vec!["files"];
        let mut missing = Vec::new();
        let mut part = |since: ABI, has: &'static str, lacks: &'static str| {
            if self.abi >= since { parts.push(has) } else { missing.push(lacks) }
        };
        part(ABI::V3, "truncation", "truncation of files outside");
        part(ABI::V4, "TCP", "TCP by Landlock (seccomp closes it)");
        part(ABI::V5, "device controls", "device controls");
        part(ABI::V6, "signals and abstract sockets", "signals to other processes");
        part(ABI::V9, "sockets of the file system", "sockets of the file system (seccomp closes them)");
        let missing = match missing.as_slice() {
            [] => String::new(),
            missing => format!("; not known to this kernel: {}", missing.join(", ")),
        };
        format!("landlock ABI {} and seccomp enforce {}{missing}", self.abi, parts.join(", "))
    }

    fn confines(&self) -> bool {
        true
    }

    fn wrap(&self, argv: Vec<OsString>, confined: Confined) -> Wrapped {
        let env = variables(&confined);
        let order = Order { limits: confined.limits, confine: Some(confined.confine) };
        Wrapped { argv, env, confined: true, order }
    }
}

/// Confines the calling thread and everything it starts from now on. There is no way back.
pub(crate) fn confine(confine: &Confine) -> io::Result<()> {
    privileges::drop_them();
    let status = restrict(confine).map_err(io::Error::other)?;
    let LandlockStatus::Available { effective_abi, .. } = status.landlock else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Where Landlock decides which sockets of the file system are reached, making one is harmless.
    let local_sockets = confine.local_sockets || effective_abi >= ABI::V9;
    filter::apply(&filter::Wanted { network: confine.network, local_sockets })
}

fn restrict(confine: &Confine) -> Result<RestrictionStatus, landlock::RulesetError> {
    let mut handled = AccessFs::from_all(NEWEST);
    if confine.local_sockets {
        handled.remove(AccessFs::ResolveUnix);
    }
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .scope(Scope::from_all(NEWEST))?;
    if !confine.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let mut created = ruleset.create()?;
    rules::grant(confine, |handle, access| {
        (&mut created).add_rule(landlock::PathBeneath::new(handle, access & handled)).map(drop)
    })?;
    created.restrict_self()
}
