//! The backend `xdp`: messages bypass the stack; everything else goes through it.
//!
//! A program in the driver's receive loop takes whole datagrams to the receiver's port and addresses, into
//! AF_XDP sockets or a BPF ring buffer; ARP, neighbours, IGMP, fragments, other ports and whatever is
//! unusual in a message stay with the kernel, and messages among it arrive through the companion socket,
//! which is a receiver like any other. What is taken passes neither the firewall nor reverse path
//! filtering, and other sockets that would have got a copy (of a group) get none.

mod filter;
mod parse;
mod transmit;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linerate_bpf::LoadedProgram;
use linerate_bpf::xdp::Owner;
use linerate_net::{Connection, Interface, link};
use linerate_ring::receiver::Frames;
use linerate_ring::region::Pages;
use linerate_ring::xdp::{self, AttachMode, CopyMode, TxSocket, Umem};
use linerate_ring::{Batch as _, Region, Ring as _, TimestampSource, WaitStrategy};
use linerate_wire::ethernet;

pub use parse::{Datagram, ParseError, Parser};
pub(crate) use transmit::{LinkState, TransmitRing};

use crate::backend::{Backend, SendBackend};
use crate::message::{Drops, Message};
use crate::options::Options;
use crate::socket::{self, scoped};
use crate::versions::Versions;
use crate::{Error, Result, interface};
use filter::FilterSpec;

/// Only in a driver's receive loop a frame is what was on the wire. A program in the stack, or in a TAP
/// device that a guest writes super-packets to, sees datagrams that somebody joined (`UDP_SEGMENT`, UDP
/// GRO) as one, with nothing in the frame that says so, and checksums that nobody has finished.
const ONLY_NATIVE: &str = "xdp needs a driver that shows its program each datagram as it was on the wire; \
    here several can come joined in one. Take gro";

/// Frames of the transmit ring.
const TRANSMIT_FRAMES: u32 = 2048;
/// Bytes of the largest chunk of a UMEM.
const MAX_CHUNK: u32 = 4096;

pub(crate) const NO_INTERFACE: &str = "xdp takes messages from one interface, and it is not clear \
    which: bind to an address of it, or name it";

/// Whether an interface can have it; the error is the reason why not. Whether the driver runs the program itself
/// shows when it is attached.
pub(crate) fn probe(interface: &str) -> std::result::Result<(), String> {
    if let Some(error) = xdp::probe(interface).unavailable {
        return Err(occupied(&error).unwrap_or_else(|| error.to_string()));
    }
    if let Some(master) = taker(interface).map_err(|error| error.to_string())? {
        return Err(format!(
            "{interface} is a port of {master}: a socket of {interface} receives nothing. Name {master}"
        ));
    }
    let driver = Interface::open(interface).ok().and_then(|interface| interface.driver());
    match driver.as_deref() == Some("tun") {
        true => Err(format!("{interface} is a TAP or TUN device: {ONLY_NATIVE}")),
        false => Ok(()),
    }
}

/// The bridge, bond or the like to which the kernel gives all frames of an interface. A VRF leaves them to it.
fn taker(interface: &str) -> linerate_net::Result<Option<String>> {
    let Some(master) = link::by_name(interface)?.master else { return Ok(None) };
    let master = link::by_index(master)?.filter(|master| master.kind != "vrf");
    Ok(master.map(|master| master.name))
}

/// That another receiver has the interface, a capture or the accelerator, where that is what `error` says.
fn occupied(error: &linerate_ring::Error) -> Option<String> {
    let linerate_ring::Error::Bpf(linerate_bpf::Error::ForeignProgram {
        interface,
        ours: true,
        owner,
        ..
    }) = error
    else {
        return None;
    };
    let own = std::process::id();
    if matches!(owner, Owner::Processes(all) if all.iter().any(|one| one.id == own)) {
        return Some(format!(
            "another receiver of this process takes messages from interface {interface}, and there is room for \
             one; take gro"
        ));
    }
    let by = owner.to_string();
    Some(format!(
        "interface {interface} carries an XDP program of linerate already ({by}), and has room for one; \
         take gro, or end that one"
    ))
}

