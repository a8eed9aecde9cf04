//! Verdicts of rules: each rule is in a plain router and in an accelerated one, the same packets go into both, and what
//! leaves them is compared byte for byte. Packets of a session differ in length, payload, TTL, ECN, flags and the rest.

mod links;
mod nftables;
mod xtables;

use std::net::IpAddr;

use linerate_forward::runtime::conntrack;
use linerate_forward::runtime::program::Options;
use linerate_forward::runtime::rules::{self, Policy};
use linerate_forward::table::rules::Rules;
use linerate_testkit::{Mac, Namespace, Random};

use crate::common::accelerator::Accelerator;
use crate::common::capture::{Monitor, stay};
use crate::common::host::{Host, LAN, WAN, router_mac};
use crate::common::router::Router;
use crate::differential::packet::{ACK, Network, PSH, SYN, Segment, URG, frame, packet};

/// The port of the server.
const SERVER: u16 = 7000;

/// Packets of each direction before those that differ, and how many of these.
const FIRST: usize = 4;
const VARIED: usize = 12;

/// Two routers, and what leaves them.
pub(crate) struct Bench {
    routers: [Router; 2],
    monitors: [Monitor; 2],
    accelerator: Accelerator,
    /// The client's port: one for each rule.
    port: u16,
    random: Random,
}

impl Bench {
    pub(crate) fn new() -> Self {
        stay();
        let routers = ["plain", "fast"].map(Router::new);
        for router in &routers {
            // Messages of ICMP are not counted by time.
            for key in ["net.ipv4.icmp_ratelimit", "net.ipv6.icmp.ratelimit"] {
                router.inside.sysctl(key, "0").expect("set");
            }
            router.inside.run(conntrack::relax_tcp_tracking).expect("entered").expect("set");
        }
        let options = Options { max_sessions: 4096, ..Options::default() };
        let accelerator = Accelerator::start(&routers[1], &options);
        let monitors = [Monitor::open(&routers[0]), Monitor::open(&routers[1])];
        Self { routers, monitors, accelerator, port: 1024, random: Random::new(7) }
    }

    /// The plain router and the accelerated one.
    pub(crate) fn routers(&self) -> [&Namespace; 2] {
        self.routers.each_ref().map(|router| &router.inside)
    }

    /// Loads rules into both and sends packets; what is wrong. `state` is what rules have counted: the same in both.
    pub(crate) fn compare(
        &mut self,
        load: impl Fn(&Namespace) -> Result<(), String>,
        state: impl Fn(&Namespace) -> String,
        is_kept: bool,
    ) -> Result<(), String> {
        for router in &self.routers {
            load(&router.inside)?;
        }
        let (control, maps) = (&self.accelerator.control, &self.accelerator.programs.maps);
        let refresh = || rules::refresh(control, maps, &Policy::default());
        self.routers[1].inside.run(refresh).expect("entered").expect("refreshed");
        control.bump_generation();
        self.port += 1;
        let frames = frames(self.port, &mut self.random);
        let seen: Vec<_> = self
            .monitors
            .iter_mut()
            .map(|monitor| {
                frames.iter().for_each(|(port, frame)| monitor.send(*port, frame));
                monitor.seen().map(|mut frames| {
                    frames.sort();
                    frames
                })
            })
            .collect();
        if seen[0] != seen[1] {
            let count = |at: usize| seen[at].iter().map(Vec::len).collect::<Vec<_>>();
            let differing = (seen[0].iter().flatten()).zip(seen[1].iter().flatten());
            let first = differing.clone().find(|(plain, this)| plain != this);
            return Err(format!(
                "{:?} frames left plain Linux, {:?} this; first {first:02x?}",
                count(0),
                count(1)
            ));
        }
        let kept = Rules::new(maps).expect("maps").kept().expect("read");
        let is_wrong =
            if is_kept { kept.is_empty() } else { kept.iter().any(|one| one.packets > 0) };
        if is_wrong {
            return Err(format!("kept by {kept:?}"));
        }
        let [plain, fast] = [0, 1].map(|router| state(&self.routers[router].inside));
        if is_kept && plain != fast {
            return Err(format!("plain Linux has\n{plain}\nand this has\n{fast}"));
        }
        Ok(())
    }
}

/// A packet of one of the sessions: of UDP and TCP, of IPv4 and IPv6.
struct Talk {
    is_ipv6: bool,
    is_tcp: bool,
    port: u16,
    sent: [u32; 2],
}

impl Talk {
    /// A frame of the client (0) or the server (1), and the port that it goes into.
    fn frame(
        &mut self,
        side: usize,
        network: Network,
        flags: u16,
        payload: &[u8],
        from: Option<Mac>,
    ) -> (usize, Vec<u8>) {
        let hosts = [LAN, WAN].map(|port| Host { port, number: 10 });
        let ends = [self.port, SERVER];
        let end =
            |side: usize| -> (IpAddr, u16) { (hosts[side].address(self.is_ipv6), ends[side]) };
        let segment =
            Segment { seq: self.sent[side], ack: self.sent[1 - side], flags, options: Vec::new() };
        let packet =
            packet(network, end(side), end(1 - side), self.is_tcp.then_some(&segment), payload);
        self.sent[side] += payload.len() as u32 + u32::from(flags & SYN != 0);
        let port = hosts[side].port;
        let kind = if self.is_ipv6 { 0x86dd } else { 0x0800 };
        (port, frame(router_mac(port), from.unwrap_or(hosts[side].mac()), &[], kind, &packet))
    }
}

/// All frames for one rule, with the port that each goes into.
fn frames(port: u16, random: &mut Random) -> Vec<(usize, Vec<u8>)> {
    let plain = Network { tos: 0, ttl: 64, id: 1, dont_fragment: true, label: 0 };
    let mut frames = Vec::new();
    for number in 0..4 {
        let (is_ipv6, is_tcp) = (number & 1 != 0, number & 2 != 0);
        let mut talk = Talk { is_ipv6, is_tcp, port, sent: [1000, 5000] };
        if is_tcp {
            frames.push(talk.frame(0, plain, SYN, &[], None));
            frames.push(talk.frame(1, plain, SYN | ACK, &[], None));
            frames.push(talk.frame(0, plain, ACK, &[], None));
        }
        for _ in 0..FIRST {
            frames.extend([0, 1].map(|side| talk.frame(side, plain, ACK, b"first of all", None)));
        }
        for varied in 0..VARIED {
            for side in [0, 1] {
                let network = Network {
                    tos: random.within(0..=3) as u8,
                    ttl: random.pick(&[64, 33, 128]),
                    id: random.next() as u16,
                    dont_fragment: random.one_in(2),
                    label: random.next() as u32 & 0xf_ffff,
                };
                let flags = ACK | random.pick(&[0, PSH, URG | PSH]);
                let payload = random.bytes(1 + 20 * varied);
                let from = random.one_in(3).then_some(Mac([2, 0, 0, 0, 0x77, side as u8]));
                frames.push(talk.frame(side, network, flags, &payload, from));
            }
        }
    }
    frames
}
