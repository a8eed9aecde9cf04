//! [`CHECKS`]: all checks, each with its id, jobs, question, source and cost.

mod datagrams;
mod kernel;
mod machine;
mod offloads;
mod port;
mod process;
mod queues;
mod stack;
mod tc;
mod xdp;

use std::fmt;

use linerate_net::link::Link;

use crate::context::Context;
use crate::finding::Job::{self, Capture, Forward, Receive, Uplink};
use crate::finding::{Remedy, Severity};
use crate::setting::Change;

const ALL: &[Job] = Job::ALL;
const CAPTURE: &[Job] = &[Capture];
const FORWARD: &[Job] = &[Forward];
const RECEIVE: &[Job] = &[Receive];
const RECEIVERS: &[Job] = &[Capture, Receive];
const XDP: &[Job] = &[Capture, Receive, Uplink];

/// A check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name in the output.
    pub id: &'static str,
    /// The jobs that it matters for.
    pub jobs: &'static [Job],
    /// What is asked.
    pub question: &'static str,
    /// Who answers.
    pub measured: &'static str,
    /// What a bad answer costs.
    pub cost: &'static str,
    pub(crate) scope: Scope,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl Check {
    /// Whether it is about an interface, and not about the host.
    pub fn is_of_interface(&self) -> bool {
        matches!(self.scope, Scope::Interface(_))
    }
}

/// What a check is about.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    Host(fn(&Context<'_>) -> Vec<Answer>),
    Interface(fn(&Context<'_>, &Link) -> Vec<Answer>),
}
use Scope::{Host, Interface};

/// A finding without what the check's row says.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) severity: Severity,
    /// `None`: those of the check.
    pub(crate) jobs: Option<&'static [Job]>,
    pub(crate) what: String,
    pub(crate) remedy: Remedy,
}

impl Answer {
    fn new(severity: Severity, what: impl Into<String>) -> Self {
        Self { severity, jobs: None, what: what.into(), remedy: Remedy::None }
    }

    fn ok(what: impl Into<String>) -> Self {
        Self::new(Severity::Ok, what)
    }

    fn note(what: impl Into<String>) -> Self {
        Self::new(Severity::Note, what)
    }

    fn unknown(what: impl Into<String>) -> Self {
        Self::new(Severity::Unknown, what)
    }

    fn warning(what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, what)
    }

    fn fatal(what: impl Into<String>) -> Self {
        Self::new(Severity::Fatal, what)
    }

    /// Only for these jobs.
    fn of(self, jobs: &'static [Job]) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    /// The administrator helps; not where all is well.
    fn by_hand(self, command: &str) -> Self {
        match self.severity {
            Severity::Ok => self,
            _ => Self { remedy: Remedy::Manual(command.to_owned()), ..self },
        }
    }

    fn change(self, change: Change) -> Self {
        self.changes(vec![change])
    }

    fn changes(self, changes: Vec<Change>) -> Self {
        Self { remedy: Remedy::Changes(changes), ..self }
    }

    fn alone(self) -> Vec<Self> {
        vec![self]
    }
}

macro_rules! checks {
    ($(($id:literal, $jobs:expr, $question:literal, $measured:literal, $cost:literal, $scope:expr),)*) => {
        /// All checks: those of the host, then those of an interface, in the order of the output.
        pub const CHECKS: &[Check] = &[$(Check {
            id: $id, jobs: $jobs, question: $question, measured: $measured, cost: $cost, scope: $scope,
        }),*];
    };
}

