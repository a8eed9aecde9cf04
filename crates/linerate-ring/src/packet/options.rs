//! [`Options`]: what to ask of a receive ring, and how the kernel is asked.

use std::sync::Arc;
use std::time::Duration;

use linerate_net::{Interface, link};

use super::direction::DirectionFilter;
use super::fanout::Fanout;
use super::layout::{PACKET_VNET_HDR, VLAN_TAG};
use super::program::SocketFilter;
use super::receive::{Config, Ring};
use super::rules::{Kind, RingConfig};
use super::socket::Socket;
use super::timestamps;
use crate::{Error, Result, TimestampSource};
use linerate_bpf::filter::{ClassicProgram, CookedHeader};

/// Default size of a block in bytes: 860 frames of 64 bytes for one wake-up, or one super-packet of 64 KiB.
/// Where little comes, each retire timeout takes a block, however empty. So a program may stall for as many
/// timeouts as there are blocks: 512, which is ten seconds. libpcap has 8 of a second each.
const BLOCK_SIZE: u32 = 128 << 10;

/// Default size of a ring in bytes. A 64-byte frame takes 152 bytes of it, so that a program may stall
/// for 400 ms at a million of them a second.
pub const DEFAULT_BUFFER: u64 = 64 << 20;

/// Time until a block that is not full is handed over (default).
const RETIRE: Duration = Duration::from_millis(20);

/// Bytes that a block has beside its only frame, at most: headers, addresses, tags, alignment.
const BLOCK_OVERHEAD: u32 = 4096;

/// Default limit of the bytes of a frame: more than any frame has.
const SNAPLEN: u32 = 262_144;

/// What to ask for: `Options { snaplen: 128, ..Options::new("eth0") }`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface.
    pub interface: String,
    /// All interfaces of this network namespace, also those that come later, in place of one.
    /// [`Frame::interface`](crate::Frame::interface) tells them apart. Each frame has the link layer of its interface.
    /// [`promiscuous`](Self::promiscuous) and hardware timestamps have no effect.
    pub any: bool,
    /// With [`any`](Self::any): frames start with this header instead of their own, and a filter sees them as
    /// [`ClassicProgram::on_cooked_socket`] says. There are no virtio headers.
    pub cooked: Option<CookedHeader>,
    /// Bytes of a block, whole pages (default: 128 KiB). The kernel hands over a block at a time,
    /// and cuts frames that are larger. Where the interface has super-packets over 64 KiB (BIG TCP), blocks hold one, up
    /// to the snap length: 512 KiB at most. So there are fewer, and the ring lasts a shorter time at a low rate.
    pub block_size: u32,
    /// Number of blocks, in place of [`buffer_size`](Self::buffer_size).
    pub blocks: Option<u32>,
    /// Bytes of the whole ring, rounded up to whole blocks, at least two (default: 64 MiB). A
    /// frame takes 86 bytes more than it has, rounded up to 8.
    pub buffer_size: u64,
    /// Time until the kernel hands over a block that is not full: the longest that a frame waits
    /// for the program. Whole milliseconds, at least one (default: 20).
    pub retire_timeout: Duration,
    /// Longest piece of a frame to capture, in bytes (default: all of it); the kernel copies no more.
    pub snaplen: u32,
    /// Whether the interface also receives frames that are addressed to others, for as long as
    /// the ring lives (default: no).
    pub promiscuous: bool,
    /// Which direction to capture (default: both).
    pub direction: DirectionFilter,
    /// Frames that this program rejects do not enter the ring. It sees frames as the kernel keeps
    /// them, an outer VLAN tag moved to metadata: libpcap compiles for that when it is given a
    /// handle of a live interface.
    pub filter: Option<ClassicProgram>,
    /// Shares the interface's frames with the other rings of a group.
    pub fanout: Option<Fanout>,
    /// Whose timestamps to ask for: the card's only, if it stamps already, or else the kernel's (default). The card's
    /// clock is UTC only if something keeps it so (`phc2sys`).
    pub timestamps: TimestampSource,
    /// Whether to have a virtio header with each frame (default: no), which says how a super-packet, to be sent or
    /// received with offloads, was or will be segmented ([`Frame::virtio`](crate::Frame::virtio)).
    /// The kernel drops, as if there were no room, super-packets that the header has no word for
    /// (SCTP).
    pub vnet_hdr: bool,
    /// Time for which [`Ring::wait`](crate::Ring::wait) watches the ring before it sleeps (default: none). It saves
    /// the wake-up at the price of a core. (`SO_BUSY_POLL` is not for packet sockets: the kernel
    /// does not note on them which device queue to poll.)
    pub busy_poll: Duration,
}

impl Options {
    /// The defaults for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            any: false,
            cooked: None,
            block_size: BLOCK_SIZE,
            blocks: None,
            buffer_size: DEFAULT_BUFFER,
            retire_timeout: RETIRE,
            snaplen: SNAPLEN,
            promiscuous: false,
            direction: DirectionFilter::InOut,
            filter: None,
            fanout: None,
            timestamps: TimestampSource::Software,
            vnet_hdr: false,
            busy_poll: Duration::ZERO,
        }
    }

    /// The same for all interfaces.
    pub fn any() -> Self {
        Self { any: true, ..Self::new("any") }
    }

    /// The same for all interfaces, with this header.
    pub fn cooked(header: CookedHeader) -> Self {
        Self { cooked: Some(header), ..Self::any() }
    }
}

