//! Filter expressions: what libpcap makes of them, and where the result can run.
//!
//! libpcap compiles the expression. The program then runs unchanged on a packet socket, as eBPF in
//! XDP ([`linerate_bpf::filter::translate`]), or here in user space ([`Filter::matches`]).
//! [`Filter::on_socket`] and [`Filter::in_xdp`] decide which, and say why.

mod placement;
mod position;

use std::sync::Mutex;

use linerate_bpf::filter::{Classic, Invalid, Statement};

pub use self::placement::{Placement, Side};
use crate::{Error, Result};

/// Link type of Ethernet frames in the LINKTYPE registry.
pub const ETHERNET: u16 = 1;

/// A compiled filter expression, usable from several threads.
#[derive(Debug)]
pub struct Filter {
    text: String,
    /// For frames as they are captured, with VLAN tags in their place; the error says why only a
    /// socket can run the expression.
    frames: std::result::Result<Program, String>,
    /// For a packet socket, which keeps VLAN tags beside the frame.
    socket: Option<std::result::Result<Classic, Invalid>>,
}

#[derive(Debug)]
enum Program {
    Classic(Classic),
    /// With loops, as `protochain` makes them: only libpcap's own matcher runs those.
    Loop {
        program: Mutex<Looping>,
        why: Invalid,
    },
}

struct Looping(pcap::BpfProgram);

impl std::fmt::Debug for Looping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Looping")
    }
}

impl Filter {
    /// Compiles `text`, in the syntax of pcap-filter(7), for frames of `link_type` (LINKTYPE
    /// registry) of which up to `snaplen` bytes are kept.
    ///
    /// `optimize` is what tcpdump's `-O` switches off. An empty text takes every frame.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`] with libpcap's own message, and with the position in the text if known; also for
    /// what only sockets know (`inbound`).
    pub fn compile(text: &str, link_type: u16, snaplen: u32, optimize: bool) -> Result<Self> {
        let handle = pcap::Capture::dead(pcap::Linktype(dlt(link_type)))
            .map_err(|error| Error::filter(text, message(&error), None))?;
        let program = compile_on(&handle, text, optimize)?;
        let program =
            Program::new(program, snaplen).map_err(|why| Error::filter(text, why, None))?;
        Ok(Self { text: text.to_owned(), frames: Ok(program), socket: None })
    }

