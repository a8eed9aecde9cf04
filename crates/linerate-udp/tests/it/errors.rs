//! What goes wrong says so, and nothing is lost in silence.

use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::support::{Cable, HERE, Kind, THERE, TIMEOUT, address, back_ends, gather, kinds, soon};
use linerate_testkit::{exclusive, root_or_skip, test_name, uninterrupted};
use linerate_udp::{
    Backend, Drops, Error, Group, Options, Receiver, Reuseport, SendBackend, SendOptions, Sender,
    SenderOptions, Socket,
};
use nix::poll::{PollFd, PollFlags, poll};

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let options = || Options::new(address("127.0.0.1", 0));
    for (options, word) in [
        (Options { batch: 0, ..options() }, "a batch of 0 messages"),
        (Options { batch: (1 << 20) + 1, ..options() }, "a batch of 1048577 messages"),
        (Options { message_size: 0, ..options() }, "messages of 0 bytes"),
        (Options { message_size: 65_508, ..options() }, "messages of 65508 bytes"),
        (Options { ring_size: (1 << 31) + 1, ..options() }, "a ring of 2147483649 bytes"),
    ] {
        let error = Receiver::open(options).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains(word), "{error}");
    }
    for options in [
        SenderOptions { batch: 0, ..SenderOptions::new(address("127.0.0.1", 9)) },
        SenderOptions { message_size: 70_000, ..SenderOptions::new(address("127.0.0.1", 9)) },
        SenderOptions { rate: Some(0.0), ..SenderOptions::new(address("127.0.0.1", 9)) },
        SenderOptions::new(address("0.0.0.0", 9)),
        SenderOptions::new(address("127.0.0.1", 0)),
        SenderOptions {
            from: Some(address("127.0.0.1", 0)),
            ..SenderOptions::new(address("::1", 9))
        },
    ] {
        assert!(matches!(Sender::open(options).unwrap_err(), Error::Invalid(_)));
    }
}

/// Sockets that were opened, or that could not be opened, leave no descriptor.
#[test]
fn no_descriptor_stays_open() {
    let _exclusive = exclusive();
    root_or_skip!();
    let cable = Cable::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for kind in kinds(&cable, test_name!()) {
        let mut counts = Vec::new();
        for round in 0..6 {
            let send = SendOptions {
                backend: match kind.backend {
                    Backend::Uring => SendBackend::Uring,
                    Backend::Xdp => SendBackend::Xdp,
                    _ => SendBackend::Sendmmsg,
                },
                ..SendOptions::default()
            };
            let options = Options {
                interface: Some("rx".into()),
                ring_size: 1 << 20,
                icmp_errors: true,
                send,
                backend: Some(kind.backend),
                delivery: kind.delivery,
                ..Options::new(address(HERE, 7000))
            };
            let socket = cable.socket(&options);
            assert!(cable.here.run(|| Receiver::open(options.clone())).unwrap().is_err());
            if round % 3 == 1 {
                let entered = runtime.enter();
                drop(socket.into_async().unwrap());
                drop(entered);
            } else if round % 3 == 2 {
                drop(socket);
                let build = || {
                    let _entered = runtime.enter();
                    Socket::open_for_quinn(options.clone())
                };
                drop(cable.bind(build).unwrap());
            }
            // The driver of tokio closes what was deregistered.
            runtime.block_on(tokio::task::yield_now());
            counts.push(open());
        }
        assert_eq!(counts[3..], counts[..3], "{kind}");
    }
}

