//! The translated filter, run by the kernel, against libpcap's own matcher.

mod corpus;
mod ebpf;
mod kernel;
mod oracle;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use linerate_bpf::filter::{
    ClassicInstruction, ClassicProgram, InvalidProgram, translate, translate_for_memory,
};
use linerate_testkit::root_or_skip;
use pcap::{BpfProgram, Capture, Linktype};
use proptest::prelude::*;

/// Expressions whose verdict is the same on every frame, by their meaning.
const CONSTANT: [&str; 4] = ["1 = 1", "ether[65535] = 0", "len < 0 + 0", "len >= 0"];

/// Expressions that libpcap compiles to a loop.
const LOOPS: [&str; 3] = ["ip protochain 6", "ip6 protochain 6", "protochain 17"];

fn expressions() -> impl Iterator<Item = &'static str> {
    include_str!("filter/expressions.txt")
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn compile(expression: &str, optimize: bool) -> BpfProgram {
    let ethernet = Capture::dead(Linktype::ETHERNET).unwrap();
    ethernet.compile(expression, optimize).unwrap_or_else(|error| panic!("`{expression}`: {error}"))
}

fn instructions(program: &BpfProgram) -> Vec<ClassicInstruction> {
    let parse = |text: String| {
        let mut numbers = text.split(' ').map(|number| number.parse::<u32>().unwrap());
        let mut next = || numbers.next().unwrap();
        ClassicInstruction { code: next() as u16, jt: next() as u8, jf: next() as u8, k: next() }
    };
    program.get_instructions().iter().map(|instruction| parse(instruction.to_string())).collect()
}

fn classic(expression: &str) -> ClassicProgram {
    ClassicProgram::new(instructions(&compile(expression, true))).unwrap()
}

/// `LINERATE_THOROUGH=1` runs 140,000 frames through every program, for some minutes.
fn thinning() -> usize {
    if std::env::var_os("LINERATE_THOROUGH").is_some() { 1 } else { 8 }
}

#[test]
fn agrees_with_libpcap_on_every_expression() {
    root_or_skip!();
    let frames = corpus::all(thinning());
    let mut scratch = Vec::new();
    let mut verdicts = 0;
    let mut loops = BTreeSet::new();
    let mut sides = BTreeMap::<&str, BTreeSet<bool>>::new();
    for expression in expressions() {
        for optimize in [true, false] {
            let program = compile(expression, optimize);
            let instructions = instructions(&program);
            let classic = match ClassicProgram::new(instructions.clone()) {
                Err(InvalidProgram::JumpBackward { .. }) => {
                    loops.insert(expression);
                    continue;
                }
                other => other.unwrap_or_else(|error| panic!("`{expression}`: {error}")),
            };
            let body = translate(&classic).unwrap_or_else(|e| panic!("`{expression}`: {e}"));
            // The frames of the second program look as if they had been cut at capture.
            let cut_off = if optimize { 0 } else { 1000 };
            let loaded = kernel::Loaded::new(&body, cut_off)
                .unwrap_or_else(|log| panic!("`{expression}`: {log}\n{body:#?}"));
            let in_memory =
                translate_for_memory(&classic).expect("what is translated once is twice");
            let loaded_in_memory = kernel::Loaded::in_memory(&in_memory, cut_off)
                .unwrap_or_else(|log| panic!("`{expression}`: {log}\n{in_memory:#?}"));
            for frame in &frames {
                let wire_len = frame.len() as u32 + u32::from(cut_off);
                let expected = oracle::accepts(&instructions, frame, wire_len);
                let ours = loaded.run(frame, &mut scratch);
                assert_eq!(ours, expected, "`{expression}` on {frame:02x?}\n{classic}{body:#?}");
                let ours = loaded_in_memory.run(frame, &mut scratch);
                assert_eq!(
                    ours, expected,
                    "`{expression}` on {frame:02x?}\n{classic}{in_memory:#?}"
                );
                let in_user_space = classic.accepts(frame, wire_len);
                assert_eq!(in_user_space, expected, "`{expression}` on {frame:02x?}\n{classic}");
                if cut_off == 0 {
                    assert_eq!(program.filter(frame), expected != 0, "libpcap against itself");
                }
                sides.entry(expression).or_default().insert(expected != 0);
            }
            verdicts += frames.len();
        }
    }
    let expressions = expressions().count();
    println!("{expressions} expressions, {} frames, {verdicts} verdicts agree", frames.len());
    assert!(expressions >= 250, "{expressions} expressions");
    assert_eq!(loops, BTreeSet::from(LOOPS));
    let one_sided: BTreeSet<_> = sides
        .iter()
        .filter(|(_, sides)| sides.len() == 1)
        .map(|(&expression, _)| expression)
        .collect();
    assert_eq!(one_sided, BTreeSet::from(CONSTANT), "the corpus shows both sides of all others");
}

