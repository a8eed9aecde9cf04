//! Parquet files, read back.

use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_flow::file::{Files, FilesOptions, Retention};
use linerate_flow::schema::{self, Group, Value};
use linerate_flow::{
    BiflowDirection, Details, Direction, DirectionDetails, EndReason, FlowKey, FlowRecord,
    NatEvent, ProcessFields, Translation,
};
use linerate_pcapfile::PacketLocation;
use linerate_wire::ethernet::Address;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::frames::{SECOND, START};

fn options(folder: &Path) -> FilesOptions {
    FilesOptions {
        folder: folder.into(),
        sensor: "edge-1".into(),
        group: None,
        max_age: Duration::from_secs(60),
        max_records: 1 << 22,
        retention: Retention::default(),
        groups: Group::ALL.iter().copied().collect(),
        sealed: None,
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect();
    all.sort();
    all
}

/// The records of a file, as text.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let text = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Bytes(bytes) => {
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes.data()).unwrap()).to_string()
        }
        Field::Str(text) => text.clone(),
        Field::UInt(number) => number.to_string(),
        Field::ULong(number) => number.to_string(),
        Field::UShort(number) => number.to_string(),
        Field::UByte(number) => number.to_string(),
        Field::Long(number) => number.to_string(),
        other => other.to_string(),
    };
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().get_column_iter().map(|(_, field)| text(field)).collect()).collect()
}

/// What [`rows`] gives for a record.
fn expected(record: &FlowRecord) -> Vec<String> {
    let text = |value: Option<Value<'_>>| match value {
        None => String::new(),
        Some(Value::Float(value)) => format!("{value:?}"),
        Some(value) => value.to_string(),
    };
    schema::FIELDS.iter().map(|field| text((field.value)(record))).collect()
}

/// A record with a value in every field that its address version has.
fn full(start: u64, v6: bool) -> FlowRecord {
    let address = |last: u8| match v6 {
        true => IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
        false => IpAddr::from([255, 0, 0, last]),
    };
    let direction = |packets| Direction {
        packets,
        octets: u64::MAX - packets,
        tcp_flags: 0x1ff,
        ttl: Some((1, 255)),
        length: Some((20, 65_535)),
    };
    let details = |n: u8| DirectionDetails {
        tos: Some(n),
        flow_label: Some(0xf_fff0 + u32::from(n)),
        payload: Some(u64::MAX - u64::from(n)),
        first_flags: Some(n),
    };
    FlowRecord {
        start,
        end: start + 5,
        reverse_start: Some(start + 1),
        key: FlowKey {
            source: address(1),
            destination: address(2),
            source_port: Some(65_535),
            destination_port: Some(0),
            icmp_type_code: None,
            protocol: 6,
            vlan: Some(4094),
            customer_vlan: Some(1),
        },
        ingress_interface: Some(u32::MAX),
        egress_interface: Some(2),
        interface_name: Some("eth0".into()),
        forward: direction(1),
        reverse: direction(2),
        direction: BiflowDirection::Initiator,
        end_reason: Some(EndReason::EndOfFlow),
        sampling_probability: 0.25,
        translation: Some(Translation {
            source: address(3),
            destination: address(4),
            source_port: Some(5),
            destination_port: Some(6),
        }),
        nat_event: Some(NatEvent::Nat44Create),
        packets: Some(PacketLocation { file: "a.pcapng".into(), first: 7, end: Some(8) }),
        details: Details {
            macs: Some((Address([0xff; 6]), Address([1; 6]))),
            forward: details(1),
            reverse: details(2),
            history: Some("ShADadFf".into()),
            syn_ack: Some(0),
            handshake: Some(u32::MAX),
            community_id: Some("1:wCb3OG7yAFWelaUydu0D+125CLM=".into()),
            processes: [1, 2].map(|id| Some(Arc::new(process(id)))),
        },
    }
}

fn process(id: u32) -> ProcessFields {
    let text = |what: &str| Some(format!("{what} {id}"));
    ProcessFields {
        id,
        name: format!("name {id}"),
        command: text("command"),
        uid: u32::MAX,
        user: text("user"),
        container: text("container"),
        container_name: text("container name"),
        pod: text("pod"),
        pod_name: text("namespace").zip(text("pod name")),
        unit: text("unit"),
    }
}

