//! Filter expressions: what libpcap makes of them, and where the result can run.
//!
//! libpcap compiles the expression. The program then runs unchanged on a packet socket, as eBPF in
//! XDP ([`linerate_bpf::filter::translate`]), or here in user space ([`Filter::matches`]).
//! [`Filter::place_on_socket`] and [`Filter::place_in_xdp`] decide which, and say why.

mod cache;
mod error_position;
mod expression;
mod placement;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use linerate_bpf::filter::{
    ClassicInstruction, ClassicProgram, InvalidProgram, SocketFrame, has_outer_tag,
};
use linerate_ring::{Direction, Frame};
use rustix::fs::{MemfdFlags, memfd_create};

pub use self::cache::FilterCache;
use self::expression::Expression;
pub use self::placement::{FilterLocation, Placement};
use crate::link_type::{DOCSIS, dlt};
use crate::{Error, Result};
pub use linerate_bpf::filter::CookedHeader;

/// Link type of Ethernet frames in the LINKTYPE registry.
pub const ETHERNET: u16 = 1;

/// Link type of Linux cooked frames (LINKTYPE_LINUX_SLL).
pub const LINUX_SLL: u16 = 113;

/// Link type of Linux cooked frames with the interface of each (LINKTYPE_LINUX_SLL2).
pub const LINUX_SLL2: u16 = 276;

/// The header of frames of this link type, if they are Linux cooked ones.
pub const fn cooked_header(link_type: u16) -> Option<CookedHeader> {
    match link_type {
        LINUX_SLL => Some(CookedHeader::V1),
        LINUX_SLL2 => Some(CookedHeader::V2),
        _ => None,
    }
}

/// `PACKET_HOST` and `PACKET_OUTGOING` of `linux/if_packet.h`.
pub(crate) const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;

/// How an expression sees the outer VLAN tag of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagReading {
    /// As on a live interface, where the kernel keeps the tag beside the frame: `udp` accepts a datagram with
    /// and without a tag, `vlan 5` asks for the tag.
    Live,
    /// As in a file, where the tag is a part of the frame: `udp` accepts only untagged datagrams.
    File,
}

linerate_net::named!(TagReading, "reading of VLAN tags": Live = "live", File = "file");

/// A compiled filter expression, usable from several threads.
#[derive(Debug)]
pub struct Filter {
    text: String,
    program: ClassicProgram,
    /// Accepts every frame that `program` may accept, where that looks addresses up.
    prefilter: Option<ClassicProgram>,
    /// What `program` was compiled for.
    reading: TagReading,
    link_type: u16,
}

impl Filter {
    /// Compiles `text`, in the syntax of pcap-filter(7) with `host in @FILE` and `net in @FILE`, for frames of `link_type`
    /// (LINKTYPE registry) of which up to `snaplen` bytes are kept, from a file of this host.
    ///
    /// `optimize` is what tcpdump's `-O` switches off. An empty text takes every frame.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`] with libpcap's own message, and with the position in the text if known; also for
    /// what only sockets know (`inbound`).
    pub fn compile(text: &str, link_type: u16, snaplen: u32, optimize: bool) -> Result<Self> {
        let handle = saved_file(link_type, BIG_ENDIAN)?;
        Self::on(&handle, text, link_type, snaplen, optimize, TagReading::File)
    }

    /// Compiles `text` for frames of a file whose numbers have this byte order.
    ///
    /// libpcap reads tags of a file in no other way than [`TagReading::File`]. Only with the word `vlan` does it matter for
    /// the program: for [`TagReading::Live`] that is compiled on the loopback interface, which takes the privilege to open
    /// packet sockets.
    ///
    /// # Errors
    ///
    /// As for [`Filter::compile_live`] and [`Filter::compile`].
    pub fn compile_for_file(
        text: &str,
        link_type: u16,
        big_endian: bool,
        snaplen: u32,
        tags: TagReading,
    ) -> Result<Self> {
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        if tags == TagReading::Live && link_type == ETHERNET && words.any(|word| word == "vlan") {
            return Self::compile_live("lo", text, link_type, snaplen);
        }
        let handle = saved_file(link_type, big_endian)?;
        Self::on(&handle, text, link_type, snaplen, true, tags)
    }

    /// Compiles `text` for a packet socket, also with what only those know.
    pub(crate) fn compile_for_socket(text: &str, link_type: u16, snaplen: u32) -> Result<Self> {
        let handle = pcap::Capture::dead(pcap::Linktype(dlt(link_type)))
            .map_err(|error| Error::filter(text, message(&error), None))?;
        Self::on(&handle, text, link_type, snaplen, true, TagReading::File)
    }

    fn on<T: pcap::Activated>(
        handle: &pcap::Capture<T>,
        text: &str,
        link_type: u16,
        snaplen: u32,
        optimize: bool,
        reading: TagReading,
    ) -> Result<Self> {
        let expression = Expression::read(text)?;
        let refused = |why: InvalidProgram| Error::filter(text, why.to_string(), None);
        let (program, prefilter) = if expression.sets.is_empty() {
            (ClassicProgram::for_user_space(compile(handle, text, optimize)?), None)
        } else {
            let variant = |number| {
                let compiled = compile(handle, &expression.with_placeholders(number), false);
                compiled.map_err(|error| match error {
                    Error::Filter { message, position, .. } => {
                        let position =
                            position.map(|position| expression.position(number, position));
                        Error::filter(text, message, position)
                    }
                    other => other,
                })
            };
            let [first, second] = [variant(0)?, variant(1)?];
            let prefilter = expression.without_look_ups().and_then(|text| {
                ClassicProgram::for_user_space(compile(handle, &text, true).ok()?).ok()
            });
            (ClassicProgram::with_sets([&first, &second], expression.sets), prefilter)
        };
        Ok(Self {
            text: text.to_owned(),
            program: program.map_err(refused)?.with_snaplen(snaplen),
            prefilter: prefilter.map(|program| program.with_snaplen(snaplen)),
            reading,
            link_type,
        })
    }

