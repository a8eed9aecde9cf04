//! [`Neighbour`]: link-layer addresses of IPv4 and IPv6 neighbours (`ip neighbour`), and the forwarding
//! databases of Ethernet (`bridge fdb`).

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use linerate_wire::ethernet;

use crate::Result;
use crate::connection::{Connection, family, ip, octets};
use crate::error::Context;
use crate::netlink::{NLM_F_CREATE, NLM_F_REPLACE, attributes, bytes_at, put_attr};

/// Bytes of `struct ndmsg`.
const HEADER: usize = 12;

/// How often [`Connection::resolve`] polls for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// `linux/neighbour.h`; libc does not have them.
const NTF_EXT_LEARNED: u8 = 1 << 4;
const NDA_FLAGS_EXT: u16 = 15;
const NTF_EXT_MANAGED: u8 = 1 << 0;

/// An entry of the neighbour table, or of a forwarding database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub index: u32,
    /// The IP address; `None` for an entry of a forwarding database.
    pub destination: Option<IpAddr>,
    /// The Ethernet address, where one is known.
    pub address: Option<ethernet::Address>,
    /// Its state.
    pub state: State,
    /// The kernel answers for it (`NTF_PROXY`).
    pub proxy: bool,
    /// The interface itself receives for this address (`NTF_SELF`), not a bridge.
    pub own: bool,
    /// Somebody else keeps the entry current: a control plane (`NTF_EXT_LEARNED`), or the kernel without being asked
    /// (`NTF_EXT_MANAGED`).
    pub external: bool,
}

/// State of an entry (`NUD_` of `linux/neighbour.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The kernel has asked for the address.
    Incomplete,
    /// The address was confirmed recently.
    Reachable,
    /// The address is known; the kernel confirms it when it is used next.
    Stale,
    /// In use, and about to be confirmed.
    Delay,
    /// The kernel verifies the address again.
    Probe,
    /// Nobody answered.
    Failed,
    /// The interface needs no resolution.
    Noarp,
    /// Set by an administrator.
    Permanent,
    /// Nothing is known.
    None,
}

impl State {
    fn parse(bits: u16) -> Self {
        match bits {
            libc::NUD_INCOMPLETE => Self::Incomplete,
            libc::NUD_REACHABLE => Self::Reachable,
            libc::NUD_STALE => Self::Stale,
            libc::NUD_DELAY => Self::Delay,
            libc::NUD_PROBE => Self::Probe,
            libc::NUD_FAILED => Self::Failed,
            libc::NUD_NOARP => Self::Noarp,
            libc::NUD_PERMANENT => Self::Permanent,
            _ => Self::None,
        }
    }

    /// The kernel sends to the address (`NUD_VALID`).
    pub fn is_valid(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed | Self::None)
    }
}

impl Neighbour {
    /// Reads the body of an `RTM_NEWNEIGH` or `RTM_DELNEIGH` message.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let flags = *body.get(10)?;
        let mut entry = Self {
            index: u32::from_ne_bytes(bytes_at(body, 4)?),
            destination: None,
            address: None,
            state: State::parse(u16::from_ne_bytes(bytes_at(body, 8)?)),
            proxy: flags & libc::NTF_PROXY != 0,
            own: flags & libc::NTF_SELF != 0,
            external: flags & NTF_EXT_LEARNED != 0,
        };
        for (kind, value) in attributes(body.get(HEADER..)?) {
            match kind {
                libc::NDA_DST => entry.destination = ip(value),
                NDA_FLAGS_EXT => entry.external |= value.first()? & NTF_EXT_MANAGED != 0,
                libc::NDA_LLADDR => entry.address = value.try_into().ok().map(ethernet::Address),
                _ => {}
            }
        }
        Some(entry)
    }

    /// The address that the kernel sends to.
    pub fn valid_address(&self) -> Option<ethernet::Address> {
        self.address.filter(|_| self.state.is_valid())
    }
}

