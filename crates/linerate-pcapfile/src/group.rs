//! [`UserGroup`]: who may read files of packets, beside their owner.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::str::FromStr;

/// The mode of new files: as with dumpcap, only the owner reads packets.
pub const FILE_MODE: u32 = 0o600;

/// A group of users that may read packets, or flow records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserGroup(u32);

impl UserGroup {
    /// Lets the group read this file, or list and enter this folder.
    ///
    /// # Errors
    /// The kernel's, with what the process needs.
    pub fn share(self, file: &File) -> io::Result<()> {
        let mode = if file.metadata()?.is_dir() { 0o750 } else { 0o640 };
        let shared = fchown(file, None, Some(self.0))
            .and_then(|()| file.set_permissions(Permissions::from_mode(mode)));
        shared.map_err(|error| {
            let needed = match has_chown() {
                true => "",
                false => ": its owner has to be a member of the group, or have CAP_CHOWN",
            };
            let text = format!("it cannot be given to group {} ({error}){needed}", self.0);
            io::Error::new(error.kind(), text)
        })
    }
}

impl FromStr for UserGroup {
    type Err = String;

    /// A group by its name.
    fn from_str(name: &str) -> Result<Self, String> {
        match nix::unistd::Group::from_name(name) {
            Ok(Some(group)) => Ok(Self(group.gid.as_raw())),
            Ok(None) => Err(format!("there is no group {name}")),
            Err(errno) => Err(format!("groups cannot be read ({errno})")),
        }
    }
}

/// Whether this thread may give files to any group.
fn has_chown() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN))
}
