//! [`ConnectionTimeouts`]: gives connections the timeouts that they would have if conntrack had seen all packets.
//!
//! The program `refresh` looks the connections of sessions up and sets their timeouts (`bpf/refresh.bpf.c`). What no
//! program can do is left to ctnetlink: conntrack waits for the acknowledgement of data that it saw, and shortens the
//! timeout meanwhile. The acknowledgement may have taken the fast path. So it is told not to wait where a session is freed,
//! or handed back to the kernel.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_bpf::test_run::run_tc;
use linerate_net::netlink::{Protocol, Socket};
use zerocopy::{FromBytes, IntoBytes};

use crate::Result;
use crate::runtime::ctnetlink;
use crate::table::Table;
use crate::table::ageing::Timeouts;
use crate::table::clock::Clock;
use crate::table::layout::{Refresh, refresh};
use crate::table::session::LastUse;

/// Sets the timeouts of the connections of a table's sessions.
#[derive(Debug)]
pub(crate) struct ConnectionTimeouts {
    table: Arc<Table>,
    program: OwnedFd,
    /// `None` where the kernel has no connection tracking.
    socket: Option<Socket>,
    /// Sessions to refresh, and whether each is over.
    due: Vec<(Refresh, bool)>,
    has_failed: bool,
}

impl ConnectionTimeouts {
    /// With the program `refresh`, in the network namespace of the calling thread.
    pub(crate) fn new(table: Arc<Table>, program: OwnedFd) -> Self {
        let socket = Socket::open(Protocol::Netfilter).ok();
        Self { table, program, socket, due: Vec::new(), has_failed: false }
    }

    /// The netlink port of its changes; 0 if it makes none.
    pub(crate) fn port(&self) -> u32 {
        self.socket.as_ref().and_then(|socket| socket.port().ok()).unwrap_or(0)
    }

    /// Hands the connections of all sessions back to the kernel, which sees their packets by now.
    pub(crate) fn hand_back(&mut self, clock: &Clock) {
        let now = clock.sixteenths();
        for index in 0..self.table.slots() {
            let slot = self.table.slot(index);
            if slot.peek().is_some() && slot.is_tracked() {
                let idle = milliseconds(slot.last_use().idle(now)) | refresh::FORCED;
                self.due.push((Refresh { slot: index as u32, idle }, true));
            }
            if self.due.len() == refresh::ENTRIES {
                self.flush();
            }
        }
        self.flush();
    }

    fn run(&mut self, due: &[(Refresh, bool)]) -> Result<()> {
        let mut packet = vec![0; refresh::START];
        due.iter().for_each(|(entry, _)| packet.extend(entry.as_bytes()));
        run_tc(self.program.as_fd(), &mut packet)?;
        for (&(entry, ended), answer) in due.iter().zip(packet[refresh::START..].chunks_exact(8)) {
            let is_waiting = Refresh::read_from_bytes(answer)
                .is_ok_and(|answer| answer.idle & refresh::UNACKNOWLEDGED != 0);
            let slot = self.table.slot(entry.slot as usize);
            if is_waiting
                && ended
                && let (Some(socket), Some(stored)) = (&self.socket, slot.stored())
                && let Err(error) =
                    ctnetlink::acknowledge(socket, &stored.tuple(), stored.hop.zone as u16)
            {
                tracing::debug!(%error, "cannot tell conntrack that data was acknowledged");
            }
        }
        Ok(())
    }
}

impl Timeouts for ConnectionTimeouts {
    fn refresh(&mut self, slot: usize, idle: Duration, ended: bool) {
        self.due.push((Refresh { slot: slot as u32, idle: milliseconds(idle) }, ended));
        if self.due.len() == refresh::ENTRIES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let due = std::mem::take(&mut self.due);
        if due.is_empty() {
            return;
        }
        if let Err(error) = self.run(&due)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(%error, "cannot set the timeouts of connections");
        }
    }
}

/// At most the time since the ager noted the last packet, which it did in whole sixteenths of a second.
fn milliseconds(idle: Duration) -> u32 {
    let time = idle.saturating_sub(LastUse::UNIT).as_millis();
    u32::try_from(time).unwrap_or(refresh::IDLE).min(refresh::IDLE)
}
