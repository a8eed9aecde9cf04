//! [`Interface`]: what can be asked of and done to an interface in a namespace.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_net::link::{Link, Options, Statistics};
use linerate_net::{Address, ethtool};
use linerate_wire::ethernet;

use crate::namespace::{Handle, has_ipv6};
use crate::{Error, Result};

/// A 48-bit hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("{text:?} is not a hardware address; write it as 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() <= 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl From<Mac> for ethernet::Address {
    fn from(mac: Mac) -> Self {
        Self(mac.0)
    }
}

/// An interface in a namespace.
#[derive(Clone, Debug)]
pub struct Interface {
    namespace: Arc<Handle>,
    name: String,
    index: u32,
    mac: Mac,
}

impl Interface {
    pub(crate) fn find(namespace: Arc<Handle>, name: &str) -> Result<Self> {
        let link = namespace.route.link_by_name(name).map_err(|error| {
            let missing = matches!(error, linerate_net::Error::NoInterface(_));
            Error::Interface {
                interface: name.to_owned(),
                namespace: namespace.name.clone(),
                action: if missing { "find anything" } else { "look it up" }.to_owned(),
                source: error.into(),
            }
        })?;
        let mac = link.address.map_or_else(Mac::default, |address| Mac(address.0));
        Ok(Self { namespace, name: name.to_owned(), index: link.index, mac })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its hardware address when it was looked up; zeros where it has none of 48 bits.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Brings it up.
    ///
    /// # Errors
    /// When the kernel refuses, or it is gone.
    pub fn up(&self) -> Result<()> {
        self.set(&Options { up: Some(true), ..Options::default() }, "bring it up")
    }

    /// Waits until it has a carrier and its queue is started (`net/core/link_watch.c` does both under the
    /// lock that queries take, and in newer kernels a query itself does it).
    pub fn wait_for_carrier(&self, timeout: Duration) -> Result<()> {
        const ACTION: &str = "wait for its carrier";
        let deadline = Instant::now() + timeout;
        loop {
            let link = self.ask(ACTION)?;
            if link.operational {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.failed(ACTION.to_owned(), io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes it down.
    ///
    /// # Errors
    /// As [`Interface::up`].
    pub fn down(&self) -> Result<()> {
        self.set(&Options { up: Some(false), ..Options::default() }, "take it down")
    }

    /// Receives frames for other stations too, or no longer.
    ///
    /// # Errors
    /// As [`Interface::up`].
    pub fn set_promiscuous(&self, on: bool) -> Result<()> {
        let options = Options { promisc: Some(on), ..Options::default() };
        self.set(&options, "change promiscuous mode")
    }

    /// Sets the largest packet, in bytes of the network layer.
    ///
    /// # Errors
    /// When the driver, or an XDP program on it, does not take it.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        self.set(&Options { mtu: Some(mtu), ..Options::default() }, "set the MTU")
    }

    /// Sets the hardware address; this value goes on to show the one it was looked up with.
    ///
    /// # Errors
    /// When the driver does not take it.
    pub fn set_mac(&self, mac: Mac) -> Result<()> {
        let options = Options { address: Some(mac.into()), ..Options::default() };
        self.set(&options, "set the hardware address")
    }

    /// Gives it an address with a prefix length in bits. An IPv6 address is usable at once:
    /// duplicate address detection is skipped.
    ///
    /// # Errors
    /// When it has the address already, or the prefix is too long for the family.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> Result<()> {
        if address.is_ipv6() && has_ipv6() {
            let key = format!("net/ipv6/conf/{}/disable_ipv6", self.name);
            self.namespace.sysctl(&key, "0")?;
        }
        let new = Address { index: self.index, address, prefix_len: prefix };
        self.namespace.route.add_address(&new).map_err(|error| {
            self.failed(format!("add the address {address}/{prefix}"), error.into())
        })
    }

    /// Sets a permanent neighbour entry for `address` on this interface, so that the kernel does not
    /// ask (a sink that drops everything also drops ARP and neighbour discovery).
    ///
    /// # Errors
    /// When the interface is down.
    pub fn add_neighbour(&self, address: IpAddr, mac: Mac) -> Result<()> {
        self.namespace
            .route
            .set_neighbour(self.index, address, mac.into())
            .map_err(|error| self.failed(format!("set the neighbour {address}"), error.into()))
    }

    /// Turns generic receive offload on or off. On a veth, it also turns on the NAPI that XDP's
    /// live frames need at the receiving end.
    ///
    /// # Errors
    /// When the driver does not allow it.
    pub fn set_gro(&self, on: bool) -> Result<()> {
        self.set_features(&[("rx-gro", on)])
    }

    /// Turns every offload that changes frames on or off: checksums left to the hardware, and
    /// segmentation and coalescing. With them off, what is captured is what a wire would carry.
    ///
    /// # Errors
    /// When the driver does not allow it.
    pub fn set_offloads(&self, on: bool) -> Result<()> {
        self.set_features(&[
            ("tx-checksum-ip-generic", on),
            ("tx-checksum-ipv4", on),
            ("tx-checksum-ipv6", on),
            ("tx-checksum-sctp", on),
            ("tx-generic-segmentation", on),
            ("tx-gso-partial", on),
            ("tx-scatter-gather", on),
            ("tx-scatter-gather-fraglist", on),
            ("tx-sctp-segmentation", on),
            ("tx-tcp-segmentation", on),
            ("tx-tcp-accecn-segmentation", on),
            ("tx-tcp-ecn-segmentation", on),
            ("tx-tcp-mangleid-segmentation", on),
            ("tx-tcp6-segmentation", on),
            ("tx-udp-segmentation", on),
            ("rx-gro", on),
            ("rx-gro-list", false),
            ("rx-udp-gro-forwarding", false),
        ])
    }

    /// Sets features by the kernel's names (`ethtool -k` shows most of them). A feature that this
    /// kernel or driver fixes, and that is not as wanted, is left as it is.
    ///
    /// # Errors
    /// When the kernel has no ethtool netlink, or refuses the request as a whole.
    pub fn set_features(&self, features: &[(&str, bool)]) -> Result<()> {
        self.namespace
            .run(|| ethtool::set_features(self.index, features))?
            .map_err(|error| self.failed("set offloads".to_owned(), error.into()))
    }

    /// Reads the statistics.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(self.ask("read the statistics")?.statistics)
    }

    /// Whether an XDP program is attached, by any process.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn has_xdp(&self) -> Result<bool> {
        Ok(self.ask("look for an XDP program")?.xdp.is_some())
    }

    /// Removes it (and, for a veth, its other end).
    ///
    /// # Errors
    /// When it is gone already.
    pub fn delete(self) -> Result<()> {
        self.namespace
            .route
            .delete_link(self.index)
            .map_err(|error| self.failed("delete it".to_owned(), error.into()))
    }

    fn ask(&self, action: &str) -> Result<Link> {
        let failed = |source| self.failed(action.to_owned(), source);
        let found = self.namespace.route.link_by_index(self.index);
        let gone =
            || failed(io::Error::from(linerate_net::Error::InterfaceGone(self.name.clone())));
        found.map_err(|error| failed(error.into()))?.ok_or_else(gone)
    }

    fn set(&self, options: &Options, action: &str) -> Result<()> {
        self.namespace
            .route
            .set_link(self.index, options)
            .map_err(|error| self.failed(action.to_owned(), error.into()))
    }

    fn failed(&self, action: String, source: io::Error) -> Error {
        Error::Interface {
            interface: self.name.clone(),
            namespace: self.namespace.name.clone(),
            action,
            source,
        }
    }
}
