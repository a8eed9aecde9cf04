//! [`Options`]: what is asked for.

use std::path::PathBuf;

use linerate_segment::Policy;
use linerate_wire::ethernet::Address;

/// How frames of the interface are received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// AF_XDP sockets: frames are written into the UMEM, and do not reach the host's stack.
    Xdp,
    /// AF_PACKET rings: every interface has them; the host's stack sees the frames too.
    Packet,
}

linerate_net::named!(Backend, "backend" or "auto": Xdp = "xdp", Packet = "packet");

/// The device to make or to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A TAP device to make, which takes the interface's place: all its frames are the device's. In its name `%d` stands
    /// for the first free number.
    Tap(String),
    /// A TUN device to make beside the host, which keeps the interface: packets for the device's addresses are the
    /// device's, and the host's routes and neighbours through the interface are used.
    Tun(String),
    /// A TAP device or macvtap that exists, and stays.
    Existing(String),
    /// An open descriptor of this process: of a TAP device or macvtap, or a stream socket as below.
    Descriptor(i32),
    /// A socket to listen at for a program that sends and takes frames with their lengths before them: QEMU
    /// (`-netdev stream`), or one that has passt's protocol.
    Socket(PathBuf),
    /// A socket to listen at for a virtual machine with vhost-user.
    VhostUser(PathBuf),
}

impl Device {
    /// Its name, as asked for.
    pub fn name(&self) -> String {
        match self {
            Self::Tap(name) | Self::Tun(name) | Self::Existing(name) => name.clone(),
            Self::Descriptor(number) => format!("descriptor {number}"),
            Self::Socket(path) | Self::VhostUser(path) => path.display().to_string(),
        }
    }

    /// Whether it is a TUN device.
    pub fn is_tun(&self) -> bool {
        matches!(self, Self::Tun(_))
    }

    /// Whether it is made, and not there already.
    pub(crate) fn is_created(&self) -> bool {
        matches!(self, Self::Tap(_) | Self::Tun(_))
    }

    /// Whether it has one queue.
    pub(crate) fn has_one_queue(&self) -> bool {
        matches!(self, Self::Descriptor(_) | Self::Socket(_))
    }
}

/// What to join, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device.
    pub device: Device,
    /// The interface that it is joined to.
    pub interface: String,
    /// The backend; `None`: the best one that opens.
    pub backend: Option<Backend>,
    /// Queues of the device, each with a thread; `None`: as many as the interface has receive queues,
    /// or one of a device that is not made.
    pub queues: Option<u32>,
    /// Hardware address of the device; `None`, and always for a TUN device: the interface's, or that of
    /// a device that exists.
    pub mac: Option<Address>,
    /// MTU of the device in bytes; `None`: the interface's, or that of a device that exists.
    pub mtu: Option<u32>,
    /// Network namespace for the device, a name that `ip netns` knows or a file; `None`: the caller's.
    pub namespace: Option<PathBuf>,
    /// What is split and joined, and up to which size.
    pub policy: Policy,
    /// Super-packets inside VXLAN and Geneve are split by the uplink, too. The kernel does not offer these
    /// alone: those in other tunnels through UDP (FOU, GUE, VXLAN-GPE) are then lost and counted.
    pub tunnels: bool,
    /// CPUs for the threads, in turn; the scheduler's choice where there are none.
    pub cpus: Vec<usize>,
}
