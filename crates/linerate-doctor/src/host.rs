//! [`Host`]: what several checks ask.

use std::fs;
use std::path::Path;

use linerate_forward::runtime::preflight;
use linerate_net::Connection;
use linerate_net::cpu;
use linerate_net::link::{self, Link};
use linerate_net::packet_socket::{self, PacketSocket};
use linerate_net::process::Process;

use crate::Result;

/// The host as it is now.
pub(crate) struct Host {
    pub(crate) connection: Connection,
    pub(crate) links: Vec<Link>,
    /// CPUs that this process may use.
    pub(crate) allowed: Vec<usize>,
    /// CPUs that are online.
    pub(crate) online: Vec<usize>,
    /// Packet sockets that receive, with their processes.
    pub(crate) sockets: Vec<(PacketSocket, Vec<Process>)>,
}

impl Host {
    pub(crate) fn load() -> Result<Self> {
        let online = cpu::online();
        let sockets = packet_socket::all()?;
        let holders = packet_socket::processes_with_socket(&sockets);
        Ok(Self {
            connection: Connection::open()?,
            links: link::all()?,
            allowed: cpu::allowed().unwrap_or_else(|_| online.clone()),
            online,
            sockets: sockets.into_iter().zip(holders).collect(),
        })
    }

    /// What the preflight of `linerate forward` says of an interface, or of the host. Nothing is changed.
    pub(crate) fn preflight(
        &self,
        interface: Option<&Link>,
    ) -> std::result::Result<Vec<preflight::Finding>, String> {
        let options = preflight::Options { fix: false, ..preflight::Options::default() };
        let names: Vec<_> = interface.iter().map(|link| link.name.clone()).collect();
        let report = preflight::prepare(&names, &options).map_err(|error| error.to_string())?;
        Ok(report
            .findings
            .into_iter()
            .filter(|one| one.interface.is_some() == interface.is_some())
            .collect())
    }
}

/// A file's text without the end of its last line.
pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

/// A file with a number.
pub(crate) fn number(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// The folder of an interface in sysfs; `None` where sysfs shows another network namespace.
pub(crate) fn sysfs(link: &Link) -> Option<std::path::PathBuf> {
    let folder = Path::new("/sys/class/net").join(&link.name);
    (number(folder.join("ifindex")) == Some(link.index.into())).then_some(folder)
}
