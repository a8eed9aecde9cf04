//! From a handle with wishes to one that receives.

use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::time::Duration;

use linerate_capture::choose::{Kind, Wish};
use linerate_capture::open::{Opened, Request, Stamps};
use linerate_capture::{Error, Result};
use linerate_net::link;
use linerate_ring::packet::Allocation;

use crate::abi::{PRECISION_NANO, Pcap, SNAPLEN_MAX, STAMPS_OF_ADAPTER};
use crate::forward::real;
use crate::handles::{Handle, Wishes};
use crate::live::Live;
use crate::plan::{Plan, Wanted};
use crate::reader::{Reader, Settings};
use crate::say::say;
use crate::share::{self, Share};
use crate::{rings, shadow};

/// Bytes of the system's own ring, which nothing fills.
const SHADOW_BUFFER: c_int = 64 << 10;
/// libpcap's default, for a handle that goes on without us.
const SYSTEM_BUFFER: c_int = 2 << 20;
/// The kernel's time for a block that is not full, where libpcap's time-out is 0.
const RETIRE: Duration = Duration::from_millis(8);

/// What an interface gets.
pub(crate) enum Chosen {
    /// A source of ours, and whom it shares the packets with.
    Ours(Box<Opened>, Option<Arc<Share>>),
    /// libpcap alone. With a reason where something else was wanted.
    Plain(Option<String>),
}

/// Whether `device` could have a source of ours at all: an Ethernet interface.
pub(crate) fn fits(device: &str) -> bool {
    // A switch's own tags make another link type of it.
    let tagging = std::fs::read_to_string(format!("/sys/class/net/{device}/dsa/tagging"));
    link::by_name(device).is_ok_and(|link| link.is_ethernet() && !link.is_loopback())
        && tagging.map_or(true, |tagging| tagging.trim() == "none")
}

/// Opens the best source that can be had.
pub(crate) fn choose(device: &str, wishes: Wishes) -> Chosen {
    let (mut plan, wrong) = Plan::of(device);
    wrong.iter().for_each(|line| say(format_args!("{line}")));
    if plan.source == Wanted::Plain || wishes.monitor || wishes.protocol != 0 || !fits(device) {
        return Chosen::Plain(None);
    }
    let asked = match plan.source {
        Wanted::Source(kind) => kind,
        _ => Kind::Packet,
    };
    let mut why = (plan.threads > 1 && asked != Kind::Packet)
        .then(|| "handles share packets (threads) only on packet sockets".to_owned());
    let asked = if why.is_some() { Kind::Packet } else { asked };
    for kind in [Some(asked), (asked != Kind::Packet).then_some(Kind::Packet)].into_iter().flatten()
    {
        match open(device, request(kind, &plan, wishes), plan.threads) {
            Ok((opened, share, other_memory)) => {
                if let Some(why) = why {
                    say(format_args!("{device}: going on with source {kind}: {why}"));
                }
                if let Some(why) = other_memory {
                    rings::tell(plan.allocation, format_args!("the ring on {device}"), &why);
                }
                opened.warnings.iter().for_each(|line| say(format_args!("{device}: {line}")));
                return Chosen::Ours(Box::new(opened), share);
            }
            Err(error) => {
                why.get_or_insert_with(|| error.to_string());
                // What was asked of this source is not asked of the next.
                (plan.take_over, plan.through, plan.pages) = Default::default();
            }
        }
    }
    Chosen::Plain(why)
}

/// Opens a source. Where its ring cannot be of the memory that was chosen it is of any, and the reason comes
/// with it.
fn open(
    device: &str,
    request: Request,
    threads: usize,
) -> Result<(Opened, Option<Arc<Share>>, Option<Error>)> {
    let open = |request: Request| {
        rings::own(|| match threads {
            0 | 1 => Opened::named(device, &request).map(|opened| (opened, None)),
            threads => share::open(device, request, threads),
        })
    };
    let of_any = Request { ring_allocation: Allocation::Any, ..request.clone() };
    let has_choice =
        request.wish.source == Some(Kind::Packet) && request.ring_allocation != Allocation::Any;
    match open(request) {
        Ok((opened, share)) => Ok((opened, share, None)),
        Err(why) if has_choice => open(of_any).map(|(opened, share)| (opened, share, Some(why))),
        Err(error) => Err(error),
    }
}

