//! [`OutputInterface`]: properties of the interface that traffic is sent to.

use linerate_net::route::{ConfiguredRoutes, through};
use linerate_net::{NoInterface, link};
use linerate_wire::{ethernet, vlan};

use crate::{Error, Result};

/// A network interface in the namespace of the thread that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputInterface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address; zero where it has none.
    pub mac: ethernet::Address,
    /// The largest network-layer packet in bytes.
    pub mtu: u32,
    /// Whether its frames have an Ethernet header; those of TUN, WireGuard and PPP begin with the IP header.
    pub has_ethernet: bool,
    /// Whether it is up.
    pub up: bool,
    /// Hardware address of the other end of a veth pair, where that is in the same namespace.
    pub peer_mac: Option<ethernet::Address>,
    /// Whether a default route goes out of it, so that flooding it would cut this host off.
    pub carries_default_route: bool,
}

impl OutputInterface {
    /// Finds an interface by its name.
    ///
    /// # Errors
    /// [`Error::NoInterface`], which lists those that exist; [`Error::Net`].
    pub fn find(name: &str) -> Result<Self> {
        let links = link::all()?;
        let Some(link) = links.iter().find(|link| link.name == name) else {
            let known = links.into_iter().map(|link| link.name).collect();
            return Err(Error::NoInterface(NoInterface { name: name.to_owned(), known }));
        };
        Ok(Self {
            name: link.name.clone(),
            index: link.index,
            mac: link.address.unwrap_or_default(),
            mtu: link.mtu,
            has_ethernet: link.is_ethernet() || link.is_loopback(),
            up: link.is_up(),
            peer_mac: link.veth_peer(&links).map(|peer| peer.address.unwrap_or_default()),
            carries_default_route: through(link.index)? == ConfiguredRoutes::Default,
        })
    }

    /// Refuses an interface that is down, or that carries a default route where that is not allowed.
    pub(crate) fn check(&self, allow_default_route: bool) -> Result<()> {
        let refuse = |reason: String| Err(Error::Interface { name: self.name.clone(), reason });
        if !self.up {
            return refuse(format!("is down; `ip link set dev {} up` brings it up", self.name));
        }
        if self.carries_default_route && !allow_default_route {
            return refuse(
                "carries a default route: a flood would cut this host off from its network; \
                 --allow-default-route allows it"
                    .into(),
            );
        }
        Ok(())
    }

    /// Bytes of the longest frame, with a VLAN tag or without.
    pub(crate) fn longest_frame(&self, tagged: bool) -> usize {
        let tag = if tagged { vlan::TAG_LEN } else { 0 };
        self.mtu as usize + ethernet::HEADER_LEN + tag
    }

    /// The name that goes with an index, or the index where it is gone.
    pub(crate) fn name_of(index: u32) -> String {
        let found = link::by_index(index).ok().flatten();
        found.map_or_else(|| format!("number {index}"), |link| link.name)
    }

    /// Frames that an interface dropped instead of sending them, since it was made; 0 where it is gone.
    pub(crate) fn transmit_dropped(index: u32) -> u64 {
        let found = link::by_index(index).ok().flatten();
        found.map_or(0, |link| link.statistics.tx_dropped)
    }
}
