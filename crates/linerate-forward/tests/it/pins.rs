//! What an instance leaves in bpffs: it goes on forwarding when its daemon is killed, fails open after a time,
//! is adopted, upgraded under traffic, and detached without a trace.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::writer::stored;
use libbpf_rs::{MapCore, MapFlags};
use linerate_forward::Error;
use linerate_forward::reason::Reason;
use linerate_forward::runtime::heartbeat::{self, Heartbeat};
use linerate_forward::runtime::pins::{InstanceState, Namespace, Pins};
use linerate_forward::runtime::program::{
    Options, PortOptions, PortPrograms, Programs, XDP_ONLY, enable_egress,
};
use linerate_forward::snapshot::State;
use linerate_forward::table::Table;
use linerate_forward::table::clock::Clock;
use linerate_forward::table::control::Control;
use linerate_forward::table::layout::flags;
use linerate_forward::table::session::Session;
use linerate_testkit::lab::{LEFT, Lab, RIGHT, WAN, at};
use linerate_testkit::tools::run;
use linerate_testkit::{Process, only_this_test, root_or_skip, uninterrupted, wait_for};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

/// The directory of the BPF file system, for the child that plays the daemon.
const CHILD: &str = "LINERATE_PINS_CHILD";
/// Long enough to be on the fast path for a while, also where others have the CPUs.
const BOUND: Duration = Duration::from_secs(8);
/// No session of a test is to be learned again by time alone.
const LONG: Duration = Duration::from_secs(3600);

/// A separate BPF file system, unmounted on drop.
const NOTHING: [&str; 0] = [];

struct Bpffs(tempfile::TempDir);

impl Bpffs {
    fn mount() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, none) = (directory.path(), None::<&str>);
        mount(Some("bpf"), path, Some("bpf"), MsFlags::empty(), none).expect("mounted");
        Self(directory)
    }

    fn pins(&self) -> Pins {
        Pins::in_bpffs(self.0.path(), "test")
    }

    /// What is in it, but for what the kernel puts into each.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("listed");
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // The kernel's own, and the folders that iproute2 makes in whichever BPF file system it finds.
        let is_others =
            |name: &str| name.ends_with(".debug") || ["ip", "tc", "xdp"].contains(&name);
        names.filter(|name| !is_others(name)).collect()
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

fn options() -> Options {
    Options { max_sessions: 4096, ..Options::default() }
}

/// Where everybody may write to the BPF file system, another user makes the instance's directory first.
#[test]
fn a_directory_of_another_user_is_refused_and_left_alone() {
    root_or_skip!("a_directory_of_another_user_is_refused_and_left_alone");
    let bpffs = Bpffs::mount();
    let at = bpffs.0.path();
    fs::set_permissions(at, fs::Permissions::from_mode(0o1777)).unwrap();
    let top = at.join("linerate");
    let directory = bpffs.pins().directory().to_owned();
    let refusal = |named: &Path| match bpffs.pins().lock() {
        Err(Error::Pin { path, reason }) => {
            assert_eq!(path, named, "{reason}");
            reason
        }
        other => panic!("{other:?}"),
    };

    fs::create_dir_all(&directory).unwrap();
    for theirs in [&directory, &top] {
        chown(theirs, Some(65534), None).unwrap();
        let reason = refusal(theirs);
        assert!(reason.contains("user 65534") && reason.contains("mode=700"), "{reason}");
        assert_eq!(fs::metadata(theirs).unwrap().uid(), 65534);
        chown(theirs, Some(0), None).unwrap();
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refusal(&directory).contains("mode 777"));
    fs::remove_dir_all(&top).unwrap();
    let lock = bpffs.pins().lock().expect("locked");
    for ours in directory.ancestors().take(3) {
        assert_eq!(fs::metadata(ours).unwrap().mode() & 0o7777, 0o700, "{}", ours.display());
    }
    // One that somebody has opened is closed again: who can read it could lock it.
    for ours in directory.ancestors().take(3) {
        fs::set_permissions(ours, fs::Permissions::from_mode(0o755)).unwrap();
    }
    drop(lock);
    let lock = bpffs.pins().lock().expect("locked");
    for ours in directory.ancestors().take(3) {
        assert_eq!(fs::metadata(ours).unwrap().mode() & 0o7777, 0o750, "{}", ours.display());
    }
    // A command that only reads believes others no more than a daemon does.
    let state = InstanceState::new(&options(), Namespace::current().unwrap());
    bpffs.pins().save_state(&lock, &state).unwrap();
    assert_eq!(bpffs.pins().state().unwrap(), state);
    chown(&top, Some(65534), None).unwrap();
    let error = bpffs.pins().state().unwrap_err().to_string();
    assert!(error.contains("user 65534"), "{error}");
    drop(lock);
}

