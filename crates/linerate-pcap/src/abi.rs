//! The types and numbers of libpcap's interface, as `pcap/pcap.h` and `pcap/bpf.h` have them.

use std::ffi::{c_int, c_uchar, c_uint};

use linerate_bpf::filter::ClassicInstruction;

/// A capture handle. Always one of the system's libpcap, which alone knows what is in it.
#[repr(C)]
pub(crate) struct Pcap {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) stamp: libc::timeval,
    pub(crate) captured: u32,
    pub(crate) len: u32,
}

impl Header {
    pub(crate) const ZERO: Self =
        Self { stamp: libc::timeval { tv_sec: 0, tv_usec: 0 }, captured: 0, len: 0 };
}

/// `struct pcap_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) received: c_uint,
    pub(crate) dropped: c_uint,
    pub(crate) interface_dropped: c_uint,
}

/// `struct linerate_pcap_stat64` of `linerate/pcap.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics64 {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) interface_dropped: u64,
}

/// `struct bpf_program`; `struct bpf_insn` is laid out as [`ClassicInstruction`].
#[repr(C)]
pub(crate) struct Program {
    pub(crate) len: c_uint,
    pub(crate) instructions: *mut ClassicInstruction,
}

/// `pcap_handler`. It may leave by an exception of C++, or by `pthread_exit`.
pub(crate) type Handler = unsafe extern "C-unwind" fn(*mut c_uchar, *const Header, *const c_uchar);

/// `PCAP_ERROR`.
pub(crate) const ERROR: c_int = -1;
/// `PCAP_ERROR_BREAK`.
pub(crate) const ERROR_BREAK: c_int = -2;
/// `PCAP_ERRBUF_SIZE`.
pub(crate) const ERRBUF_SIZE: usize = 256;
/// `MAXIMUM_SNAPLEN` of libpcap for Ethernet.
pub(crate) const SNAPLEN_MAX: u32 = 262_144;
/// `PCAP_TSTAMP_ADAPTER` and `PCAP_TSTAMP_ADAPTER_UNSYNCED`.
pub(crate) const ADAPTER_TIMESTAMPS: [c_int; 2] = [3, 4];
/// `PCAP_TSTAMP_PRECISION_NANO`.
pub(crate) const PRECISION_NANO: c_int = 1;
/// `PCAP_D_IN` and `PCAP_D_OUT`.
pub(crate) const DIRECTION_IN: c_int = 1;
pub(crate) const DIRECTION_OUT: c_int = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header_files() {
        assert_eq!(size_of::<Header>(), 24);
        assert_eq!(size_of::<Statistics>(), 12);
        assert_eq!(size_of::<Program>(), 16);
        assert_eq!(size_of::<ClassicInstruction>(), 8);
    }
}
