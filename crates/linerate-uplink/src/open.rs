//! [`Uplink`]: everything that needs privileges, opened and not yet running.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linerate_bpf::addresses::Addresses;
use linerate_bpf::ingress_drop::{DropScope, IngressDrop};
use linerate_bpf::steer;
use linerate_bpf::xdp::require_free;
use linerate_net::link::{self, Link};
use linerate_net::text::plural;
use linerate_net::{Connection, cpu};
use linerate_ring::packet::{Fanout, Mode, Promiscuous, Sender};
use linerate_ring::tun::{Device, Kind, Offloads, dup_inherited_fd};
use linerate_ring::xdp;
use linerate_segment::Policy;
use rustix::net::{SocketType, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::device::{DeviceQueue, Stream};
use crate::listener::Listener;
use crate::neighbour::{DestinationCache, DeviceAddresses, Resolver};
use crate::options::{self, Backend, Options};
use crate::port::{PacketPort, XdpPort, chunk};
use crate::vhost_user::VhostUser;
use crate::{Error, Result};

/// Where iproute2 keeps the names of namespaces (`ip-netns(8)`).
const NAMESPACES: &str = "/run/netns";

/// The longest super-packet that a device has by default (`GSO_LEGACY_MAX_SIZE`).
const LONGEST: u32 = 65_536;

/// What was opened, and why.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Config {
    /// The interface.
    pub interface: String,
    /// The device.
    pub device: String,
    /// `tap`, `tun`, `socket` or `vhost-user`.
    pub kind: &'static str,
    /// The namespace that it was made in, where one was named.
    pub namespace: Option<String>,
    /// `xdp` or `packet`.
    pub backend: String,
    /// Why that one.
    pub reason: String,
    /// Where the XDP program runs: `native` or `generic`.
    pub attached: Option<String>,
    /// Driver and process share the frames' memory.
    pub zero_copy: bool,
    /// What else there is to know, a clause each.
    pub notes: Vec<String>,
    /// What the device leaves to the uplink.
    pub offloads: String,
    /// Queues of the device, and threads.
    pub queues: u32,
    /// The device's hardware address.
    pub mac: String,
    /// The device's MTU in bytes.
    pub mtu: u32,
}

/// A device and the rings of an interface, joined as soon as it is started. The device is up.
///
/// Its drop removes everything: the device ends with its last descriptor, the XDP program with its link.
pub struct Uplink {
    // Dropped first: detached before the sockets close.
    pub(crate) programs: Programs,
    pub(crate) ports: Ports,
    pub(crate) taps: Vec<DeviceQueue>,
    pub(crate) vhost_user: Option<Listener>,
    pub(crate) offloads: Offloads,
    pub(crate) promiscuous: Option<Promiscuous>,
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) interface: (Connection, Link),
    pub(crate) tap: Option<(Connection, Link)>,
    pub(crate) namespace: Option<NamedNamespace>,
    pub(crate) config: Config,
    pub(crate) options: Options,
    /// Has the kernel split what the uplink cannot split.
    pub(crate) kernel: Arc<Sender>,
}

/// What keeps the interface's frames from the host's stack: one of the two.
#[derive(Default)]
pub(crate) struct Programs {
    pub(crate) steer: Option<steer::Program>,
    pub(crate) ingress_drop: Option<IngressDrop>,
}

impl Programs {
    /// The maps by which they know a TUN device's frames.
    fn addresses(&self) -> Result<Vec<Addresses>> {
        let of_steer = self.steer.iter().map(steer::Program::addresses);
        let of_drop = self.ingress_drop.iter().map(IngressDrop::addresses);
        Ok(of_steer.chain(of_drop).collect::<linerate_bpf::Result<_>>()?)
    }
}

/// What a TUN device lacks: everything below IP.
pub(crate) struct Neighbours {
    pub(crate) cache: Arc<DestinationCache>,
    _resolver: Resolver,
}

/// The rings of each thread.
pub(crate) enum Ports {
    Xdp(Vec<XdpPort>),
    Packet(Vec<PacketPort>),
}