#[test]
fn a_record_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = Files::new(options(folder.path())).unwrap();
    let records = [
        full(START, false),
        full(START + 1, true),
        FlowRecord { start: START + 2, end: START + 2, ..FlowRecord::default() },
    ];
    // In another order than that of time.
    for record in records.iter().rev() {
        written.push(record.clone()).unwrap();
    }
    let statistics = written.finish().unwrap();
    let all = files(folder.path());
    let [path] = all.as_slice() else { panic!("{all:?}") };
    let partition = path.parent().unwrap().strip_prefix(folder.path()).unwrap();
    assert_eq!(partition, Path::new("date=2023-11-14/hour=22/sensor=edge-1"));
    assert_eq!(rows(path), records.iter().map(expected).collect::<Vec<_>>());
    assert_eq!((statistics.files, statistics.records, statistics.interruptions), (1, 3, 0));
    assert_eq!(statistics.bytes, path.metadata().unwrap().len());
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let version = metadata.iter().find(|entry| entry.key == schema::VERSION_KEY).unwrap();
    assert_eq!(version.value.as_deref(), Some("1"));
}

#[test]
fn each_hour_has_a_file_and_age_and_number_complete_them() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        FilesOptions { max_records: 10, max_age: Duration::ZERO, ..options(folder.path()) };
    let mut written = Files::new(options).unwrap();
    for minute in 0..10 {
        written.push(full(START + minute * 1200 * SECOND, false)).unwrap();
    }
    assert_eq!(written.statistics().records, 10, "by their number");
    assert_eq!(written.statistics().files, 4, "22:13 to 01:13");
    written.push(full(START, false)).unwrap();
    assert_eq!(written.statistics().records, 10);
    written.maintain(Instant::now()).unwrap();
    assert_eq!(written.statistics().records, 11, "by their age");
    let whole = files(folder.path())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "parquet"));
    assert_eq!(whole.map(|path| rows(&path).len()).sum::<usize>(), 11);
}

#[test]
fn an_interrupted_meter_leaves_whole_files_only_and_the_next_one_counts_it() {
    let folder = tempfile::tempdir().unwrap();
    let hidden = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
    let mut written = Files::new(options(folder.path())).unwrap();
    written.push(full(START, false)).unwrap();
    written.complete().unwrap();
    for _ in 0..1 << 16 {
        written.push(full(START, false)).unwrap();
    }
    // A second one of the same name would write to the same folder.
    assert!(matches!(Files::new(options(folder.path())), Err(linerate_flow::Error::InUse { .. })));
    drop(written);
    let (rest, whole): (Vec<_>, Vec<_>) = files(folder.path()).into_iter().partition(hidden);
    assert_eq!((rest.len(), whole.len()), (2, 1), "the state, and a file that is not whole");
    assert_eq!(rows(&whole[0]).len(), 1);

    let next = Files::new(options(folder.path())).unwrap();
    assert_eq!(next.statistics().interruptions, 1);
    next.finish().unwrap();
    assert_eq!(files(folder.path()), whole);
    let after = Files::new(options(folder.path())).unwrap();
    assert_eq!(after.statistics().interruptions, 0);
}

/// The names below a folder that are no complete files.
fn hidden_files(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| !is_complete(path)).collect()
}

fn is_complete(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "parquet")
}

/// A folder in the place of each file that is sealed, so that it cannot get its name.
pub(crate) fn block(folder: &Path) -> Vec<PathBuf> {
    let sealed = hidden_files(folder).into_iter().filter_map(|path| {
        let (name, _) = path.file_name()?.to_str()?.strip_prefix('.')?.split_once(".sealed-")?;
        Some(path.with_file_name(name))
    });
    let blocked: Vec<_> = sealed.collect();
    for path in &blocked {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("a"), "").unwrap();
    }
    blocked
}

pub(crate) fn unblock(blocked: &[PathBuf]) {
    blocked.iter().for_each(|path| std::fs::remove_dir_all(path).unwrap());
}

#[test]
fn records_of_hundreds_of_hours_need_few_open_files() {
    let folder = tempfile::tempdir().unwrap();
    let is_below = |path: &PathBuf| path.starts_with(folder.path());
    let opened = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter_map(|entry| std::fs::read_link(entry.path()).ok()).filter(is_below).count()
    };
    let mut written = Files::new(options(folder.path())).unwrap();
    // Hours come again, and one of them has a record in each round.
    for number in 0..700 {
        let hour = if number % 7 == 0 { 0 } else { number % 200 };
        written.push(full(START + hour * 3600 * SECOND, false)).unwrap();
    }
    written.seal(1).unwrap();
    assert_eq!(files(folder.path()).iter().filter(|path| is_complete(path)).count(), 0);
    written.publish().unwrap();
    assert_eq!(written.statistics().records, 700);
    // A row group of each hour.
    let group = 1 << 16;
    for number in 0..group {
        written.push(full(START + number % 100 * 3600 * SECOND, false)).unwrap();
    }
    let most = opened();
    assert!(most > 1, "{most} files are open");
    assert!(most <= 33, "{most} files are open: 32 and the state");
    let statistics = written.finish().unwrap();
    let complete: Vec<_> = files(folder.path());
    assert!(complete.iter().all(|path| is_complete(path)), "{complete:?}");
    assert_eq!((statistics.records, statistics.files), (700 + group, complete.len() as u64));
    assert_eq!(complete.iter().map(|path| rows(path).len()).sum::<usize>(), 700 + group as usize);
}

