//! Test runs of BPF programs (`BPF_PROG_TEST_RUN`): an XDP or tc program on one frame, a syscall program as a function.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::{check, options};
use crate::{Error, Result};

/// Bytes by which a program may make a frame longer.
const TAILROOM: usize = 256;

/// The result of an XDP program for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOutput {
    /// `XDP_PASS` and the like.
    pub action: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Average of all runs, nanoseconds.
    pub duration: u32,
}

/// Runs an XDP program `repeat` times on copies of `frame`, as if interface `ifindex` of this network
/// namespace had received it; 0 stands for no interface. The verdict is not executed. Every run after the
/// first sees the frame as the previous run left it.
///
/// # Errors
/// [`Error::Privilege`]; [`Error::System`], for instance `EINVAL` where the frame is shorter than 14 bytes
/// or longer than a page less the kernel's head and tail room.
pub fn run_xdp(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ifindex: u32,
    repeat: u32,
) -> Result<XdpOutput> {
    let mut context = libbpf_sys::xdp_md {
        data_end: frame.len() as u32,
        ingress_ifindex: ifindex,
        ..Default::default()
    };
    let mut after = vec![0; frame.len() + TAILROOM];
    let mut options = options!(bpf_test_run_opts {
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: after.as_mut_ptr().cast(),
        data_size_out: after.len() as u32,
        ctx_in: (&raw mut context).cast(),
        ctx_size_in: size_of_val(&context) as u32,
        repeat: repeat.min(i32::MAX as u32) as i32,
    });
    // SAFETY: `options` and all that it points to outlive the call and have the sizes that it says.
    let answer =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    check(answer, "run an XDP program on a frame")?;
    after.truncate(options.data_size_out as usize);
    Ok(XdpOutput { action: options.retval, frame: after, duration: options.duration })
}

/// Runs a tc program on `frame`, which it may change but not resize. The frame comes in by the loopback interface of this
/// network namespace. Returns what the program returns.
///
/// # Errors
/// As [`run_xdp`].
pub fn run_tc(program: BorrowedFd<'_>, frame: &mut [u8]) -> Result<u32> {
    let mut options = options!(bpf_test_run_opts {
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: frame.as_mut_ptr().cast(),
        data_size_out: frame.len() as u32,
    });
    // SAFETY: `options` and `frame`, whose size it says, outlive the call. The kernel copies the frame before it runs the
    // program, and back to where it came from afterwards.
    let answer =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    check(answer, "run a tc program on a frame").map(|()| options.retval)
}

/// Calls a program of type `syscall` with `context`, which it may change; returns what it returns.
///
/// # Errors
/// [`Error::Privilege`], [`Error::System`].
pub fn run_syscall(program: BorrowedFd<'_>, context: &mut [u8]) -> Result<u32> {
    let mut options = options!(bpf_test_run_opts {
        ctx_in: context.as_mut_ptr().cast(),
        ctx_size_in: context.len() as u32,
    });
    // SAFETY: `options` and `context`, whose size it says, outlive the call. The kernel writes the
    // context back to where it came from.
    let answer =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    match answer {
        0.. => Ok(options.retval),
        _ => Err(Error::system("call a BPF program", io::Error::from_raw_os_error(-answer))),
    }
}
