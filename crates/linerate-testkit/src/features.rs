//! Offloads, switched through ethtool's generic netlink family
//! (Documentation/networking/ethtool-netlink.rst), so that no program is needed.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use nix::errno::Errno;

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLA_F_NESTED: u16 = 1 << 15;
/// Bytes of a netlink header and the generic header behind it.
const HEADERS: usize = 16 + 4;

/// Sets features of the interface `index` of the calling thread's namespace. Names that the kernel
/// does not have are an error of the kernel only when they stand alone, so each goes by itself.
pub(crate) fn set_features(index: u32, features: &[(&str, bool)]) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = family_id(&socket)?;
    for (name, on) in features {
        let mut header = Vec::new();
        attribute(&mut header, ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
        attribute(&mut header, ETHTOOL_A_HEADER_FLAGS, &ETHTOOL_FLAG_OMIT_REPLY.to_ne_bytes());
        let mut bit = Vec::new();
        attribute(&mut bit, ETHTOOL_A_BITSET_BIT_NAME, &terminated(name));
        if *on {
            attribute(&mut bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
        }
        let wanted = nested(ETHTOOL_A_BITSET_BITS, &nested(ETHTOOL_A_BITSET_BITS_BIT, &bit));
        let mut body = nested(ETHTOOL_A_FEATURES_HEADER, &header);
        body.extend(nested(ETHTOOL_A_FEATURES_WANTED, &wanted));
        match exchange(&socket, family, ETHTOOL_MSG_FEATURES_SET, NLM_F_ACK, &body) {
            Ok(_) => {}
            // This kernel does not know the feature, or the driver fixes it.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {}
            Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn family_id(socket: &Socket) -> io::Result<u16> {
    let mut body = Vec::new();
    attribute(&mut body, CTRL_ATTR_FAMILY_NAME, &terminated("ethtool"));
    let answer = exchange(socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, &body)?;
    let missing =
        || io::Error::new(io::ErrorKind::Unsupported, "this kernel has no ethtool netlink");
    let value = attributes(answer.get(HEADERS..).unwrap_or_default())
        .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID)
        .and_then(|(_, value)| <[u8; 2]>::try_from(value).ok());
    value.map(u16::from_ne_bytes).ok_or_else(missing)
}

fn exchange(
    socket: &Socket,
    family: u16,
    command: u8,
    flags: u16,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let mut request = Vec::with_capacity(HEADERS + body.len());
    request.extend(((HEADERS + body.len()) as u32).to_ne_bytes());
    request.extend(family.to_ne_bytes());
    request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    request.extend([0; 8]); // sequence and port: one question at a time needs neither
    request.extend([command, 1, 0, 0]);
    request.extend(body);
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let kind = answer.get(4..6).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
    let code = answer.get(16..20).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(answer),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        (Some(_), _) => Ok(answer),
        (None, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "a netlink answer is cut")),
    }
}

fn terminated(text: &str) -> Vec<u8> {
    text.bytes().chain([0]).collect()
}

fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 4);
    attribute(&mut bytes, kind | NLA_F_NESTED, value);
    bytes
}

fn attribute(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    buffer.extend(((value.len() + 4) as u16).to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(value);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !NLA_F_NESTED, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_back_as_written() {
        let mut bytes = Vec::new();
        attribute(&mut bytes, 7, b"abcde");
        attribute(&mut bytes, 9 | NLA_F_NESTED, &[]);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(7, &b"abcde"[..]), (9, &b""[..])]);
        assert_eq!(bytes.len(), 12 + 4);
    }

    #[test]
    fn a_cut_attribute_ends_the_walk() {
        assert_eq!(attributes(&[12, 0, 1, 0, 5]).count(), 0);
        assert_eq!(attributes(&[2, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[4]).count(), 0);
    }
}