/// Whether the driver runs the program itself; else the frames have been through half of the stack.
pub(crate) fn is_native(interface: &str) -> bool {
    xdp::probe(interface).why_not_native().is_none()
}

/// What the program on an interface takes.
#[derive(Debug)]
pub(crate) struct XdpReceiver {
    pub(crate) receiver: linerate_ring::Receiver,
    parser: Parser,
    pub(crate) interface: String,
    index: u32,
    /// What the program is to take, and what it takes.
    wanted: FilterSpec,
    spec: FilterSpec,
    /// Programs that were loaded at the start and need no privilege later: one that takes what the first program took,
    /// and one that takes nothing.
    first: (FilterSpec, LoadedProgram),
    /// The kernel refused the last program that was wanted.
    refused: bool,
    nothing: LoadedProgram,
    bind: IpAddr,
    /// All groups that the socket has joined, on whichever interface.
    groups: Vec<IpAddr>,
    versions: Versions,
    message_size: usize,
    checksum: u64,
    malformed: u64,
    /// What the transmit ring knows of the interface.
    link: Arc<LinkState>,
}

impl XdpReceiver {
    /// Takes the messages of `options` from `interface`, to `port`. `fd` is the socket, with its groups.
    pub(crate) fn open(
        options: &Options,
        interface: &str,
        port: u16,
        fd: BorrowedFd<'_>,
    ) -> Result<Self> {
        let index = interface::index(interface)?;
        let local = interface::local(&Connection::open()?, index)?
            .ok_or_else(|| linerate_net::Error::InterfaceGone(interface.to_owned()))?;
        let Some(mac) = local.mac else {
            return Err(Error::Invalid(format!("interface {interface} has no Ethernet address")));
        };
        let bind = options.bind.ip();
        let versions = options.versions();
        let unicast = unicast(local.addresses, bind, versions);
        let (own_sources, ipv6) = (local.own_sources, local.ipv6);
        let mut all_groups: Vec<_> = options.groups.iter().map(|group| group.address).collect();
        all_groups.sort_unstable();
        all_groups.dedup();
        let groups = accepted_groups(fd, &all_groups, index, bind);
        let mut spec = FilterSpec { port, mac, ipv6, unicast, own_sources, groups, max_frame: 0 };
        let filter = |max_frame| translate(&FilterSpec { max_frame, ..spec.clone() }).map(Some);
        let receiver = linerate_ring::Receiver::open(interface, &receiver_options(options), filter)
            .map_err(|error| {
                let why = match &error {
                    Error::Ring(ring) => occupied(ring).or_else(|| {
                        let refused = matches!(ring, linerate_ring::Error::System { .. });
                        (refused && !is_native(interface)).then(|| format!("{ring}: {ONLY_NATIVE}"))
                    }),
                    _ => None,
                };
                match why {
                    Some(why) => Error::BackendUnavailable { backend: Backend::Xdp, reason: why },
                    None => error,
                }
            })?;
        spec.max_frame = receiver.config().longest;
        let first = receiver.load_filter(Some(&translate(&spec)?))?;
        let nothing = receiver.load_filter(Some(&translate(&spec.nothing())?))?;
        let driver = Interface::open(interface)?.driver();
        let partial_checksums = driver.is_some_and(|driver| driver == "veth");
        Ok(Self {
            receiver,
            parser: Parser::new(partial_checksums),
            interface: interface.to_owned(),
            index,
            first: (spec.clone(), first),
            refused: false,
            wanted: spec.clone(),
            nothing,
            bind,
            groups: all_groups,
            versions,
            spec,
            message_size: options.message_size,
            checksum: 0,
            malformed: 0,
            link: Arc::default(),
        })
    }

    /// A transmit ring of the interface. Once: with AF_XDP sockets it is that of the first queue's socket.
    pub(crate) fn transmit_ring(
        &mut self,
        options: &Options,
        bound: SocketAddr,
        fd: BorrowedFd<'_>,
    ) -> Result<TransmitRing> {
        let tx = match self.receiver.take_tx() {
            Some(tx) => tx,
            None => copying_ring(&self.interface)?,
        };
        let own = link::by_name(&self.interface)?;
        self.link.update(own.address, own.mtu);
        let state = Arc::clone(&self.link);
        Ok(TransmitRing::new(tx, state, self.index, bound, fd, &options.send))
    }

