//! [`Lab`]: a router between two hosts, and the programs on its two ports.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use linerate_bpf::link::Link;
use linerate_bpf::map::MappedArray;
use linerate_forward::reason::Reason;
use linerate_forward::refusal::Refusal;
use linerate_forward::runtime::program::{
    Options, Port, PortOptions, Programs, Stack, enable_egress,
};
use linerate_forward::table::Table;
use linerate_forward::table::layout::Control;
use linerate_forward::table::session::Record;
use linerate_testkit::{Namespace, Veth, VethOptions};

pub(crate) use linerate_testkit::tools::run;

/// More than anything here takes, also while other tests have the CPUs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses of the hosts, and of the router on their sides.
pub(crate) const LEFT: [&str; 2] = ["10.1.0.2", "fd01::2"];
pub(crate) const RIGHT: [&str; 2] = ["10.2.0.2", "fd02::2"];
pub(crate) const LAN: [&str; 2] = ["10.1.0.1", "fd01::1"];
pub(crate) const WAN: [&str; 2] = ["10.2.0.1", "fd02::1"];

/// IPv4 and IPv6: indices of the above.
pub(crate) const BOTH: [usize; 2] = [0, 1];

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn at(text: &str, port: u16) -> SocketAddr {
    (address(text), port).into()
}

/// `left` - lan `router` wan - `right`. The router's end of each cable is `a`.
pub(crate) struct Lab {
    pub(crate) router: Namespace,
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
    pub(crate) lan: Veth,
    pub(crate) wan: Veth,
}

impl Lab {
    /// Hosts that finish their checksums, as what comes from a wire does, and know their neighbours.
    pub(crate) fn new(name: &str) -> Self {
        let make = |end: &str| Namespace::create(&format!("{name}{end}")).expect("a namespace");
        let (router, left, right) = (make("r"), make("l"), make("w"));
        let connect = |port: &str, host: &Namespace| {
            Veth::create(&router, port, host, "eth", VethOptions::default()).expect("a cable")
        };
        let (lan, wan) = (connect("lan", &left), connect("wan", &right));
        for (cable, near, far) in [(&lan, LAN, LEFT), (&wan, WAN, RIGHT)] {
            for family in BOTH {
                let prefix = if family == 0 { 24 } else { 64 };
                cable.a.add_address(address(near[family]), prefix).expect("an address");
                cable.b.add_address(address(far[family]), prefix).expect("an address");
            }
            // Frames that are redirected into a cable need NAPI at its end.
            for end in [&cable.a, &cable.b] {
                end.set_offloads(false).expect("offloads");
                end.set_gro(true).expect("GRO");
                // A tag is part of the frame, as it is on a wire.
                let tags = [("tx-vlan-hw-insert", false), ("tx-vlan-stag-hw-insert", false)];
                end.set_features(&tags).expect("offloads");
            }
            for family in BOTH {
                cable.a.add_neighbour(address(far[family]), cable.b.mac()).expect("a neighbour");
                cable.b.add_neighbour(address(near[family]), cable.a.mac()).expect("a neighbour");
            }
        }
        router.set_forwarding(true).expect("forwarding");
        for (host, gateways, any) in
            [(&left, LAN, ["0.0.0.0", "::"]), (&right, WAN, ["0.0.0.0", "::"])]
        {
            for family in BOTH {
                host.add_route(address(any[family]), 0, address(gateways[family]))
                    .expect("a route");
            }
        }
        Self { router, left, right, lan, wan }
    }

    /// Tells the router these rules of nftables.
    pub(crate) fn nft(&self, rules: &str) {
        run(&self.router, "nft", &["-f", "-"], rules);
    }

    /// A router that translates what leaves by the wan port, and counts what is invalid.
    pub(crate) fn masquerade(&self) {
        self.nft(
            "table inet t {
                chain post { type nat hook postrouting priority srcnat
                    oifname \"wan\" masquerade
                }
            }",
        );
        self.track();
    }

    /// A router that tracks connections and counts what is invalid.
    pub(crate) fn track(&self) {
        self.nft(
            "table inet track {
                counter invalid { }
                chain forward { type filter hook forward priority 0
                    ct state invalid counter name invalid
                }
            }",
        );
    }

    /// Packets that connection tracking called invalid.
    pub(crate) fn invalid(&self) -> u64 {
        let text = run(&self.router, "nft", &["list", "counter", "inet", "track", "invalid"], "");
        let (_, rest) = text.split_once("packets ").expect("a counter");
        rest.split_whitespace().next().expect("a number").parse().expect("a number")
    }

    /// A UDP socket of a host.
    pub(crate) fn udp(host: &Namespace, text: &str, port: u16) -> UdpSocket {
        let socket = host.run(|| UdpSocket::bind(at(text, port))).expect("entered");
        let socket = socket.unwrap_or_else(|error| panic!("{text}, port {port}: {error}"));
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
        socket
    }
}

/// The programs on both ports of a router.
pub(crate) struct Accelerator {
    pub(crate) programs: Programs,
    pub(crate) table: Table,
    control: MappedArray,
    _links: Vec<Link>,
}

