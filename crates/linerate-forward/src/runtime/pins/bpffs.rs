//! The BPF file system: mounts it, lists and removes directories.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};

use crate::{Error, Result};

/// Where BPF file systems are mounted.
pub const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` in `linux/magic.h`.
const BPFFS_MAGIC: u32 = 0xcafe_4a11;

/// Sees to it that a BPF file system is mounted at `bpffs`: mounts one there, as iproute2 does.
///
/// # Errors
/// [`Error::Pin`].
pub(super) fn ensure(bpffs: &Path) -> Result<()> {
    if is_bpffs(bpffs) {
        return Ok(());
    }
    let reason = match mount_at(bpffs) {
        Ok(()) => {
            tracing::info!(at = %bpffs.display(), "mounted a BPF file system, which keeps the programs");
            return Ok(());
        }
        Err(reason) => reason,
    };
    Err(Error::Pin {
        path: bpffs.to_owned(),
        reason: format!(
            "no BPF file system is mounted there, which has to keep the programs, and {reason}; mount it with \
             `mount -t bpf -o mode=700 bpf {}`",
            bpffs.display()
        ),
    })
}

/// Whether a BPF file system is mounted at `path`.
pub fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type as u32 == BPFFS_MAGIC)
}

/// Fails if an instance may exist that this process cannot see: it has no BPF file system, and others may have one.
///
/// # Errors
/// [`Error::Pin`].
pub(super) fn check_visible(bpffs: &Path) -> Result<()> {
    if is_bpffs(bpffs) || !may_have_own_mounts() { Ok(()) } else { Err(not_mounted(bpffs)) }
}

/// The error where no BPF file system is mounted, so that no instance is visible.
pub(super) fn not_mounted(bpffs: &Path) -> Error {
    Error::Pin {
        path: bpffs.to_owned(),
        reason: "no BPF file system is mounted there for this process, so it sees no instance. `linerate forward run` \
                 mounts it. `ip netns exec` hides it: use `nsenter --net=/run/netns/NAME` instead, or name \
                 the instance outside of the namespace"
            .to_owned(),
    }
}

/// Whether this process has a mount namespace other than that of process 1, or cannot tell.
fn may_have_own_mounts() -> bool {
    let namespace = |process| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    namespace("self") != namespace("1")
}

/// Mounts one, or says why not. In a mount namespace of its own, as `ip netns exec` makes, it would end with the
/// process, and other commands would not find the instance.
fn mount_at(bpffs: &Path) -> std::result::Result<(), String> {
    if may_have_own_mounts() {
        return Err("this process has a mount namespace of its own, where none is mounted for it \
                    (`ip netns exec` does that: use `nsenter --net=/run/netns/NAME` instead)"
            .to_owned());
    }
    mount("bpf", bpffs, "bpf", MountFlags::empty(), c"mode=0700")
        .map_err(|error| format!("it cannot be mounted ({error})"))
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

/// Makes `directory` and those above it.
pub(super) fn make(directory: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&directory)
        .map_err(|error| Error::system(format!("make {}", directory.display()), error))?;
    Ok(directory)
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
