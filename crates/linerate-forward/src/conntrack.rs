//! Window tracking: connection tracking must not call a connection INVALID because packets passed it by.
//!
//! It follows the sequence numbers of each TCP connection, and takes what lies beyond the window that it
//! has seen for forged. Packets that the programs forward are not seen, so the window stays behind, and
//! the first packet that goes through the stack again (past the deadline, FIN, an ICMP error) would lie
//! outside. `nf_conntrack_tcp_be_liberal` makes it complain of RST segments only. It belongs to a network
//! namespace; nf_flowtable does the same to each connection that it takes over.

use std::fs;
use std::io::{self, ErrorKind};

use crate::{Error, Result};

/// `Documentation/networking/nf_conntrack-sysctl.rst`. Of the network namespace of the thread.
const SETTING: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";

/// What the setting was before [`be_liberal`]: to be kept as long as programs are attached, and given
/// to [`restore`] after the last was detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former(pub u8);

/// Turns liberal window tracking on in the network namespace of this thread. The answer is what
/// to restore; `None` where the namespace has no connection tracking, and so no windows. Call it once for each
/// attaching and not for an adoption: a second call would find the first one's value.
///
/// # Errors
/// When the setting cannot be read or written: it takes CAP_NET_ADMIN, and a `/proc/sys` that is writable.
pub fn be_liberal() -> Result<Option<Former>> {
    let former = match read() {
        Ok(former) => former,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", source)),
    };
    if former == Former(0) {
        write(Former(1))?;
        tracing::info!(
            "net.netfilter.nf_conntrack_tcp_be_liberal set to 1: window tracking cannot follow what \
             is forwarded past it; detaching restores 0"
        );
    }
    Ok(Some(former))
}

/// Gives the setting its former value, unless somebody has changed it since.
///
/// # Errors
/// As for [`be_liberal`]. That connection tracking has gone is none.
pub fn restore(former: Former) -> Result<()> {
    match read() {
        Ok(Former(0)) => Ok(()),
        Ok(_) if former == Former(0) => write(former),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(failed("read", source)),
    }
}

fn read() -> io::Result<Former> {
    let text = fs::read_to_string(SETTING)?;
    text.trim().parse().map(Former).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn write(value: Former) -> Result<()> {
    fs::write(SETTING, value.0.to_string()).map_err(|source| failed("write", source))
}

fn failed(what: &str, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::Privilege { action: format!("{what} {SETTING}"), capability: "CAP_NET_ADMIN" }
        }
        _ => Error::System { action: format!("{what} {SETTING}"), source },
    }
}

#[cfg(test)]
mod tests {
    use linerate_netns::{Namespace, root_or_skip, say_skipped};

    use super::*;

    #[test]
    fn the_setting_is_restored_as_it_was() {
        root_or_skip!("the_setting_is_restored_as_it_was");
        let namespace = Namespace::create("liberal").expect("a namespace");
        let inside = || {
            let Some(former) = be_liberal().expect("set") else {
                say_skipped("the_setting_is_restored_as_it_was", "no connection tracking");
                return;
            };
            assert_eq!((former, read().expect("read")), (Former(0), Former(1)));
            restore(former).expect("restored");
            assert_eq!(read().expect("read"), Former(0));

            // Who had it on before keeps it.
            write(Former(1)).expect("written");
            let former = be_liberal().expect("set").expect("conntrack is there");
            restore(former).expect("restored");
            assert_eq!(read().expect("read"), Former(1));

            // Who turns it off meanwhile keeps that.
            write(Former(0)).expect("written");
            restore(Former(1)).expect("restored");
            assert_eq!(read().expect("read"), Former(0));
        };
        namespace.run(inside).expect("entered");
    }
}
