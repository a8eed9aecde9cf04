//! The BPF file system: checks the mount, lists and removes directories.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::statfs;

use crate::{Error, Result};

/// Where BPF file systems are mounted.
pub const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` in `linux/magic.h`.
const BPFFS_MAGIC: u32 = 0xcafe_4a11;

/// Checks that a BPF file system is mounted at `bpffs`.
///
/// # Errors
/// [`Error::Pin`].
pub(super) fn check(bpffs: &Path) -> Result<()> {
    let is_bpffs = statfs(bpffs).is_ok_and(|found| found.f_type as u32 == BPFFS_MAGIC);
    if is_bpffs {
        return Ok(());
    }
    Err(Error::Pin {
        path: bpffs.to_owned(),
        reason: format!(
            "no BPF file system is mounted there, which has to keep the programs; mount it with \
             `mount -t bpf bpf {}` (`ip netns exec` hides it: use `nsenter --net=FILE` instead)",
            bpffs.display()
        ),
    })
}

/// Names in `directory`; none if it does not exist.
pub(super) fn names(directory: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::system(format!("list {}", directory.display()), error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).map_err(failed)
    };
    entries.map(name).collect()
}

pub(super) fn remove_file(path: &Path) -> Result<()> {
    fs::remove_file(path)
        .map_err(|error| Error::system(format!("remove {}", path.display()), error))
}

/// Removes `directory` recursively. A missing one is not an error.
pub(super) fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::system(format!("remove {}", directory.display()), error))
        }
        _ => Ok(()),
    }
}
