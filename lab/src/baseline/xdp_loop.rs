//! The least that a program can do to receive over AF_XDP.
//!
//! One socket on queue 0, a fill ring of 8,192 entries, an XDP program of five instructions, and a loop
//! that spins on the receive ring and returns every chunk to the fill ring unread. The loop loads and
//! stores the shared indices itself and uses no part of `linerate-ring`, whose rates are given relative
//! to this one.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use rustix::mm::{Advice, MapFlags as Mapping, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

include!(concat!(env!("OUT_DIR"), "/xdp_loop.rs"));

const SLOTS: u32 = 8192;
const CHUNK: u32 = 2048;
const HUGE_PAGE: usize = 2 << 20;

/// What the loop counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Frames taken from the receive ring.
    pub(crate) received: u64,
    /// Frames for which the fill ring had no chunk, or that the kernel dropped for another reason.
    pub(crate) dropped: u64,
    /// Frames that found the receive ring full.
    pub(crate) ring_full: u64,
}

/// Receives what comes to queue 0 of `interface` until `stop` is set and the ring is empty. Frames that
/// `accept` refuses are not counted as received.
pub(crate) fn run(
    interface: &str,
    huge: bool,
    stop: &AtomicBool,
    accept: impl FnMut(&[u8]) -> bool,
) -> Result<Statistics> {
    let index = linerate_net::link::by_name(interface)?.index;
    let memory = Memory::map((SLOTS * CHUNK) as usize, huge).context("cannot map the UMEM")?;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .context("cannot open an AF_XDP socket")?;
    let umem = XdpUmemReg {
        addr: memory.base as u64,
        len: u64::from(SLOTS * CHUNK),
        chunk_size: CHUNK,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(&socket, umem)
        .and_then(|()| sockopt::set_xdp_umem_fill_ring_size(&socket, SLOTS))
        .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(&socket, SLOTS))
        .and_then(|()| sockopt::set_xdp_rx_ring_size(&socket, SLOTS))
        .context("cannot set up the rings of the AF_XDP socket")?;
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    let fill = Ring::map(socket.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, size_of::<u64>())?;
    let receive = Ring::map(socket.as_fd(), XDP_PGOFF_RX_RING, &offsets.rx, size_of::<XdpDesc>())?;
    // SAFETY: the slots are below the number of entries, and the kernel does not know of them yet.
    unsafe {
        for slot in 0..SLOTS {
            *fill.entries.cast::<u64>().add(slot as usize) = u64::from(slot * CHUNK);
        }
        (*fill.producer).store(SLOTS, Ordering::Release);
    }
    let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, index, 0);
    bind(&socket, &address).with_context(|| format!("cannot bind to queue 0 of {interface}"))?;
    let mut object = MaybeUninit::uninit();
    let skeleton = skeleton::XdpLoopSkelBuilder::default()
        .open(&mut object)
        .and_then(OpenSkel::load)
        .context("cannot load the XDP program")?;
    let value = socket.as_raw_fd().to_ne_bytes();
    skeleton.maps.sockets.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)?;
    let link =
        skeleton.progs.xdp_loop.attach_xdp(index.cast_signed()).with_context(|| {
            format!("cannot attach to {interface} (has it another XDP program?)")
        })?;
    let received = receive_until(stop, &fill, &receive, memory.base.cast(), accept);
    drop(link);
    let counts = sockopt::xdp_statistics(&socket)?;
    let ring_full = counts.rx_ring_full.unwrap_or(0);
    Ok(Statistics { received, dropped: counts.rx_dropped, ring_full })
}

fn receive_until(
    stop: &AtomicBool,
    fill: &Ring,
    receive: &Ring,
    base: *const u8,
    mut accept: impl FnMut(&[u8]) -> bool,
) -> u64 {
    let (mut head, mut filled, mut received) = (0u32, SLOTS, 0u64);
    loop {
        // SAFETY: the protocol of the rings: the slots between the two indices are ours.
        unsafe {
            let tail = (*receive.producer).load(Ordering::Acquire);
            if tail == head {
                if stop.load(Ordering::Relaxed) {
                    return received;
                }
                continue;
            }
            while head != tail {
                let XdpDesc { addr, len, .. } =
                    *receive.entries.cast::<XdpDesc>().add((head & (SLOTS - 1)) as usize);
                let frame = std::slice::from_raw_parts(base.add(addr as usize), len as usize);
                received += u64::from(accept(frame));
                *fill.entries.cast::<u64>().add((filled & (SLOTS - 1)) as usize) = addr;
                head = head.wrapping_add(1);
                filled = filled.wrapping_add(1);
            }
            (*fill.producer).store(filled, Ordering::Release);
            (*receive.consumer).store(head, Ordering::Release);
        }
    }
}

struct Ring {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    entries: *mut u8,
    base: *mut c_void,
    len: usize,
}

impl Ring {
    fn map(socket: BorrowedFd<'_>, at: u64, offsets: &XdpRingOffset, entry: usize) -> Result<Self> {
        let len = offsets.desc as usize + SLOTS as usize * entry;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = Mapping::SHARED | Mapping::POPULATE;
        // SAFETY: a new mapping of a ring of the socket; the kernel gave the offsets within it.
        unsafe {
            let base = mmap(ptr::null_mut(), len, protection, flags, socket, at)
                .context("cannot map a ring")?;
            let bytes = base.cast::<u8>();
            Ok(Self {
                producer: bytes.add(offsets.producer as usize).cast(),
                consumer: bytes.add(offsets.consumer as usize).cast(),
                entries: bytes.add(offsets.desc as usize),
                base,
                len,
            })
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, whose pointers end with this value.
        let _ = unsafe { munmap(self.base, self.len) };
    }
}

/// The UMEM, kept until the socket is closed.
struct Memory {
    base: *mut c_void,
    mapping: *mut c_void,
    len: usize,
}

impl Memory {
    fn map(len: usize, huge: bool) -> Result<Self> {
        let whole = len + if huge { HUGE_PAGE } else { 0 };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping, advised and written within its length.
        unsafe {
            let mapping = mmap_anonymous(ptr::null_mut(), whole, protection, Mapping::PRIVATE)?;
            let skip = if huge { mapping.align_offset(HUGE_PAGE) } else { 0 };
            let base = mapping.cast::<u8>().add(skip).cast::<c_void>();
            // A kernel without transparent huge pages refuses the advice, and has small pages.
            let _ = madvise(
                base,
                len,
                if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage },
            );
            ptr::write_bytes(base.cast::<u8>(), 0, len);
            Ok(Self { base, mapping, len: whole })
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`; the socket that used it is closed before.
        let _ = unsafe { munmap(self.mapping, self.len) };
    }
}
