//! Giving up what a running capture needs no more.

use linerate_net::privilege::{self, CapabilitySet};
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};

use crate::{Error, Result};

/// Takes all capabilities from the calling thread, for good. Sockets, rings and open files go on
/// working; files of other users can no longer be opened.
pub fn drop_all() {
    if let Err(error) = privilege::keep_only(CapabilitySet::empty()) {
        tracing::warn!("cannot drop the capabilities of a thread: {error}");
    }
}

/// Makes the whole process one of `user` and of that user's groups, as tcpdump's `-Z` does. Sockets
/// stay open; files are made as that user from now on.
///
/// # Errors
///
/// [`Error::User`] when there is no such user, or the process may not change.
pub fn become_user(user: &str) -> Result<()> {
    let failed = |why: String| Error::User { user: user.to_owned(), why };
    let found = User::from_name(user)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed("there is no such user".to_owned()))?;
    let name = std::ffi::CString::new(user).map_err(|error| failed(error.to_string()))?;
    let change = |gid: Gid, uid: Uid| {
        initgroups(&name, gid)?;
        setgid(gid)?;
        setuid(uid)
    };
    change(found.gid, found.uid).map_err(|error| {
        failed(format!("{error}; only root, or a process with CAP_SETUID and CAP_SETGID, may"))
    })
}
