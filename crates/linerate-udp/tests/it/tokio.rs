//! The halves of a socket in tokio, on every backend.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use linerate_testkit::tools::run;
use linerate_testkit::{root_or_skip, test_name, uninterrupted};
use linerate_udp::{Options, Receiver, Socket, Transmit};

use crate::support::{Cable, HERE, THERE, TIMEOUT, address, kinds};

#[test]
fn a_server_in_tokio_answers_on_every_back_end() {
    root_or_skip!();
    let cable = Cable::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let options =
            Options { backend: Some(kind.backend), delivery: kind.delivery, ..Options::new(to) };
        let socket = cable.socket(&Options { ring_size: 16 << 20, batch: 32, ..options });
        let server = runtime.spawn(async move {
            let (mut receiver, mut transmitter) = socket.into_async()?;
            loop {
                let mut batch = receiver.recv_batch().await?;
                while let Some(message) = batch.next() {
                    if message.payload == b"end" {
                        return Ok::<_, linerate_udp::Error>(
                            transmitter.transmitter().statistics(),
                        );
                    }
                    transmitter.push(&message.reply(message.payload)).await?;
                }
                drop(batch);
                transmitter.flush().await?;
            }
        });
        let peer = cable.there.run(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut room = [0; 64];
        for round in 0..50u8 {
            for at in 0..1 + round % 9 {
                peer.send_to(&[round, at], to).unwrap();
            }
            for at in 0..1 + round % 9 {
                let (len, from) = uninterrupted(|| peer.recv_from(&mut room)).unwrap();
                assert_eq!((&room[..len], from), (&[round, at][..], to), "{kind}");
            }
        }
        peer.send_to(b"end", to).unwrap();
        let statistics = runtime.block_on(server).unwrap().unwrap();
        assert_eq!(statistics.messages, (0..50).map(|round| 1 + round % 9).sum::<u64>(), "{kind}");
    }
}

