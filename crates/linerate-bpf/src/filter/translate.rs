//! [`translate`]: from a checked classic program to the body of an eBPF subprogram.
//!
//! Registers: R0 is the accumulator A (and the verdict), R1 to R3 stay as they came in, R4 is the index X, R5
//! holds `data + X` while the facts say that it does. Only a look-up of an address is a call: R6 to R9 save the others.
//! Scratch words are at the top of the stack frame, 4 bytes each. An address to look up is below them.
//!
//! The verifier wants every packet access to be preceded by a comparison with `data_end`. Three
//! sets of facts keep those comparisons few: what every accepting path will check anyway
//! ([`Demand`], from the back: checking it early rejects the same frames), what has been checked
//! on every path that leads here ([`Known`], from the front), and what the index can be at most.

mod facts;

use std::sync::Arc;

use self::facts::{Awaited, Demand, Known, end};
use super::classic::{
    Ancillary, Arithmetic, ClassicProgram, Condition, InvalidProgram, Operand, Operation,
    SCRATCH_WORDS, Width,
};
use super::instruction::Instruction;
use super::sets::{AddressSet, Version, WORDS};

/// End of the reachable part of a frame: a load that ends past this byte rejects the frame.
///
/// The verifier follows packet pointers up to 65,535 bytes (`MAX_PACKET_OFF`); 64 of them are left to callers
/// whose `data` is a little inside the packet. No driver hands a longer linear frame to a native XDP program:
/// even a 64 KiB page loses more than that to headroom and frame info.
pub const MAX_PACKET_OFFSET: u32 = 0xffff - 64;

/// Translates `program` into the body of an eBPF subprogram with the verdict of libpcap's matcher.
///
/// On entry R1 is the packet's `data`, R2 its `data_end` (both as packet pointers), R3 the length
/// of the whole frame in bytes as a 32-bit number. The body ends with R0 = 0 for a frame to
/// reject, else the (nonzero) number of bytes that the classic program accepts. It calls nothing
/// and uses up to 64 bytes of stack. Looking addresses up takes a call and 20 bytes more; the program must live until
/// the kernel has loaded the result. It uses 32-bit jumps, which kernels know since 5.1.
///
/// Packet loads see the linear part of the frame, `data..data_end`. Of a multi-buffer frame that
/// is the first buffer only: a load past it rejects the frame, as a load past the end does. So
/// does a load that ends past [`MAX_PACKET_OFFSET`]. `len` in an expression is R3, the real length.
///
/// Where libpcap and the kernel's own classic engine differ, this follows libpcap: an indirect
/// load whose index and offset sum to more than 32 bits rejects, and shifting by an index of 32 or
/// more gives 0 (but for a program of [`ClassicProgram::with_inline_vlan_tags`], which shifts as the kernel does).
///
/// # Errors
/// Programs that read Linux packet metadata, which an XDP program lacks, programs with loops or with
/// uninitialised scratch words, and programs whose translation needs jumps that one eBPF instruction cannot make.
pub fn translate(program: &ClassicProgram) -> Result<Vec<Instruction>, Untranslatable> {
    translate_frame(program, Frame::Packet).map(|(code, _)| code)
}

/// A filter for a program that has the first bytes of a frame in memory of its own; made by
/// [`translate_for_memory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFilter {
    /// The body of the subprogram.
    pub instructions: Vec<Instruction>,
    /// The bytes that the memory must have: those after them change no verdict.
    pub reach: u32,
    /// Where it looks addresses up: the instructions name their maps.
    sets: Vec<Arc<AddressSet>>,
}

/// As [`translate`], for programs without packet pointers, as tracing programs are. They copy the frame to
/// memory before they call the filter: as much as [`MemoryFilter::reach`] says, or all if it is shorter.
///
/// On entry R1 is that memory, R2 how many bytes of the frame are in it, R3 the length of the whole frame.
///
/// # Errors
/// As [`translate`].
pub fn translate_for_memory(program: &ClassicProgram) -> Result<MemoryFilter, Untranslatable> {
    let (instructions, reach) = translate_frame(program, Frame::Memory)?;
    Ok(MemoryFilter { instructions, reach, sets: program.sets().to_vec() })
}

