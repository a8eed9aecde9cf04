//! [`Ruleset`]: what the packet filters of the namespace look at, as far as a program that forwards past them must know:
//! rules that hand packets to a program (NFQUEUE) or copy them (TEE, dup), and rules that look at the source MAC address.
//!
//! Which packets a rule sees is not evaluated: a rule counts for every packet of its family that is forwarded. Rules of
//! chains for packets from and to this host alone do not count, nor do those of devices ([`DeviceChain`]).

mod device_chain;
mod evaluate;
mod extension;
mod local_filter;
mod nftables;
mod sessions;
mod xtables;

use std::io;

pub use device_chain::DeviceChain;
pub use evaluate::{Action, Entry, Kind, Options, Program, Seen, Tracking};
pub use local_filter::local_filter;
pub use sessions::{Field, Range, Sessions};

/// Address families, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// Packets of IPv4.
    pub ipv4: bool,
    /// Packets of IPv6.
    pub ipv6: bool,
}

impl Families {
    const IPV4: Self = Self { ipv4: true, ipv6: false };
    const IPV6: Self = Self { ipv4: false, ipv6: true };
    const BOTH: Self = Self { ipv4: true, ipv6: true };

    fn add(&mut self, other: Self) {
        self.ipv4 |= other.ipv4;
        self.ipv6 |= other.ipv6;
    }
}

/// What rules for forwarded packets look at or do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// A rule hands packets to a program in user space, or copies them.
    pub queue: Families,
    /// A rule looks at the source MAC address.
    pub source_mac: Families,
    /// A rule looks at routes: the interface of the way back (nft `fib`, x_tables `rpfilter`), next hop or realm.
    pub route: Families,
}

impl Ruleset {
    /// Reads the rules of nftables (iptables-nft makes such) and of the old x_tables, of the namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// When the kernel does not tell: it takes CAP_NET_ADMIN. That it has no such packet filter is none.
    pub fn load() -> io::Result<Self> {
        let mut ruleset = Self::default();
        nftables::read(&mut ruleset)?;
        xtables::read(&mut ruleset)?;
        Ok(ruleset)
    }
}
