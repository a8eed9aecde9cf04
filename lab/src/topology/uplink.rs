//! A sending host whose CPU is limited, an interface without hardware that segments, and a receiving
//! host: what `segment-tcp` and `segment-udp` measure on.
//!
//! ```text
//!   guest (program) --TAP--> host (linerate uplink) --+
//!                                                     +-- veth --> receiver (program)
//!   guest (program) --veth--> host (kernel forwards) -+
//!   `--------- first core, in the control group -----'            second core
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linerate_testkit::{Command, Namespace, Veth, VethOptions};

use crate::measure::cgroup::CpuGroup;
use crate::measure::cores::Cores;
use crate::measure::cpu::Core;
use crate::measure::napi;
use crate::measure::process::{Running, count};
use crate::programs;

/// Where the receiver listens.
const RECEIVER: &str = "198.18.0.2";
/// Where the guest is behind the uplink: on the veth pair.
const ON_CABLE: &str = "198.18.0.1";
/// The first core of the guest's own network, where the kernel forwards, and the guest in it.
const GATEWAY: &str = "198.19.0.1";
const GUEST: &str = "198.19.0.2";
const PORT: u16 = 5001;
const TAP: &str = "up0";

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// How the guest's packets get to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EgressPath {
    /// `linerate uplink`, which splits.
    Uplink,
    /// `linerate uplink` that offers nothing, and a stack that makes packets of the MTU.
    Packets,
    /// `linerate uplink --no-offload` as it is: the stack still makes super-packets, and the
    /// kernel splits them before the device.
    NoOffload,
    /// Forwarded by the kernel, which splits at the interface (GSO).
    Kernel,
    /// Forwarded by the kernel, and a stack that makes packets of the MTU.
    KernelPackets,
}

impl EgressPath {
    fn uplink(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Uplink => Some(&[]),
            // The limit is the device's gso_max_segs: TCP makes super-packets for any device.
            Self::Packets => Some(&["--policy", "enabled=off,max_segments=1"]),
            Self::NoOffload => Some(&["--no-offload"]),
            Self::Kernel | Self::KernelPackets => None,
        }
    }
}

/// What the programs send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Stream,
    /// Datagrams of this many bytes of payload.
    Datagrams {
        /// Bytes of payload.
        payload: usize,
        /// 44 of them to a call (`UDP_SEGMENT`).
        split: bool,
    },
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// How packets get to the interface.
    pub(crate) egress: EgressPath,
    /// The wire's ends leave checksums to each other, as two cards with checksum offload do.
    pub(crate) checksum_offload: bool,
    /// Part of a core that the sending side has, 0 to 1.
    pub(crate) share: f64,
    pub(crate) workload: Workload,
    pub(crate) time: Duration,
}

/// What arrived, and what it took.
#[derive(Clone, Debug, Default)]
pub(crate) struct UplinkOutcome {
    /// Bytes of payload, compared.
    pub(crate) bytes: u64,
    /// Datagrams sent and received; 0 for a stream.
    pub(crate) datagrams: [u64; 2],
    /// From the first byte to the last, where they arrived.
    pub(crate) seconds: f64,
    /// CPU seconds of the sending side's control group, its program's start and end too.
    pub(crate) cpu: f64,
    /// Wall-clock seconds that these are of.
    pub(crate) wall: f64,
    /// Busy part of the sending core in that time, 0 to 1.
    pub(crate) core: f64,
    /// Busy part of the receiving core in that time, 0 to 1.
    pub(crate) receiving_core: f64,
    /// TCP segments sent again.
    pub(crate) again: u64,
    pub(crate) lost: BTreeMap<String, u64>,
    /// The uplink's report, for packets and segments; empty without one.
    pub(crate) uplink: serde_json::Value,
    pub(crate) void: Option<String>,
}

impl UplinkOutcome {
    /// Bits of payload a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }
}

