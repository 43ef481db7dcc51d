//! What is known about programs by name: which only read, which change things, which destroy, which run others.
//! A name that is not here is a program nobody vouches for, and is asked about.

/// What a program does when nothing in its arguments says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads files and writes to its output. No option of it writes, runs or sends anything.
    Plain,
    /// Reads, except with one of these options, which change something or run another program.
    Except(&'static [&'static str]),
    /// Reads, has further rules of its own.
    Special(Special),
    /// Runs another program or script.
    Wrapper(Wrapper),
    /// Changes files, builds, tests or installs; the text completes "`name` …".
    Changes(&'static str),
    /// Talks to other machines.
    Network,
    /// Runs a program text or file that is not judged here.
    Interprets,
    /// Destroys in bulk, or takes rights that a user does not have; the text completes "`name` …".
    Danger(&'static str),
}

/// Programs whose arguments decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Cd,
    Chmod,
    Date,
    Fd,
    Find,
    Git,
    Grep,
    Hostname,
    OneOperand,
    Rm,
    Sed,
    Systemctl,
    Tool,
}

/// Programs that run others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapper {
    /// Options, then the command. The first list has the flags, the second the options that take a value.
    Prefix {
        flags: &'static [&'static str],
        values: &'static [&'static str],
        operands: usize,
    },
    /// `command -v` only looks; `command x` runs.
    Command,
    Env,
    /// A shell, with whether its language is the one that is parsed here.
    Shell {
        posix: bool,
    },
    /// A command whose own rights are the danger, and another behind it.
    Privilege,
    Xargs,
    /// `busybox x` is `x`.
    Multicall,
    /// The arguments are joined and run as a script.
    Eval,
    /// `trap 'script' SIGNAL`.
    Trap,
}

const RUNS: &str = "runs the project's code or changes files";
const BUILDS: &str = "builds, tests or runs code";
const WRITES: &str = "changes files";
const SYSTEM: &str = "changes the system";
const STATE: &str = "changes what later commands mean";

/// Finds a program by the name it is called with, in lower case.
pub(super) fn kind(name: &str) -> Option<Kind> {
    reading(name).or_else(|| wrapping(name)).or_else(|| changing(name)).or_else(|| dangerous(name))
}

fn reading(name: &str) -> Option<Kind> {
    Some(match name {
        ":" | "true" | "false" | "echo" | "printf" | "pwd" | "cat" | "ls" | "dir" | "head" | "tail" | "wc" | "nl"
        | "tac" | "rev" | "cut" | "tr" | "paste" | "join" | "comm" | "cmp" | "diff" | "diff3" | "od" | "hexdump"
        | "strings" | "stat" | "readlink" | "realpath" | "basename" | "dirname" | "test" | "[" | "seq" | "expr"
        | "sleep" | "whoami" | "id" | "groups" | "uname" | "uptime" | "nproc" | "arch" | "which" | "whereis"
        | "type" | "md5sum" | "sha1sum" | "sha224sum" | "sha256sum" | "sha384sum" | "sha512sum" | "b2sum" | "cksum"
        | "sum" | "du" | "df" | "free" | "ps" | "fold" | "fmt" | "expand" | "unexpand" | "column" | "getconf"
        | "locale" | "tty" | "cal" | "printenv" | "zcat" | "jq" | "tokei" | "numfmt" | "factor" | "tsort" | "pgrep"
        | "pidof" | "lscpu" | "lsblk" | "vdir" | "exit" | "return" | "break" | "continue" | "shift" | "wait"
        | "times" | "jobs" | "nm" | "size" => Kind::Plain,
        "sort" => {
            Kind::Except(&["-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"])
        }
        "base64" | "base32" => Kind::Except(&["-o", "--output"]),
        "tree" => Kind::Except(&["-o", "-R"]),
        "file" => Kind::Except(&["-C", "--compile", "-f", "--files-from", "-z", "-Z", "-S"]),
        "rg" | "ripgrep" => {
            Kind::Except(&["--pre", "--pre-glob", "--hostname-bin", "-z", "--search-zip", "-f", "--file"])
        }
        "ag" => Kind::Except(&["--pager", "-z", "--search-zip"]),
        "yq" => Kind::Except(&["-i", "--inplace", "--in-place", "-s", "--split-exp"]),
        "xxd" => Kind::Special(Special::OneOperand),
        "uniq" => Kind::Special(Special::OneOperand),
        "date" => Kind::Special(Special::Date),
        "hostname" => Kind::Special(Special::Hostname),
        "grep" | "egrep" | "fgrep" | "zgrep" => Kind::Special(Special::Grep),
        "find" => Kind::Special(Special::Find),
        "fd" | "fdfind" => Kind::Special(Special::Fd),
        "sed" | "gsed" => Kind::Special(Special::Sed),
        "git" => Kind::Special(Special::Git),
        "cd" | "chdir" => Kind::Special(Special::Cd),
        _ => return None,
    })
}