/// Has a system call of this thread, and of no other, answer ENOSYS, as in a sandbox that lacks it.
fn lack(calls: [i64; 2]) {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 1, 0, calls[0] as u32),
        instruction(0x15, 0, 1, calls[1] as u32),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    nix::sys::prctl::set_no_new_privs().unwrap();
    // SAFETY: a program of the length that it says.
    let answer =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_sandbox_without_calls_of_several_messages_does_with_those_of_one() {
    let ends = |backend| {
        lack([libc::SYS_recvmmsg, libc::SYS_sendmmsg]);
        let any = address("127.0.0.1", 0);
        let options = Options { metadata: linerate_udp::Metadata::ALL, ..Options::new(any) };
        let mut socket =
            Socket::open(Options { backend: Some(backend), ..options.clone() }).unwrap();
        let mut other = Socket::open(Options { backend: Some(backend), ..options }).unwrap();
        let all = [1, 2, 3, 4].map(|number| [number; 9]);
        let to = other.receiver.address();
        let transmits = all.each_ref().map(|bytes| linerate_udp::Transmit::new(to, bytes));
        socket.transmitter.send(&transmits).unwrap();
        let mut came = Vec::new();
        let end = Instant::now() + TIMEOUT;
        while came.len() < all.len() && Instant::now() < end {
            let mut batch = other.receiver.receive(Some(end)).unwrap();
            while let Some(message) = batch.next() {
                came.push((message.payload.to_vec(), message.source));
            }
        }
        assert_eq!(came, all.map(|bytes| (bytes.to_vec(), socket.receiver.address())), "{backend}");
    };
    for backend in [Backend::Recvmmsg, Backend::Gro] {
        std::thread::spawn(move || ends(backend)).join().unwrap();
    }
}

/// Options at the ends of their ranges, on every backend: they work or are refused, and end no process.
#[test]
fn odd_options_work_or_are_refused() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let options =
            || Options { interface: Some("rx".into()), ..Options::new(address(HERE, 7000)) };
        let small = || Options { ring_size: 1 << 20, ..options() };
        for (number, options) in [
            Options { batch: 1 << 20, message_size: 65_507, ..small() },
            Options { batch: 1, message_size: 1, ..small() },
            Options { ring_size: 0, ..options() },
            Options { ring_size: 1, ..options() },
            Options { ring_size: usize::MAX, ..options() },
            Options {
                recv_buffer_size: Some(usize::MAX),
                busy_poll: Some(Duration::MAX),
                ..small()
            },
            Options { recv_buffer_size: Some(0), busy_poll: Some(Duration::ZERO), ..small() },
            Options { coalesce: Some(Duration::MAX), ..small() },
            Options { coalesce: Some(Duration::ZERO), spin: true, ..small() },
        ]
        .into_iter()
        .enumerate()
        {
            let options =
                Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
            let Ok(mut socket) = cable.bind(|| Socket::open(options.clone())) else {
                continue;
            };
            let mut sender = cable.send(SenderOptions::new(address(HERE, 7000)));
            sender.message(1).unwrap().fill(7);
            sender.flush().unwrap();
            let Socket { receiver, transmitter } = &mut socket;
            let end = Instant::now() + TIMEOUT;
            loop {
                assert!(Instant::now() < end, "{kind}, {number}: nothing came");
                let mut batch = receiver.receive(soon(Duration::from_millis(20))).unwrap();
                let Some(message) = batch.next() else { continue };
                assert_eq!(message.payload, [7], "{kind}, {number}");
                transmitter.push(&message.reply(message.payload)).unwrap();
                break;
            }
            transmitter.flush().unwrap();
            assert_eq!(transmitter.statistics().messages, 1, "{kind}, {number}");
        }
    }
}

#[test]
fn a_wrong_address_and_a_port_in_use_are_named() {
    let elsewhere = address("203.0.113.7", 7000);
    let error = Receiver::open(Options::new(elsewhere)).unwrap_err();
    assert!(matches!(error, Error::AddressNotAvailable(found) if found == elsewhere), "{error}");

    let here = address("127.0.0.1", 0);
    let recvmmsg = Some(Backend::Recvmmsg);
    let first = Receiver::open(Options { backend: recvmmsg, ..Options::new(here) }).unwrap();
    let taken = first.address();
    let error = Receiver::open(Options { backend: recvmmsg, ..Options::new(taken) }).unwrap_err();
    assert!(matches!(error, Error::AddressInUse(found) if found == taken), "{error}");
    assert!(error.to_string().contains("ss -lunp"));
}

