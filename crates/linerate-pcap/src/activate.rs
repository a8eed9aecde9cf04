//! `pcap_activate`: opens a source for a handle.

use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::time::Duration;

use linerate_capture::Result;
use linerate_capture::source::{OpenInterface, SourceKind, SourceOptions};
use linerate_net::link;
use linerate_ring::TimestampSource;

use crate::abi::{ADAPTER_TIMESTAMPS, PRECISION_NANO, Pcap, SNAPLEN_MAX};
use crate::config::{Config, SourceChoice};
use crate::fanout::{self, FanoutGroup};
use crate::forward::real;
use crate::handles::{Handle, HandleOptions};
use crate::live::Live;
use crate::reader::{Reader, ReaderConfig};
use crate::warn::warn;
use crate::{metrics, system_socket};

/// Bytes of the ring of the system's socket, which nothing fills.
const IDLE_BUFFER: c_int = 64 << 10;
/// libpcap's default, for a handle that uses libpcap alone.
const LIBPCAP_BUFFER: c_int = 2 << 20;
/// The timeout of a block that is not full, where libpcap's time-out is 0.
const BLOCK_TIMEOUT: Duration = Duration::from_millis(8);

/// What receives the frames of a handle.
enum Backend {
    /// One of Linerate's sources, and the group with which it shares the packets.
    Linerate(Box<OpenInterface>, Option<Arc<FanoutGroup>>),
    /// libpcap alone, with a reason where something else was configured.
    Libpcap(Option<String>),
}

/// Whether Linerate has sources for `device`: for Ethernet interfaces only.
pub(crate) fn is_supported(device: &str) -> bool {
    // The tags of a switch (DSA) change the link type.
    let tagging = std::fs::read_to_string(format!("/sys/class/net/{device}/dsa/tagging"));
    link::by_name(device).is_ok_and(|link| link.is_ethernet() && !link.is_loopback())
        && tagging.map_or(true, |tagging| tagging.trim() == "none")
}

/// Opens the configured source, or the best that works.
fn open_backend(device: &str, options: HandleOptions) -> Backend {
    let (mut config, errors) = Config::load(device);
    errors.iter().for_each(|line| warn(format_args!("{line}")));
    if config.source == SourceChoice::Libpcap || options.monitor || options.protocol != 0 {
        let why = "take-over has no effect, libpcap takes no frames from the host";
        return Backend::Libpcap(config.take_over.then(|| why.to_owned()));
    }
    if !is_supported(device) {
        return Backend::Libpcap(unserved(&config));
    }
    let asked = match config.source {
        SourceChoice::Source(kind) => kind,
        // With consent it takes the frames; else program and host see the same as under libpcap.
        _ if config.take_over => SourceKind::Xdp,
        _ => SourceKind::Packet,
    };
    let mut why = sharing(&config)
        .filter(|_| asked != SourceKind::Packet)
        .map(|by| format!("handles share packets ({by}) only on packet sockets"));
    let asked = match why {
        Some(_) => {
            config.forget_xdp();
            SourceKind::Packet
        }
        None => asked,
    };
    for kind in [Some(asked), (asked != SourceKind::Packet).then_some(SourceKind::Packet)]
        .into_iter()
        .flatten()
    {
        match open(device, capture_request(kind, &config, options), &config) {
            Ok((opened, group)) => {
                if let Some(why) = why {
                    warn(format_args!("{device}: continues with source {kind}: {why}"));
                }
                if kind == SourceKind::Xdp {
                    let by = match opened.bypassed.as_slice() {
                        [] => String::new(),
                        some => format!("; they pass by {}", some.join(", ")),
                    };
                    warn(format_args!(
                        "{device}: the host does not get the frames that this program takes (source xdp){by}"
                    ));
                }
                for one in &opened.unused {
                    warn(format_args!("{device}: {} has no effect {}", one.name, one.reason));
                }
                opened.warnings.iter().for_each(|line| warn(format_args!("{device}: {line}")));
                return Backend::Linerate(Box::new(opened), group);
            }
            Err(error) => {
                why.get_or_insert_with(|| error.to_string());
                config.forget_xdp();
            }
        }
    }
    Backend::Libpcap(why)
}

/// The option by which handles share the packets of an interface, if it is set.
fn sharing(config: &Config) -> Option<&'static str> {
    config.cluster.map(|_| "cluster").or((config.threads > 1).then_some("threads"))
}

/// What options do not do where libpcap alone captures.
fn unserved(config: &Config) -> Option<String> {
    match sharing(config) {
        Some(by) => Some(format!(
            "handles share packets ({by}) only on Ethernet interfaces: each gets every packet"
        )),
        None => config.take_over.then(|| "only frames of Ethernet interfaces are taken".to_owned()),
    }
}

fn open(
    device: &str,
    request: SourceOptions,
    config: &Config,
) -> Result<(OpenInterface, Option<Arc<FanoutGroup>>)> {
    match (config.cluster, config.threads) {
        (Some(cluster), _) => {
            fanout::open_in_cluster(device, request, cluster).map(|opened| (opened, None))
        }
        (None, 0 | 1) => OpenInterface::by_name(device, &request).map(|opened| (opened, None)),
        (None, threads) => fanout::open(device, request, threads),
    }
}