checks! {
    ("capabilities", ALL, "Does this process have the capabilities?", "capget(2)",
     "jobs or backends that need them do not start", Host(process::capabilities)),
    ("memlock", XDP, "May it lock the buffer of AF_XDP sockets?", "getrlimit(2)",
     "AF_XDP sockets do not open with their default buffer; ring buffers do", Host(process::locked_memory)),
    ("cpus", ALL, "May it use all CPUs?", "sched_getaffinity(2)",
     "queues of other CPUs are read from afar, or by fewer threads", Host(process::cpus)),
    ("limits", ALL, "Do limits of the process suffice?", "getrlimit(2), /proc/self/stat",
     "files or connections end a job, or it waits for all others", Host(process::limits)),
    ("btf", &[Capture, Forward], "Does the kernel describe its types?", "/sys/kernel/btf/vmlinux",
     "no tracing; tracked connections stay on the kernel's slow path", Host(kernel::btf)),
    ("bpffs", FORWARD, "Is a BPF file system mounted?", "statfs(2) of /sys/fs/bpf",
     "forward cannot pin its programs and does not start", Host(kernel::bpffs)),
    ("lockdown", CAPTURE, "Does lockdown allow tracing?", "/sys/kernel/security/lockdown",
     "no --source trace, no --source drops", Host(kernel::lockdown)),
    ("tracing", CAPTURE, "Can programs trace functions?", "by attaching an fentry program for a moment",
     "most often no --source trace",
     Host(kernel::tracing)),
    ("bpf-jit", &[Capture, Forward, Receive, Uplink], "Are BPF programs compiled, without blinding?",
     "net.core.bpf_jit_enable, net.core.bpf_jit_harden", "every frame takes longer in XDP and filters",
     Host(kernel::jit)),
    ("clock-source", RECEIVERS, "Is the clock fast to read?",
     "/sys/devices/system/clocksource/clocksource0/current_clocksource",
     "each timestamp waits for a register of a device", Host(kernel::clock)),
    ("huge-pages", XDP, "Are huge pages free for the buffer?", "/proc/meminfo",
     "a walk over 128 MiB took 434 ns a frame on small pages, 372 on huge ones; captures lost no more frames \
      (docs/figures.md)",
     Host(machine::huge_pages)),
    ("transparent-huge-pages", XDP, "May buffers have transparent huge pages?",
     "/sys/kernel/mm/transparent_hugepage/enabled",
     "a walk over 128 MiB took 434 ns a frame on small pages, 355 on transparent ones (docs/figures.md)",
     Host(machine::transparent_huge_pages)),
    ("cpu-frequency", ALL, "Do the CPUs run at full speed?", "cpufreq/scaling_governor of each CPU",
     "bursts arrive while a CPU is still slow", Host(machine::frequency)),
    ("idle-states", ALL, "Do the CPUs wake up fast?", "cpuidle/*/latency of each CPU",
     "the first frame after a pause waits that long", Host(machine::idle_states)),
    ("irqbalance", RECEIVERS, "Does something move interrupts?", "/proc/*/comm",
     "interrupts move away from the readers of their queues", Host(machine::irqbalance)),
    ("backlog", ALL, "Have backlogs of CPUs overflowed?", "/proc/net/softnet_stat",
     "these frames are lost", Host(stack::backlog)),
    ("forwarding", FORWARD, "Does the kernel forward?",
     "net.ipv4.ip_forward, net.ipv6.conf.all.forwarding", "forward repeats what the kernel does: nothing",
     Host(stack::forwarding)),
    ("conntrack", FORWARD, "Is the connection table large enough?", "nf_conntrack_count, nf_conntrack_max",
     "the kernel drops the first packets of new connections when the table is full", Host(stack::conntrack)),
    ("conntrack-lookup", FORWARD, "Can programs look connections up?", "BTF of the kernel and of nf_conntrack",
     "tracked connections stay with the kernel", Host(stack::conntrack_lookup)),
    ("rules", FORWARD, "Must rules see every packet?", "nf_tables and x_tables (netlink, getsockopt)",
     "sessions that these rules see stay with the kernel: 348 ns a packet, against 49 in XDP (docs/figures.md)",
     Host(stack::rules)),
    ("neighbours", &[Forward, Uplink], "Do next hops answer?", "the neighbour tables (RTM_GETNEIGH)",
     "packets to them are dropped after the kernel has waited for an answer", Host(stack::neighbours)),
    ("socket-buffer", RECEIVE, "May a socket have a large buffer?", "net.core.rmem_max",
     "a shorter stall of the reader loses messages", Host(stack::socket_buffer)),
    ("datagram-losses", RECEIVE, "Has the kernel lost datagrams?", "/proc/net/snmp, netstat and snmp6",
     "these datagrams are lost", Host(datagrams::losses)),
    ("datagram-limits", RECEIVE, "Are the limits of fragments and groups high enough?",
     "net.ipv4.ipfrag_high_thresh, net.ipv4.igmp_max_memberships and others", "datagrams are lost",
     Host(datagrams::limits)),
    ("routing-rules", &[Receive, Forward], "Do routing rules select by addresses?", "RTM_GETRULE",
     "datagrams do not reach their sockets; forward learns sessions again after each change of a route",
     Host(datagrams::routing_rules)),

    ("link", ALL, "Is it up, with a carrier?", "RTM_GETLINK", "nothing arrives", Interface(port::state)),
    ("losses", ALL, "Has it lost frames?", "its counters (IFLA_STATS64)", "these frames are lost",
     Interface(port::losses)),
    ("xdp-program", ALL, "Is the place for an XDP program free?", "bpf_xdp_query, and /proc/*/fd for who holds it",
     "an interface has one XDP program: Linerate falls back to packet sockets, or does not start",
     Interface(xdp::program)),
    ("xdp-mode", ALL, "Does the driver take an XDP program?", "by attaching one for a moment",
     "generic XDP runs in the stack, after the socket buffer is made, and is no faster than packet sockets",
     Interface(xdp::mode)),
    ("zero-copy", XDP, "Does the driver share frames with AF_XDP sockets?", "netdev netlink (xdp-features)",
     "the kernel copies each frame once", Interface(xdp::features)),
    ("source", CAPTURE, "Which source does a capture select?", "as `linerate capture` does",
     "2.1 million frames a second through packet, 6.9 through xdp (docs/figures.md)", Interface(port::source)),
    ("port", FORWARD, "Can it be a port of forward?", "the preflight of `linerate forward`",
     "packets of this interface stay with the kernel", Interface(port::port)),
    ("packet-sockets", ALL, "Does somebody copy every frame?", "/proc/net/packet",
     "each of them costs every frame a clone and a queue", Interface(port::packet_sockets)),
    ("rp-filter", RECEIVE, "Is the reverse path filter strict?", "net.ipv4.conf.*.rp_filter",
     "messages of multicast groups and of asymmetric routes are lost", Interface(port::reverse_path)),
    ("input-filter", RECEIVE, "Do packets to this host meet packet filters?", "nf_tables and x_tables (netlink, getsockopt)",
     "datagrams that they drop reach no socket", Interface(datagrams::filters)),
    ("addresses", &[Receive, Forward], "Can hosts reach its addresses?", "RTM_GETADDR, /proc/net/if_inet6, RTM_GETLINK",
     "packets to them arrive elsewhere, or nowhere", Interface(datagrams::addresses)),
    ("queues", ALL, "Does each CPU have a queue?", "ethtool -l (netlink)", "one CPU receives what several could",
     Interface(queues::queues)),
    ("rss-hash", queues::HASH_JOBS, "Is the hash symmetric?", "ethtool -x (netlink)",
     "the two directions of a connection meet on two CPUs; with --threads they are in two flow records, and in two \
      files with --per-thread-files",
     Interface(queues::hash)),
    ("ring-size", ALL, "Are the rings large?", "ethtool -g (netlink)",
     "a ring of N descriptors loses frames when its CPU is away for more than N frames", Interface(queues::rings)),
    ("coalescing", ALL, "Do interrupts wait for several frames?", "ethtool -c (netlink)",
     "without it an interrupt for each frame; with too much of it latency", Interface(queues::coalescing)),
    ("packet-steering", ALL, "Does RPS move packets to other CPUs?", "queues/rx-*/rps_cpus in sysfs",
     "an interrupt between CPUs and cold caches for packets", Interface(queues::steering)),
    ("irq-deferral", ALL, "Are interrupts deferred?", "napi_defer_hard_irqs, gro_flush_timeout in sysfs",
     "latency, unless the application polls", Interface(queues::deferral)),
    ("irq-affinity", ALL, "Do queues interrupt different CPUs?", "/proc/interrupts, /proc/irq",
     "one CPU receives what several could", Interface(queues::interrupts)),
    ("numa", ALL, "Are CPUs on the card's node?", "numa_node in sysfs, sched_getaffinity(2)",
     "every byte crosses the link between the sockets (docs/scale.md)", Interface(queues::node)),
    ("lro", ALL, "Does the card join TCP segments?", "ethtool -k (netlink)",
     "captures see super-packets, forwarding may not use it, many drivers refuse XDP with it", Interface(offloads::lro)),
    ("gro-hw", ALL, "Does the card join frames?", "ethtool -k (netlink)",
     "captures see super-packets; drivers refuse XDP with it", Interface(offloads::hardware_gro)),
    ("gro", CAPTURE, "Does the stack join frames?", "ethtool -k (netlink)",
     "packet and generic XDP see super-packets that were never on the wire (--split restores them)",
     Interface(offloads::gro)),
    ("gro-list", CAPTURE, "Does the stack join UDP frames to lists?", "ethtool -k (netlink)",
     "packet sees the first header of several datagrams", Interface(offloads::gro_list)),
    ("gro-forwarding", CAPTURE, "Does the stack join UDP frames that it forwards?", "ethtool -k (netlink)",
     "packet sees the first header of several datagrams", Interface(offloads::gro_forwarding)),
    ("vlan-strip", ALL, "Do VLAN tags stay in the frames?", "ethtool -k (netlink)",
     "XDP programs do not see the tags", Interface(offloads::vlan)),
    ("qdisc", FORWARD, "Does what leaves meet a queueing discipline?", "RTM_GETQDISC",
     "XDP may not send past it: sessions take the slower TC datapath", Interface(tc::qdiscs)),
    ("ingress-filter", &[Forward, Receive], "Does what comes in meet filters?", "RTM_GETTFILTER, nf_tables (netlink)",
     "sessions of this input stay with the kernel; messages that they drop reach no socket", Interface(tc::ingress_filters)),
    ("egress-filter", FORWARD, "Does what leaves meet filters?", "RTM_GETTFILTER, nf_tables (netlink)",
     "sessions take the slower TC datapath, or stay with the kernel", Interface(tc::egress_filters)),
    ("tcx", &[Capture, Forward], "Are tcx programs attached?", "BPF_PROG_QUERY",
     "forward keeps sessions from XDP; a capture by xdp takes frames before them", Interface(tc::tcx)),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_rows_are_whole() {
        let ids: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        for check in CHECKS {
            assert!(check.question.ends_with('?') && !check.cost.is_empty(), "{check:?}");
        }
    }
}
