//! Which frames XDP takes from the stack: a classic program, which is translated to eBPF.
//!
//! XDP takes only datagrams that the companion socket would certainly receive: whole UDP datagrams over
//! Ethernet, without tags, IP options, extension headers or fragmentation, to the port and one of the
//! addresses. All other frames go to the stack, and from there to the companion socket. So do frames from
//! sources that cannot be on a wire: the stack drops them, and a program may trust 127.0.0.1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_bpf::filter::{ClassicInstruction, ClassicProgram};
use linerate_wire::ethernet;

use crate::{Error, Result};

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_LEN: u16 = 0x80;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Senders of one source-specific group that a conditional jump can step over.
const MAX_SENDERS: usize = 24;

/// What to take from the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterSpec {
    pub(super) port: u16,
    /// The interface's own hardware address: a frame to another one is not for this host.
    pub(super) mac: ethernet::Address,
    /// The stack receives IPv6 packets from the interface.
    pub(super) ipv6: bool,
    /// Addresses that the stack delivers to this host.
    pub(super) unicast: Vec<IpAddr>,
    /// IPv4 prefixes of this host: packets with a source address of them are left to the stack.
    pub(super) own_sources: Vec<(Ipv4Addr, u8)>,
    /// Groups, each with its accepted senders; none means any.
    pub(super) groups: Vec<(IpAddr, Vec<IpAddr>)>,
    /// The longest frame that fits into a chunk.
    pub(super) max_frame: u32,
}

impl FilterSpec {
    /// One that takes nothing.
    pub(super) fn nothing(&self) -> Self {
        Self { unicast: Vec::new(), groups: Vec::new(), ..self.clone() }
    }