/// Rings that were opened, with what there is to say of them.
struct Opened {
    ports: Ports,
    programs: Programs,
    promiscuous: Option<Promiscuous>,
    notes: Vec<String>,
}

impl Uplink {
    /// Opens everything. When it returns, the interface's frames go to the uplink.
    ///
    /// # Errors
    /// [`Error::Ring`] for the interface, its rings and the device; [`Error::Invalid`] for numbers that
    /// do not go together; [`Error::Namespace`], [`Error::Cpu`], [`Error::Link`].
    pub fn open(options: &Options) -> Result<Self> {
        cpu::check_affinity(&options.cpus).map_err(|(cpu, source)| Error::Cpu { cpu, source })?;
        let connection = Connection::open()?;
        let name = options.interface.as_str();
        let link = connection.link_by_name(name)?;
        let probe = xdp::probe(name);
        let made = options.device.is_created();
        let queues = options.queues.unwrap_or(if made { probe.queues } else { 1 }).max(1);
        if queues > 1 && options.device.has_one_queue() {
            return Err(Error::Invalid(format!("{} has one queue", options.device.name())));
        }
        let mtu = options.mtu.unwrap_or(link.mtu);
        if mtu > link.mtu {
            return Err(Error::Invalid(format!(
                "an MTU of {mtu} bytes for {} is more than {name} has ({}); `ip link set {name} mtu \
                 {mtu}` makes room",
                options.device.name(),
                link.mtu
            )));
        }
        let tun = options.device.is_tun();
        let mac = options.mac.filter(|_| !tun).or(link.address).ok_or_else(|| {
            Error::Invalid(format!("interface {name} has no Ethernet address; an uplink needs one"))
        })?;
        let (backend, reason, mut opened) = choose(options, &probe, queues, link.mtu)?;
        let kernel = Sender::open(name)?;
        kernel.set_nonblocking()?;
        let policy = options.policy;
        let link_options = link::Options {
            up: made.then_some(true),
            address: if made { (!tun).then_some(mac) } else { options.mac },
            mtu: if made { Some(mtu) } else { options.mtu },
            gso_max_size: (policy.max_burst < LONGEST).then_some(policy.max_burst),
            gso_max_segs: (policy.max_segments < LONGEST).then_some(policy.max_segments),
            ..link::Options::default()
        };
        let (namespace, made) = make(options, queues, &link_options)?;
        let OpenDevice { name: device, queues: taps, vhost_user, offloads, link: tap, addresses } =
            made;
        // Before the programs are attached: by then they know the device's addresses.
        let neighbours = match addresses {
            Some(addresses) => {
                let cache = Arc::new(DestinationCache::new(mac)?);
                let maps = opened.programs.addresses()?;
                let resolver = Resolver::start(link.index, addresses, maps, &cache)?;
                Some(Neighbours { cache, _resolver: resolver })
            }
            None => None,
        };
        let mut attach = None;
        if let Some(steer) = &mut opened.programs.steer {
            attach = Some(steer.attach()?);
            opened.notes.extend(steer.generic_reason().map(str::to_owned));
        }
        let config = Config {
            interface: name.to_owned(),
            device,
            kind: match taps[0] {
                DeviceQueue::Kernel(_) if tun => "tun",
                DeviceQueue::Kernel(_) => "tap",
                DeviceQueue::Stream(_) => "socket",
                DeviceQueue::VhostUser(_) => "vhost-user",
            },
            namespace: options.namespace.as_ref().map(|path| path.display().to_string()),
            backend: backend.to_string(),
            reason,
            attached: attach.map(|attach| attach.to_string()),
            zero_copy: matches!(&opened.ports, Ports::Xdp(ports) if ports[0].mode().zero_copy),
            notes: opened.notes,
            offloads: offloads.to_string(),
            queues,
            mac: tap.as_ref().and_then(|(_, link)| link.address).unwrap_or(mac).to_string(),
            mtu: tap.as_ref().map_or(mtu, |(_, link)| link.mtu),
        };
        Ok(Self {
            programs: opened.programs,
            ports: opened.ports,
            offloads,
            taps,
            vhost_user,
            promiscuous: opened.promiscuous,
            neighbours,
            interface: (connection, link),
            tap,
            namespace,
            config,
            options: options.clone(),
            kernel: Arc::new(kernel),
        })
    }