fn wrapping(name: &str) -> Option<Kind> {
    let prefix = |flags, values, operands| Kind::Wrapper(Wrapper::Prefix { flags, values, operands });
    Some(match name {
        "env" => Kind::Wrapper(Wrapper::Env),
        "command" => Kind::Wrapper(Wrapper::Command),
        "builtin" => prefix(&[], &[], 0),
        "exec" => prefix(&["-c", "-l"], &["-a"], 0),
        "nohup" => prefix(&[], &[], 0),
        "setsid" => prefix(&["-c", "--ctty", "-f", "--fork", "-w", "--wait"], &[], 0),
        "time" => prefix(&["-p", "--portability", "-v", "--verbose", "-q", "--quiet"], &["-f", "--format"], 0),
        "nice" => prefix(&[], &["-n", "--adjustment"], 0),
        "ionice" => prefix(&["-t", "--ignore"], &["-c", "--class", "-n", "--classdata"], 0),
        "chrt" => prefix(&["-b", "--batch", "-o", "--other", "-i", "--idle"], &[], 1),
        "taskset" => prefix(&["-c", "--cpu-list"], &[], 1),
        "stdbuf" => prefix(&[], &["-i", "--input", "-o", "--output", "-e", "--error"], 0),
        "timeout" | "gtimeout" => prefix(
            &["--foreground", "--preserve-status", "-v", "--verbose", "-f", "-p"],
            &["-k", "--kill-after", "-s", "--signal"],
            1,
        ),
        "caffeinate" | "chronic" | "unbuffer" | "nocache" | "faketime" => prefix(&[], &[], 0),
        "xargs" | "gxargs" | "parallel" => Kind::Wrapper(Wrapper::Xargs),
        "sh" | "dash" | "ash" | "bash" => Kind::Wrapper(Wrapper::Shell { posix: true }),
        "zsh" | "ksh" | "mksh" | "fish" | "csh" | "tcsh" | "rbash" | "pwsh" => {
            Kind::Wrapper(Wrapper::Shell { posix: false })
        }
        "busybox" | "toybox" | "coreutils" => Kind::Wrapper(Wrapper::Multicall),
        "eval" => Kind::Wrapper(Wrapper::Eval),
        "trap" => Kind::Wrapper(Wrapper::Trap),
        "sudo" | "su" | "doas" | "pkexec" | "runuser" | "run0" | "gosu" | "su-exec" | "setpriv" | "capsh"
        | "nsenter" | "unshare" | "chroot" | "systemd-run" => Kind::Wrapper(Wrapper::Privilege),
        _ => return None,
    })
}

fn changing(name: &str) -> Option<Kind> {
    Some(match name {
        "cargo" | "rustc" | "rustup" | "go" | "npm" | "pnpm" | "yarn" | "bun" | "deno" | "pip" | "pip3" | "uv"
        | "uvx" | "poetry" | "pipx" | "gem" | "bundle" | "mvn" | "gradle" | "dotnet" | "composer" | "mix" | "swift"
        | "zig" | "tsc" | "cmake" | "ninja" | "meson" | "rake" | "just" | "task" | "bazel" | "node" | "python"
        | "python3" | "ruby" | "java" | "javac" | "gcc" | "g++" | "cc" | "c++" | "clang" | "clang++" | "ld"
        | "make" | "gmake" | "php" | "perl" | "lua" | "ghc" | "cabal" | "stack" | "pytest" | "tox" | "jest"
        | "vitest" | "eslint" | "prettier" | "black" | "ruff" | "mypy" | "npx" | "pnpx" | "bunx" | "yarnpkg"
        | "corepack" | "docker" | "podman" | "kubectl" | "helm" | "terraform" | "ansible" | "gh" | "glab" | "code" => {
            Kind::Special(Special::Tool)
        }
        "awk" | "gawk" | "mawk" | "nawk" | "source" | "." | "osascript" | "expect" | "ed" | "ex" | "vi" | "vim"
        | "nvim" | "emacs" | "nano" | "less" | "more" | "man" | "m4" | "tclsh" | "rscript" | "julia" | "gdb"
        | "lldb" | "strace" | "ltrace" | "script" | "watch" | "flock" | "screen" | "tmux" | "sqlite3" | "psql"
        | "mysql" => Kind::Interprets,
        "cp" | "mv" | "mkdir" | "touch" | "ln" | "tee" | "truncate" | "install" | "rmdir" | "unlink" | "tar"
        | "zip" | "unzip" | "gzip" | "gunzip" | "bzip2" | "xz" | "zstd" | "7z" | "patch" | "split" | "csplit"
        | "mktemp" | "mkfifo" | "mknod" | "cpio" | "pax" | "ar" | "ranlib" | "strip" | "objcopy" | "iconv"
        | "chgrp" | "setfacl" | "xattr" => Kind::Changes(WRITES),
        "apt" | "apt-get" | "dpkg" | "dnf" | "yum" | "rpm" | "pacman" | "apk" | "zypper" | "snap" | "flatpak"
        | "brew" | "nix" | "nix-env" => Kind::Changes("installs software"),
        "ip" | "ifconfig" | "route" => Kind::Changes(SYSTEM),
        "kill" | "pkill" | "killall" => Kind::Changes("ends processes"),
        "export" | "unset" | "set" | "alias" | "unalias" | "read" | "readonly" | "local" | "typeset" | "declare"
        | "hash" | "umask" | "ulimit" | "pushd" | "popd" | "shopt" | "enable" | "bind" | "getopts" | "fc"
        | "history" | "mapfile" | "readarray" | "let" => Kind::Changes(STATE),
        "xdg-open" | "open" | "start" => Kind::Changes(RUNS),
        "valgrind" | "perf" | "hyperfine" => Kind::Changes(BUILDS),
        "chmod" => Kind::Special(Special::Chmod),
        "rm" => Kind::Special(Special::Rm),
        "curl" | "wget" | "nc" | "ncat" | "netcat" | "socat" | "ssh" | "scp" | "sftp" | "rsync" | "ftp" | "telnet"
        | "ping" | "dig" | "nslookup" | "host" | "traceroute" | "aria2c" | "http" | "https" | "xh" | "rclone"
        | "openssl" | "gpg" | "aws" | "gcloud" | "az" | "mail" | "sendmail" | "mosh" | "nmap" => Kind::Network,
        "systemctl" | "service" | "launchctl" => Kind::Special(Special::Systemctl),
        _ => return None,
    })
}

