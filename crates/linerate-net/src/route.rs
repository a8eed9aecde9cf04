//! [`Route`]: where the kernel sends packets (`ip route`).

use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow::{self, Break, Continue};

use crate::Result;
use crate::connection::{Connection, family, ip, octets};
use crate::error::Context;
use crate::netlink::{
    NLM_F_CREATE, NLM_F_EXCL, attr_u32, attribute, attributes, bytes_at, put_attr,
};

/// Bytes of `struct rtmsg`.
const HEADER: usize = 12;
/// Bytes of `struct rtnexthop`.
const NEXT_HOP: usize = 8;

/// Maximum of answers that [`through`] reads; the default route is then not among them: it has the shortest
/// prefix, and both families dump the table in the order of prefixes.
const MAX_ANSWERS: u32 = 64;

/// A route, or the result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What it does with packets.
    pub kind: Kind,
    /// Bits of its prefix; all of them after a look-up.
    pub prefix_len: u8,
    /// Who created it, an `RTPROT_` number of `linux/rtnetlink.h`.
    pub protocol: u8,
    /// The routing table that it is in.
    pub table: u32,
    /// Indices of the interfaces that it leads through; several for a multipath route.
    pub interfaces: Vec<u32>,
    /// The next hop, if it is not the destination itself. `None` for a multipath route.
    pub gateway: Option<IpAddr>,
}

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends them to the next hop.
    Unicast,
    /// Delivers them here.
    Local,
    /// Sends them to everybody on the link.
    Broadcast,
    /// Sends them to the nearest of several.
    Anycast,
    /// Sends them to a group.
    Multicast,
    /// Refuses them, or something else: an `RTN_` number of `linux/rtnetlink.h`.
    Other(u8),
}

impl Route {
    /// Reads the body of an `RTM_NEWROUTE` message.
    fn parse(body: &[u8]) -> Option<Self> {
        let own = body.get(HEADER..)?;
        let mut route = Self {
            kind: match body[7] {
                libc::RTN_UNICAST => Kind::Unicast,
                libc::RTN_LOCAL => Kind::Local,
                libc::RTN_BROADCAST => Kind::Broadcast,
                libc::RTN_ANYCAST => Kind::Anycast,
                libc::RTN_MULTICAST => Kind::Multicast,
                other => Kind::Other(other),
            },
            prefix_len: body[1],
            protocol: body[5],
            // The field has eight bits, the attribute all.
            table: attribute(own, libc::RTA_TABLE).and_then(attr_u32).unwrap_or(body[4].into()),
            interfaces: Vec::new(),
            gateway: None,
        };
        for (kind, value) in attributes(own) {
            match kind {
                libc::RTA_OIF => route.interfaces.extend(attr_u32(value)),
                libc::RTA_GATEWAY => route.gateway = ip(value),
                // A next hop of the other family: that family and its address.
                libc::RTA_VIA => route.gateway = ip(value.get(2..)?),
                libc::RTA_MULTIPATH => route.interfaces.extend(next_hops(value)),
                _ => {}
            }
        }
        Some(route)
    }
}

/// The interfaces of a list of `struct rtnexthop`.
fn next_hops(mut bytes: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes_at(bytes, 0)?) as usize;
        let interface = u32::from_ne_bytes(bytes_at(bytes, 4)?);
        bytes = bytes.get(length.max(NEXT_HOP).next_multiple_of(4)..).unwrap_or_default();
        Some(interface)
    })
}

/// Addresses of which the kernel delivers packets to this host: a route of the type `local` or `broadcast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRoute {
    /// The address, or the first one of a prefix.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix_len: u8,
    /// They are broadcast addresses.
    pub broadcast: bool,
    /// The routing table of the route.
    pub table: u32,
    /// Index of its interface.
    pub interface: u32,
}

impl LocalRoute {
    /// It is one address of this host.
    pub fn is_address(&self) -> bool {
        !self.broadcast && self.prefix_len == if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Reads the body of an `RTM_NEWROUTE` message. Kernels before 4.20 do not filter by type.
    fn parse(body: &[u8]) -> Option<Self> {
        let route = Route::parse(body)?;
        let address = attribute(body.get(HEADER..)?, libc::RTA_DST).and_then(ip)?;
        let broadcast = route.kind == Kind::Broadcast;
        (route.kind == Kind::Local || broadcast).then_some(Self {
            address,
            prefix_len: route.prefix_len,
            broadcast,
            table: route.table,
            interface: *route.interfaces.first()?,
        })
    }
}

/// The configured routes through an interface. Routes created by an address are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfiguredRoutes {
    /// There is none.
    None,
    /// There are some; the default route is not among them.
    Some,
    /// The default route is among them.
    Default,
}

/// Which routes lead through the interface `index` of the namespace of the calling thread. A router may have
/// a million routes: the query asks for those of the interface only, and stops when the answer is known.
pub fn through(index: u32) -> Result<ConfiguredRoutes> {
    let failed = || format!("list the routes through interface {index}");
    let families = [libc::AF_INET as u8, libc::AF_INET6 as u8];
    let mut found = Found::default();
    for family in families {
        ask(family, libc::RT_TABLE_MAIN, index, &mut found).context(failed)?;
    }
    if found.through == ConfiguredRoutes::None {
        // Tables of policy routing. Any route is an answer: they are not in the order of prefixes.
        for family in families {
            ask(family, libc::RT_TABLE_UNSPEC, index, &mut found).context(failed)?;
        }
    }
    Ok(found.through)
}

