//! `linerate uplink`: a TAP or TUN device joined to an interface.

mod follow;
mod metrics;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_capture::interface;
use linerate_capture::privilege;
use linerate_net::Connection;
use linerate_net::link::{self, Link};
use linerate_net::text::list;
use linerate_segment::Policy;
use linerate_uplink::{Backend, Device, Options, Uplink};
use linerate_wire::ethernet::Address;

use crate::cli::metrics::{Metrics, Publisher};
use crate::cli::progress::Stats;
use crate::cli::signals::Signals;
use crate::cli::values::{Cpus, cpus, new_interface};

/// Arguments of `linerate uplink`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Name of the TAP device to create; %d is the first free number.
    #[arg(long, value_name = "NAME", default_value = "tap%d", value_parser = new_interface)]
    tap: String,

    /// Create a TUN device of this name instead, which shares the interface with the host.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tap", "mac", "take_over"], value_parser = new_interface)]
    tun: Option<String>,

    /// Join this TAP device or macvtap, which exists, has no other program, and stays.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tap", "tun"], value_parser = new_interface)]
    attach: Option<String>,

    /// Join this open descriptor: of a TAP device or macvtap, or a connected stream socket as for --socket.
    #[arg(long, value_name = "N", conflicts_with_all = ["tap", "tun", "attach", "mac", "mtu", "netns", "queues"],
        value_parser = clap::value_parser!(i32).range(0..))]
    fd: Option<i32>,

    /// Listen at this path for a virtual machine: QEMU (-netdev stream), or a program with passt's protocol.
    #[arg(long, value_name = "PATH",
        conflicts_with_all = ["tap", "tun", "attach", "fd", "mac", "mtu", "netns", "queues", "tunnels"])]
    socket: Option<PathBuf>,

    /// Listen at this path for a virtual machine with vhost-user: QEMU, Cloud Hypervisor.
    #[arg(long, value_name = "PATH",
        conflicts_with_all = ["tap", "tun", "attach", "fd", "socket", "mac", "mtu", "netns", "tunnels"])]
    vhost_user: Option<PathBuf>,

    /// Interface that it is joined to.
    #[arg(short, long, value_name = "IFACE")]
    interface: String,

    /// Backend: auto, xdp (AF_XDP sockets) or packet (AF_PACKET rings).
    #[arg(long, value_name = "BACKEND", default_value = "auto",
        value_parser = ["auto", "xdp", "packet"])]
    backend: String,

    /// Take an interface that is in use; its users are cut off.
    #[arg(long)]
    take_over: bool,

    /// Queues of the device, each with a thread; default: as many as the interface has, or 1 with
    /// --attach and --vhost-user.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    queues: Option<u32>,

    /// CPUs for the threads, such as `1` or `0,2-3`.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpu: Option<Cpus>,

    /// Hardware address of the device; default: the interface's, or with --attach unchanged.
    #[arg(long, value_name = "MAC")]
    mac: Option<Address>,

    /// MTU of the device; default: the interface's, or with --attach unchanged.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: Option<u32>,

    /// Make the device in this network namespace: a name that `ip netns` knows, or a file.
    #[arg(long, value_name = "NAMESPACE")]
    netns: Option<PathBuf>,

    /// Offer the stack no offloads and join nothing, for comparison.
    #[arg(long, conflicts_with_all = ["policy", "max_burst"])]
    no_offload: bool,

    /// Split super-packets inside VXLAN, Geneve and GUE, too; those in other tunnels through UDP may get lost.
    #[arg(long, conflicts_with = "no_offload")]
    tunnels: bool,

    /// What is split and joined, as `tcp=on,udp=off,max_segments=64`.
    #[arg(long, value_name = "LIST", default_value = "")]
    policy: Policy,

    /// Longest super-packet, in bytes of its IP packet.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1500..=65_536))]
    max_burst: Option<u32>,

    #[command(flatten)]
    stats: Stats,

    #[command(flatten)]
    metrics: Metrics,

    /// One JSON object on standard output at the end.
    #[arg(long)]
    json: bool,

    /// No live line, and nothing said at the start.
    #[arg(short, long)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
The device takes the interface's place: it has its address and MTU, and what the interface receives comes \
out of it. Give it addresses, a bridge, a namespace or a virtual machine as you would the interface. A TUN \
device (--tun) has the interface together with the host: it gets what is for its own addresses. \
A virtual machine connects by itself, to --vhost-user with its memory and offloads: \
qemu-system-x86_64 -m 2G -object memory-backend-memfd,id=mem,size=2G,share=on -machine memory-backend=mem \
-chardev socket,id=c0,path=PATH,reconnect=1 -netdev vhost-user,id=net0,chardev=c0 \
-device virtio-net,netdev=net0. To --socket without: \
qemu-system-x86_64 -netdev stream,id=net0,addr.type=unix,addr.path=PATH -device virtio-net,netdev=net0. \
SIGINT or SIGTERM ends the uplink and removes the device that it created; SIGUSR1 prints the counts.