#[test]
fn a_frame_in_several_buffers_is_judged_by_the_first() {
    root_or_skip!();
    let mut scratch = Vec::new();
    for length in [kernel::LINEAR - 1, kernel::LINEAR, kernel::LINEAR + 1, 9014, 9100] {
        let mut frame = corpus::whole(1000).swap_remove(0);
        frame.resize(length, 0);
        let last = kernel::LINEAR - 1;
        for expression in [
            "udp port 53".to_owned(),
            "greater 9000".to_owned(),
            format!("ether[{last}] = 0"),
            format!("ether[{}] = 0", last + 1),
            format!("ether[{last}:2] = 0"),
            "ether[len - 1] = 0".to_owned(),
        ] {
            let classic = classic(&expression);
            let loaded = kernel::Loaded::new(&translate(&classic).unwrap(), 0).unwrap();
            let first = &frame[..length.min(kernel::LINEAR)];
            let expected = oracle::accepts(classic.instructions(), first, length as u32);
            assert_eq!(loaded.run(&frame, &mut scratch), expected, "`{expression}` on {length}");
        }
    }
}

#[test]
fn judges_long_linear_frames_as_libpcap_does() {
    let short = corpus::whole(1000).swap_remove(0);
    for length in [3521, 9014, 32_766, 32_770, 40_000, 65_470, 65_471] {
        let mut frame = short.clone();
        frame.extend((short.len()..length).map(|at| at as u8));
        for expression in [
            "udp port 53".to_owned(),
            "ether[len - 1] != 0".to_owned(),
            "ether[len - 2:2] != 0".to_owned(),
            "ether[len - 4:4] != 0".to_owned(),
            format!("ether[{}] = {}", length - 1, (length - 1) as u8),
            format!("ether[{}:4] > 0", length - 4),
            format!("ether[{}:4] > 0", length - 3),
            "ether[32767:2] > 0".to_owned(),
            "ether[ether[0] + 32768:2] > 0".to_owned(),
            "udp[40000] >= 0".to_owned(),
        ] {
            let classic = classic(&expression);
            let body = translate(&classic).unwrap();
            let expected = oracle::accepts(classic.instructions(), &frame, length as u32);
            let ours = ebpf::run(&body, &frame, length as u32);
            assert_eq!(ours, Ok(expected), "`{expression}` on {length} bytes\n{body:#?}");
        }
    }
}

#[test]
fn the_verifier_takes_a_thousand_hosts() {
    root_or_skip!();
    let hosts: Vec<_> =
        (0..1000).map(|n| format!("dst host 10.1.{}.{}", n / 250, n % 250)).collect();
    let classic = classic(&format!("ip and ({})", hosts.join(" or ")));
    assert!(classic.instructions().len() > 1000);
    let loaded = kernel::Loaded::new(&translate(&classic).unwrap(), 0).unwrap();
    let mut frame = vec![0; 60];
    (frame[12], frame[14], frame[30], frame[31]) = (8, 0x45, 10, 1);
    let mut scratch = Vec::new();
    for (third, last, expected) in [(0, 0, true), (3, 249, true), (3, 250, false), (4, 0, false)] {
        (frame[32], frame[33]) = (third, last);
        assert_eq!(loaded.run(&frame, &mut scratch) != 0, expected, "10.1.{third}.{last}");
    }
}

fn frames_for_programs() -> Vec<Vec<u8>> {
    let mut random = corpus::Random::new(7);
    let mut frames: Vec<Vec<u8>> = corpus::whole(1000).into_iter().step_by(29).collect();
    frames.extend((0..24).map(|n| (0..n * 5).map(|_| random.next() as u8).collect()));
    frames.push(vec![0; 300]);
    frames.push(vec![0xff; 300]);
    frames
}

/// What does not hold of the program that `bytes` make.
fn disagreement(bytes: &[u8], frames: &[Vec<u8>], in_kernel: bool) -> Result<(), String> {
    let classic = shape::program(bytes);
    if !oracle::validates(classic.instructions()) {
        return Err("libpcap calls it invalid".to_owned());
    }
    let body = translate(&classic).map_err(|error| error.to_string())?;
    ebpf::check_shape(&body)?;
    let loaded = if in_kernel { Some(kernel::Loaded::new(&body, 5)?) } else { None };
    let mut scratch = Vec::new();
    for frame in frames {
        let wire_len = frame.len() as u32 + 5;
        let expected = oracle::accepts(classic.instructions(), frame, wire_len);
        let answers = [
            ("user space", Ok(classic.accepts(frame, wire_len))),
            ("the interpreter", ebpf::run(&body, frame, wire_len)),
            ("the kernel", Ok(loaded.as_ref().map_or(expected, |l| l.run(frame, &mut scratch)))),
        ];
        for (who, answer) in answers {
            if answer != Ok(expected) {
                let what = format!("{who} says {answer:?}, libpcap {expected} on {frame:02x?}");
                return Err(format!("{what}\n{classic}{body:#?}"));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_libpcap_on_any_program(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let frames = frames_for_programs();
        let in_kernel = linerate_testkit::is_root();
        if let Err(why) = disagreement(&bytes, &frames, in_kernel) {
            panic!("{why}");
        }
    }
}
