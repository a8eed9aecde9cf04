//! The functions of the system's libpcap: those that go straight through, exported under their own names,
//! and in [`real`] all that this library calls itself.

use std::ffi::{c_char, c_int, c_long, c_uchar, c_uint, c_void};

use linerate_bpf::filter::ClassicInstruction;

use crate::abi::{Handler, Header, Pcap, Program, Statistics};
use crate::system::{BREAKLOOP, Symbol};

macro_rules! call {
    ($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {{
        static REAL: Symbol = Symbol::new(
            match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
        );
        call!(REAL, $name($($argument: $type),*) $(-> $result)?)
    }};
    ($symbol:expr, $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {{
        let real: unsafe extern "C-unwind" fn($($type),*) $(-> $result)? =
            // SAFETY: the function of this name, with the type that libpcap's header files give it.
            unsafe { std::mem::transmute($symbol.resolve()) };
        // SAFETY: the caller's arguments, for whose validity it answers as to libpcap itself.
        unsafe { real($($argument),*) }
    }};
}

/// Functions that libpcap does as ever.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
                call!($name($($argument: $type),*) $(-> $result)?)
            }
        )*
    };
}

/// Functions that this library does, as libpcap has them.
macro_rules! import {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                call!($name($($argument: $type),*) $(-> $result)?)
            }
        )*
    };
}

forward! {
    fn pcap_init(options: c_uint, errbuf: *mut c_char) -> c_int;
    fn pcap_lookupdev(errbuf: *mut c_char) -> *mut c_char;
    fn pcap_lookupnet(device: *const c_char, net: *mut u32, mask: *mut u32, errbuf: *mut c_char) -> c_int;
    fn pcap_can_set_rfmon(p: *mut Pcap) -> c_int;
    fn pcap_get_tstamp_precision(p: *mut Pcap) -> c_int;
    fn pcap_list_tstamp_types(p: *mut Pcap, types: *mut *mut c_int) -> c_int;
    fn pcap_free_tstamp_types(types: *mut c_int);
    fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int;
    fn pcap_tstamp_type_val_to_name(value: c_int) -> *const c_char;
    fn pcap_tstamp_type_val_to_description(value: c_int) -> *const c_char;
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut Pcap;
    fn pcap_open_dead_with_tstamp_precision(linktype: c_int, snaplen: c_int, precision: c_uint) -> *mut Pcap;
    fn pcap_open_offline(name: *const c_char, errbuf: *mut c_char) -> *mut Pcap;
    fn pcap_open_offline_with_tstamp_precision(name: *const c_char, precision: c_uint, errbuf: *mut c_char) -> *mut Pcap;
    fn pcap_fopen_offline(file: *mut c_void, errbuf: *mut c_char) -> *mut Pcap;
    fn pcap_fopen_offline_with_tstamp_precision(file: *mut c_void, precision: c_uint, errbuf: *mut c_char) -> *mut Pcap;
    fn pcap_getnonblock(p: *mut Pcap, errbuf: *mut c_char) -> c_int;
    fn pcap_statustostr(status: c_int) -> *const c_char;
    fn pcap_strerror(errno: c_int) -> *const c_char;
    fn pcap_geterr(p: *mut Pcap) -> *mut c_char;
    fn pcap_perror(p: *mut Pcap, prefix: *const c_char);
    fn pcap_compile_nopcap(snaplen: c_int, linktype: c_int, program: *mut Program, text: *const c_char, optimize: c_int, mask: u32) -> c_int;
    fn pcap_freecode(program: *mut Program);
    fn pcap_offline_filter(program: *const Program, header: *const Header, bytes: *const c_uchar) -> c_int;
    fn pcap_datalink(p: *mut Pcap) -> c_int;
    fn pcap_datalink_ext(p: *mut Pcap) -> c_int;
    fn pcap_list_datalinks(p: *mut Pcap, list: *mut *mut c_int) -> c_int;
    fn pcap_set_datalink(p: *mut Pcap, linktype: c_int) -> c_int;
    fn pcap_free_datalinks(list: *mut c_int);
    fn pcap_datalink_name_to_val(name: *const c_char) -> c_int;
    fn pcap_datalink_val_to_name(value: c_int) -> *const c_char;
    fn pcap_datalink_val_to_description(value: c_int) -> *const c_char;
    fn pcap_datalink_val_to_description_or_dlt(value: c_int) -> *const c_char;
    fn pcap_snapshot(p: *mut Pcap) -> c_int;
    fn pcap_is_swapped(p: *mut Pcap) -> c_int;
    fn pcap_major_version(p: *mut Pcap) -> c_int;
    fn pcap_minor_version(p: *mut Pcap) -> c_int;
    fn pcap_bufsize(p: *mut Pcap) -> c_int;
    fn pcap_file(p: *mut Pcap) -> *mut c_void;
    fn pcap_get_required_select_timeout(p: *mut Pcap) -> *const c_void;
    fn pcap_dump_open(p: *mut Pcap, name: *const c_char) -> *mut c_void;
    fn pcap_dump_fopen(p: *mut Pcap, file: *mut c_void) -> *mut c_void;
    fn pcap_dump_open_append(p: *mut Pcap, name: *const c_char) -> *mut c_void;
    fn pcap_dump_file(dumper: *mut c_void) -> *mut c_void;
    fn pcap_dump_ftell(dumper: *mut c_void) -> c_long;
    fn pcap_dump_ftell64(dumper: *mut c_void) -> i64;
    fn pcap_dump_flush(dumper: *mut c_void) -> c_int;
    fn pcap_dump_close(dumper: *mut c_void);
    fn pcap_dump(user: *mut c_uchar, header: *const Header, bytes: *const c_uchar);
    fn pcap_findalldevs(list: *mut *mut c_void, errbuf: *mut c_char) -> c_int;
    fn pcap_freealldevs(list: *mut c_void);
    fn pcap_lib_version() -> *const c_char;
    fn bpf_filter(program: *const ClassicInstruction, bytes: *const c_uchar, len: c_uint, captured: c_uint) -> c_uint;
    fn bpf_validate(program: *const ClassicInstruction, len: c_int) -> c_int;
    fn bpf_image(instruction: *const ClassicInstruction, number: c_int) -> *mut c_char;
    fn bpf_dump(program: *const Program, option: c_int);
    fn pcap_next_etherent(file: *mut c_void) -> *mut c_void;
    fn pcap_ether_hostton(name: *const c_char) -> *mut c_uchar;
    fn pcap_ether_aton(text: *const c_char) -> *mut c_uchar;
    fn pcap_nametoaddr(name: *const c_char) -> *mut *mut u32;
    fn pcap_nametoaddrinfo(name: *const c_char) -> *mut c_void;
    fn pcap_nametonetaddr(name: *const c_char) -> u32;
    fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
    fn pcap_nametoportrange(name: *const c_char, first: *mut c_int, last: *mut c_int, protocol: *mut c_int) -> c_int;
    fn pcap_nametoproto(name: *const c_char) -> c_int;
    fn pcap_nametoeproto(name: *const c_char) -> c_int;
    fn pcap_nametollc(name: *const c_char) -> c_int;
    fn pcap_open(source: *const c_char, snaplen: c_int, flags: c_int, timeout: c_int, auth: *mut c_void, errbuf: *mut c_char) -> *mut Pcap;
    fn pcap_createsrcstr(source: *mut c_char, kind: c_int, host: *const c_char, port: *const c_char, name: *const c_char, errbuf: *mut c_char) -> c_int;
    fn pcap_parsesrcstr(source: *const c_char, kind: *mut c_int, host: *mut c_char, port: *mut c_char, name: *mut c_char, errbuf: *mut c_char) -> c_int;
    fn pcap_findalldevs_ex(source: *const c_char, auth: *mut c_void, list: *mut *mut c_void, errbuf: *mut c_char) -> c_int;
    fn pcap_setsampling(p: *mut Pcap) -> *mut c_void;
    fn pcap_remoteact_accept(address: *const c_char, port: *const c_char, hosts: *const c_char, host: *mut c_char, auth: *mut c_void, errbuf: *mut c_char) -> c_int;
    fn pcap_remoteact_accept_ex(address: *const c_char, port: *const c_char, hosts: *const c_char, host: *mut c_char, auth: *mut c_void, tls: c_int, errbuf: *mut c_char) -> c_int;
    fn pcap_remoteact_list(list: *mut c_char, separator: c_char, size: c_int, errbuf: *mut c_char) -> c_int;
    fn pcap_remoteact_close(host: *const c_char, errbuf: *mut c_char) -> c_int;
    fn pcap_remoteact_cleanup();
}

