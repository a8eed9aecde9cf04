//! The memory that the programs share with user space: `bpf/forward.h` in Rust, where its protocol is
//! told. Fields called raw there are kept as they stand in the frame.
#![allow(missing_docs, reason = "each field is told of in forward.h")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What maps and their types have hashed to, from the first layout to that of today, which a test looks at. Only
/// ever longer: a change of what the bytes mean, with the layout as it was, is the last number once more.
const LAYOUTS: &[u64] = &[0x720e_45a0_f7d1_afc6];

/// Number of the layout: programs of another one are not adopted.
pub const ABI: u32 = LAYOUTS.len() as u32;

/// Sessions in a bucket.
pub const WAYS: usize = 4;

/// Bits of [`SessionKey::kind`].
pub mod kind {
    pub const IPV4: u8 = 1;
    pub const IPV6: u8 = 2;
    pub const FAMILY: u8 = 3;
    /// Else UDP.
    pub const TCP: u8 = 4;
    pub const OUTER_SHIFT: u32 = 3;
    pub const INNER_SHIFT: u32 = 5;
    /// Two bits wide, shifted by one of the above.
    pub const TAG_8021Q: u8 = 1;
    pub const TAG_8021AD: u8 = 2;
}

/// Bits of [`Session::flags`].
pub mod flags {
    pub const NAT: u8 = 1 << 0;
    pub const TRACKED: u8 = 1 << 1;
    pub const CHECKED: u8 = 1 << 2;
}

/// Values of [`Session::origin`].
pub mod origin {
    pub const STATELESS: u8 = 0;
    pub const CONNTRACK: u8 = 1;
    pub const INSERTED: u8 = 2;
}

/// Set in the generation of a session that was ended.
pub const GENERATION_ENDED: u32 = 0x8000_0000;

/// Room of the devmap.
pub const PORTS_MAX: u32 = 256;

/// `struct session_key`. Addresses are the raw IPv4 source and destination, or the two halves of the
/// signature of the IPv6 ones.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct SessionKey {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub ifindex: u32,
    pub station: [u8; 6],
    pub kind: u8,
    pub dscp: u8,
    pub tag: [[u8; 2]; 2],
    pub generation: u32,
}

/// `struct session`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Session {
    pub key: SessionKey,
    pub version: u32,
    pub deadline: u32,
    pub owner: u32,
    pub seen: u8,
    pub unused: [u8; 3],
    pub packets: u64,
    pub bytes: u64,

    pub destination_mac: [u8; 6],
    pub source_mac: [u8; 6],
    pub out_tag: [[u8; 4]; 2],
    pub mtu: u16,
    pub port: u16,
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub network_delta: [u8; 2],
    pub transport_delta: [u8; 2],
    pub dscp: u8,
    pub out_tags: u8,
    pub flags: u8,
    pub origin: u8,
    pub created: u32,
    pub learned: u32,
    pub out_ifindex: u32,
    pub relearned: u32,
    pub reserved: [u8; 4],
}

/// Words of 64 bits in a [`Session`].
pub const SESSION_WORDS: usize = size_of::<Session>() / 8;

/// `struct bucket`, the element of the map `table`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Bucket {
    pub way: [Session; WAYS],
}

/// `struct addresses`, of an IPv6 session.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Addresses {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub out_source: [u8; 16],
    pub out_destination: [u8; 16],
}

/// `struct bucket6`, the element of the map `table6`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Bucket6 {
    pub way: [Addresses; WAYS],
}

/// `struct stray`: what CPUs other than the owner counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Stray {
    pub packets: u64,
    pub bytes: u64,
}

/// `struct strays`, the element of the map `strays`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Strays {
    pub way: [Stray; WAYS],
}

/// `struct hashed_session`: the value of the map `hashed`, in the three designs with hash maps.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HashedSession {
    pub session: Session,
    pub addresses: Addresses,
}

/// `struct pending`, the element of the map `pending`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pending {
    pub word: u64,
    pub bytes: u32,
    pub unused: u32,
}

/// `struct interface`, the value of the map `interfaces`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Interface {
    pub port: u32,
    pub mac: [u8; 6],
    pub unused: [u8; 2],
}

/// `struct control`, the whole of the section `.data.control`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Control {
    pub generation: u32,
    pub denied: u32,
    pub heartbeat: u64,
    pub patience: u64,
    pub refresh: u32,
    pub admission: u32,
    pub reserved: [u8; 32],
    pub seeds: [u64; 9],
    pub abi: u32,
    pub statistics: u32,
    pub fib: u32,
    pub multi_buffer: u32,
    pub reserved2: [u64; 5],
}

/// `struct beat`, the context of the program `beat`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Beat {
    pub jiffies: u64,
}

/// `struct end`, the context of the program `end`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct End {
    pub key: SessionKey,
    pub cpu: u32,
    pub retire: u32,
    pub ended: u32,
    pub busy: u32,
}

/// `struct denied4_key`, of the map `denied4`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Denied4Key {
    pub prefix_len: u32,
    pub address: [u8; 4],
}

/// `struct denied6_key`, of the map `denied6`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Denied6Key {
    pub prefix_len: u32,
    pub address: [u8; 16],
}

/// `struct denied_session_key`, of the map `denied_sessions`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Denied {
    pub expires: u64,
    pub dropped: u64,
}

#[cfg(test)]
mod tests;
