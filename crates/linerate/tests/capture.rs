//! `linerate capture` as a user runs it, on real interfaces, judged by other programs.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use linerate_capture::read::Reader;
use linerate_netns::{Namespace, Veth, VethOptions, root_or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// Two hosts on a cable; captures run on `far`.
struct Cable {
    near: Namespace,
    far: Namespace,
    veth: Option<Veth>,
}

impl Cable {
    fn lay() -> Self {
        let near = Namespace::create("vcap-near").unwrap();
        let far = Namespace::create("vcap-far").unwrap();
        for namespace in [&near, &far] {
            namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        }
        let veth = Veth::create(&near, "near", &far, "far", VethOptions::default()).unwrap();
        let (a, b): (IpAddr, IpAddr) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
        veth.a.add_address(a, 24).unwrap();
        veth.b.add_address(b, 24).unwrap();
        veth.a.add_neighbour(b, veth.b.mac()).unwrap();
        Self { near, far, veth: Some(veth) }
    }

    fn veth(&self) -> &Veth {
        self.veth.as_ref().unwrap()
    }

    /// Sends `count` datagrams of `size` bytes from the near host, slowly enough for a busy machine.
    fn send(&self, count: u32, size: usize) {
        let send = || {
            let socket = UdpSocket::bind("10.9.0.1:4000").unwrap();
            let mut payload = vec![0; size];
            for number in 0..count {
                payload[..4].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&payload, "10.9.0.2:5000").unwrap();
                if number % 64 == 63 {
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
        };
        self.near.run(send).unwrap();
    }

    /// Starts a capture on `far` and waits until it listens.
    fn capture(&self, arguments: &str) -> Capture {
        let mut command = self.far.command(LINERATE);
        command.args(["capture", "-i", "far"]).args(arguments.split_whitespace());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("listening on") {
            assert_ne!(errors.read_line(&mut said).unwrap(), 0, "it ended at once: {said}");
        }
        Capture { child, errors, said }
    }

    /// Runs a capture that is expected to end by itself.
    fn run(&self, arguments: &str) -> Output {
        let mut command = self.far.command(LINERATE);
        command.arg("capture").args(arguments.split_whitespace()).output().unwrap()
    }
}

struct Capture {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
    said: String,
}

impl Capture {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Reads standard error until it says `word`.
    fn until(&mut self, word: &str) {
        while !self.said.contains(word) {
            let read = self.errors.read_line(&mut self.said).unwrap();
            assert_ne!(read, 0, "it never said {word:?}: {}", self.said);
        }
    }

    /// Waits for the end.
    fn wait(mut self) -> (ExitStatus, String, String) {
        let mut out = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut out).unwrap();
        }
        self.errors.read_to_string(&mut self.said).unwrap();
        (self.child.wait().unwrap(), out, self.said)
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(self) -> (ExitStatus, Value, String) {
        self.signal(Signal::SIGINT);
        let (status, out, said) = self.wait();
        let json = serde_json::from_str(&out).unwrap_or(Value::Null);
        (status, json, said)
    }
}

/// The numbers that [`Cable::send`] put into the datagrams of a file.
fn numbers(path: &Path) -> Vec<u32> {
    let mut reader = Reader::open(path).unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        numbers.push(u32::from_be_bytes(record.frame.head()[42..46].try_into().unwrap()));
    }
    numbers
}

/// Another program's opinion of a file; skipped by name where it is not installed.
fn accepts(program: &str, arguments: &[&str], path: &Path) {
    match std::process::Command::new(program).args(arguments).arg(path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
            let complains = ["damaged", "truncated", "cut short", "corrupt", "malformed"]
                .iter()
                .any(|word| said.contains(word));
            assert!(output.status.success() && !complains, "{program}: {said}");
        }
        Err(_) => println!("skipped: {program} on {}: not installed", path.display()),
    }
}

