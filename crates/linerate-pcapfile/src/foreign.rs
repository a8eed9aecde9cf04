//! Files and links that other users have put into a folder such as `/tmp`, where every user may write (its sticky bit is
//! set). They are not written: the rules of `fs.protected_symlinks` and `fs.protected_regular` (proc_sys_fs(5)), whether
//! these are on or not.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::geteuid;

use crate::FILE_MODE;

/// Links that are followed at most, as by the kernel.
const MAX_LINKS: usize = 40;

/// The mode of a folder where every user may create files, and delete only their own.
const SHARED: u32 = 0o1002;

/// The owner of all files whose owner this user namespace does not have.
const OVERFLOW_USER: u32 = 65_534;

/// What is at a path.
pub(crate) enum Found {
    Nothing,
    Own,
    /// Something of another user, in a folder that every user may write.
    Foreign(u32),
}

/// Looks at a path, and at those that its links lead to. `own` is another user whose files are this process's.
pub(crate) fn look(path: &Path, own: Option<u32>) -> Found {
    let mut path = path.to_owned();
    for link in 0..MAX_LINKS {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let Ok(found) = path.symlink_metadata() else {
            return if link == 0 { Found::Nothing } else { Found::Own };
        };
        let (owner, user) = (found.uid(), geteuid().as_raw());
        if let Ok(folder) = folder.metadata()
            && folder.mode() & SHARED == SHARED
            && ![0, user, own.unwrap_or(user)].contains(&owner)
            && (owner != folder.uid() || owner == OVERFLOW_USER)
        {
            return Found::Foreign(owner);
        }
        match path.read_link() {
            Ok(target) => path = folder.join(target),
            Err(_) => break,
        }
    }
    Found::Own
}

/// Whether pipes of other users are written.
static FOREIGN_PIPES_ALLOWED: AtomicBool = AtomicBool::new(false);

/// Allows writing to pipes of other users: Wireshark creates the pipe, and may start this process as root.
pub fn allow_foreign_pipes() {
    FOREIGN_PIPES_ALLOWED.store(true, Relaxed);
}

/// Why a file or folder at this path is not written, or searched for files to delete.
///
/// # Errors
/// It is of another user, in a folder such as `/tmp`.
pub fn refuse_foreign(path: &Path) -> io::Result<()> {
    let is_pipe = path.symlink_metadata().is_ok_and(|found| found.file_type().is_fifo());
    match look(path, None) {
        Found::Foreign(user) if !(is_pipe && FOREIGN_PIPES_ALLOWED.load(Relaxed)) => {
            Err(refusal(user))
        }
        _ => Ok(()),
    }
}

fn refusal(user: u32) -> io::Error {
    io::Error::other(format!(
        "it is of user {user}, in a folder where every user may write; remove it, or choose another name"
    ))
}

/// Opens a file with these options, or creates it with [`FILE_MODE`].
///
/// # Errors
/// The kernel's, and those of [`refuse_foreign`].
pub fn create_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    loop {
        let is_new = match look(path, None) {
            Found::Foreign(user) => return Err(refusal(user)),
            // What appears from now on is not opened: it may be a link.
            Found::Nothing => true,
            Found::Own => false,
        };
        match options.create(true).create_new(is_new).mode(FILE_MODE).open(path) {
            Err(error) if is_new && error.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened,
        }
    }
}