/// The instructions, and the bytes of a frame that they reach.
fn translate_frame(
    program: &ClassicProgram,
    frame: Frame,
) -> Result<(Vec<Instruction>, u32), Untranslatable> {
    match program.obstacle() {
        // Only a socket's filter has a length, and no sets.
        None | Some(InvalidProgram::TooLong { .. } | InvalidProgram::LookUp { .. }) => {}
        Some(obstacle) => return Err(Untranslatable::Refused(obstacle)),
    }
    let operations = program.operations();
    for (at, operation) in operations.iter().enumerate() {
        match *operation {
            Operation::LoadAncillary(what) => return Err(Untranslatable::Metadata { at, what }),
            Operation::LoadAbsolute { offset: offset @ RELATIVE_OFFSETS.., .. } => {
                return Err(Untranslatable::Relative { at, offset });
            }
            Operation::Member { set, version, .. }
                if program.sets()[set].kernel_map(version).is_none() =>
            {
                return Err(Untranslatable::Unloaded { at });
            }
            _ => {}
        }
    }
    let demands = Demand::of(operations);
    Translation::new(program, &demands, frame).run()
}

/// How the program has the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// Between two packet pointers.
    Packet,
    /// In memory, with a length.
    Memory,
}

/// Why a valid classic program has no equivalent in XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// It loads metadata that only socket filters have.
    #[error(
        "instruction {at} of the filter program reads packet metadata ({what:?}), which XDP does not \
         have; compile the expression for the link type, not for the live interface"
    )]
    Metadata {
        /// Index of the classic instruction.
        at: usize,
        /// What it reads.
        what: Ancillary,
    },
    /// It loads relative to a header that the kernel finds for it (`SKF_NET_OFF`, `SKF_LL_OFF`).
    #[error(
        "instruction {at} of the filter program reads at {offset:#x}, relative to a header that only \
         socket filters know; filter in user space"
    )]
    Relative {
        /// Index of the classic instruction.
        at: usize,
        /// The offset as the classic instruction has it.
        offset: u32,
    },
    /// It looks an address up in a set that is in no map of the kernel ([`ClassicProgram::load_sets`]).
    #[error("instruction {at} of the filter program looks an address up in no map of the kernel")]
    Unloaded {
        /// Index of the classic instruction.
        at: usize,
    },
    /// It breaks another rule of the kernel's.
    #[error(transparent)]
    Refused(InvalidProgram),
    /// A jump would have to go further than 32,767 instructions.
    #[error(
        "the filter program is too long for eBPF: instruction {at} would jump over {instructions} \
         instructions; shorten the expression or filter in user space"
    )]
    TooFar {
        /// Index of the classic instruction that jumps.
        at: usize,
        /// How far it would have to go.
        instructions: usize,
    },
}

/// `SKF_LL_OFF`: absolute offsets from here up are relative to headers that a socket filter knows.
const RELATIVE_OFFSETS: u32 = -0x20_0000_i32 as u32;

/// Where a jump goes.
#[derive(Clone, Copy, Debug)]
enum Target {
    ClassicInstruction(usize),
    Reject,
}

/// A jump whose distance is not known yet.
struct Jump {
    /// Index of the eBPF instruction.
    from: usize,
    /// Index of the classic instruction that it came from.
    at: usize,
    to: Target,
}

struct Translation<'a> {
    operations: &'a [Operation],
    sets: &'a [Arc<AddressSet>],
    demands: &'a [Demand],
    as_kernel: bool,
    frame: Frame,
    /// The end of the bytes that some load can read.
    reach: u32,
    /// Facts before each classic instruction; `None` where nothing leads.
    known: Vec<Option<Known>>,
    /// First eBPF instruction of each classic instruction.
    starts: Vec<usize>,
    code: Vec<Instruction>,
    jumps: Vec<Jump>,
}

impl<'a> Translation<'a> {
    fn new(program: &'a ClassicProgram, demands: &'a [Demand], frame: Frame) -> Self {
        let operations = program.operations();
        let mut known = vec![None; operations.len()];
        known[0] = (!demands[0].is_impossible()).then_some(Known::AT_START);
        Self {
            operations,
            sets: program.sets(),
            demands,
            as_kernel: program.as_kernel,
            frame,
            reach: 0,
            known,
            starts: vec![0; operations.len()],
            code: Vec::with_capacity(operations.len() * 2),
            jumps: Vec::new(),
        }
    }

