//! The service manager's end of `NOTIFY_SOCKET`.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use linerate_testkit::{TIMEOUT, uninterrupted};

/// A service manager with its socket in a folder.
pub(crate) struct ServiceManager {
    /// The path of the socket.
    pub(crate) path: PathBuf,
    socket: UnixDatagram,
    /// The lines of all notifications.
    pub(crate) heard: String,
}

impl ServiceManager {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { path, socket, heard: String::new() }
    }

    /// Waits for a line that begins so.
    pub(crate) fn until(&mut self, word: &str) {
        let mut buffer = [0; 4096];
        while !self.heard.lines().any(|line| line.starts_with(word)) {
            let len = uninterrupted(|| self.socket.recv(&mut buffer));
            let len = len.unwrap_or_else(|error| panic!("no {word}: {error} after {}", self.heard));
            self.heard += std::str::from_utf8(&buffer[..len]).unwrap();
            self.heard.push('\n');
        }
    }
}