#[test]
fn a_file_that_cannot_get_its_name_gets_it_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Files::new(options(folder.path())).unwrap();
    let push = |writer: &mut Files, hours: std::ops::Range<u64>| {
        hours.for_each(|hour| writer.push(full(START + hour * 3600 * SECOND, false)).unwrap());
    };
    push(&mut writer, 0..3);
    writer.seal(1).unwrap();
    let blocked = block(folder.path());
    unblock(&blocked[1..]);
    writer.publish().unwrap_err();
    assert_eq!(writer.statistics().records, 2, "the others have their names");
    // The next batch is discarded. This one is not.
    push(&mut writer, 3..5);
    writer.seal(2).unwrap();
    writer.discard();
    unblock(&blocked[..1]);
    push(&mut writer, 5..6);
    writer.seal(2).unwrap();
    writer.publish().unwrap();
    assert_eq!(writer.statistics().records, 4);
    assert_eq!(writer.finish().unwrap().records, 4);
    let complete = files(folder.path());
    assert_eq!(complete.iter().map(|path| rows(path).len()).sum::<usize>(), 4, "{complete:?}");
}

#[test]
fn a_file_that_did_not_get_its_name_gets_it_at_the_next_start() {
    // Of a batch that is older than the last committed one, and of a capture, which has no batches.
    for (number, sealed) in [(1, Some(2)), (0, None)] {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Files::new(options(folder.path())).unwrap();
        writer.push(full(START, false)).unwrap();
        writer.seal(number).unwrap();
        let blocked = block(folder.path());
        writer.publish().unwrap_err();
        drop(writer);
        unblock(&blocked);
        let next = Files::new(FilesOptions { sealed, ..options(folder.path()) }).unwrap();
        next.finish().unwrap();
        let complete = files(folder.path());
        assert_eq!(complete.iter().map(|path| rows(path).len()).sum::<usize>(), 1, "{complete:?}");
    }
}

#[test]
fn a_meter_without_records_was_not_interrupted_when_it_is_dropped() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    drop(Files::new(options(&folder)).unwrap());
    assert!(!parent.path().join("a").exists(), "what it created is removed");
    std::fs::create_dir_all(&folder).unwrap();
    drop(Files::new(options(&folder)).unwrap());
    assert_eq!(files(&folder), Vec::<PathBuf>::new());
    assert!(folder.exists(), "it was there before");
    // A meter that was killed is counted by the next one that gets records.
    std::fs::write(folder.join(".sensor=edge-1"), "").unwrap();
    drop(Files::new(options(&folder)).unwrap());
    let next = Files::new(options(&folder)).unwrap();
    assert_eq!(next.statistics().interruptions, 1);
    next.finish().unwrap();
    assert_eq!(files(&folder), Vec::<PathBuf>::new());
}

/// Numbers that look random, and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Mostly small.
    fn skewed(&mut self, end: u64) -> u64 {
        let product = self.below(end + 1) as f64 / (end + 1) as f64;
        (product.powi(4) * end as f64) as u64
    }
}

#[test]
fn files_that_a_killed_meter_sealed_are_published_if_their_batch_was_committed() {
    for (committed, expected) in [(None, 0), (Some(6), 0), (Some(7), 2)] {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Files::new(options(folder.path())).unwrap();
        // Records of two hours, then one that is not sealed.
        for start in [START, START + 3600 * SECOND] {
            writer.push(full(start, false)).unwrap();
        }
        writer.seal(7).unwrap();
        writer.push(full(START, true)).unwrap();
        assert!(
            files(folder.path())
                .iter()
                .all(|path| path.extension().is_none_or(|end| end != "parquet"))
        );
        drop(writer);
        let next = FilesOptions { sealed: committed, ..options(folder.path()) };
        let next = Files::new(next).unwrap();
        next.finish().unwrap();
        let found = files(folder.path());
        assert_eq!(found.len(), expected, "{found:?}");
        assert_eq!(found.iter().map(|path| rows(path).len()).sum::<usize>(), expected);
    }
}

