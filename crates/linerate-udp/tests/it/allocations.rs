//! Receiving allocates nothing and makes few system calls, on every backend.

use std::time::Instant;

use crate::support::{Cable, HERE, TIMEOUT, WINDOW, address, kinds, soon};
use linerate_testkit::root_or_skip;
use linerate_udp::{Metadata, Receiver, Sender};

#[test]
fn nothing_is_allocated_after_build() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, "nothing_is_allocated_after_build") {
        let to = address(HERE, 7000);
        let builder = Receiver::builder(to).metadata(Metadata::ALL);
        let mut receiver = cable.receive_by(builder, kind).unwrap();
        let mut sender = cable.send(Sender::builder(to));
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
        let mut receiver = cable.receive_by(Receiver::builder(to), kind).unwrap();
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