fn everybody_accepts(path: &Path) {
    accepts("capinfos", &["-c"], path);
    accepts("tcpdump", &["-nqr"], path);
    accepts("tshark", &["-nr"], path);
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn every_source_brings_every_frame_into_the_file() {
    root_or_skip!("every_source_brings_every_frame_into_the_file");
    for source in ["packet", "xdp --take-over", "tee"] {
        let cable = Cable::lay();
        let folder = folder();
        let path = folder.path().join("all.pcapng");
        let file = path.display();
        let capture =
            cable.capture(&format!("--source {source} -w {file} --json -B 16384 udp port 5000"));
        cable.send(5000, 64);
        let (status, json, said) = capture.interrupt();
        assert!(status.success(), "{source}: {said}");
        assert_eq!(numbers(&path), (0..5000).collect::<Vec<_>>(), "{source}: {said}");
        everybody_accepts(&path);
        assert_eq!(json["captured"], 5000, "{json}");
        assert_eq!(json["received"], 5000, "{json}");
        assert_eq!(json["dropped"]["total"], 0, "{json}");
        assert_eq!(json["written"], 5000, "{json}");
        assert_eq!(json["filter"]["in"], "kernel", "{json}");
        assert!(source.starts_with(json["source"].as_str().unwrap()), "{json}");
        for key in ["pages", "seconds", "files", "bytes", "interfaces", "cpu"] {
            assert!(!json[key].is_null(), "{key} in {json}");
        }
        assert!(said.contains("5000 packets captured"), "{said}");
        assert!(!cable.veth().b.has_xdp().unwrap(), "{source} left its program behind");
        let statistics = statistics(&path);
        assert_eq!(statistics.filter_accepted, Some(5000));
        assert_eq!(statistics.delivered, Some(5000));
    }
}

fn statistics(path: &Path) -> linerate_capture::read::Statistics {
    let mut reader = Reader::open(path).unwrap();
    while reader.next().unwrap().is_some() {}
    reader.interfaces()[0].statistics.clone().unwrap()
}

#[test]
fn a_filter_in_user_space_gives_the_same() {
    root_or_skip!("a_filter_in_user_space_gives_the_same");
    let cable = Cable::lay();
    let folder = folder();
    for source in ["packet", "tee"] {
        let path = folder.path().join(source);
        let file = path.display();
        let options = format!("--source {source} -w {file} --json --filter-in user");
        let capture = cable.capture(&format!("{options} udp and udp[8:4] < 10"));
        cable.send(100, 64);
        let (_, json, said) = capture.interrupt();
        assert_eq!(numbers(&path), (0..10).collect::<Vec<_>>(), "{said}");
        assert_eq!((&json["filter"]["in"], &json["received"]), (&"user".into(), &10.into()));
    }
}

#[test]
fn rotation_loses_nothing() {
    root_or_skip!("rotation_loses_nothing");
    let cable = Cable::lay();
    let folder = folder();
    let stem = folder.path().join("ring.pcap");
    let capture = cable.capture(&format!("-w {} -C 100k --json udp", stem.display()));
    cable.send(5000, 100);
    let (status, json, said) = capture.interrupt();
    assert!(status.success(), "{said}");
    let files = json["files"].as_u64().unwrap();
    assert!(files > 5, "{json}");
    let mut all = numbers(&stem);
    for number in 1..files {
        let path = folder.path().join(format!("ring.pcap{number}"));
        accepts("tcpdump", &["-nqr"], &path);
        all.extend(numbers(&path));
    }
    assert_eq!(all, (0..5000).collect::<Vec<_>>());
}

#[test]
fn compressed_files_read_back() {
    root_or_skip!("compressed_files_read_back");
    let cable = Cable::lay();
    let folder = folder();
    for extension in ["zst", "lz4"] {
        let path = folder.path().join(format!("x.pcapng.{extension}"));
        let capture = cable.capture(&format!("-w {} udp", path.display()));
        cable.send(1000, 400);
        capture.interrupt();
        assert_eq!(numbers(&path), (0..1000).collect::<Vec<_>>(), "{extension}");
        assert!(std::fs::metadata(&path).unwrap().len() < 200_000, "{extension}");
    }
}

/// A file system of its own size, for as long as this lives.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(options: &str) -> Self {
        let folder = folder();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), folder.path(), Some("tmpfs"), flags, Some(options))
            .unwrap();
        Self(folder)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = nix::mount::umount(self.0.path());
    }
}

