//! The back end `xdp`: messages past the stack, and the stack for everything else.
//!
//! A program in the driver's receive loop redirects whole datagrams to the wanted port and addresses to
//! AF_XDP sockets; ARP, neighbours, IGMP, fragments, other ports and whatever is unusual in a message stay
//! with the kernel, and messages among it arrive through the companion socket, which is a receiver like
//! any other. What is redirected passes neither the firewall nor reverse path filtering, and other
//! sockets that would have got a copy (of a group) get none.

mod filter;
mod parse;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use linerate_ring::xdp::{self, BusyPoll, Pace, Source, Stamps};

pub use parse::{Datagram, Parser, Refusal};

use crate::builder::Settings;
use crate::message::Message;
use crate::{Error, Group, Losses, Result, interface};
use filter::Wanted;

pub(crate) const NO_INTERFACE: &str = "xdp takes messages from one interface, and it is not clear \
    which: bind to an address of it, or name it";

/// Frames up to which a chunk of 2048 bytes has room.
const SMALL_CHUNK: u32 = 2048;
const LARGE_CHUNK: u32 = 4096;

/// The interface that `settings` mean.
pub(crate) fn interface_of(settings: &Settings) -> Option<String> {
    let named = settings.interface.clone();
    named.or_else(|| settings.groups.iter().find_map(|group| group.interface.clone())).or_else(
        || match settings.bind.ip() {
            ip if ip.is_unspecified() || ip.is_multicast() => None,
            ip => interface::of_address(ip),
        },
    )
}

/// Why an interface cannot have it.
pub(crate) fn probe(interface: &str) -> Option<String> {
    xdp::probe(interface).obstacle.map(|error| error.to_string())
}

/// Whether the driver runs the program itself; else the frames have been through half of the stack.
pub(crate) fn is_native(interface: &str) -> bool {
    let probe = xdp::probe(interface);
    probe.works() && probe.native
}

/// The AF_XDP sockets of an interface.
#[derive(Debug)]
pub(crate) struct Port {
    source: Source,
    parser: Parser,
    interface: String,
    index: u32,
    wanted: Wanted,
    message_size: usize,
    checksum: u64,
    malformed: u64,
}

impl Port {
    /// Takes the messages of `settings` from `interface`, to `port`.
    pub(crate) fn open(settings: &Settings, interface: &str, port: u16) -> Result<Self> {
        let index = interface::index(interface)?;
        let identity = interface::identity(interface)?;
        let Some(mac) = identity.mac else {
            return Err(Error::Invalid(format!("interface {interface} has no Ethernet address")));
        };
        let bind = settings.bind.ip();
        let mut unicast = identity.addresses;
        unicast
            .retain(|ip| ip.is_ipv4() == bind.is_ipv4() && (bind.is_unspecified() || *ip == bind));
        // With its Ethernet header and a tag.
        let longest = linerate_ring::mtu(interface)? + 18;
        let chunk = if longest > SMALL_CHUNK - xdp::HEADROOM { LARGE_CHUNK } else { SMALL_CHUNK };
        let mut wanted =
            Wanted { port, mac, unicast, groups: Vec::new(), longest: chunk - xdp::HEADROOM };
        for group in &settings.groups {
            add(&mut wanted, group, interface, bind);
        }
        let program = translate(&wanted)?;
        let source = Source::builder(interface)
            .buffer(settings.ring)
            .chunk(chunk)
            .multi_buffer(false)
            .batch(u32::try_from(settings.batch).unwrap_or(u32::MAX))
            .prefetch(8)
            .busy_poll(settings.busy_poll.map(|time| BusyPoll {
                microseconds: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
                budget: 64,
            }))
            .pace(Pace::BLOCKING)
            .stamps(if settings.details.timestamp { Stamps::Kernel } else { Stamps::None })
            .filter(Some(&program))
            .build()?;
        let driver = linerate_ring::driver(interface)?;
        let unfinished = interface == "lo" || driver.is_some_and(|driver| driver == "veth");
        Ok(Self {
            source,
            parser: Parser::new(unfinished),
            interface: interface.to_owned(),
            index,
            wanted,
            message_size: settings.message_size,
            checksum: 0,
            malformed: 0,
        })
    }