    fn run(mut self) -> Result<(Vec<Instruction>, u32), Untranslatable> {
        let awaited = Awaited::of(self.operations);
        let can_accept = self.known[0].is_some();
        if can_accept && awaited.accumulator {
            self.emit(set(ACCUMULATOR, 0));
        }
        if can_accept && awaited.index {
            self.emit(set(INDEX, 0));
        }
        if can_accept && !self.sets.is_empty() {
            for (saved, register) in SAVED.into_iter().take(3) {
                self.emit(alu64(MOVE, saved, register));
            }
        }
        for at in 0..self.operations.len() {
            if let Some(known) = self.known[at] {
                self.starts[at] = self.code.len();
                self.classic_instruction(at, known);
            }
        }
        self.finish()
    }

    /// Emits one classic instruction, and passes on what holds after it.
    fn classic_instruction(&mut self, at: usize, known: Known) {
        let operation = self.operations[at];
        let after = self.body(at, operation, known);
        for next in operation.successors(at) {
            if !self.demands[next].is_impossible() {
                let facts = &mut self.known[next];
                *facts = Some(facts.map_or(after, |before| before.on_either(after)));
            }
        }
        match operation {
            Operation::Branch { condition, operand, yes, no } => {
                self.branch(at, condition, operand, yes, no);
            }
            Operation::Member { yes, no, .. } => {
                let [is, is_not] = [NOT_EQUAL, EQUAL]
                    .map(|operator| Instruction::new(JMP | operator, AT_INDEX, 0, 0, 0));
                self.branch_by(at, is, Some(is_not), yes, no);
            }
            Operation::Jump(target) | Operation::Keep { next: target, .. } => self.go(at, target),
            Operation::Return(_) | Operation::ReturnAccumulator => {}
            _ => self.go(at, at + 1),
        }
    }

    /// Emits what a classic instruction does but for where it goes; returns the facts after it.
    fn body(&mut self, at: usize, operation: Operation, known: Known) -> Known {
        match operation {
            Operation::LoadAbsolute { width, offset } => {
                let known = self.reach_frame(at, ACCUMULATOR, end(offset, width), known);
                self.load(ACCUMULATOR, DATA, offset, width);
                return known;
            }
            Operation::LoadIndirect { width, offset } => {
                let known = self.reach_indexed(at, end(offset, width), known);
                self.load(ACCUMULATOR, AT_INDEX, offset, width);
                return known;
            }
            Operation::IndexHeaderLength { offset } => {
                let known = self.reach_frame(at, INDEX, end(offset, Width::Byte), known);
                self.load(INDEX, DATA, offset, Width::Byte);
                self.emit(alu_constant(AND, INDEX, 0x0f));
                self.emit(alu_constant(SHIFT_LEFT, INDEX, 2));
                return known.with_index(0x0f << 2);
            }
            Operation::LoadLength => self.emit(copy(ACCUMULATOR, LENGTH)),
            Operation::LoadConstant(k) => self.emit(set(ACCUMULATOR, k)),
            Operation::LoadScratch(word) => self.emit(from_scratch(ACCUMULATOR, word)),
            Operation::IndexLength => {
                self.emit(copy(INDEX, LENGTH));
                return known.with_index(u32::MAX);
            }
            Operation::IndexConstant(k) => {
                self.emit(set(INDEX, k));
                return known.with_index(k);
            }
            Operation::IndexScratch(word) => {
                self.emit(from_scratch(INDEX, word));
                return known.with_index(u32::MAX);
            }
            Operation::IndexFromAccumulator => {
                self.emit(copy(INDEX, ACCUMULATOR));
                return known.with_index(u32::MAX);
            }
            Operation::AccumulatorFromIndex => self.emit(copy(ACCUMULATOR, INDEX)),
            Operation::Store(word) => self.emit(to_scratch(ACCUMULATOR, word)),
            Operation::StoreIndex(word) => self.emit(to_scratch(INDEX, word)),
            Operation::Compute(arithmetic, operand) => self.compute(at, arithmetic, operand),
            Operation::Negate => self.emit(Instruction::new(ALU32 | NEGATE, ACCUMULATOR, 0, 0, 0)),
            Operation::Return(k) => {
                self.emit(set(ACCUMULATOR, k));
                self.emit(exit());
            }
            Operation::ReturnAccumulator => self.emit(exit()),
            Operation::Keep { word, .. } => self.keep_word(word),
            Operation::Member { set, version, .. } => {
                self.look_up(&self.sets[set].clone(), version);
                return Known { indexed: 0, ..known };
            }
            Operation::Jump(_) | Operation::Branch { .. } => {}
            Operation::LoadAncillary(_) => unreachable!("refused before anything is emitted"),
        }
        known
    }

