//! Dropping privileges that a running capture does not need any more.

use linerate_net::privilege::{self, CapabilitySet};
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};

use crate::{Error, Result};

/// Drops all capabilities of the calling thread, permanently. Open sockets, rings and files keep working;
/// files of other users can no longer be opened.
pub fn drop_all() {
    keep(CapabilitySet::empty());
}

/// As [`drop_all`], for a thread that creates files later: root may still create them in directories of other users, and
/// give them to a group.
pub fn keep_file_access() {
    keep(CapabilitySet::DAC_OVERRIDE | CapabilitySet::CHOWN);
}

fn keep(wanted: CapabilitySet) {
    let kept = wanted.iter().filter(|one| privilege::has(*one)).collect();
    if let Err(error) = privilege::keep_only(kept) {
        tracing::warn!("cannot drop the capabilities of a thread: {error}");
    }
}

/// Whether there is this user.
///
/// # Errors
///
/// [`Error::User`].
pub fn check_user(user: &str) -> Result<()> {
    find_user(user).map(drop)
}

fn find_user(user: &str) -> Result<User> {
    let failed = |reason: String| Error::User { user: user.to_owned(), reason };
    let found = User::from_name(user).map_err(|error| failed(error.to_string()))?;
    found.ok_or_else(|| failed("there is no such user".to_owned()))
}

/// Changes the whole process to `user` and that user's groups, as tcpdump's `-Z` does. Sockets stay open;
/// new files belong to that user.
///
/// # Errors
///
/// [`Error::User`] when there is no such user, or the process may not change.
pub fn become_user(user: &str) -> Result<()> {
    let failed = |reason: String| Error::User { user: user.to_owned(), reason };
    let found = find_user(user)?;
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