Examples:
  linerate uplink --tap up0 -i eth1
  linerate uplink --tap up0 -i eth1 --netns blue --queues 2 --cpu 2-3
  linerate uplink --tun up0 -i eth1 --netns blue
  linerate uplink --vhost-user /run/vm1.sock -i eth1 --queues 2
  linerate uplink --socket /run/vm1.sock -i eth1
  linerate uplink --tap up0 -i eth1 --no-offload";

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let listener = arguments.metrics.listen()?;
    let signals = Signals::register()?;
    let link = interface::by_name(&arguments.interface)?;
    match &arguments.tun {
        Some(_) => refuse_sharing(&link)?,
        None => refuse_use(&link, arguments.take_over)?,
    }
    let uplink = Uplink::open(&arguments.options()?)?;
    if !arguments.quiet {
        follow::announce(uplink.config());
    }
    follow::warn(&link, uplink.config());
    privilege::drop_all();
    signals.drop_privileges();
    // The threads have what this one has left: nothing.
    let running = uplink.start()?;
    let publisher =
        Publisher::default().metrics(listener, "uplink", arguments.quiet, metrics::encode)?;
    let outcome = follow::follow(running, &signals, arguments, publisher);
    follow::conclude(&outcome, arguments.json)
}

/// Refuses an interface that has addresses or is a part of other devices, unless `--take-over` is given.
fn refuse_use(own: &Link, take_over: bool) -> Result<()> {
    if take_over {
        return Ok(());
    }
    let connection = Connection::open()?;
    let (links, addresses) = (connection.links()?, connection.addresses()?);
    let is_part =
        |other: &&Link| own.master == Some(other.index) || other.lower() == Some(own.index);
    // Every interface that is up has an automatic link-local IPv6 address.
    let is_automatic =
        |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let addresses = addresses.iter().filter(|found| found.index == own.index);
    let addresses = addresses.map(|found| found.address).filter(|address| !is_automatic(address));
    let uses: Vec<_> = (own.is_loopback().then(|| "it is the loopback interface".to_owned()))
        .into_iter()
        .chain(links.iter().filter(is_part).map(|other| format!("it is a part of {}", other.name)))
        .chain(addresses.map(|address| format!("it has the address {address}")))
        .collect();
    if uses.is_empty() {
        return Ok(());
    }
    bail!(
        "the uplink takes the place of {}, and the interface is in use: {}. That will be cut off for as \
         long as the uplink runs; say --take-over if that is meant",
        own.name,
        list(&uses)
    );
}

/// Leaves an interface alone that has no neighbours of its own.
fn refuse_sharing(own: &Link) -> Result<()> {
    let name = &own.name;
    if own.is_loopback() {
        bail!("{name} is the loopback interface: it has no neighbours");
    }
    if let Some(master) = own.master {
        let found = link::by_index(master);
        let found = found.with_context(|| format!("{name} is a port of interface {master}"))?;
        // A bridge may be gone since.
        let Some(Link { name: above, .. }) = found else { return Ok(()) };
        bail!(
            "{name} is a port of {above}, and the neighbours that a TUN device needs are found on \
             {above}: join the device to {above} (-i {above} --backend packet), or take a TAP device and make it a \
             port, too"
        );
    }
    Ok(())
}

impl Arguments {
    fn options(&self) -> Result<Options> {
        let policy = Policy {
            enabled: self.policy.enabled && !self.no_offload,
            max_burst: self.max_burst.unwrap_or(self.policy.max_burst),
            ..self.policy
        };
        let backend = match self.backend.as_str() {
            "auto" => None,
            name => Some(name.parse::<Backend>().map_err(anyhow::Error::msg)?),
        };
        Ok(Options {
            device: match (&self.tun, &self.attach, self.fd, &self.socket, &self.vhost_user) {
                (Some(name), ..) => Device::Tun(name.clone()),
                (_, Some(name), ..) => Device::Existing(name.clone()),
                (_, _, Some(number), ..) => Device::Descriptor(number),
                (_, _, _, Some(path), _) => Device::Socket(path.clone()),
                (.., Some(path)) => Device::VhostUser(path.clone()),
                _ => Device::Tap(self.tap.clone()),
            },
            interface: self.interface.clone(),
            backend,
            queues: self.queues,
            mac: self.mac,
            mtu: self.mtu,
            namespace: self.netns.clone(),
            policy,
            tunnels: self.tunnels,
            cpus: self.cpu.clone().unwrap_or_default().0,
        })
    }
}
