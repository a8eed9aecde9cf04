//! NAT events (RFC 8158) from the events of connection tracking, also for connections without a session.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use linerate_flow::{FlowKey, FlowRecord, NatEvent, Translation};
use linerate_net::netlink::{Message, Notifications, Protocol, Received, attribute, bytes_at};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::runtime::ctnetlink::{DELETE, HEADER, NEW, attr};
use crate::table::flows::PendingRecord;
use crate::{Error, Result};

/// Room for some 20,000 events.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Messages that one call reads before it checks whether to stop.
const MAX_MESSAGES: usize = 1024;
/// How long the thread sleeps without events.
const POLL_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the thread reads on after the stop, if events keep coming; then as long for room in the queue.
const MAX_DRAIN: Duration = Duration::from_secs(2);
/// Events that wait for room in the queue. With more, the socket's receive buffer holds the next ones.
const MAX_WAITING: usize = 1 << 16;
/// How often the thread looks for room in the queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Counts of events.
#[derive(Debug, Default)]
pub(super) struct NatCounters {
    /// Events of translated connections.
    pub(super) events: AtomicU64,
    /// Those that found no room in the queue until the end, because records cannot be written.
    pub(super) lost: AtomicU64,
    /// How often the kernel dropped events (ENOBUFS), because they were read too slowly. It does not tell how many.
    pub(super) overruns: AtomicU64,
}

/// The thread that reads events.
#[derive(Debug)]
pub(super) struct NatMonitor {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    pub(super) counters: Arc<NatCounters>,
}

impl NatMonitor {
    /// Reads the events of the calling thread's network namespace from now on.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel has no events of connection tracking.
    pub(super) fn start(queue: SyncSender<Vec<PendingRecord>>) -> Result<Self> {
        let failed = |source| Error::system("watch connection tracking for NAT events", source);
        let mut socket = Notifications::open(Protocol::Netfilter).map_err(failed)?;
        socket.set_receive_buffer(RECEIVE_BUFFER).map_err(failed)?;
        for group in [libc::NFNLGRP_CONNTRACK_NEW, libc::NFNLGRP_CONNTRACK_DESTROY] {
            socket.join(group as u32).map_err(failed)?;
        }
        let (stop, counters) = (Arc::<AtomicBool>::default(), Arc::<NatCounters>::default());
        let (stopped, counts) = (Arc::clone(&stop), Arc::clone(&counters));
        let run = move || {
            // A burst comes in many small batches, while the writer may be busy with the disk.
            let mut waiting = Vec::new();
            while !stopped.load(Relaxed) {
                if waiting.len() >= MAX_WAITING {
                    std::thread::sleep(RETRY_INTERVAL);
                } else if let Err(error) = read(&mut socket, &mut waiting, &counts) {
                    tracing::error!(%error, "reading NAT events failed: no more are recorded");
                    break;
                }
                enqueue(&queue, &mut waiting);
            }
            // Reads the events before the stop. One read may not have room for all of them.
            let end = Instant::now() + MAX_DRAIN;
            while Instant::now() < end
                && waiting.len() < MAX_WAITING
                && matches!(read(&mut socket, &mut waiting, &counts), Ok(true))
            {
                enqueue(&queue, &mut waiting);
            }
            let end = Instant::now() + MAX_DRAIN;
            while !enqueue(&queue, &mut waiting) && Instant::now() < end {
                std::thread::sleep(RETRY_INTERVAL);
            }
            if !waiting.is_empty() {
                counts.lost.fetch_add(waiting.len() as u64, Relaxed);
                let events = waiting.len();
                tracing::error!(events, "NAT events lost: records cannot be written");
            }
        };
        let thread = std::thread::Builder::new().name("nat-events".into()).spawn(run);
        Ok(Self { thread: Some(thread.map_err(failed)?), stop, counters })
    }
}

impl Drop for NatMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Queues all events that wait, if the queue has room. Returns whether none wait.
fn enqueue(queue: &SyncSender<Vec<PendingRecord>>, waiting: &mut Vec<PendingRecord>) -> bool {
    if waiting.is_empty() {
        return true;
    }
    match queue.try_send(std::mem::take(waiting)) {
        Ok(()) => true,
        Err(TrySendError::Full(events) | TrySendError::Disconnected(events)) => {
            *waiting = events;
            false
        }
    }
}

