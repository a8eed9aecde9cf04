//! `--source trace` and `--source drops`: what happened to a packet is in the file, and Wireshark reads it.

use std::path::Path;
use std::process::Command;

use linerate_forward::runtime::program::unavailable;
use linerate_pcapfile::{
    Encoder, Format, InterfaceDescription, PacketOptions, Reader, Record, SectionHeader,
};
use linerate_ring::{Frame, TraceEvent};
use linerate_testkit::{probe_or_skip, root_or_skip, skip};

use super::support::{Cable, everybody_accepts, folder, listening, numbers};
use crate::LINERATE;
use crate::forward::support::Net;

/// What tshark shows of these fields, a line for each packet; `None` where it is not installed.
fn fields(path: &Path, fields: &[&str]) -> Option<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=/s"]);
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.arg("-r").arg(path).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.trim().to_owned())
            .collect(),
    )
}

#[test]
fn wireshark_reads_the_verdict_and_the_number_of_a_packet() {
    let folder = folder();
    let path = folder.path().join("verdicts.pcapng");
    let encoder = Encoder {
        format: Format::Pcapng,
        snaplen: 65_535,
        options: PacketOptions { direction: true, queue: true },
    };
    let mut file = Vec::new();
    let interface = InterfaceDescription { linktype: 1, ..InterfaceDescription::default() };
    encoder.encode_file_header(&mut file, &SectionHeader::default(), &[interface]);
    for (packet, verdict) in [(7, None), (7, Some(4)), (1 << 48 | 9, Some(0))] {
        let mut frame = Frame::new(&[0; 61]);
        frame.trace = Some(match verdict {
            Some(verdict) => TraceEvent::XdpExit { packet, verdict },
            None => TraceEvent::XdpEntry { packet },
        });
        let record = Record { frame, interface: 0, comment: verdict.map(|_| "why") };
        let before = file.len();
        encoder.encode(&mut file, &record);
        assert!(file.len() - before <= encoder.max_len(&record));
    }
    std::fs::write(&path, file).unwrap();
    everybody_accepts(&path);
    let Some(lines) =
        fields(&path, &["frame.packet_id", "frame.verdict.ebpf_xdp", "frame.comment"])
    else {
        skip!("tshark is not installed");
    };
    assert_eq!(lines, ["7", "7 4 why", "281474976710665 0 why"]);
}

#[test]
fn drops_come_with_reason_and_function() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    for (interface, name) in [("-i far", "far"), ("", "any")] {
        let path = folder.path().join(format!("{name}.pcapng"));
        let mut command = cable.far.command(LINERATE);
        let arguments = format!(
            "capture {interface} --source drops -w {} --json udp port 5000",
            path.display()
        );
        let capture = listening(command.args(arguments.split_whitespace()));
        // Nobody listens there.
        cable.send(500, 64);
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        assert!(printed.contains(&format!("listening on {name}, source drops")), "{printed}");
        assert_eq!(numbers(&path), (0..500).collect::<Vec<_>>(), "{printed}");
        everybody_accepts(&path);
        assert_eq!((&json["captured"], &json["source"]), (&500.into(), &"drops".into()), "{json}");
        assert_eq!(
            (&json["dropped"]["total"], &json["filter"]["in"]),
            (&0.into(), &"kernel".into()),
            "{json}"
        );
        let mut reader = Reader::open(&path).unwrap();
        while let Some(record) = reader.next().unwrap() {
            let comment = record.comment.expect("a comment");
            assert!(comment.starts_with("dropped: NO_SOCKET in "), "{comment}");
            assert!(comment.ends_with(" on far"), "{comment}");
        }
        assert_eq!(reader.interfaces()[0].name.as_deref(), Some(name));
    }
}