struct Found {
    through: ConfiguredRoutes,
    answers: u32,
}

impl Default for Found {
    fn default() -> Self {
        Self { through: ConfiguredRoutes::None, answers: 0 }
    }
}

/// Dumps the routes through an interface that are in one table, or with `RT_TABLE_UNSPEC` in any.
fn ask(family: u8, table: u8, index: u32, found: &mut Found) -> io::Result<()> {
    let mut body = vec![0; HEADER];
    (body[0], body[4]) = (family, table);
    put_attr(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
    let first = found.answers;
    let socket = Connection::open()?.into_socket();
    let asked = socket.dump_until(libc::RTM_GETROUTE, &body, |message| {
        let Some(route) = Route::parse(message.body) else { return Continue(()) };
        found.answers += 1;
        found.note(&route, table, index);
        match found.through {
            ConfiguredRoutes::None => Continue(()),
            _ if table == libc::RT_TABLE_UNSPEC => Break(()),
            _ => found.is_enough(first),
        }
    });
    match asked {
        // A namespace without this family has no such table.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

impl Found {
    fn note(&mut self, route: &Route, table: u8, index: u32) {
        // Kernels before 4.20 do not filter.
        let is_asked_for = match table {
            libc::RT_TABLE_UNSPEC => route.table != u32::from(libc::RT_TABLE_LOCAL),
            table => route.table == u32::from(table),
        };
        let leads_through = route.interfaces.contains(&index);
        if is_asked_for && leads_through && route.protocol != libc::RTPROT_KERNEL {
            let new = if route.prefix_len == 0 {
                ConfiguredRoutes::Default
            } else {
                ConfiguredRoutes::Some
            };
            self.through = self.through.max(new);
        }
    }

    fn is_enough(&self, first: u32) -> ControlFlow<()> {
        match self.through {
            ConfiguredRoutes::Default => Break(()),
            ConfiguredRoutes::Some if self.answers - first >= MAX_ANSWERS => Break(()),
            _ => Continue(()),
        }
    }
}

impl Connection {
    /// The local and broadcast routes of one table, or with `RT_TABLE_UNSPEC` of any. Tentative IPv6 addresses, and
    /// those that duplicate address detection has refused, have none.
    pub fn local_routes(&self, table: u8) -> Result<Vec<LocalRoute>> {
        let mut all = Vec::new();
        let [v4, v6] = [libc::AF_INET as u8, libc::AF_INET6 as u8];
        for (family, kind) in
            [(v4, libc::RTN_LOCAL), (v4, libc::RTN_BROADCAST), (v6, libc::RTN_LOCAL)]
        {
            let mut body = vec![0; HEADER];
            (body[0], body[4], body[7]) = (family, table, kind);
            match self.list(libc::RTM_GETROUTE, &body, LocalRoute::parse) {
                Ok(found) => all.extend(found),
                // A namespace without this family has no such table.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => {
                    return Err(error).context(|| "list the local routes of this host".to_owned());
                }
            }
        }
        // Kernels before 4.20 do not filter by table.
        all.retain(|one| table == libc::RT_TABLE_UNSPEC || one.table == u32::from(table));
        Ok(all)
    }

    /// Where the kernel would send its own packet to `destination`, through the interface `oif` if one is
    /// given.
    ///
    /// # Errors
    /// [`crate::Error::System`] with `ENETUNREACH` and the like if there is no route.
    pub fn route_to(&self, destination: IpAddr, oif: Option<u32>) -> Result<Route> {
        let mut body = vec![0; HEADER];
        body[0] = family(destination);
        body[1] = if destination.is_ipv4() { 32 } else { 128 };
        put_attr(&mut body, libc::RTA_DST, &octets(destination));
        if let Some(index) = oif {
            put_attr(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
        }
        self.get(libc::RTM_GETROUTE, &body, Route::parse)
            .context(|| format!("find a route to {destination}"))
    }

    /// Adds a route to `destination`/`prefix_len` through `gateway`; a prefix of 0 bits is the default route.
    ///
    /// # Errors
    /// [`crate::Error::System`] where the gateway is not reachable, [`crate::Error::Privilege`].
    pub fn add_route(&self, destination: IpAddr, prefix_len: u8, gateway: IpAddr) -> Result<()> {
        let mut body = vec![
            family(destination),
            prefix_len,
            0,
            0,
            libc::RT_TABLE_MAIN,
            libc::RTPROT_STATIC,
            libc::RT_SCOPE_UNIVERSE,
            libc::RTN_UNICAST,
        ];
        body.extend([0; 4]);
        if prefix_len > 0 {
            put_attr(&mut body, libc::RTA_DST, &octets(destination));
        }
        put_attr(&mut body, libc::RTA_GATEWAY, &octets(gateway));
        self.change(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body)
            .context(|| format!("add a route to {destination}/{prefix_len} through {gateway}"))
    }
}

#[cfg(test)]
mod tests;