/// Waits for events, and appends their records. Returns whether there were messages.
fn read(
    socket: &mut Notifications,
    waiting: &mut Vec<PendingRecord>,
    counters: &NatCounters,
) -> std::io::Result<bool> {
    let timeout = if waiting.is_empty() { POLL_TIMEOUT } else { RETRY_INTERVAL };
    let sleep = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
    match poll(&mut [PollFd::new(&*socket, PollFlags::IN)], Some(&sleep)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
        other => other?,
    };
    let before = waiting.len();
    let received = socket.receive(MAX_MESSAGES, |message| {
        let event = event(message);
        waiting.extend(event.map(|record| PendingRecord { record, checkpoint: None, sequence: 0 }));
    })?;
    counters.events.fetch_add((waiting.len() - before) as u64, Relaxed);
    if received == Received::Overrun {
        counters.overruns.fetch_add(1, Relaxed);
        tracing::warn!("NAT events lost: the netlink receive buffer overran");
    }
    Ok(true)
}

/// Addresses and ports of one direction, of the attributes of a tuple. For ICMP, the identifier stands for both ports.
fn key(bytes: &[u8]) -> Option<FlowKey> {
    let (ip, protocol) = (attribute(bytes, attr::TUPLE_IP)?, attribute(bytes, attr::TUPLE_PROTO)?);
    let address = |v4, v6| -> Option<IpAddr> {
        let octets = |kind| bytes_at(attribute(ip, kind)?, 0).map(|octets: [u8; 4]| octets.into());
        let long = |kind| bytes_at(attribute(ip, kind)?, 0).map(|octets: [u8; 16]| octets.into());
        octets(v4).or_else(|| long(v6))
    };
    let port = |kind| bytes_at(attribute(protocol, kind)?, 0).map(u16::from_be_bytes);
    let id = || port(attr::ICMP_ID).or_else(|| port(attr::ICMPV6_ID));
    Some(FlowKey {
        source: address(attr::V4_SRC, attr::V6_SRC)?,
        destination: address(attr::V4_DST, attr::V6_DST)?,
        source_port: port(attr::SRC_PORT).or_else(id),
        destination_port: port(attr::DST_PORT).or_else(id),
        protocol: *attribute(protocol, attr::PROTO_NUM)?.first()?,
        ..FlowKey::default()
    })
}

/// The event of a message, if its connection is translated.
fn event(message: Message<'_>) -> Option<FlowRecord> {
    let is_new = match message.kind {
        NEW => true,
        DELETE => false,
        _ => return None,
    };
    let attributes = message.body.get(HEADER..)?;
    let tuple = |kind| key(attribute(attributes, kind)?);
    let (original, reply) = (tuple(attr::TUPLE_ORIG)?, tuple(attr::TUPLE_REPLY)?);
    let translation = Translation {
        source: reply.destination,
        destination: reply.source,
        source_port: reply.destination_port,
        destination_port: reply.source_port,
    };
    let FlowKey { source, destination, source_port, destination_port, .. } = original;
    if translation == (Translation { source, destination, source_port, destination_port }) {
        return None;
    }
    // With net.netfilter.nf_conntrack_timestamp the kernel tells the time of the event.
    let stamp = if is_new { attr::TIMESTAMP_START } else { attr::TIMESTAMP_STOP };
    let kernel_time = attribute(attributes, attr::TIMESTAMP)
        .and_then(|stamps| bytes_at(attribute(stamps, stamp)?, 0))
        .map(u64::from_be_bytes);
    let time =
        kernel_time.unwrap_or_else(|| UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64);
    let event = match (original.source, is_new) {
        (IpAddr::V4(_), true) => NatEvent::Nat44Create,
        (IpAddr::V4(_), false) => NatEvent::Nat44Delete,
        (IpAddr::V6(_), true) => NatEvent::Nat64Create,
        (IpAddr::V6(_), false) => NatEvent::Nat64Delete,
    };
    Some(FlowRecord {
        start: time,
        end: time,
        key: original,
        translation: Some(translation),
        nat_event: Some(event),
        ..FlowRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn events_that_find_the_queue_full_wait_in_order() {
        let (queue, received) = sync_channel(1);
        let event = |start| {
            let record = FlowRecord { start, ..FlowRecord::default() };
            PendingRecord { record, checkpoint: None, sequence: 0 }
        };
        let mut waiting = vec![event(0)];
        assert!(enqueue(&queue, &mut waiting));
        for start in 1..4 {
            waiting.push(event(start));
            assert!(!enqueue(&queue, &mut waiting));
        }
        let mut starts: Vec<u64> =
            received.recv().unwrap().iter().map(|one| one.record.start).collect();
        assert!(enqueue(&queue, &mut waiting) && waiting.is_empty());
        starts.extend(received.recv().unwrap().iter().map(|one| one.record.start));
        assert_eq!(starts, [0, 1, 2, 3]);
    }
}
