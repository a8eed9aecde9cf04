use super::*;

fn gate(
    direction: DirectionFilter,
    loopback: Option<u32>,
    filter: Option<ClassicProgram>,
) -> SocketFilter {
    SocketFilter { direction, loopback, filter, snaplen: 96 }
}

#[test]
fn a_program_always_ends_in_a_return_of_the_snap_length() {
    for direction in [DirectionFilter::In, DirectionFilter::Out, DirectionFilter::InOut] {
        for filter in [None, Some(ClassicProgram::accept_all(65_535))] {
            let program = gate(direction, Some(1), filter).program().unwrap();
            let last = program.last().unwrap();
            assert_eq!((last.code, last.k), (ret(0).code, 96));
        }
    }
}

#[test]
fn a_filter_too_long_for_the_prologue_is_refused() {
    let mut instructions =
        vec![ClassicInstruction { code: 0, jt: 0, jf: 0, k: 0 }; MAX_INSTRUCTIONS];
    instructions[MAX_INSTRUCTIONS - 1] = ClassicInstruction { code: 6, jt: 0, jf: 0, k: 1 };
    let filter = ClassicProgram::new(instructions).unwrap();
    assert!(gate(DirectionFilter::InOut, None, Some(filter.clone())).program().is_ok());
    let error = gate(DirectionFilter::In, None, Some(filter)).program().unwrap_err().to_string();
    assert!(error.contains("4099 with the test of the direction"), "{error}");
}
