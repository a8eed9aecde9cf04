//! Memory that the programs and user space share: `bpf/layout.h` in Rust, which describes the protocol. Raw
//! fields are as in the frame.
#![allow(missing_docs, reason = "layout.h describes each field")]

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Hashes of the maps and their types, from the first layout to the current one, which a test checks. Append only:
/// when the meaning of the bytes changes but not the layout, append the last number again.
const LAYOUTS: &[u64] = &[
    0x720e_45a0_f7d1_afc6,
    0x6f51_34e4_8e66_0930,
    0x9fe8_0e40_c61a_5cf6,
    0x67cf_19ee_cc96_abbf,
    0x7f33_623f_e1ca_453f,
    0x0396_22b7_a123_3728,
    0xfa97_0d62_1a3e_32a3,
    0x808a_8e27_7a6c_cfb3,
    0x47d0_886a_5da2_edb5,
    0xa5a0_e610_bccc_4000,
    0xd226_bb97_47fe_f68e,
    0xd226_bb97_47fe_f68e,
    0x9c02_3269_54fb_ac5a,
    0x7c86_8a44_407d_8e11,
    0x1d9d_cc0c_d76f_1445,
    0xcbb2_79fb_23b8_e791,
    0xc362_d18f_0fe3_c3d4,
];

/// FNV-1a: it distinguishes layouts, and is not cryptographic.
#[cfg(test)]
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Number of the layout. Programs of another layout are not adopted.
pub const ABI: u32 = LAYOUTS.len() as u32;

/// Sessions in a bucket.
pub const WAYS: usize = 8;

/// Bits of [`Session::kind`].
pub mod kind {
    pub const IPV4: u8 = 1;
    pub const IPV6: u8 = 2;
    pub const FAMILY: u8 = 3;
    /// Otherwise UDP.
    pub const TCP: u8 = 4;
    pub const OUTER_VLAN_SHIFT: u32 = 3;
    pub const INNER_VLAN_SHIFT: u32 = 5;
    /// Two bits wide, shifted by one of the above.
    pub const VLAN_8021Q: u8 = 1;
    pub const VLAN_8021AD: u8 = 2;
}

/// Bits of [`Hop::flags`].
pub mod flags {
    pub const NAT: u8 = 1 << 0;
    pub const TRACKED: u8 = 1 << 1;
    pub const VERIFY_CHECKSUM: u8 = 1 << 2;
    pub const UNREPORTED: u8 = 1 << 3;
    pub const TC: u8 = 1 << 4;
    pub const FIB: u8 = 1 << 5;
}

/// Bits of [`Interface::flags`].
pub mod interface {
    pub const XDP: u16 = 1 << 0;
    pub const XDP_IN: u16 = 1 << 1;
    pub const XDP_OUT: u16 = 1 << 2;
    pub const TC_IN: u16 = 1 << 3;
    pub const TC_OUT: u16 = 1 << 4;
    pub const ETHERNET: u16 = 1 << 5;
    pub const VLAN: u16 = 1 << 6;
}

/// Bits of [`Cold::created`] that count the sessions of a slot.
pub const CREATED_NUMBER: u32 = 0xf;
/// Another connection waits for the slot of this session, which has ended.
pub const CREATED_WANTED: u32 = 0x10;

/// When a session began, low half of jiffies, of [`Cold::created`].
pub const fn created(word: u32) -> u32 {
    word & !(CREATED_NUMBER | CREATED_WANTED)
}

/// Set in the generation of a session that has ended.
pub const GENERATION_ENDED: u32 = 0x8000_0000;
/// Beside it, where a FIN or RST ended the session; the first number that no generation has.
pub const GENERATION_CLOSED: u32 = 0x4000_0000;

/// Room of the devmap: a port for each interface.
pub const PORTS_MAX: u32 = crate::config::MAX_INTERFACES as u32;

/// Bit of [`Session::owner`].
pub const REFERENCED: u16 = 0x8000;

/// Words of 64 bits in a [`Hop`] before its state.
pub const HOP_WORDS: usize = 7;

/// [`Hop::state`]: the lowest two bits; the others count how often it was filled in.
pub mod hop_state {
    pub const MASK: u32 = 3;
    pub const FREE: u32 = 0;
    pub const CLAIMED: u32 = 1;
    pub const USED: u32 = 2;
    pub const UNUSED: u32 = 3;
    pub const FILLED: u32 = 4;
}

/// Bits of [`Control::rules`], for IPv4; those for IPv6 are one higher.
pub mod rules {
    pub const ROUTE: u32 = 1 << 0;
    pub const OFFLOADED: u32 = 1 << 2;
}

/// Entries in a [`RuleList`].
pub const RULE_ENTRIES: usize = 256;
/// Entries of the map `kept_rules`.
pub const RULES_MAX: usize = 1024;

/// Bits of [`RuleEntry::seen`].
pub mod seen {
    pub const SOURCE_OUT: u8 = 1;
    pub const DESTINATION_OUT: u8 = 2;
    pub const DEVICE: u8 = 4;
    pub const OFFLOADED: u8 = 8;
}

/// `struct rule_set`: entries of a list, a bit each.
pub type RuleSet = [u64; RULE_ENTRIES / 64];

/// Groups of the values of a field in [`RuleList`].
pub const RULE_GROUPS: usize = 64;

/// Constants of [`Refresh`].
pub mod refresh {
    pub const ENTRIES: usize = 256;
    pub const IDLE: u32 = 0x7fff_ffff;
    pub const FORCED: u32 = 0x8000_0000;
    pub const UNACKNOWLEDGED: u32 = 1;
    /// Bytes of the packet before the entries.
    pub const START: usize = 16;
}