fn capture_request(kind: SourceKind, config: &Config, options: HandleOptions) -> SourceOptions {
    let default = match kind {
        SourceKind::Packet => linerate_ring::packet::DEFAULT_BUFFER,
        _ => linerate_ring::tee::DEFAULT_BUFFER as u64,
    };
    // A program asks for as much as libpcap needs; less than the source's default would lose frames.
    let asked = u64::try_from(options.buffer).ok().filter(|bytes| *bytes > default);
    SourceOptions {
        source: Some(kind),
        take_over: config.take_over,
        // A program without a filter may be about to set one: the host keeps what that does not match.
        copy_first: true,
        delivery: config.delivery,
        snaplen: snaplen(options),
        buffer: config.buffer.or(asked),
        pages: config.pages,
        // The system's socket sets it.
        promiscuous: false,
        immediate: options.immediate,
        block_timeout: Some(match u64::try_from(options.timeout) {
            Ok(0) | Err(_) => BLOCK_TIMEOUT,
            Ok(milliseconds) => Duration::from_millis(milliseconds),
        }),
        timestamps: match ADAPTER_TIMESTAMPS.contains(&options.timestamp_type) {
            true => TimestampSource::Hardware,
            false => TimestampSource::Software,
        },
        ..SourceOptions::default()
    }
}

/// As libpcap reads it: an invalid value means the maximum.
fn snaplen(options: HandleOptions) -> u32 {
    u32::try_from(options.snaplen)
        .ok()
        .filter(|n| (1..=SNAPLEN_MAX).contains(n))
        .unwrap_or(SNAPLEN_MAX)
}

/// `pcap_activate` of a handle that was made here.
///
/// # Safety
/// `pcap` must be a handle that was not closed.
pub(crate) unsafe fn activate(pcap: *mut Pcap, handle: &Handle) -> c_int {
    let options = *handle.options.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(device) = handle.device.as_deref().filter(|_| handle.live.get().is_none()) else {
        // SAFETY: the caller's.
        let status = unsafe { real::pcap_activate(pcap) };
        if status >= 0 {
            metrics::add_system_handle("any");
            let (config, errors) = Config::load("any");
            errors.iter().for_each(|line| warn(format_args!("{line}")));
            if let Some(why) = unserved(&config) {
                warn(format_args!("any: continues with libpcap alone: {why}"));
            }
        }
        return status;
    };
    let (opened, group) = match open_backend(device, options) {
        Backend::Linerate(opened, group) => (opened, group),
        Backend::Libpcap(why) => {
            // SAFETY: the caller's.
            let status = unsafe { real::pcap_activate(pcap) };
            if status >= 0 {
                metrics::add_system_handle(device);
            }
            // Where libpcap fails as well, it reports its own error.
            if let Some(why) = why.filter(|_| status >= 0) {
                warn(format_args!("{device}: continues with libpcap alone: {why}"));
            }
            return status;
        }
    };
    // SAFETY: the caller's, for all calls below.
    let status = unsafe {
        real::pcap_set_buffer_size(pcap, IDLE_BUFFER);
        real::pcap_activate(pcap)
    };
    if status < 0 {
        let buffer = if options.buffer > 0 { options.buffer } else { LIBPCAP_BUFFER };
        // SAFETY: the caller's.
        unsafe { real::pcap_set_buffer_size(pcap, buffer) };
        return status;
    }
    let OpenInterface { interface, sources, .. } = *opened;
    let Some(source) = sources.into_iter().next() else { return status };
    // SAFETY: the caller's.
    let (socket, precision, nonblock) = unsafe {
        let mut errbuf = [0; crate::abi::ERRBUF_SIZE];
        (
            real::pcap_fileno(pcap),
            real::pcap_get_tstamp_precision(pcap),
            real::pcap_getnonblock(pcap, errbuf.as_mut_ptr()),
        )
    };
    let config = ReaderConfig {
        device: device.to_owned(),
        snaplen: snaplen(options),
        nanoseconds: precision == PRECISION_NANO,
        until_packet: options.timeout == 0,
        immediate: options.immediate,
    };
    if let Err(error) = system_socket::detach(socket, interface.index) {
        warn(format_args!("{device}: frames are also copied to libpcap's own socket: {error}"));
    }
    let reader = Reader::new(source, config);
    let live = linerate_net::Interface::open(device).map_err(std::io::Error::other);
    match live.and_then(|interface| Live::new(reader, group, socket, interface)) {
        Ok(live) => {
            live.shared.nonblock.store(nonblock == 1, std::sync::atomic::Ordering::Relaxed);
            // No other thread activates the same handle meanwhile.
            let _ = handle.live.set(Box::new(live));
            status
        }
        Err(error) => {
            // SAFETY: the caller's.
            unsafe { crate::geterr::fail(pcap, &format!("{device}: {error}")) }
        }
    }
}

/// The name of a device as the program gave it; `None` for all of them.
///
/// # Safety
/// `device` must be null or end in a zero.
pub(crate) unsafe fn name(device: *const libc::c_char) -> Option<String> {
    if device.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(device) }.to_str().ok()?;
    (name != "any").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snap_length_that_makes_no_sense_is_the_most() {
        for (asked, got) in [(0, SNAPLEN_MAX), (-1, SNAPLEN_MAX), (96, 96), (i32::MAX, SNAPLEN_MAX)]
        {
            assert_eq!(snaplen(HandleOptions { snaplen: asked, ..HandleOptions::default() }), got);
        }
    }

    #[test]
    fn a_buffer_is_never_smaller_than_our_own() {
        let config = Config::default();
        let of = |buffer| {
            capture_request(
                SourceKind::Packet,
                &config,
                HandleOptions { buffer, ..HandleOptions::default() },
            )
            .buffer
        };
        assert_eq!((of(0), of(2 << 20)), (None, None));
        assert_eq!(of(1 << 30), Some(1 << 30));
    }
}
