//! Tunnels through UDP: what a datagram of each carries.

use crate::error::require;
use crate::ethernet::EtherType;
use crate::ip::Protocol;
use crate::{Error, Result, geneve, read, vxlan};

/// The UDP port of GTP-U (3GPP TS 29.281 section 4.4.2).
pub const GTP_PORT: u16 = 2152;

/// The UDP port of GUE (draft-ietf-intarea-gue section 3.1).
pub const GUE_PORT: u16 = 6080;

/// Length in bytes of a GTP-U header without its optional fields.
const GTP_HEADER_LEN: usize = 8;

/// The extension header of GTP-U that 5G has (3GPP TS 38.415).
const PDU_SESSION_CONTAINER: u8 = 0x85;

/// A tunnel protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdpTunnel {
    /// RFC 7348.
    Vxlan,
    /// User data of mobile networks (3GPP TS 29.281). Its header has a length.
    Gtp,
    /// RFC 8926.
    Geneve,
    /// Generic UDP encapsulation, and IP directly in UDP, as Linux' FOU has it.
    Gue,
}

impl UdpTunnel {
    /// All, in the order of `detect`: the strictest header check first.
    pub const ALL: [Self; 4] = [Self::Vxlan, Self::Gtp, Self::Geneve, Self::Gue];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "VXLAN",
            Self::Gtp => "GTP-U",
            Self::Geneve => "Geneve",
            Self::Gue => "GUE",
        }
    }

    /// What the payload of a datagram carries, and behind how many bytes; [`EtherType::TEB`] for an Ethernet frame.
    /// `None` if the header says something about this one packet, or what is not known.
    ///
    /// # Errors
    /// The header is incomplete or malformed.
    pub fn payload_type(self, payload: &[u8]) -> Result<Option<(EtherType, usize)>> {
        Ok(match self {
            Self::Vxlan => vxlan::Packet::new_checked(payload)?
                .is_plain()
                .then_some((EtherType::TEB, vxlan::HEADER_LEN)),
            Self::Geneve => {
                let header = geneve::Packet::new_checked(payload)?;
                Some((header.protocol(), header.header_len()))
            }
            Self::Gtp => gtp(payload)?.and_then(|len| Some((ip_version(payload, len)?, len))),
            Self::Gue => gue(payload)?,
        })
    }

    /// The tunnel of a datagram for any port, by its header alone. One of something else may begin so, too: verify what
    /// is inside.
    pub fn detect(payload: &[u8]) -> Option<(Self, EtherType, usize)> {
        Self::ALL.into_iter().find_map(|tunnel| {
            let (ether_type, len) = tunnel.payload_type(payload).ok()??;
            let is_known = matches!(ether_type, EtherType::TEB | EtherType::IPV4 | EtherType::IPV6);
            is_known.then_some((tunnel, ether_type, len))
        })
    }
}

/// The length of a GTP-U header of user data.
fn gtp(payload: &[u8]) -> Result<Option<usize>> {
    const WHAT: &str = "GTP-U header";
    require(WHAT, payload, GTP_HEADER_LEN)?;
    let (flags, kind) = (payload[0], payload[1]);
    if flags & 0xf0 != 0x30
        || usize::from(read::u16(payload, 2..4)) != payload.len() - GTP_HEADER_LEN
    {
        return Err(Error::Malformed { what: WHAT, why: "another version, or another length" });
    }
    // User data without sequence and N-PDU numbers.
    if kind != 255 || flags & 0x03 != 0 {
        return Ok(None);
    }
    if flags & 0x04 == 0 {
        return Ok(Some(GTP_HEADER_LEN));
    }
    require(WHAT, payload, GTP_HEADER_LEN + 8)?;
    match payload[GTP_HEADER_LEN + 3..] {
        // One container of four bytes, and no number or time in it.
        [PDU_SESSION_CONTAINER, 1, container, _, 0, ..] if container & 0x0f == 0 => {
            Ok(Some(GTP_HEADER_LEN + 8))
        }
        _ => Ok(None),
    }
}

fn gue(payload: &[u8]) -> Result<Option<(EtherType, usize)>> {
    const WHAT: &str = "GUE header";
    require(WHAT, payload, 4)?;
    let [first, protocol, flags @ ..] = payload else { return Ok(None) };
    let header_len = 4 + 4 * usize::from(first & 0x1f);
    let is_possible = match first >> 6 {
        0 => header_len <= payload.len(),
        1 => ip_version(payload, 0).is_some(),
        _ => false,
    };
    if !is_possible {
        return Err(Error::Malformed {
            what: WHAT,
            why: "another version, or longer than its packet",
        });
    }
    Ok(match first >> 6 {
        // Data without flags, and so without fields.
        0 if first & 0x3f == 0 && flags.starts_with(&[0, 0]) => match Protocol(*protocol) {
            Protocol::IPV4 => Some((EtherType::IPV4, 4)),
            Protocol::IPV6 => Some((EtherType::IPV6, 4)),
            _ => None,
        },
        1 => ip_version(payload, 0).map(|ether_type| (ether_type, 0)),
        _ => None,
    })
}

/// The type of an IP packet by its version.
pub(crate) fn ip_version(bytes: &[u8], at: usize) -> Option<EtherType> {
    match bytes.get(at)? >> 4 {
        4 => Some(EtherType::IPV4),
        6 => Some(EtherType::IPV6),
        _ => None,
    }
}
