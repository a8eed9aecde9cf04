//! A router with a shaped uplink that translates, between two hosts, and the same hosts without it: what
//! `forward-uplink` measures on.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use linerate_testkit::{Mac, Namespace, Veth, VethOptions};
use tempfile::NamedTempFile;

use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::cpu::Core;
use crate::measure::process::Running;
use crate::programs;

/// The interfaces of the hosts and of the router between them.
const WEST_INTERFACE: &str = "out0";
const EAST_INTERFACE: &str = "in0";
const LEFT: &str = "left";
const RIGHT: &str = "right";
/// The router's VLAN devices, and those of the hosts, where one port has both networks.
const LAN: &str = "lan";
const WAN: &str = "wan";

const WEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const LEFT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);
const EAST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
const RIGHT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);

/// How long a stream runs before it is measured, and after.
const RAMP: Duration = Duration::from_millis(1500);

/// What the router sends by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Uplink {
    /// An interface of its own.
    Ethernet,
    /// A VLAN device on the port that has the local network as well: a router on a stick.
    Vlan,
    /// `pppd` against an access concentrator.
    Pppoe,
}

/// A stream that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShapedStream {
    /// Bytes of its frames, where they arrived, without the FCS.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Seconds that cores were busy meanwhile, all together.
    pub(crate) busy: f64,
}

impl ShapedStream {
    /// Bits a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }

    /// Nanoseconds of a core for each byte.
    pub(crate) fn cost(&self) -> f64 {
        self.busy * 1e9 / self.bytes.max(1) as f64
    }
}

/// Two hosts, a router, and who dials in.
#[derive(Debug)]
pub(crate) struct ShapedUplink {
    west: Namespace,
    router: Namespace,
    east: Namespace,
    /// Where the stream arrives, in the east.
    arrival: &'static str,
    /// What the router sends by.
    uplink: &'static str,
    /// Of `linerate forward run`.
    ports: Vec<&'static str>,
    cores: Cores,
    veths: [Veth; 2],
    _dialled: Vec<Running>,
    /// The options file of the pppd that pppoe-server starts for each client.
    _options: Option<NamedTempFile>,
}

impl ShapedUplink {
    /// Builds it; `rate`, in bits a second, is the shaper's.
    pub(crate) fn build(cores: Cores, uplink: Uplink, rate: Option<u64>) -> Result<Self> {
        let west = Namespace::create("west")?;
        let router = Namespace::create("router")?;
        let east = Namespace::create("east")?;
        let left = Veth::create(&west, WEST_INTERFACE, &router, LEFT, VethOptions::default())?;
        let right = Veth::create(&router, RIGHT, &east, EAST_INTERFACE, VethOptions::default())?;
        for interface in [&left.a, &left.b, &right.a, &right.b] {
            interface.set_offloads(false)?;
            interface.set_gro(true)?;
        }
        router.set_forwarding(true)?;
        let mut built = Self {
            west,
            router,
            east,
            arrival: EAST_INTERFACE,
            uplink: RIGHT,
            ports: vec![LEFT, RIGHT],
            cores,
            veths: [left, right],
            _dialled: Vec::new(),
            _options: None,
        };
        match uplink {
            Uplink::Ethernet => built.address(LEFT, WEST_INTERFACE)?,
            Uplink::Vlan => built.vlans()?,
            Uplink::Pppoe => built.dial()?,
        }
        built.default_route()?;
        let rules = format!(
            "table ip linerate_lab {{ chain postrouting {{ type nat hook postrouting priority srcnat; \
             oifname {} masquerade; }}; }}",
            built.uplink
        );
        run(&built.router, "nft", &[&rules])?;
        if let Some(rate) = rate {
            shape(&built.router, built.uplink, rate)?;
        }
        Ok(built)
    }

    /// Gives the router's interfaces and the hosts' their addresses.
    fn address(&self, left: &str, west: &str) -> Result<()> {
        let (uplink, arrival) = (self.uplink, self.arrival);
        for (host, interface, address) in [
            (&self.west, west, WEST_ADDRESS),
            (&self.router, left, LEFT_ADDRESS),
            (&self.router, uplink, RIGHT_ADDRESS),
            (&self.east, arrival, EAST_ADDRESS),
        ] {
            ip(host, &format!("addr add {address}/16 dev {interface}"))?;
            ip(host, &format!("link set {interface} up"))?;
        }
        Ok(())
    }

    /// Both networks on the left port: one stays in the west, the other's device goes to the east.
    fn vlans(&mut self) -> Result<()> {
        for (host, below) in [(&self.router, LEFT), (&self.west, WEST_INTERFACE)] {
            for (name, id) in [(LAN, 10), (WAN, 20)] {
                ip(host, &format!("link add link {below} name {name} type vlan id {id}"))?;
            }
        }
        ip(&self.west, &format!("link set {WAN} netns {}", self.east.path().display()))?;
        (self.uplink, self.arrival, self.ports) = (WAN, WAN, vec![LEFT, LAN, WAN]);
        self.address(LAN, LAN)
    }

