//! [`Lab`]: a router between two hosts, and [`Flow`]: two sockets that talk through it. What cannot be made panics.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::tools::{nft, run};
use crate::{Interface, Mac, Namespace, Veth, VethOptions, uninterrupted};

/// More than anything here takes, also while other tests have the CPUs.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses of the host on the left, IPv4 and IPv6.
pub const LEFT: [&str; 2] = ["10.1.0.2", "fd01::2"];
/// The same of the host on the right.
pub const RIGHT: [&str; 2] = ["10.2.0.2", "fd02::2"];
/// The router's address on the left.
pub const LAN: [&str; 2] = ["10.1.0.1", "fd01::1"];
/// The router's address on the right.
pub const WAN: [&str; 2] = ["10.2.0.1", "fd02::1"];

/// IPv4 and IPv6: indices of the above.
pub const BOTH: [usize; 2] = [0, 1];

/// # Panics
/// Where it is none.
pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A port of a host.
///
/// # Panics
/// Where the address is none.
pub fn at(text: &str, port: u16) -> SocketAddr {
    (address(text), port).into()
}

/// `left` - lan `router` wan - `right`. The router's end of each veth pair is `a`.
pub struct Lab {
    /// The router.
    pub router: Namespace,
    /// The host at its port `lan`.
    pub left: Namespace,
    /// The host at its port `wan`.
    pub right: Namespace,
    /// The veth pair to the left.
    pub lan: Veth,
    /// The veth pair to the right.
    pub wan: Veth,
}

impl Lab {
    /// Hosts that finish their checksums, as what comes from a wire does, and know their neighbours. All labs
    /// have the same addresses.
    pub fn new(name: &str) -> Self {
        let make = |end: &str| Namespace::create(&format!("{name}{end}")).expect("a namespace");
        let (router, left, right) = (make("r"), make("l"), make("w"));
        let connect = |port: &str, host: &Namespace, number: u8| {
            let macs = Some([Mac([2, 0, 0, 0, 1, number]), Mac([2, 0, 0, 0, 2, number])]);
            let options = VethOptions { macs, ..VethOptions::default() };
            Veth::create(&router, port, host, "eth", options).expect("a veth pair")
        };
        let (lan, wan) = (connect("lan", &left, 1), connect("wan", &right, 2));
        for (cable, near, far) in [(&lan, LAN, LEFT), (&wan, WAN, RIGHT)] {
            for family in BOTH {
                let prefix = if family == 0 { 24 } else { 64 };
                cable.a.add_address(address(near[family]), prefix).expect("an address");
                cable.b.add_address(address(far[family]), prefix).expect("an address");
            }
            // Frames that are redirected into a veth pair need NAPI at its end.
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
        for (host, gateways) in [(&left, LAN), (&right, WAN)] {
            for (any, gateway) in ["0.0.0.0", "::"].into_iter().zip(gateways) {
                host.add_route(address(any), 0, address(gateway)).expect("a route");
            }
        }
        Self { router, left, right, lan, wan }
    }

    /// The router's ends of the veth pairs.
    pub fn ports(&self) -> [&Interface; 2] {
        [&self.lan.a, &self.wan.a]
    }

    /// Tells the router these rules of nftables.
    pub fn nft(&self, rules: &str) {
        nft(&self.router, rules);
    }

    /// A router that translates what leaves by the wan port, and counts what is invalid.
    pub fn masquerade(&self) {
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
    pub fn track(&self) {
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
    pub fn invalid(&self) -> u64 {
        let text = run(&self.router, "nft", &["list", "counter", "inet", "track", "invalid"], "");
        let (_, rest) = text.split_once("packets ").expect("a counter");
        rest.split_whitespace().next().expect("a number").parse().expect("a number")
    }

    /// From port 4000 of the host on the left to port 5000 of the one on the right.
    pub fn flow(&self, family: usize) -> Flow {
        let (here, there) = (at(LEFT[family], 4000), at(RIGHT[family], 5000));
        let client = Self::udp(&self.left, LEFT[family], 4000);
        Flow { here, there, client, server: Self::udp(&self.right, RIGHT[family], 5000) }
    }

    /// A UDP socket of a host.
    pub fn udp(host: &Namespace, text: &str, port: u16) -> UdpSocket {
        let socket = host.run(|| UdpSocket::bind(at(text, port))).expect("entered");
        let socket = socket.unwrap_or_else(|error| panic!("{text}, port {port}: {error}"));
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
        socket
    }
}

/// A UDP socket of each host.
pub struct Flow {
    /// The client's address.
    pub here: SocketAddr,
    /// The server's address.
    pub there: SocketAddr,
    /// Bound to `here`.
    pub client: UdpSocket,
    /// Bound to `there`.
    pub server: UdpSocket,
}

impl Flow {
    /// A packet to the server; whom it seems to come from.
    #[track_caller]
    pub fn ask(&self, text: &str) -> SocketAddr {
        deliver(&self.client, self.there, &self.server, text)
    }

    /// A packet to the client, where nothing is translated; whom it seems to come from.
    #[track_caller]
    pub fn answer(&self, text: &str) -> SocketAddr {
        deliver(&self.server, self.here, &self.client, text)
    }

    /// A packet each way, so many times.
    #[track_caller]
    pub fn talk(&self, times: usize) {
        for _ in 0..times {
            self.ask("question");
            self.answer("answer");
        }
    }
}

/// Sends a packet to `to` through `from`, and takes it at `at`: whom it seems to come from.
#[track_caller]
pub fn deliver(from: &UdpSocket, to: SocketAddr, at: &UdpSocket, text: &str) -> SocketAddr {
    let mut buffer = [0; 2048];
    from.send_to(text.as_bytes(), to).expect("sent");
    let (length, source) = uninterrupted(|| at.recv_from(&mut buffer))
        .unwrap_or_else(|error| panic!("{text} to {to} did not arrive: {error}"));
    assert_eq!(&buffer[..length], text.as_bytes());
    source
}