    /// What was opened.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// What the device offers the stack.
fn offloads(policy: Policy, tunnels: bool) -> Offloads {
    if !policy.enabled {
        return Offloads::NONE;
    }
    let mut offloads = Offloads::CHECKSUM;
    if policy.tcp {
        offloads = offloads.union(Offloads::TSO4).union(Offloads::TSO6).union(Offloads::ECN);
    }
    if policy.udp {
        offloads = offloads.union(Offloads::USO);
    }
    if tunnels && policy.tcp {
        offloads = offloads.union(Offloads::UDP_TUNNEL);
    }
    offloads
}

/// Opens the requested backend, or the best one that opens.
fn choose(
    options: &Options,
    probe: &xdp::Probe,
    queues: u32,
    mtu: u32,
) -> Result<(Backend, String, Opened)> {
    let name = options.interface.as_str();
    let tun = options.device.is_tun();
    let asked = || "asked for".to_owned();
    match require_free(name) {
        // Packet sockets receive what another program passes on, which those of Linerate do not, but for the tee's.
        Err(linerate_bpf::Error::ForeignProgram { ours, tee, .. })
            if options.backend == Some(Backend::Packet) && (tee || !ours) => {}
        other => other?,
    }
    match options.backend {
        Some(Backend::Xdp) => {
            Ok((Backend::Xdp, asked(), in_xdp(name, queues, probe.queues, mtu, tun)?))
        }
        Some(Backend::Packet) => Ok((Backend::Packet, asked(), in_packets(name, queues, tun)?)),
        None => {
            let why = match probe.why_not_native() {
                Some(why) => why,
                None => match in_xdp(name, queues, probe.queues, mtu, tun) {
                    Ok(opened) => {
                        let why = "the driver has XDP, and segments go straight into its frames";
                        return Ok((Backend::Xdp, why.to_owned(), opened));
                    }
                    Err(error) => format!("AF_XDP does not open: {error}"),
                },
            };
            Ok((Backend::Packet, why, in_packets(name, queues, tun)?))
        }
    }
}

fn in_xdp(name: &str, threads: u32, queues: u32, mtu: u32, tun: bool) -> Result<Opened> {
    if threads > queues {
        return Err(Error::Invalid(format!(
            "{name} has {}, which is too few for {}; `ethtool -L {name} \
             combined {threads}` makes more where the driver can, or give --queues {queues}",
            plural(queues.into(), "queue"),
            plural(threads.into(), "thread")
        )));
    }
    let chunk = chunk(mtu).ok_or_else(|| {
        Error::Invalid(format!(
            "the MTU of {name}, {mtu} bytes, is too large for AF_XDP, whose chunks end at 4096 bytes: take \
             --backend packet, or an MTU of 3818 or less"
        ))
    })?;
    let steer = steer::Program::load(
        name,
        &steer::Options {
            timestamps: steer::TimestampSource::None,
            by_address: tun,
            ..steer::Options::default()
        },
    )?;
    let mut ports = Vec::new();
    for thread in 0..threads {
        let own: Vec<u32> = (thread..queues).step_by(threads as usize).collect();
        ports.push(XdpPort::open(name, &own, chunk, &steer)?);
    }
    let notes = ports[0].mode().why.clone();
    // A NIC delivers what is for its own address; the stack behind the device expects multicast and,
    // with another address, everything else.
    let promiscuous = Promiscuous::enable(name)?;
    Ok(Opened {
        ports: Ports::Xdp(ports),
        programs: Programs { steer: Some(steer), ingress_drop: None },
        promiscuous: Some(promiscuous),
        notes,
    })
}

fn in_packets(name: &str, threads: u32, tun: bool) -> Result<Opened> {
    let mut ports: Vec<PacketPort> = Vec::new();
    for _ in 0..threads {
        let fanout = (threads > 1).then(|| {
            let fanout = Fanout::new(Mode::Hash);
            match ports.first().and_then(PacketPort::group) {
                Some(group) => fanout.group(group),
                None => fanout,
            }
        });
        ports.push(PacketPort::open(name, fanout)?);
    }
    let mut opened = Opened {
        ports: Ports::Packet(ports),
        programs: Programs::default(),
        promiscuous: None,
        notes: Vec::new(),
    };
    let dropped = if tun { DropScope::ByAddress } else { DropScope::All };
    match IngressDrop::attach(name, dropped) {
        Ok(drop) => opened.programs.ingress_drop = Some(drop),
        Err(error) => opened.notes.push(format!(
            "the host's own stack hears what {name} receives, too, for {error}: give the device to another \
             namespace or to a bridge, and leave {name} without addresses, or the host answers as well"
        )),
    }
    Ok(opened)
}

/// A device: its link if it is known and, for a TUN device, addresses of its addresses.
struct OpenDevice {
    name: String,
    queues: Vec<DeviceQueue>,
    /// Where virtual machines connect with vhost-user.
    vhost_user: Option<Listener>,
    offloads: Offloads,
    link: Option<(Connection, Link)>,
    addresses: Option<DeviceAddresses>,
}

impl OpenDevice {
    fn of_kernel(device: Device, link: Option<(Connection, Link)>) -> Self {
        Self {
            name: device.name().to_owned(),
            offloads: device.offloads(),
            queues: device.into_queues().into_iter().map(DeviceQueue::Kernel).collect(),
            vhost_user: None,
            link,
            addresses: None,
        }
    }