    /// Makes sure that the frame has `end` bytes; may clobber `scratch`.
    fn reach_frame(&mut self, at: usize, scratch: u8, end: u32, known: Known) -> Known {
        if known.frame >= end {
            return known;
        }
        let frame = self.demands[at].frame;
        self.reach = self.reach.max(frame);
        match self.frame {
            Frame::Packet => {
                self.emit(alu64(MOVE, scratch, DATA));
                self.bound(at, scratch, frame);
            }
            Frame::Memory => {
                let shorter = jump_constant(JMP32 | LESS, FRAME_END, frame);
                self.jump(at, shorter, Target::Reject);
            }
        }
        Known { frame, ..known }
    }

    /// Makes sure that R5 is `data + X` with `end` bytes after it; may clobber the accumulator.
    fn reach_indexed(&mut self, at: usize, end: u32, known: Known) -> Known {
        if known.indexed >= end {
            return known;
        }
        let indexed = self.demands[at].indexed;
        let limit = MAX_PACKET_OFFSET - indexed;
        if known.index_max > limit {
            let beyond = jump_constant(JMP32 | GREATER, INDEX, limit);
            self.jump(at, beyond, Target::Reject);
        }
        if known.index_max > limit || known.indexed == 0 {
            self.emit(alu64(MOVE, AT_INDEX, INDEX));
            self.emit(alu64(ADD, AT_INDEX, DATA));
        }
        let index_max = known.index_max.min(limit);
        self.reach = self.reach.max(index_max + indexed);
        let end = if self.frame == Frame::Packet { AT_INDEX } else { INDEX };
        self.emit(alu64(MOVE, ACCUMULATOR, end));
        self.bound(at, ACCUMULATOR, indexed);
        Known { indexed, index_max, ..known }
    }

    /// Rejects the frame unless `bytes` bytes are between `pointer`, or the offset of that name, and the end.
    fn bound(&mut self, at: usize, pointer: u8, bytes: u32) {
        self.emit(Instruction::new(ALU64 | ADD, pointer, 0, 0, bytes as i32));
        let past = Instruction::new(JMP | GREATER | REGISTER, pointer, FRAME_END, 0, 0);
        self.jump(at, past, Target::Reject);
    }

    /// Loads big-endian bytes at `offset` from `base` into `destination`.
    fn load(&mut self, destination: u8, mut base: u8, offset: u32, width: Width) {
        let near = i16::try_from(offset).unwrap_or_else(|_| {
            self.emit(alu64(MOVE, destination, base));
            self.emit(Instruction::new(ALU64 | ADD, destination, 0, 0, offset as i32));
            base = destination;
            0
        });
        let (code, bits) = match width {
            Width::Byte => (LOAD_BYTE, 8),
            Width::Half => (LOAD_HALF, 16),
            Width::Word => (LOAD_WORD, 32),
        };
        self.emit(Instruction::new(code, destination, base, near, 0));
        if width != Width::Byte {
            self.emit(Instruction::new(TO_BIG_ENDIAN, destination, 0, 0, bits));
        }
    }

    fn compute(&mut self, at: usize, arithmetic: Arithmetic, operand: Operand) {
        use Arithmetic::*;
        let operator = match arithmetic {
            Add => ADD,
            Subtract => SUBTRACT,
            Multiply => MULTIPLY,
            Divide => DIVIDE,
            Or => OR,
            And => AND,
            ShiftLeft => SHIFT_LEFT,
            ShiftRight => SHIFT_RIGHT,
            Modulo => MODULO,
            Xor => XOR,
        };
        let by_index = Instruction::new(ALU32 | operator | REGISTER, ACCUMULATOR, INDEX, 0, 0);
        match (arithmetic, operand) {
            (_, Operand::Constant(k)) => self.emit(alu_constant(operator, ACCUMULATOR, k)),
            (Divide | Modulo, Operand::Index) => {
                self.jump(at, jump_constant(JMP32 | EQUAL, INDEX, 0), Target::Reject);
                self.emit(by_index);
            }
            // As the kernel's classic engine, which runs the same instruction.
            (ShiftLeft | ShiftRight, Operand::Index) if self.as_kernel => self.emit(by_index),
            (ShiftLeft | ShiftRight, Operand::Index) => {
                self.emit(Instruction::new(JMP32 | GREATER, INDEX, 0, 2, 31));
                self.emit(by_index);
                self.emit(Instruction::new(JMP, 0, 0, 1, 0));
                self.emit(set(ACCUMULATOR, 0));
            }
            (_, Operand::Index) => self.emit(by_index),
        }
    }