    /// Whether this takes all that `other` takes.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let group = |(address, senders): &(IpAddr, Vec<IpAddr>)| {
            let mut own = self.groups.iter().filter(|(own, _)| own == address);
            own.any(|(_, own)| {
                own.is_empty()
                    || !senders.is_empty() && senders.iter().all(|sender| own.contains(sender))
            })
        };
        self.mac == other.mac
            && (self.ipv6 || !other.ipv6)
            && self.max_frame >= other.max_frame
            && self.own_sources.iter().all(|ip| other.own_sources.contains(ip))
            && other.unicast.iter().all(|ip| self.unicast.contains(ip))
            && other.groups.iter().all(group)
    }

    /// The program.
    pub(super) fn compile(&self) -> Result<ClassicProgram> {
        let mut program = Program::default();
        program.load(LOAD_LEN, 0);
        program.refuse_if(JUMP_GREATER, self.max_frame);
        program.load(LOAD_HALF, 12);
        let v6 = self.version(true)?;
        // An unconditional jump has a 32-bit offset.
        program.instruction(JUMP_EQUAL, 1, 0, 0x0800);
        let over = self.version(false)?.instructions.len() as u32;
        program.instruction(0x05, 0, 0, over);
        program.instructions.extend(self.version(false)?.instructions);
        program.instruction(JUMP_EQUAL, 1, 0, 0x86dd);
        program.instruction(RETURN, 0, 0, 0);
        program.instructions.extend(v6.instructions);
        ClassicProgram::new(program.instructions).map_err(|why| {
            Error::Invalid(format!("too many groups and addresses for one receiver: {why}"))
        })
    }

    /// The part for one version of IP; it ends with a refusal.
    fn version(&self, v6: bool) -> Result<Program> {
        let mut program = Program::default();
        let (protocol, port, destination, source) =
            if v6 { (20, 56, 38, 22) } else { (23, 36, 30, 26) };
        if v6 && !self.ipv6 {
            program.instruction(RETURN, 0, 0, 0);
            return Ok(program);
        }
        if !v6 {
            program.load(LOAD_BYTE, 14);
            program.refuse_unless(0x45);
            program.load(LOAD_HALF, 20);
            program.refuse_if(JUMP_SET, 0x3fff);
        }
        // Sources of the host itself, of nobody, of groups, IPv4 in IPv6 (`ip_route_input_slow` and
        // `ip6_rcv_core` in the kernel).
        if v6 {
            program.load(LOAD_WORD, source);
            program.refuse_if(JUMP_EQUAL, 0);
            program.refuse_if(JUMP_GREATER, 0xfeff_ffff);
        } else {
            program.load(LOAD_BYTE, source);
            program.refuse_if(JUMP_EQUAL, 0);
            program.refuse_if(JUMP_EQUAL, 127);
            program.refuse_if(JUMP_GREATER, 223);
        }
        program.load(LOAD_BYTE, protocol);
        program.refuse_unless(17);
        program.load(LOAD_HALF, port);
        program.refuse_unless(self.port.into());
        if !v6 {
            program.load(LOAD_WORD, source);
            for (address, prefix_len) in &self.own_sources {
                let first = address.to_bits();
                let last = first | u32::MAX.checked_shr((*prefix_len).into()).unwrap_or(0);
                // Skips the next two if the source is below `first`.
                program.instruction(JUMP_AT_LEAST, 0, 2, first);
                program.instruction(JUMP_GREATER, 1, 0, last);
                program.instruction(RETURN, 0, 0, 0);
            }
        }
        for address in self.unicast.iter().filter(|address| address.is_ipv6() == v6) {
            let mut then = Program::default();
            then.load(LOAD_WORD, 0);
            then.refuse_unless(u32::from_be_bytes(first(&self.mac.0)));
            then.load(LOAD_HALF, 4);
            then.refuse_unless(u16::from_be_bytes([self.mac.0[4], self.mac.0[5]]).into());
            then.instruction(RETURN, 0, 0, u32::MAX);
            program.compare(*address, destination, then);
        }
        for (group, senders) in self.groups.iter().filter(|(group, _)| group.is_ipv6() == v6) {
            if senders.len() > MAX_SENDERS {
                return Err(Error::Invalid(format!(
                    "{} senders of the group {group}: xdp takes at most {MAX_SENDERS}",
                    senders.len()
                )));
            }
            let mut then = Program::default();
            then.load(LOAD_BYTE, 0);
            then.instruction(JUMP_SET, 1, 0, 1);
            then.instruction(RETURN, 0, 0, 0);
            for sender in senders {
                let mut taken = Program::default();
                taken.instruction(RETURN, 0, 0, u32::MAX);
                then.compare(*sender, source, taken);
            }
            then.instruction(RETURN, 0, 0, if senders.is_empty() { u32::MAX } else { 0 });
            program.compare(*group, destination, then);
        }
        program.instruction(RETURN, 0, 0, 0);
        Ok(program)
    }
}

#[derive(Default)]
struct Program {
    instructions: Vec<ClassicInstruction>,
}

impl Program {
    fn instruction(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.instructions.push(ClassicInstruction { code, jt, jf, k });
    }

    fn load(&mut self, size: u16, at: u32) {
        self.instruction(size, 0, 0, at);
    }

    fn refuse_unless(&mut self, value: u32) {
        self.instruction(JUMP_EQUAL, 1, 0, value);
        self.instruction(RETURN, 0, 0, 0);
    }

    fn refuse_if(&mut self, jump: u16, value: u32) {
        self.instruction(jump, 0, 1, value);
        self.instruction(RETURN, 0, 0, 0);
    }

    /// `then`, which returns, if the address at offset `at` is `address`.
    fn compare(&mut self, address: IpAddr, at: u32, then: Program) {
        let words = match address {
            IpAddr::V4(address) => vec![Ipv4Addr::to_bits(address)],
            IpAddr::V6(address) => {
                let bits = Ipv6Addr::to_bits(address);
                [96, 64, 32, 0].map(|shift| (bits >> shift) as u32).to_vec()
            }
        };
        let mut left = words.len() * 2 + then.instructions.len();
        for (word, place) in words.into_iter().zip((at..).step_by(4)) {
            self.load(LOAD_WORD, place);
            left -= 2;
            self.instruction(JUMP_EQUAL, 0, left as u8, word);
        }
        self.instructions.extend(then.instructions);
    }
}

fn first(bytes: &[u8; 6]) -> [u8; 4] {
    [bytes[0], bytes[1], bytes[2], bytes[3]]
}

#[cfg(test)]
mod tests;
