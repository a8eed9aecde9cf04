//! What is written is what is read, whatever the packets and the format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linerate_ring::{Direction, Frame, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::Format;
use crate::read::{Reader, Record};

#[derive(Clone, Debug)]
struct Packet {
    data: Vec<u8>,
    cut: u32,
    nanos: u64,
    outbound: bool,
    comment: Option<String>,
}

fn packet() -> impl Strategy<Value = Packet> {
    let data = prop::collection::vec(any::<u8>(), 0..300);
    let comment = prop::option::of("[a-z]{0,9}");
    (data, 0..2000_u32, 0..u64::from(u32::MAX) * 1_000_000_000, any::<bool>(), comment).prop_map(
        |(data, cut, nanos, outbound, comment)| Packet { data, cut, nanos, outbound, comment },
    )
}

fn options(path: &Path, format: Format) -> Options {
    Options {
        path: path.to_owned(),
        encoder: Encoder {
            format,
            snaplen: 262_144,
            options: PacketOptions { direction: true, queue: true },
        },
        compression: Compression::None,
        rotation: Rotation::default(),
        size_limit: None,
        postrotate: None,
        section: Section::default(),
        interfaces: vec![InterfaceDescription {
            name: Some("x0".into()),
            filter: Some("udp".into()),
            linktype: 1,
            snaplen: 262_144,
            ..InterfaceDescription::default()
        }],
        buffers: 4,
        start: Some(Timestamp(0)),
        drop_privileges: false,
        stop: Arc::default(),
        totals: Box::new(|| vec![InterfaceTotals { received: Some(7), ..Default::default() }]),
    }
}

fn write(options: Options, packets: &[Packet]) -> Summary {
    let writer = Writer::start(options).expect("a writer");
    let mut feed = writer.feed(0);
    for packet in packets {
        let mut frame = Frame::new(&packet.data);
        frame.wire_len += packet.cut;
        frame.timestamp = Some(Timestamp(packet.nanos));
        frame.direction = if packet.outbound { Direction::Outbound } else { Direction::Inbound };
        frame.queue = 3;
        feed.push(&Record { frame, interface: 0, comment: packet.comment.as_deref() });
    }
    drop(feed);
    writer.finish()
}

fn numbered(count: u64) -> Vec<Packet> {
    let packet = |number: u64| Packet {
        data: number.to_be_bytes().to_vec(),
        cut: 0,
        nanos: number * 10_000_000,
        outbound: false,
        comment: None,
    };
    (0..count).map(packet).collect()
}