    fn of_stream(name: String, stream: Stream) -> Self {
        let queues = vec![DeviceQueue::Stream(stream)];
        Self {
            name,
            queues,
            vhost_user: None,
            offloads: Offloads::NONE,
            link: None,
            addresses: None,
        }
    }
}

/// Creates the device, in its namespace, and brings it up; or opens one that is there.
fn make(
    options: &Options,
    queues: u32,
    link_options: &link::Options,
) -> Result<(Option<NamedNamespace>, OpenDevice)> {
    let make = || open_device(options, queues, link_options);
    let Some(namespace) = &options.namespace else { return Ok((None, make()?)) };
    // A device, and a socket, belong to the namespace of the thread that opens them.
    let inside = || Ok((Some(NamedNamespace::enter(namespace)?), make()?));
    std::thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|_| Err(Error::Thread("that makes the device panicked".to_owned())))
}

fn open_device(options: &Options, queues: u32, link_options: &link::Options) -> Result<OpenDevice> {
    let name = options.device.name();
    let socket = |source| Error::Link { action: format!("use the socket {name}"), source };
    let is_tun = options.device.is_tun();
    let builder = Device::builder(name.as_str())
        .kind(if is_tun { Kind::Tun } else { Kind::Tap })
        .queues(queues)
        .offloads(offloads(options.policy, options.tunnels));
    let device = match &options.device {
        options::Device::Tap(_) | options::Device::Tun(_) => builder.build()?,
        options::Device::Existing(_) => builder.attach()?,
        options::Device::Socket(path) => {
            let stream = Stream::listen(path).map_err(socket)?;
            return Ok(OpenDevice::of_stream(name, stream));
        }
        options::Device::VhostUser(path) => {
            let offloads = offloads(options.policy, false);
            let device = VhostUser::new(name.clone(), queues, offloads).map_err(socket)?;
            let vhost_user = Some(Listener::open(path).map_err(socket)?);
            let queues = device.queues().map(DeviceQueue::VhostUser).collect();
            return Ok(OpenDevice {
                name,
                queues,
                vhost_user,
                offloads,
                link: None,
                addresses: None,
            });
        }
        options::Device::Descriptor(number) => {
            let descriptor = dup_inherited_fd(*number)?;
            return match sockopt::socket_type(&descriptor) {
                Ok(SocketType::STREAM) => {
                    let stream = Stream::from_fd(name.clone(), descriptor).map_err(socket)?;
                    Ok(OpenDevice::of_stream(name, stream))
                }
                Ok(_) => Err(Error::Invalid(format!("{name} is no stream socket"))),
                // Its link may be in another namespace.
                Err(_) => Ok(OpenDevice::of_kernel(builder.from_fd(descriptor)?, None)),
            };
        }
    };
    let connection = Connection::open()?;
    let index = connection.link_by_name(device.name())?.index;
    // It listens before the device is up, and with that gets its first addresses.
    let addresses = if is_tun { Some(DeviceAddresses::open(index)?) } else { None };
    connection
        .set_link(index, link_options)
        .map_err(|error| refused(device.name(), link_options, error))?;
    let link = connection.link_by_name(device.name())?;
    Ok(OpenDevice { addresses, ..OpenDevice::of_kernel(device, Some((connection, link))) })
}

