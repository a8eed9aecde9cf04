//! The example in C: compiled without a warning, run plainly, under the address sanitizer and under
//! valgrind, and what it writes compared with what the Rust library makes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::building::{compile, compile_sanitized, install, installed, text, under_valgrind};
use etherparse::PacketBuilder;
use linerate_segment::coalesce::{self, Coalescer, Flow};
use linerate_segment::segment::{Options, Segments, Split};

const MTU: u16 = 1500;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn build(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>, len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    builder.write(&mut frame, &bytes(len)).unwrap();
    frame
}

/// What is split: TCP over IPv4 with two tags, TCP over IPv6, a UDP datagram, a short packet.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let ethernet = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (a, b) = ([192, 0, 2, 1], [198, 51, 100, 2]);
    let tagged = ethernet()
        .double_vlan(7u16.try_into().unwrap(), 8u16.try_into().unwrap())
        .ipv4(a, b, 64)
        .tcp(5000, 80, u32::MAX - 5, 1000)
        .ack(9)
        .psh();
    let v6 = ethernet().ipv6([1; 16], [2; 16], 64).tcp(5000, 80, 1, 1000).ack(9);
    let short = ethernet().ipv4(a, b, 64).tcp(1, 2, 3, 4).ack(5);
    let mut udp = Vec::new();
    ethernet().ipv4(a, b, 64).udp(4000, 53).write(&mut udp, &bytes(9001)).unwrap();
    udp[20] = 0; // the builder sets DF
    vec![
        ("tagged", build(tagged, 60_001)),
        ("v6", build(v6, 43_000)),
        ("udp", udp),
        ("short", build(short, 100)),
    ]
}

fn split(packet: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(packet, &Options::new(Split::Mtu(MTU))).unwrap();
    let mut frames = Vec::new();
    let mut out = vec![0; segments.max_len()];
    while let Some(len) = segments.write_next(&mut out).unwrap() {
        frames.push(out[..len].to_vec());
    }
    frames
}

fn join(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut joined = Vec::new();
    let mut coalescer = Coalescer::new(vec![Flow::default(); 16], &coalesce::Options::default());
    let mut sink = |output: coalesce::Output<'_>| match output {
        coalesce::Output::Frame { token, .. } => joined.push(frames[token as usize].clone()),
        coalesce::Output::Super(packet) => {
            let mut out = vec![0; packet.len()];
            packet.write(&mut out, |token| &frames[token as usize]).unwrap();
            joined.push(out);
        }
    };
    for (token, frame) in frames.iter().enumerate() {
        coalescer.push(frame, token as u64, 0, &mut sink);
    }
    coalescer.flush_all(&mut sink);
    joined
}

/// The frames of a pcap file in this machine's byte order.
fn pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    assert_eq!(file[..4], 0xa1b2_c3d4_u32.to_ne_bytes());
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_ne_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

/// Runs the example over all packets and compares.
fn check(folder: &Path, run: impl Fn() -> Command) {
    let file = |name: &str| folder.join(name);
    for (name, packet) in packets() {
        fs::write(file("frame"), &packet).unwrap();
        let output = run()
            .arg(file("frame"))
            .arg(MTU.to_string())
            .args([file("segments.pcap"), file("joined.pcap")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let frames = split(&packet);
        assert!(frames.len() > 1 || name == "short");
        assert_eq!(pcap(&file("segments.pcap")), frames, "{name}");
        assert_eq!(pcap(&file("joined.pcap")), join(&frames), "{name}");
        if name != "udp" {
            assert_eq!(join(&frames), [packet], "{name}: joined again it is what it was");
        }
        let printed =
            format!("{} frames, linerate-segment {}\n", frames.len(), env!("CARGO_PKG_VERSION"));
        assert_eq!(text(&output.stdout), printed);
    }
}

#[test]
fn the_example_writes_what_the_library_makes() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "segment");
    let program = compile(folder.path(), "split", "segment", &["-O2"]).unwrap();
    check(folder.path(), || Command::new(&program));
}

#[test]
fn the_example_is_clean_under_the_address_sanitizer() {
    const NAME: &str = "the_example_is_clean_under_the_address_sanitizer";
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "segment");
    if let Some(program) = compile_sanitized(NAME, folder.path(), "split", "segment") {
        check(folder.path(), || Command::new(&program));
    }
}

#[test]
fn the_example_is_clean_under_valgrind() {
    const NAME: &str = "the_example_is_clean_under_valgrind";
    if !installed("valgrind") {
        println!("skipped: {NAME}: valgrind is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "segment");
    let program = compile(folder.path(), "split", "segment", &["-O1"]).unwrap();
    check(folder.path(), || under_valgrind(&program));
}

#[test]
fn the_example_says_why_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "segment");
    let program = compile(folder.path(), "split", "segment", &[]).unwrap();
    let run = |bytes: &[u8], policy: &str| -> Output {
        let path = folder.path().join("frame");
        fs::write(&path, bytes).unwrap();
        let [segments, joined] = ["s", "j"].map(|name| folder.path().join(name));
        let mut command = Command::new(&program);
        command.arg(&path).arg("1500").args([segments, joined]).arg(policy).output().unwrap()
    };
    let (_, packet) = packets().swap_remove(0);
    for (bytes, policy, words) in [
        (&packet[..40], "", "cannot split"),
        (&packet[..], "max_burst=1500", "the policy allows 1500"),
        (&packet[..], "tcp=maybe", "neither on nor off"),
    ] {
        let output = run(bytes, policy);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn the_header_is_good_for_c_plus_plus_too() {
    crate::building::hold_for_c_plus_plus(
        "the_header_is_good_for_c_plus_plus_too",
        "#include <linerate/segment.h>\nint main() { return linerate_policy_default().tcp; }\n",
    );
}