/// Structures as the programs have them, of bytes of any value; by default all zero.
macro_rules! structures {
    ($($(#[$attribute:meta])* pub struct $name:ident {
        $($(#[$about:meta])* pub $field:ident: $type:ty,)*
    })*) => { $(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new_zeroed()
            }
        }
    )* };
}

structures! {
    /// `struct session`: what a session does not share with others. Its ports as they come in are one word in the header.
    #[repr(align(8))]
    pub struct Session {
        pub in_source: [u8; 4],
        pub in_destination: [u8; 4],
        pub ports: [[u8; 2]; 2],
        pub kind: u8,
        pub dscp: u8,
        pub hop: u16,
        pub generation: u32,
        pub version: u32,
        pub deadline: u32,
        pub owner: u16,
        pub route_generation: u16,
        pub packets: u64,
        pub bytes: u64,
        /// IPv6, as [`Session::destination`]: the index in `hops` of an address after NAT, plus one; 0: unchanged.
        pub source: [u8; 4],
        pub destination: [u8; 4],
        pub source_port: [u8; 2],
        pub destination_port: [u8; 2],
        pub network_delta: [u8; 2],
        pub transport_delta: [u8; 2],
    }

    /// `struct hop`: what sessions share.
    #[repr(align(8))]
    pub struct Hop {
        pub ifindex: u32,
        pub tag: [[u8; 2]; 2],
        pub dst_mac: [u8; 6],
        pub mtu: u16,
        pub destination_mac: [u8; 6],
        pub source_mac: [u8; 6],
        pub dscp: u8,
        pub out_tags: u8,
        pub flags: u8,
        pub port: u8,
        pub out_tag: [[u8; 4]; 2],
        pub out_ifindex: u32,
        pub mark: u32,
        pub priority: u32,
        pub zone: u32,
        pub state: u32,
        pub unused2: u32,
    }

    /// `struct nat_address`: an entry of `hops`, too.
    #[repr(align(8))]
    pub struct NatAddress {
        pub no_link: [u8; 16],
        pub address: [u8; 16],
        pub unused: [u8; 32],
    }

    /// `struct addresses`, of an IPv6 session.
    pub struct Addresses {
        pub source: [u8; 16],
        pub destination: [u8; 16],
    }

    /// `struct counters`: packets and bytes.
    #[derive(serde::Serialize)]
    pub struct Counters {
        pub packets: u64,
        pub bytes: u64,
    }

    /// `struct cold`: the fields of a session that packets rarely touch.
    pub struct Cold {
        pub remote: Counters,
        pub created: u32,
        pub used: u32,
    }

    /// `struct interface`, the value of the map `interfaces`.
    pub struct Interface {
        pub port: u32,
        pub mac: [u8; 6],
        pub flags: u16,
        pub tag: [u8; 4],
    }

    /// `struct control`, the whole of the section `.data.control`.
    pub struct Control {
        pub generation: u32,
        pub denied: u32,
        pub heartbeat: u64,
        pub heartbeat_timeout: u64,
        pub revalidate_after: u32,
        pub admission: u32,
        pub rules: u32,
        pub route_generation: u32,
        pub route_generation_marked: u32,
        pub verify_checksums: u32,
        pub reserved: [u8; 16],
        pub seeds: [u64; 9],
        pub abi: u32,
        pub statistics: u32,
        pub multi_buffer: u32,
        pub taken: u32,
        pub room: u32,
        pub reserved2: [u32; 9],
    }

    /// `struct rule_entry`: first and last number of each range.
    pub struct RuleEntry {
        pub source: [[u64; 2]; 2],
        pub destination: [[u64; 2]; 2],
        pub input: [u32; 2],
        pub output: [u32; 2],
        pub mark: [u32; 2],
        pub source_port: [u16; 2],
        pub destination_port: [u16; 2],
        pub dscp: [u8; 2],
        pub seen: u8,
        pub unused: u8,
        pub skip: u16,
        pub rule: u16,
    }

    /// `struct rule_list`, the element of the map `rules`.
    pub struct RuleList {
        pub count: u32,
        pub unused: u32,
        pub source_out: RuleSet,
        pub destination_out: RuleSet,
        pub source: [RuleSet; RULE_GROUPS],
        pub destination: [RuleSet; RULE_GROUPS],
        pub source_port: [RuleSet; RULE_GROUPS],
        pub destination_port: [RuleSet; RULE_GROUPS],
        pub entries: [RuleEntry; RULE_ENTRIES],
    }

    /// `struct kept_rule`, the element of the map `kept_rules`.
    pub struct KeptRule {
        pub packets: u64,
        pub name: [u8; 120],
    }

    /// `struct heartbeat`, the context of the program of that name.
    pub struct Heartbeat {
        pub jiffies: u64,
    }

    /// `struct refresh`, of the program of that name.
    pub struct Refresh {
        pub slot: u32,
        pub idle: u32,
    }

    /// `struct denied4_key`, of the map `denied4`.
    pub struct Denied4Key {
        pub prefix_len: u32,
        pub address: [u8; 4],
    }

    /// `struct denied6_key`, of the map `denied6`.
    pub struct Denied6Key {
        pub prefix_len: u32,
        pub address: [u8; 16],
    }

    /// `struct denied_session_key`, of the map `denied_sessions`.
    pub struct DeniedSessionKey {
        pub source: [u8; 16],
        pub destination: [u8; 16],
        pub source_port: [u8; 2],
        pub destination_port: [u8; 2],
        pub protocol: u8,
        pub family: u8,
        pub unused: [u8; 2],
    }

    /// `struct denied`, the value of all three.
    pub struct Denied {
        pub expires: u64,
        pub dropped: u64,
    }
}

#[cfg(test)]
mod tests;
