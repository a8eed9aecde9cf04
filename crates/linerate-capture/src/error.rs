//! The errors of a capture, each with a remedy.

use std::any::Any;
use std::borrow::Cow;
use std::io;

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a capture could not start, continue or be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A capture file could not be read or written.
    #[error(transparent)]
    File(#[from] linerate_pcapfile::Error),
    /// Flow records could not be written.
    #[error(transparent)]
    Flow(#[from] linerate_flow::Error),
    /// libpcap cannot compile a filter expression, or it cannot run where it should.
    #[error(
        "the filter `{}` does not work{}: {message}; pcap-filter(7) describes the syntax",
        excerpt(expression, *position),
        place(expression, *position)
    )]
    Filter {
        /// The expression.
        expression: String,
        /// What libpcap (or the kernel) said.
        message: String,
        /// Byte offset of the fault in the expression, if known.
        position: Option<usize>,
    },
    /// The interface for which a filter is to be compiled cannot be opened.
    #[error("cannot compile a filter for interface {interface}: {message}")]
    FilterInterface {
        /// The interface.
        interface: String,
        /// What libpcap said.
        message: String,
    },
    /// No interface has this name.
    #[error(transparent)]
    NoInterface(linerate_net::NoInterface),
    /// The link layer of the interface is unsupported by filters and file formats.
    #[error(
        "{interface} has a link layer of type {number} (ARPHRD); Ethernet, loopback and bare IP are \
         possible"
    )]
    LinkLayer {
        /// The interface.
        interface: String,
        /// The kernel's number of its link layer.
        number: u16,
    },
    /// libpcap does not know the link type of packets in a file.
    #[error("packets of link type {linktype} (LINKTYPE): libpcap does not know it")]
    LinkType {
        /// Its number.
        linktype: u16,
    },
    /// The kernel does not answer about its interfaces.
    #[error(transparent)]
    Net(#[from] linerate_net::Error),
    /// The source does not see this direction.
    #[error(
        "the source {kind} sees only the frames that {interface} receives; the source packet sees \
         outgoing ones"
    )]
    Direction {
        /// The interface.
        interface: String,
        /// The source.
        kind: crate::source::SourceKind,
    },
    /// The source does not know directions.
    #[error("the source drops does not know which way a packet went")]
    NoDirection,
    /// Only packet sockets report how the kernel would segment a super-packet.
    #[error(
        "splitting needs the source packet: the frames of the source {kind} come without the \
         kernel's metadata of segmentation, and an XDP program hardly ever sees a super-packet"
    )]
    Split {
        /// The source.
        kind: crate::source::SourceKind,
    },
    /// A file does not say which way a packet went.
    #[error("the file does not say the direction of packet {packet} (no epb_flags)")]
    Undirected {
        /// The packet's number in the file, from 1.
        packet: u64,
    },
    /// A ring failed; the message says on which interface.
    #[error(transparent)]
    Ring(#[from] linerate_ring::Error),
    /// Tracing programs have one reader.
    #[error("the source {kind} has one reader; the sources packet, tee and xdp may have several")]
    Threads {
        /// The source.
        kind: crate::source::SourceKind,
    },
    /// Classic pcap has one link type for all its packets.
    #[error(
        "the interfaces have different link layers, and a pcap file has only one; write pcapng, \
         or one file for each interface"
    )]
    LinkLayers,
    /// [`Retention::keep_free`](crate::sink::file::Retention::keep_free) cannot be kept.
    #[error(
        "less than {keep_free} of the file system of {} is free, and there is no older file of this capture to \
         delete{}; free space, or lower --keep-free; smaller files leave more of them to delete",
        path.display(),
        holder.as_ref().map_or(String::new(), |holder| format!(" that {holder} does not read"))
    )]
    KeepFree {
        /// The file that was written.
        path: std::path::PathBuf,
        /// What is to stay free.
        keep_free: linerate_pcapfile::KeepFree,
        /// Who has a lock on an older file.
        holder: Option<linerate_net::process::Process>,
    },
    /// A signal to end came while interfaces were being opened or the filter was compiled.
    #[error("a signal came before everything was open")]
    Stopped,
    /// A reader cannot run there.
    #[error("no reader can run on CPU {cpu}: {source}; `nproc` counts the CPUs, from 0")]
    Cpu {
        /// Its number.
        cpu: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The user to change to.
    #[error("cannot become user {user}: {reason}")]
    User {
        /// The name.
        user: String,
        /// Why not.
        reason: String,
    },
    /// libpcap compiles a filter for a file.
    #[error("cannot give libpcap a file in memory, for which it compiles the filter: {source}")]
    FilterFile {
        /// What the system said.
        source: io::Error,
    },
    /// A thread of the capture panicked, which ended the capture.
    #[error(
        "the {thread} panicked: {message}; the capture ended, and what was written before is whole. \
         This is a defect: please report it with these words"
    )]
    Panicked {
        /// Which thread.
        thread: String,
        /// What it said.
        message: String,
    },
    /// The kernel is too old to tell network namespaces apart for certain.
    #[error("cannot find the processes of packets: the kernel has no SO_NETNS_COOKIE (Linux 5.14)")]
    NamespaceCookie,
    /// A thread cannot be started.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether the reader of a pipe that was written to went away.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::File(error) if error.is_broken_pipe())
    }

    /// What [`std::panic::catch_unwind`] caught in `thread`.
    pub(crate) fn panicked(thread: String, panic: &(dyn Any + Send)) -> Self {
        let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "it gave no reason".to_owned(),
        };
        Self::Panicked { thread, message }
    }
}