    /// Follows the socket `fd`, which has joined or left `group`.
    pub(crate) fn follow_membership(&mut self, fd: BorrowedFd<'_>, group: IpAddr) -> Result<()> {
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
        let groups = accepted_groups(fd, &self.groups, self.index, self.bind);
        self.take(FilterSpec { groups, ..self.wanted.clone() })
    }

    /// Takes what the stack would deliver now; nothing if the interface is no longer in the namespace.
    pub(crate) fn follow(&mut self, connection: &Connection) -> Result<()> {
        let Some(local) = interface::local(connection, self.index)? else {
            // In another namespace the program would go on. With a removed interface it has gone.
            self.link.update(None, 0);
            if let Err(error) = self.receiver.stop() {
                tracing::debug!("cannot stop the XDP program of {}: {error}", self.interface);
            }
            return Ok(());
        };
        self.link.update(local.mac, local.mtu);
        let mut spec = self.wanted.clone();
        spec.mac = local.mac.unwrap_or(spec.mac);
        spec.max_frame = self.receiver.longest(local.mtu);
        spec.unicast = unicast(local.addresses, self.bind, self.versions);
        (spec.own_sources, spec.ipv6) = (local.own_sources, local.ipv6);
        self.take(spec)
    }

    /// Replaces the program by one for `spec`. Without the privilege for it, one that takes less takes its place: the
    /// rest arrives through the companion socket.
    fn take(&mut self, spec: FilterSpec) -> Result<()> {
        if spec == self.wanted {
            return Ok(());
        }
        self.wanted = spec.clone();
        let loaded = self.receiver.load_filter(Some(&translate(&spec)?));
        let refused = match loaded.and_then(|loaded| self.receiver.replace_filter(&loaded)) {
            Ok(()) => {
                (self.spec, self.refused) = (spec, false);
                return Ok(());
            }
            Err(error) => error,
        };
        // What the old program takes may be wrong now.
        let (first, loaded) = &self.first;
        let (next, program) = match spec.includes(first) {
            true => (first.clone(), loaded),
            false => (spec.nothing(), &self.nothing),
        };
        if next != self.spec {
            self.receiver.replace_filter(program)?;
            self.spec = next;
        }
        // A process that has dropped its privileges is refused at each change, and says so once.
        match std::mem::replace(&mut self.refused, true) {
            true => Ok(()),
            false => Err(refused.into()),
        }
    }

    pub(crate) fn next_batch(&mut self) -> Option<XdpBatch<'_>> {
        let Self { receiver, parser, index, message_size, checksum, malformed, .. } = self;
        Some(XdpBatch {
            frames: receiver.next_batch()?,
            parser: *parser,
            index: *index,
            message_size: *message_size,
            checksum,
            malformed,
        })
    }

    pub(crate) fn drops(&self) -> Result<Drops> {
        Ok(Drops {
            ring: self.receiver.statistics()?.lost(),
            checksum: self.checksum,
            malformed: self.malformed,
            ..Drops::default()
        })
    }
}

/// Messages of one AF_XDP socket, or of the ring buffer.
#[derive(Debug)]
pub(crate) struct XdpBatch<'p> {
    frames: Frames<'p>,
    parser: Parser,
    index: u32,
    message_size: usize,
    checksum: &'p mut u64,
    malformed: &'p mut u64,
}

impl XdpBatch<'_> {
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Message<'_>> {
        loop {
            // Looked at before it is taken: a frame that is not lent must not stay borrowed.
            let datagram = match self.parser.parse(self.frames.peek()?) {
                Ok(datagram) => datagram,
                Err(refusal) => {
                    self.frames.next();
                    match refusal {
                        ParseError::Checksum => *self.checksum += 1,
                        ParseError::Malformed => *self.malformed += 1,
                    }
                    continue;
                }
            };
            let frame = self.frames.next()?;
            let whole = datagram.payload.len();
            let len = whole.min(self.message_size);
            let from = datagram.payload.start;
            return Some(Message {
                payload: &frame.head()[from..from + len],
                source: scoped(datagram.source, Some(self.index)),
                destination: scoped(datagram.destination, Some(self.index)),
                // The program leaves these to the stack.
                broadcast: false,
                timestamp: frame.timestamp.map(|stamp| stamp.0),
                traffic_class: Some(datagram.traffic_class),
                interface_index: Some(self.index),
                next_hop: sender(frame.head()),
                truncated: len < whole,
            });
        }
    }
}

