//! The options of a receiver.

use core::ffi::{CStr, c_char};
use core::slice;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use linerate_udp::{Error, Group, Metadata, Options, Reuseport, SendOptions};

/// Report each message's destination address and input interface.
pub const LINERATE_RECEIVE_DESTINATION: u32 = 1;
/// Report the traffic class of each message: DSCP and ECN.
pub const LINERATE_RECEIVE_TRAFFIC_CLASS: u32 = 2;
/// Report when each message arrived.
pub const LINERATE_RECEIVE_TIMESTAMP: u32 = 4;
/// Never sleep while waiting: the lowest latency, at the price of a core.
pub const LINERATE_RECEIVE_SPIN: u32 = 8;
/// Share the port with other receivers (SO_REUSEPORT): messages of one flow go to one of them.
pub const LINERATE_RECEIVE_REUSEPORT: u32 = 16;
/// Consent for xdp where `backend` is NULL or "auto": it is selected where it is available. Its messages bypass the
/// network stack of the host.
pub const LINERATE_RECEIVE_TAKE_OVER: u32 = 32;

const FLAGS: u32 = LINERATE_RECEIVE_DESTINATION
    | LINERATE_RECEIVE_TRAFFIC_CLASS
    | LINERATE_RECEIVE_TIMESTAMP
    | LINERATE_RECEIVE_SPIN
    | LINERATE_RECEIVE_REUSEPORT
    | LINERATE_RECEIVE_TAKE_OVER;

/// The options of a receiver. Zeroes are good defaults for all but `bind`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linerate_receive_options {
    /// Address and port, as `10.0.0.2:7000`, `0.0.0.0:7000` or `[::]:7000` (IPv4 too). Port 0 lets the
    /// kernel choose.
    pub bind: *const c_char,
    /// Interface that messages must arrive on; NULL for any.
    pub interface: *const c_char,
    /// "recvmmsg", "gro", "uring" or "xdp"; NULL or "auto" for the best available one that
    /// leaves each packet to the host.
    pub backend: *const c_char,
    /// How transmitters and sockets send: "sendmmsg", "uring" or "xdp" (answers past the stack, with the backend xdp); NULL for
    /// "sendmmsg".
    pub send_backend: *const c_char,
    /// Multicast groups to join, each as "239.1.1.1", "239.1.1.1@eth1", or "10.0.0.1,232.1.1.1@eth1" to
    /// receive from one sender only.
    pub groups: *const *const c_char,
    /// How many groups.
    pub group_count: usize,
    /// Messages that are taken from the kernel at once, at most; 0 for 256.
    pub batch: usize,
    /// Bytes of the longest message; 0 for 2048. A longer one is cut, marked and counted.
    pub message_size: usize,
    /// The receive buffer of the socket (SO_RCVBUF) in bytes; 0 for 8 MiB.
    pub recv_buffer_size: usize,
    /// Microseconds for which the kernel polls the card in a wait; 0 for none.
    pub busy_poll_us: u32,
    /// Calibration: milliseconds for which each backend is tried, to select the cheapest; 0 for none. What
    /// arrives during calibration is not received.
    pub calibrate_ms: u32,
    /// LINERATE_RECEIVE_DESTINATION and others, added.
    pub flags: u32,
}

impl linerate_receive_options {
    /// The options of the Rust library, for a socket that is bound already if there is one.
    ///
    /// # Safety
    /// Each text is NULL or NUL-terminated, and `groups` points to `group_count` of them.
    pub(crate) unsafe fn read(&self, socket: Option<OwnedFd>) -> Result<Options, Error> {
        let options = match socket {
            Some(socket) => Options::from_socket(socket)?,
            // SAFETY: the caller's.
            None => Options::new(unsafe { self.bind() }.map_err(Error::Invalid)?),
        };
        // SAFETY: the caller's.
        unsafe { self.apply(options) }.map_err(Error::Invalid)
    }

    /// # Safety
    /// `bind` is NULL or NUL-terminated.
    unsafe fn bind(&self) -> Result<SocketAddr, String> {
        // SAFETY: the caller's.
        let bind = unsafe { text(self.bind) }?.ok_or("options.bind is NULL")?;
        bind.parse().map_err(|_| {
            format!("`{bind}` is not an address and port, such as 10.0.0.2:7000 or [::]:7000")
        })
    }

    /// # Safety
    /// As [`linerate_receive_options::read`].
    unsafe fn apply(&self, defaults: Options) -> Result<Options, String> {
        // SAFETY: the caller's.
        let [interface, backend, send_backend] =
            unsafe { [text(self.interface)?, text(self.backend)?, text(self.send_backend)?] };
        let has = |flag| self.flags & flag != 0;
        if self.flags & !FLAGS != 0 {
            return Err(format!("options.flags has unknown bits: {:#x}", self.flags));
        }
        let nonzero = |time: Duration| (!time.is_zero()).then_some(time);
        let reuseport = has(LINERATE_RECEIVE_REUSEPORT);
        let mut options = Options {
            interface: interface.map(str::to_owned),
            busy_poll: nonzero(Duration::from_micros(self.busy_poll_us.into())),
            calibrate: nonzero(Duration::from_millis(self.calibrate_ms.into())),
            spin: has(LINERATE_RECEIVE_SPIN),
            take_over: has(LINERATE_RECEIVE_TAKE_OVER),
            reuseport: if reuseport { Reuseport::Flow } else { Reuseport::Exclusive },
            metadata: Metadata {
                destination: has(LINERATE_RECEIVE_DESTINATION),
                traffic_class: has(LINERATE_RECEIVE_TRAFFIC_CLASS),
                timestamp: has(LINERATE_RECEIVE_TIMESTAMP),
            },
            ..defaults
        };
        if let Some(backend) = backend.filter(|backend| *backend != "auto") {
            options.backend = Some(backend.parse()?);
        }
        if let Some(backend) = send_backend {
            options.send = SendOptions { backend: backend.parse()?, ..SendOptions::default() };
        }
        if self.batch != 0 {
            options.batch = self.batch;
        }
        if self.message_size != 0 {
            options.message_size = self.message_size;
        }
        if self.recv_buffer_size != 0 {
            options.recv_buffer_size = Some(self.recv_buffer_size);
        }
        if self.group_count > 0 {
            if self.groups.is_null() {
                return Err("options.groups is NULL".to_owned());
            }
            // SAFETY: not NULL, and the caller vouches for so many texts.
            for &group in unsafe { slice::from_raw_parts(self.groups, self.group_count) } {
                // SAFETY: the caller's.
                options.groups.push(unsafe { read_group(group)? });
            }
        }
        Ok(options)
    }
}

/// A group in text form.
///
/// # Safety
/// `from` is NULL or a NUL-terminated text.
pub(crate) unsafe fn read_group(from: *const c_char) -> Result<Group, String> {
    // SAFETY: the caller's.
    unsafe { text(from)? }.ok_or("a group is NULL")?.parse()
}

/// A text from C; `None` for NULL.
///
/// # Safety
/// `from` is NULL or a NUL-terminated text that stays while the answer is in use.
unsafe fn text<'a>(from: *const c_char) -> Result<Option<&'a str>, String> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and the caller's.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(Some).map_err(|_| "a text is no UTF-8".to_owned())
}
