//! The least that a program can do with libpcap: it counts what `pcap_loop` hands it. Linked to libpcap
//! like any other, so that `linerate run` gives it another one.

use anyhow::{Context, Result};
use pcap::{Capture, Error};
use serde_json::{Value, json};

use crate::interrupt;

/// Counts the packets of `interface` until a signal asks for the end; a report in JSON.
pub(super) fn run(interface: &str) -> Result<Value> {
    let mut capture = Capture::from_device(interface)
        .and_then(|capture| capture.promisc(true).timeout(100).open())
        .with_context(|| format!("libpcap cannot open {interface}"))?;
    let handle = capture.breakloop_handle();
    std::thread::spawn(move || {
        interrupt::wait();
        handle.breakloop();
    });
    let mut captured = 0_u64;
    let looped = capture.for_each(None, |_| captured += 1);
    if !interrupt::happened() {
        looped.with_context(|| format!("libpcap stopped reading {interface}"))?;
    }
    // What was in the ring when the signal came.
    let mut capture = capture.setnonblock().context("libpcap does not stop waiting")?;
    while !matches!(capture.next_packet(), Err(Error::TimeoutExpired | Error::NoMorePackets)) {
        captured += 1;
    }
    let counts = capture.stats().context("libpcap has no counts")?;
    Ok(json!({"captured": captured, "dropped": {"kernel": counts.dropped}}))
}
