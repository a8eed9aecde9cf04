//! The classic BPF program that the kernel runs on a ring's socket: direction first, then the
//! user's filter, then the snap length.

use super::direction::DirectionFilter;
use super::socket::Socket;
use crate::{Error, Result};
use linerate_bpf::filter::{ClassicInstruction, ClassicProgram, MAX_INSTRUCTIONS};

/// What decides whether a frame enters the ring, and how much of it.
#[derive(Clone, Debug)]
pub(super) struct SocketFilter {
    pub(super) direction: DirectionFilter,
    /// Index of the loopback interface where its frames may be seen; each of them comes by twice,
    /// as sent and as received.
    pub(super) loopback: Option<u32>,
    pub(super) filter: Option<ClassicProgram>,
    pub(super) snaplen: u32,
}

impl SocketFilter {
    /// Accepts frames from now on, as this program says. The kernel exchanges programs atomically.
    pub(super) fn open(&self, socket: &Socket) -> Result<()> {
        let program = self.program()?;
        attach(socket, &program)
    }

    /// Lets nothing in.
    pub(super) fn shut(socket: &Socket) -> Result<()> {
        attach(socket, &[ret(0)])
    }

    fn program(&self) -> Result<Vec<libc::sock_filter>> {
        let mut program = self.prologue();
        let cut;
        let instructions = match &self.filter {
            Some(filter) => {
                cut = filter.clone().with_snaplen(self.snaplen);
                cut.instructions()
            }
            None => &[],
        };
        program.extend(
            instructions.iter().map(|&ClassicInstruction { code, jt, jf, k }| libc::sock_filter {
                code,
                jt,
                jf,
                k,
            }),
        );
        if instructions.is_empty() {
            program.push(ret(self.snaplen));
        }
        if program.len() > MAX_INSTRUCTIONS {
            return Err(Error::Invalid(format!(
                "the filter has {} instructions, {} with the test of the direction; the kernel takes \
                 {MAX_INSTRUCTIONS}",
                instructions.len(),
                program.len()
            )));
        }
        Ok(program)
    }

    /// Rejects frames of the other direction, and those that the loopback interface sends: it receives them, too. So
    /// does libpcap.
    fn prologue(&self) -> Vec<libc::sock_filter> {
        let outgoing = u32::from(libc::PACKET_OUTGOING);
        let packet_type = load(libc::SKF_AD_PKTTYPE);
        let sent_by = |index| [load(libc::SKF_AD_IFINDEX), equal(index, 0, 1), ret(0)];
        let (mut program, loopback) = match (self.direction, self.loopback) {
            (DirectionFilter::In, _) => (vec![packet_type, equal(outgoing, 0, 1), ret(0)], None),
            (DirectionFilter::Out, index) => {
                (vec![packet_type, equal(outgoing, 1, 0), ret(0)], index)
            }
            (DirectionFilter::InOut, None) => (Vec::new(), None),
            (DirectionFilter::InOut, index) => (vec![packet_type, equal(outgoing, 0, 3)], index),
        };
        program.extend(loopback.into_iter().flat_map(sent_by));
        program
    }
}

fn load(ancillary: libc::c_int) -> libc::sock_filter {
    let k = (libc::SKF_AD_OFF + ancillary) as u32;
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k }
}

fn equal(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k }
}

fn ret(k: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

fn attach(socket: &Socket, program: &[libc::sock_filter]) -> Result<()> {
    socket
        .set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &to_kernel(program))
        .map_err(|error| Error::system("attach the filter to the packet socket", error))
}

/// The kernel's view of a program; it reads the instructions during the call only.
fn to_kernel(program: &[libc::sock_filter]) -> libc::sock_fprog {
    let len = u16::try_from(program.len()).expect("a program has at most 4096 instructions");
    libc::sock_fprog { len, filter: program.as_ptr().cast_mut() }
}

#[cfg(test)]
mod tests;