/// Builds the testbed, sends, and removes everything.
pub(crate) fn deliver(cores: Cores, what: &Scenario) -> Result<UplinkOutcome> {
    // Dropped last to first: the group after what runs in it.
    let group = CpuGroup::create(what.share)?;
    let hosts = UplinkTestbed::build(cores, what)?;
    hosts.give_threads(&group)?;
    let uplink = match what.egress.uplink() {
        Some(arguments) => Some(hosts.join(&group, arguments)?),
        None => None,
    };
    let mut receiver = Running::start("the receiver", &mut hosts.program(what, None)?)?;
    hosts.wait_until_bound(&mut receiver, what.workload)?;
    let before = hosts.counted()?;
    let cores_before = (Core::read(cores.generator)?, Core::read(cores.consumer)?);
    let (start, used) = (Instant::now(), group.used()?);
    let mut sender = Running::start("the sender", &mut hosts.program(what, Some(what.time))?)?;
    // Before it has connected; if it is so quick that it has ended, its wait says why.
    if let Err(error) = group.add(sender.pid()) {
        sender.check()?;
        return Err(error);
    }
    let limit = what.time * 3 + Duration::from_secs(30);
    let sender = sender.wait(limit)?.success()?;
    let (used, wall) = (group.used()?.saturating_sub(used), start.elapsed());
    let core = Core::read(cores.generator)?.since(cores_before.0);
    let far_core = Core::read(cores.consumer)?.since(cores_before.1);
    let receiver = receiver.wait(limit)?.success()?;
    let uplink = match uplink {
        Some(uplink) => uplink.stop(limit)?.success()?.json()?,
        None => serde_json::Value::Null,
    };
    let after = hosts.counted()?;
    let grown = |key: &str| {
        let of = |counts: &BTreeMap<String, u64>| counts.get(key).copied().unwrap_or(0);
        of(&after).saturating_sub(of(&before))
    };
    let (sent, received) = (sender.json()?, receiver.json()?);
    let both = |key: &str| Ok::<_, anyhow::Error>([count(&sent, key)?, count(&received, key)?]);
    let [bytes_sent, bytes] = both("bytes")?;
    let datagrams = match what.workload {
        Workload::Stream => [0, 0],
        Workload::Datagrams { .. } => both("datagrams")?,
    };
    let mut lost = BTreeMap::new();
    for key in after.keys().filter(|key| *key != RESENT) {
        lost.insert(key.clone(), grown(key));
    }
    if let Some(causes) = uplink["dropped"].as_object() {
        lost.extend(causes.iter().filter_map(|(cause, n)| Some((cause.clone(), n.as_u64()?))));
    }
    lost.retain(|_, count| *count > 0);
    let seconds = received["seconds"].as_f64().context("the receiver's report has no seconds")?;
    let void = account(what.workload, [bytes_sent, bytes], datagrams, &lost)
        .or_else(|| undisturbed(core.user + core.system, used.as_secs_f64() / wall.as_secs_f64()));
    Ok(UplinkOutcome {
        bytes,
        datagrams,
        seconds,
        cpu: used.as_secs_f64(),
        wall: wall.as_secs_f64(),
        core: core.busy(),
        receiving_core: far_core.busy(),
        again: grown(RESENT),
        lost,
        uplink,
        void,
    })
}

/// The key of a count that is no loss.
const RESENT: &str = "TCP segments sent again";

/// Everything that was sent arrived, or was counted as lost.
fn account(
    workload: Workload,
    bytes: [u64; 2],
    datagrams: [u64; 2],
    lost: &BTreeMap<String, u64>,
) -> Option<String> {
    let Workload::Datagrams { payload, split } = workload else {
        return (bytes[0] != bytes[1])
            .then(|| format!("{} bytes sent, {} received", bytes[0], bytes[1]));
    };
    let [sent, received] = datagrams;
    let Some(missing) = sent.checked_sub(received) else {
        return Some(format!("{sent} datagrams sent, {received} received"));
    };
    // What is lost of a super-packet are 44 datagrams at most; of a datagram in fragments, one or
    // none, for several fragments may be of the same.
    let counted: u64 = lost.values().sum();
    let explained = if split {
        missing >= counted.min(1) && missing <= counted * 64
    } else if payload > MTU_PAYLOAD {
        missing <= counted
    } else {
        missing == counted
    };
    (!explained)
        .then(|| format!("{missing} of {sent} datagrams missing, {counted} counted as lost"))
}

/// The sending core worked for its group alone, as far as hundredths of a second can tell. `/proc/stat`
/// and the group may differ in what they call interrupts, which are left out.
fn undisturbed(core: f64, group: f64) -> Option<String> {
    let others = core - group;
    (others > 0.2).then(|| format!("other programs had {:.0}% of the sending core", others * 100.0))
}

/// The largest payload that an IPv4 packet of 1500 bytes takes.
pub(crate) const MTU_PAYLOAD: usize = 1500 - 20 - 8;

/// The largest payload of a UDP datagram over IPv4.
pub(crate) const LARGEST_PAYLOAD: usize = 65_535 - 20 - 8;

