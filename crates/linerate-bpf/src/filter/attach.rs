//! [`attach`]: a filter in front of a socket's queue.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::ClassicProgram;

/// Makes the kernel queue on `socket` only what `program` returns more than 0 for (`SO_ATTACH_FILTER`,
/// socket(7)). What is queued already stays. The program sees what the socket would receive from its first
/// byte on: frames, or on a netlink socket the messages of one notification. Loads of the classic machine
/// turn integers from network into host order, also those that netlink has in host order.
///
/// # Errors
/// The kernel's: `ENOMEM` above `net.core.optmem_max`, `EPERM` where filters are locked, `EINVAL` for what
/// [`ClassicProgram::obstacle`] names.
pub fn attach(socket: BorrowedFd<'_>, program: &ClassicProgram) -> io::Result<()> {
    let instructions = program.instructions();
    let filter = libc::sock_fprog {
        // The kernel refuses what is longer than `BPF_MAXINSNS`.
        len: u16::try_from(instructions.len()).unwrap_or(u16::MAX),
        filter: instructions.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: `filter` names the instructions with their number, in the kernel's layout (`ClassicInstruction`); the
    // kernel reads both during the call and keeps neither pointer.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::filter::ClassicInstruction;

    #[test]
    fn what_the_program_refuses_is_not_queued() {
        let instruction = |code, jt, jf, k| ClassicInstruction { code, jt, jf, k };
        // ldb [0]; jeq #'a', take, drop
        let program = ClassicProgram::new([
            instruction(0x30, 0, 0, 0),
            instruction(0x15, 0, 1, u32::from(b'a')),
            instruction(0x06, 0, 0, u32::MAX),
            instruction(0x06, 0, 0, 0),
        ])
        .unwrap();
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        attach(receiver.as_fd(), &program).unwrap();
        // A datagram that the filter drops counts as sent.
        for message in ["b1", "a2", "b3"] {
            sender.send(message.as_bytes()).unwrap();
        }
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 2);
        assert_eq!(&buffer[..2], b"a2");
        assert!(receiver.recv(&mut buffer).is_err());
    }
}