/// The source address of an Ethernet frame.
#[inline]
fn sender(frame: &[u8]) -> Option<ethernet::Address> {
    frame.get(6..12)?.try_into().ok().map(ethernet::Address)
}

/// Addresses that the program compares a destination with, at most; messages to others come through the stack.
const MAX_ADDRESSES: usize = 64;

/// Those that a receiver bound to `bind` receives from.
fn unicast(mut addresses: Vec<IpAddr>, bind: IpAddr, versions: Versions) -> Vec<IpAddr> {
    addresses.retain(|ip| versions.include(*ip) && (bind.is_unspecified() || *ip == bind));
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

/// A transmit ring beside a BPF ring buffer. In copy mode: a socket that shares frames with the driver would have to
/// feed its receive queue, too.
fn copying_ring(interface: &str) -> Result<TxSocket> {
    let mtu = link::by_name(interface)?.mtu;
    let chunk = Umem::chunk_for(mtu + ethernet::HEADER_LEN as u32).unwrap_or(MAX_CHUNK);
    let region = Region::new((TRANSMIT_FRAMES * chunk) as usize, Pages::Auto, None)?;
    let options = linerate_ring::Options {
        copy_mode: CopyMode::Copy,
        transmit: TRANSMIT_FRAMES,
        ..linerate_ring::Options::default()
    };
    let socket = xdp::Socket::open(interface, 0, &Umem::new(region, chunk)?, 0, options)?;
    socket.tx.ok_or_else(|| Error::Invalid("a socket without a transmit ring".to_owned()))
}

/// In the driver only, and every datagram in one piece.
fn receiver_options(options: &Options) -> linerate_ring::Options {
    linerate_ring::Options {
        delivery: options.delivery,
        mode: Some(AttachMode::Native),
        buffer: Some(options.ring_size),
        // A frame of a VLAN is that device's, also where its tag is not in it.
        untagged: true,
        contiguous: true,
        batch: u32::try_from(options.batch).unwrap_or(u32::MAX),
        prefetch: 8,
        timestamps: match options.metadata.timestamp {
            true => TimestampSource::Software,
            false => TimestampSource::None,
        },
        busy_poll: options.busy_poll,
        transmit: if options.send.backend == SendBackend::Xdp { TRANSMIT_FRAMES } else { 0 },
        wait_strategy: WaitStrategy::BLOCKING,
        ..linerate_ring::Options::default()
    }
}

fn translate(spec: &FilterSpec) -> Result<Vec<linerate_bpf::filter::Instruction>> {
    linerate_bpf::filter::translate(&spec.compile()?).map_err(|why| {
        Error::Invalid(format!("the program for these groups and addresses cannot be made: {why}"))
    })
}

/// Of `groups` those that the kernel delivers from the interface `index` to the socket, each with its accepted senders:
/// not to a socket bound to another address, nor where it was joined on another interface.
fn accepted_groups(
    fd: BorrowedFd<'_>,
    groups: &[IpAddr],
    index: u32,
    bind: IpAddr,
) -> Vec<(IpAddr, Vec<IpAddr>)> {
    let accepted = groups.iter().filter(|group| {
        // Nothing from outside reaches groups of the interface's scope and the reserved one (`ip6_rcv_core` in
        // `net/ipv6/ip6_input.c`).
        let inside = matches!(group, IpAddr::V6(ip) if ip.segments()[0] & 0xf <= 1);
        !inside && (bind.is_unspecified() || bind == **group)
    });
    let senders = |group: &IpAddr| Some((*group, socket::accepted_senders(fd, *group, index)?));
    accepted.filter_map(senders).collect()
}
