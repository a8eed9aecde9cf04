//! Netlink (netlink(7)) as the watch and the preflight use it: requests with their answers, and messages
//! and attributes read where they lie.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Marks an attribute that holds attributes.
const NESTED: u16 = 1 << 15;

/// A socket of one netlink protocol. It stays in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Channel(Socket);

/// A message in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// What it is, by the protocol's numbers.
    pub(crate) kind: u16,
    /// `NLM_F_` flags.
    pub(crate) flags: u16,
    /// What stands behind the header.
    pub(crate) body: &'a [u8],
}

impl Channel {
    /// Opens it in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        Ok(Self(socket))
    }

    /// Joins a multicast group.
    pub(crate) fn join(&self, group: u32) -> io::Result<()> {
        self.0.add_membership(group)
    }

    /// Asks for all of a kind, or for one thing, or for a change, and hands over the answers. False where
    /// something changed during a dump, which may then lack some.
    pub(crate) fn ask(
        &self,
        kind: u16,
        dump: bool,
        body: &[u8],
        mut take: impl FnMut(Message<'_>),
    ) -> io::Result<bool> {
        let flags = NLM_F_REQUEST | if dump { NLM_F_DUMP } else { NLM_F_ACK };
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend([0; 8]); // sequence and port: one request at a time needs neither
        request.extend(body);
        self.0.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        let mut whole = true;
        loop {
            let (bytes, _) = self.0.recv_from_full()?;
            for message in messages(&bytes) {
                whole &= message.flags & NLM_F_DUMP_INTR == 0;
                if message.kind != NLMSG_DONE && message.kind != NLMSG_ERROR {
                    take(message);
                    continue;
                }
                // Both begin with an error number, negative; 0 is none.
                return match number::<4>(message.body, 0).map_or(0, i32::from_ne_bytes) {
                    0.. => Ok(whole),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The messages of a buffer, up to the first that is cut.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(bytes).ok()?;
        bytes = bytes.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: message.message_type(),
            flags: message.flags(),
            body: message.payload(),
        })
    })
}

/// The attributes of a buffer with their kinds, up to the first that is cut.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let start = attribute.into_inner();
        let length = u16::from_ne_bytes(number(start, 0)?) as usize;
        let kind = u16::from_ne_bytes(number(start, 2)?);
        Some((kind & !(NESTED | 1 << 14), start.get(4..length)?))
    })
}

/// The attribute of this kind.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(is, value)| (is == kind).then_some(value))
}

/// The bytes of a number that stands at `at`.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// A 32-bit number in host order at the start of an attribute.
pub(crate) fn word(value: &[u8]) -> Option<u32> {
    number(value, 0).map(u32::from_ne_bytes)
}

/// Text that a zero ends.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Appends an attribute.
pub(crate) fn put(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    buffer.extend(((value.len() + 4) as u16).to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(value);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

/// Appends an attribute of attributes.
pub(crate) fn nest(buffer: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    put(buffer, kind | NESTED, &inner);
}

/// A message with its header, as the kernel writes them.
#[cfg(test)]
pub(crate) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 10]);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_read_back_as_written() {
        let mut bytes = Vec::new();
        put(&mut bytes, 7, b"abcde\0");
        nest(&mut bytes, 9, |inner| put(inner, 1, &5u32.to_ne_bytes()));
        assert_eq!(attributes(&bytes).map(|(kind, _)| kind).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(text(attribute(&bytes, 7).unwrap()), "abcde");
        let inner = attribute(&bytes, 9).unwrap();
        assert_eq!(attribute(inner, 1).and_then(word), Some(5));
        assert_eq!(attribute(&bytes, 8), None);
    }

    #[test]
    fn messages_follow_each_other_until_one_is_cut() {
        let mut bytes = message(24, &[1, 2, 3, 4]);
        bytes.extend(message(25, &[]));
        bytes.extend(&message(26, &[9; 8])[..20]);
        let kinds: Vec<_> = messages(&bytes).map(|message| message.kind).collect();
        assert_eq!(kinds, [24, 25]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
            prop_assert!(attributes(&bytes).count() <= bytes.len());
        }
    }
}
