//! Receiving and answering allocate nothing and make few system calls, on every backend.

use std::io::Write;
use std::time::Instant;

use crate::support::{Cable, HERE, Kind, TIMEOUT, WINDOW, address, kinds, soon};
use linerate_testkit::{only_this_test, probe_or_skip, root_or_skip, test_name};
use linerate_udp::{Backend, Metadata, Options, SendBackend, SendOptions, SenderOptions};

#[test]
fn nothing_is_allocated_after_build() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "nothing_is_allocated_after_build") {
        let to = address(HERE, 7000);
        let options = Options { metadata: Metadata::ALL, ..Options::new(to) };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        let mut sender = cable.send(SenderOptions::new(to));
        let (allocations, messages) = crate::counting::allocations(|| {
            let (mut messages, end) = (0, Instant::now() + TIMEOUT);
            for _ in 0..40 {
                for _ in 0..WINDOW {
                    sender.message(64).unwrap().fill(1);
                }
                sender.flush().unwrap();
                let wanted = messages + WINDOW;
                while messages < wanted {
                    assert!(Instant::now() < end, "{messages} came by {kind}");
                    let mut batch = receiver.receive(soon(TIMEOUT)).unwrap();
                    while batch.next().is_some() {
                        messages += 1;
                    }
                }
            }
            messages
        });
        assert_eq!((allocations, messages), (0, 40 * WINDOW), "{kind}");
    }
}

/// At full rate there is always a batch: what has gathered comes with few calls.
#[test]
fn what_has_gathered_comes_with_few_calls() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "what_has_gathered_comes_with_few_calls") {
        let to = address(HERE, 7000);
        let mut receiver = cable.receive_by(Options::new(to), kind).unwrap();
        cable.fill(to, 2048);
        let end = Instant::now() + TIMEOUT;
        let calls = receiver.syscalls();
        let mut messages = 0;
        // The last window may still be on its way.
        while messages < 2048 - 16 {
            assert!(Instant::now() < end, "{messages} came by {kind}");
            let mut batch = receiver.receive(soon(TIMEOUT)).unwrap();
            while batch.next().is_some() {
                messages += 1;
            }
        }
        let calls = receiver.syscalls() - calls;
        assert!(calls * 50 < messages, "{calls} calls for {messages} messages by {kind}");
    }
}

/// What one send backend cost.
struct Costs {
    messages: u64,
    allocations: u64,
    /// System calls, as the library counts them, that received and that sent.
    calls: [u64; 2],
}

/// Receives and answers what has gathered.
fn answer_gathered(cable: &Cable, kind: Kind, backend: SendBackend) -> Costs {
    let to = address(HERE, 7000);
    let send = SendOptions { backend, ..SendOptions::default() };
    let options =
        Options { backend: Some(kind.backend), delivery: kind.delivery, ..Options::new(to) };
    let options = Options { ring_size: 16 << 20, send, ..options };
    let mut socket = cable.socket(&options);
    // The first answers resolve the neighbour and reserve what io_uring keeps.
    for messages in [64, 2048] {
        cable.fill(to, messages);
        let linerate_udp::Socket { receiver, transmitter } = &mut socket;
        let before = [receiver.syscalls(), transmitter.statistics().syscalls];
        mark(&format!("begin {messages}"));
        let (allocations, answered) = crate::counting::allocations(|| {
            let (mut answered, end) = (0, Instant::now() + TIMEOUT);
            // The last window may still be on its way.
            while answered < messages - 16 {
                assert!(Instant::now() < end, "{answered} came by {kind}");
                let mut batch = receiver.receive(soon(TIMEOUT)).unwrap();
                while let Some(message) = batch.next() {
                    transmitter.push(&message.reply(message.payload)).unwrap();
                    answered += 1;
                }
                drop(batch);
                transmitter.flush().unwrap();
            }
            answered
        });
        mark(&format!("end {messages}"));
        let after = [receiver.syscalls(), transmitter.statistics().syscalls];
        let calls = std::array::from_fn(|way| after[way] - before[way]);
        if messages == 2048 {
            assert_eq!(transmitter.fallback_reason(), None, "{kind}, {backend}");
            return Costs { messages: answered, allocations, calls };
        }
    }
    unreachable!("the loop ends with a return")
}

/// Writes a line that strace shows between the system calls.
fn mark(text: &str) {
    std::io::stderr().write_all(format!("mark: {text}\n").as_bytes()).unwrap();
}

/// Receiving and answering costs no allocation, and under 0.02 system calls a message, each way. The kernel counts as
/// many system calls as the library does. `cargo test -p linerate-udp --test it costs -- --nocapture` prints the table.
#[test]
fn both_directions_have_costs_that_the_kernel_confirms() {
    const CHILD: &str = "LINERATE_COUNT_COSTS";
    root_or_skip!();
    if std::env::var_os(CHILD).is_none() {
        probe_or_skip!(std::process::Command::new("strace").arg("-V").output().err());
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("calls");
        let mut traced = std::process::Command::new("strace");
        traced.arg("-f").arg("-o").arg(&log).arg(std::env::current_exe().unwrap());
        traced.args(only_this_test!()).env(CHILD, "1");
        let output = traced.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        let seen = traced_calls(&std::fs::read_to_string(&log).unwrap());
        let said: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("costs: ")).collect();
        assert!(!said.is_empty() && said.len() == seen.len(), "{text}");
        for (line, seen) in said.iter().zip(seen) {
            println!("{line}");
            let (name, calls) = line.rsplit_once(' ').unwrap();
            assert_eq!(calls.parse::<u64>().unwrap(), seen, "system calls of {name}");
        }
        return;
    }
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        for &backend in SendBackend::ALL {
            if backend == SendBackend::Xdp && kind.backend != Backend::Xdp {
                continue;
            }
            let Costs { messages, allocations, calls } = answer_gathered(&cable, kind, backend);
            assert_eq!(allocations, 0, "{kind}, {backend}");
            let [received, sent] = calls;
            eprintln!(
                "costs: {kind}, answers by {backend}: {messages} messages, {allocations} allocations, system calls to \
                 receive {received}, to send {sent}, in all {}",
                received + sent
            );
            assert!(received.max(sent) * 50 < messages, "{kind}, {backend}");
        }
    }
}

/// System calls between each pair of marks, by the thread that made the marks.
fn traced_calls(log: &str) -> Vec<u64> {
    let (mut all, mut thread, mut count) = (Vec::new(), None, 0);
    for line in log.lines() {
        let Some((id, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.contains("mark: begin 2048") {
            (thread, count) = (Some(id.to_owned()), 0);
        } else if thread.as_deref() == Some(id) {
            if call.contains("mark: end 2048") {
                all.push(count);
                thread = None;
            } else if !call.starts_with("<...") && !call.starts_with("---") {
                count += 1;
            }
        }
    }
    all
}
