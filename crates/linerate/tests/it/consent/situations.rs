//! [`SITUATIONS`]: ways in which a host uses an interface, or forbids its use. A program that leaves each packet to the
//! host changes nothing in any of them. What cannot be made panics.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Link, NetfilterOpts, ObjectBuilder};
use linerate_testkit::tools::compile_bpf;
use linerate_testkit::{Namespace, Veth, VethOptions, print_skipped, root_or_skip, uninterrupted};

/// Packets of one exchange, in one direction.
pub(super) const COUNT: usize = 20;
/// The port that is talked to.
pub(super) const PORT: u16 = 5000;

/// More than anything here takes, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long nothing comes where nothing shall come.
const SILENCE: Duration = Duration::from_millis(150);
/// Where control groups of version 2 may be mounted.
const CONTROL_GROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// `peer` (peer) - (port) `host` (inner) - (beyond) `beyond`. Programs under test run on `port` of `host`.
pub(super) struct Hosts {
    /// The sender.
    pub(super) peer: Namespace,
    /// The host under test.
    pub(super) host: Namespace,
    /// A host behind it.
    pub(super) beyond: Namespace,
    _cables: [Veth; 2],
}

impl Hosts {
    /// Three hosts without addresses.
    pub(super) fn new() -> Self {
        let make = |name: &str| Namespace::create(name).expect("a namespace");
        let (peer, host, beyond) = (make("st-peer"), make("st-host"), make("st-beyond"));
        let connect = |near: &Namespace, far: &Namespace, names: [&str; 2]| {
            let options = VethOptions::default();
            Veth::create(near, names[0], far, names[1], options).expect("a veth pair")
        };
        let port = connect(&peer, &host, ["peer", "port"]);
        let inner = connect(&host, &beyond, ["inner", "beyond"]);
        // XDP on a veth sees tags that are in the frames.
        port.a.set_features(&[("tx-vlan-hw-insert", false)]).expect("offloads");
        port.a.add_address(address("10.9.0.1"), 24).expect("an address");
        port.a.add_address(address("fd09::1"), 64).expect("an address");
        Self { peer, host, beyond, _cables: [port, inner] }
    }

    fn named(&self, name: &str) -> &Namespace {
        match name {
            "peer" => &self.peer,
            "host" => &self.host,
            "beyond" => &self.beyond,
            _ => panic!("{name} is no host"),
        }
    }

    /// An address of `host` with a port, and with the interface of a link-local one.
    fn at(host: &Namespace, text: &str, port: u16, interface: &str) -> SocketAddr {
        match address(text) {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let index = host.interface(interface).expect("an interface").index();
                SocketAddrV6::new(v6, port, 0, index).into()
            }
            other => (other, port).into(),
        }
    }
}

/// What is sent, and what comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Talk {
    /// Datagrams, each of which is answered.
    Udp,
    /// Datagrams that are not answered.
    OneWay,
    /// Datagrams to a group.
    Group,
    /// Bytes on an established connection, each of which is answered.
    Tcp,
    /// Echo requests, which the kernel answers.
    Ping,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Situation {
    /// Its name.
    pub(super) name: &'static str,
    /// Programs to run, `HOST PROGRAM ARGUMENTS`; or `HOST address INTERFACE ADDRESS/PREFIX`, `HOST sysctl KEY VALUE` and
    /// `HOST bpf PROGRAM`.
    pub(super) lines: &'static [&'static str],
    /// What is sent.
    pub(super) talk: Talk,
    /// The address of `peer` that it comes from.
    pub(super) from: &'static str,
    /// Where it goes.
    pub(super) to: &'static str,
    /// Who receives it.
    pub(super) at: &'static str,
    /// It arrives. Else the host drops it.
    pub(super) arrives: bool,
}

