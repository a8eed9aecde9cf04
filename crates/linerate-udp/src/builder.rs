//! [`Builder`]: what a receiver is to be.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_ring::xdp::Through;

use crate::{Backend, Details, Error, Group, Receiver, Result};

/// Bytes of payload that a UDP datagram can have: 65,535 less the headers of UDP and IPv4.
pub const LONGEST_MESSAGE: usize = 65_507;
/// Messages of a batch at most: more would take more memory for headers alone than is sensible.
pub const LARGEST_BATCH: usize = 1 << 20;

/// Which of several receivers on one port gets a message (`SO_REUSEPORT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Steering {
    /// No other receiver shares the port.
    #[default]
    Alone,
    /// Messages of one flow go to one receiver.
    Flow,
    /// The receiver whose number, in the order of binding, is that of the CPU that the message came in
    /// on, modulo their number.
    Cpu {
        /// Receivers that share the port.
        sockets: u32,
    },
    /// Any receiver, message by message: evenly, and out of order.
    Spread {
        /// Receivers that share the port.
        sockets: u32,
    },
}

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) bind: SocketAddr,
    pub(crate) interface: Option<String>,
    pub(crate) groups: Vec<Group>,
    pub(crate) batch: usize,
    pub(crate) message_size: usize,
    pub(crate) backend: Option<Backend>,
    pub(crate) measure: Option<Duration>,
    pub(crate) details: Details,
    pub(crate) buffer: Option<usize>,
    pub(crate) busy_poll: Option<Duration>,
    pub(crate) steering: Steering,
    pub(crate) several: bool,
    pub(crate) spin: bool,
    pub(crate) nap: Option<Duration>,
    pub(crate) ring: usize,
    pub(crate) through: Through,
}

