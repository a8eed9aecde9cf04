//! The translated filter, run by the kernel, against libpcap's own matcher.

#[path = "filter/corpus.rs"]
mod corpus;
#[path = "filter/kernel.rs"]
mod kernel;
#[path = "filter/oracle.rs"]
mod oracle;

use std::collections::BTreeSet;

use linerate_netns::root_or_skip;
use linerate_ring::filter::{Classic, Invalid, Statement, translate};
use pcap::{Capture, Linktype};

/// More than this is added to the length of each frame, as if it had been cut at capture.
const CUT: u16 = 1000;

fn expressions() -> impl Iterator<Item = &'static str> {
    include_str!("filter/expressions.txt")
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn statements(program: &pcap::BpfProgram) -> Vec<Statement> {
    let parse = |text: String| {
        let mut numbers = text.split(' ').map(|number| number.parse::<u32>().unwrap());
        let mut next = || numbers.next().unwrap();
        Statement { code: next() as u16, jt: next() as u8, jf: next() as u8, k: next() }
    };
    program.get_instructions().iter().map(|statement| parse(statement.to_string())).collect()
}

#[test]
fn agrees_with_libpcap_on_every_expression() {
    root_or_skip!("agrees_with_libpcap_on_every_expression");
    let frames = corpus::all();
    let ethernet = Capture::dead(Linktype::ETHERNET).unwrap();
    let mut scratch = Vec::new();
    let (mut programs, mut verdicts) = (0, 0);
    let mut loops = BTreeSet::new();
    let mut one_sided = BTreeSet::new();
    for expression in expressions() {
        for optimize in [true, false] {
            let program = ethernet
                .compile(expression, optimize)
                .unwrap_or_else(|error| panic!("`{expression}`: {error}"));
            let statements = statements(&program);
            let classic = match Classic::new(statements.clone()) {
                Err(Invalid::JumpBackward { .. }) => {
                    loops.insert(expression);
                    continue;
                }
                other => other.unwrap_or_else(|error| panic!("`{expression}`: {error}")),
            };
            let body = translate(&classic).unwrap_or_else(|e| panic!("`{expression}`: {e}"));
            let extra = if programs % 3 == 0 { CUT } else { 0 };
            let loaded = kernel::Loaded::new(&body, extra)
                .unwrap_or_else(|log| panic!("`{expression}`: {log}\n{body:#?}"));
            let (mut accepted, mut rejected) = (0, 0);
            for frame in &frames {
                let wire_len = frame.len() as u32 + u32::from(extra);
                let expected = oracle::accepts(&statements, frame, wire_len);
                let ours = loaded.run(frame, &mut scratch);
                assert_eq!(ours, expected, "`{expression}` on {frame:02x?}\n{classic}{body:#?}");
                assert_eq!(classic.accepts(frame, wire_len), expected, "`{expression}` in user space");
                if extra == 0 {
                    assert_eq!(program.filter(frame), expected != 0, "libpcap against itself");
                }
                *if expected == 0 { &mut rejected } else { &mut accepted } += 1;
            }
            programs += 1;
            verdicts += accepted + rejected;
            if accepted == 0 || rejected == 0 {
                one_sided.insert(expression);
            }
        }
    }
    let expressions = expressions().collect::<BTreeSet<_>>().len();
    println!("{expressions} expressions, {programs} programs, {} frames", frames.len());
    println!("{verdicts} verdicts compared; accepted all or nothing: {one_sided:?}");
}