#[test]
fn interfaces_and_groups_that_are_not_there_are_named() {
    let options =
        || Options { backend: Some(Backend::Recvmmsg), ..Options::new(address("0.0.0.0", 0)) };
    let group = Group::any_source("239.1.1.1".parse().unwrap());
    for options in [
        Options { interface: Some("lr-none".into()), ..options() },
        Options { groups: vec![group.clone().on("lr-none")], ..options() },
    ] {
        let error = Receiver::open(options).unwrap_err();
        assert!(
            matches!(&error, Error::NoInterface(missing) if missing.name == "lr-none"),
            "{error}"
        );
    }
    let on_lo = group.on("lo");
    let mut receiver =
        Receiver::open(Options { groups: vec![on_lo.clone()], ..options() }).unwrap();
    for (answer, word) in [
        (receiver.join(&on_lo), "is in it already"),
        (receiver.leave(&Group::any_source("239.9.9.9".parse().unwrap()).on("lo")), "is not in it"),
    ] {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    receiver.leave(&on_lo).unwrap();
    let v6 = Group::any_source("ff15::1".parse().unwrap()).on("lo");
    let error = receiver.join(&v6).unwrap_err().to_string();
    assert!(error.contains("of the other version of IP"), "{error}");
}

#[test]
fn a_back_end_that_is_not_there_says_why() {
    let options =
        |backend| Options { backend: Some(backend), ..Options::new(address("0.0.0.0", 0)) };
    let error = Receiver::open(options(Backend::Xdp)).unwrap_err();
    assert!(error.to_string().contains("not clear which"), "{error}");
}

#[test]
fn two_receivers_of_xdp_do_not_share_an_interface() {
    root_or_skip!();
    let cable = Cable::new();
    if !back_ends(&cable, "two_receivers_of_xdp_do_not_share_an_interface").contains(&Backend::Xdp)
    {
        return;
    }
    let options = |port| Options::new(address(HERE, port));
    let first = cable.receive(options(7000), Some(Backend::Xdp)).unwrap();
    let error = cable.receive(options(7001), Some(Backend::Xdp)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("another receiver of this process takes messages from interface rx"),
        "{error}"
    );
    assert!(first.try_clone().is_err());
    for (options, words) in [
        (Options { multiple_readers: true, ..options(7001) }, "one reader"),
        (Options { reuseport: Reuseport::Flow, ..options(7001) }, "the port is to be shared"),
    ] {
        let error = cable.receive(options.clone(), Some(Backend::Xdp)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let receiver = cable.receive(Options { take_over: true, ..options }, None).unwrap();
        let why = &receiver.selection_reasons()[0];
        assert!(why.starts_with("not xdp: ") && why.contains(words), "{why}");
    }
    // Without a wish the second one takes a socket, and says why.
    let second = cable.receive(Options { take_over: true, ..options(7001) }, None).unwrap();
    assert_ne!(second.backend(), Backend::Xdp);
    assert!(
        second.selection_reasons()[0].starts_with("not xdp: "),
        "{:?}",
        second.selection_reasons()
    );
    drop(first);
    assert!(!cable.veth.b.has_xdp().unwrap(), "a program was left behind");
}

#[test]
fn long_messages_are_cut_and_counted() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "long_messages_are_cut_and_counted") {
        let to = address(HERE, 7000);
        let mut receiver =
            cable.receive_by(Options { message_size: 100, ..Options::new(to) }, kind).unwrap();
        let mut sender = cable.send(SenderOptions::new(to));
        let lens = [99, 100, 101, 101, 101, 1400];
        for (at, len) in lens.into_iter().enumerate() {
            sender.message(len).unwrap().fill(at as u8);
        }
        sender.flush().unwrap();
        let mut came = Vec::new();
        gather(&mut receiver, 6, |message| {
            assert!(message.payload.iter().all(|byte| usize::from(*byte) == came.len()));
            came.push((message.payload.len(), message.truncated));
        });
        let wanted: Vec<_> = lens.map(|len| (len.min(100), len > 100)).to_vec();
        assert_eq!(came, wanted, "{kind}");
        let losses = receiver.drops().unwrap();
        assert_eq!((losses.truncated, losses.total()), (4, 0), "{kind}");
    }
}

