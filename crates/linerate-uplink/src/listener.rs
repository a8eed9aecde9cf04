//! [`Listener`]: a socket at a path, which goes with it.

use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Mode, chmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

/// Listens, without waiting.
pub(crate) struct Listener {
    listener: UnixListener,
    /// Device and inode of the socket.
    inode: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at `path`, for this user alone. A socket there to which nobody listens is replaced.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let listener = match open(path) {
            Err(error)
                if error.kind() == ErrorKind::AddrInUse
                    && path.symlink_metadata().is_ok_and(|there| there.file_type().is_socket())
                    && UnixStream::connect(path)
                        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) =>
            {
                fs::remove_file(path)?;
                open(path)?
            }
            opened => opened?,
        };
        Ok(Self { listener, inode: inode(path) })
    }
}

/// The socket has its mode before somebody can connect.
fn open(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    chmod(path, Mode::RUSR | Mode::WUSR)?;
    listen(&socket, 4)?;
    Ok(socket.into())
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl Deref for Listener {
    type Target = UnixListener;

    fn deref(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let address = self.listener.local_addr().ok();
        if let Some(path) = address.as_ref().and_then(SocketAddr::as_pathname)
            && self.inode == inode(path)
        {
            // Without privileges the folder may refuse it. Then the next uplink replaces the socket.
            let _ = fs::remove_file(path);
        }
    }
}
