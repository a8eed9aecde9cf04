//! [`Ruleset`]: which sessions the packet filters of the namespace would not treat alike packet by packet, and why: the
//! rules of nftables and x_tables that a forwarded packet of an established connection meets are evaluated.
//!
//! Each match is false, true, constant for a session (interfaces, addresses, ports, protocol, DSCP, mark, and what the
//! connection has), or varying. All that is not known to be constant varies. A rule keeps the sessions of its constant
//! part with the kernel if it varies, or if it acts on each packet: a limit, a log, a set that it adds to. Rules behind a
//! certain verdict do not count, nor chains of type nat, which see the first packet of a connection, nor chains for
//! packets from and to this host alone. Chains of devices are another matter ([`DeviceChain`]).

mod connection_mark;
mod device_chain;
mod evaluate;
mod extension;
mod local_filter;
mod nft_message;
mod nft_rule;
mod nft_set;
mod nftables;
mod register;
mod sessions;
mod xt_rule;
mod xtables;

use std::collections::BTreeSet;
use std::io;

use crate::{link, netlink};
use connection_mark::ConnectionMarks;
use evaluate::{Scope, Writes};
use nftables::Nftables;
use xt_rule::Xtables;

pub use device_chain::DeviceChain;
pub use evaluate::{Action, Entry, Kind, Options, Program, Seen, Tracking};
pub use local_filter::local_filter;
pub use sessions::{Field, Range, Sessions};
pub use xt_rule::TableDump;
pub use xtables::digest as xtables_digest;

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

/// The rules for forwarded packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// For each kind of session, in the order of [`Kind::all`].
    pub programs: [Program; Kind::COUNT],
    /// A rule looks at routes: the interface of the way back (nft `fib`, x_tables `rpfilter`), next hop or realm.
    pub route: Families,
}

impl Ruleset {
    /// Reads and evaluates the rules of nftables (iptables-nft makes such) and of the old x_tables, of the namespace of
    /// the calling thread.
    ///
    /// # Errors
    /// When the kernel does not tell: it takes CAP_NET_ADMIN. That it has no such packet filter is none.
    pub fn load(options: &Options) -> io::Result<Self> {
        let mut links = link::all().map_err(io::Error::from)?;
        links.sort_unstable_by_key(|link| link.index);
        // The hooks before and behind a VRF see different interfaces.
        if links.iter().any(|link| link.kind == "vrf") {
            links.clear();
        }
        let interfaces: Vec<_> = links.into_iter().map(|link| (link.index, link.name)).collect();
        Ok(Self::evaluated(&Nftables::load()?, &Xtables::load()?, &interfaces, options))
    }

    /// Evaluates rules that are in memory: messages of dumps of nftables (chains before rules, sets before elements), and
    /// tables of x_tables. `interfaces` are index and name, in the order of indices.
    pub fn parse<'a>(
        messages: &[u8],
        tables: impl IntoIterator<Item = TableDump<'a>>,
        interfaces: &[(u32, String)],
        options: &Options,
    ) -> Self {
        let mut nftables = Nftables::default();
        netlink::messages(messages).for_each(|message| nftables.add(message));
        let xtables = tables.into_iter().collect();
        Self::evaluated(&nftables.finish(), &xtables, interfaces, options)
    }

    fn evaluated(
        nftables: &Nftables,
        xtables: &Xtables,
        interfaces: &[(u32, String)],
        options: &Options,
    ) -> Self {
        let mut marks = ConnectionMarks::default();
        nftables.connection_marks(&mut marks);
        xtables.connection_marks(&mut marks);
        let writes = Writes { steps: marks.step(), ..nftables.writes().or(xtables.writes()) };
        let mut route = nftables.routes();
        route.add(xtables.routes());
        let programs = Kind::all().map(|kind| {
            let scope = Scope::new(kind, interfaces, writes, options);
            let mut program = Program::default();
            nftables.evaluate(scope, &mut program);
            xtables.evaluate(scope, &mut program);
            program.finish();
            program
        });
        Self { programs, route }
    }

    /// The names of the rules that keep sessions with the kernel.
    pub fn rules(&self) -> BTreeSet<&str> {
        self.programs.iter().flat_map(|program| &program.rules).map(String::as_str).collect()
    }
}
