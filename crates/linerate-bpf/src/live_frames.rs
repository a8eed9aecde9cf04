//! Live frames: an XDP program runs on the caller's frames, and the kernel executes the verdict
//! (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).
//!
//! The kernel fills a page with the frame once, and gives the same pages to the program again and
//! again: what a receiver wrote into a frame is still there the next time, only its start and end are
//! put back (`xdp_test_run_batch` in `net/bpf/test_run.c`). Frames go out when a batch ends, or after
//! every 16 to one interface (`DEV_MAP_BULK_SIZE`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::options;

/// Runs `program` `repeat` times (1 to 2^31 - 1) on copies of `frame`, `batch` (1 to 256, `TEST_XDP_MAX_BATCH`) at
/// a time with softirqs held off, on the current CPU and in the current network namespace. Returns
/// when all runs are done or a signal arrives.
///
/// # Errors
/// `EINTR` after a signal, when some of the runs are done; `EINVAL` where the frame is shorter than 14
/// bytes or does not fit in a page with the kernel's headroom (about 3,400 bytes fit), and on kernels
/// without live frames; `EPERM` without `CAP_NET_ADMIN` and `CAP_BPF`.
pub fn run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
    let mut options = options!(bpf_test_run_opts {
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: repeat.min(i32::MAX as u32) as i32,
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
    });
    // SAFETY: `options` and `frame` outlive the call, which reads `data_size_in` bytes at `data_in`
    // and writes only the result fields of `options`; the descriptor is open as long as it is borrowed.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