#[test]
fn a_full_disk_leaves_a_valid_file_and_counts_the_rest() {
    root_or_skip!("a_full_disk_leaves_a_valid_file_and_counts_the_rest");
    let cable = Cable::lay();
    let disk = Small::mount("size=512k");
    let path = disk.0.path().join("full.pcapng");
    let capture = cable.capture(&format!("-w {} --json udp", path.display()));
    cable.send(3000, 1000);
    // It ends by itself once it notices.
    let (status, out, said) = capture.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("No space left") && said.contains("full.pcapng"), "{said}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let kept = numbers(&path);
    assert_eq!(kept, (0..kept.len() as u32).collect::<Vec<_>>());
    assert!(!kept.is_empty());
    assert_eq!(json["written"], kept.len(), "{json}");
    assert_eq!(json["captured"], kept.len(), "{json}");
    assert!(json["dropped"]["disk"].as_u64().unwrap() > 0, "{json}");
    everybody_accepts(&path);
}

#[test]
fn an_interface_that_disappears_ends_the_capture_with_everything_in_the_file() {
    root_or_skip!("an_interface_that_disappears_ends_the_capture_with_everything_in_the_file");
    for source in ["packet", "xdp --take-over"] {
        let mut cable = Cable::lay();
        let folder = folder();
        let path = folder.path().join("gone.pcapng");
        let file = path.display();
        let capture = cable.capture(&format!("--source {source} -w {file} -B 16384 udp"));
        cable.send(500, 64);
        std::thread::sleep(Duration::from_millis(200));
        cable.veth.take().unwrap().delete().unwrap();
        let (status, _, said) = capture.wait();
        assert_eq!(status.code(), Some(1), "{source}: {said}");
        assert!(said.contains("gone"), "{source}: {said}");
        assert_eq!(numbers(&path), (0..500).collect::<Vec<_>>(), "{source}: {said}");
        everybody_accepts(&path);
    }
}

#[test]
fn an_interface_that_goes_down_is_waited_for() {
    root_or_skip!("an_interface_that_goes_down_is_waited_for");
    let cable = Cable::lay();
    let folder = folder();
    let path = folder.path().join("down.pcapng");
    let mut capture = cable.capture(&format!("--source packet -w {} udp", path.display()));
    cable.send(10, 64);
    cable.veth().b.down().unwrap();
    capture.until("went down");
    cable.veth().b.up().unwrap();
    // The near end forgets its neighbour when the carrier goes.
    let neighbour = cable.veth().b.mac();
    cable.veth().a.add_neighbour("10.9.0.2".parse().unwrap(), neighbour).unwrap();
    cable.send(10, 64);
    capture.until("up again");
    let (status, _, said) = capture.interrupt();
    assert!(status.success(), "{said}");
    assert_eq!(numbers(&path).len(), 20, "{said}");
}