    /// Compiles `text` for frames of the live `interface`, whose link type is `link_type`.
    ///
    /// The kernel takes the outer VLAN tag out of a frame before a packet socket's filter sees it. So `udp`
    /// accepts tagged datagrams, too, and `vlan 5` asks for the tag's metadata. libpcap compiles so only
    /// for the handle of a live interface; one is opened for that moment, with a small buffer and not
    /// promiscuous.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`] as for [`Filter::compile`]; [`Error::FilterInterface`] when the interface
    /// cannot be opened; [`Error::Ring`] when it is down.
    pub fn compile_live(interface: &str, text: &str, link_type: u16, snaplen: u32) -> Result<Self> {
        let handle = pcap::Capture::from_device(interface)
            .and_then(|capture| {
                let capture = capture.promisc(false).snaplen(SMALL).buffer_size(8 * SMALL);
                let mut capture = capture.timeout(1).open()?;
                // Others than that of its frames are there only on request.
                if link_type == DOCSIS {
                    capture.set_datalink(pcap::Linktype(dlt(link_type)))?;
                }
                Ok(capture)
            })
            .map_err(|error| match linerate_net::link::by_name(interface) {
                Ok(link) if !link.is_up() => {
                    linerate_ring::Error::InterfaceDown(interface.to_owned()).into()
                }
                _ => Error::FilterInterface {
                    interface: interface.to_owned(),
                    message: message(&error),
                },
            })?;
        Self::on(&handle, text, link_type, snaplen, true, TagReading::Live)
    }

    /// The expression that was compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `frame`, whose captured bytes are `bytes` ([`Frame::contiguous`]), passes the filter.
    #[inline]
    pub fn matches(&self, frame: &Frame<'_>, bytes: &[u8]) -> bool {
        if self.reading == TagReading::File {
            return self.program.accepts(bytes, frame.wire_len) != 0;
        }
        let ethernet = self.link_type == ETHERNET;
        let tagged = frame.tag_beside.unwrap_or_else(|| ethernet && has_outer_tag(bytes));
        let packet_type = match frame.direction {
            Direction::Outbound => PACKET_OUTGOING,
            Direction::Inbound | Direction::Unknown => PACKET_HOST,
        };
        // A cooked socket's filter does not count the header that the kernel makes later.
        let header = cooked_header(self.link_type).map_or(0, CookedHeader::bytes);
        let wire_len = frame.wire_len.saturating_sub(header);
        let frame = SocketFrame { bytes, wire_len, tagged, packet_type };
        self.program.accepts_from_socket(&frame) != 0
    }

    /// The program as libpcap compiled it.
    pub fn program(&self) -> &ClassicProgram {
        &self.program
    }
}

/// Snap length of the handle that is opened only to compile, in bytes: none of its frames is read.
const SMALL: i32 = 4096;

/// The byte order of this host.
const BIG_ENDIAN: bool = cfg!(target_endian = "big");

/// A handle of a file without packets. libpcap compiles otherwise for a file than for an interface: it refuses what only
/// sockets know, and where a header begins with an address family (link types NULL, LOOP and ENC), that is in the byte
/// order of the file, and IPv6 has the number of any BSD.
fn saved_file(link_type: u16, big_endian: bool) -> Result<pcap::Capture<pcap::Offline>> {
    let failed = |source| Error::FilterFile { source };
    let (magic, version) = (0xa1b2_c3d4, if big_endian { 0x0002_0004 } else { 0x0004_0002 });
    let words = [magic, version, 0, 0, u32::from(u16::MAX), u32::from(link_type)];
    let header = words.map(|word| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() });
    let file =
        memfd_create(c"filter", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = File::from(file);
    file.write_all(&header.concat()).map_err(failed)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    pcap::Capture::from_file(path).map_err(|error| failed(io::Error::other(message(&error))))
}

/// What libpcap makes of `text`.
fn compile<T: pcap::Activated>(
    handle: &pcap::Capture<T>,
    text: &str,
    optimize: bool,
) -> Result<Vec<ClassicInstruction>> {
    let program = handle.compile(text, optimize).map_err(|error| {
        let message = message(&error);
        let compiles = |part: &str| handle.compile(part, false).is_ok();
        let position = error_position::find(text, &message, compiles);
        Error::filter(text, message, position)
    })?;
    Ok(instructions(&program))
}

/// The instructions of `program`. The pcap crate shows them only as text: `code jt jf k`, decimal.
fn instructions(program: &pcap::BpfProgram) -> Vec<ClassicInstruction> {
    program
        .get_instructions()
        .iter()
        .map(|instruction| {
            let text = instruction.to_string();
            let mut numbers = text.split(' ').map(|number| number.parse::<u32>().unwrap_or(0));
            let mut next = || numbers.next().unwrap_or(0);
            ClassicInstruction {
                code: next() as u16,
                jt: next() as u8,
                jf: next() as u8,
                k: next(),
            }
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

impl Error {
    fn filter(expression: &str, message: String, position: Option<usize>) -> Self {
        Self::Filter { expression: expression.to_owned(), message, position }
    }
}

#[cfg(test)]
mod tests;
