//! [`Router`]: a namespace that forwards between three veth pairs, and another one at their peers.

use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use libbpf_rs::ObjectBuilder;
use linerate_bpf::link::{Hook, Link};
use linerate_bpf::xdp::AttachMode;
use linerate_testkit::{Interface, Namespace, Veth, VethOptions};

use linerate_testkit::tools::ip_batch;

use super::compiled;
use super::host::{Host, PORTS, router_mac, router_v4, router_v6};

/// What the peers take: more than any port of a router, so that too long frames get there.
const FAR_MTU: u32 = 3400;

/// Much longer than the kernel takes to notice the carrier of a device above another.
const CARRIER: Duration = Duration::from_secs(20);

/// MTU of each port.
pub(crate) const MTU: [u32; 3] = [3000, 1500, 1400];

/// Settings that keep a router from doing what depends on the time or on chance.
const SETTINGS: [(&str, &str); 10] = [
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
    // A redirect goes out once in a while only.
    ("net.ipv4.conf.all.send_redirects", "0"),
    ("net.ipv4.conf.default.send_redirects", "0"),
    // No limit of ICMP errors. A limit of 0 (icmp_ratelimit) would take away what is left of that of `ip_error`, which
    // counts in the same tokens: how often the router refuses a packet would depend on the tick.
    ("net.ipv4.icmp_ratemask", "0"),
    ("net.ipv6.icmp.ratelimit", "0"),
    ("net.ipv6.auto_flowlabels", "0"),
    ("net.ipv6.conf.all.accept_redirects", "0"),
    ("net.ipv6.conf.default.accept_redirects", "0"),
    ("net.ipv6.conf.all.forwarding", "1"),
];

/// Routes that are not to hosts beside a port. The networks 10.101.0.0/16 and so on lie behind a gateway.
const ROUTES: &str = "\
route add unreachable default
-6 route add unreachable default
route add blackhole 10.9.1.0/24
route add prohibit 10.9.2.0/24
-6 route add blackhole fd00:91::/64
-6 route add prohibit fd00:92::/64
route add 10.102.7.0/24 via 10.2.0.253 dev wan onlink mtu 1000
rule add tos 0x10 to 10.102.0.0/16 lookup 101
route add default via 10.2.0.253 dev wan onlink table 101
-6 rule add tos 0x10 to fd00:102::/32 lookup 101
-6 route add default via fd00:2::fd dev wan table 101
rule add iif dmz to 10.102.0.0/16 lookup 102
route add default via 10.2.0.252 dev wan onlink table 102
-6 rule add iif dmz to fd00:102::/32 lookup 102
-6 route add default via fd00:2::fc dev wan table 102
rule add fwmark 203 to 10.102.0.0/16 lookup 103
route add default via 10.3.0.254 dev dmz onlink table 103
-6 rule add fwmark 203 to fd00:102::/32 lookup 103
-6 route add default via fd00:3::fe dev dmz table 103
";

/// What a port of a router is: the end of a veth pair, or a device that sends by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Veth,
    Bridge,
    /// Which lets VLANs 1 and 81 to 290 through, the first without a tag.
    FilteringBridge,
    Macvlan,
    /// VLAN 7; so are the hosts.
    Vlan,
    /// The same, and the interface below is a port too, by which XDP sends.
    Trunk,
    /// In mode active-backup.
    Bond,
}

impl Device {
    /// Why a test of it cannot run here.
    pub(crate) fn missing(self) -> Option<String> {
        (!self.is_there()).then(|| format!("the kernel has no {self:?} devices"))
    }

    fn is_there(self) -> bool {
        let namespace = Namespace::create("device").expect("a namespace");
        ip_batch(&namespace, "link add below type veth\n");
        let link = match self {
            Self::Veth => return true,
            Self::Bridge => "link add probe type bridge",
            Self::FilteringBridge => "link add probe type bridge vlan_filtering 1",
            Self::Bond => "link add probe type bond",
            Self::Macvlan => "link add link below name probe type macvlan",
            Self::Vlan | Self::Trunk => "link add link below name probe type vlan id 7",
        };
        let output = namespace.command("ip").args(link.split(' ')).output().expect("ip");
        output.status.success()
    }
}