    /// The router dials in at the east.
    fn dial(&mut self) -> Result<()> {
        // It fails, but loads the module, which makes the device file.
        let _ = ip(&self.router, "link add type ppp");
        ensure!(Path::new("/dev/ppp").exists(), "the kernel has no PPP");
        for (host, interface, address) in
            [(&self.west, WEST_INTERFACE, WEST_ADDRESS), (&self.router, LEFT, LEFT_ADDRESS)]
        {
            ip(host, &format!("addr add {address}/16 dev {interface}"))?;
        }
        let mut options = NamedTempFile::new().context("cannot make a file for pppd's options")?;
        options.write_all(b"noauth\n").context("cannot write pppd's options")?;
        let mut server = self.east.command_killed_with_parent("pppoe-server");
        server.args(["-F", "-N", "1", "-I", EAST_INTERFACE, "-O"]).arg(options.path());
        self._options = Some(options);
        server.args(["-L", &EAST_ADDRESS.to_string(), "-R", &RIGHT_ADDRESS.to_string()]);
        self._dialled.push(Running::start("pppoe-server", &mut server)?);
        let mut client = self.router.command_killed_with_parent("pppd");
        client
            .args(format!("plugin rp-pppoe.so nic-{RIGHT} noauth nodetach noipdefault").split(' '));
        // An error then includes what pppd logs.
        client.args(["logfd", "2"]);
        client.args("ifname ppp0 mtu 1492 mru 1492 lcp-echo-interval 0".split(' '));
        let mut client = Running::start("pppd", &mut client)?;
        let addressed = |host: &Namespace| {
            Ok::<_, anyhow::Error>(
                run(host, "ip", &["-br", "addr", "show", "type", "ppp"])?.contains("198.19."),
            )
        };
        let ready = || Ok(addressed(&self.router)? && addressed(&self.east)?);
        client.wait_until("a PPPoE link", Duration::from_secs(60), ready)?;
        self._dialled.push(client);
        (self.uplink, self.arrival, self.ports) = ("ppp0", "ppp0", vec![LEFT, RIGHT, "ppp0"]);
        Ok(())
    }

    fn default_route(&self) -> Result<()> {
        ip(&self.west, &format!("route add default via {LEFT_ADDRESS}"))
    }

    /// Why this uplink is unavailable here; `None` if it is available.
    pub(crate) fn unavailable(cores: Cores, uplink: Uplink) -> Option<String> {
        Self::build(cores, uplink, None).err().map(|error| format!("{error:#}"))
    }

    /// Starts `linerate forward` with this `--datapath`, and waits until it forwards.
    pub(crate) fn start_forward(&self, datapath: &str) -> Result<Running> {
        let mut words = vec!["forward", "run", "--metrics", "off", "--datapath", datapath];
        words.extend(self.ports.iter().flat_map(|port| ["-i", port]));
        let mut command = programs::linerate(&self.router, self.cores.consumer, words)?;
        let mut running = Running::start("linerate forward", &mut command)?;
        let status = || {
            let words = ["forward", "status", "--json"];
            let mut command = programs::linerate(&self.router, self.cores.consumer, words)?;
            let said = Running::start("linerate forward status", &mut command)?;
            Ok(said.wait(Duration::from_secs(20))?.success().is_ok())
        };
        running.wait_until("linerate forward to start", Duration::from_secs(60), status)?;
        Ok(running)
    }

    /// Starts a plain redirect at tcx in each direction, with the translation as constants: the limit of TC. For an
    /// uplink by Ethernet.
    pub(crate) fn start_redirects(&self) -> Result<Vec<Running>> {
        let [left, right] = &self.veths;
        let start = |from: &str, to: (&str, Mac, Mac), field: &str, address: Ipv4Addr| {
            let line = format!(
                "redirect-tc -i {} --to {} --dst-mac {} --src-mac {} {field} {address}",
                from, to.0, to.2, to.1
            );
            let words = programs::words(&line);
            let mut command = programs::helper(&self.router, self.cores.consumer, words)?;
            let mut running = Running::start("the plain redirect at tcx", &mut command)?;
            let attached = || {
                let index = self.router.interface(from)?.index();
                Ok(self.router.run(|| linerate_bpf::link::has_tcx_ingress_program(index))??)
            };
            running.wait_until("the program to attach", Duration::from_secs(20), attached)?;
            Ok::<_, anyhow::Error>(running)
        };
        let lan = (LEFT, left.b.mac(), left.a.mac());
        let wan = (RIGHT, right.a.mac(), right.b.mac());
        Ok(vec![
            start(LEFT, wan, "--source", RIGHT_ADDRESS)?,
            start(RIGHT, lan, "--destination", WEST_ADDRESS)?,
        ])
    }