#[test]
fn signals_print_the_counts_and_flush_the_file() {
    root_or_skip!("signals_print_the_counts_and_flush_the_file");
    let cable = Cable::lay();
    let folder = folder();
    let path = folder.path().join("usr.pcapng");
    let mut capture = cable.capture(&format!("-w {} udp", path.display()));
    cable.send(50, 64);
    std::thread::sleep(Duration::from_millis(300));
    capture.signal(Signal::SIGUSR1);
    capture.until("50 packets captured");
    capture.until("0 packets dropped by kernel");
    capture.signal(Signal::SIGUSR2);
    let deadline = Instant::now() + Duration::from_secs(5);
    while numbers(&path).len() < 50 {
        assert!(Instant::now() < deadline, "{} of 50 packets", numbers(&path).len());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(capture.interrupt().0.success());
}

#[test]
fn nothing_stays_attached_after_a_kill() {
    root_or_skip!("nothing_stays_attached_after_a_kill");
    for source in ["xdp --take-over", "tee"] {
        let cable = Cable::lay();
        let capture = cable.capture(&format!("--source {source} --discard -B 8192"));
        assert!(cable.veth().b.has_xdp().unwrap(), "{source}");
        capture.signal(Signal::SIGKILL);
        capture.wait();
        let deadline = Instant::now() + Duration::from_secs(5);
        while cable.veth().b.has_xdp().unwrap() {
            assert!(Instant::now() < deadline, "{source} is still attached");
            std::thread::sleep(Duration::from_millis(20));
        }
        let again = cable.capture(&format!("--source {source} --discard -B 8192"));
        assert!(again.interrupt().0.success());
    }
}

#[test]
fn a_pipe_feeds_another_program_and_may_be_closed() {
    root_or_skip!("a_pipe_feeds_another_program_and_may_be_closed");
    let cable = Cable::lay();
    let mut capture = cable.capture("-w - -U udp");
    let stdout = capture.child.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut reader = Reader::from_stream("pipe", Box::new(stdout)).unwrap();
        for _ in 0..20 {
            assert!(reader.next().unwrap().is_some());
        }
    });
    cable.send(20, 64);
    reading.join().unwrap();
    // The pipe is closed now: the next packet ends the capture.
    cable.send(20, 64);
    let (status, _, said) = capture.wait();
    assert!(status.success(), "{said}");
}

#[test]
fn limits_end_the_capture() {
    root_or_skip!("limits_end_the_capture");
    let cable = Cable::lay();
    let folder = folder();
    let path = folder.path().join("c.pcap");
    let capture = cable.capture(&format!("-w {} -c 7 udp", path.display()));
    cable.send(100, 64);
    let (status, _, said) = capture.wait();
    assert!(status.success() && said.contains("7 packets captured"), "{said}");
    assert_eq!(numbers(&path), (0..7).collect::<Vec<_>>());
    let output = cable.run("-i far -a duration:0.2 --discard");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn several_readers_share_the_frames() {
    root_or_skip!("several_readers_share_the_frames");
    let cable = Cable::lay();
    let folder = folder();
    let path = folder.path().join("threads.pcapng");
    let options = "--source packet --threads 3 --fanout lb --json";
    let capture = cable.capture(&format!("-w {} {options} udp", path.display()));
    cable.send(3000, 64);
    let (status, json, said) = capture.interrupt();
    assert!(status.success(), "{said}");
    let mut all = numbers(&path);
    all.sort_unstable();
    assert_eq!(all, (0..3000).collect::<Vec<_>>());
    assert_eq!(json["interfaces"][0]["readers"], 3);
    everybody_accepts(&path);
}

#[test]
fn captures_at_the_same_time_do_not_disturb_each_other() {
    root_or_skip!("captures_at_the_same_time_do_not_disturb_each_other");
    let cable = Cable::lay();
    let folder = folder();
    let start = |(number, source): (usize, &&str)| {
        let path = folder.path().join(format!("{number}.pcapng"));
        let file = path.display();
        let capture = cable.capture(&format!(
            "--source {source} -w {file} -B 16384 udp[8:4] % 2 = {}",
            number % 2
        ));
        (capture, path)
    };
    let running: Vec<_> =
        ["tee", "tee", "packet", "packet"].iter().enumerate().map(start).collect();
    cable.send(1000, 64);
    for (number, (capture, path)) in running.into_iter().enumerate() {
        let (status, _, said) = capture.interrupt();
        assert!(status.success(), "{said}");
        let expected: Vec<u32> = (0..1000).filter(|n| n % 2 == number as u32 % 2).collect();
        assert_eq!(numbers(&path), expected, "capture {number}: {said}");
    }
}

#[test]
fn several_interfaces_share_a_file() {
    root_or_skip!("several_interfaces_share_a_file");
    let cable = Cable::lay();
    let folder = folder();
    let path = folder.path().join("two.pcapng");
    cable.far.interface("lo").unwrap().up().unwrap();
    let capture = cable.capture(&format!("-i lo -w {} --json udp", path.display()));
    cable.send(30, 64);
    let to_self = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..20 {
            socket.send_to(&[0; 64], "127.0.0.1:5000").unwrap();
        }
    };
    cable.far.run(to_self).unwrap();
    let (status, json, said) = capture.interrupt();
    assert!(status.success(), "{said}");
    let mut reader = Reader::open(&path).unwrap();
    let mut counts = [0, 0];
    while let Some(record) = reader.next().unwrap() {
        counts[record.interface as usize] += 1;
    }
    assert_eq!(counts, [30, 20], "{said}");
    let names: Vec<_> = reader.interfaces().iter().map(|one| one.name.clone().unwrap()).collect();
    assert_eq!(names, ["far", "lo"]);
    assert_eq!(json["interfaces"][1]["captured"], 20, "{json}");
    everybody_accepts(&path);
}