impl Situation {
    /// Sets it up; an error says what this kernel lacks. The situation lasts until what is returned is dropped.
    ///
    /// # Errors
    /// The line that failed.
    pub(super) fn set_up(&self, hosts: &Hosts) -> Result<Vec<Link>, String> {
        let mut links = Vec::new();
        for line in self.lines {
            let line = line.replace("{beyond}", hosts.beyond.name());
            let words: Vec<_> = line.split_whitespace().collect();
            let host = hosts.named(words[0]);
            match words[1..] {
                ["address", interface, with_prefix] => {
                    let (text, prefix) = with_prefix.split_once('/').expect("a prefix");
                    let interface = host.interface(interface).expect("an interface");
                    let prefix = prefix.parse().expect("a number");
                    interface.add_address(address(text), prefix).expect("an address");
                }
                ["sysctl", key, value] => host.sysctl(key, value).map_err(|e| e.to_string())?,
                ["bpf", program] => {
                    let attach =
                        || attach(program).map_err(|error| format!("{program}: {error:#}"));
                    links.push(host.run(attach).expect("a namespace")?);
                }
                _ => {
                    let output = host.command(words[1]).args(&words[2..]).output();
                    let output = output.map_err(|error| error.to_string())?;
                    if !output.status.success() {
                        return Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)));
                    }
                }
            }
        }
        Ok(links)
    }

    /// What [`Conversation::exchange`] counts on plain Linux.
    pub(super) fn counts(&self) -> [usize; 2] {
        let arrived = if self.arrives { COUNT } else { 0 };
        let is_answered = matches!(self.talk, Talk::Udp | Talk::Tcp | Talk::Ping);
        [arrived, if is_answered { arrived } else { 0 }]
    }

    /// Opens the sockets; a connection is established.
    pub(super) fn open<'h>(&'h self, hosts: &'h Hosts) -> Conversation<'h> {
        let server = hosts.named(self.at);
        let interface = if self.at == "host" { "port" } else { "beyond" };
        let to = Hosts::at(&hosts.peer, self.to, PORT, "peer");
        let from = Hosts::at(&hosts.peer, self.from, 0, "peer");
        let udp = |host: &Namespace, at: SocketAddr| {
            host.run(|| UdpSocket::bind(at)).expect("a namespace").expect("a socket")
        };
        let sockets = match self.talk {
            Talk::Ping => Sockets::None,
            Talk::Tcp => {
                let at = Hosts::at(server, self.to, PORT, interface);
                let listen = || TcpListener::bind(at).expect("a listener");
                let listener = server.run(listen).expect("a namespace");
                let connect = || TcpStream::connect_timeout(&to, TIMEOUT).expect("a connection");
                let client = hosts.peer.run(connect).expect("a namespace");
                Sockets::Tcp(client, uninterrupted(|| listener.accept()).expect("a connection").0)
            }
            Talk::Udp | Talk::OneWay | Talk::Group => {
                let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
                let receiver = udp(server, (address(any), PORT).into());
                if self.talk == Talk::Group {
                    join(&receiver, to.ip(), server.interface(interface).expect("one").index());
                }
                let sender = udp(&hosts.peer, from);
                sender.set_broadcast(true).expect("an option");
                Sockets::Udp(sender, receiver)
            }
        };
        Conversation { situation: self, peer: &hosts.peer, to, sockets }
    }
}

/// An open conversation.
pub(super) struct Conversation<'h> {
    situation: &'h Situation,
    peer: &'h Namespace,
    to: SocketAddr,
    sockets: Sockets,
}

enum Sockets {
    Udp(UdpSocket, UdpSocket),
    Tcp(TcpStream, TcpStream),
    None,
}

