use super::super::ClassicInstruction;
use super::*;

fn classic(instructions: &[(u16, u8, u8, u32)]) -> ClassicProgram {
    let instructions: Vec<_> = instructions
        .iter()
        .map(|&(code, jt, jf, k)| ClassicInstruction { code, jt, jf, k })
        .collect();
    ClassicProgram::new(instructions).unwrap()
}

fn listing(instructions: &[(u16, u8, u8, u32)]) -> String {
    let code = translate(&classic(instructions)).unwrap();
    code.iter().map(|instruction| format!("{instruction:?}\n")).collect()
}

#[test]
fn checks_bounds_once_for_all_that_follows() {
    let udp_port_53 = listing(&[
        (0x28, 0, 0, 12),
        (0x15, 0, 10, 0x800),
        (0x30, 0, 0, 23),
        (0x15, 0, 8, 17),
        (0x28, 0, 0, 20),
        (0x45, 6, 0, 0x1fff),
        (0xb1, 0, 0, 14),
        (0x48, 0, 0, 14),
        (0x15, 2, 0, 53),
        (0x48, 0, 0, 16),
        (0x15, 0, 1, 53),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ]);
    // Every accepting path reads byte 23, so the first comparison asks for 24 bytes and the later
    // absolute loads ask for none. `data + X` is made once for both ports; its second comparison
    // is needed, for the source port alone may accept a frame that ends before the other one.
    assert_eq!(
        udp_port_53,
        "r0 = r1\nr0 += 24\nif r0 > r2 goto +27\nr0 = *(u16 *)(r1 +12)\nr0 = be16 r0\n\
         if w0 != 0x800 goto +24\nr0 = *(u8 *)(r1 +23)\nif w0 != 0x11 goto +22\n\
         r0 = *(u16 *)(r1 +20)\nr0 = be16 r0\nif w0 & 0x1fff goto +19\nr4 = *(u8 *)(r1 +14)\n\
         w4 &= 0xf\nw4 <<= 0x2\nr5 = r4\nr5 += r1\nr0 = r5\nr0 += 16\nif r0 > r2 goto +11\n\
         r0 = *(u16 *)(r5 +14)\nr0 = be16 r0\nif w0 == 0x35 goto +6\n\
         r0 = r5\nr0 += 18\nif r0 > r2 goto +5\n\
         r0 = *(u16 *)(r5 +16)\nr0 = be16 r0\nif w0 != 0x35 goto +2\n\
         w0 = 0x40000\nexit\nw0 = 0x0\nexit\n"
    );
}

#[test]
fn what_cannot_accept_is_one_rejection() {
    assert_eq!(listing(&[(0x06, 0, 0, 0)]), "w0 = 0x0\nexit\n");
    let past_the_end = [(0x30, 0, 0, MAX_PACKET_OFFSET), (0x06, 0, 0, 1)];
    assert_eq!(listing(&past_the_end), "w0 = 0x0\nexit\n");
    let index_unset = [(0x50, 0, 0, MAX_PACKET_OFFSET), (0x16, 0, 0, 0)];
    assert_eq!(listing(&index_unset), "w0 = 0x0\nexit\n");
    let both_ways = [(0x30, 0, 0, 0), (0x15, 0, 1, 4), (0x06, 0, 0, 0), (0x06, 0, 0, 0)];
    assert_eq!(listing(&both_ways), "w0 = 0x0\nexit\n");
}

#[test]
fn registers_start_at_zero_only_where_somebody_looks() {
    assert_eq!(listing(&[(0x06, 0, 0, 9)]), "w0 = 0x9\nexit\n");
    assert_eq!(listing(&[(0x16, 0, 0, 0)]), "w0 = 0x0\nexit\n");
    assert_eq!(listing(&[(0x87, 0, 0, 0), (0x16, 0, 0, 0)]), "w4 = 0x0\nw0 = w4\nexit\n");
}

#[test]
fn code_that_nothing_reaches_is_left_out() {
    let skipped = [(0x05, 0, 0, 1), (0x00, 0, 0, 7), (0x06, 0, 0, 3)];
    assert_eq!(listing(&skipped), "w0 = 0x3\nexit\n");
}

#[test]
fn an_index_that_may_be_large_is_bounded_first() {
    let indirect = [(0x80, 0, 0, 0), (0x07, 0, 0, 0), (0x50, 0, 0, 6), (0x16, 0, 0, 0)];
    assert_eq!(
        listing(&indirect),
        "w0 = w3\nw4 = w0\nif w4 > 0xffb8 goto +7\nr5 = r4\nr5 += r1\nr0 = r5\nr0 += 7\n\
         if r0 > r2 goto +2\nr0 = *(u8 *)(r5 +6)\nexit\nw0 = 0x0\nexit\n"
    );
}

#[test]
fn metadata_is_refused_by_name() {
    let vlan = classic(&[(0x30, 0, 0, 0xffff_f030), (0x06, 0, 0, 1)]);
    let error = translate(&vlan).unwrap_err();
    assert_eq!(error, Untranslatable::Metadata { at: 0, what: Ancillary::VlanTagPresent });
    let network = classic(&[(0x30, 0, 0, 0xfff0_0000), (0x06, 0, 0, 1)]);
    let error = translate(&network).unwrap_err();
    assert_eq!(error, Untranslatable::Relative { at: 0, offset: 0xfff0_0000 });
}

#[test]
fn jumps_over_the_longest_programs_fit() {
    let jump_over = |filling: &[(u16, u8, u8, u32)]| {
        let mut instructions = vec![(0x80, 0, 0, 0), (0x15, 0, 1, 1), (0x05, 0, 0, 4092)];
        instructions.extend(filling.iter().cycle().take(4092));
        instructions.push((0x06, 0, 0, 1));
        translate(&classic(&instructions)).unwrap().len()
    };
    let shifts = jump_over(&[(0x6c, 0, 0, 0)]);
    let loads = jump_over(&[(0x81, 0, 0, 0), (0x40, 0, 0, 0x8000)]);
    let branches = jump_over(&[(0x15, 0, 0, 1), (0xb1, 0, 0, 40_000), (0x40, 0, 0, 0x8000)]);
    assert!(shifts > 16_000 && loads > 20_000 && branches > 8_000, "{shifts} {loads} {branches}");
}
