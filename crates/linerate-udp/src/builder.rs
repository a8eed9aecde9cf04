//! [`ReceiverBuilder`]: collects the options of a receiver, selects its backend and opens it.

mod calibrate;
mod select;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_ring::Delivery;

use crate::backend::Backend;
use crate::group::Group;
use crate::message::Metadata;
use crate::options::{MAX_BATCH_SIZE, MAX_MESSAGE_SIZE, Options, Reuseport, SendOptions};
use crate::receiver::Receiver;
use crate::socket::{self, unmapped};
use crate::{Error, Result};
use calibrate::Calibration;

/// The largest power of two that a map's size in bytes, of 32 bits, can have.
const MAX_RING_SIZE: usize = 1 << 31;

/// The options of a receiver; made by [`Receiver::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ReceiverBuilder {
    pub(crate) options: Options,
}

impl Receiver {
    /// A receiver bound to `address`; port 0 lets the kernel choose one. `[::]` receives IPv4 too (see
    /// [`ReceiverBuilder::only_v6`]) and reports IPv4 senders by their IPv4 addresses. The IPv4-mapped address
    /// `::ffff:a.b.c.d` is the IPv4 address a.b.c.d.
    pub fn builder(address: SocketAddr) -> ReceiverBuilder {
        ReceiverBuilder { options: Options::new(unmapped(address)) }
    }

    /// A receiver on a UDP socket that is already bound: by systemd, or before privileges were dropped. Options that
    /// are set on it stay, except those that the backend needs.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything but a bound UDP socket.
    pub fn from_socket(socket: impl Into<OwnedFd>) -> Result<ReceiverBuilder> {
        let socket = socket.into();
        let (bound, only_v6) = socket::bound(socket.as_fd())?;
        let options = Options { only_v6, socket: Some(Arc::new(socket)), ..Options::new(bound) };
        Ok(ReceiverBuilder { options })
    }
}

impl ReceiverBuilder {
    /// Receives only messages that arrive on this interface (`SO_BINDTODEVICE`); `xdp` attaches to it.
    /// Default: any interface; `xdp` attaches to the interface that has the address, or that a group names.
    pub fn interface(mut self, name: &str) -> Self {
        self.options.interface = Some(name.to_owned());
        self
    }