#[test]
fn over_the_rate_limit_is_counted() {
    root_or_skip!();
    let cable = Cable::new();
    let capture = cable.capture("--source drops --rate-limit 10 --discard --json udp port 5000");
    cable.send(300, 64);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let (captured, limited) =
        (json["captured"].as_u64().unwrap(), json["dropped"]["rate_limited"].as_u64().unwrap());
    assert!(captured >= 10 && limited > 0, "{json}");
    assert_eq!((captured + limited, &json["received"]), (300, &300.into()), "{json}");
}

#[test]
fn without_a_file_the_lines_say_why() {
    root_or_skip!();
    let cable = Cable::new();
    let mut capture = cable.capture("--source drops udp port 5000");
    cable.send(1, 64);
    capture.until("[dropped: NO_SOCKET in ");
    capture.until(" on far]\n");
}

#[test]
fn a_trace_shows_what_another_capture_takes() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("traced.pcapng");
    // It drops what it takes: no packet socket sees these frames.
    let taking = cable
        .capture("--source xdp --take-over --xdp-delivery ringbuf --discard --json udp port 5000");
    let file = path.display();
    let options = format!("capture -v -i far --source trace -w {file} --json udp port 5000");
    let probe = cable.run("-i far --source trace --discard -a duration:0.1");
    let said = String::from_utf8_lossy(&probe.stderr);
    if said.contains("by a security policy") {
        skip!(said.trim());
    }
    let trace = listening(cable.far.command(LINERATE).args(options.split_whitespace()));
    cable.send(1000, 64);
    let (status, json, printed) = trace.interrupt();
    assert!(status.success(), "{printed}");
    assert!(printed.contains("XDP program \"linerate_take\""), "{printed}");
    assert_eq!((&json["captured"], &json["dropped"]["total"]), (&2000.into(), &0.into()), "{json}");
    everybody_accepts(&path);
    if let Some(lines) = fields(&path, &["frame.packet_id", "frame.verdict.ebpf_xdp"]) {
        let left: Vec<_> = lines.iter().filter_map(|line| line.split_once(' ')).collect();
        assert!(left.len() == 1000 && left.iter().all(|(_, verdict)| *verdict == "1"), "{lines:?}");
        assert!(
            left.iter().all(|(packet, _)| lines.iter().any(|line| line == packet)),
            "each came, too"
        );
    }
    let (_, json, printed) = taking.interrupt();
    assert_eq!(json["captured"], 1000, "the traced capture lost nothing: {printed}");
}

#[test]
fn a_trace_shows_what_the_accelerator_forwards() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    let _daemon = net.run("");
    let trace = |options: &str| {
        let mut command = net.router.command(LINERATE);
        command.args("capture -i left --source trace".split(' ')).args(options.split_whitespace());
        command
    };
    let probe = trace("--discard -a duration:0.1").output().unwrap();
    let said = String::from_utf8_lossy(&probe.stderr);
    if said.contains("by a security policy") {
        skip!(said.trim());
    }
    // The kernel's own path, which the accelerator learns from.
    assert_eq!(net.ask(0, 4001, 10), 10);
    let folder = folder();
    let path = folder.path().join("forwarded.pcapng");
    let options = format!("--trace-at exit -w {} --json udp port 4001", path.display());
    let trace = listening(&mut trace(&options));
    assert_eq!(net.ask(0, 4001, 30), 30);
    let (status, json, printed) = trace.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!((&json["captured"], &json["dropped"]["total"]), (&30.into(), &0.into()), "{json}");
    if let Some(lines) = fields(&path, &["frame.verdict.ebpf_xdp", "ip.ttl"]) {
        // XDP_REDIRECT, and the time to live of a packet that left.
        assert!(lines.len() == 30 && lines.iter().all(|line| line == "4 63"), "{lines:?}");
    }
}

#[test]
fn without_an_xdp_program_there_is_nothing_to_trace() {
    root_or_skip!();
    let cable = Cable::new();
    let output = cable.run("-i far --source trace");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interface far has no XDP program to trace"), "{said}");
    let output = cable.run("-i far --source drops -Q in");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("leave -Q out"), "{said}");
}
