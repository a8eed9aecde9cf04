//! AF_XDP sources on real veth pairs: what is sent arrives, or is in a count; what is not asked for
//! goes to the stack; and nothing stays attached.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::xdp_support::{
    CHILD, Cable, Pacing, Raw, Stack, becomes_free, child, drain, number, port, small, to_port, udp,
};
use linerate_bpf::filter::Instruction;
use linerate_bpf::steer;
use linerate_ring::region::Pages;
use linerate_ring::xdp::{AttachMode, Socket, Sockets, TxSocket, Umem, probe};
use linerate_ring::{Batch as _, Error, Options, Region, Result, Ring as _, WaitStrategy};
use linerate_testkit::{Veth, VethOptions, only_this_test, root_or_skip};

fn open(cable: &Cable, options: Options, filter: Option<&[Instruction]>) -> Result<Sockets> {
    cable.receiver.run(|| Sockets::open("rx", &options, filter)).expect("the namespace")
}

fn source(cable: &Cable, options: Options, filter: Option<&[Instruction]>) -> Sockets {
    open(cable, options, filter).unwrap_or_else(|error| panic!("{error}"))
}

/// As many frames as come in 50 ms at a million a second; what counts is how many, not how fast.
#[test]
fn the_default_buffer_rides_out_a_stall_of_the_reader() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let build = || Sockets::open("rx", &Options { buffer: None, ..small() }, None);
    let mut source = cable.receiver.run(build).unwrap().unwrap();
    let raw = cable.raw();
    (0..50_000).for_each(|n| raw.send(&udp(7, n, 60)));
    assert_eq!((source.pending(), source.frame_capacity()), (50_000, 65_536));
    let mut next = 0;
    drain(&mut source, |frame| {
        assert_eq!(number(frame.head()), next);
        next += 1;
    });
    assert_eq!((next, source.statistics().unwrap().lost()), (50_000, 0));
}

#[test]
fn frames_not_read_stay_for_the_next_batch() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut source = source(
        &cable,
        Options { batch: 8, wait_strategy: WaitStrategy::BLOCKING, ..small() },
        None,
    );
    let raw = cable.raw();
    (0..20).for_each(|n| raw.send(&udp(7, n, 100)));
    let mut numbers = Vec::new();
    while source.wait(Duration::from_millis(300)).unwrap() {
        let mut batch = source.next_batch().expect("ready");
        assert!(batch.len() <= 8);
        numbers.extend((0..3).map_while(|_| batch.next().map(|frame| number(frame.head()))));
    }
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

#[test]
fn all_queues_are_read() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { queues: 4, ..VethOptions::default() });
    let mut source = source(&cable, Options { buffer: Some(32 << 20), ..small() }, None);
    assert_eq!(source.queues().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let raw = cable.raw();
    (0..4000).for_each(|n| raw.send(&udp(n as u16 % 97, n, 100)));
    let (mut seen, mut queues) = (vec![false; 4000], [0u32; 4]);
    drain(&mut source, |frame| {
        assert!(!std::mem::replace(&mut seen[number(frame.head()) as usize], true), "doubled");
        queues[usize::from(frame.queue)] += 1;
    });
    let missing = seen.iter().filter(|seen| !**seen).count();
    assert_eq!(missing, 0, "{queues:?} {:?}", source.statistics());
    assert!(queues.iter().filter(|count| **count > 0).count() > 1, "{queues:?}");
}

#[test]
fn frames_of_a_queue_that_was_not_chosen_go_to_the_stack() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { queues: 4, ..VethOptions::default() });
    let stack = Stack::listen(&cable, 7);
    let mut source = source(&cable, Options { queues: Some(vec![2]), ..small() }, None);
    let raw = cable.raw();
    for n in 0..200u64 {
        // The source port makes the flow, and the flow the queue.
        let mut frame = udp(7, n, 100);
        frame[34..36].copy_from_slice(&(n as u16).to_be_bytes());
        raw.send(&frame);
    }
    let received = drain(&mut source, |frame| assert_eq!(frame.queue, 2));
    let counts = source.statistics().unwrap();
    assert!(received > 0 && counts.no_socket > 0, "{counts:?}");
    assert_eq!(received + stack.count() as u64, 200);
}

