//! The limit: the least that a program can do to receive over AF_XDP, and nothing else.
//!
//! One socket on queue 0, a fill ring of 8,192 entries, the five-instruction XDP program, and a loop
//! that spins on the receive ring and puts every chunk back without a look at it. Raw system calls
//! and plain loads and stores of the shared indices, no other part of this library. Rates of the
//! library are given relative to this one; it is of no other use.

use std::ffi::{CString, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{io, ptr};

const SLOTS: u32 = 8192;
const CHUNK: u32 = 2048;
const HUGE: usize = 2 << 20;

/// What the loop saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames taken from the receive ring.
    pub received: u64,
    /// Frames for which the fill ring had no chunk, or that the kernel dropped for another reason.
    pub dropped: u64,
    /// Frames that found the receive ring full.
    pub ring_full: u64,
}

/// Receives what comes to queue 0 of `interface` until `stop` is set and the ring is empty.
///
/// # Errors
/// What the kernel said to the first call that failed, with the name of the call.
pub fn run(interface: &str, huge: bool, stop: &AtomicBool) -> io::Result<Counts> {
    run_with(interface, huge, stop, |_| true)
}

/// The same with a look at each frame; those that `look` refuses are not counted as received.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    interface: &str,
    huge: bool,
    stop: &AtomicBool,
    look: impl FnMut(&[u8]) -> bool,
) -> io::Result<Counts> {
    let name = CString::new(interface)?;
    // SAFETY: a terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(failed("find the interface"));
    }
    let memory = Memory::map((SLOTS * CHUNK) as usize, huge)?;
    // SAFETY: a system call; the descriptor is nobody else's.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0);
        OwnedFd::from_raw_fd(check("open a socket", fd)?)
    };
    let fd = socket.as_raw_fd();
    let umem = libc::xdp_umem_reg {
        addr: memory.base as u64,
        len: u64::from(SLOTS * CHUNK),
        chunk_size: CHUNK,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &umem)?;
    for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
        set(fd, ring, &SLOTS)?;
    }
    let offsets: libc::xdp_mmap_offsets = get(fd, libc::XDP_MMAP_OFFSETS)?;
    let fill = Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, 8)?;
    let receive = Ring::map(fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, 16)?;
    // SAFETY: slots below the number of entries, before the kernel is told of them.
    unsafe {
        for n in 0..SLOTS {
            *fill.entries.cast::<u64>().add(n as usize) = u64::from(n * CHUNK);
        }
        (*fill.producer).store(SLOTS, Ordering::Release);
    }
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the address is readable for its size.
    check("bind", unsafe {
        libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32)
    })?;
    let link = attach(fd, index.cast_signed())?;
    let received = receive_until(stop, &fill, &receive, memory.base.cast(), look);
    drop(link);
    let counts: libc::xdp_statistics = get(fd, libc::XDP_STATISTICS)?;
    Ok(Counts { received, dropped: counts.rx_dropped, ring_full: counts.rx_ring_full })
}

/// The loop.
fn receive_until(
    stop: &AtomicBool,
    fill: &Ring,
    receive: &Ring,
    base: *const u8,
    mut look: impl FnMut(&[u8]) -> bool,
) -> u64 {
    let (mut head, mut filled, mut received) = (0u32, SLOTS, 0u64);
    loop {
        // SAFETY: the ring protocol: slots between the indices are ours.
        unsafe {
            let tail = (*receive.producer).load(Ordering::Acquire);
            if tail == head {
                if stop.load(Ordering::Relaxed) {
                    return received;
                }
                continue;
            }
            while head != tail {
                let descriptor = receive.entries.cast::<libc::xdp_desc>();
                let libc::xdp_desc { addr: at, len, .. } =
                    *descriptor.add((head & (SLOTS - 1)) as usize);
                let frame = std::slice::from_raw_parts(base.add(at as usize), len as usize);
                received += u64::from(look(frame));
                *fill.entries.cast::<u64>().add((filled & (SLOTS - 1)) as usize) = at;
                head = head.wrapping_add(1);
                filled = filled.wrapping_add(1);
            }
            (*fill.producer).store(filled, Ordering::Release);
            (*receive.consumer).store(head, Ordering::Release);
        }
    }
}

/// The reason of a failed call, with its name.
fn failed(what: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

fn check(what: &str, answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(failed(what)) } else { Ok(answer) }
}

