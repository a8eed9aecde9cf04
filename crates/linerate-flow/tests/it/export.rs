//! Many flows that end at once: their records reach files and collectors.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_flow::FlowRecord;
use linerate_flow::export::{ExportStatistics, ExportingMeter, InterfaceName, RecordWriter};
use linerate_flow::file::Retention;
use linerate_flow::meter::MeterOptions;
use linerate_flow::outputs::{Destination, OutputOptions, Outputs};
use linerate_flow::schema::Groups;
use linerate_testkit::wait_for;
use nix::sys::socket::sockopt::RcvBuf;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket,
};

use crate::files::{block, unblock};
use crate::frames::{START, udp};
use crate::traffic::metered;

const FLOWS: u64 = 100_000;

/// Records that go to a folder and to a collector.
struct Run {
    record_writer: RecordWriter,
    meter: ExportingMeter,
    _folder: tempfile::TempDir,
}

impl Run {
    /// With flows of one packet each.
    fn start(collector: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = OutputOptions {
            destinations: vec![
                Destination::Folder(folder.path().into()),
                collector.parse().unwrap(),
            ],
            sensor: Some("edge-1".into()),
            group: None,
            max_age: Duration::from_secs(60),
            retention: Retention::default(),
            groups: Groups::default(),
            sealed: None,
        };
        let record_writer =
            RecordWriter::start(&options, vec![InterfaceName::default()], 1.0, || (), |_| ());
        let record_writer = record_writer.unwrap();
        let idle_timeout = Duration::from_secs(1);
        let options = MeterOptions { idle_timeout, ..MeterOptions::default() };
        let mut meter = record_writer.meter(&options, None);
        for flow in 0..FLOWS as u32 {
            let source = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + flow));
            let destination = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
            meter.push(&metered(&udp((source, 1), (destination, 53), 10), 0, START, None));
        }
        Self { record_writer, meter, _folder: folder }
    }

    /// The end of the run: what was written and sent.
    fn finish(self) -> ExportStatistics {
        drop(self.meter);
        let (statistics, outcome) = self.record_writer.finish();
        outcome.unwrap();
        assert_eq!(statistics.meter.exported, FLOWS);
        assert_eq!(statistics.output.files.records, FLOWS);
        statistics
    }
}

/// A collector that reads 4 MB a second, which is slower than a sweep, and does not leave the rest to the kernel. Its
/// thread returns the number of octets.
fn slow_collector() -> (String, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    setsockopt(&listener, RcvBuf, &65536).unwrap();
    let target = format!("ipfix+tcp://{}", listener.local_addr().unwrap());
    let read = move || {
        let (mut stream, mut buffer, mut octets) = (listener.accept().unwrap().0, vec![0; 4000], 0);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return octets,
                len => octets += len as u64,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    (target, std::thread::spawn(read))
}

#[test]
fn published_records_wait_for_a_slow_collector_as_long_as_they_may() {
    let (target, collector) = slow_collector();
    let options = OutputOptions {
        destinations: vec![target.parse().unwrap()],
        sensor: None,
        group: None,
        max_age: Duration::from_secs(60),
        retention: Retention::default(),
        groups: Groups::default(),
        sealed: None,
    };
    let mut outputs = Outputs::open(&options, || ()).unwrap();
    let records = vec![FlowRecord::default(); FLOWS as usize];
    let deadline = Instant::now() + Duration::from_millis(100);
    outputs.publish(records.iter(), || Instant::now() < deadline).unwrap();
    let (statistics, outcome) = outputs.finish(Duration::ZERO);
    outcome.unwrap();
    let sent = &statistics.collectors[0].1;
    assert_eq!(sent.flows + sent.not_sent_flows, FLOWS, "{sent:?}");
    assert!(sent.not_sent_flows > 0, "{sent:?}");
    assert_eq!(sent.octets, collector.join().unwrap());
}

#[test]
fn a_folder_that_is_given_twice_or_a_wrong_collector_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("flows");
    let open = |second: Destination| {
        let options = OutputOptions {
            destinations: vec![Destination::Folder(folder.clone()), second],
            sensor: Some("edge-1".into()),
            group: None,
            max_age: Duration::from_secs(60),
            retention: Retention::default(),
            groups: Groups::default(),
            sealed: None,
        };
        Outputs::open(&options, || ()).err().expect("refused").to_string()
    };
    let error = open(Destination::Folder(parent.path().join("./flows/")));
    assert!(error.contains("given twice"), "{error}");
    assert!(!folder.exists(), "nobody wrote there");
    open("ipfix+tls://127.0.0.1?ca=/nonexistent".parse().unwrap());
    assert!(!folder.exists(), "nobody wrote there");
}