impl Connection {
    /// The entry of `destination` in the neighbour table of interface `index`.
    pub fn neighbour(&self, index: u32, destination: IpAddr) -> Result<Option<Neighbour>> {
        let body = body(index, destination, 0, 0);
        match self.get(libc::RTM_GETNEIGH, &body, Neighbour::parse) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            other => other.map(Some).context(|| format!("look up the neighbour {destination}")),
        }
    }

    /// The neighbour tables of IPv4 and IPv6 (`ip neighbour`).
    pub fn neighbours(&self) -> Result<Vec<Neighbour>> {
        self.list(libc::RTM_GETNEIGH, &[0; HEADER], Neighbour::parse)
            .context(|| "list neighbours".into())
    }

    /// Makes the kernel resolve a neighbour, or confirm a stale one, as a packet to it would (`NTF_USE`,
    /// `neigh_add` of net/core/neighbour.c). The result is a change of the neighbour table.
    ///
    /// # Errors
    /// [`crate::Error::Privilege`], [`crate::Error::System`].
    pub fn request_neighbour(&self, index: u32, destination: IpAddr) -> Result<()> {
        self.change(libc::RTM_NEWNEIGH, NLM_F_CREATE, &body(index, destination, 0, libc::NTF_USE))
            .context(|| format!("resolve the neighbour {destination}"))
    }

    /// Makes the kernel confirm a neighbour that it has, as [`Connection::request_neighbour`], and makes no entry. The
    /// request would take `NTF_EXT_LEARNED` and `NTF_EXT_MANAGED` from the entry (`neigh_update_flags`): leave alone
    /// what is [`Neighbour::external`].
    ///
    /// # Errors
    /// [`crate::Error::Privilege`], [`crate::Error::System`], also where the entry or its interface is gone.
    pub fn confirm_neighbour(&self, index: u32, destination: IpAddr) -> Result<()> {
        self.change(libc::RTM_NEWNEIGH, 0, &body(index, destination, 0, libc::NTF_USE))
            .context(|| format!("confirm the neighbour {destination}"))
    }

    /// The Ethernet address of a neighbour: from the table, or by resolution, for which this waits up to
    /// `timeout`. `None` if nobody answers.
    ///
    /// # Errors
    /// As [`Connection::request_neighbour`].
    pub fn resolve(
        &self,
        index: u32,
        destination: IpAddr,
        timeout: Duration,
    ) -> Result<Option<ethernet::Address>> {
        let find = || self.neighbour(index, destination);
        if let Some(address) = find()?.as_ref().and_then(Neighbour::valid_address) {
            return Ok(Some(address));
        }
        self.request_neighbour(index, destination)?;
        let deadline = Instant::now() + timeout;
        loop {
            let found = find()?;
            if let Some(address) = found.as_ref().and_then(Neighbour::valid_address) {
                return Ok(Some(address));
            }
            let failed = found.is_some_and(|entry| entry.state == State::Failed);
            if failed || Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Gives an entry, which exists, another Ethernet address, as the neighbour's own request does
    /// (`neigh_event_ns` of net/core/neighbour.c). It would also replace what an administrator or a control plane has set:
    /// leave alone what is [`State::Permanent`], [`State::Noarp`] or [`Neighbour::external`].
    ///
    /// # Errors
    /// As [`Connection::confirm_neighbour`].
    pub fn update_neighbour(
        &self,
        index: u32,
        destination: IpAddr,
        address: ethernet::Address,
    ) -> Result<()> {
        let mut body = body(index, destination, libc::NUD_STALE, 0);
        put_attr(&mut body, libc::NDA_LLADDR, &address.0);
        self.change(libc::RTM_NEWNEIGH, NLM_F_REPLACE, &body)
            .context(|| format!("update the neighbour {destination}"))
    }

    /// Sets a permanent Ethernet address of a neighbour.
    ///
    /// # Errors
    /// [`crate::Error::System`] where the interface is down, [`crate::Error::Privilege`].
    pub fn set_neighbour(
        &self,
        index: u32,
        destination: IpAddr,
        address: ethernet::Address,
    ) -> Result<()> {
        let mut body = body(index, destination, libc::NUD_PERMANENT, 0);
        put_attr(&mut body, libc::NDA_LLADDR, &address.0);
        self.change(libc::RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &body)
            .context(|| format!("set the neighbour {destination}"))
    }

    /// The entries of the forwarding databases that interface `index` has (`bridge fdb show dev`): the
    /// addresses that it receives for, and those reached through it if it is the port of a bridge.
    pub fn fdb(&self, index: u32) -> Result<Vec<Neighbour>> {
        let mut body = vec![0; HEADER];
        body[0] = libc::AF_BRIDGE as u8;
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let read = |body: &[u8]| Neighbour::parse(body).filter(|entry| entry.index == index);
        self.list(libc::RTM_GETNEIGH, &body, read)
            .context(|| format!("list the forwarding database of interface {index}"))
    }
}

/// `struct ndmsg` and the destination.
fn body(index: u32, destination: IpAddr, state: u16, flags: u8) -> Vec<u8> {
    let mut body = vec![family(destination), 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(state.to_ne_bytes());
    body.extend([flags, 0]);
    put_attr(&mut body, libc::NDA_DST, &octets(destination));
    body
}