struct Ring {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    entries: *mut u8,
    base: *mut c_void,
    len: usize,
}

impl Ring {
    fn map(fd: i32, at: u64, offsets: &libc::xdp_ring_offset, entry: usize) -> io::Result<Self> {
        let len = offsets.desc as usize + SLOTS as usize * entry;
        // SAFETY: a fresh mapping of a ring of the socket, laid out as the kernel says.
        unsafe {
            let base = libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd,
                at as i64,
            );
            if base == libc::MAP_FAILED {
                return Err(failed("map a ring"));
            }
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
        // SAFETY: the mapping made in `map`, whose pointers end with this value.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// The UMEM, kept until the socket is closed.
struct Memory {
    base: *mut c_void,
    mapping: *mut c_void,
    len: usize,
}

impl Memory {
    fn map(len: usize, huge: bool) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let whole = len + if huge { HUGE } else { 0 };
        // SAFETY: a fresh anonymous mapping, advised and touched within its length.
        unsafe {
            let mapping = libc::mmap(ptr::null_mut(), whole, protection, flags, -1, 0);
            if mapping == libc::MAP_FAILED {
                return Err(failed("map the UMEM"));
            }
            let skip = if huge { mapping.align_offset(HUGE) } else { 0 };
            let base = mapping.cast::<u8>().add(skip).cast::<c_void>();
            let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            libc::madvise(base, len, advice);
            ptr::write_bytes(base.cast::<u8>(), 0, len);
            Ok(Self { base, mapping, len: whole })
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; the socket that used it is closed before.
        unsafe { libc::munmap(self.mapping, self.len) };
    }
}

fn set<T>(fd: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` is readable for its size.
    let answer = unsafe {
        let len = size_of::<T>() as u32;
        libc::setsockopt(fd, libc::SOL_XDP, option, ptr::from_ref(value).cast(), len)
    };
    check("set an option of the socket", answer).map(drop)
}

/// Reads an option whose type is made of integers only.
fn get<T>(fd: i32, option: i32) -> io::Result<T> {
    // SAFETY: integers may be zero, and the kernel writes no more than the size it is told.
    unsafe {
        let mut value: T = std::mem::zeroed();
        let mut size = size_of::<T>() as u32;
        let to = (&raw mut value).cast();
        let answer = libc::getsockopt(fd, libc::SOL_XDP, option, to, &raw mut size);
        check("read an option of the socket", answer)?;
        Ok(value)
    }
}

/// Sends every frame of queue 0 to the socket: `return bpf_redirect_map(&map, queue, XDP_PASS)`.
fn attach(socket: i32, index: i32) -> io::Result<OwnedFd> {
    // SAFETY: BPF calls with our own values; see `bpf(2)`.
    unsafe {
        let map = check(
            "make an XSKMAP",
            libbpf_sys::bpf_map_create(
                libbpf_sys::BPF_MAP_TYPE_XSKMAP,
                c"bare".as_ptr(),
                4,
                4,
                1,
                ptr::null(),
            ),
        )?;
        let map = OwnedFd::from_raw_fd(map);
        let key = 0u32;
        let update = libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const socket).cast(),
            0,
        );
        check("put the socket into the XSKMAP", update)?;
        let code: [u64; 6] = [
            0x0000_0000_0010_1261, // r2 = *(u32 *)(r1 + 16)
            0x0000_0000_0000_1118 | (map.as_raw_fd() as u64) << 32, // r1 = map
            0,
            0x0000_0002_0000_03b7, // r3 = XDP_PASS
            0x0000_0033_0000_0085, // call bpf_redirect_map
            0x0000_0000_0000_0095, // exit
        ];
        let program = check(
            "load the program",
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_XDP,
                c"bare".as_ptr(),
                c"GPL".as_ptr(),
                code.as_ptr().cast(),
                code.len() as _,
                ptr::null_mut(),
            ),
        )?;
        let program = OwnedFd::from_raw_fd(program);
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags: libbpf_sys::XDP_FLAGS_DRV_MODE,
            ..Default::default()
        };
        let program = program.as_raw_fd();
        let kind = libbpf_sys::BPF_XDP;
        let link = libbpf_sys::bpf_link_create(program, index, kind, &raw const options);
        Ok(OwnedFd::from_raw_fd(check("attach the program", link)?))
    }
}