#[test]
fn what_a_full_socket_loses_is_counted() {
    root_or_skip!();
    let cable = Cable::new();
    let to = address(HERE, 7000);
    for backend in [Backend::Recvmmsg, Backend::Gro] {
        let options = Options { recv_buffer_size: Some(4096), ..Options::new(to) };
        let receiver = cable.receive(options, Some(backend)).unwrap();
        let losses = overflow(&cable, receiver, 512);
        assert_eq!(losses.total(), losses.socket_buffer, "{backend}");
    }
}

#[test]
fn what_full_rings_of_xdp_lose_is_counted() {
    root_or_skip!();
    let cable = Cable::new();
    let to = address(HERE, 7000);
    for kind in kinds(&cable, "what_full_rings_of_xdp_lose_is_counted") {
        if kind.backend == Backend::Xdp {
            let options = Options { ring_size: 128 << 10, ..Options::new(to) };
            let receiver = cable.open(options, Some(kind)).unwrap();
            let losses = overflow(&cable, receiver, 2048);
            assert_eq!(losses.total(), losses.ring, "{kind}");
        }
    }
}

/// Sends more than `receiver` holds; each message is then received or counted as lost, as soon as softirqs
/// have run.
fn overflow(cable: &Cable, mut receiver: Receiver, count: u64) -> Drops {
    cable.fill(receiver.address(), count);
    let (mut came, end) = (0, Instant::now() + TIMEOUT);
    loop {
        let mut batch = receiver.receive(soon(Duration::from_millis(20))).unwrap();
        while batch.next().is_some() {
            came += 1;
        }
        drop(batch);
        let losses = receiver.drops().unwrap();
        if came + losses.total() == count {
            assert!(losses.total() > 0, "{}: nothing was lost", receiver.backend());
            return losses;
        }
        assert!(Instant::now() < end, "{}: {came} came, {losses:?}", receiver.backend());
    }
}

#[test]
fn batches_beyond_the_limit_of_the_kernel_are_served() {
    root_or_skip!();
    let cable = Cable::new();
    let to = address(HERE, 7000);
    let mut receiver = cable
        .receive(Options { batch: 3000, ..Options::new(to) }, Some(Backend::Recvmmsg))
        .unwrap();
    cable.fill(to, 2000);
    // All but the last window are in the socket: each was through before the next one was sent.
    let (mut came, mut largest, end) = (0, 0, Instant::now() + TIMEOUT);
    while came < 2000 {
        assert!(Instant::now() < end, "{came} came");
        let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
        let mut count = 0;
        while batch.next().is_some() {
            count += 1;
        }
        came += count;
        largest = largest.max(count);
    }
    assert_eq!(came, 2000);
    assert!(largest > 1024, "the largest batch had {largest}");
}

#[test]
fn fragments_and_other_ports_stay_with_the_stack() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "fragments_and_other_ports_stay_with_the_stack") {
        let to = address(HERE, 7000);
        let options = Options { message_size: 9000, ..Options::new(to) };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        let other = cable.here.run(|| std::net::UdpSocket::bind((HERE, 0))).unwrap().unwrap();
        other.set_read_timeout(Some(TIMEOUT)).unwrap();
        // Three fragments each, and whole ones between.
        let mut sender =
            cable.send(SenderOptions { message_size: 9000, gso: false, ..SenderOptions::new(to) });
        for at in 0..10u8 {
            sender.message(if at % 2 == 0 { 4000 } else { 64 }).unwrap().fill(at);
        }
        sender.flush().unwrap();
        let mut came = Vec::new();
        gather(&mut receiver, 10, |message| {
            came.push(message.payload[0]);
            let len = if message.payload[0] % 2 == 0 { 4000 } else { 64 };
            assert_eq!(message.payload, vec![message.payload[0]; len]);
        });
        came.sort_unstable();
        assert_eq!(came, (0..10).collect::<Vec<u8>>(), "{kind}");
        let mut sender = cable.send(SenderOptions::new(other.local_addr().unwrap()));
        sender.message(5).unwrap().copy_from_slice(b"hello");
        sender.flush().unwrap();
        let mut bytes = [0; 16];
        let (len, from) = uninterrupted(|| other.recv_from(&mut bytes)).unwrap();
        assert_eq!((&bytes[..len], from.ip().to_string().as_str()), (&b"hello"[..], THERE));
    }
}

