//! What this process may do: capabilities, locked memory, CPUs.

use linerate_net::privilege::{self, CapabilitySet};
use linerate_net::text::plural;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, getrlimit};
use rustix::thread;

use super::{Answer, CAPTURE, FORWARD};
use crate::context::Context;
use crate::finding::Job::{self, Capture, Forward, Receive, Uplink};
use crate::host::read;

/// A capability, the jobs that do not work without it, and those that lose a backend.
struct Need {
    name: &'static str,
    fatal: &'static [Job],
    warning: &'static [Job],
    without: &'static str,
}

/// As docs/kernels.md lists them.
const NEEDS: &[Need] = &[
    Need {
        name: "CAP_NET_RAW",
        fatal: &[Capture, Uplink],
        warning: &[Receive],
        without: "packet sockets and AF_XDP sockets cannot be opened",
    },
    Need {
        name: "CAP_NET_ADMIN",
        fatal: &[Forward, Uplink],
        warning: &[Capture, Receive],
        without: "programs cannot be attached to interfaces, settings of interfaces cannot be changed",
    },
    Need {
        name: "CAP_BPF",
        fatal: FORWARD,
        warning: &[Capture, Receive, Uplink],
        without: "BPF programs cannot be loaded",
    },
    Need {
        name: "CAP_PERFMON",
        fatal: FORWARD,
        warning: &[Capture, Receive, Uplink],
        without: "BPF programs that compute with packet pointers cannot be loaded",
    },
];

pub(super) fn capabilities(_: &Context<'_>) -> Vec<Answer> {
    let program = std::env::current_exe().unwrap_or_else(|_| "linerate".into());
    let all = "cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon";
    let mut answers = Vec::new();
    for need in NEEDS.iter().filter(|need| privilege::lacks(need.name)) {
        let what = format!("{} is missing: {}", need.name, need.without);
        let remedy = format!("setcap {all}+ep {}", program.display());
        answers.push(Answer::fatal(&what).by_hand(&remedy).of(need.fatal));
        answers.push(Answer::warning(&what).by_hand(&remedy).of(need.warning));
    }
    // In a user namespace a process may have all capabilities, and none that counts for this network.
    if !privilege::lacks("CAP_NET_RAW")
        && let Err(error) = socket(AddressFamily::PACKET, SocketType::RAW, None)
    {
        let what = format!(
            "packet sockets are refused although CAP_NET_RAW is there ({error}): the network belongs to another user \
             namespace, or a seccomp filter denies them"
        );
        answers
            .push(Answer::fatal(&what).by_hand("run as root of the host").of(&[Capture, Uplink]));
    }
    if !privilege::has(CapabilitySet::SYS_ADMIN) {
        let what = "CAP_SYS_ADMIN is missing: programs of other processes are not shown in full, and the \
                    tee of another capture cannot be joined";
        answers.push(Answer::note(what).by_hand("run as root").of(CAPTURE));
    }
    if !answers.is_empty() && thread::no_new_privs().unwrap_or(false) {
        let what = "capabilities of files (setcap) have no effect: no_new_privs is set";
        answers.push(Answer::note(what).by_hand("run as root, or without NoNewPrivileges="));
    }
    if answers.is_empty() {
        answers.push(Answer::ok("this process has all that Linerate needs"));
    }
    answers
}

/// Bytes that AF_XDP sockets lock by default.
const LOCKED: u64 = 64 << 20;

pub(super) fn locked_memory(_: &Context<'_>) -> Vec<Answer> {
    if privilege::has(CapabilitySet::IPC_LOCK) {
        return Answer::ok("CAP_IPC_LOCK: no limit").alone();
    }
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < LOCKED => {
            let what = format!(
                "RLIMIT_MEMLOCK is {} KiB, and the buffer of AF_XDP sockets takes 64 MiB",
                limit >> 10
            );
            Answer::warning(what).by_hand("ulimit -l unlimited").alone()
        }
        Some(limit) => Answer::ok(format!("RLIMIT_MEMLOCK is {} MiB", limit >> 20)).alone(),
        None => Answer::ok("RLIMIT_MEMLOCK is unlimited").alone(),
    }
}

/// Files that a capture in several rotating files, or a server of metrics, may have open.
const FILES: u64 = 1024;
/// `SCHED_IDLE`.
const IDLE: u64 = 5;

pub(super) fn limits(_: &Context<'_>) -> Vec<Answer> {
    let mut answers = Vec::new();
    if let Some(limit) = getrlimit(Resource::Nofile).maximum.filter(|limit| *limit < FILES) {
        let what = format!("RLIMIT_NOFILE lets this process open no more than {limit} at once");
        answers.push(Answer::warning(what).by_hand("ulimit -n 65536, LimitNOFILE= of a unit"));
    }
    if let Some(limit) = getrlimit(Resource::Fsize).current {
        let what = format!("a file may have {limit} bytes at most (RLIMIT_FSIZE)");
        let remedy = "ulimit -f unlimited, LimitFSIZE= of a unit";
        answers.push(Answer::warning(what).by_hand(remedy).of(CAPTURE));
    }
    // After the name, which may have any characters: fields 3 and on (proc_pid_stat(5)); the policy is the 41st.
    let stat = read("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    if fields.split(' ').nth(38).and_then(|policy| policy.parse().ok()) == Some(IDLE) {
        let what = "this process runs only while a CPU is idle (SCHED_IDLE)";
        answers.push(Answer::warning(what).by_hand("chrt --other 0 linerate ..."));
    }
    if answers.is_empty() {
        answers.push(Answer::ok("no limit of files, and no lower scheduling class"));
    }
    answers
}

pub(super) fn cpus(context: &Context<'_>) -> Vec<Answer> {
    let (allowed, online) = (&context.host.allowed, &context.host.online);
    if allowed.len() < online.len() {
        let what = format!(
            "this process may use {} of {} CPUs ({allowed:?})",
            allowed.len(),
            online.len()
        );
        let list: Vec<_> = online.iter().map(usize::to_string).collect();
        let remedy = format!("taskset -c {} linerate ..., or widen its cpuset", list.join(","));
        return Answer::warning(what).by_hand(&remedy).alone();
    }
    Answer::ok(format!("{} of {}", online.len(), plural(online.len() as u64, "CPU"))).alone()
}
