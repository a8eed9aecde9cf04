//! Translated filters, run by the kernel over given frames (`BPF_PROG_TEST_RUN`).

use std::ffi::{CStr, c_char};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use linerate_bpf::filter::{Instruction, MemoryFilter};
use linerate_bpf::map::create_array;

/// Bytes before each frame: a test run takes no fewer than an Ethernet header, and a filter has to
/// cope with shorter frames. The program moves `data` past them.
const PADDING: usize = 14;

/// Longest frame that lies in one piece in a test run, in bytes: a page without the 256 bytes of
/// headroom, the 320 of `skb_shared_info`, and the padding.
pub(crate) const LINEAR: usize = 4096 - 256 - 320 - PADDING;

/// A loaded XDP program that returns what a filter says.
pub(crate) struct Loaded(OwnedFd);

impl Loaded {
    /// Loads `filter` as a subprogram that is told a frame length of `extra` bytes more than there
    /// are; the error is the verifier's log.
    pub(crate) fn new(filter: &[Instruction], extra: u16) -> Result<Self, String> {
        const PSEUDO_CALL: u8 = 1;
        const BUFFER_LENGTH: i32 = libbpf_sys::BPF_FUNC_xdp_get_buff_len as i32;
        let mut program = vec![
            Instruction::new(0xbf, 6, 1, 0, 0),
            Instruction::new(0x85, 0, 0, 0, BUFFER_LENGTH),
            Instruction::new(0xbc, 3, 0, 0, 0),
            Instruction::new(0x04, 3, 0, 0, i32::from(extra) - PADDING as i32),
            Instruction::new(0x61, 2, 6, 4, 0),
            Instruction::new(0x61, 1, 6, 0, 0),
            Instruction::new(0x07, 1, 0, 0, PADDING as i32),
            Instruction::new(0x85, 0, PSEUDO_CALL, 0, 1),
            Instruction::new(0x95, 0, 0, 0, 0),
        ];
        program.extend(filter);
        load(&program)
    }

    /// As [`Loaded::new`] with a filter for memory: the program copies what it reaches of the frame to a map.
    pub(crate) fn in_memory(filter: &MemoryFilter, extra: u16) -> Result<Self, String> {
        const LOOKUP: i32 = libbpf_sys::BPF_FUNC_map_lookup_elem as i32;
        const BUFFER_LENGTH: i32 = libbpf_sys::BPF_FUNC_xdp_get_buff_len as i32;
        const LOAD_BYTES: i32 = libbpf_sys::BPF_FUNC_xdp_load_bytes as i32;
        let map = create_array("memory", filter.reach.max(1)).expect("a map");
        let reach = filter.reach as i32;
        let one = Instruction::new;
        let mut program = vec![
            one(0xbf, 6, 1, 0, 0),
            one(0x62, 10, 0, -4, 0),
            // The two halves of the map's address.
            one(0x18, 1, libbpf_sys::BPF_PSEUDO_MAP_FD as u8, 0, map.as_fd().as_raw_fd()),
            one(0, 0, 0, 0, 0),
            one(0xbf, 2, 10, 0, 0),
            one(0x07, 2, 0, 0, -4),
            one(0x85, 0, 0, 0, LOOKUP),
            one(0x55, 0, 0, 2, 0),
            one(0xb4, 0, 0, 0, 0),
            one(0x95, 0, 0, 0, 0),
            one(0xbf, 7, 0, 0, 0),
            one(0xbf, 1, 6, 0, 0),
            one(0x85, 0, 0, 0, BUFFER_LENGTH),
            one(0xbc, 8, 0, 0, 0),
            one(0x04, 8, 0, 0, -(PADDING as i32)),
            // r9: what the filter reaches of it.
            one(0xbc, 9, 8, 0, 0),
            one(0xb6, 9, 0, 1, reach),
            one(0xb4, 9, 0, 0, reach),
            one(0x16, 9, 0, 6, 0),
            one(0xbf, 1, 6, 0, 0),
            one(0xb4, 2, 0, 0, PADDING as i32),
            one(0xbf, 3, 7, 0, 0),
            one(0xbc, 4, 9, 0, 0),
            one(0x85, 0, 0, 0, LOAD_BYTES),
            one(0x56, 0, 0, 5, 0),
            one(0xbf, 1, 7, 0, 0),
            one(0xbf, 2, 9, 0, 0),
            one(0xbc, 3, 8, 0, 0),
            one(0x04, 3, 0, 0, extra.into()),
            one(0x85, 0, 1, 0, 1),
            one(0x95, 0, 0, 0, 0),
        ];
        program.extend(&filter.instructions);
        load(&program)
    }

    /// What the filter returns for `frame`.
    pub(crate) fn run(&self, frame: &[u8], scratch: &mut Vec<u8>) -> u32 {
        scratch.clear();
        scratch.resize(PADDING, 0xee);
        scratch.extend_from_slice(frame);
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: scratch.as_ptr().cast(),
            data_size_in: scratch.len() as u32,
            ..Default::default()
        };
        // SAFETY: `options` points to `scratch`, which outlives the call and is only read.
        let result =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut options) };
        assert_eq!(result, 0, "a test run of {} bytes", scratch.len());
        options.retval
    }
}

fn load(program: &[Instruction]) -> Result<Loaded, String> {
    const NAME: &CStr = c"filter";
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let attempt = |log: &mut [u8]| {
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            prog_flags: libbpf_sys::BPF_F_XDP_HAS_FRAGS,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() { std::ptr::null_mut() } else { log.as_mut_ptr().cast() },
            ..Default::default()
        };
        // SAFETY: `Instruction` has the layout of `bpf_insn` (its tests compare the sizes), the
        // pointers are valid for the call, and the log has the length that is given.
        unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_XDP,
                NAME.as_ptr(),
                LICENSE.as_ptr(),
                program.as_ptr().cast(),
                program.len() as libbpf_sys::size_t,
                &mut options,
            )
        }
    };
    let fd = attempt(&mut []);
    if fd >= 0 {
        // SAFETY: the kernel has just given this descriptor to us alone.
        return Ok(Loaded(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let mut log = vec![0_u8; 1 << 20];
    attempt(&mut log);
    // SAFETY: the kernel ends the log with a zero byte, and the buffer was all zeroes before.
    let log = unsafe { CStr::from_ptr(log.as_ptr().cast::<c_char>()) };
    let log = log.to_string_lossy();
    Err(format!("error {fd}: {}", &log[log.len().saturating_sub(3000)..]))
}