    /// IPv4 packets that the stack of the router has forwarded.
    pub(crate) fn routed_packets(&self) -> Result<u64> {
        Ok(self.router.snmp_counter("Ip", "ForwDatagrams")?)
    }

    /// One TCP stream from the west to the east, as fast as possible, measured for `time`.
    pub(crate) fn stream(&self, time: Duration) -> Result<ShapedStream> {
        stream(self.cores, &self.west, (&self.east, self.arrival), time)
    }
}

/// The same stream between two hosts without a router; the sender shapes.
pub(crate) fn direct(cores: Cores, rate: u64, time: Duration) -> Result<ShapedStream> {
    let (west, east) = (Namespace::create("west")?, Namespace::create("east")?);
    let veth = Veth::create(&west, WEST_INTERFACE, &east, EAST_INTERFACE, VethOptions::default())?;
    for interface in [&veth.a, &veth.b] {
        interface.set_offloads(false)?;
        interface.set_gro(true)?;
    }
    for (host, interface, address) in
        [(&west, WEST_INTERFACE, RIGHT_ADDRESS), (&east, EAST_INTERFACE, EAST_ADDRESS)]
    {
        ip(host, &format!("addr add {address}/16 dev {interface}"))?;
    }
    shape(&west, WEST_INTERFACE, rate)?;
    stream(cores, &west, (&east, EAST_INTERFACE), time)
}

/// An HTB of `rate` bits a second, with room for as many packets as an Ethernet interface has.
fn shape(host: &Namespace, interface: &str, rate: u64) -> Result<()> {
    for line in [
        format!("qdisc add dev {interface} root handle 1: htb default 10"),
        format!(
            "class add dev {interface} parent 1: classid 1:10 htb rate {rate}bit burst 64k cburst 64k"
        ),
        format!("qdisc add dev {interface} parent 1:10 pfifo limit 1000"),
    ] {
        run(host, "tc", &line.split(' ').collect::<Vec<_>>())?;
    }
    Ok(())
}

fn stream(
    cores: Cores,
    west: &Namespace,
    (east, arrival): (&Namespace, &str),
    time: Duration,
) -> Result<ShapedStream> {
    let iperf3 = || PathBuf::from("iperf3");
    let mut server = Running::start(
        "iperf3 --server",
        &mut programs::on_core(east, cores.consumer, iperf3(), ["--server", "--one-off"]),
    )?;
    let listens = || {
        // Port 5201; a connection made only to see whether it is open would use up its one client.
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/thread-self/net/{table}"));
        let read = |path: &String| std::fs::read_to_string(path).unwrap_or_default();
        let tables = east.run(|| tables.iter().map(read).collect::<String>())?;
        Ok(tables.lines().any(|line| line.contains(":1451 ") && line.contains(" 0A ")))
    };
    server.wait_until("iperf3 to listen", Duration::from_secs(10), listens)?;
    let seconds = (time + 2 * RAMP).as_secs_f64().ceil().to_string();
    let words = ["--client", &EAST_ADDRESS.to_string(), "--time", &seconds];
    let mut client =
        Running::start("iperf3", &mut programs::on_core(west, cores.generator, iperf3(), words))?;
    interrupt::sleep(RAMP)?;
    let arrived = || Ok::<_, anyhow::Error>(east.interface(arrival)?.statistics()?.rx_bytes);
    let cores: BTreeSet<_> = [cores.generator, cores.consumer].into();
    let read = || cores.iter().map(|core| Core::read(*core)).collect::<Result<Vec<_>>>();
    let (began, before, bytes) = (Instant::now(), read()?, arrived()?);
    interrupt::sleep(time)?;
    let (elapsed, after, bytes) = (began.elapsed(), read()?, arrived()? - bytes);
    client.check()?;
    let busy = after.iter().zip(before).map(|(after, before)| after.busy_since(before, elapsed));
    let busy = busy.sum();
    client.wait(Duration::from_secs(60))?.success()?;
    server.wait(Duration::from_secs(10))?;
    Ok(ShapedStream { bytes, seconds: elapsed.as_secs_f64(), busy })
}

fn ip(host: &Namespace, line: &str) -> Result<()> {
    run(host, "ip", &line.split(' ').collect::<Vec<_>>()).map(drop)
}

fn run(host: &Namespace, program: &str, words: &[&str]) -> Result<String> {
    let output = host
        .command(program)
        .args(words)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", words.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