/// Adds what the device was to be given.
fn refused(device: &str, link_options: &link::Options, error: linerate_net::Error) -> Error {
    match error {
        linerate_net::Error::System { source, .. } => {
            let link::Options { address, mtu, gso_max_size, gso_max_segs, up, .. } = link_options;
            let given: Vec<_> = [
                address.map(|address| format!("the address {address}")),
                mtu.map(|mtu| format!("an MTU of {mtu} bytes")),
                gso_max_size.map(|size| format!("super-packets of {size} bytes")),
                gso_max_segs.map(|segments| format!("super-packets of {segments} segments")),
            ]
            .into_iter()
            .flatten()
            .collect();
            let given = (!given.is_empty()).then(|| format!("give {device} {}", given.join(", ")));
            let up = (*up == Some(true)).then(|| format!("bring {device} up"));
            let parts: Vec<_> = [given, up].into_iter().flatten().collect();
            let action =
                if parts.is_empty() { format!("set up {device}") } else { parts.join(" and ") };
            Error::Link { action, source }
        }
        other => other.into(),
    }
}

/// A network namespace by the file that names it. The uplink's own sockets keep the namespace alive when its name is
/// deleted, and with it the device; that nobody can reach it any more shows in the file.
pub(crate) struct NamedNamespace {
    file: PathBuf,
    /// Device and inode of the namespace.
    identity: (u64, u64),
}

impl NamedNamespace {
    fn enter(namespace: &Path) -> Result<Self> {
        let path: PathBuf = match namespace.components().count() {
            1 => Path::new(NAMESPACES).join(namespace),
            _ => namespace.to_owned(),
        };
        let failed = |source| Error::Namespace { name: namespace.display().to_string(), source };
        let file = File::open(&path).map_err(failed)?;
        let identity = identity(&file.metadata().map_err(failed)?);
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| failed(errno.into()))?;
        Ok(Self { file: path, identity })
    }

    /// Whether the file is gone, or names another namespace.
    pub(crate) fn is_gone(&self) -> bool {
        match std::fs::metadata(&self.file) {
            Ok(metadata) => identity(&metadata) != self.identity,
            // Without privileges the file of another process cannot be read.
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use linerate_wire::ethernet::Address;

    use super::*;

    #[test]
    fn an_error_has_what_the_device_was_to_be_given_and_nothing_else() {
        let text = |options: link::Options| {
            let source = ErrorKind::PermissionDenied.into();
            let error = linerate_net::Error::System { action: String::new(), source };
            refused("tap0", &options, error).to_string()
        };
        let attached = link::Options { gso_max_size: Some(9000), ..link::Options::default() };
        let error = text(attached);
        assert!(error.contains("give tap0 super-packets of 9000 bytes: "), "{error}");
        let created = link::Options {
            up: Some(true),
            address: Some(Address([2, 0, 0, 0, 0, 1])),
            mtu: Some(1400),
            ..link::Options::default()
        };
        let error = text(created);
        let wanted =
            "give tap0 the address 02:00:00:00:00:01, an MTU of 1400 bytes and bring tap0 up: ";
        assert!(error.contains(wanted), "{error}");
    }
}
