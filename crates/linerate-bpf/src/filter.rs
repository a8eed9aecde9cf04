//! Packet filters: classic BPF as libpcap compiles it, and its translation to eBPF.
//!
//! A packet socket runs a [`ClassicProgram`] as it is. An XDP program cannot, so
//! [`translate`] turns the same program into the body of an eBPF subprogram that gives the same
//! verdict on every frame. A tracing program, which has the frame in memory only, gets the same from
//! [`translate_for_memory`]. The translation is a pure function on numbers.

mod attach;
mod classic;
mod cooked;
mod instruction;
mod load;
mod look_up;
mod run;
mod sets;
mod tags;
mod translate;

pub use attach::attach;
pub use classic::{
    Ancillary, ClassicInstruction, ClassicProgram, InvalidProgram, MAX_INSTRUCTIONS, SCRATCH_WORDS,
};
pub use cooked::CookedHeader;
pub use instruction::Instruction;
pub(crate) use load::load;
pub use look_up::placeholders;
pub use run::SocketFrame;
pub use sets::AddressSet;
pub use tags::has_outer_tag;
pub use translate::{
    MAX_PACKET_OFFSET, MemoryFilter, Untranslatable, translate, translate_for_memory,
};
