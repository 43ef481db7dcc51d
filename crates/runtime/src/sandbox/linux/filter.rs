//! The system calls that a command does not get: what looks into other processes, changes the machine, makes name spaces, or
//! gets round the other checks. Everything else is allowed: programs use hundreds of calls, and a list of those would break them.

use std::{collections::BTreeMap, env::consts::ARCH, io};

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// What depends on the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) network: bool,
    pub(super) local_sockets: bool,
}

/// Calls that fail with "operation not permitted", whatever their arguments are.
const DENIED: &[c_long] = &[
    // Other processes: memory, files, comparison of both.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    // Keys of the session and the machine.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Programs in the kernel, and calls that no filter sees.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Files by number, and everything that happens to files.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The machine itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Name spaces: in one of its own a process is the superuser, and reaches code of the kernel that nobody else does.
const NAME_SPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Types into a terminal as if somebody had: `TIOCSTI` and `TIOCLINUX`, whose type differs between C libraries.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// Second numbers of the calls on this processor: the kernel may know them with this bit, and filters compare numbers.
#[cfg(target_arch = "x86_64")]
const SECOND: c_long = 0x4000_0000;

/// Those of the calls above that have numbers of their own there.
#[cfg(target_arch = "x86_64")]
const SECOND_OWN: [c_long; 5] = [SECOND + 521, SECOND + 528, SECOND + 539, SECOND + 540, SECOND + 514];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters the calls of this thread and of what it starts.
pub(super) fn apply(wanted: &Wanted) -> io::Result<()> {
    let failed = |error: seccompiler::Error| io::Error::other(error.to_string());
    for program in programs(wanted).map_err(|error| io::Error::other(error.to_string()))? {
        seccompiler::apply_filter(&program).map_err(failed)?;
    }
    Ok(())
}

fn programs(wanted: &Wanted) -> Result<[BpfProgram; 3], seccompiler::BackendError> {
    let mut refused: Rules = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    let flags = |argument: u8| NAME_SPACES.iter().map(move |flag| masked(argument, *flag as u64)).collect();
    refused.insert(libc::SYS_unshare, Result::from_iter::<Vec<_>>(flags(0))?);
    refused.insert(libc::SYS_clone, Result::from_iter::<Vec<_>>(flags(0))?);
    refused.insert(libc::SYS_ioctl, TYPING.iter().map(|request| equal(1, *request)).collect::<Result<_, _>>()?);
    // Its flags lie in memory, where no filter looks. Programs that get this answer use `clone`.
    let unknown: Rules = [(libc::SYS_clone3, Vec::new())].into();
    Ok([program(refused, libc::EPERM)?, program(unknown, libc::ENOSYS)?, program(sockets(wanted)?, libc::EACCES)?])
}

/// The kinds of sockets that cannot be made. Only those that are known to be harmless can.
fn sockets(wanted: &Wanted) -> Result<Rules, seccompiler::BackendError> {
    let mut allowed = Vec::new();
    if wanted.local_sockets {
        allowed.push(libc::AF_UNIX);
    }
    if wanted.network {
        // The kernel tells about addresses and routes over a socket as well.
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    let conditions = allowed.iter().map(|family| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))
    });
    let conditions: Vec<_> = conditions.collect::<Result<_, _>>()?;
    let rules = if conditions.is_empty() { Vec::new() } else { vec![SeccompRule::new(conditions)?] };
    Ok([(libc::SYS_socket, rules)].into())
}

fn masked(argument: u8, flag: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let operator = SeccompCmpOp::MaskedEq(flag);
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, flag)?])
}

fn equal(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?])
}

fn program(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let architecture = TargetArch::try_from(ARCH)?;
    SeccompFilter::new(twice(rules), SeccompAction::Allow, action, architecture)?.try_into()
}

/// The rules, for both numbers of each call.
#[cfg(target_arch = "x86_64")]
fn twice(rules: Rules) -> Rules {
    let own = if rules.contains_key(&libc::SYS_ptrace) { SECOND_OWN.as_slice() } else { &[] };
    let second: Vec<_> = rules.iter().map(|(call, rules)| (call + SECOND, rules.clone())).collect();
    rules.into_iter().chain(second).chain(own.iter().map(|call| (*call, Vec::new()))).collect()
}

/// The rules: calls have one number here.
#[cfg(not(target_arch = "x86_64"))]
fn twice(rules: Rules) -> Rules {
    rules
}