/// What to ask for; made by [`Receiver::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    pub(crate) fn new(bind: SocketAddr) -> Self {
        Self {
            settings: Settings {
                bind,
                interface: None,
                groups: Vec::new(),
                batch: 256,
                message_size: 2048,
                backend: None,
                measure: None,
                details: Details::default(),
                buffer: Some(8 << 20),
                busy_poll: None,
                steering: Steering::Alone,
                several: false,
                spin: false,
                nap: None,
                ring: 32 << 20,
                through: Through::Auto,
            },
        }
    }

    /// Receives only what comes in by this interface (`SO_BINDTODEVICE`), which is also the one that
    /// `xdp` takes messages from. Without, any interface, and `xdp` takes them from the one that has
    /// the address or that a group names.
    pub fn interface(mut self, name: &str) -> Self {
        self.settings.interface = Some(name.to_owned());
        self
    }

    /// Joins a group; may be called again. Only joined groups are heard, whatever other sockets join.
    pub fn join(mut self, group: Group) -> Self {
        self.settings.groups.push(group);
        self
    }

    /// Datagrams taken from the kernel at once, at most; 256 unless said. The kernel's own limit for
    /// one `recvmmsg` is 1024; a larger batch takes several calls. A datagram of the `gro` back end
    /// holds up to 64 messages, of which there are at most 64 in a batch.
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// Bytes of the longest message, 1 to 65,507; 2048 unless said. A longer one is delivered cut, with
    /// its flag set, and counted.
    pub fn message_size(mut self, bytes: usize) -> Self {
        self.settings.message_size = bytes;
        self
    }

    /// The way to receive; `None`, unless said, leaves the choice to what [`crate::probe`] finds: `xdp`,
    /// then `gro`, then `recvmmsg`.
    pub fn backend(mut self, backend: Option<Backend>) -> Self {
        self.settings.backend = backend;
        self
    }

    /// Chooses by measuring, where the choice is free: every back end that can be had receives for this
    /// time, one after the other, and the one is taken whose thread spends the least CPU time a message
    /// and that loses nothing (up to a thousandth; else the one that loses least). Where nothing comes
    /// meanwhile, the choice is as without.
    ///
    /// `build` then takes as long as all of them together, or until a signal comes. What comes
    /// meanwhile is counted ([`Receiver::trials`]) and given to nobody; and between two back ends there
    /// is no socket for a moment. So measure before the messages matter.
    pub fn measure(mut self, time: Option<Duration>) -> Self {
        self.settings.measure = time;
        self
    }

    /// What to learn of each message; nothing but its source unless said.
    pub fn details(mut self, details: Details) -> Self {
        self.settings.details = details;
        self
    }

    /// Bytes for messages that the socket has and the reader has not yet taken; 8 MiB unless said, as
    /// far as `net.core.rmem_max` or CAP_NET_ADMIN allows. `None` leaves the system's default. The
    /// kernel counts its overhead, several hundred bytes a message, twice over.
    pub fn buffer(mut self, bytes: Option<usize>) -> Self {
        self.settings.buffer = bytes;
        self
    }

    /// Has the kernel run the card's receive loop for so long in a wait, rather than sleep.
    pub fn busy_poll(mut self, time: Option<Duration>) -> Self {
        self.settings.busy_poll = time;
        self
    }

    /// Shares the port with other receivers that say so as well.
    pub fn steering(mut self, steering: Steering) -> Self {
        self.settings.steering = steering;
        self
    }

    /// Says that several are to read: threads of the one socket ([`Receiver::share`]), or another receiver
    /// from the same interface. The choice of a back end then leaves out `xdp`, whose rings have one reader.
    pub fn several(mut self, on: bool) -> Self {
        self.settings.several = on;
        self
    }

    /// Never sleeps while it waits: the lowest latency, at the price of a core.
    pub fn spin(mut self, on: bool) -> Self {
        self.settings.spin = on;
        self
    }

    /// How long a wait sleeps at a time while 640,000 messages a second or more come. Zero never rests. A rest
    /// lets messages gather, so that a call brings more of them, and nobody has to wake the reader, which would
    /// cost the core that receives more than the message does. It makes them wait, up to this long and the
    /// slack of the thread's timers (50 µs for most; `PR_SET_TIMERSLACK` of prctl(2)). Unless said, it is what
    /// with that slack makes 250 µs for `xdp`, 20 µs for `gro` and 100 µs for `recvmmsg`, and no less than 1 µs.
    /// Where fewer come, a wait sleeps until the next message does. `uring` never rests.
    pub fn nap(mut self, time: Duration) -> Self {
        self.settings.nap = Some(time);
        self
    }

    /// Bytes of memory for the frames that `xdp` takes; 32 MiB unless said. A ring buffer, which is as large
    /// as the next power of two, holds 200,000 messages of 64 bytes in it; AF_XDP sockets hold 16,384 of any
    /// size, in chunks of 2048 bytes (4096 where the interface's MTU asks for it). A reader that is held up
    /// for longer than it takes to fill it loses messages. More bears longer stalls, at a price: memory that
    /// does not fit into the cache is slower for everybody
    /// ([`linerate_ring::xdp::DEFAULT_BUFFER`] says by how much).
    pub fn ring(mut self, bytes: usize) -> Self {
        self.settings.ring = bytes;
        self
    }

    /// The way that `xdp` has frames take to the reader: unless said, AF_XDP sockets where the driver has
    /// zero-copy or [`Builder::busy_poll`] was asked for, else a BPF ring buffer, which the program copies to.
    pub fn through(mut self, way: Through) -> Self {
        self.settings.through = way;
        self
    }

    /// Opens, binds, joins, and prepares all memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes that make no sense, [`Error::NotLocal`], [`Error::InUse`],
    /// [`Error::NoInterface`], [`Error::Group`], [`Error::Privilege`]; [`Error::Backend`] where the
    /// back end that was asked for cannot be had.
    pub fn build(self) -> Result<Receiver> {
        let Settings { batch, message_size, .. } = self.settings;
        if !(1..=LARGEST_BATCH).contains(&batch) {
            return Err(Error::Invalid(format!(
                "a batch of {batch} messages: 1 to {LARGEST_BATCH} make sense"
            )));
        }
        if !(1..=LONGEST_MESSAGE).contains(&message_size) {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes: a UDP datagram has 1 to {LONGEST_MESSAGE}"
            )));
        }
        self.settings.groups.iter().try_for_each(|group| group.suits(self.settings.bind))?;
        Receiver::open(self.settings)
    }
}