fn request(kind: Kind, plan: &Plan, wishes: Wishes) -> Request {
    let default = match kind {
        Kind::Packet => linerate_ring::packet::DEFAULT_BUFFER,
        Kind::Xdp | Kind::Tee => linerate_ring::tee::DEFAULT_BUFFER as u64,
    };
    // What a program asks for is what libpcap needs; less than our own default would lose frames.
    let asked = u64::try_from(wishes.buffer).ok().filter(|bytes| *bytes > default);
    Request {
        wish: Wish { source: Some(kind), take_over: plan.take_over, ..Wish::default() },
        through: plan.through,
        snaplen: snaplen(wishes),
        buffer: plan.buffer.or(asked),
        pages: plan.pages,
        ring_allocation: plan.allocation,
        // The system's socket sees to that.
        promiscuous: false,
        immediate: wishes.immediate,
        retire: Some(match u64::try_from(wishes.timeout) {
            Ok(0) | Err(_) => RETIRE,
            Ok(milliseconds) => Duration::from_millis(milliseconds),
        }),
        stamps: match STAMPS_OF_ADAPTER.contains(&wishes.stamp_type) {
            true => Stamps::Adapter,
            false => Stamps::Host,
        },
        ..Request::default()
    }
}

/// As libpcap reads it: what makes no sense stands for the most.
fn snaplen(wishes: Wishes) -> u32 {
    u32::try_from(wishes.snaplen)
        .ok()
        .filter(|n| (1..=SNAPLEN_MAX).contains(n))
        .unwrap_or(SNAPLEN_MAX)
}

/// `pcap_activate` of a handle that was made here.
///
/// # Safety
///
/// `pcap` must be a handle that was not closed.
pub(crate) unsafe fn activate(pcap: *mut Pcap, handle: &Handle) -> c_int {
    let wishes = *handle.wishes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(device) = handle.device.as_deref().filter(|_| handle.live.get().is_none()) else {
        // SAFETY: the caller's.
        return unsafe { real::pcap_activate(pcap) };
    };
    let (opened, share) = match choose(device, wishes) {
        Chosen::Ours(opened, share) => (opened, share),
        Chosen::Plain(why) => {
            // SAFETY: the caller's.
            let status = unsafe { real::pcap_activate(pcap) };
            // Where libpcap fails as well, it says what there is to say.
            if let Some(why) = why.filter(|_| status >= 0) {
                say(format_args!("{device}: going on with libpcap alone: {why}"));
            }
            return status;
        }
    };
    // SAFETY: the caller's, for all calls below.
    let status = rings::own(|| unsafe {
        real::pcap_set_buffer_size(pcap, SHADOW_BUFFER);
        real::pcap_activate(pcap)
    });
    if status < 0 {
        let buffer = if wishes.buffer > 0 { wishes.buffer } else { SYSTEM_BUFFER };
        // SAFETY: the caller's.
        unsafe { real::pcap_set_buffer_size(pcap, buffer) };
        return status;
    }
    let Opened { interface, sources, .. } = *opened;
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
    let settings = Settings {
        snaplen: snaplen(wishes),
        nanoseconds: precision == PRECISION_NANO,
        until_packet: wishes.timeout == 0,
        immediate: wishes.immediate,
    };
    if let Err(error) = shadow::set_aside(socket, interface.index) {
        say(format_args!("{device}: frames are also copied to libpcap's own socket: {error}"));
    }
    let reader = Reader::new(source, &settings);
    match Live::new(reader, share, socket, interface.index, device) {
        Ok(live) => {
            live.nonblock.store(nonblock == 1, std::sync::atomic::Ordering::Relaxed);
            // Nobody else activates the same handle meanwhile.
            let _ = handle.live.set(Box::new(live));
            status
        }
        Err(error) => {
            // SAFETY: the caller's.
            unsafe { crate::calls::fail(pcap, &format!("{device}: {error}")) }
        }
    }
}

/// The name of a device as the program gave it; `None` for all of them.
///
/// # Safety
///
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
            assert_eq!(snaplen(Wishes { snaplen: asked, ..Wishes::default() }), got);
        }
    }

    #[test]
    fn a_buffer_is_never_smaller_than_our_own() {
        let plan = Plan::default();
        let of =
            |buffer| request(Kind::Packet, &plan, Wishes { buffer, ..Wishes::default() }).buffer;
        assert_eq!((of(0), of(2 << 20)), (None, None));
        assert_eq!(of(1 << 30), Some(1 << 30));
    }
}
