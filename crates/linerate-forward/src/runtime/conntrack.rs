//! Window tracking: conntrack must not call packets INVALID because it did not see earlier ones.
//!
//! It follows the sequence numbers of each TCP connection, and treats segments outside the window as invalid.
//! It does not see packets that the programs forward, so the window falls behind, and the first packet that
//! goes through the stack again (past the deadline, FIN, an ICMP error) would be outside.
//! `nf_conntrack_tcp_be_liberal` limits the check to RST segments; `nf_conntrack_tcp_ignore_invalid_rst`
//! disables that too: half of all sequence numbers are before the last one that it has seen, and a connection
//! transfers two gigabytes within seconds. Both are settings of a network namespace; nf_flowtable does the
//! same for each connection that it takes over.
//!
//! The window that conntrack knows does not catch up: packets outside of it do not update it. So the connections that are
//! open at the end get a flag of their own before the settings are restored.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use linerate_net::privilege;
use serde::{Deserialize, Serialize};

use crate::runtime::ctnetlink::set_be_liberal;
use crate::{Error, Result};

/// `Documentation/networking/nf_conntrack-sysctl.rst`. Of the network namespace of the thread.
const TCP_BE_LIBERAL: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
/// The same; since Linux 5.14.
const TCP_IGNORE_INVALID_RST: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_ignore_invalid_rst";

/// The settings before [`relax_tcp_tracking`]; `None` for one that the kernel lacks. Keep them while programs are
/// attached, and pass them to [`restore`] after the last was detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSysctls {
    /// `nf_conntrack_tcp_be_liberal`.
    pub liberal: Option<u8>,
    /// `nf_conntrack_tcp_ignore_invalid_rst`.
    #[serde(default)]
    pub resets: Option<u8>,
}

/// Whether the network namespace of this thread has connection tracking.
pub fn is_there() -> bool {
    Path::new(TCP_BE_LIBERAL).exists()
}

/// Turns on liberal window tracking in the network namespace of this thread. Returns what to restore; nothing
/// if the namespace has no connection tracking. Call it once when programs are attached, not when they are
/// adopted: a second call would find the first one's values.
///
/// # Errors
/// When a setting cannot be read or written: this needs CAP_NET_ADMIN and a writable `/proc/sys`. Then both
/// are unchanged.
pub fn relax_tcp_tracking() -> Result<SavedSysctls> {
    let liberal = turn_on(TCP_BE_LIBERAL)?;
    let resets = turn_on(TCP_IGNORE_INVALID_RST).inspect_err(|_| {
        let _ = restore_setting(TCP_BE_LIBERAL, liberal);
    })?;
    Ok(SavedSysctls { liberal, resets })
}

/// Exempts open TCP connections from window tracking, and restores the settings unless somebody has changed them since.
/// The first packet of a connection that returns from the fast path would be INVALID otherwise, and leave untranslated.
/// nf_flowtable does the same for its connections. A kernel without ctnetlink cannot exempt them, which is logged.
///
/// # Errors
/// As for [`restore_settings`].
pub fn restore(saved: SavedSysctls) -> Result<()> {
    let settings = [(TCP_BE_LIBERAL, saved.liberal), (TCP_IGNORE_INVALID_RST, saved.resets)];
    let changes = |(setting, saved)| saved == Some(0) && matches!(read(setting), Ok(1..));
    if settings.into_iter().any(changes) {
        match set_be_liberal() {
            Ok(connections) => {
                tracing::info!(connections, "open TCP connections are exempt from window tracking");
            }
            Err(error) => tracing::warn!(
                %error,
                "cannot exempt all open TCP connections from window tracking: translated ones may break now"
            ),
        }
    }
    restore_settings(saved)
}

/// Restores the settings, unless somebody has changed them since: after a start that failed, when no packet has taken the
/// fast path.
///
/// # Errors
/// As for [`relax_tcp_tracking`]; the other setting is restored nevertheless. A missing conntrack module is not an
/// error.
pub fn restore_settings(saved: SavedSysctls) -> Result<()> {
    restore_setting(TCP_BE_LIBERAL, saved.liberal)
        .and(restore_setting(TCP_IGNORE_INVALID_RST, saved.resets))
}

/// What it was.
fn turn_on(setting: &str) -> Result<Option<u8>> {
    let saved = match read(setting) {
        Ok(value) => value,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", setting, source)),
    };
    if saved == 0 {
        write(setting, 1)?;
        let name = setting.rsplit('/').next().unwrap_or_default();
        tracing::info!(
            "net.netfilter.{name} set to 1: window tracking does not see packets of the fast path; \
             detaching restores 0"
        );
    }
    Ok(Some(saved))
}

fn restore_setting(setting: &str, saved: Option<u8>) -> Result<()> {
    match (saved, read(setting)) {
        (None | Some(1..), _) | (_, Ok(0)) => Ok(()),
        (Some(0), Ok(_)) => write(setting, 0),
        (_, Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
        (_, Err(source)) => Err(failed("read", setting, source)),
    }
}

fn read(setting: &str) -> io::Result<u8> {
    let text = fs::read_to_string(setting)?;
    text.trim().parse().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn write(setting: &str, value: u8) -> Result<()> {
    fs::write(setting, value.to_string()).map_err(|source| failed("write", setting, source))
}

fn failed(what: &str, setting: &str, source: io::Error) -> Error {
    let action = format!("{what} {setting}");
    match source.kind() {
        ErrorKind::PermissionDenied if privilege::lacks("CAP_NET_ADMIN") => {
            Error::Privilege { action, capability: "CAP_NET_ADMIN" }
        }
        _ => Error::System { action, source },
    }
}

#[cfg(test)]
mod tests;
