//! Who may read files of packets, and whose files are written: [`UserGroup`], [`create_own`].

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::str::FromStr;

use rustix::process::geteuid;

/// The mode of new files: as with dumpcap, only the owner reads packets.
pub const FILE_MODE: u32 = 0o600;

/// The user who has put something at this path, where that is neither this process, root nor the owner of the folder,
/// and every user may write into the folder.
pub fn foreign_owner(path: &Path) -> Option<u32> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).metadata().ok()?;
    let owner = path.symlink_metadata().ok()?.uid();
    let trusted = [0, geteuid().as_raw(), folder.uid()].contains(&owner);
    (folder.mode() & 0o002 != 0 && !trusted).then_some(owner)
}

/// Opens a file with these options, or creates it with [`FILE_MODE`]. In a folder where every user may write, files of
/// other users are refused, and their links not followed: the rules of `fs.protected_regular` and
/// `fs.protected_symlinks`, whether they are on or not.
///
/// # Errors
///
/// The kernel's, and [`io::ErrorKind::PermissionDenied`] with the user.
pub fn create_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if let Some(user) = foreign_owner(path) {
        let text = format!("it is of user {user}, in a folder where every user may write");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    // A link that appears from now on is not followed.
    let is_new = path.symlink_metadata().is_err();
    options.create(true).create_new(is_new).mode(FILE_MODE).open(path)
}

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
            let text = format!(
                "it cannot be given to group {} ({error}): its owner has to be a member of the group, or have CAP_CHOWN",
                self.0
            );
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