struct UplinkTestbed {
    guest: Namespace,
    host: Namespace,
    receiver: Namespace,
    /// `a` at the host, `b` at the receiver.
    cable: Veth,
    /// Between guest (`a`) and host (`b`), where the kernel forwards.
    inner: Option<Veth>,
    cores: Cores,
}

impl UplinkTestbed {
    fn build(cores: Cores, what: &Scenario) -> Result<Self> {
        let [guest, host, receiver] = ["guest", "host", "receiver"].map(Namespace::create);
        let (guest, host, receiver) = (guest?, host?, receiver?);
        // Congestion control that waits for a timer (BBR) would keep single packets to the rate of the
        // timer. Where there is no cubic, reno is, in every kernel.
        let control = "net.ipv4.tcp_congestion_control";
        guest.sysctl(control, "cubic").or_else(|_| guest.sysctl(control, "reno"))?;
        // Names of their own: threads are found by them, and those of the hosts before live a little
        // longer than these.
        let number = format!("{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let names = ["w", "v", "g", "h"].map(|letter| format!("{letter}{number}"));
        let cable = Veth::create(&host, &names[0], &receiver, &names[1], VethOptions::default())?;
        for end in [&cable.a, &cable.b] {
            // No hardware that segments; the kernel's own at the interface.
            end.set_offloads(false)?;
            end.set_features(&[("tx-generic-segmentation", true), ("tx-scatter-gather", true)])?;
            end.set_features(&[("rx-checksum", what.checksum_offload)])?;
            end.set_gro(true)?;
        }
        // Only the sending end: what comes back must be whole before it enters an AF_XDP ring.
        cable.a.set_features(&[("tx-checksum-ip-generic", what.checksum_offload)])?;
        cable.b.add_address(RECEIVER.parse()?, 24)?;
        // What waits for an answer to ARP is dropped without a count when it gets too much.
        cable.b.add_neighbour(ON_CABLE.parse()?, cable.a.mac())?;
        let mut inner = None;
        if what.egress.uplink().is_none() {
            let veth = Veth::create(&guest, &names[2], &host, &names[3], VethOptions::default())?;
            veth.a.set_offloads(true)?;
            veth.b.set_offloads(true)?;
            // NAPI, for its thread: the queue that a veth has otherwise is worked off by a thread of
            // the core, in part, which belongs to no group.
            veth.a.set_gro(true)?;
            veth.b.set_gro(true)?;
            let (gateway, address): (IpAddr, IpAddr) = (GATEWAY.parse()?, GUEST.parse()?);
            veth.a.add_address(address, 24)?;
            veth.b.add_address(gateway, 24)?;
            cable.a.add_address(ON_CABLE.parse()?, 24)?;
            veth.a.add_neighbour(gateway, veth.b.mac())?;
            veth.b.add_neighbour(address, veth.a.mac())?;
            cable.a.add_neighbour(RECEIVER.parse()?, cable.b.mac())?;
            host.set_forwarding(true)?;
            guest.add_route("198.18.0.0".parse()?, 24, gateway)?;
            receiver.add_route("198.19.0.0".parse()?, 24, ON_CABLE.parse()?)?;
            if what.egress == EgressPath::KernelPackets {
                let mut command = guest.command("ip");
                command.args(["link", "set", &names[2], "gso_max_segs", "1"]);
                if !command.status()?.success() {
                    bail!("ip cannot set gso_max_segs (iproute2 of 2022 can)");
                }
            }
            inner = Some(veth);
        }
        Ok(Self { guest, host, receiver, cable, inner, cores })
    }

    /// Threads that receive: those of the sending side on its core and in its group.
    fn give_threads(&self, group: &CpuGroup) -> Result<()> {
        let mut sending = vec![(&self.host, &self.cable.a)];
        if let Some(inner) = &self.inner {
            sending.extend([(&self.guest, &inner.a), (&self.host, &inner.b)]);
        }
        for (host, interface) in sending {
            if let Some(pid) = napi::enable_threaded(host, interface.name(), self.cores.generator)?
            {
                group.add(pid)?;
            }
        }
        let far = self.cable.b.name();
        napi::defer_hard_irqs(&self.receiver, far)?;
        napi::enable_threaded(&self.receiver, far, self.cores.consumer)?;
        Ok(())
    }

    /// Starts the uplink in the host, its device in the guest.
    fn join(&self, group: &CpuGroup, arguments: &[&str]) -> Result<Running> {
        let core = self.cores.generator.to_string();
        let common = ["uplink", "--tap", TAP, "--interface", self.cable.a.name()];
        let mut command = programs::linerate(&self.host, self.cores.generator, common)?;
        command.args(["--netns", self.guest.name(), "--cpu", &core, "--json", "--quiet"]);
        command.args(arguments);
        let mut uplink = Running::start("linerate uplink", &mut command)?;
        group.add(uplink.pid())?;
        let mut tap = None;
        let there = || {
            // It has a program on the interface when everything is open.
            tap = self.guest.interface(TAP).ok();
            Ok(tap.is_some() && self.cable.a.has_xdp()?)
        };
        uplink.wait_until("the uplink", Duration::from_secs(20), there)?;
        let tap = tap.context("the uplink has no device")?;
        tap.add_address(ON_CABLE.parse()?, 24)?;
        tap.add_neighbour(RECEIVER.parse()?, self.cable.b.mac())?;
        crate::interrupt::sleep(Duration::from_millis(100))?;
        Ok(uplink)
    }

    /// The receiving program, or the sending one for a time.
    fn program(&self, what: &Scenario, sends: Option<Duration>) -> Result<Command> {
        let (host, core, verb) = match sends {
            None => (&self.receiver, self.cores.consumer, "receive"),
            Some(_) => (&self.guest, self.cores.generator, "send"),
        };
        let address = format!("{RECEIVER}:{PORT}");
        let mut command = programs::helper(host, core, [verb, "--address", &address])?;
        if let Workload::Datagrams { .. } = what.workload {
            command.arg("--datagrams");
        }
        let Some(time) = sends else { return Ok(command) };
        if let Workload::Datagrams { payload, split } = what.workload {
            command.arg(payload.to_string()).args(split.then_some("--gso"));
        }
        command.args(["--seconds", &time.as_secs_f64().to_string()]);
        Ok(command)
    }

    fn wait_until_bound(&self, receiver: &mut Running, workload: Workload) -> Result<()> {
        let table = match workload {
            Workload::Stream => "/proc/thread-self/net/tcp",
            Workload::Datagrams { .. } => "/proc/thread-self/net/udp",
        };
        let port = format!(":{PORT:04X} ");
        let bound = || Ok(self.receiver.run(|| fs::read_to_string(table))??.contains(&port));
        receiver.wait_until("the receiver to listen", Duration::from_secs(10), bound)
    }

    /// The kernel's own counts of what gets lost on the way.
    fn counted(&self) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        let mut add = |key: &str, count: u64| *counts.entry(key.to_owned()).or_insert(0) += count;
        // What the peer had no room for counts at the sending end.
        add("no room at the veth peer", self.cable.a.statistics()?.tx_dropped);
        add("the receiving interface", self.cable.b.statistics()?.rx_dropped);
        if let Some(inner) = &self.inner {
            add("no room at the host", inner.a.statistics()?.tx_dropped);
            add("the host's interface", inner.b.statistics()?.rx_dropped);
        }
        add("the receiving socket", self.receiver.snmp_counter("Udp", "InErrors")?);
        add("the sending socket", self.guest.snmp_counter("Udp", "SndbufErrors")?);
        add(RESENT, self.guest.snmp_counter("Tcp", "RetransSegs")?);
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_neighbour_makes_a_run_void() {
        assert_eq!(undisturbed(0.35, 0.3), None);
        assert_eq!(undisturbed(0.2, 0.3), None);
        assert!(undisturbed(0.98, 0.3).unwrap().contains("68%"));
    }

    #[test]
    fn what_nobody_counted_makes_a_run_void() {
        let lost = |count| BTreeMap::from([("somewhere".to_owned(), count)]);
        let stream = |sent, received| account(Workload::Stream, [sent, received], [0, 0], &lost(9));
        assert_eq!(stream(5, 5), None);
        assert!(stream(5, 4).is_some());
        let check = |payload, split, missing: u64, count| {
            let workload = Workload::Datagrams { payload, split };
            account(workload, [0, 0], [1000, 1000 - missing], &lost(count)).is_none()
        };
        assert!(check(1472, false, 3, 3) && !check(1472, false, 3, 2));
        assert!(!check(1472, false, 0, 1), "counted as lost, but it arrived");
        assert!(check(65_507, false, 1, 40) && !check(65_507, false, 1, 0));
        assert!(check(1472, true, 44, 1) && !check(1472, true, 44, 0));
        assert!(!check(1472, true, 0, 1));
    }
}