#[test]
fn each_output_fails_alone_and_is_counted() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut destinations = vec![
        Destination::Folder(folders[0].path().into()),
        Destination::Folder(folders[1].path().into()),
        format!("ipfix://{}", collector.local_addr().unwrap()).parse().unwrap(),
    ];
    let options = |destinations: &[Destination]| OutputOptions {
        destinations: destinations.to_vec(),
        sensor: Some("edge-1".into()),
        group: None,
        max_age: Duration::ZERO,
        retention: Retention::default(),
        groups: Groups::default(),
        sealed: None,
    };
    let record = FlowRecord { start: START, end: START, ..FlowRecord::default() };
    // A file in place of the folder of the day.
    let date = jiff::Timestamp::from_nanosecond(START.into()).unwrap();
    let blocked = folders[0].path().join(date.strftime("date=%Y-%m-%d").to_string());
    std::fs::write(&blocked, "").unwrap();
    let mut outputs = Outputs::open(&options(&destinations), || ()).unwrap();
    let push = |outputs: &mut Outputs, count| {
        (0..count).for_each(|_| outputs.push(&record, true));
        outputs.maintain(Instant::now());
    };
    push(&mut outputs, 3);
    push(&mut outputs, 4);
    let statistics = outputs.statistics();
    assert_eq!((statistics.files.records, statistics.not_written), (7, 7));
    assert!(statistics.has_lost_records());
    let warnings = outputs.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("not written so far: 7"), "{warnings:?}");
    // The next error within a minute is said at the end.
    push(&mut outputs, 2);
    assert_eq!(outputs.take_warnings(), [""; 0]);
    let warning = outputs.take_failure().unwrap();
    assert!(warning.contains("not written so far: 9"), "{warning}");
    assert_eq!(outputs.take_failure(), None);
    // When there is room again, it goes on.
    std::fs::remove_file(&blocked).unwrap();
    push(&mut outputs, 5);
    let (statistics, outcome) = outputs.finish(Duration::from_secs(10));
    outcome.unwrap();
    assert_eq!((statistics.files.records, statistics.not_written), (19, 9));
    assert_eq!(statistics.collectors[0].1.flows, 14);

    // The last files fail, too, and a collector that is away does not matter to the other ones.
    std::fs::remove_dir_all(&blocked).unwrap();
    std::fs::write(&blocked, "").unwrap();
    destinations.push("ipfix+tcp://127.0.0.1:1".parse().unwrap());
    let mut outputs = Outputs::open(&options(&destinations), || ()).unwrap();
    outputs.push(&record, false);
    let (statistics, outcome) = outputs.finish(Duration::ZERO);
    outcome.unwrap_err();
    assert_eq!((statistics.files.records, statistics.not_written), (1, 1));
    let sent = statistics.collectors.iter().map(|(_, one)| (one.flows, one.not_sent_flows));
    assert_eq!(sent.collect::<Vec<_>>(), [(1, 0), (0, 1)]);
}