#[test]
fn the_filter_runs_in_the_kernel_and_can_be_replaced() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let (seven, eight) = (to_port(7), to_port(8));
    let (at_seven, at_eight) = (Stack::listen(&cable, 7), Stack::listen(&cable, 8));
    let mut source = source(&cable, small(), Some(&seven));
    let raw = cable.raw();
    let send = || (0..100).for_each(|n| raw.send(&udp(7 + n as u16 % 2, n, 100)));
    send();
    assert_eq!(drain(&mut source, |frame| assert_eq!(port(frame.head()), 7)), 50);
    assert_eq!((at_seven.count(), at_eight.count()), (0, 50), "the others reach the stack");
    let loaded = source.load_filter(Some(&eight)).unwrap();
    source.replace_filter(&loaded).unwrap();
    send();
    assert_eq!(drain(&mut source, |frame| assert_eq!(port(frame.head()), 8)), 50);
    assert_eq!((at_seven.count(), at_eight.count()), (50, 0));
    let counts = source.statistics().unwrap();
    assert_eq!((counts.matched, counts.unmatched, counts.lost()), (100, 100, 0));
}

#[test]
fn a_program_that_the_verifier_refuses_is_a_typed_error_with_its_words() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    // Reads the register r5, which is uninitialised.
    let bad = [
        linerate_bpf::filter::Instruction::new(0xbf, 0, 5, 0, 0),
        linerate_bpf::filter::Instruction::new(0x95, 0, 0, 0, 0),
    ];
    match open(&cable, small(), Some(&bad)) {
        Err(Error::Bpf(linerate_bpf::Error::Verifier { reason: why, .. })) => {
            assert!(why.contains("R5 !read_ok"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!cable.veth.b.has_xdp().unwrap());
}

#[test]
fn nothing_stays_attached_after_drop_and_panic() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let first = source(&cable, small(), None);
    assert!(cable.veth.b.has_xdp().unwrap());
    drop(first);
    assert!(becomes_free(&cable), "after drop");
    let second = source(&cable, small(), None);
    let panicked = std::thread::spawn(move || {
        let _second = second;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.join().is_err());
    assert!(becomes_free(&cable), "after a panic");
}

#[test]
fn nothing_stays_attached_after_kill() {
    if std::env::var_os(CHILD).is_some() {
        let _source = Sockets::open("rx", &small(), None).unwrap();
        println!("ready");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut child = child(&cable, only_this_test!());
    assert!(cable.veth.b.has_xdp().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(becomes_free(&cable), "after kill -9");
    source(&cable, small(), None);
}

#[test]
fn two_interfaces_share_one_umem() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let options = VethOptions::default();
    let _second = Veth::create(&cable.sender, "tx2", &cable.receiver, "rx2", options).unwrap();
    let (mut sockets, steers) = cable
        .receiver
        .run(|| -> Result<_> {
            let region = Region::new(1 << 20, Pages::Small, None)?;
            let umem = Umem::new(region, 2048)?;
            let (mut sockets, mut steers) = (Vec::new(), Vec::new());
            for interface in ["rx", "rx2"] {
                let socket = Socket::open(interface, 0, &umem, 200, Options::default())?;
                let mut steer = steer::Program::load(interface, &steer::Options::default())?;
                steer.add_socket(0, std::os::fd::AsFd::as_fd(&socket))?;
                steer.attach()?;
                sockets.push(socket);
                steers.push(steer);
            }
            let none = Socket::open("rx", 0, &umem, 200, Options::default());
            assert!(matches!(none, Err(Error::Invalid(_))), "only 112 chunks are left");
            Ok((sockets, steers))
        })
        .unwrap()
        .unwrap();
    let raw = cable.sender.run(|| [Raw::open("tx").unwrap(), Raw::open("tx2").unwrap()]).unwrap();
    for n in 0..1000u64 {
        raw[n as usize % 2].send(&udp(7, n, 100));
        if n % 100 == 99 {
            for (which, socket) in sockets.iter_mut().enumerate() {
                let mut count = 0;
                while count < 50 && socket.wait(Duration::from_secs(1)).unwrap() {
                    let mut batch = socket.next_batch().unwrap();
                    while let Some(frame) = batch.next() {
                        assert_eq!(number(frame.head()) % 2, which as u64);
                        assert_eq!(frame.head(), udp(7, number(frame.head()), 100));
                        count += 1;
                    }
                }
                assert_eq!(count, 50);
            }
        }
    }
    let matched = |steer: &linerate_bpf::steer::Program| {
        steer.statistics_reader().unwrap().read(0).unwrap().matched
    };
    assert!(steers.iter().all(|steer| matched(steer) == 500));
}

#[test]
fn chunks_of_a_closed_socket_come_back() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { queues: 2, ..VethOptions::default() });
    let built = cable.receiver.run(|| -> Result<()> {
        let umem = Umem::new(Region::new(1 << 20, Pages::Small, None)?, 2048)?;
        let first = Socket::open("rx", 0, &umem, 256, Options::default())?;
        let second = Socket::open("rx", 1, &umem, 512, Options::default());
        assert!(second.is_err(), "there are 512 chunks, and the first socket has some");
        let second = Socket::open("rx", 1, &umem, 256, Options::default())?;
        // The socket that registered the memory goes first; the other one shares it on.
        drop(first);
        let third = Socket::open("rx", 0, &umem, 256, Options::default())?;
        drop((second, third));
        Socket::open("rx", 0, &umem, 512, Options::default()).map(drop)
    });
    built.unwrap().unwrap();
}

#[test]
fn generic_xdp_and_busy_polling_work_where_asked_for() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let busy = Duration::from_micros(20);
    for (attach, busy_poll) in [(AttachMode::Generic, None), (AttachMode::Native, Some(busy))] {
        let mut source = source(&cable, Options { mode: Some(attach), busy_poll, ..small() }, None);
        assert_eq!((source.attach_mode(), source.mode().busy_poll), (attach, busy_poll.is_some()));
        let raw = cable.raw();
        (0..1000).for_each(|n| raw.send(&udp(7, n, 100)));
        let mut next = 0;
        drain(&mut source, |frame| {
            assert_eq!(frame.head(), udp(7, next, 100));
            next += 1;
        });
        assert_eq!((next, source.statistics().unwrap().lost()), (1000, 0), "{attach}");
        drop(source);
        assert!(becomes_free(&cable));
    }
}