/// The most characters of an expression in a message; some have thousands of terms.
const MAX_EXCERPT: usize = 160;

/// The expression, or the part of a long one around `position`.
fn excerpt(expression: &str, position: Option<usize>) -> Cow<'_, str> {
    let characters = expression.chars().count();
    if characters <= MAX_EXCERPT {
        return Cow::Borrowed(expression);
    }
    let at = position
        .map_or(0, |position| expression.get(..position).map_or(0, |text| text.chars().count()));
    let start = at.saturating_sub(MAX_EXCERPT / 2).min(characters - MAX_EXCERPT);
    let part: String = expression.chars().skip(start).take(MAX_EXCERPT).collect();
    let before = if start > 0 { "... " } else { "" };
    let after = if start + MAX_EXCERPT < characters { " ..." } else { "" };
    Cow::Owned(format!("{before}{part}{after}"))
}

/// ` at character 14, `foo``, or nothing.
fn place(expression: &str, position: Option<usize>) -> String {
    position.map_or_else(String::new, |position| {
        let (before, after) = expression.split_at(position);
        let word = after.split_whitespace().next().unwrap_or_default();
        format!(" at character {}, `{word}`", before.chars().count() + 1)
    })
}

impl From<linerate_bpf::Error> for Error {
    fn from(error: linerate_bpf::Error) -> Self {
        Self::Ring(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_part_of_a_long_expression_that_is_wrong() {
        assert_eq!(excerpt("udp prt 53", Some(4)), "udp prt 53");
        let long = format!("{}udp prt 53 or {}", "ip or ".repeat(1000), "\u{e4} or ".repeat(1000));
        let at = long.find("prt").expect("the word");
        let text = excerpt(&long, Some(at));
        assert!(text.contains("udp prt 53") && text.starts_with("... ") && text.ends_with(" ..."));
        assert!(text.chars().count() <= MAX_EXCERPT + 8, "{text}");
        for (position, start, end) in [(None, "ip or", " ..."), (Some(long.len()), "... ", "or ")] {
            let text = excerpt(&long, position);
            assert!(text.starts_with(start) && text.ends_with(end), "{text}");
        }
    }
}