/// Names, web and other connections of an office: many clients, few popular servers, sizes over some decades.
fn mix(random: &mut Random, number: u64, located: bool) -> FlowRecord {
    let start = START + number * 600_000 + random.below(1_000_000);
    let dns = random.below(3) == 0;
    let client = IpAddr::from([10, 0, random.below(4) as u8, random.below(250) as u8]);
    let server = random.skewed(5000);
    let server = if dns {
        IpAddr::from([10, 0, 0, 53])
    } else {
        IpAddr::from([93, 184, (server >> 8) as u8, server as u8])
    };
    let tcp = !dns && random.below(4) != 0;
    let packets = if dns { 1 } else { 5 + random.skewed(200) };
    let duration =
        if dns { 1_000_000 + random.skewed(50_000_000) } else { random.skewed(15 * SECOND) };
    let octets = |random: &mut Random, each: u64| {
        if dns { 60 + random.below(40) } else { packets * 52 + random.skewed(packets * each) }
    };
    let direction = |random: &mut Random, each: u64, ttl: u8| Direction {
        packets,
        octets: octets(random, each),
        tcp_flags: if tcp { 0x1b } else { 0 },
        ttl: Some((ttl, ttl)),
        length: Some(if dns { (70, 70) } else { (52, 1500) }),
    };
    let reverse_ttl = 50 + random.below(12) as u8;
    // 33 MB a second in one packet file; ends as the exporter has them.
    let mut offset = |time: u64| (time - START) / 30 + random.below(1500);
    let (first, end) = (offset(start), offset(start + duration).next_multiple_of(4096));
    let file = "/var/lib/linerate/eth0.pcapng".into();
    FlowRecord {
        packets: located.then_some(PacketLocation { file, first, end: Some(end) }),
        start,
        end: start + duration,
        reverse_start: Some(start + 1_000_000 + random.skewed(60_000_000)),
        key: FlowKey {
            source: client,
            destination: server,
            source_port: Some(32_768 + random.below(28_000) as u16),
            destination_port: Some(if dns { 53 } else { 443 }),
            protocol: if tcp { 6 } else { 17 },
            ..FlowKey::default()
        },
        ingress_interface: Some(2),
        interface_name: Some("eth0".into()),
        forward: direction(random, 200, 64),
        reverse: direction(random, 1400, reverse_ttl),
        end_reason: Some(EndReason::IdleTimeout),
        ..FlowRecord::default()
    }
}

#[test]
fn a_flow_takes_few_bytes() {
    for (located, most) in [(false, 24.0), (true, 28.0)] {
        let folder = tempfile::tempdir().unwrap();
        let mut written = Files::new(options(folder.path())).unwrap();
        let mut random = Random(1);
        for number in 0..1 << 16 {
            written.push(mix(&mut random, number, located)).unwrap();
        }
        let statistics = written.finish().unwrap();
        let path = &files(folder.path())[0];
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for column in reader.metadata().row_group(0).columns() {
            let size = column.compressed_size() as f64 / statistics.records as f64;
            println!("{:6.2} {}", size, column.column_path());
        }
        let bytes = statistics.bytes as f64 / statistics.records as f64;
        println!("{bytes:6.2} bytes a flow");
        assert!(bytes <= most, "{bytes} bytes a flow");
    }
}

#[test]
fn old_files_of_a_sensor_are_deleted_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let hour = 3600 * SECOND;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let record = |start: u64| FlowRecord { start, end: start, ..FlowRecord::default() };
    // Hours of two sensors. The ends of the hours are between 0 and 1, and 48 and 49 hours ago.
    for sensor in ["edge-1", "edge-2"] {
        let options = FilesOptions { sensor: sensor.into(), ..options(folder.path()) };
        let mut files = Files::new(options).unwrap();
        for start in [now - 50 * hour, now - 49 * hour, now - hour] {
            files.push(record(start)).unwrap();
        }
        files.finish().unwrap();
    }
    let all = files(folder.path());
    assert_eq!(all.len(), 6);
    // A foreign file in a folder of the sensor stays, and its folder.
    let foreign = all[0].with_file_name("notes.txt");
    std::fs::write(&foreign, "").unwrap();
    let of = |sensor: &str| {
        let part = format!("sensor={sensor}/flows-");
        files(folder.path()).iter().filter(|path| path.to_str().unwrap().contains(&part)).count()
    };
    let kept = |keep: Option<Duration>, keep_free: Option<&str>| {
        let keep_free = keep_free.map(|text| text.parse().unwrap());
        let retention = Retention { keep, keep_free };
        let mut files = Files::new(FilesOptions { retention, ..options(folder.path()) }).unwrap();
        files.delete_old(Instant::now()).unwrap();
        assert_eq!(of("edge-2"), 3);
        let deleted = files.statistics().deleted;
        files.finish().unwrap();
        (of("edge-1"), deleted)
    };
    assert_eq!(kept(None, None), (3, 0));
    assert_eq!(kept(Some(Duration::from_secs(24 * 3600)), Some("1")), (1, 2));
    assert!(foreign.exists() && !all[2].exists() && !all[2].parent().unwrap().exists());
    assert_eq!(kept(Some(Duration::MAX), None), (1, 0));
    // No file system has this much.
    assert_eq!(kept(None, Some("8388607T")), (0, 1));
}