#[test]
fn another_user_owns_the_file() {
    root_or_skip!("another_user_owns_the_file");
    use std::os::unix::fs::{MetadataExt, chown};
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let cable = Cable::lay();
    let folder = folder();
    chown(folder.path(), Some(nobody.uid.as_raw()), None).unwrap();
    for source in ["packet", "tee"] {
        let path = folder.path().join(source);
        let file = path.display();
        let options = format!("--source {source} -Z nobody -C 50k -w {file} -B 16384 udp");
        let capture = cable.capture(&options);
        cable.send(1000, 64);
        let (status, _, said) = capture.interrupt();
        assert!(status.success() && said.contains("1000 packets captured"), "{source}: {said}");
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), nobody.uid.as_raw());
    }
}

#[test]
fn lines_are_printed_without_a_file() {
    root_or_skip!("lines_are_printed_without_a_file");
    let cable = Cable::lay();
    let capture = cable.capture("-c 3 udp");
    cable.send(10, 64);
    let (status, out, said) = capture.wait();
    assert!(status.success(), "{said}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].contains("IP 10.9.0.1.4000 > 10.9.0.2.5000: UDP, length 64"), "{out}");
}

#[test]
fn trouble_is_named_with_its_remedy() {
    root_or_skip!("trouble_is_named_with_its_remedy");
    let cable = Cable::lay();
    let cases = [
        ("-i nosuch --discard", vec!["nosuch", "far", "lo"]),
        ("-i far --discard --source xdp", vec!["--take-over", "10.9.0.2"]),
        ("-i far --discard --source tee -Q out", vec!["-Q in"]),
        ("-i far --discard udp prot 5", vec!["syntax error", "udp prot 5"]),
        ("-i far -w /nonexistent/x.pcap", vec!["/nonexistent/x.pcap", "folder"]),
        ("-i far --discard -Z nobody-there", vec!["nobody-there"]),
    ];
    for (arguments, words) in cases {
        let output = cable.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        for word in words {
            assert!(said.contains(word), "{arguments}: no {word:?} in {said}");
        }
    }
}

#[test]
fn reading_through_a_filter_equals_tcpdump() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    for filter in ["udp", "ip[8] = 3", "not udp"] {
        let (ours, theirs) = (folder.path().join("ours.pcap"), folder.path().join("theirs.pcap"));
        let run = |program: &str, first: &[&str], out: &Path| {
            let mut command = std::process::Command::new(program);
            command.args(first).arg("-r").arg(&input).arg("-w").arg(out).arg(filter).output()
        };
        let Ok(output) = run("tcpdump", &[], &theirs) else {
            println!("skipped: reading_through_a_filter_equals_tcpdump: no tcpdump");
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let output = run(LINERATE, &["capture"], &ours).unwrap();
        assert!(output.status.success(), "{output:?}");
        let (ours, theirs) = (std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
        assert!(ours.len() > 24, "{filter} takes something");
        assert_eq!(ours, theirs, "{filter}");
    }
}

#[test]
fn a_damaged_file_gives_what_it_has_and_status_1() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcapng"));
    write_mixed(&input);
    let length = std::fs::metadata(&input).unwrap().len();
    std::fs::File::options().write(true).open(&input).unwrap().set_len(length - 3).unwrap();
    let mut command = std::process::Command::new(LINERATE);
    let run = command.args(["capture", "--json", "-r"]).arg(&input).arg("-w").arg(&output);
    let ended = run.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("cut off") && said.contains("at byte"), "{said}");
    let json: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(json["captured"], 99, "{json}");
    let mut reader = Reader::open(&output).unwrap();
    let mut packets = 0;
    while reader.next().unwrap().is_some() {
        packets += 1;
    }
    assert_eq!(packets, 99);
}

