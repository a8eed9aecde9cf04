use super::*;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> ClassicInstruction {
    ClassicInstruction { code, jt, jf, k }
}

/// `instructions`, then a return.
fn check(instructions: &[ClassicInstruction]) -> Result<ClassicProgram, InvalidProgram> {
    let mut all = instructions.to_vec();
    all.push(instruction(0x06, 0, 0, 0xffff));
    ClassicProgram::new(all)
}

#[test]
fn takes_what_libpcap_compiles_for_udp_port_53() {
    // `tcpdump -ddd 'ip and udp port 53'` has all of these kinds of instruction.
    let program = [
        instruction(0x28, 0, 0, 12),
        instruction(0x15, 0, 10, 0x800),
        instruction(0x30, 0, 0, 23),
        instruction(0x15, 0, 8, 17),
        instruction(0x28, 0, 0, 20),
        instruction(0x45, 6, 0, 0x1fff),
        instruction(0xb1, 0, 0, 14),
        instruction(0x48, 0, 0, 14),
        instruction(0x15, 2, 0, 53),
        instruction(0x48, 0, 0, 16),
        instruction(0x15, 0, 1, 53),
        instruction(0x06, 0, 0, 262_144),
        instruction(0x06, 0, 0, 0),
    ];
    let classic = ClassicProgram::new(program).unwrap();
    assert_eq!(classic.instructions(), program);
    assert!(classic.to_string().starts_with("40 0 0 12\n21 0 10 2048\n"));
    let cut = classic.with_snaplen(96);
    assert_eq!(cut.instructions()[11].k, 96, "an accepting return takes the snap length");
    assert_eq!(cut.instructions()[12].k, 0, "a rejecting return stays");
}

#[test]
fn refuses_by_rule() {
    assert_eq!(ClassicProgram::new([]), Err(InvalidProgram::Empty));
    let long = vec![instruction(0x06, 0, 0, 0); MAX_INSTRUCTIONS + 1];
    assert_eq!(ClassicProgram::new(long), Err(InvalidProgram::TooLong { instructions: 4097 }));
    let jump = ClassicProgram::new([instruction(0x05, 0, 0, 0), instruction(0x00, 0, 0, 0)]);
    assert_eq!(jump, Err(InvalidProgram::NoReturn { at: 1 }));
    for (bad, why) in [
        (instruction(0xff, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0xff }),
        (instruction(0x128, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x128 }),
        (instruction(0x38, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x38 }),
        (instruction(0x8c, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x8c }),
        (instruction(0x0d, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x0d }),
        (instruction(0x05, 0, 0, 1), InvalidProgram::JumpOutside { at: 0 }),
        (instruction(0x15, 1, 0, 0), InvalidProgram::JumpOutside { at: 0 }),
        (instruction(0x15, 0, 255, 0), InvalidProgram::JumpOutside { at: 0 }),
        (instruction(0x05, 0, 0, -1_i32 as u32), InvalidProgram::JumpBackward { at: 0 }),
        (instruction(0x05, 0, 0, -2_i32 as u32), InvalidProgram::JumpOutside { at: 0 }),
        (instruction(0x34, 0, 0, 0), InvalidProgram::DivisionByZero { at: 0 }),
        (instruction(0x94, 0, 0, 0), InvalidProgram::DivisionByZero { at: 0 }),
        (instruction(0x64, 0, 0, 32), InvalidProgram::Shift { at: 0, bits: 32 }),
        (instruction(0x02, 0, 0, 16), InvalidProgram::NoSuchWord { at: 0, word: 16 }),
        (instruction(0x61, 0, 0, 3), InvalidProgram::Uninitialised { at: 0, word: 3 }),
        (
            instruction(0x30, 0, 0, 0xffff_f002),
            InvalidProgram::UnknownAncillary { at: 0, offset: 0xffff_f002 },
        ),
    ] {
        assert_eq!(check(&[bad]), Err(why), "{bad:?}");
        assert!(why.to_string().contains("instruction 0"), "{why}");
    }
}

#[test]
fn scratch_must_be_written_on_every_path() {
    let write = instruction(0x02, 0, 0, 7);
    let read = instruction(0x60, 0, 0, 7);
    assert!(check(&[write, read]).is_ok());
    let skipped = check(&[instruction(0x15, 1, 0, 0), write, read]);
    assert_eq!(skipped, Err(InvalidProgram::Uninitialised { at: 2, word: 7 }));
    let unreachable = check(&[instruction(0x05, 0, 0, 1), read]);
    assert!(unreachable.is_ok(), "an instruction that nothing reaches reads nothing");
}

#[test]
fn knows_the_metadata_offsets() {
    assert_eq!(Ancillary::at(0xffff_f000), Some(Ancillary::Protocol));
    assert_eq!(Ancillary::at(0xffff_f030), Some(Ancillary::VlanTagPresent));
    assert_eq!(Ancillary::at(0xffff_f03c), Some(Ancillary::VlanProtocol));
    assert_eq!(Ancillary::at(0xffff_f040), None);
    assert_eq!(Ancillary::at(12), None);
}