/// The numbers of [`numbered`] packets in a file.
fn numbers(path: &Path) -> Vec<u64> {
    let mut reader = Reader::open(path).expect("a readable file");
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().expect("a whole file") {
        numbers.push(u64::from_be_bytes(record.frame.head().try_into().expect("eight bytes")));
    }
    numbers
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f");
    (folder, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn round_trip(packets in prop::collection::vec(packet(), 0..40), which in 0..3_usize) {
        let formats =
            [Format::Pcapng, Format::Pcap { nanoseconds: true }, Format::Pcap { nanoseconds: false }];
        let format = formats[which];
        let (_folder, path) = folder();
        let summary = write(options(&path, format), &packets);
        prop_assert_eq!(summary.written, packets.len() as u64);
        prop_assert_eq!(summary.bytes, std::fs::metadata(&path).expect("a file").len());
        let mut reader = Reader::open(&path).expect("a readable file");
        prop_assert_eq!(reader.format(), format);
        for packet in &packets {
            let record = reader.next().expect("a whole file").expect("a packet");
            prop_assert_eq!(record.frame.head(), &packet.data[..]);
            prop_assert_eq!(record.frame.wire_len, packet.data.len() as u32 + packet.cut);
            let unit = if which == 2 { 1000 } else { 1 };
            prop_assert_eq!(record.frame.timestamp, Some(Timestamp(packet.nanos / unit * unit)));
            if format == Format::Pcapng {
                let direction =
                    if packet.outbound { Direction::Outbound } else { Direction::Inbound };
                prop_assert_eq!((record.frame.direction, record.frame.queue), (direction, 3));
                prop_assert_eq!(record.comment, packet.comment.as_deref());
            }
        }
        prop_assert!(reader.next().expect("a whole file").is_none());
        if format == Format::Pcapng {
            let interface = &reader.interfaces()[0];
            prop_assert_eq!(interface.name.as_deref(), Some("x0"));
            prop_assert_eq!(interface.filter.as_deref(), Some("udp"));
            let statistics = interface.statistics.clone().expect("statistics");
            prop_assert_eq!(statistics.received, Some(7));
            prop_assert_eq!(statistics.delivered, Some(packets.len() as u64));
        }
    }
}

#[test]
fn compressed_files_read_back_and_are_streams_to_other_programs() {
    for (compression, program) in [(Compression::Zstd, "zstd"), (Compression::Lz4, "lz4")] {
        let (_folder, path) = folder();
        // More than one buffer, so that there is more than one compressed frame.
        let packets = numbered(60_000);
        let summary = write(Options { compression, ..options(&path, Format::Pcapng) }, &packets);
        assert_eq!(summary.written, 60_000);
        assert_eq!(numbers(&path).len(), 60_000, "{compression:?}");
        match std::process::Command::new(program).arg("-t").arg(&path).output() {
            Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
            Err(_) => println!("skipped: {program} -t: not installed"),
        }
    }
}

#[test]
fn rotation_by_size_keeps_every_packet_in_order() {
    for format in [Format::Pcapng, Format::Pcap { nanoseconds: false }] {
        let (folder, path) = folder();
        let rotation = Rotation { size: Some(10_000), ..Rotation::default() };
        let summary = write(Options { rotation, ..options(&path, format) }, &numbered(5000));
        assert!(summary.files > 10, "{} files", summary.files);
        let mut all = numbers(&path);
        for number in 1..summary.files {
            all.extend(numbers(&folder.path().join(format!("f{number}"))));
        }
        assert_eq!(all, (0..5000).collect::<Vec<_>>());
    }
}

#[test]
fn a_ring_of_files_keeps_the_newest() {
    let (folder, path) = folder();
    let rotation = Rotation { size: Some(10_000), count: Some(3), seconds: None };
    write(Options { rotation, ..options(&path, Format::Pcapng) }, &numbered(5000));
    let files = ["f0", "f1", "f2"].map(|name| numbers(&folder.path().join(name)));
    let mut all: Vec<u64> = files.concat();
    all.sort_unstable();
    assert_eq!(all, (5000 - all.len() as u64..5000).collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 3);
}

#[test]
fn rotation_by_time_follows_the_packets() {
    let (folder, path) = folder();
    let path = path.with_file_name("%s");
    let rotation = Rotation { seconds: Some(1), ..Rotation::default() };
    // A hundred packets a second.
    let summary = write(Options { rotation, ..options(&path, Format::Pcapng) }, &numbered(250));
    assert_eq!(summary.files, 3);
    let counts = ["0", "1", "2"].map(|name| numbers(&folder.path().join(name)).len());
    assert_eq!(counts, [100, 100, 50]);
}

#[test]
fn a_limit_of_size_ends_the_capture_and_counts_nothing_as_lost() {
    let (_folder, path) = folder();
    let options = Options { size_limit: Some(5000), ..options(&path, Format::Pcapng) };
    let summary = write(options, &numbered(1000));
    assert_eq!(summary.unwritten, 0);
    assert_eq!(summary.written + summary.beyond_limit, 1000);
    assert_eq!(numbers(&path).len() as u64, summary.written);
    assert!(summary.written > 0 && summary.beyond_limit > 0);
    let [fate] = summary.interfaces[..] else { panic!("one interface") };
    assert_eq!((fate.taken, fate.written, fate.unwritten()), (1000, summary.written, 0));
    assert_eq!(fate.missing_bytes, 8 * summary.beyond_limit);
}

#[test]
fn a_device_that_is_full_is_an_error_and_the_packets_are_counted() {
    let result = Writer::start(options(Path::new("/dev/full"), Format::Pcapng));
    let error = result.err().expect("no room for the header").to_string();
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let path = Path::new("/nonexistent/f.pcapng");
    let error = Writer::start(options(path, Format::Pcapng)).err().expect("an error").to_string();
    assert!(error.contains("/nonexistent/f.pcapng") && error.contains("folder"), "{error}");
}

#[test]
fn a_writer_that_panics_ends_the_capture_and_counts_what_it_did_not_write() {
    let (_folder, path) = folder();
    let rotation = Rotation { size: Some(10_000), ..Rotation::default() };
    let options = Options {
        rotation,
        totals: Box::new(|| panic!("no counts")),
        ..options(&path, Format::Pcapng)
    };
    // Many times what the buffers hold: whoever feeds it would wait for ever.
    let summary = write(options, &numbered(200_000));
    let said = summary.failure.expect("a failure").to_string();
    assert!(said.contains("writer panicked: no counts"), "{said}");
    assert_eq!(summary.written + summary.unwritten, 200_000);
    assert_eq!(summary.interfaces[0].unwritten(), summary.unwritten);
    assert_eq!(numbers(&path), (0..summary.written).collect::<Vec<_>>());
    assert!(summary.written > 100);
}