    /// Whether a receiver bound to `[::]` leaves IPv4 to others (`IPV6_V6ONLY`); default: no.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.options.only_v6 = on;
        self
    }

    /// Options of the socket for sending ([`Receiver::transmitter`]).
    pub fn send_options(mut self, options: SendOptions) -> Self {
        self.options.send = options;
        self
    }

    /// Reports ICMP errors that answer messages of this socket ([`Receiver::next_error`]); default: no.
    pub fn icmp_errors(mut self, on: bool) -> Self {
        self.options.icmp_errors = on;
        self
    }

    /// Joins a group; may be called again. Only joined groups are received, regardless of other sockets.
    pub fn join(mut self, group: Group) -> Self {
        self.options.groups.push(group);
        self
    }

    /// The most datagrams taken from the kernel at once; default: 256. The kernel's own limit for one
    /// `recvmmsg` is 1024; a larger batch takes several calls. A datagram of the `gro` backend holds up to
    /// 64 messages, of which there are at most 64 in a batch.
    pub fn batch(mut self, messages: usize) -> Self {
        self.options.batch = messages;
        self
    }

    /// The longest message in bytes, 1 to 65,507; default: 2048. A longer one is delivered truncated, with
    /// its flag set, and counted.
    pub fn message_size(mut self, bytes: usize) -> Self {
        self.options.message_size = bytes;
        self
    }

    /// The backend; default: `None`, the first of `gro` and `recvmmsg` that [`crate::probe`] finds available. These
    /// leave each packet to the host.
    pub fn backend(mut self, backend: Option<Backend>) -> Self {
        self.options.backend = backend;
        self
    }

    /// Consent for [`Backend::Xdp`] where no backend was requested: it is selected where it is available. Its
    /// messages bypass the host's network stack ([`crate::xdp`]). Default: no.
    pub fn take_over(mut self, consent: bool) -> Self {
        self.options.take_over = consent;
        self
    }

    /// Whether consent is all that [`Backend::Xdp`] lacks to be selected. Probes the driver.
    pub fn awaits_consent(&self) -> bool {
        let Options { backend, take_over, .. } = self.options;
        backend.is_none() && !take_over && select::native_xdp(&self.options).is_ok()
    }

    /// Selects the backend by measurement, if none was requested: every available one receives for this time,
    /// one after the other; `xdp` only with [`ReceiverBuilder::take_over`]. The one wins whose thread spends the
    /// least CPU time per message and loses nothing (up to a thousandth; otherwise the one that loses least).
    /// Without traffic the selection is the usual one.
    ///
    /// `build` takes as long as all of them together, or until a signal arrives. What arrives in this time is
    /// counted ([`Receiver::calibration_runs`]) and discarded; between two backends there is no socket for a moment.
    /// So calibrate before the messages matter.
    pub fn calibrate(mut self, time: Option<Duration>) -> Self {
        self.options.calibrate = time;
        self
    }

    /// What to learn of each message; default: nothing but its source.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.options.metadata = metadata;
        self
    }

    /// The socket's receive buffer in bytes (`SO_RCVBUF`); default: 8 MiB, as far as `net.core.rmem_max` or
    /// CAP_NET_ADMIN allows. `None` leaves the system's default. The kernel counts its overhead, several
    /// hundred bytes a message, twice over.
    pub fn recv_buffer_size(mut self, bytes: Option<usize>) -> Self {
        self.options.recv_buffer_size = bytes;
        self
    }

    /// Makes the kernel poll the driver for this long in a wait, instead of sleeping (`SO_BUSY_POLL`).
    pub fn busy_poll(mut self, time: Option<Duration>) -> Self {
        self.options.busy_poll = time;
        self
    }

    /// Shares the port with other receivers that set this option too (`SO_REUSEPORT`).
    pub fn reuseport(mut self, reuseport: Reuseport) -> Self {
        self.options.reuseport = reuseport;
        self
    }

    /// Announces several readers: threads of the one socket ([`Receiver::try_clone`]), or another receiver on
    /// the same interface. The selection of a backend then leaves out `xdp`, whose rings have one reader.
    pub fn multiple_readers(mut self, on: bool) -> Self {
        self.options.multiple_readers = on;
        self
    }

    /// Never sleeps while it waits: the lowest latency, at the price of a core.
    pub fn spin(mut self, on: bool) -> Self {
        self.options.spin = on;
        self
    }

    /// Interrupt coalescing in software: how long a wait sleeps at a time while 640,000 messages a second or
    /// more arrive. Zero turns it off.
    ///
    /// Messages accumulate in that time, so that a call returns more of them and nothing has to wake the
    /// reader, which would cost the receiving core more than the message does. They wait up to this long, and
    /// the slack of the thread's timers (50 µs for most; `PR_SET_TIMERSLACK` of prctl(2)). Default: what with
    /// that slack makes 250 µs for `xdp`, 20 µs for `gro` and 100 µs for `recvmmsg`, and no less than 1 µs.
    /// At lower rates a wait sleeps until the next message arrives. `uring` does not coalesce.
    pub fn coalesce(mut self, time: Duration) -> Self {
        self.options.coalesce = Some(time);
        self
    }

    /// Bytes of memory for the frames that `xdp` receives; default: 32 MiB. A ring buffer, rounded up to a
    /// power of two, holds 200,000 messages of 64 bytes in it; AF_XDP sockets hold 16,384 of any size, in
    /// chunks of 2048 bytes (4096 where the interface's MTU needs it). A reader that is delayed for longer
    /// than it takes to fill it loses messages. At most 2 GiB. A larger one survives longer delays, but memory that
    /// does not fit into the cache is slower ([`linerate_ring::xdp::DEFAULT_BUFFER`] says by how much).
    pub fn ring_size(mut self, bytes: usize) -> Self {
        self.options.ring_size = bytes;
        self
    }

    /// How `xdp` delivers frames; default: AF_XDP sockets if the driver has zero-copy or
    /// [`ReceiverBuilder::busy_poll`] was requested, otherwise a BPF ring buffer, to which the program
    /// copies.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.options.delivery = delivery;
        self
    }

    /// Selects the backend, opens and binds the socket, joins the groups, and prepares all memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes out of range, [`Error::AddressNotAvailable`], [`Error::AddressInUse`],
    /// [`Error::NoInterface`], [`Error::Group`], [`Error::Privilege`]; [`Error::BackendUnavailable`] if the
    /// requested backend is unavailable.
    pub fn build(self) -> Result<Receiver> {
        let options = self.options;
        let Options { batch, message_size, .. } = options;
        if !(1..=MAX_BATCH_SIZE).contains(&batch) {
            return Err(Error::Invalid(format!(
                "a batch of {batch} messages: it must be 1 to {MAX_BATCH_SIZE}"
            )));
        }
        if !(1..=MAX_MESSAGE_SIZE).contains(&message_size) {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes: a UDP datagram has 1 to {MAX_MESSAGE_SIZE}"
            )));
        }
        if options.ring_size > MAX_RING_SIZE {
            return Err(Error::Invalid(format!(
                "a ring of {} bytes: it must be at most {MAX_RING_SIZE}",
                options.ring_size
            )));
        }
        for group in &options.groups {
            Error::check_group(group, options.bind, options.versions())?;
        }
        let Calibration { best, mut reasons, runs } = match options.calibrate {
            Some(time) if options.backend.is_none() => calibrate::run(&options, time),
            _ => Calibration::default(),
        };
        let backend = match best {
            Some(backend) => backend,
            None => {
                let backend;
                (backend, reasons) = select::select(&options)?;
                if options.backend.is_none() && options.calibrate.is_some() {
                    reasons.push("no message arrived to calibrate by".to_owned());
                }
                backend
            }
        };
        let opened = match Receiver::open(&options, backend) {
            Err(error) if options.backend.is_none() && backend == Backend::Xdp => {
                reasons.push(format!("not xdp: {error}"));
                let next = select::socket_backend(&options, &mut reasons);
                Receiver::open(&options, next)
            }
            other => other,
        };
        let receiver = opened?;
        reasons
            .extend(receiver.xdp_mode().into_iter().flat_map(|(interface, _)| effects(interface)));
        Ok(receiver.selected(reasons, runs))
    }
}

/// What exists on this host that messages taken from `interface` bypass, and what its other traffic pays.
fn effects(interface: &str) -> Vec<String> {
    let Ok(interface) = linerate_net::Interface::open(interface) else { return Vec::new() };
    let found = linerate_bpf::bypassed(&interface);
    let bypassed =
        (!found.is_empty()).then(|| format!("messages bypass what is here: {}", found.join(", ")));
    // `veth_convert_skb_to_xdp_buff`.
    let slower = (interface.driver().as_deref() == Some("veth")).then(|| {
        format!(
            "other traffic through {} is slower: for an XDP program a veth copies super-packets",
            interface.name()
        )
    });
    bypassed.into_iter().chain(slower).collect()
}
