//! What is written is what is read, whatever the packets and the format.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_ring::{Direction, Frame, Timestamp};
use proptest::prelude::*;

use linerate_pcapfile::{
    Compression, Format, InterfaceDescription, InterfaceStatistics, PacketOptions, Reader, Record,
    SectionHeader,
};

use super::*;

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

fn options(path: &Path, format: Format) -> FileSinkOptions {
    FileSinkOptions {
        path: path.to_owned(),
        input: None,
        encoder: Encoder {
            format,
            snaplen: 262_144,
            options: PacketOptions { direction: true, queue: true },
        },
        compression: Compression::None,
        group: None,
        rotation: Rotation::default(),
        retention: Retention::default(),
        size_limit: None,
        postrotate: None,
        print_names: None,
        file_limit: None,
        section: Some(SectionHeader::default()),
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
        in_order: false,
        stop: Arc::default(),
        statistics: Box::new(|| {
            vec![InterfaceStatistics { received: Some(7), ..Default::default() }]
        }),
    }
}

fn write(options: FileSinkOptions, packets: &[Packet]) -> FileSinkReport {
    let writer = FileSink::start(options).expect("a writer");
    let mut handle = writer.handle(0);
    for packet in packets {
        let mut frame = Frame::new(&packet.data);
        frame.wire_len += packet.cut;
        frame.timestamp = Some(Timestamp(packet.nanos));
        frame.direction = if packet.outbound { Direction::Outbound } else { Direction::Inbound };
        frame.queue = 3;
        handle.push(&Record { frame, interface: 0, comment: packet.comment.as_deref() });
    }
    drop(handle);
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
        prop_assert_eq!(summary.counts.written, packets.len() as u64);
        prop_assert_eq!(summary.counts.bytes, std::fs::metadata(&path).expect("a file").len());
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
        let summary =
            write(FileSinkOptions { compression, ..options(&path, Format::Pcapng) }, &packets);
        assert_eq!(summary.counts.written, 60_000);
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
        let summary =
            write(FileSinkOptions { rotation, ..options(&path, format) }, &numbered(5000));
        assert!(summary.counts.files > 10, "{} files", summary.counts.files);
        let mut all = numbers(&path);
        for number in 1..summary.counts.files {
            all.extend(numbers(&folder.path().join(format!("f{number}"))));
        }
        assert_eq!(all, (0..5000).collect::<Vec<_>>());
    }
}

#[test]
fn a_ring_of_files_keeps_the_newest() {
    let (folder, path) = folder();
    let rotation = Rotation { size: Some(10_000), count: Some(3), ..Rotation::default() };
    write(FileSinkOptions { rotation, ..options(&path, Format::Pcapng) }, &numbered(5000));
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
    let summary =
        write(FileSinkOptions { rotation, ..options(&path, Format::Pcapng) }, &numbered(250));
    assert_eq!(summary.counts.files, 3);
    let counts = ["0", "1", "2"].map(|name| numbers(&folder.path().join(name)).len());
    assert_eq!(counts, [100, 100, 50]);
}

#[test]
fn a_limit_of_size_ends_the_capture_and_counts_nothing_as_lost() {
    let (_folder, path) = folder();
    let options = FileSinkOptions { size_limit: Some(5000), ..options(&path, Format::Pcapng) };
    let summary = write(options, &numbered(1000));
    assert_eq!(summary.counts.unwritten, 0);
    assert_eq!(summary.counts.written + summary.beyond_limit, 1000);
    assert_eq!(numbers(&path).len() as u64, summary.counts.written);
    assert!(summary.counts.written > 0 && summary.beyond_limit > 0);
    let [outcome] = summary.interfaces[..] else { panic!("one interface") };
    assert_eq!(
        (outcome.received, outcome.written, outcome.unwritten()),
        (1000, summary.counts.written, 0)
    );
    assert_eq!(outcome.missing_bytes, 8 * summary.beyond_limit);
}

#[test]
fn a_device_that_is_full_is_an_error_and_the_packets_are_counted() {
    let result = FileSink::start(options(Path::new("/dev/full"), Format::Pcapng));
    let error = result.err().expect("no room for the header").to_string();
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let path = Path::new("/nonexistent/f.pcapng");
    let error = FileSink::start(options(path, Format::Pcapng)).err().expect("an error").to_string();
    assert!(error.contains("/nonexistent/f.pcapng") && error.contains("directory"), "{error}");
}