#[test]
fn what_a_transmit_ring_sends_arrives() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut source = source(&cable, small(), None);
    let sender = cable.sender.run(|| TxSocket::open("tx", 0, 512, 2048)).unwrap().unwrap();
    let pacing = cable.pacing();
    let sender = std::thread::spawn(move || {
        let mut sender = sender;
        let mut n = 0u64;
        while n < 20_000 {
            let Some(mut frame) = sender.frame() else {
                sender.flush().unwrap();
                continue;
            };
            let bytes = udp(7, n, 60 + (n % 1000) as usize);
            sender.bytes(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
            sender.send(frame, bytes.len());
            n += 1;
            // A busy device takes not all of it: nothing may be left in the ring while the pacing waits.
            while n.is_multiple_of(Pacing::AHEAD) && !sender.flush().unwrap() {
                std::thread::yield_now();
            }
            pacing.sent_one();
        }
        assert!(sender.drain(Duration::from_secs(5)).unwrap());
        assert_eq!(sender.sent(), 20_000);
    });
    let (mut next, mut arrived) = (0, 0);
    drain(&mut source, |frame| {
        // A busy machine may lose some, which the statistics count: the others come in order.
        let number = u64::from_be_bytes(frame.head()[42..50].try_into().unwrap());
        assert!(number >= next, "{number} after {next}");
        assert_eq!(frame.head(), udp(7, number, 60 + (number % 1000) as usize));
        (next, arrived) = (number + 1, arrived + 1);
    });
    sender.join().unwrap();
    assert_eq!(arrived + source.statistics().unwrap().lost(), 20_000);
}