#[test]
fn collectors_get_records_whose_file_cannot_get_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!("ipfix://{}", collector.local_addr().unwrap());
    let options = OutputOptions {
        destinations: vec![Destination::Folder(folder.path().into()), target.parse().unwrap()],
        sensor: Some("edge-1".into()),
        group: None,
        max_age: Duration::from_secs(60),
        retention: Retention::default(),
        groups: Groups::default(),
        sealed: Some(0),
    };
    let mut outputs = Outputs::open(&options, || ()).unwrap();
    let records = [FlowRecord { start: START, end: START, ..FlowRecord::default() }];
    outputs.seal(records.iter(), 1).unwrap();
    let blocked = block(folder.path());
    assert_eq!(blocked.len(), 1);
    outputs.publish(records.iter(), || true).unwrap_err();
    let (statistics, outcome) = outputs.finish(Duration::from_secs(10));
    outcome.unwrap_err();
    assert_eq!(statistics.files.records, 0);
    let sent = &statistics.collectors[0].1;
    assert_eq!((sent.flows, sent.not_sent_flows), (1, 0), "{sent:?}");
    // The next daemon gives the file its name.
    unblock(&blocked);
    let options = OutputOptions { sealed: Some(1), ..options };
    let (_, outcome) = Outputs::open(&options, || ()).unwrap().finish(Duration::ZERO);
    outcome.unwrap();
    assert!(blocked[0].is_file());
}

#[test]
fn a_collector_that_cannot_be_reached_at_the_start_is_warned_of_once() {
    static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let reached = format!("ipfix://{}", collector.local_addr().unwrap());
    // No name has a label of more than 63 octets, so nobody asks a name server.
    let unknown = format!("ipfix://{}.invalid:4739", "a".repeat(64));
    let options = OutputOptions {
        destinations: [&reached, &unknown].map(|text| text.parse().unwrap()).into(),
        sensor: None,
        group: None,
        max_age: Duration::from_secs(60),
        retention: Retention::default(),
        groups: Groups::default(),
        sealed: None,
    };
    let warn = |text: &str| WARNINGS.lock().unwrap().push(text.to_owned());
    let record_writer = RecordWriter::start(&options, Vec::new(), 1.0, || (), warn).unwrap();
    wait_for("a warning", || !WARNINGS.lock().unwrap().is_empty());
    std::thread::sleep(Duration::from_secs(1));
    record_writer.finish().1.unwrap();
    let warnings = WARNINGS.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(&format!("{unknown}: ")), "{warnings:?}");
    assert!(warnings[0].contains("it is tried again"), "{warnings:?}");
}

fn assert_all_arrived(statistics: &ExportStatistics, octets: u64) {
    let sent = &statistics.output.collectors[0].1;
    assert_eq!((sent.flows, sent.not_sent_flows, sent.connections), (FLOWS, 0, 1), "{sent:?}");
    assert_eq!(sent.octets, octets);
}

#[test]
fn flows_that_are_idle_at_once_reach_a_slow_collector() {
    let (target, collector) = slow_collector();
    let mut run = Run::start(&target);
    wait_for("all flows to end", || {
        run.meter.maintain(Instant::now());
        std::thread::sleep(Duration::from_millis(100));
        run.record_writer.statistics().meter.exported == FLOWS
    });
    assert_eq!(run.meter.take_wait_time(), Duration::ZERO, "packets do not wait");
    let statistics = run.finish();
    assert_all_arrived(&statistics, collector.join().unwrap());
}

#[test]
fn flows_that_the_end_of_a_run_ends_reach_a_slow_collector() {
    let (target, collector) = slow_collector();
    let statistics = Run::start(&target).finish();
    assert_all_arrived(&statistics, collector.join().unwrap());
}

#[test]
fn the_end_of_a_run_waits_a_limited_time_for_a_collector_that_is_absent() {
    // Nobody listens there, and nobody else gets the port.
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    let address: SockaddrIn = getsockname(socket.as_raw_fd()).unwrap();
    let run = Run::start(&format!("ipfix+tcp://{address}"));
    let since = Instant::now();
    let statistics = run.finish();
    let sent = &statistics.output.collectors[0].1;
    assert_eq!((sent.flows, sent.not_sent_flows), (0, FLOWS), "{sent:?}");
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
}