    /// Takes the messages of a group too, or no more.
    pub(crate) fn regroup(&mut self, group: &Group, join: bool, bind: IpAddr) -> Result<()> {
        let mut wanted = self.wanted.clone();
        if join {
            add(&mut wanted, group, &self.interface, bind);
        } else {
            remove(&mut wanted, group);
        }
        if wanted != self.wanted {
            self.source.set_filter(Some(&translate(&wanted)?))?;
            self.wanted = wanted;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn ready(&mut self) -> bool {
        self.source.ready()
    }

    /// Whether the interface is still there and up.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.source.wait(Duration::ZERO).map(drop).map_err(Into::into)
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.source.descriptors()
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// How frames get here: what is not the best, and why.
    pub(crate) fn mode(&self) -> String {
        let mode = self.source.mode();
        let copy = if mode.zero_copy { "zero-copy" } else { "one copy in the kernel" };
        format!("{} XDP, {copy}", self.source.attached())
    }

    /// Lets nothing more in.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.source.stop().map_err(Into::into)
    }

    pub(crate) fn batch(&mut self) -> Option<PortBatch<'_>> {
        let Self { source, parser, index, message_size, checksum, malformed, .. } = self;
        Some(PortBatch {
            frames: source.batch()?,
            parser: *parser,
            index: *index,
            message_size: *message_size,
            checksum,
            malformed,
        })
    }

    pub(crate) fn losses(&self) -> Result<Losses> {
        let statistics = self.source.statistics()?;
        Ok(Losses {
            ring: statistics.lost(),
            checksum: self.checksum,
            malformed: self.malformed,
            ..Losses::default()
        })
    }
}

/// Messages of one AF_XDP socket.
#[derive(Debug)]
pub(crate) struct PortBatch<'p> {
    frames: xdp::Batch<'p>,
    parser: Parser,
    index: u32,
    message_size: usize,
    checksum: &'p mut u64,
    malformed: &'p mut u64,
}

impl PortBatch<'_> {
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Message<'_>> {
        loop {
            // Looked at before it is taken: a frame that is not lent must not stay borrowed.
            let datagram = match self.parser.parse(self.frames.peek()?) {
                Ok(datagram) => datagram,
                Err(refusal) => {
                    self.frames.next();
                    match refusal {
                        Refusal::Checksum => *self.checksum += 1,
                        Refusal::Malformed => *self.malformed += 1,
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
                source: datagram.source,
                destination: datagram.destination,
                timestamp: frame.timestamp.map(|stamp| stamp.0),
                traffic_class: Some(datagram.traffic_class),
                interface: Some(self.index),
                truncated: len < whole,
            });
        }
    }
}

fn translate(wanted: &Wanted) -> Result<Vec<linerate_ring::filter::Instruction>> {
    linerate_ring::filter::translate(&wanted.compile()?).map_err(|why| {
        Error::Invalid(format!("the program for these groups and addresses cannot be made: {why}"))
    })
}

/// A group is taken where the kernel would deliver it: not to a socket bound to another address.
fn add(wanted: &mut Wanted, group: &Group, interface: &str, bind: IpAddr) {
    let elsewhere = group.interface.as_deref().is_some_and(|name| name != interface);
    if elsewhere || !(bind.is_unspecified() || bind == group.address) {
        return;
    }
    let found = wanted.groups.iter_mut().find(|(address, _)| *address == group.address);
    match (found, group.source) {
        (Some((_, senders)), Some(source)) if !senders.contains(&source) => senders.push(source),
        (Some(_), _) => {}
        (None, source) => wanted.groups.push((group.address, source.into_iter().collect())),
    }
}

fn remove(wanted: &mut Wanted, group: &Group) {
    wanted.groups.retain_mut(|(address, senders)| {
        if *address != group.address {
            return true;
        }
        match group.source {
            Some(source) => {
                senders.retain(|sender| *sender != source);
                !senders.is_empty()
            }
            None => false,
        }
    });
}