#[test]
fn a_frame_to_send_outlives_its_socket_in_vain() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    cable
        .sender
        .run(|| {
            let mut first = TxSocket::open("tx", 0, 64, 2048).unwrap();
            let left = first.frame().unwrap();
            drop(first);
            // Its memory may well lie where that of the first was.
            let mut second = TxSocket::open("tx", 0, 64, 2048).unwrap();
            let refused = catch_unwind(AssertUnwindSafe(|| second.send(left, 60)));
            assert!(refused.is_err());
        })
        .unwrap();
}

#[test]
fn an_interface_is_known_by_its_index_not_by_its_name() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut source =
        source(&cable, Options { wait_strategy: WaitStrategy::BLOCKING, ..small() }, None);
    let tick = Duration::from_millis(50);
    let ip = |arguments: &str| {
        let status = cable.receiver.command("ip").args(arguments.split(' ')).status().unwrap();
        assert!(status.success(), "ip {arguments}");
    };
    ip("link set dev rx down");
    assert!(matches!(source.wait(tick), Err(Error::InterfaceDown(_))));
    ip("link set dev rx name other");
    ip("link set dev other up");
    assert!(!source.wait(tick).unwrap(), "renamed, not gone");
    cable.raw().send(&udp(7, 0, 100));
    assert_eq!(drain(&mut source, |_| ()), 1);
    ip("link del dev other");
    ip("link add rx type veth peer name unused");
    ip("link set dev rx up");
    let gone = (0..20).find_map(|_| source.wait(tick).err());
    assert!(matches!(gone, Some(Error::InterfaceGone(_))), "another one has its name: {gone:?}");
}

#[test]
fn bad_wishes_are_refused_with_a_reason() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let refused = |error: Result<Sockets>| error.expect_err("refused").to_string();
    let none = cable.receiver.run(|| Sockets::open("nosuch", &small(), None)).unwrap();
    assert!(refused(none).contains("no interface named nosuch"));
    assert!(
        refused(open(&cable, Options { queues: Some(vec![9]), ..small() }, None))
            .contains("there is no such queue")
    );
    assert!(
        refused(open(&cable, Options { chunk_size: 3000, ..small() }, None))
            .contains("powers of two from 2048 to 4096")
    );
    assert!(
        refused(open(&cable, Options { buffer: Some(4096), ..small() }, None))
            .contains("64 is the least")
    );
    assert!(!cable.veth.b.has_xdp().unwrap());
    let found = cable.receiver.run(|| probe("rx")).unwrap();
    assert!(
        found.why_not_native().is_none() && found.multi_buffer && !found.zero_copy,
        "{found:?}"
    );
    assert!(!cable.veth.b.has_xdp().unwrap(), "a probe attaches nothing");
}

#[test]
fn a_single_socket_says_that_its_interface_has_gone() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let build = || -> Result<Socket> {
        let umem = Umem::new(Region::new(1 << 20, Pages::Small, None)?, 2048)?;
        let options = Options { wait_strategy: WaitStrategy::BLOCKING, ..Options::default() };
        Socket::open("rx", 0, &umem, 64, options)
    };
    let mut socket = cable.receiver.run(build).unwrap().unwrap();
    let tick = Duration::from_millis(50);
    assert!(!socket.wait(tick).unwrap());
    cable.veth.delete().unwrap();
    assert!(matches!(socket.wait(tick), Err(Error::InterfaceGone(name)) if name == "rx"));
}