#[test]
fn a_writer_that_panics_ends_the_capture_and_counts_what_it_did_not_write() {
    let (_folder, path) = folder();
    let rotation = Rotation { size: Some(10_000), ..Rotation::default() };
    let options = FileSinkOptions {
        rotation,
        statistics: Box::new(|| std::panic::resume_unwind(Box::new("no counts"))),
        ..options(&path, Format::Pcapng)
    };
    // Many times what the buffers hold: whoever handles it would wait for ever.
    let summary = write(options, &numbered(200_000));
    let said = summary.failure.expect("a failure").to_string();
    assert!(said.contains("writer panicked: no counts"), "{said}");
    assert_eq!(summary.counts.written + summary.counts.unwritten, 200_000);
    assert_eq!(summary.interfaces[0].unwritten(), summary.counts.unwritten);
    assert_eq!(numbers(&path), (0..summary.counts.written).collect::<Vec<_>>());
    assert!(summary.counts.written > 100);
}

#[test]
fn a_writer_that_panics_while_it_merges_counts_all_and_lets_the_readers_go() {
    let (_folder, path) = folder();
    let options = FileSinkOptions {
        in_order: true,
        buffers: 4,
        rotation: Rotation { size: Some(10_000), ..Rotation::default() },
        statistics: Box::new(|| std::panic::resume_unwind(Box::new("no counts"))),
        ..options(&path, Format::Pcapng)
    };
    let writer = FileSink::start(options).expect("a writer");
    let each = 100_000_u64;
    let handles: Vec<_> = (0..2).map(|interface| writer.handle(interface)).collect();
    let readers = handles.into_iter().map(|mut handle| {
        std::thread::spawn(move || {
            for number in 0..each {
                let data = number.to_be_bytes();
                let mut frame = Frame::new(&data);
                frame.timestamp = Some(Timestamp(number * 1000));
                handle.push(&Record { frame, interface: 0, comment: None });
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !readers.iter().all(std::thread::JoinHandle::is_finished) {
        assert!(Instant::now() < deadline, "a reader waits for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
    let summary = writer.finish();
    let said = summary.failure.expect("a failure").to_string();
    assert!(said.contains("writer panicked: no counts"), "{said}");
    assert_eq!(summary.counts.written + summary.counts.unwritten, 2 * each);
    let taken: Vec<_> = summary.interfaces.iter().map(|outcome| outcome.received).collect();
    assert_eq!(taken, [each; 2]);
    let unwritten: u64 = summary.interfaces.iter().map(InterfaceOutcome::unwritten).sum();
    assert_eq!(unwritten, summary.counts.unwritten);
    assert!(summary.counts.written > 0 && numbers(&path).len() as u64 == summary.counts.written);
}

/// Frames of `count` readers whose stamps interleave and whose buffers come at times of their own; the
/// stamps in the file, with the interfaces.
fn merged(
    count: u32,
    format: Format,
    rotation: Rotation,
    each: u64,
) -> (FileSinkReport, Vec<(u64, u32)>) {
    let (folder, path) = folder();
    let interface = |number: u32| InterfaceDescription {
        name: Some(format!("x{number}")),
        linktype: 1,
        ..InterfaceDescription::default()
    };
    let options = FileSinkOptions {
        in_order: true,
        buffers: 100,
        rotation,
        interfaces: (0..count).map(interface).collect(),
        statistics: Box::new(Vec::new),
        ..options(&path, format)
    };
    let writer = FileSink::start(options).expect("a writer");
    let mut handles: Vec<_> = (0..count).map(|number| (number, writer.handle(number))).collect();
    for turn in 0..each {
        for (number, handle) in &mut handles {
            // Runs of several lengths, so that readers take turns of every kind.
            let stamp = (turn / 7 * u64::from(count) + u64::from(*number)) * 7 + turn % 7;
            let data = stamp.to_be_bytes();
            let mut frame = Frame::new(&data);
            frame.timestamp = Some(Timestamp(stamp * 1_000_000));
            handle.push(&Record { frame, interface: *number, comment: None });
            if turn % (500 + 300 * u64::from(*number)) == 0 {
                handle.flush();
            }
        }
    }
    drop(handles);
    let summary = writer.finish();
    let mut all = Vec::new();
    for number in 0..summary.counts.files {
        let name = if number == 0 { "f".to_owned() } else { format!("f{number}") };
        let mut reader = Reader::open(&folder.path().join(name)).expect("a readable file");
        while let Some(record) = reader.next().expect("a whole file") {
            let stamp = u64::from_be_bytes(record.frame.head().try_into().expect("eight bytes"));
            all.push((stamp, record.interface));
        }
    }
    (summary, all)
}

#[test]
fn several_readers_are_put_in_the_order_of_time() {
    for format in [Format::Pcapng, Format::Pcap { nanoseconds: true }] {
        for rotation in
            [Rotation::default(), Rotation { size: Some(100_000), ..Rotation::default() }]
        {
            let (summary, all) = merged(3, format, rotation, 20_000);
            let stamps: Vec<u64> = all.iter().map(|(stamp, _)| *stamp).collect();
            let mut sorted = stamps.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 60_000, "each once");
            assert!(stamps == sorted, "{format:?}, {} files: not in order", summary.counts.files);
            let written: Vec<u64> =
                summary.interfaces.iter().map(|outcome| outcome.written).collect();
            assert_eq!(written, [20_000; 3]);
            if format == Format::Pcapng {
                assert!(
                    all.iter().all(|(stamp, interface)| stamp / 7 % 3 == u64::from(*interface))
                );
            }
        }
    }
}

/// One packet with this stamp.
fn push(handle: &mut FileSinkHandle, nanos: u64) {
    let mut frame = Frame::new(b"12345678");
    frame.timestamp = Some(Timestamp(nanos));
    handle.push(&Record { frame, interface: 0, comment: None });
    handle.flush();
}

#[test]
fn a_reader_that_says_up_to_when_it_has_nothing_is_not_waited_for() {
    let (_folder, path) = folder();
    let options = FileSinkOptions { in_order: true, ..options(&path, Format::Pcapng) };
    let writer = FileSink::start(options).expect("a writer");
    let (silent, mut busy) = (writer.handle(0), writer.handle(0));
    let written = |count: u64, time: Duration| {
        let deadline = Instant::now() + time;
        while writer.progress().counts().written < count && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        writer.progress().counts().written
    };
    silent.set_state(ReaderState::Idle(Some(Timestamp(15))));
    push(&mut busy, 10);
    push(&mut busy, 20);
    // At once: without the word of the other it would take a second.
    assert!(written(1, Duration::from_secs(10)) >= 1);
    silent.set_state(ReaderState::Idle(Some(Timestamp(25))));
    assert_eq!(written(2, Duration::from_secs(10)), 2);
    drop((silent, busy));
    assert_eq!(writer.finish().counts.written, 2);
}

#[test]
fn what_comes_after_the_bound_is_written_and_counted() {
    for format in [Format::Pcapng, Format::Pcap { nanoseconds: false }] {
        comes_after_the_bound(format);
    }
}

fn comes_after_the_bound(format: Format) {
    let (_folder, path) = folder();
    let options = FileSinkOptions { in_order: true, ..options(&path, format) };
    let writer = FileSink::start(options).expect("a writer");
    let (mut late, mut early) = (writer.handle(0), writer.handle(0));
    push(&mut early, 100_900);
    let deadline = Instant::now() + Duration::from_secs(10);
    while writer.progress().counts().written == 0 {
        assert!(Instant::now() < deadline, "it waits for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The last but one is late by less than a microsecond, which only pcapng can tell.
    for nanos in [50_000, 60_000, 55_000, 100_500, 120_000] {
        push(&mut late, nanos);
    }
    drop((late, early));
    let progress = writer.progress();
    assert_eq!(writer.finish().counts.written, 6);
    // The third was out of order when its reader sent it.
    assert_eq!(progress.counts().out_of_order, if format == Format::Pcapng { 3 } else { 2 });
}

#[test]
fn nobody_waits_for_a_reader_that_rests_or_for_one_that_hangs() {
    for idle in [true, false] {
        let (_folder, path) = folder();
        let options =
            FileSinkOptions { in_order: true, buffers: 6, ..options(&path, Format::Pcapng) };
        let writer = FileSink::start(options).expect("a writer");
        let silent = writer.handle(0);
        silent.set_state(if idle { ReaderState::Idle(None) } else { ReaderState::Busy });
        let mut handle = writer.handle(0);
        let packet = 1_u64.to_be_bytes();
        let mut frame = Frame::new(&packet);
        frame.timestamp = Some(Timestamp(5));
        let record = Record { frame, interface: 0, comment: None };
        handle.push(&record);
        handle.flush();
        let deadline = Instant::now() + Duration::from_secs(10);
        while writer.progress().counts().written == 0 {
            assert!(Instant::now() < deadline, "it waits for ever");
            std::thread::sleep(Duration::from_millis(5));
        }
        // More than the stock of buffers holds: the oldest go although the silent one is waited for.
        for _ in 0..300_000 {
            handle.push(&record);
        }
        drop((handle, silent));
        let summary = writer.finish();
        assert_eq!((summary.counts.written, summary.counts.unwritten), (300_001, 0));
    }
}