#[test]
fn groups_are_heard_on_every_back_end() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "groups_are_heard_on_every_back_end") {
        for (bind, any, other, sources) in [
            ("0.0.0.0", "239.7.7.7", "232.7.7.7", ["10.77.0.1", "10.77.0.99"]),
            ("::", "ff15::7", "ff15::8", ["fd77::1", "fd77::99"]),
        ] {
            let options =
                Options { interface: Some("rx".into()), ..Options::new(address(bind, 7000)) };
            let mut receiver = cable.receive_by(options, kind).unwrap();
            let any = Group::any_source(any.parse().unwrap()).on("rx");
            let right = Group::source_specific(other.parse().unwrap(), sources[0].parse().unwrap());
            let wrong = Group::source_specific(other.parse().unwrap(), sources[1].parse().unwrap());
            let say = |group: &Group, text: &[u8]| {
                let mut sender = cable.send(SenderOptions::new((group.address, 7000).into()));
                sender.message(text.len()).unwrap().copy_from_slice(text);
                sender.flush().unwrap();
            };
            let hears = |receiver: &mut Receiver, text: &[u8]| {
                gather(receiver, 1, |message| assert_eq!(message.payload, text, "{kind}"));
            };
            cable.here.run(|| receiver.join(&any).unwrap()).unwrap();
            say(&any, b"one");
            hears(&mut receiver, b"one");
            // From the wrong sender it is not heard: what comes first is what was sent later.
            cable.here.run(|| receiver.join(&wrong.clone().on("rx")).unwrap()).unwrap();
            say(&wrong, b"two");
            say(&any, b"three");
            hears(&mut receiver, b"three");
            cable.here.run(|| receiver.join(&right.clone().on("rx")).unwrap()).unwrap();
            say(&right, b"four");
            hears(&mut receiver, b"four");
            cable.here.run(|| receiver.leave(&any).unwrap()).unwrap();
            say(&any, b"five");
            say(&right, b"six");
            hears(&mut receiver, b"six");
        }
    }
}

#[test]
fn receivers_share_a_port_and_threads_a_socket() {
    root_or_skip!();
    let cable = Cable::new();
    let to = address(HERE, 7000);
    for steering in
        [Reuseport::Flow, Reuseport::Cpu { sockets: 2 }, Reuseport::Spread { sockets: 2 }]
    {
        let options = || Options { reuseport: steering, ..Options::new(to) };
        let first = cable.receive(options(), Some(Backend::Recvmmsg)).unwrap();
        let mut all = [first.try_clone().unwrap(), first];
        let mut second = cable.receive(options(), Some(Backend::Gro)).unwrap();
        let mut sender = cable.send(SenderOptions { gso: false, ..SenderOptions::new(to) });
        for _ in 0..60 {
            sender.message(8).unwrap().fill(7);
        }
        sender.flush().unwrap();
        let (mut came, end) = (0, Instant::now() + TIMEOUT);
        while came < 60 {
            assert!(Instant::now() < end, "{came} came with {steering:?}");
            for receiver in all.iter_mut().chain([&mut second]) {
                let mut batch = receiver.receive(soon(Duration::from_millis(5))).unwrap();
                while let Some(message) = batch.next() {
                    assert_eq!(message.payload, [7; 8]);
                    came += 1;
                }
            }
        }
        assert_eq!(came, 60);
    }
}

#[test]
fn a_plain_socket_call_goes_on_working() {
    root_or_skip!();
    let cable = Cable::new();
    let to = address(HERE, 7000);
    let mut receiver = cable.receive(Options::new(to), Some(Backend::Recvmmsg)).unwrap();
    let mut sender = cable.send(SenderOptions { gso: false, ..SenderOptions::new(to) });
    for at in 0..3u8 {
        sender.message(3).unwrap().fill(at);
        sender.flush().unwrap();
        if at == 1 {
            let plain = std::net::UdpSocket::from(receiver.socket().try_clone_to_owned().unwrap());
            plain.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut bytes = [0; 16];
            assert_eq!(uninterrupted(|| plain.recv(&mut bytes)).unwrap(), 3);
            assert_eq!(bytes[..3], [1; 3]);
        } else {
            gather(&mut receiver, 1, |message| assert_eq!(message.payload, [at; 3]));
        }
    }
}