/// A router and the veth pairs around it. All routers have the same addresses.
pub(crate) struct Router {
    pub(crate) inside: Namespace,
    pub(crate) outside: Namespace,
    /// The router's end is `a`.
    pub(crate) cables: Vec<Veth>,
    /// What it routes between, and what each is.
    pub(crate) ports: Vec<(Interface, Device)>,
    vlans: Vec<Link>,
    /// `push` of `vlan.bpf.c` on each port.
    pushes: Mutex<Vec<Link>>,
    has_vlans: bool,
}

impl Router {
    /// A router that knows its neighbours and routes, and no rules.
    pub(crate) fn new(name: &str) -> Self {
        Self::of(name, [Device::Veth; 3])
    }

    /// The same with ports of these kinds.
    pub(crate) fn of(name: &str, devices: [Device; 3]) -> Self {
        let inside = Namespace::create(&format!("{name}r")).expect("a namespace");
        let outside = Namespace::create(&format!("{name}h")).expect("a namespace");
        for (key, value) in SETTINGS {
            inside.sysctl(key, value).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut cables = Vec::new();
        let mut ports = Vec::new();
        for (port, device) in devices.into_iter().enumerate() {
            cables.push(connect(&inside, &outside, port, device));
            ports.push((inside.interface(PORTS[port]).expect("a port"), device));
        }
        inside.set_forwarding(true).expect("forwarding");
        ip_batch(&inside, &neighbours());
        ip_batch(&inside, ROUTES);
        Self {
            inside,
            outside,
            cables,
            ports,
            vlans: Vec::new(),
            pushes: Mutex::default(),
            has_vlans: false,
        }
    }

    /// Makes the router know VLANs, as if each were an interface (`vlan.bpf.c`): what comes in loses its
    /// tags behind everything else at the entrance of the stack, and what goes out gets them first of all.
    pub(crate) fn with_vlans(mut self) -> Self {
        let ports: Vec<_> = self.ports.iter().map(|(port, _)| port).collect();
        self.vlans = vlans(&self.inside, &ports, "pop", Hook::TcxIngress);
        self.has_vlans = true;
        self.push_first();
        self
    }

    /// Gives what comes in the headroom that it has where XDP is accelerated: whether the kernel sends the IPv6 fragments
    /// that it has reassembled as they came, or as few as possible, depends on that.
    pub(crate) fn with_headroom(&self) -> Vec<Link> {
        let ports = self.ports.iter().zip(&self.cables);
        let ports = ports.filter(|((_, device), _)| matches!(device, Device::Veth | Device::Trunk));
        let ports: Vec<_> = ports.map(|(_, cable)| &cable.a).collect();
        vlans(&self.inside, &ports, "pass", Hook::Xdp(AttachMode::Native))
    }

    /// Has tags pushed before anything else at the egress hook sees a packet, as a VLAN interface would have it: whoever
    /// attaches last is first.
    pub(crate) fn push_first(&self) {
        if self.has_vlans {
            let ports: Vec<_> = self.ports.iter().map(|(port, _)| port).collect();
            let mut pushes = self.pushes.lock().expect("no test panics here");
            pushes.clear();
            pushes.extend(vlans(&self.inside, &ports, "push", Hook::TcxEgress));
        }
    }
}

/// A program of `vlan.bpf.c` on these ports of a router.
pub(crate) fn vlans(
    router: &Namespace,
    ports: &[&Interface],
    program: &str,
    hook: Hook,
) -> Vec<Link> {
    let object = ObjectBuilder::default().open_file(compiled("vlan")).expect("an object");
    let object = object.load().expect("loaded");
    let program = object.progs().find(|found| found.name() == program).expect("a program");
    let program = program.as_fd().try_clone_to_owned().expect("cloned");
    let on = |port: &&Interface| {
        Link::attach(program.as_fd(), port.name(), port.index(), hook).expect("attached")
    };
    router.run(|| ports.iter().map(on).collect()).expect("entered")
}

fn connect(inside: &Namespace, outside: &Namespace, port: usize, device: Device) -> Veth {
    let name = PORTS[port];
    let (end, mac) = match device {
        Device::Veth => (name.to_owned(), router_mac(port)),
        _ => (format!("{name}0"), linerate_testkit::Mac([2, 0, 0, 0, 8, port as u8])),
    };
    let options = VethOptions {
        mtu: FAR_MTU,
        macs: Some([mac, linerate_testkit::Mac([2, 0, 0, 0, 9, port as u8])]),
        ..VethOptions::default()
    };
    let is_vlan = matches!(device, Device::Vlan | Device::Trunk);
    let peer = if is_vlan { &end } else { name };
    let cable = Veth::create(inside, &end, outside, peer, options).expect("a veth pair");
    cable.a.set_mtu(MTU[port]).expect("the MTU");
    for end in [&cable.a, &cable.b] {
        end.set_offloads(false).expect("offloads");
        // A tag is part of the frame, as it is on a wire.
        let tags = [("tx-vlan-hw-insert", false), ("tx-vlan-stag-hw-insert", false)];
        end.set_features(&tags).expect("offloads");
    }
    // An accelerated port has NAPI, and so has this.
    cable.a.set_gro(true).expect("GRO");
    if device == Device::Trunk {
        // A veth drops redirected frames for a peer without NAPI.
        cable.b.set_gro(true).expect("GRO");
    }
    if device != Device::Veth {
        // It has nothing to say for itself.
        let key = format!("net.ipv6.conf.{end}.disable_ipv6");
        inside.sysctl(&key, "1").expect("no IPv6");
        let (mac, mtu) = (router_mac(port), MTU[port]);
        let above = match device {
            Device::Macvlan => {
                format!("link add link {end} name {name} address {mac} type macvlan mode bridge\n")
            }
            Device::Vlan | Device::Trunk => {
                let vlan = format!("link add link {end} name {name} type vlan id 7\n");
                ip_batch(outside, &format!("{vlan}link set {name} up\n"));
                format!("{vlan}link set {name} address {mac}\n")
            }
            Device::Bond => format!(
                "link set {end} down\n\
                 link add {name} address {mac} type bond mode active-backup miimon 10\n\
                 link set {end} master {name}\n"
            ),
            Device::Veth | Device::Bridge | Device::FilteringBridge => format!(
                "link add {name} address {mac} type bridge mcast_snooping 0{}\n\
                 link set {end} master {name}\n",
                if device == Device::FilteringBridge { " vlan_filtering 1" } else { "" }
            ),
        };
        ip_batch(inside, &format!("{above}link set {name} mtu {mtu} up\n"));
        if device == Device::FilteringBridge {
            for member in [end.clone(), format!("{name} self")] {
                let words = format!("vlan add vid 81-290 dev {member}");
                let words = words.split(' ');
                let output = inside.command("bridge").args(words).output().expect("bridge");
                assert!(output.status.success(), "{output:?}");
            }
        }
    }
    let routed = inside.interface(name).expect("a port");
    routed.wait_for_carrier(CARRIER).expect("a carrier");
    for address in [router_v4(port), router_v6(port)] {
        routed.add_address(address, if address.is_ipv4() { 32 } else { 128 }).expect("added");
    }
    cable
}

/// Every host has a permanent neighbour entry, and no other host is looked up.
fn neighbours() -> String {
    let mut lines = String::new();
    for (port, name) in PORTS.iter().enumerate() {
        for host in Host::all(port) {
            let (v4, v6, mac) = (host.v4(), host.v6(), host.mac());
            let _ = writeln!(lines, "route add {v4}/32 dev {name} scope link");
            let _ = writeln!(lines, "-6 route add {v6}/128 dev {name}");
            let _ = writeln!(lines, "neigh add {v4} dev {name} lladdr {mac} nud permanent");
            let _ = writeln!(lines, "-6 neigh add {v6} dev {name} lladdr {mac} nud permanent");
        }
        let n = port + 1;
        let _ =
            writeln!(lines, "route add 10.{}.0.0/16 via 10.{n}.0.254 dev {name} onlink", 100 + n);
        let _ = writeln!(lines, "-6 route add fd00:{}::/32 via fd00:{n}::fe dev {name}", 100 + n);
    }
    lines
}