/// Loads, attaches to `ports` and pins, in the namespace of the thread.
fn start(
    pins: &Pins,
    ports: &[PortOptions],
) -> (linerate_forward::runtime::pins::Lock, Programs, InstanceState) {
    let lock = pins.lock().unwrap_or_else(|error| panic!("{error}"));
    let programs = Programs::load(&options()).expect("loaded");
    let mut state = InstanceState::new(&options(), Namespace::current().expect("/proc"));
    pins.create_and_set_sysctls(&lock, &programs, &mut state)
        .unwrap_or_else(|error| panic!("{error}"));
    for options in ports {
        let mut port = PortPrograms::attach(&programs, options).expect("attached");
        enable_egress(&programs, options).expect("opened");
        pins.add_port(&lock, &mut state, options, &mut port)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    (lock, programs, state)
}

fn ports(lab: &Lab) -> Vec<PortOptions> {
    let ends = lab.ports().into_iter().zip(0..);
    let port = |(end, port): (&linerate_testkit::Interface, u32)| PortOptions {
        name: end.name().to_owned(),
        ifindex: end.index(),
        mac: end.mac().0,
        port,
        attach: None,
        flags: XDP_ONLY,
    };
    ends.map(port).collect()
}

/// As the kernel loads conntrack with the first rule that needs it.
#[test]
fn conntrack_that_comes_later_is_followed() {
    root_or_skip!();
    let (lab, bpffs) = (Lab::new("pinlate"), Bpffs::mount());
    let inside = || {
        assert_eq!(liberal(), "0");
        let pins = bpffs.pins();
        let lock = pins.lock().unwrap();
        let programs = Programs::load(&options()).unwrap();
        let mut state = InstanceState::new(&options(), Namespace::current().unwrap());
        // It was not there then.
        pins.create(&lock, &programs, &state).unwrap();
        for _ in 0..2 {
            pins.follow_sysctls(&lock, &mut state).unwrap();
            assert_eq!(liberal(), "1");
            assert_eq!(pins.state().unwrap().windows.liberal, Some(0));
        }
        pins.detach(lock).unwrap();
        assert_eq!(liberal(), "0");
    };
    lab.router.run(inside).unwrap();
}

/// The daemon: pins everything, beats, and is killed.
fn play_daemon(bpffs: &str) {
    let pins = Pins::in_bpffs(Path::new(bpffs), "test");
    let port = |word: &str| {
        let parts: Vec<_> = word.split('/').collect();
        let mac: Vec<u8> =
            parts[2].split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        PortOptions {
            name: parts[0].to_owned(),
            ifindex: parts[1].parse().unwrap(),
            mac: mac.try_into().unwrap(),
            port: parts[3].parse().unwrap(),
            attach: None,
            flags: XDP_ONLY,
        }
    };
    let words = std::env::var("LINERATE_PINS_PORTS").unwrap();
    let ports: Vec<_> = words.split(' ').map(port).collect();
    let (_lock, programs, _) = start(&pins, &ports);
    let control = Control::open(&programs.maps).unwrap();
    let clock = Clock::from_boot_time();
    control.set_revalidate_after(LONG, &clock);
    let mut heart = Heartbeat::new(&control, BOUND, &clock);
    heart.beat(&programs, &control).unwrap();
    println!("ready");
    loop {
        std::thread::sleep(heart.period());
        heart.beat(&programs, &control).unwrap();
    }
}

/// A conversation in one direction, of which every packet is looked for.
struct Stream {
    from: UdpSocket,
    to: UdpSocket,
    sent: u64,
}

impl Stream {
    fn new(lab: &Lab) -> Self {
        let from = Lab::udp(&lab.left, LEFT[0], 5000);
        Self { from, to: Lab::udp(&lab.right, RIGHT[0], 6000), sent: 0 }
    }

    #[track_caller]
    fn send(&mut self, packets: u64) {
        let mut buffer = [0; 64];
        for _ in 0..packets {
            self.from.send_to(&self.sent.to_ne_bytes(), at(RIGHT[0], 6000)).expect("sent");
            let (length, _) =
                uninterrupted(|| self.to.recv_from(&mut buffer)).expect("every packet arrives");
            assert_eq!(buffer[..length], self.sent.to_ne_bytes(), "in order, and once");
            self.sent += 1;
        }
    }

    #[track_caller]
    fn session(&self, table: &Table) -> Session {
        let mut decoder = table.decoder(Clock::from_boot_time());
        let mut sessions = table.sessions(&mut decoder);
        let found = sessions.find(|session| session.tuple.destination == at(RIGHT[0], 6000));
        found.expect("a session")
    }
}

fn counted(programs: &linerate_forward::maps::Maps, reason: Reason) -> u64 {
    let map = programs.get("reasons").unwrap();
    let values = map.lookup_percpu(&(reason as u32).to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    values.iter().map(|value| u64::from_ne_bytes(value[..8].try_into().unwrap())).sum()
}

/// Packets of sessions, or of what could be one, that XDP left to the kernel. Whichever CPU forwards, this
/// stands still while the fast path does.
fn left_to_kernel(maps: &linerate_forward::maps::Maps) -> u64 {
    let reasons = [
        Reason::Unknown,
        Reason::Stale,
        Reason::Ended,
        Reason::Revalidate,
        Reason::Busy,
        Reason::NoPort,
        Reason::NoDaemon,
    ];
    reasons.into_iter().map(|reason| counted(maps, reason)).sum()
}

fn liberal() -> String {
    let path = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
    fs::read_to_string(path).expect("conntrack").trim().to_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one life of an instance, step by step")]
fn an_instance_outlives_its_daemon_and_is_adopted_upgraded_and_detached() {
    if let Ok(bpffs) = std::env::var(CHILD) {
        return play_daemon(&bpffs);
    }
    root_or_skip!();
    let (lab, bpffs) = (Lab::new("pin"), Bpffs::mount());
    lab.masquerade();
    // A session is learned again before half of its connection's time is over.
    for (key, value) in [("udp_timeout", "3600"), ("udp_timeout_stream", "3600"), ("events", "1")] {
        lab.router.sysctl(&format!("net.netfilter.nf_conntrack_{key}"), value).expect("set");
    }
    let words: Vec<_> = ports(&lab)
        .iter()
        .map(|port| {
            let mac: Vec<_> = port.mac.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}/{}/{}/{}", port.name, port.ifindex, mac.join(":"), port.port)
        })
        .collect();
    let mut command = lab.router.command_killed_with_parent(std::env::current_exe().unwrap());
    command.args(only_this_test!()).env(CHILD, bpffs.0.path());
    let mut daemon = Process::start(command.env("LINERATE_PINS_PORTS", words.join(" ")));
    daemon.until("ready");

    let pins = bpffs.pins();
    let maps = pins.maps().unwrap_or_else(|error| panic!("{error}"));
    let (table, control) = (Table::open(&maps).unwrap(), Control::open(&maps).unwrap());
    let clock = Clock::from_boot_time();
    // Translation wants to have seen an answer before it is learned from.
    let mut stream = Stream::new(&lab);
    stream.send(1);
    stream.to.send_to(b"answer", at(WAN[0], 5000)).unwrap();
    let mut answer = [0; 16];
    uninterrupted(|| stream.from.recv_from(&mut answer)).expect("translated back");
    // Once a second it goes through the kernel, until conntrack does not drop the connection early any more.
    wait_for("the connection is ASSURED", || {
        stream.send(20);
        std::thread::sleep(Duration::from_millis(20));
        stored(&maps, &stream.session(&table)).1.flags & flags::UNREPORTED == 0
    });
    let (before, left) = (stream.session(&table), left_to_kernel(&maps));
    stream.send(20);
    assert_eq!(left_to_kernel(&maps), left, "the fast path took over");
    match pins.lock() {
        Err(Error::Running { instance, process, .. }) => {
            assert_eq!((&*instance, process), ("test", daemon.id()));
        }
        other => panic!("{other:?}"),
    }

    // Nobody beats any more: within the bound it forwards, beyond it the kernel does, and no packet is lost.
    daemon.end(Signal::SIGKILL);
    let killed = Instant::now();
    // As many as there is time for. The estimate of the clock may be off by less than a second.
    let mut sent = 0;
    while sent < 50 {
        stream.send(1);
        let now = left_to_kernel(&maps);
        if heartbeat::age_and_timeout(&control, &clock).0 + Duration::from_secs(1) > BOUND {
            break;
        }
        assert_eq!(now, left, "on the fast path");
        sent += 1;
    }
    assert!(sent > 0, "the machine is too slow for this test");
    while heartbeat::state(&control, &clock) != State::FailOpen {
        stream.send(1);
        std::thread::sleep(Duration::from_millis(5));
        assert!(killed.elapsed() < 5 * BOUND, "it does not hand back");
    }
    // The estimate of the clock may be ahead of the programs' by less than a second.
    std::thread::sleep(Duration::from_secs(1));
    let silent = counted(&maps, Reason::NoDaemon);
    stream.send(20);
    assert_eq!(counted(&maps, Reason::NoDaemon), silent + 20);
    let now = stream.session(&table);
    assert_eq!(now.packets, stream.sent, "whoever forwards, each packet is counted once");

    // The next daemon. Sessions from the time without a daemon are stale.
    let adopt = || {
        let lock = pins.lock().unwrap_or_else(|error| panic!("{error}"));
        let pinned = pins.open(&lock).unwrap_or_else(|error| panic!("{error}"));
        (lock, pinned)
    };
    let (lock, mut pinned) = lab.router.run(adopt).unwrap();
    assert_eq!((pinned.ports.len(), pinned.gone.len()), (2, 0));
    assert!(pinned.state.is_this_build());
    assert_eq!(pinned.state.check_compatible(&options()), Ok(()));
    let generation = control.generation();
    let mut heart = Heartbeat::new(&control, Duration::from_secs(60), &clock);
    heart.beat(&pinned.programs, &control).unwrap();
    assert_eq!(control.generation(), generation + 1);
    stream.send(20);
    let (adopted, left) = (stream.session(&table), left_to_kernel(&maps));
    stream.send(20);
    assert_eq!(left_to_kernel(&maps), left, "fast again");
    assert_eq!(adopted.created, before.created, "the same session");
    assert!(adopted.revalidations > before.revalidations);
    assert_eq!(adopted.packets, stream.sent - 20);

    // Other programs, the same sessions.
    let old = programs_on(&lab);
    let lost = lab.router.run(|| pins.upgrade(&lock, &mut pinned, &options()).unwrap()).unwrap();
    assert_eq!(lost, None);
    assert!(programs_on(&lab).iter().all(|id| !old.contains(id)), "all were replaced");
    stream.send(20);
    let upgraded = stream.session(&table);
    assert_eq!(left_to_kernel(&maps), left, "not one went elsewhere");
    assert_eq!(upgraded.revalidations, adopted.revalidations);
    assert_eq!(upgraded.packets, stream.sent);

    // With another size the sessions are lost, which is logged, but no packet is.
    let larger = Options { max_sessions: 8192, ..options() };
    let lost = lab.router.run(|| pins.upgrade(&lock, &mut pinned, &larger).unwrap()).unwrap();
    assert_eq!(lost.as_deref(), Some("max-sessions is 8192 now and was 4096"));
    let maps = pins.maps().unwrap();
    let (table, control) = (Table::open(&maps).unwrap(), Control::open(&maps).unwrap());
    assert_eq!((table.capacity(), table.count()), (8192, 0));
    control.set_revalidate_after(LONG, &clock);
    let mut heart = Heartbeat::new(&control, Duration::from_secs(60), &clock);
    heart.beat(&pinned.programs, &control).unwrap();
    stream.send(20);
    let left = left_to_kernel(&maps);
    stream.send(20);
    assert_eq!(left_to_kernel(&maps), left, "learned anew");
    assert_eq!(pins.state().unwrap().max_sessions, 8192);

    // And nothing stays.
    assert_eq!(lab.router.run(liberal).unwrap(), "1");
    drop(pinned);
    lab.router.run(|| pins.detach(lock).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    assert_eq!(bpffs.left(), NOTHING);
    assert!(programs_on(&lab).is_empty() && !pins.exists());
    assert_eq!(lab.router.run(liberal).unwrap(), "0");
    stream.send(20);
}

#[test]
fn the_last_instance_of_a_namespace_restores_what_the_first_has_found() {
    root_or_skip!();
    let (lab, bpffs) = (Lab::new("two"), Bpffs::mount());
    lab.masquerade();
    assert_eq!(lab.router.run(liberal).unwrap(), "0");
    let start = |name: &'static str| {
        let pins = Pins::in_bpffs(bpffs.0.path(), name);
        let (lock, ..) = lab.router.run(|| start(&pins, &[])).unwrap();
        (pins, lock)
    };
    let detach = |(pins, lock): (Pins, _)| {
        lab.router.run(|| pins.detach(lock).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    };
    let (first, second) = (start("first"), start("second"));
    detach(first);
    assert_eq!(lab.router.run(liberal).unwrap(), "1", "the second relies on it");
    let third = start("third");
    detach(second);
    assert_eq!(lab.router.run(liberal).unwrap(), "1", "the third relies on it");
    detach(third);
    assert_eq!(lab.router.run(liberal).unwrap(), "0");
    assert_eq!(bpffs.left(), NOTHING);
}

/// The one that cannot be read may rely on the setting.
#[test]
fn settings_stay_while_the_record_of_another_instance_cannot_be_read() {
    root_or_skip!();
    let (lab, bpffs) = (Lab::new("unread"), Bpffs::mount());
    lab.masquerade();
    let start = |name: &'static str| {
        let pins = Pins::in_bpffs(bpffs.0.path(), name);
        let (lock, ..) = lab.router.run(|| start(&pins, &[])).unwrap();
        (pins, lock)
    };
    let ((first, lock), (second, other_lock)) = (start("first"), start("second"));
    // A program in the place of the record.
    let program = first.directory().join("programs/learn");
    fs::rename(program, first.directory().join("state")).unwrap();
    lab.router.run(|| second.detach(other_lock).unwrap()).unwrap();
    assert_eq!(lab.router.run(liberal).unwrap(), "1", "the first may rely on it");
    lab.router.run(|| first.detach(lock).unwrap()).unwrap();
    assert_eq!(lab.router.run(liberal).unwrap(), "1", "nobody knows what it was");
    assert_eq!(bpffs.left(), NOTHING);
}

#[test]
fn a_process_that_has_the_lock_is_named_and_only_that_of_the_record_is_the_daemon() {
    root_or_skip!();
    let (lab, bpffs) = (Lab::new("who"), Bpffs::mount());
    let pins = bpffs.pins();
    let (lock, _programs, mut state) = lab.router.run(|| start(&pins, &[])).unwrap();
    let who = || match pins.lock() {
        Err(Error::Running { process, holder, .. }) => {
            assert_eq!(holder, Some(std::process::id()));
            process
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(who(), std::process::id());
    // As before an adopting daemon has written its own: the number may belong to any process.
    state.process = 1;
    pins.save_state(&lock, &state).unwrap();
    assert_eq!(who(), 0, "a command would tell it to end");
    lab.router.run(|| pins.detach(lock).unwrap_or_else(|error| panic!("{error}"))).unwrap();
}

#[test]
fn an_instance_is_free_until_it_is_locked_and_who_looks_is_in_nobodys_way() {
    root_or_skip!();
    let bpffs = Bpffs::mount();
    let pins = bpffs.pins();
    assert!(!pins.is_free(), "it is not there");
    let lock = pins.lock().unwrap();
    assert!(!pins.is_free());
    drop(lock);
    assert!(pins.is_free() && pins.is_free());
    // Somebody is within `is_free`, and the machine has other things to do.
    let looks = fs::File::open(pins.directory()).unwrap();
    looks.lock_shared().unwrap();
    let goes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(looks);
    });
    drop(pins.lock().unwrap_or_else(|error| panic!("{error}")));
    goes.join().unwrap();
}

/// Ids of the programs on the ports, as the kernel lists them.
fn programs_on(lab: &Lab) -> Vec<u64> {
    let text = run(&lab.router, "bpftool", &["--json", "net"], "");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let kinds = ["xdp", "tc"].into_iter().flat_map(|kind| all[0][kind].as_array().cloned());
    let programs = kinds.flatten().filter_map(|one| one["prog_id"].as_u64().or(one["id"].as_u64()));
    programs.collect()
}

#[test]
fn interfaces_and_namespaces_that_go_leave_nothing() {
    root_or_skip!();
    let (lab, bpffs) = (Lab::new("gone"), Bpffs::mount());
    let pins = bpffs.pins();
    let given = ports(&lab);
    let (lock, programs, mut state) = lab.router.run(|| start(&pins, &given)).unwrap();
    assert_eq!(Pins::instances(bpffs.0.path()).unwrap(), ["test"]);
    let again = lab.router.run(|| pins.create(&lock, &programs, &state)).unwrap();
    assert!(again.unwrap_err().to_string().contains("adopt it or detach it"));
    drop(programs);

    let Lab { router, left, right, lan, wan } = lab;
    lan.delete().unwrap();
    let pinned = router.run(|| pins.open(&lock).unwrap()).unwrap();
    let names = |ports: &[linerate_forward::runtime::pins::PortState]| {
        ports.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!((names(&pinned.gone), pinned.ports.len()), (vec!["lan".to_owned()], 1));
    router.run(|| pins.remove_port(&lock, &mut state, given[0].ifindex).unwrap()).unwrap();
    assert_eq!(names(&pins.state().unwrap().ports), ["wan"]);
    drop(pinned);

    // From elsewhere only when there is nothing left to restore.
    let Err(error) = pins.detach(lock) else { panic!("it is of another namespace") };
    assert!(error.to_string().contains("detach it there"), "{error}");
    let lock = pins.lock().unwrap();
    drop((wan, router, left, right));
    let end = Instant::now() + Duration::from_secs(10);
    let mut lock = Some(lock);
    // The kernel takes interfaces of a namespace away after its last user has gone.
    while let Err(error) = pins.detach(lock.take().unwrap()) {
        assert!(Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(100));
        lock = Some(pins.lock().unwrap());
    }
    assert_eq!(bpffs.left(), NOTHING);
    assert!(pins.state().unwrap_err().to_string().contains("there is no instance test"));
}

#[test]
fn where_nothing_can_be_pinned_is_said() {
    root_or_skip!();
    let directory = tempfile::tempdir().unwrap();
    let error = Pins::in_bpffs(directory.path(), "test").lock().unwrap_err().to_string();
    assert!(error.contains("mount -t bpf -o mode=700 bpf"), "{error}");
    assert_eq!(Pins::instances(directory.path()).unwrap(), [""; 0]);
    let missing = fs::metadata(directory.path().join("linerate")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "and nothing is made");
}