impl Accelerator {
    /// Learns at the second packet, and again after a minute.
    pub(crate) fn attach(lab: &Lab) -> Self {
        Self::attach_with(lab, 2, Duration::from_secs(60))
    }

    pub(crate) fn attach_with(lab: &Lab, admission: u32, refresh: Duration) -> Self {
        let options = Options { admission, max_sessions: 4096, ..Options::default() };
        Self::attach_as(lab, &options, refresh)
    }

    pub(crate) fn attach_as(lab: &Lab, options: &Options, refresh: Duration) -> Self {
        let programs = Programs::load(options).expect("loaded");
        let attach = || {
            let mut links = Vec::new();
            for (interface, port) in [&lab.lan.a, &lab.wan.a].into_iter().zip(0..) {
                let options = PortOptions {
                    name: interface.name().to_owned(),
                    ifindex: interface.index(),
                    mac: interface.mac().0,
                    port,
                    attach: None,
                };
                let port = Port::attach(&programs, &options).expect("attached");
                enable_egress(&programs, &options).expect("opened");
                links.push(port.xdp);
                links.extend(port.stack.into_iter().map(|program| match program {
                    Stack::Tcx(link) => link,
                    Stack::Clsact(_) => panic!("the kernel has tcx"),
                }));
            }
            links
        };
        let links = lab.router.run(attach).expect("entered");
        let table = Table::open(&programs.maps).expect("mapped");
        use std::os::fd::AsFd;
        let control = programs.maps.get("control").expect("a map");
        let control = MappedArray::new(control.as_fd()).expect("mapped");
        let accelerator = Self { programs, table, control, _links: links };
        accelerator
            .word32(std::mem::offset_of!(Control, revalidate_after))
            .store(jiffies(refresh), Relaxed);
        let timeout = accelerator
            .control
            .cell::<AtomicU64>(0, std::mem::offset_of!(Control, heartbeat_timeout));
        timeout.store(u64::from(jiffies(Duration::from_secs(600))), Relaxed);
        accelerator.programs.heartbeat().expect("beaten");
        accelerator
    }

    fn word32(&self, offset: usize) -> &AtomicU32 {
        self.control.cell(0, offset)
    }

    /// As after a change of the configuration.
    pub(crate) fn bump(&self) {
        self.word32(std::mem::offset_of!(Control, generation)).fetch_add(1, Relaxed);
    }

    pub(crate) fn generation(&self) -> u32 {
        self.word32(std::mem::offset_of!(Control, generation)).load(Relaxed)
    }

    /// All sessions.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.table.records().collect()
    }

    /// The session of UDP or TCP packets from `source` to `destination`, as they come in.
    pub(crate) fn session(&self, source: SocketAddr, destination: SocketAddr) -> Option<Record> {
        self.records().into_iter().find(|record| {
            let tuple = record.tuple();
            (tuple.source, tuple.destination) == (source, destination)
        })
    }

    /// The same, which has to be there.
    #[track_caller]
    pub(crate) fn learned(&self, source: SocketAddr, destination: SocketAddr) -> Record {
        self.session(source, destination)
            .unwrap_or_else(|| panic!("no session {source} to {destination}; {}", self.describe()))
    }

    /// Packets that no session was learned from for this reason.
    pub(crate) fn refused(&self, refusal: Refusal) -> u64 {
        self.count("refusals", refusal as u32)
    }

    /// Packets that XDP left to the kernel for this reason.
    pub(crate) fn left(&self, reason: Reason) -> u64 {
        self.count("reasons", reason as u32)
    }

    fn count(&self, map: &str, index: u32) -> u64 {
        let map = self.programs.maps.get(map).expect("a map");
        let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).expect("read");
        let values = values.expect("an entry");
        values.iter().map(|value| u64::from_ne_bytes(value[..8].try_into().expect("8 bytes"))).sum()
    }

    /// Everything that was counted, for the messages of failures.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for reason in Reason::ALL {
            match self.left(*reason) {
                0 => {}
                packets => text += &format!("left {reason} {packets}; "),
            }
        }
        for refusal in Refusal::ALL {
            match self.refused(*refusal) {
                0 => {}
                packets => text += &format!("refused {refusal} {packets}; "),
            }
        }
        for record in self.records() {
            text += &format!("\n{record:?}");
        }
        text
    }
}

/// Jiffies in a time, rounded up.
pub(crate) fn jiffies(time: Duration) -> u32 {
    let hz = linerate_forward::table::clock::Clock::estimated().hz();
    u32::try_from((time.as_nanos() * u128::from(hz)).div_ceil(1_000_000_000)).expect("not so long")
}

/// Sends a packet to `to` through `from`, and takes it at `at`: whom it seems to come from.
#[track_caller]
pub(crate) fn deliver(from: &UdpSocket, to: SocketAddr, at: &UdpSocket, text: &str) -> SocketAddr {
    let mut buffer = [0; 2048];
    from.send_to(text.as_bytes(), to).expect("sent");
    let (length, source) = at
        .recv_from(&mut buffer)
        .unwrap_or_else(|error| panic!("{text} to {to} did not arrive: {error}"));
    assert_eq!(&buffer[..length], text.as_bytes());
    source
}
