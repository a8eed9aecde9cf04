//! Ways into the kernel for super-packets, and what it makes of them at the peer of a veth pair.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use linerate_ring::packet::{DirectionFilter, Options, Ring, Sender};
use linerate_ring::tun::{Device, Kind, Offloads};
use linerate_ring::{Batch as _, Error, Ring as _};
use linerate_testkit::tools::{compile_bpf, ip, run};
use linerate_testkit::{Interface, Namespace, Veth, VethOptions};
use linerate_wire::virtio::Header;

use super::packet::{TO, from};

/// The EtherType for experiments (IEEE 802), which marks the end of a group.
const MARK: [u8; 2] = [0x88, 0xb5];

/// Every offload of segments that an interface can have; a namespace helper has those without tunnels.
const TUNNELS: [&str; 6] = [
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
];

/// What the peer saw of one case, in order.
pub(crate) type Seen = Vec<Vec<u8>>;

/// Two hosts, and a veth pair that carries nothing but finished frames.
pub(crate) struct Wire {
    pub(crate) sender: Namespace,
    pub(crate) receiver: Namespace,
    pub(crate) cable: Veth,
    socket: Sender,
    /// Where super-packets get in, in place of the socket: a TAP device on a bridge with the near end,
    /// or a TUN device that is routed to it.
    device: Option<Device>,
    /// Or another interface.
    way_in: Option<Sender>,
    ring: Ring,
    groups: u16,
}

impl Wire {
    /// Super-packets go straight to the near end of the veth pair.
    pub(crate) fn packet_socket() -> Self {
        Self::build(|_, _| None)
    }

    /// Super-packets go into an interface of the sender, which leads to the veth pair.
    pub(crate) fn through(interface: &str, connect: impl FnOnce(&Namespace, &Veth)) -> Self {
        let mut wire = Self::build(|sender, cable| {
            connect(sender, cable);
            None
        });
        let open = || Sender::open(interface);
        wire.way_in = Some(wire.sender.run(open).expect("entered").expect("a socket"));
        wire
    }

    /// As [`Wire::packet_socket`], with checksums left to the interface.
    pub(crate) fn packet_socket_and_checksums() -> Self {
        let wire = Self::packet_socket();
        let on = [("tx-checksum-ip-generic", true)];
        wire.cable.a.set_features(&on).expect("features");
        wire
    }

    /// Super-packets come from a TAP device, and cross a bridge.
    pub(crate) fn tap() -> Self {
        Self::build(|sender, cable| {
            let build = || Device::builder("tap").offloads(Offloads::ALL).build();
            let device = sender.run(build).expect("entered").expect("a device");
            ip(sender, "link add bridge type bridge stp_state 0 mcast_snooping 0");
            for port in ["tap", cable.a.name()] {
                ip(sender, &format!("link set dev {port} master bridge"));
                ip(sender, &format!("link set dev {port} type bridge_slave learning off"));
            }
            for port in ["tap", "bridge"] {
                sender.interface(port).expect("the interface").up().expect("up");
            }
            Some(device)
        })
    }