#[test]
fn a_message_among_few_wakes_a_reader_that_would_rest_for_long() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let options = Options { coalesce: Some(10 * TIMEOUT), ..Options::new(to) };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        let mut sender = cable.send(SenderOptions { rate: Some(1000.0), ..SenderOptions::new(to) });
        let start = Instant::now();
        for number in 0..20u8 {
            sender.message(1).unwrap()[0] = number;
            sender.flush().unwrap();
            let mut batch = receiver.receive(soon(10 * TIMEOUT)).unwrap();
            assert_eq!(batch.next().unwrap().payload, [number], "{kind}");
        }
        assert!(start.elapsed() < TIMEOUT, "{kind} rested");
    }
}

#[test]
fn a_pace_spreads_messages_and_holds_none_back() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let to = receiver.local_addr().unwrap();
    let mut sender =
        Sender::open(SenderOptions { rate: Some(500.0), ..SenderOptions::new(to) }).unwrap();
    assert_eq!(sender.batch(), 1);
    let start = Instant::now();
    let mut came = [0; 1];
    for number in 0..20u8 {
        sender.message(1).unwrap()[0] = number;
        // The one before has gone.
        if let Some(before) = number.checked_sub(1) {
            assert_eq!((uninterrupted(|| receiver.recv(&mut came)).unwrap(), came), (1, [before]));
        }
    }
    sender.flush().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(38), "{:?}", start.elapsed());
    let faster = |rate| {
        Sender::open(SenderOptions { rate: Some(rate), ..SenderOptions::new(to) }).unwrap().batch()
    };
    assert_eq!((faster(100_000.0), faster(1e9)), (10, 256));

    let mut slow =
        Sender::open(SenderOptions { rate: Some(0.001), ..SenderOptions::new(to) }).unwrap();
    assert!(slow.wait_until_due(None).unwrap(), "the first goes at once");
    slow.message(1).unwrap()[0] = 1;
    assert!(!slow.wait_until_due(Some(Instant::now() + Duration::from_millis(20))).unwrap());
    assert_eq!(slow.statistics().messages, 1);
}

#[test]
fn a_deadline_is_kept_and_a_poll_wakes() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "a_deadline_is_kept_and_a_poll_wakes") {
        let to = address(HERE, 7000);
        let mut receiver = cable.receive_by(Options::new(to), kind).unwrap();
        assert!(receiver.try_receive().unwrap().is_empty());
        let start = Instant::now();
        assert!(receiver.receive(soon(Duration::from_millis(60))).unwrap().is_empty());
        assert!(start.elapsed() >= Duration::from_millis(60), "{kind}");
        // By a descriptor that was asked for once, with and without calls that wait in between.
        let readable = receiver.as_fd().try_clone_to_owned().unwrap();
        let mut sender = cable.send(SenderOptions::new(to));
        for round in 0..30u8 {
            for _ in 0..1 + round % 3 {
                sender.message(3).unwrap().fill(round);
            }
            sender.flush().unwrap();
            let mut left = 1 + round % 3;
            while left > 0 {
                if round % 5 != 4 {
                    wait_until_readable(readable.as_fd(), kind);
                }
                let mut batch = match round % 5 {
                    4 => receiver.receive(soon(TIMEOUT)).unwrap(),
                    _ => receiver.try_receive().unwrap(),
                };
                while let Some(message) = batch.next() {
                    assert_eq!(message.payload, [round; 3], "{kind}");
                    left -= 1;
                }
            }
        }
    }
}

fn wait_until_readable(fd: BorrowedFd<'_>, kind: Kind) {
    let end = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < end, "{kind} does not become readable");
        let mut entry = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut entry, 1000u16) {
            Ok(1) => return,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
