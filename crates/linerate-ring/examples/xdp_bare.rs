//! The limit: the least that a program can do to receive over AF_XDP, and nothing else.
//!
//! One socket on queue 0, a fill ring of 8,192 entries, the five-instruction XDP program, and a loop
//! that spins on the receive ring and puts every chunk back without a look at it. Raw system calls
//! and plain loads and stores of the shared indices, no part of the library. Rates of the library
//! are given relative to this one.
//!
//! `xdp_bare INTERFACE [--seconds N] [--huge]`; prints one JSON object at the end or at SIGINT.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{io, ptr};

const SLOTS: u32 = 8192;
const CHUNK: u32 = 2048;
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// Ends the program with the reason of a failed call.
fn check(what: &str, answer: i32) -> i32 {
    if answer < 0 {
        eprintln!("xdp_bare: {what}: {}", io::Error::last_os_error());
        std::process::exit(1);
    }
    answer
}

struct Ring {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    entries: *mut u8,
}

impl Ring {
    fn map(fd: i32, at: u64, offsets: &libc::xdp_ring_offset, entry: usize) -> Self {
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
            check("mmap a ring", if base == libc::MAP_FAILED { -1 } else { 0 });
            let base = base.cast::<u8>();
            Self {
                producer: base.add(offsets.producer as usize).cast(),
                consumer: base.add(offsets.consumer as usize).cast(),
                entries: base.add(offsets.desc as usize),
            }
        }
    }
}

fn set<T>(fd: i32, option: i32, value: &T) {
    // SAFETY: `value` is readable for its size.
    let answer = unsafe {
        let len = size_of::<T>() as u32;
        libc::setsockopt(fd, libc::SOL_XDP, option, ptr::from_ref(value).cast(), len)
    };
    check("setsockopt", answer);
}

fn memory(len: usize, huge: bool) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh anonymous mapping, advised and touched within its length.
    unsafe {
        let extra = if huge { 2 << 20 } else { 0 };
        let base = libc::mmap(ptr::null_mut(), len + extra, protection, flags, -1, 0);
        check("mmap the UMEM", if base == libc::MAP_FAILED { -1 } else { 0 });
        let base = if huge { (base as usize).next_multiple_of(2 << 20) } else { base as usize };
        let base = base as *mut c_void;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        libc::madvise(base, len, advice);
        ptr::write_bytes(base.cast::<u8>(), 0, len);
        base
    }
}

/// Sends every frame of queue 0 to the socket: `return bpf_redirect_map(&map, queue, XDP_PASS)`.
fn attach(socket: i32, ifindex: i32) -> i32 {
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
        );
        let key = 0u32;
        let update = libbpf_sys::bpf_map_update_elem(
            map,
            (&raw const key).cast(),
            (&raw const socket).cast(),
            0,
        );
        check("insert the socket", update);
        let code: [u64; 6] = [
            0x0000_0000_0010_1261,                      // r2 = *(u32 *)(r1 + 16)
            0x0000_0000_0000_1118 | (map as u64) << 32, // r1 = map
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
        );
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags: libbpf_sys::XDP_FLAGS_DRV_MODE,
            ..Default::default()
        };
        let link = libbpf_sys::bpf_link_create(program, ifindex, libbpf_sys::BPF_XDP, &options);
        check("attach the program", link)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut interface, mut seconds, mut huge) = (None, u64::MAX, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--huge" => huge = true,
            "--seconds" => {
                seconds = arguments.next().and_then(|n| n.parse().ok()).expect("--seconds N");
            }
            _ => interface = Some(argument),
        }
    }
    let interface = interface.expect("usage: xdp_bare INTERFACE [--seconds N] [--huge]");
    let name = CString::new(interface).expect("an interface name");
    let len = (SLOTS * CHUNK) as usize;
    let base = memory(len, huge);
    // SAFETY: system calls with our own values.
    let (ifindex, fd) = unsafe {
        libc::signal(libc::SIGINT, stop as extern "C" fn(i32) as usize);
        libc::signal(libc::SIGTERM, stop as extern "C" fn(i32) as usize);
        let ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        check("find the interface", if ifindex == 0 { -1 } else { 0 });
        (ifindex, check("open a socket", libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0)))
    };
    let umem = libc::xdp_umem_reg {
        addr: base as u64,
        len: len as u64,
        chunk_size: CHUNK,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &umem);
    for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
        set(fd, ring, &SLOTS);
    }
    // SAFETY: integers only; the kernel fills them.
    let offsets: libc::xdp_mmap_offsets = unsafe {
        let mut offsets: libc::xdp_mmap_offsets = std::mem::zeroed();
        let mut size = size_of::<libc::xdp_mmap_offsets>() as u32;
        let to = (&raw mut offsets).cast();
        let option = libc::XDP_MMAP_OFFSETS;
        check("getsockopt", libc::getsockopt(fd, libc::SOL_XDP, option, to, &mut size));
        offsets
    };
    let fill = Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, 8);
    let receive = Ring::map(fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, 16);
    // SAFETY: slots below the number of entries, before the kernel is told of them.
    unsafe {
        for n in 0..SLOTS {
            *fill.entries.cast::<u64>().add(n as usize) = u64::from(n * CHUNK);
        }
        (*fill.producer).store(SLOTS, Ordering::Release);
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: ifindex as u32,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let size = size_of_val(&address) as u32;
        check("bind", libc::bind(fd, (&raw const address).cast(), size));
    }
    let _link = attach(fd, ifindex);
    let (mut head, mut filled) = (0u32, SLOTS);
    let (start, mut first, mut last) = (Instant::now(), None, None);
    let mut received = 0u64;
    let end = start.checked_add(Duration::from_secs(seconds.min(1 << 30))).expect("a time");
    while !STOP.load(Ordering::Relaxed) {
        // SAFETY: the ring protocol: slots between the indices are ours.
        unsafe {
            let tail = (*receive.producer).load(Ordering::Acquire);
            if tail == head {
                if Instant::now() >= end {
                    break;
                }
                continue;
            }
            while head != tail {
                let descriptor = receive.entries.cast::<libc::xdp_desc>();
                let at = (*descriptor.add((head & (SLOTS - 1)) as usize)).addr;
                *fill.entries.cast::<u64>().add((filled & (SLOTS - 1)) as usize) = at;
                head = head.wrapping_add(1);
                filled = filled.wrapping_add(1);
                received += 1;
            }
            (*fill.producer).store(filled, Ordering::Release);
            (*receive.consumer).store(head, Ordering::Release);
        }
        let now = Instant::now();
        first.get_or_insert(now);
        last = Some(now);
        if now >= end {
            break;
        }
    }
    // SAFETY: integers only; the kernel fills them.
    let counts: libc::xdp_statistics = unsafe {
        let mut counts: libc::xdp_statistics = std::mem::zeroed();
        let mut size = size_of::<libc::xdp_statistics>() as u32;
        let to = (&raw mut counts).cast();
        check(
            "getsockopt",
            libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_STATISTICS, to, &mut size),
        );
        counts
    };
    let busy = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    println!(
        "{{\"received\":{received},\"dropped\":{},\"fill_empty\":{},\"ring_full\":{},\
         \"seconds\":{:.6},\"busy_seconds\":{busy:.6}}}",
        counts.rx_dropped + counts.rx_ring_full,
        counts.rx_fill_ring_empty_descs,
        counts.rx_ring_full,
        start.elapsed().as_secs_f64(),
    );
}
