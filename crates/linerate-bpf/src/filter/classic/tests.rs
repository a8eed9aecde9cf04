use super::*;

fn statement(code: u16, jt: u8, jf: u8, k: u32) -> Statement {
    Statement { code, jt, jf, k }
}

/// `statements`, then a return.
fn check(statements: &[Statement]) -> Result<ClassicProgram, InvalidProgram> {
    let mut all = statements.to_vec();
    all.push(statement(0x06, 0, 0, 0xffff));
    ClassicProgram::new(all)
}

#[test]
fn takes_what_libpcap_compiles_for_udp_port_53() {
    // `tcpdump -ddd 'ip and udp port 53'` has all of these kinds of statement.
    let program = [
        statement(0x28, 0, 0, 12),
        statement(0x15, 0, 10, 0x800),
        statement(0x30, 0, 0, 23),
        statement(0x15, 0, 8, 17),
        statement(0x28, 0, 0, 20),
        statement(0x45, 6, 0, 0x1fff),
        statement(0xb1, 0, 0, 14),
        statement(0x48, 0, 0, 14),
        statement(0x15, 2, 0, 53),
        statement(0x48, 0, 0, 16),
        statement(0x15, 0, 1, 53),
        statement(0x06, 0, 0, 262_144),
        statement(0x06, 0, 0, 0),
    ];
    let classic = ClassicProgram::new(program).unwrap();
    assert_eq!(classic.statements(), program);
    assert!(classic.to_string().starts_with("40 0 0 12\n21 0 10 2048\n"));
    let cut = classic.with_snaplen(96);
    assert_eq!(cut.statements()[11].k, 96, "an accepting return takes the snap length");
    assert_eq!(cut.statements()[12].k, 0, "a rejecting return stays");
}

#[test]
fn refuses_by_rule() {
    assert_eq!(ClassicProgram::new([]), Err(InvalidProgram::Empty));
    let long = vec![statement(0x06, 0, 0, 0); MAX_STATEMENTS + 1];
    assert_eq!(ClassicProgram::new(long), Err(InvalidProgram::TooLong { statements: 4097 }));
    let jump = ClassicProgram::new([statement(0x05, 0, 0, 0), statement(0x00, 0, 0, 0)]);
    assert_eq!(jump, Err(InvalidProgram::NoReturn { at: 1 }));
    for (bad, why) in [
        (statement(0xff, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0xff }),
        (statement(0x128, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x128 }),
        (statement(0x38, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x38 }),
        (statement(0x8c, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x8c }),
        (statement(0x0d, 0, 0, 0), InvalidProgram::Unknown { at: 0, code: 0x0d }),
        (statement(0x05, 0, 0, 1), InvalidProgram::JumpOutside { at: 0 }),
        (statement(0x15, 1, 0, 0), InvalidProgram::JumpOutside { at: 0 }),
        (statement(0x15, 0, 255, 0), InvalidProgram::JumpOutside { at: 0 }),
        (statement(0x05, 0, 0, -1_i32 as u32), InvalidProgram::JumpBackward { at: 0 }),
        (statement(0x05, 0, 0, -2_i32 as u32), InvalidProgram::JumpOutside { at: 0 }),
        (statement(0x34, 0, 0, 0), InvalidProgram::DivisionByZero { at: 0 }),
        (statement(0x94, 0, 0, 0), InvalidProgram::DivisionByZero { at: 0 }),
        (statement(0x64, 0, 0, 32), InvalidProgram::Shift { at: 0, bits: 32 }),
        (statement(0x02, 0, 0, 16), InvalidProgram::NoSuchWord { at: 0, word: 16 }),
        (statement(0x61, 0, 0, 3), InvalidProgram::Uninitialised { at: 0, word: 3 }),
        (
            statement(0x30, 0, 0, 0xffff_f002),
            InvalidProgram::UnknownAncillary { at: 0, offset: 0xffff_f002 },
        ),
    ] {
        assert_eq!(check(&[bad]), Err(why), "{bad:?}");
        assert!(why.to_string().contains("statement 0"), "{why}");
    }
}

#[test]
fn scratch_must_be_written_on_every_path() {
    let write = statement(0x02, 0, 0, 7);
    let read = statement(0x60, 0, 0, 7);
    assert!(check(&[write, read]).is_ok());
    let skipped = check(&[statement(0x15, 1, 0, 0), write, read]);
    assert_eq!(skipped, Err(InvalidProgram::Uninitialised { at: 2, word: 7 }));
    let unreachable = check(&[statement(0x05, 0, 0, 1), read]);
    assert!(unreachable.is_ok(), "a statement that nothing reaches reads nothing");
}

#[test]
fn knows_the_metadata_offsets() {
    assert_eq!(Ancillary::at(0xffff_f000), Some(Ancillary::Protocol));
    assert_eq!(Ancillary::at(0xffff_f030), Some(Ancillary::VlanTagPresent));
    assert_eq!(Ancillary::at(0xffff_f03c), Some(Ancillary::VlanProtocol));
    assert_eq!(Ancillary::at(0xffff_f040), None);
    assert_eq!(Ancillary::at(12), None);
}