/// Messages come alone and in bursts, in the rings and through the companion socket of `xdp` (as fragments), and each
/// wakes the task.
#[test]
fn a_receiver_in_tokio_misses_no_message() {
    const MESSAGES: u32 = 2000;
    root_or_skip!();
    let cable = Cable::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let options =
            Options { backend: Some(kind.backend), delivery: kind.delivery, ..Options::new(to) };
        let options = Options { ring_size: 16 << 20, batch: 8, message_size: 4000, ..options };
        let socket = cable.socket(&options);
        let peer = cable.there.run(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
        let _entered = runtime.enter();
        let (mut receiver, _transmitter) = socket.into_async().unwrap();
        let came = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&came);
        let sender = std::thread::spawn(move || {
            let mut bytes = [0; 4000];
            for number in 0..MESSAGES {
                // So that no buffer is full.
                let end = Instant::now() + TIMEOUT;
                while number - count.load(Ordering::Relaxed) > 20 && Instant::now() < end {
                    std::thread::yield_now();
                }
                if number % 7 == 0 {
                    std::thread::sleep(Duration::from_micros(u64::from(number % 50) * 4));
                }
                bytes[..4].copy_from_slice(&number.to_be_bytes());
                let len = if number % 23 == 0 { bytes.len() } else { 100 };
                peer.send_to(&bytes[..len], to).unwrap();
            }
        });
        let mut seen = vec![false; MESSAGES as usize];
        runtime.block_on(async {
            while came.load(Ordering::Relaxed) < MESSAGES {
                let batch = tokio::time::timeout(TIMEOUT, receiver.recv_batch()).await;
                let batch = batch.unwrap_or_else(|_| panic!("{kind}: asleep after {came:?}"));
                let mut batch = batch.unwrap();
                while let Some(message) = batch.next() {
                    let number = u32::from_be_bytes(*message.payload.first_chunk().unwrap());
                    assert!(
                        !std::mem::replace(&mut seen[number as usize], true),
                        "{kind}: {number}"
                    );
                    came.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        sender.join().unwrap();
    }
}

/// The socket always has messages, as what is added to the interface has at first. It moves to the rings nevertheless.
#[test]
fn a_receiver_in_tokio_follows_its_interface_while_the_socket_is_busy() {
    const ADDED: &str = "10.77.0.88";
    root_or_skip!();
    let cable = Cable::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for kind in kinds(&cable, test_name!()) {
        if kind.backend != linerate_udp::Backend::Xdp {
            continue;
        }
        let options =
            Options { interface: Some("rx".into()), ..Options::new(address("0.0.0.0", 7000)) };
        let options = Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
        let options = Options { ring_size: 16 << 20, batch: 1, message_size: 4000, ..options };
        let socket = cable.socket(&options);
        let peer = cable.there.run(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
        let _entered = runtime.enter();
        let (mut receiver, _transmitter) = socket.into_async().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let sender = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                // Fragments are for the socket.
                peer.send_to(&[0; 4000], address(HERE, 7000)).unwrap();
                let _ = peer.send_to(&[1; 100], address(ADDED, 7000));
            }
        });
        let mut came = |until: &dyn Fn(&Receiver) -> bool| {
            let end = Instant::now() + TIMEOUT;
            runtime.block_on(async {
                while !until(receiver.receiver()) {
                    let counts =
                        (receiver.receiver().messages(), receiver.receiver().ring_messages());
                    assert!(Instant::now() < end, "{kind}: {counts:?} messages, by the ring");
                    let mut batch = receiver.recv_batch().await.unwrap();
                    while batch.next().is_some() {}
                    drop(batch);
                    // Slower than the sender.
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
        };
        came(&|receiver| receiver.messages() > 100);
        run(&cable.here, "ip", &["address", "add", &format!("{ADDED}/32"), "dev", "rx"], "");
        came(&|receiver| receiver.ring_messages() > 0);
        is_over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        run(&cable.here, "ip", &["address", "del", &format!("{ADDED}/32"), "dev", "rx"], "");
    }
}

/// The socket's buffer is full again and again, and nothing is lost on the way.
#[test]
fn a_sender_in_tokio_waits_for_room() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = linerate_udp::SendOptions { buffer_size: Some(1), ..Default::default() };
    let options = Options { send: options, ..Options::new(address("127.0.0.1", 0)) };
    let options = Options {
        backend: Some(linerate_udp::Backend::Recvmmsg),
        recv_buffer_size: Some(8 << 20),
        ..options
    };
    let socket = Socket::open(options).unwrap();
    let own = socket.receiver.address();
    let contents = [5; 1000];
    let came = runtime.block_on(async move {
        let (mut receiver, mut transmitter) = socket.into_async().unwrap();
        let mut came = 0;
        for _ in 0..20 {
            transmitter.send_batch(&[Transmit::new(own, &contents); 100]).await.unwrap();
            let until = came + 100;
            while came < until {
                let batch = tokio::time::timeout(Duration::from_secs(30), receiver.recv_batch());
                let mut batch = batch.await.expect("messages").unwrap();
                while let Some(message) = batch.next() {
                    assert_eq!(message.payload, contents);
                    came += 1;
                }
            }
        }
        came
    });
    assert_eq!(came, 2000);
}

/// Messages that always wait must not keep the other tasks of the thread from running.
#[test]
fn a_busy_receiver_lets_other_tasks_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = Options { batch: 1, ..Options::new(address("127.0.0.1", 0)) };
    let socket =
        Socket::open(Options { backend: Some(linerate_udp::Backend::Recvmmsg), ..options })
            .unwrap();
    let own = socket.receiver.address();
    let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
    runtime.block_on(async move {
        let (mut receiver, mut transmitter) = socket.into_async().unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&ran);
        tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
        for _ in 0..10_000 {
            plain.send_to(b"more", own).unwrap();
            assert_eq!(receiver.recv_batch().await.unwrap().next().unwrap().payload, b"more");
            if ran.load(Ordering::Relaxed) {
                break;
            }
        }
        assert!(ran.swap(false, Ordering::Relaxed), "no other task runs while messages arrive");
        let other = Arc::clone(&ran);
        tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
        let to = plain.local_addr().unwrap();
        for at in 0.. {
            assert!(at < 10_000, "no other task runs while messages are sent");
            transmitter.send_batch(&[Transmit::new(to, b"more")]).await.unwrap();
            if ran.load(Ordering::Relaxed) {
                break;
            }
        }
    });
}
