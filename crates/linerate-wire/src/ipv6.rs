//! IPv6 headers and the walk over extension headers (RFC 8200).

use core::net::Ipv6Addr;

use crate::error::require;
use crate::protocol::Protocol;
use crate::{Error, Result, read};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;

/// Extension headers that [`Packet::upper_layer`] follows before it gives up; real packets have one or two.
pub const MAX_EXTENSIONS: usize = 16;

/// All nodes of the link (RFC 4291 §2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group that whoever has `address` listens to for neighbour solicitations (RFC 4291 §2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a & 0xff, b)
}

const WHAT: &str = "IPv6 header";

mod field {
    use core::ops::Range;
    pub(super) const VERSION_CLASS_LABEL: Range<usize> = 0..4;
    pub(super) const PAYLOAD_LEN: Range<usize> = 4..6;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SOURCE: usize = 8;
    pub(super) const DESTINATION: usize = 24;
}

/// A view of an IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// A view of bytes that hold a complete fixed header of version 6.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        if bytes[0] >> 4 != 6 {
            return Err(Error::Malformed { what: WHAT, why: "version is not 6" });
        }
        Ok(Self(bytes))
    }

    /// Differentiated services and explicit congestion notification.
    pub fn traffic_class(&self) -> u8 {
        (read::u32(self.0, field::VERSION_CLASS_LABEL) >> 20) as u8
    }

    /// Length of everything after the fixed header, as the header claims it.
    pub fn payload_len(&self) -> u16 {
        read::u16(self.0, field::PAYLOAD_LEN)
    }

    /// Whether the header says the packet's length. It does not in a jumbogram (RFC 2675), as Linux' super-packets over
    /// 64 KiB are, nor where the sender leaves it to the card, which segments TCP and UDP, also in tunnels.
    pub fn has_len(&self) -> bool {
        let may_lack = matches!(
            self.next_header(),
            Protocol::HOP_BY_HOP
                | Protocol::TCP
                | Protocol::UDP
                | Protocol::GRE
                | Protocol::IPV4
                | Protocol::IPV6
        );
        self.payload_len() != 0 || !may_lack
    }

    /// Length of header and payload that the header claims; all that is there where it [claims
    /// nothing](Self::has_len).
    pub fn total_len(&self) -> usize {
        match self.has_len() {
            true => HEADER_LEN + usize::from(self.payload_len()),
            false => self.0.len(),
        }
    }

    /// What follows the fixed header: an extension header, or the upper layer.
    pub fn next_header(&self) -> Protocol {
        Protocol(read::u8(self.0, field::NEXT_HEADER))
    }

    /// Hops left.
    pub fn hop_limit(&self) -> u8 {
        read::u8(self.0, field::HOP_LIMIT)
    }

    /// Who sent it.
    pub fn source(&self) -> Ipv6Addr {
        read::array::<16>(self.0, field::SOURCE).into()
    }

    /// Whom it is for.
    pub fn destination(&self) -> Ipv6Addr {
        read::array::<16>(self.0, field::DESTINATION).into()
    }

    /// Walks the extension headers to what the packet carries.
    ///
    /// # Errors
    /// [`Error::Truncated`] where an extension header is not complete, [`Error::Malformed`] where there
    /// are more than [`MAX_EXTENSIONS`].
    pub fn upper_layer(&self) -> Result<UpperLayer> {
        let bytes = read::clamp(self.0, 0, self.total_len());
        let mut upper =
            UpperLayer { protocol: self.next_header(), offset: HEADER_LEN, fragment: None };
        for _ in 0..MAX_EXTENSIONS {
            if !upper.protocol.is_extension() || upper.is_later_fragment() {
                return Ok(upper);
            }
            let rest = bytes.get(upper.offset..).unwrap_or(&[]);
            require("IPv6 extension header", rest, 8)?;
            let units = usize::from(rest[1]);
            let len = match upper.protocol {
                Protocol::FRAGMENT => {
                    upper.fragment = Some(Fragment {
                        offset: read::u16(rest, 2..4) & 0xfff8,
                        more: rest[3] & 1 == 1,
                        identification: read::u32(rest, 4..8),
                    });
                    8
                }
                Protocol::AUTHENTICATION => (units + 2) * 4,
                _ => (units + 1) * 8,
            };
            require("IPv6 extension header", rest, len)?;
            upper.protocol = Protocol(rest[0]);
            upper.offset += len;
        }
        if upper.protocol.is_extension() && !upper.is_later_fragment() {
            return Err(Error::Malformed { what: "IPv6 packet", why: "over 16 extension headers" });
        }
        Ok(upper)
    }

    /// Everything after the fixed header without link-layer padding; shorter than claimed where the
    /// capture was cut.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.0, HEADER_LEN, self.total_len())
    }
}

/// Where the extension headers of a packet end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpperLayer {
    /// What the packet carries. In a fragment that is not the first this is what the fragment header
    /// names, although its bytes are not there.
    pub protocol: Protocol,
    /// Where it starts, in bytes from the start of the IPv6 header.
    pub offset: usize,
    /// The fragment header, where there is one.
    pub fragment: Option<Fragment>,
}

impl UpperLayer {
    /// A fragment without the start of what it carries.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset != 0)
    }
}

/// What a fragment header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Where the fragment belongs, in bytes.
    pub offset: u16,
    /// Not the last one.
    pub more: bool,
    /// Says which fragments belong together.
    pub identification: u32,
}

/// A header without extensions as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Who sends it.
    pub source: Ipv6Addr,
    /// Whom it is for.
    pub destination: Ipv6Addr,
    /// What follows the fixed header.
    pub next_header: Protocol,
    /// Length of everything after the fixed header in bytes.
    pub payload_len: usize,
    /// Differentiated services and congestion notification.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Hops left.
    pub hop_limit: u8,
}

impl Repr {
    /// Writes the header at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        let len = u16::try_from(self.payload_len)
            .map_err(|_| Error::Malformed { what: WHAT, why: "payload over 65535 bytes" })?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        read::put(bytes, field::VERSION_CLASS_LABEL.start, &first.to_be_bytes());
        read::put(bytes, field::PAYLOAD_LEN.start, &len.to_be_bytes());
        read::put(bytes, field::NEXT_HEADER, &[self.next_header.0, self.hop_limit]);
        read::put(bytes, field::SOURCE, &self.source.octets());
        read::put(bytes, field::DESTINATION, &self.destination.octets());
        Ok(())
    }
}