fn dangerous(name: &str) -> Option<Kind> {
    Some(match name {
        "dd" | "shred" | "wipefs" | "blkdiscard" | "fdisk" | "sfdisk" | "gdisk" | "parted" | "mkswap" | "srm"
        | "wipe" | "diskutil" | "hdparm" | "badblocks" => Kind::Danger("destroys data"),
        "shutdown" | "reboot" | "halt" | "poweroff" | "init" | "telinit" | "kexec" => Kind::Danger("stops the machine"),
        "chown"
        | "chattr"
        | "setcap"
        | "mount"
        | "umount"
        | "losetup"
        | "swapon"
        | "swapoff"
        | "useradd"
        | "userdel"
        | "usermod"
        | "adduser"
        | "deluser"
        | "groupadd"
        | "groupdel"
        | "gpasswd"
        | "passwd"
        | "chpasswd"
        | "chsh"
        | "chfn"
        | "visudo"
        | "vipw"
        | "newgrp"
        | "sg"
        | "iptables"
        | "ip6tables"
        | "nft"
        | "ufw"
        | "firewall-cmd"
        | "insmod"
        | "rmmod"
        | "modprobe"
        | "sysctl"
        | "crontab"
        | "at"
        | "batch"
        | "update-alternatives"
        | "ldconfig"
        | "dscl"
        | "spctl"
        | "csrutil"
        | "tccutil"
        | "reg"
        | "sc"
        | "icacls"
        | "takeown" => Kind::Danger(SYSTEM),
        _ if name.starts_with("mkfs") || name.starts_with("fsck") => Kind::Danger("destroys data"),
        _ => return None,
    })
}

/// Variables that change how things look and nothing else.
pub(super) fn is_harmless_variable(name: &str) -> bool {
    matches!(
        name,
        "LANG"
            | "LANGUAGE"
            | "TZ"
            | "TERM"
            | "COLUMNS"
            | "LINES"
            | "NO_COLOR"
            | "FORCE_COLOR"
            | "CLICOLOR"
            | "CLICOLOR_FORCE"
            | "CI"
            | "RUST_BACKTRACE"
            | "RUST_LOG"
            | "CARGO_TERM_COLOR"
            | "NODE_ENV"
    ) || (name.starts_with("LC_") && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
}

/// The directories whose programs are those that their names say.
pub(super) fn is_system_directory(directory: &str) -> bool {
    matches!(
        directory,
        "/bin"
            | "/sbin"
            | "/usr/bin"
            | "/usr/sbin"
            | "/usr/local/bin"
            | "/usr/local/sbin"
            | "/opt/homebrew/bin"
            | "/run/current-system/sw/bin"
    )
}

/// Whether an argument is an option or an abbreviation of one: `-o`, `-ofile`, `--output`, `--outp=x`, and `-rno` for `-o`.
pub(super) fn is_option(argument: &str, option: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let Some(given) = argument.strip_prefix("--") else { return false };
        let given = given.split_once('=').map_or(given, |(name, _)| name);
        return !given.is_empty() && long.starts_with(given);
    }
    let Some(letter) = option.strip_prefix('-') else { return false };
    argument.strip_prefix('-').is_some_and(|cluster| !cluster.starts_with('-') && cluster.contains(letter))
}