impl Conversation<'_> {
    /// Sends [`COUNT`] packets. How many arrived, and how many answers came back.
    pub(super) fn exchange(&mut self) -> [usize; 2] {
        let Situation { talk, arrives, .. } = *self.situation;
        match &mut self.sockets {
            Sockets::None => {
                let (count, to) = (COUNT.to_string(), self.situation.to);
                let wait = if arrives { "20" } else { "1" };
                let mut ping = self.peer.command("ping");
                ping.args(["-n", "-q", "-i", "0.002", "-c", &count, "-W", wait, to]);
                let text = ping.output().expect("ping").stdout;
                let text = String::from_utf8_lossy(&text).into_owned();
                let before = text.split(" received").next().expect("a piece");
                let number = before.rsplit(' ').next().expect("a word");
                [number.parse().unwrap_or_else(|_| panic!("{text}")); 2]
            }
            Sockets::Tcp(client, server) => {
                let send = |from: &mut TcpStream, to: &mut TcpStream| {
                    to.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
                    let mut pass = |byte| {
                        from.write_all(&[byte]).is_ok()
                            && uninterrupted(|| to.read(&mut [0])).is_ok_and(|n| n == 1)
                    };
                    (0..COUNT as u8).take_while(|byte| pass(*byte)).count()
                };
                [send(client, server), send(server, client)]
            }
            Sockets::Udp(sender, receiver) => {
                let wait = if arrives { TIMEOUT } else { SILENCE };
                receiver.set_read_timeout(Some(wait)).expect("a timeout");
                sender.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
                for number in 0..COUNT as u8 {
                    // What is forbidden may be refused at once.
                    let _ = sender.send_to(&[number], self.to);
                }
                let mut counts = [0, 0];
                while counts[0] < COUNT {
                    let Ok((_, from)) = uninterrupted(|| receiver.recv_from(&mut [0; 8])) else {
                        break;
                    };
                    counts[0] += 1;
                    if talk == Talk::Udp {
                        receiver.send_to(&[0], from).expect("an answer");
                    }
                }
                let answers = if talk == Talk::Udp { counts[0] } else { 0 };
                while counts[1] < answers && uninterrupted(|| sender.recv(&mut [0; 8])).is_ok() {
                    counts[1] += 1;
                }
                counts
            }
        }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Joins the group: of IPv6 at this interface, of IPv4 where the route to the group leads.
fn join(socket: &UdpSocket, group: IpAddr, interface: u32) {
    match group {
        IpAddr::V4(group) => socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(group) => socket.join_multicast_v6(&group, interface),
    }
    .expect("a group");
}

/// Attaches a program of `situations.bpf.c` in this namespace.
fn attach(name: &str) -> libbpf_rs::Result<Link> {
    let folder = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/consent/situations.bpf.c");
    let mut object = ObjectBuilder::default().open_file(compile_bpf(&source, folder.path()))?;
    for mut program in object.progs_mut() {
        let is_wanted = program.name() == name;
        program.set_autoload(is_wanted);
    }
    let object = object.load()?;
    let program = object.progs_mut().find(|one| one.name() == name).expect("a program");
    match name {
        "control_group" => {
            let path = CONTROL_GROUPS.map(|path| Path::new(path).join("cgroup.controllers"));
            let path =
                path.iter().find(|path| path.is_file()).map_or(path[0].as_path(), |path| path);
            let folder = File::open(path.parent().expect("a folder"))?;
            program.attach_cgroup(folder.as_raw_fd())
        }
        "socket_lookup" => {
            program.attach_netns(File::open("/proc/thread-self/ns/net")?.as_raw_fd())
        }
        _ => program.attach_netfilter_with_opts(NetfilterOpts {
            protocol_family: 2,
            hooknum: 1,
            priority: -128,
            ..NetfilterOpts::default()
        }),
    }
}

macro_rules! situations {
    ($($name:literal $talk:ident $from:literal -> $at:literal $to:literal $arrives:literal [$($line:literal),* $(,)?])*) => {
        &[$(Situation {
            name: $name, lines: &[$($line),*], talk: Talk::$talk, from: $from, to: $to, at: $at, arrives: $arrives,
        }),*]
    };
}

/// All of them. The last word is whether the packets arrive.
pub(super) const SITUATIONS: &[Situation] = situations! {
    "address" Udp "10.9.0.1" -> "host" "10.9.0.2" true ["host address port 10.9.0.2/24"]
    "IPv6 address" Udp "fd09::1" -> "host" "fd09::2" true ["host address port fd09::2/64"]
    "TCP connection" Tcp "10.9.0.1" -> "host" "10.9.0.2" true ["host address port 10.9.0.2/24"]
    "TCP connection between link-local addresses" Tcp "fe80::1" -> "host" "fe80::2" true [
        "peer address peer fe80::1/64", "host address port fe80::2/64",
    ]
    "address on lo" OneWay "10.9.0.1" -> "host" "10.77.0.1" true [
        "host ip address add 10.77.0.1/32 dev lo", "host ip route add 10.9.0.0/24 dev port",
        "peer ip route add 10.77.0.1 dev peer",
    ]
    "address on lo and a way back that leads elsewhere" OneWay "10.9.0.1" -> "host" "10.77.0.1" true [
        "host ip address add 10.77.0.1/32 dev lo", "host address inner 10.8.0.1/24",
        "host ip route add 10.9.0.0/24 dev inner", "peer ip route add 10.77.0.1 dev peer",
    ]
    "prefix that is local" Udp "10.9.0.1" -> "host" "10.55.0.7" true [
        "host address port 10.9.0.2/24", "host ip route add local 10.55.0.0/24 dev lo",
        "peer ip route add 10.55.0.0/24 via 10.9.0.2",
    ]
    "router" Udp "10.9.0.1" -> "beyond" "10.8.0.2" true [
        "host address port 10.9.0.2/24", "host address inner 10.8.0.1/24",
        "beyond address beyond 10.8.0.2/24", "host sysctl net.ipv4.ip_forward 1",
        "peer ip route add 10.8.0.0/24 via 10.9.0.2", "beyond ip route add 10.9.0.0/24 via 10.8.0.1",
    ]
    "IPv6 router" Tcp "fd09::1" -> "beyond" "fd08::2" true [
        "host address port fd09::2/64", "host address inner fd08::1/64", "host address port fe80::2/64",
        "host address inner fe80::1/64",
        "beyond address beyond fd08::2/64", "host sysctl net.ipv6.conf.all.forwarding 1",
        "peer ip route add fd08::/64 via fd09::2", "beyond ip route add fd09::/64 via fd08::1",
    ]
    "router that translates" Udp "10.9.0.1" -> "beyond" "10.9.0.2" true [
        "host address port 10.9.0.2/24", "host address inner 10.8.0.1/24",
        "beyond address beyond 10.8.0.2/24", "host sysctl net.ipv4.ip_forward 1",
        "beyond ip route add 10.9.0.0/24 via 10.8.0.1",
        "host nft add table ip nat { chain c { type nat hook prerouting priority -100 ; udp dport 5000 dnat to 10.8.0.2 ; } ; }",
    ]
    "bridge port" Udp "10.9.0.1" -> "beyond" "10.9.0.3" true [
        "host ip link add br0 type bridge", "host ip link set port master br0",
        "host ip link set inner master br0", "host ip link set br0 up",
        "beyond address beyond 10.9.0.3/24",
    ]
    "bridge with an address" Tcp "10.9.0.1" -> "host" "10.9.0.2" true [
        "host ip link add br0 type bridge", "host ip link set port master br0",
        "host ip link set br0 up", "host ip address add 10.9.0.2/24 dev br0",
    ]
    "group on an interface without an address" Group "10.9.0.1" -> "host" "239.9.9.9" true [
        "host ip route add 239.0.0.0/8 dev port", "peer ip route add 239.0.0.0/8 dev peer",
    ]
    "IPv6 group that is joined by index" Group "fd09::1" -> "host" "ff15::9" true [
        "host address port fe80::2/64", "peer ip -6 route add multicast ff15::/16 dev peer table local",
    ]
    "broadcast" OneWay "10.9.0.1" -> "host" "10.9.0.255" true ["host address port 10.9.0.2/24"]
    "macvlan" Udp "10.9.0.1" -> "host" "10.9.0.3" true [
        "host ip link add mac0 link port type macvlan mode bridge", "host ip link set mac0 up",
        "host ip address add 10.9.0.3/24 dev mac0",
    ]
    "macvlan of another namespace" Tcp "10.9.0.1" -> "beyond" "10.9.0.3" true [
        "host ip link add mac0 link port netns {beyond} type macvlan mode bridge",
        "beyond ip link set mac0 up", "beyond ip address add 10.9.0.3/24 dev mac0",
    ]
    "macvlan that has the address of the port" Udp "10.9.0.1" -> "beyond" "10.9.0.3" true [
        "host ip link add mac0 link port netns {beyond} type macvlan mode passthru",
        "beyond ip link set mac0 up", "beyond ip address add 10.9.0.3/24 dev mac0",
    ]
    "ipvlan" Udp "10.9.0.1" -> "beyond" "10.9.0.3" true [
        "host ip link add ipv0 link port netns {beyond} type ipvlan",
        "beyond ip link set ipv0 up", "beyond ip address add 10.9.0.3/24 dev ipv0",
    ]
    "VLAN device" Udp "10.19.0.1" -> "host" "10.19.0.2" true [
        "peer ip link add link peer name vlan5 type vlan id 5", "host ip link add link port name vlan5 type vlan id 5",
        "peer ip link set vlan5 up", "host ip link set vlan5 up",
        "peer ip address add 10.19.0.1/24 dev vlan5", "host ip address add 10.19.0.2/24 dev vlan5",
    ]
    "tunnel" Udp "10.19.0.1" -> "host" "10.19.0.2" true [
        "host address port 10.9.0.2/24",
        "peer ip link add vx0 type vxlan id 5 remote 10.9.0.2 dstport 4789", "peer ip link set vx0 up",
        "host ip link add vx0 type vxlan id 5 remote 10.9.0.1 dstport 4789", "host ip link set vx0 up",
        "peer ip address add 10.19.0.1/24 dev vx0", "host ip address add 10.19.0.2/24 dev vx0",
    ]
    "echo after ARP" Ping "10.9.0.1" -> "host" "10.9.0.2" true ["host address port 10.9.0.2/24"]
    "echo after neighbour discovery" Ping "fd09::1" -> "host" "fd09::2" true ["host address port fd09::2/64"]
    "ARP for another host" Udp "10.9.0.1" -> "beyond" "10.9.0.77" true [
        "host address port 10.9.0.2/24", "host address inner 10.8.0.1/24",
        "host sysctl net.ipv4.ip_forward 1", "host sysctl net.ipv4.conf.port.proxy_arp 1",
        "host ip route add 10.9.0.77 dev inner", "beyond ip address add 10.9.0.77/32 dev beyond",
        "beyond ip route add 10.8.0.1 dev beyond", "beyond ip route add 10.9.0.0/24 via 10.8.0.1",
    ]
    "IPsec policy that blocks" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24",
        "host ip xfrm policy add src 10.9.0.1/32 dst 10.9.0.2/32 dir in action block",
    ]
    "filter of a control group" Udp "10.93.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24", "peer ip address add 10.93.0.1/32 dev peer",
        "host ip route add 10.93.0.1 via 10.9.0.1", "host bpf control_group",
    ]
    "sk_lookup program" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24", "host bpf socket_lookup",
    ]
    "BPF netfilter link" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24", "host bpf hook",
    ]
    "rule of nftables that drops" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24",
        "host nft add table inet t { chain c { type filter hook input priority 0 ; udp dport 5000 drop ; } ; }",
    ]
    "rule of nftables on the answers" Udp "10.9.0.1" -> "host" "10.9.0.2" true [
        "host address port 10.9.0.2/24",
        "host nft add table inet t { chain c { type filter hook output priority 0 ; policy drop ; ct state established accept ; } ; }",
    ]
    "rule of iptables that drops" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24", "host iptables -A INPUT -p udp --dport 5000 -j DROP",
    ]
    "rule of routing that prohibits" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24", "host ip rule add priority 2 lookup local",
        "host ip rule add priority 1 iif port prohibit", "host ip rule del priority 0",
    ]
    "route that is a blackhole" Udp "10.9.0.1" -> "host" "10.9.0.2" false [
        "host address port 10.9.0.2/24", "host sysctl net.ipv4.conf.port.rp_filter 1",
        "host ip route add blackhole 10.9.0.1/32",
    ]
};

#[test]
fn packets_of_each_situation_arrive_where_it_says() {
    root_or_skip!();
    for situation in SITUATIONS {
        let hosts = Hosts::new();
        let name = situation.name;
        let _links = match situation.set_up(&hosts) {
            Ok(links) => links,
            Err(why) => {
                print_skipped(name, &why);
                continue;
            }
        };
        assert_eq!(situation.open(&hosts).exchange(), situation.counts(), "{name}");
    }
}