#[test]
fn a_pcap_file_takes_one_link_type_only() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcap"));
    std::fs::write(&input, two_link_types()).unwrap();
    let read_into = |output: &Path| {
        let mut command = std::process::Command::new(LINERATE);
        command.args(["capture", "-r"]).arg(&input).arg("-w").arg(output).output().unwrap()
    };
    let refused = read_into(&output);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("link layers") && said.contains("pcapng"), "{said}");
    let output = folder.path().join("out.pcapng");
    let done = read_into(&output);
    assert!(done.status.success(), "{done:?}");
    let reader = Reader::open(&output).unwrap();
    let types: Vec<_> = reader.interfaces().iter().map(|one| one.linktype).collect();
    assert_eq!(types, [1, 101]);
}

/// A packet of an Ethernet interface and one of an interface of bare IP packets, and a block of names
/// before the interfaces.
fn two_link_types() -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        file.extend([&kind.to_le_bytes(), &length, body, &length].concat());
    };
    let section = [0x1a2b_3c4d_u32.to_le_bytes(), [1, 0, 0, 0], [0xff; 4], [0xff; 4]];
    block(0x0a0d_0d0a, &section.concat());
    block(4, &[0; 4]);
    for link_type in [1, 101] {
        block(1, &[link_type, 0, 0, 0, 0, 0, 4, 0]);
    }
    for interface in [0, 1] {
        let mut body = vec![0; 20 + 28];
        body[0] = interface;
        (body[12], body[16]) = (28, 28);
        block(6, &body);
    }
    file
}

#[test]
fn a_file_is_not_emptied_before_it_is_read() {
    let folder = folder();
    let path = folder.path().join("in.pcap");
    write_mixed(&path);
    let before = std::fs::read(&path).unwrap();
    let mut command = std::process::Command::new(LINERATE);
    let output = command.args(["capture", "-r"]).arg(&path).arg("-w").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn lines_that_cannot_be_written_are_a_failure() {
    let folder = folder();
    let path = folder.path().join("in.pcap");
    write_mixed(&path);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(LINERATE);
    let output = command.args(["capture", "-r"]).arg(&path).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    for arguments in [&["completion", "bash"][..], &["capture", "-D"], &["lab", "list"]] {
        let mut command = std::process::Command::new(LINERATE);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_capture_under_nohup_outlives_its_terminal() {
    root_or_skip!("a_capture_under_nohup_outlives_its_terminal");
    let cable = Cable::lay();
    let folder = folder();
    let path = folder.path().join("nohup.pcapng");
    let mut command = cable.far.command("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", LINERATE, "capture", "-i", "far", "-w"]);
    command.arg(&path).arg("udp").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("listening on") {
        assert_ne!(errors.read_line(&mut said).unwrap(), 0, "it ended at once: {said}");
    }
    // What the terminal does when it goes: a hangup, and nobody who reads standard error.
    drop(errors);
    let id = Pid::from_raw(child.id() as i32);
    kill(id, Signal::SIGHUP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill(id, Signal::SIGUSR1).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    cable.send(20, 64);
    kill(id, Signal::SIGINT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(numbers(&path), (0..20).collect::<Vec<_>>());
}

/// A hundred IPv4 packets, every other one UDP, of several lengths and TTLs.
fn write_mixed(path: &Path) {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(262_144_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for number in 0..100_u32 {
        let length = 42 + number % 30;
        let mut frame = vec![0; length as usize];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[22] = (number % 5) as u8;
        frame[23] = if number % 2 == 0 { 17 } else { 6 };
        for field in [number, number * 7, length, length] {
            file.extend(field.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}