    /// Refuses a text that is an expression for no link layer: for those who make or empty a file before they
    /// know which there are in what they read.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`], as for Ethernet.
    pub fn check(text: &str) -> Result<()> {
        // Raw IP, 802.11 bare and with radiotap, Linux cooked 1 and 2, BSD loopback.
        const OTHERS: [u16; 6] = [101, 105, 127, 113, 276, 0];
        let compiled = |link_type| Self::compile(text, link_type, 262_144, true);
        match compiled(ETHERNET) {
            Err(error) if OTHERS.into_iter().all(|link_type| compiled(link_type).is_err()) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Compiles `text` for a packet socket on `interface` as well as for its frames.
    ///
    /// The kernel takes the VLAN tag out of a frame before a packet socket's filter sees it, so
    /// `vlan 5` must ask for the tag's metadata there. libpcap compiles so for the handle of a live
    /// interface only; one is opened for that moment, with a small buffer and not promiscuous.
    ///
    /// For the same reason `udp port 53` takes tagged datagrams on a packet socket, as tcpdump
    /// does, while in XDP, in files and in user space it takes untagged ones only.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`] as for [`Filter::compile`]; [`Error::FilterInterface`] when the interface
    /// cannot be opened.
    pub fn compile_live(interface: &str, text: &str, snaplen: u32) -> Result<Self> {
        let failed = |error: pcap::Error| Error::FilterInterface {
            interface: interface.to_owned(),
            message: message(&error),
        };
        let handle = pcap::Capture::from_device(interface)
            .and_then(|capture| {
                let capture = capture.promisc(false).snaplen(SMALL).buffer_size(8 * SMALL);
                capture.timeout(1).open()
            })
            .map_err(failed)?;
        let socket = statements(&compile_on(&handle, text, true)?);
        let dead = pcap::Capture::dead(handle.get_datalink()).map_err(failed)?;
        let frames = dead.compile(text, true);
        Ok(Self {
            text: text.to_owned(),
            frames: frames
                .map_err(|error| message(&error))
                .and_then(|program| Program::new(program, snaplen)),
            socket: Some(Classic::new(socket).map(|classic| classic.with_snaplen(snaplen))),
        })
    }

    /// The expression that was compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `frame`, which was `wire_len` bytes long on the wire, passes the filter.
    ///
    /// An expression that only a packet socket can judge (`inbound`) passes no frame;
    /// [`Filter::on_socket`] and [`Filter::in_xdp`] refuse to place it here.
    #[inline]
    pub fn matches(&self, frame: &[u8], wire_len: u32) -> bool {
        match &self.frames {
            Ok(Program::Classic(classic)) => classic.accepts(frame, wire_len) != 0,
            Ok(Program::Loop { program, .. }) => {
                program.lock().is_ok_and(|program| program.0.filter(frame))
            }
            Err(_) => false,
        }
    }

    /// The program for frames with their VLAN tags in place: capture files, XDP, user space.
    ///
    /// # Errors
    ///
    /// Why there is none that a kernel would take; [`Filter::matches`] may work still.
    pub fn classic(&self) -> Result<&Classic> {
        match &self.frames {
            Ok(Program::Classic(classic)) => Ok(classic),
            Ok(Program::Loop { why, .. }) => Err(Error::filter(&self.text, why.to_string(), None)),
            Err(message) => Err(Error::filter(&self.text, message.clone(), None)),
        }
    }
}

impl Program {
    fn new(program: pcap::BpfProgram, snaplen: u32) -> std::result::Result<Self, String> {
        match Classic::new(statements(&program)) {
            Ok(classic) => match classic.metadata() {
                None => Ok(Self::Classic(classic.with_snaplen(snaplen))),
                Some(what) => Err(format!(
                    "it asks for packet metadata ({what:?}), as `inbound` does, which only a \
                     packet socket knows"
                )),
            },
            Err(why) => Ok(Self::Loop { program: Mutex::new(Looping(program)), why }),
        }
    }
}

/// Snap length of the handle that is opened only to compile, in bytes: none of its frames is read.
const SMALL: i32 = 4096;

fn compile_on<T: pcap::Activated>(
    handle: &pcap::Capture<T>,
    text: &str,
    optimize: bool,
) -> Result<pcap::BpfProgram> {
    handle.compile(text, optimize).map_err(|error| {
        let message = message(&error);
        let position = position::of(text, &message, |part| handle.compile(part, false).is_ok());
        Error::filter(text, message, position)
    })
}

/// The statements of `program`. The pcap crate shows them only as text: `code jt jf k`, decimal.
fn statements(program: &pcap::BpfProgram) -> Vec<Statement> {
    program
        .get_instructions()
        .iter()
        .map(|instruction| {
            let text = instruction.to_string();
            let mut numbers = text.split(' ').map(|number| number.parse::<u32>().unwrap_or(0));
            let mut next = || numbers.next().unwrap_or(0);
            Statement { code: next() as u16, jt: next() as u8, jf: next() as u8, k: next() }
        })
        .collect()
}

/// libpcap's message, without the prefix of the pcap crate.
fn message(error: &pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(message) => message.clone(),
        other => other.to_string(),
    }
}

/// The number by which libpcap knows a link type at run time; files say raw IP differently.
fn dlt(link_type: u16) -> i32 {
    match link_type {
        100 => 11,
        101 => 12,
        other => i32::from(other),
    }
}

impl Error {
    fn filter(expression: &str, message: String, position: Option<usize>) -> Self {
        Self::Filter { expression: expression.to_owned(), message, position }
    }
}

#[cfg(test)]
mod tests;