    fn branch(&mut self, at: usize, condition: Condition, operand: Operand, yes: usize, no: usize) {
        let compare = |operator| match operand {
            Operand::Constant(k) => jump_constant(JMP32 | operator, ACCUMULATOR, k),
            Operand::Index => {
                Instruction::new(JMP32 | operator | REGISTER, ACCUMULATOR, INDEX, 0, 0)
            }
        };
        let (operator, inverse) = match condition {
            Condition::Equal => (EQUAL, Some(NOT_EQUAL)),
            Condition::Greater => (GREATER, Some(LESS_OR_EQUAL)),
            Condition::GreaterOrEqual => (GREATER_OR_EQUAL, Some(LESS)),
            Condition::AnyBit => (ANY_BIT, None),
        };
        self.branch_by(at, compare(operator), inverse.map(compare), yes, no);
    }

    /// Goes on at `yes` or `no`, as a conditional jump says, or another one that is its inverse.
    fn branch_by(
        &mut self,
        at: usize,
        jump: Instruction,
        inverse: Option<Instruction>,
        yes: usize,
        no: usize,
    ) {
        if yes == no {
            return self.go(at, yes);
        }
        match inverse {
            Some(inverse) if self.follows(at, yes) => self.jump(at, inverse, self.target(no)),
            _ => {
                self.jump(at, jump, self.target(yes));
                self.go(at, no);
            }
        }
    }

    /// Keeps the accumulator as a word of the address to look up, in network order.
    fn keep_word(&mut self, word: usize) {
        let to_big_endian = Instruction::new(TO_BIG_ENDIAN, ACCUMULATOR, 0, 0, 32);
        self.emit(to_big_endian);
        self.emit(to_stack(ACCUMULATOR, ADDRESS + 4 * word as i16));
        self.emit(to_big_endian);
    }

    /// Looks up the address, whose last word is the accumulator. R5 is 0 if it is not in the set.
    fn look_up(&mut self, set: &AddressSet, version: Version) {
        let (map, networks) = set.kernel_map(version).expect("checked before anything is emitted");
        let (last, bits) = match version {
            Version::V4 => (0, 32),
            Version::V6 => (WORDS - 1, 128),
        };
        self.keep_word(last);
        let mut key = ADDRESS;
        if networks {
            // `struct bpf_lpm_trie_key_u8` begins with the length of the prefix.
            key -= 4;
            self.emit(Instruction::new(STORE_CONSTANT, FRAME_POINTER, 0, key, bits));
        }
        let [.., (saved_index, index)] = SAVED;
        self.emit(alu64(MOVE, saved_index, index));
        let pseudo_map = libbpf_sys::BPF_PSEUDO_MAP_FD as u8;
        self.emit(Instruction::new(LOAD_IMMEDIATE_64, 1, pseudo_map, 0, map));
        self.emit(Instruction::new(0, 0, 0, 0, 0));
        self.emit(alu64(MOVE, 2, FRAME_POINTER));
        self.emit(Instruction::new(ALU64 | ADD, 2, 0, 0, key.into()));
        let look_up = libbpf_sys::BPF_FUNC_map_lookup_elem as i32;
        self.emit(Instruction::new(JMP | CALL, 0, 0, 0, look_up));
        self.emit(alu64(MOVE, AT_INDEX, 0));
        for (saved, register) in SAVED {
            self.emit(alu64(MOVE, register, saved));
        }
        let address = ADDRESS + 4 * last as i16;
        self.emit(Instruction::new(LOAD_WORD, ACCUMULATOR, FRAME_POINTER, address, 0));
        self.emit(Instruction::new(TO_BIG_ENDIAN, ACCUMULATOR, 0, 0, 32));
    }

    /// Goes on at `target`: with a jump, unless it comes next anyway.
    fn go(&mut self, at: usize, target: usize) {
        if !self.follows(at, target) {
            self.jump(at, Instruction::new(JMP, 0, 0, 0, 0), self.target(target));
        }
    }

    /// Whether the code of `target` will directly follow that of `at`.
    ///
    /// Facts go forward only, so a classic instruction between the two that has none by now stays out.
    fn follows(&self, at: usize, target: usize) -> bool {
        self.known[target].is_some() && self.known[at + 1..target].iter().all(Option::is_none)
    }

    fn target(&self, at: usize) -> Target {
        if self.demands[at].is_impossible() {
            Target::Reject
        } else {
            Target::ClassicInstruction(at)
        }
    }

