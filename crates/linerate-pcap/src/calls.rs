//! The functions that this library implements, under libpcap's names. Those of handles without a source go to
//! the system's libpcap.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::{
    DIRECTION_OUT, ERROR, ERROR_BREAK, Handler, Header, Pcap, Program, Statistics, Statistics64,
};
use crate::activate;
use crate::filter::ProgramFilter;
use crate::forward::real;
use crate::geterr::fail;
use crate::handles::{self, Handle, HandleOptions};
use crate::live::Live;
use crate::reader::Outcome;

/// The result of a read, as libpcap's numbers.
///
/// # Safety
/// `pcap` must be a handle that was not closed.
#[inline]
unsafe fn status(pcap: *mut Pcap, outcome: Option<Outcome>) -> c_int {
    match outcome {
        Some(Outcome::Packets(count)) => count,
        Some(Outcome::Broken) => ERROR_BREAK,
        // SAFETY: the caller's.
        Some(Outcome::Failed(text)) => unsafe { fail(pcap, &text) },
        // SAFETY: the caller's.
        None => unsafe { fail(pcap, "a callback cannot read the handle that called it") },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    // SAFETY: the caller's arguments.
    let (pcap, device) = unsafe { (real::pcap_create(device, errbuf), activate::name(device)) };
    if !pcap.is_null() {
        let (options, live) = (Mutex::new(HandleOptions::default()), OnceLock::new());
        handles::add(pcap, Handle { device, options, live });
    }
    pcap
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_activate(pcap: *mut Pcap) -> c_int {
    match handles::find(pcap) {
        // SAFETY: the caller's handle.
        Some(handle) => unsafe { activate::activate(pcap, handle) },
        // SAFETY: the caller's handle.
        None => unsafe { real::pcap_activate(pcap) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promisc: c_int,
    timeout: c_int,
    errbuf: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's arguments, here and below.
    if unsafe { activate::name(device) }.is_some_and(|name| activate::is_supported(&name)) {
        // SAFETY: a handle of pcap_create until it is closed.
        unsafe {
            let pcap = pcap_create(device, errbuf);
            if pcap.is_null() {
                return pcap;
            }
            let set = pcap_set_snaplen(pcap, snaplen) == 0
                && pcap_set_promisc(pcap, promisc) == 0
                && pcap_set_timeout(pcap, timeout) == 0;
            if set && pcap_activate(pcap) >= 0 {
                return pcap;
            }
            pcap_close(pcap);
        }
    }
    // SAFETY: the caller's arguments. What failed fails again, with libpcap's own words.
    unsafe { real::pcap_open_live(device, snaplen, promisc, timeout, errbuf) }
}

/// Setters: libpcap decides whether to accept the value and stores it; so does this library.
macro_rules! setters {
    ($($name:ident => |$options:ident, $value:ident| $note:block;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(pcap: *mut Pcap, $value: c_int) -> c_int {
                // SAFETY: the caller's handle.
                let status = unsafe { real::$name(pcap, $value) };
                if status == 0 && let Some(handle) = handles::find(pcap) {
                    let $options =
                        &mut *handle.options.lock().unwrap_or_else(PoisonError::into_inner);
                    $note
                }
                status
            }
        )*
    };
}

setters! {
    pcap_set_snaplen => |options, value| { options.snaplen = value };
    pcap_set_promisc => |_options, value| {};
    pcap_set_rfmon => |options, value| { options.monitor = value != 0 };
    pcap_set_timeout => |options, value| { options.timeout = value };
    pcap_set_tstamp_type => |options, value| { options.timestamp_type = value };
    pcap_set_immediate_mode => |options, value| { options.immediate = value != 0 };
    // libpcap passes over sizes that are not positive.
    pcap_set_buffer_size => |options, value| { if value > 0 { options.buffer = value } };
    pcap_set_tstamp_precision => |_options, value| {};
    pcap_set_protocol_linux => |options, value| { options.protocol = value };
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_close(pcap: *mut Pcap) {
    handles::remove(pcap);
    // SAFETY: the caller's handle.
    unsafe { real::pcap_close(pcap) };
}

/// One read: all that there is, or `count` packets.
///
/// # Safety
/// `callback` must take `user` and a packet.
#[inline]
unsafe fn read(
    live: &Live,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> Option<Outcome> {
    let most = if count > 0 { count } else { c_int::MAX };
    live.with_reader(|reader| {
        let outcome = reader.read(&live.shared, most, |header, bytes| {
            // SAFETY: the program's own function and its argument; header and bytes are readable until
            // it returns.
            unsafe { callback(user, header, bytes.as_ptr()) }
        });
        reader.update_readiness(&live.shared);
        outcome
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_dispatch(
    pcap: *mut Pcap,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> c_int {
    match (handles::live(pcap), callback) {
        // SAFETY: the caller's handle, function and argument.
        (Some(live), Some(callback)) => unsafe { status(pcap, read(live, count, callback, user)) },
        // SAFETY: the caller's arguments.
        _ => unsafe { real::pcap_dispatch(pcap, count, callback, user) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_loop(
    pcap: *mut Pcap,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> c_int {
    let (Some(live), Some(callback)) = (handles::live(pcap), callback) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::pcap_loop(pcap, count, callback, user) };
    };
    let mut left = count;
    loop {
        // SAFETY: the caller's handle, function and argument.
        let done = unsafe { status(pcap, read(live, left, callback, user)) };
        if done < 0 {
            return done;
        }
        if count > 0 {
            left -= done;
            if left <= 0 {
                return 0;
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_next(pcap: *mut Pcap, header: *mut Header) -> *const c_uchar {
    let Some(live) = handles::live(pcap) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::pcap_next(pcap, header) };
    };
    let mut bytes = std::ptr::null();
    let outcome = live.with_reader(|reader| {
        let (outcome, found) = reader.next(&live.shared);
        bytes = found;
        if !found.is_null() {
            // SAFETY: the caller's header.
            unsafe { *header = reader.header };
        }
        outcome
    });
    // SAFETY: the caller's handle. Whatever it was, there is no packet.
    unsafe { status(pcap, outcome) };
    bytes
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_next_ex(
    pcap: *mut Pcap,
    header: *mut *mut Header,
    bytes: *mut *const c_uchar,
) -> c_int {
    let Some(live) = handles::live(pcap) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::pcap_next_ex(pcap, header, bytes) };
    };
    let outcome = live.with_reader(|reader| {
        let (outcome, found) = reader.next(&live.shared);
        // SAFETY: the caller's places; the header stays until the next call, as the packet does.
        unsafe {
            *header = &raw mut reader.header;
            *bytes = found;
        }
        outcome
    });
    // SAFETY: the caller's handle.
    unsafe { status(pcap, outcome) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_breakloop(pcap: *mut Pcap) {
    match handles::live(pcap) {
        Some(live) => live.shared.break_loop(),
        // SAFETY: the caller's handle.
        None => unsafe { real::pcap_breakloop(pcap) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_compile(
    pcap: *mut Pcap,
    program: *mut Program,
    text: *const c_char,
    optimize: c_int,
    mask: u32,
) -> c_int {
    // SAFETY: the caller's arguments.
    let status = unsafe { real::pcap_compile(pcap, program, text, optimize, mask) };
    if status == 0
        && let Some(live) = handles::live(pcap).filter(|live| !live.shared.is_packet())
        // SAFETY: libpcap has just made the program.
        && let Ok(filter) = unsafe { ProgramFilter::new(&*program) }
    {
        live.prepare_filter(filter);
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_setfilter(pcap: *mut Pcap, program: *mut Program) -> c_int {
    // libpcap checks the program, and has the words for what is wrong with it.
    // SAFETY: the caller's arguments.
    let checked = unsafe { real::pcap_setfilter(pcap, program) };
    let Some(live) = handles::live(pcap).filter(|_| checked == 0) else { return checked };
    // SAFETY: libpcap has just taken the program.
    let filter = unsafe { ProgramFilter::new(&*program) };
    match filter.map_err(|why| why.to_string()).and_then(|filter| live.set_filter(filter)) {
        Ok(()) => 0,
        // SAFETY: the caller's handle.
        Err(text) => unsafe { fail(pcap, &text) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_setdirection(pcap: *mut Pcap, direction: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let checked = unsafe { real::pcap_setdirection(pcap, direction) };
    let Some(live) = handles::live(pcap).filter(|_| checked == 0) else { return checked };
    if direction == DIRECTION_OUT && !live.shared.is_packet() {
        let text = "this source sees only incoming frames: LINERATE_SOURCE=packet sees both";
        // SAFETY: the caller's handle.
        return unsafe { fail(pcap, text) };
    }
    live.shared.direction.store(direction, Relaxed);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_setnonblock(
    pcap: *mut Pcap,
    on: c_int,
    errbuf: *mut c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    let status = unsafe { real::pcap_setnonblock(pcap, on, errbuf) };
    if let Some(live) = handles::live(pcap).filter(|_| status == 0) {
        live.shared.nonblock.store(on != 0, Relaxed);
    }
    status
}

/// The counts in full; `None` where they cannot be read.
///
/// # Safety
/// `pcap` must be the handle of `live`.
unsafe fn counts(pcap: *mut Pcap, live: &Live) -> Option<Statistics64> {
    let counts = live.shared.statistics.read().ok()?;
    let mut system = Statistics::default();
    // What the interface itself dropped is libpcap's to find out.
    // SAFETY: the caller's handle, and a place for the answer.
    unsafe { real::pcap_stats(pcap, &mut system) };
    Some(Statistics64 {
        received: counts.received.saturating_sub(live.shared.rejected.load(Relaxed)),
        dropped: counts.drops.kernel(),
        interface_dropped: system.interface_dropped.into(),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_stats(pcap: *mut Pcap, statistics: *mut Statistics) -> c_int {
    let Some(live) = handles::live(pcap) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::pcap_stats(pcap, statistics) };
    };
    // SAFETY: the caller's arguments.
    unsafe {
        let Some(counts) = counts(pcap, live) else {
            return fail(pcap, "the counts cannot be read");
        };
        // libpcap has 32-bit counters, which wrap; so do these.
        *statistics = Statistics {
            received: counts.received as u32,
            dropped: counts.dropped as u32,
            interface_dropped: counts.interface_dropped as u32,
        };
    }
    0
}

/// `int linerate_pcap_stats64(pcap_t *, struct linerate_pcap_stat64 *)`: the counts that do not wrap.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn linerate_pcap_stats64(
    pcap: *mut Pcap,
    statistics: *mut Statistics64,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let found = match handles::live(pcap) {
            Some(live) => counts(pcap, live),
            None => {
                let mut system = Statistics::default();
                (real::pcap_stats(pcap, &mut system) == 0).then(|| Statistics64 {
                    received: system.received.into(),
                    dropped: system.dropped.into(),
                    interface_dropped: system.interface_dropped.into(),
                })
            }
        };
        let Some(found) = found else { return ERROR };
        *statistics = found;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_inject(
    pcap: *mut Pcap,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    let live = handles::live(pcap).filter(|_| len > 0 && c_int::try_from(len).is_ok());
    let Some(live) = live else {
        // SAFETY: the caller's arguments.
        return unsafe { real::pcap_inject(pcap, bytes, len) };
    };
    // The ring's own socket, so that the handle does not see what it sends, as with libpcap.
    let socket = if live.shared.is_packet() { live.shared.fd } else { live.shared.system_socket };
    // SAFETY: the caller's bytes.
    let sent =
        unsafe { crate::system_socket::send(socket, live.shared.interface.index(), bytes, len) };
    if sent < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
        // SAFETY: the caller's handle; strerror's text is read before anybody else asks for one.
        return unsafe {
            let text = std::ffi::CStr::from_ptr(libc::strerror(errno)).to_string_lossy();
            fail(pcap, &format!("send: {text}"))
        };
    }
    sent as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_sendpacket(
    pcap: *mut Pcap,
    bytes: *const c_uchar,
    len: c_int,
) -> c_int {
    match usize::try_from(len) {
        Ok(count @ 1..) if handles::live(pcap).is_some() => {
            // SAFETY: the caller's arguments.
            let sent = unsafe { pcap_inject(pcap, bytes.cast(), count) };
            if sent < 0 { ERROR } else { 0 }
        }
        // SAFETY: the caller's arguments.
        _ => unsafe { real::pcap_sendpacket(pcap, bytes, len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_fileno(pcap: *mut Pcap) -> c_int {
    match handles::live(pcap) {
        Some(live) => live.selectable_fd(),
        // SAFETY: the caller's handle.
        None => unsafe { real::pcap_fileno(pcap) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pcap_get_selectable_fd(pcap: *mut Pcap) -> c_int {
    match handles::live(pcap) {
        Some(live) => live.selectable_fd(),
        // SAFETY: the caller's handle.
        None => unsafe { real::pcap_get_selectable_fd(pcap) },
    }
}
