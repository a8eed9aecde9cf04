//! [`Veth`]: a veth pair between two namespaces.

use std::os::fd::AsFd;
use std::time::Duration;

use linerate_net::link::VethEnd;

use crate::{Error, Interface, Mac, Namespace, Result};

/// Two Ethernet interfaces: what one sends, the other receives. Both go when one of them, or its
/// namespace, goes.
#[derive(Debug)]
pub struct Veth {
    /// The end in the first namespace.
    pub a: Interface,
    /// The end in the second namespace.
    pub b: Interface,
}

/// Much longer than the kernel takes to notice a carrier, also when it is busy.
const CARRIER: Duration = Duration::from_secs(20);

/// How a [`Veth`] is made.
#[derive(Clone, Debug)]
pub struct VethOptions {
    /// Receive and transmit queues of each end, at least 1 (the default). XDP needs the receive
    /// queues of one end to be at least the transmit queues of the other; equal numbers always do.
    pub queues: u32,
    /// Largest network-layer packet in bytes; 1500 by default.
    pub mtu: u32,
    /// Whether both ends come up at once, which is the default.
    pub up: bool,
    /// Hardware addresses of the two ends; the kernel chooses random ones where this is `None`.
    pub macs: Option<[Mac; 2]>,
}

impl Default for VethOptions {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, up: true, macs: None }
    }
}

impl Veth {
    /// Creates a veth pair: interface `name_a` in namespace `a`, `name_b` in namespace `b` (which may be
    /// the same).
    ///
    /// # Errors
    /// When a name is taken or invalid, or the kernel has no veth.
    pub fn create(
        a: &Namespace,
        name_a: &str,
        b: &Namespace,
        name_b: &str,
        options: VethOptions,
    ) -> Result<Self> {
        for name in [name_a, name_b] {
            check_name(name)?;
        }
        let macs = options.macs.map_or([None; 2], |[a, b]| [Some(a), Some(b)]);
        let (near, peer) = (end(name_a, macs[0], &options), end(name_b, macs[1], &options));
        let peer_netns = b.handle().file().as_fd();
        a.handle().route.add_veth(&near, &peer, peer_netns).map_err(|error| Error::Interface {
            interface: name_a.to_owned(),
            namespace: a.name().to_owned(),
            action: format!("create a veth pair to {name_b} in {}", b.name()),
            source: error.into(),
        })?;
        let pair = Self { a: a.interface(name_a)?, b: b.interface(name_b)? };
        if options.up {
            pair.up()?;
        }
        Ok(pair)
    }

    /// Brings both ends up, and waits until both send. The end that comes up first has no carrier yet: the
    /// kernel starts its queue from a work item, up to a second later, and silently drops what is sent before.
    ///
    /// # Errors
    /// When the kernel refuses, or one of them has no carrier after 20 seconds.
    pub fn up(&self) -> Result<()> {
        self.a.up()?;
        self.b.up()?;
        self.a.wait_for_carrier(CARRIER)?;
        self.b.wait_for_carrier(CARRIER)
    }

    /// Unplugs and removes the veth pair before its namespaces go.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn delete(self) -> Result<()> {
        self.a.delete()
    }
}

/// The kernel's `dev_valid_name` (net/core/dev.c).
fn check_name(name: &str) -> Result<()> {
    let fits = (1..=15).contains(&name.len()) && name != "." && name != "..";
    let plain = !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0');
    if fits && plain { Ok(()) } else { Err(Error::InterfaceName { name: name.to_owned() }) }
}

fn end<'a>(name: &'a str, mac: Option<Mac>, options: &VethOptions) -> VethEnd<'a> {
    VethEnd { name, address: mac.map(Into::into), mtu: options.mtu, queues: options.queues }
}