/// The system's own.
///
/// # Safety
/// Each function asks of its arguments what libpcap's manual asks.
pub(crate) mod real {
    use super::*;

    pub(crate) unsafe fn pcap_breakloop(p: *mut Pcap) {
        call!(BREAKLOOP, pcap_breakloop(p: *mut Pcap));
    }

    import! {
        fn pcap_compile(p: *mut Pcap, program: *mut Program, text: *const c_char, optimize: c_int, mask: u32) -> c_int;
        fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_open_live(device: *const c_char, snaplen: c_int, promisc: c_int, timeout: c_int, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_activate(p: *mut Pcap) -> c_int;
        fn pcap_set_snaplen(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_promisc(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_rfmon(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_timeout(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_tstamp_type(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_immediate_mode(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_buffer_size(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_tstamp_precision(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_set_protocol_linux(p: *mut Pcap, value: c_int) -> c_int;
        fn pcap_loop(p: *mut Pcap, count: c_int, callback: Option<Handler>, user: *mut c_uchar) -> c_int;
        fn pcap_dispatch(p: *mut Pcap, count: c_int, callback: Option<Handler>, user: *mut c_uchar) -> c_int;
        fn pcap_next(p: *mut Pcap, header: *mut Header) -> *const c_uchar;
        fn pcap_next_ex(p: *mut Pcap, header: *mut *mut Header, bytes: *mut *const c_uchar) -> c_int;
        fn pcap_stats(p: *mut Pcap, statistics: *mut Statistics) -> c_int;
        fn pcap_setfilter(p: *mut Pcap, program: *mut Program) -> c_int;
        fn pcap_setdirection(p: *mut Pcap, direction: c_int) -> c_int;
        fn pcap_setnonblock(p: *mut Pcap, on: c_int, errbuf: *mut c_char) -> c_int;
        fn pcap_inject(p: *mut Pcap, bytes: *const c_void, len: usize) -> c_int;
        fn pcap_sendpacket(p: *mut Pcap, bytes: *const c_uchar, len: c_int) -> c_int;
        fn pcap_close(p: *mut Pcap);
        fn pcap_fileno(p: *mut Pcap) -> c_int;
        fn pcap_get_selectable_fd(p: *mut Pcap) -> c_int;
        fn pcap_get_tstamp_precision(p: *mut Pcap) -> c_int;
        fn pcap_getnonblock(p: *mut Pcap, errbuf: *mut c_char) -> c_int;
        fn pcap_geterr(p: *mut Pcap) -> *mut c_char;
    }
}