    /// Packets come from a TUN device, and are routed to the peer with an MTU of `mtu` bytes.
    pub(crate) fn tun(mtu: u32) -> Self {
        Self::build(|sender, cable| {
            let build = || Device::builder("tun").kind(Kind::Tun).build();
            let device = sender.run(build).expect("entered").expect("a device");
            let tun = sender.interface("tun").expect("the interface");
            tun.set_mtu(65_535).expect("the MTU");
            tun.up().expect("up");
            cable.a.set_mtu(mtu).expect("the MTU");
            let networks = [
                ("10.255.0.1", "192.168.77.1", "192.168.77.2", 24),
                ("fd10::1", "fd77::1", "fd77::2", 64),
            ];
            // IPv6 wants an MTU of 1280.
            let families = if mtu < 1280 { 1 } else { 2 };
            for (here, near, far, prefix) in networks.into_iter().take(families) {
                let parse = |text: &str| text.parse().expect("an address");
                tun.add_address(parse(here), if prefix == 24 { 8 } else { 64 }).expect("added");
                cable.a.add_address(parse(near), prefix).expect("added");
                let to = linerate_testkit::Mac(TO);
                cable.a.add_neighbour(parse(far), to).expect("a neighbour");
            }
            sender.set_forwarding(true).expect("forwarding");
            for name in ["all", "tun"] {
                sender.sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "0").expect("set");
            }
            Some(device)
        })
    }

    fn build(device: impl FnOnce(&Namespace, &Veth) -> Option<Device>) -> Self {
        let sender = Namespace::create("segtx").expect("a namespace");
        let receiver = Namespace::create("segrx").expect("a namespace");
        let options = VethOptions { mtu: 65_535, ..VethOptions::default() };
        let cable = Veth::create(&sender, "tx", &receiver, "rx", options).expect("a veth pair");
        silence(&cable.a);
        let socket = sender.run(|| Sender::open("tx")).expect("entered").expect("a socket");
        let device = device(&sender, &cable);
        let ring = receive(&receiver, "rx");
        let wire = Self { sender, receiver, cable, socket, device, way_in: None, ring, groups: 0 };
        wire.wait_until_it_carries(&wire.cable.b);
        wire
    }

    /// The kernel starts the queue of a new interface from a work item, and drops what comes before.
    fn wait_until_it_carries(&self, end: &Interface) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while end.statistics().expect("statistics").rx_packets == 0 {
            assert!(Instant::now() < deadline, "nothing comes through");
            self.socket.send(&Header::default(), &mark(0)).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the way in knows super-packets in UDP tunnels.
    pub(crate) fn takes_tunnels(&self) -> bool {
        let takes = |device: &Device| device.offloads().contains(Offloads::UDP_TUNNEL);
        self.device.as_ref().is_some_and(takes)
    }

    /// Sends a packet; whether the kernel took it, which does not mean that it segments it.
    pub(crate) fn send(&self, header: &Header, packet: &[u8]) -> bool {
        let sent = match &self.device {
            None => {
                let socket = self.way_in.as_ref().unwrap_or(&self.socket);
                socket.send(header, packet).map(|()| true)
            }
            Some(device) => device.queues()[0].send(header, packet),
        };
        match sent {
            Ok(taken) => taken,
            Err(Error::Invalid(_)) => false,
            Err(Error::System { source, .. }) if source.kind() == ErrorKind::OutOfMemory => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Everything that reached the peer since the last call, by the case it is of. The calling
    /// thread stays on one CPU, so that the last frame sent arrives last.
    pub(crate) fn seen(&mut self, case: impl Fn(&[u8]) -> Option<u32>) -> HashMap<u32, Seen> {
        self.groups += 1;
        drain(&mut self.ring, &self.socket, self.groups, case)
    }

    /// As [`Wire::seen`], and what `spy` saw of it before the kernel segmented it.
    pub(crate) fn seen_with(
        &mut self,
        spy: &mut Ring,
        case: impl Fn(&[u8]) -> Option<u32>,
    ) -> (HashMap<u32, Seen>, HashMap<u32, Seen>) {
        self.groups += 1;
        let drain = |ring| drain(ring, &self.socket, self.groups, &case);
        (drain(&mut self.ring), drain(spy))
    }
}

/// What a ring received up to the mark of a group, which is sent behind it: not through a device, which
/// may be routed, and a router has no use for the mark.
fn drain(
    ring: &mut Ring,
    socket: &Sender,
    group: u16,
    case: impl Fn(&[u8]) -> Option<u32>,
) -> HashMap<u32, Seen> {
    let mark = mark(group);
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    // Again, if the machine lost it.
    for _ in 0..50 {
        socket.send(&Header::default(), &mark).expect("sent");
        while ring.wait(Duration::from_millis(200)).expect("waited") {
            let mut ended = false;
            while let Some(mut batch) = ring.next_batch() {
                while let Some(frame) = batch.next() {
                    ended |= frame.head() == mark;
                    if let Some(number) = case(frame.head()) {
                        seen.entry(number).or_default().push(frame.head().to_vec());
                    }
                }
            }
            if ended {
                return seen;
            }
        }
    }
    panic!("the end of group {group} did not arrive");
}

fn mark(group: u16) -> Vec<u8> {
    let mut mark = [&TO[..], &from(u32::MAX), &MARK, &group.to_be_bytes()].concat();
    mark.resize(60, 0);
    mark
}

/// A veth pair of its own to which the kernel copies what goes out through the wire, before it is
/// segmented; returns a ring at its peer.
pub(crate) fn spy(wire: &Wire) -> Ring {
    let options = VethOptions { mtu: 65_535, ..VethOptions::default() };
    let cable = Veth::create(&wire.sender, "spy", &wire.receiver, "spied", options);
    let cable = cable.expect("a veth pair");
    tc(&wire.sender, "qdisc add dev tx clsact");
    tc(
        &wire.sender,
        "filter add dev tx egress protocol all u32 match u32 0 0 action mirred egress mirror dev spy",
    );
    wire.wait_until_it_carries(&cable.b);
    receive(&wire.receiver, "spied")
}

/// Puts what goes out through the wire into IP, before the spy sees it: `how` is a section of the
/// program beside this file.
pub(crate) fn encapsulate(wire: &Wire, how: &str) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/kernel/encapsulate.bpf.c");
    let object = compile_bpf(Path::new(source), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let object = object.display();
    tc(
        &wire.sender,
        &format!("filter add dev tx egress protocol all prio 1 bpf da obj {object} sec {how}"),
    );
}

/// Takes every offload from an interface.
pub(crate) fn silence(interface: &Interface) {
    interface.set_offloads(false).expect("offloads");
    let tunnels = TUNNELS.map(|name| (name, false));
    interface.set_features(&tunnels).expect("offloads");
}

/// A ring of what an interface receives, large enough for a group.
pub(crate) fn receive(namespace: &Namespace, interface: &str) -> Ring {
    let options = Options {
        direction: DirectionFilter::In,
        retire_timeout: Duration::from_millis(1),
        vnet_hdr: true,
        ..Options::new(interface)
    };
    namespace.run(|| Ring::open(options)).expect("entered").expect("a ring")
}

/// Whether the kernel makes VXLAN devices.
pub(crate) fn has_vxlan() -> bool {
    let namespace = Namespace::create("vxlan").expect("a namespace");
    let words = "link add vx type vxlan id 5 dstport 4789";
    let made = namespace.command("ip").args(words.split(' ')).output();
    made.is_ok_and(|output| output.status.success())
}

fn tc(namespace: &Namespace, line: &str) {
    run(namespace, "tc", &line.split_whitespace().collect::<Vec<_>>(), "");
}