    fn jump(&mut self, at: usize, instruction: Instruction, to: Target) {
        self.jumps.push(Jump { from: self.code.len(), at, to });
        self.emit(instruction);
    }

    fn emit(&mut self, instruction: Instruction) {
        self.code.push(instruction);
    }

    /// Appends the common exit for rejected frames, and patches all jump distances.
    fn finish(mut self) -> Result<(Vec<Instruction>, u32), Untranslatable> {
        let reject = self.code.len();
        if reject == 0 || self.jumps.iter().any(|jump| matches!(jump.to, Target::Reject)) {
            self.emit(set(ACCUMULATOR, 0));
            self.emit(exit());
        }
        for &Jump { from, at, to } in &self.jumps {
            let to = match to {
                Target::ClassicInstruction(at) => self.starts[at],
                Target::Reject => reject,
            };
            let instructions = to - from - 1;
            self.code[from].offset = i16::try_from(instructions)
                .map_err(|_| Untranslatable::TooFar { at, instructions })?;
        }
        Ok((self.code, self.reach))
    }
}

const ACCUMULATOR: u8 = 0;
const DATA: u8 = 1;
const FRAME_END: u8 = 2;
const LENGTH: u8 = 3;
const INDEX: u8 = 4;
const AT_INDEX: u8 = 5;
const FRAME_POINTER: u8 = 10;

/// Where calls leave the registers that they may clobber. Only the index changes after the start.
const SAVED: [(u8, u8); 4] = [(6, DATA), (7, FRAME_END), (8, LENGTH), (9, INDEX)];
/// Bytes from the frame pointer to the address to look up.
const ADDRESS: i16 = -4 * (SCRATCH_WORDS as i16 + WORDS as i16);

const LOAD_IMMEDIATE_64: u8 = 0x18;
const STORE_CONSTANT: u8 = 0x62;
const CALL: u8 = 0x80;

const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const STORE_WORD: u8 = 0x63;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const REGISTER: u8 = 0x08;

const ADD: u8 = 0x00;
const SUBTRACT: u8 = 0x10;
const MULTIPLY: u8 = 0x20;
const DIVIDE: u8 = 0x30;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const SHIFT_LEFT: u8 = 0x60;
const SHIFT_RIGHT: u8 = 0x70;
const NEGATE: u8 = 0x80;
const MODULO: u8 = 0x90;
const XOR: u8 = 0xa0;
const MOVE: u8 = 0xb0;
const TO_BIG_ENDIAN: u8 = 0xdc;

const EQUAL: u8 = 0x10;
const GREATER: u8 = 0x20;
const GREATER_OR_EQUAL: u8 = 0x30;
const ANY_BIT: u8 = 0x40;
const NOT_EQUAL: u8 = 0x50;
const LESS: u8 = 0xa0;
const LESS_OR_EQUAL: u8 = 0xb0;
const EXIT: u8 = 0x90;

fn alu64(operator: u8, destination: u8, source: u8) -> Instruction {
    Instruction::new(ALU64 | operator | REGISTER, destination, source, 0, 0)
}

fn alu_constant(operator: u8, destination: u8, k: u32) -> Instruction {
    Instruction::new(ALU32 | operator, destination, 0, 0, k as i32)
}

fn set(destination: u8, k: u32) -> Instruction {
    alu_constant(MOVE, destination, k)
}

fn copy(destination: u8, source: u8) -> Instruction {
    Instruction::new(ALU32 | MOVE | REGISTER, destination, source, 0, 0)
}

fn jump_constant(code: u8, destination: u8, k: u32) -> Instruction {
    Instruction::new(code, destination, 0, 0, k as i32)
}

fn from_scratch(destination: u8, word: u32) -> Instruction {
    Instruction::new(LOAD_WORD, destination, FRAME_POINTER, scratch_offset(word), 0)
}

fn to_scratch(source: u8, word: u32) -> Instruction {
    to_stack(source, scratch_offset(word))
}

fn to_stack(source: u8, offset: i16) -> Instruction {
    Instruction::new(STORE_WORD, FRAME_POINTER, source, offset, 0)
}

/// Bytes from the frame pointer to scratch word `word`.
fn scratch_offset(word: u32) -> i16 {
    debug_assert!(word < SCRATCH_WORDS);
    -4 * (word as i16 + 1)
}

fn exit() -> Instruction {
    Instruction::new(JMP | EXIT, 0, 0, 0, 0)
}

#[cfg(test)]
mod tests;