impl Ring {
    /// The ring, receiving.
    ///
    /// # Errors
    /// [`Error::Privilege`] without CAP_NET_RAW, [`Error::NoInterface`], [`Error::InterfaceDown`],
    /// [`Error::Invalid`] for sizes, a filter or a fanout group that the kernel refuses, or memory that it does not have,
    /// [`Error::System`] for the rest.
    pub fn open(options: Options) -> Result<Self> {
        let ring = options.prepare()?;
        ring.open_gate()?;
        Ok(ring)
    }

    /// `count` rings that share the interface's frames, in a new group of the mode and flags of
    /// [`Options::fanout`]. None receives before all are members, so that no frame comes twice.
    ///
    /// # Errors
    /// As [`Ring::open`]; [`Error::Invalid`] without a fanout or without rings.
    pub fn open_group(mut options: Options, count: usize) -> Result<Vec<Self>> {
        if count == 0 || options.fanout.is_none() {
            return Err(Error::Invalid(
                "a group needs a fanout mode and at least one ring".to_owned(),
            ));
        }
        let mut rings = Vec::with_capacity(count);
        for _ in 0..count {
            let ring = options.clone().prepare()?;
            options.fanout = options.fanout.map(|fanout| match ring.fanout_group() {
                Some(number) => fanout.group(number),
                None => fanout,
            });
            rings.push(ring);
        }
        rings.iter().try_for_each(Ring::open_gate)?;
        Ok(rings)
    }
}

impl Options {
    /// Everything but letting frames in.
    fn prepare(self) -> Result<Ring> {
        let name = self.interface.as_str();
        let interface = (!self.any).then(|| Interface::open(name)).transpose()?;
        let links = match &interface {
            Some(interface) => vec![interface.link()?],
            None => link::all()?,
        };
        let request = self.request(links.iter().map(|link| link.max_super_packet).max())?;
        let socket = match self.cooked {
            Some(_) => Socket::open_cooked()?,
            None => Socket::open()?,
        };
        let system = |action: &str| {
            let action = format!("{action} (interface {name})");
            move |error| Error::system(action, error)
        };

        // A frame that comes between binding and the filter, or joining a group, would enter the
        // ring unasked.
        SocketFilter::shut(&socket)?;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_RESERVE, &request.reserve)
            .map_err(system("reserve room for VLAN tags"))?;
        if interface.is_some() {
            timestamps::apply(self.timestamps, &socket)?;
        }
        if self.direction == DirectionFilter::In {
            socket
                .set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)
                .map_err(system("ignore outgoing frames"))?;
        }
        if self.vnet_hdr {
            // Once there is a ring, the kernel answers EBUSY.
            socket
                .set(libc::SOL_PACKET, PACKET_VNET_HDR, &1i32)
                .map_err(system("ask for virtio headers"))?;
        }
        let map = socket.map(request, name)?;
        // 0 stands for all.
        let index = interface.as_ref().map_or(0, Interface::index);
        if let Some(interface) = interface.as_ref().filter(|_| self.promiscuous) {
            socket.make_promiscuous(interface)?;
        }
        socket.bind(index, libc::ETH_P_ALL as u16).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => Error::NoInterface(linerate_net::NoInterface::new(name)),
            _ => Error::system(format!("bind to interface {name}"), error),
        })?;
        if let Some(error) = socket.take_error() {
            return Err(match error.raw_os_error() {
                Some(libc::ENETDOWN) => Error::InterfaceDown(name.to_owned()),
                _ => Error::system(format!("bind to interface {name}"), error),
            });
        }
        let incoming_only = self.direction == DirectionFilter::In;
        let group = match &self.fanout {
            Some(fanout) => Some(fanout.join(&socket, incoming_only, name)?),
            None => None,
        };
        let loopback = links.iter().find(|link| link.is_loopback()).map(|link| link.index);
        let gate = SocketFilter {
            direction: self.direction,
            loopback,
            filter: self.filter,
            snaplen: self.snaplen,
        };
        let config = Config {
            name: name.to_owned(),
            retire: Duration::from_millis(u64::from(request.retire_ms)),
            busy_poll: self.busy_poll,
            virtio: self.vnet_hdr,
            cooked: self.cooked,
            gate,
            group,
        };
        Ok(Ring::new(Arc::new(socket), map, request, config))
    }

    /// The ring in the kernel's terms, checked, for super-packets of this length.
    fn request(&self, max_super_packet: Option<u32>) -> Result<RingConfig> {
        if self.snaplen == 0 {
            return Err(Error::Invalid("a snap length of 0 bytes captures nothing".to_owned()));
        }
        let longest = max_super_packet.unwrap_or(0).min(self.snaplen).min(SNAPLEN);
        let block_size = match longest {
            0x1_0001.. => self.block_size.max((longest + BLOCK_OVERHEAD).next_power_of_two()),
            _ => self.block_size,
        };
        let blocks = match self.blocks {
            Some(blocks) => blocks,
            // A size of zero is left for the rules to name.
            None => u32::try_from(self.buffer_size.div_ceil(u64::from(block_size.max(1))))
                .unwrap_or(u32::MAX)
                // While one is full and one is read, the kernel fills others.
                .max(if block_size > self.block_size { 8 } else { 2 }),
        };
        let reserve = VLAN_TAG as u32;
        RingConfig {
            kind: Kind::Receive,
            block_size,
            blocks,
            // Frames in a V3 ring lie as long as they are; the largest size that the rules allow
            // keeps the number of frames small.
            frame_size: block_size,
            frames: 0,
            retire_ms: u32::try_from(self.retire_timeout.as_millis().max(1)).unwrap_or(u32::MAX),
            reserve,
        }
        .with_frames()
    }
}
