//! [`Pins`]: what an instance leaves in bpffs, so that it outlives its daemon.
//!
//! ```text
//! /sys/fs/bpf/linerate/forward/INSTANCE/
//!     state                 a map with the record of the instance: `InstanceState`
//!     maps/NAME             every map of the programs
//!     programs/NAME         every program
//!     ports/IFINDEX/HOOK    the links of a port: xdp, ingress, egress
//!     others/NAME           additional objects of the instance
//! ```
//!
//! The links keep the programs on their interfaces. A new daemon finds them, their maps and the record, and
//! adopts them ([`Pins::open`]). Every change of the record or of a program is one rename, so that readers
//! find the old or the new one. A process that changes an instance holds its [`Lock`], which ends with the
//! process.

mod adopt;
mod bpffs;
mod detach;
mod lock;
mod namespace;
mod ports;
mod state;
mod sysctls;
mod upgrade;

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use linerate_bpf::link;
use linerate_bpf::map::create_array;

pub use bpffs::{BPFFS, is_bpffs};
use bpffs::{names, remove_directory, remove_file};
pub use lock::Lock;
pub use namespace::{Namespace, instance_name};
pub use state::{InstanceState, PinnedInstance, PortState};

use crate::maps::Maps;
use crate::runtime::program::Programs;
use crate::{Error, Result};

/// Directories of all instances, within the BPF file system.
const DIRECTORIES: [&str; 2] = ["linerate", "forward"];

/// The directory of an instance in bpffs, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    bpffs: PathBuf,
    directory: PathBuf,
    instance: String,
}

impl Pins {
    /// The pins of `instance` in the BPF file system mounted at [`BPFFS`].
    pub fn of(instance: &str) -> Self {
        Self::in_bpffs(Path::new(BPFFS), instance)
    }

    /// The pins of `instance` in the BPF file system mounted at `bpffs`.
    pub fn in_bpffs(bpffs: &Path, instance: &str) -> Self {
        let mut directory = bpffs.to_owned();
        directory.extend(DIRECTORIES);
        directory.push(instance);
        Self { bpffs: bpffs.to_owned(), directory, instance: instance.to_owned() }
    }

    /// The names of all instances in the BPF file system mounted at `bpffs`, in order.
    ///
    /// # Errors
    /// [`Error::System`] when the directory cannot be read. A missing one is not an error.
    pub fn instances(bpffs: &Path) -> Result<Vec<String>> {
        let directory = bpffs.join(DIRECTORIES.iter().collect::<PathBuf>());
        let mut names = names(&directory)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Name of the instance.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Checks that this process would see an instance.
    ///
    /// # Errors
    /// [`Error::Pin`] if no BPF file system is mounted at `bpffs` for this process, but one may be for others, as under
    /// `ip netns exec`.
    pub fn check_visible(bpffs: &Path) -> Result<()> {
        bpffs::check_visible(bpffs)
    }

    /// Whether the instance has pinned objects.
    pub fn exists(&self) -> bool {
        self.directory.join("state").exists()
    }

    /// Locks the instance for changes; creates its directory if there is none.
    ///
    /// # Errors
    /// [`Error::Running`] when another process has the lock; [`Error::Pin`] if no BPF file system is mounted, and none can be;
    /// [`Error::Privilege`], [`Error::System`].
    pub fn lock(&self) -> Result<Lock> {
        bpffs::ensure(&self.bpffs)?;
        lock::acquire(&self.directory)?.map_err(|holder| {
            // The record may still name the former process, whose PID may have been reused.
            let named = self.state().ok().map(|state| state.process);
            Error::Running {
                instance: self.instance.clone(),
                process: named.filter(|named| holder == Some(*named)).unwrap_or(0),
                holder,
            }
        })
    }

    /// Whether the instance is not locked. Its daemon holds the lock while it lives. False if that is
    /// unknown.
    pub fn is_free(&self) -> bool {
        lock::is_free(&self.directory)
    }

    /// The process of the daemon, if it can be seen, and whether it is ready. `None` if no process has the lock.
    pub fn daemon(&self) -> Option<(Option<u32>, bool)> {
        if self.is_free() {
            return None;
        }
        let state = self.state().ok();
        let is_ready = state.as_ref().is_none_or(|state| state.is_ready);
        let process = lock::holder_of(&self.directory).or(state.map(|state| state.process));
        Some((process, is_ready))
    }

    /// Pins new programs and their maps, and the record of their instance.
    ///
    /// # Errors
    /// [`Error::Pin`] when the instance has pinned objects: adopt or detach them first. [`Error::Bpf`],
    /// [`Error::System`]; what was pinned until then is removed again.
    pub fn create(&self, lock: &Lock, programs: &Programs, state: &InstanceState) -> Result<()> {
        if self.exists() {
            return Err(Error::Pin {
                path: self.directory.clone(),
                reason: "an instance of this name is there; adopt it or detach it".into(),
            });
        }
        // Remains of a process that was killed here, without a record. The directory itself stays: it is what
        // is locked.
        self.clear()?;
        let pin = || -> Result<()> {
            self.pin_programs(lock, programs)?;
            self.pin_maps(lock, &programs.maps)?;
            // Last: the instance exists when its record does.
            self.save_state(lock, state)
        };
        pin().inspect_err(|_| drop(self.clear()))
    }

    /// The record of the instance.
    ///
    /// # Errors
    /// [`Error::Pin`] if there is none, or it cannot be read.
    pub fn state(&self) -> Result<InstanceState> {
        self.state_if_any()?.ok_or_else(|| {
            if !is_bpffs(&self.bpffs) {
                return bpffs::not_mounted(&self.bpffs);
            }
            let instance = &self.instance;
            let reason =
                format!("there is no instance {instance}; `linerate forward run` starts it");
            Error::Pin { path: self.directory.join("state"), reason }
        })
    }

    /// The record of the instance; `None` if there is no instance.
    ///
    /// # Errors
    /// [`Error::Pin`], [`Error::Bpf`], [`Error::Privilege`], [`Error::System`] if it cannot be read.
    pub fn state_if_any(&self) -> Result<Option<InstanceState>> {
        let path = self.directory.join("state");
        let action = || format!("open {}", path.display());
        if !path.try_exists().map_err(|error| Error::system(action(), error))? {
            return Ok(None);
        }
        let map = match lock::check_owners(&self.directory) {
            // It was removed meanwhile.
            Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            checked => checked.map(|()| MapHandle::from_pinned_path(&path))?,
        };
        let map = match map {
            Ok(map) => map,
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::bpf(action(), &error)),
        };
        let text = map
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::bpf(format!("read {}", path.display()), &error))?
            .unwrap_or_default();
        let read = InstanceState::read(&text);
        read.map(Some).map_err(|reason| Error::Pin { path, reason })
    }

    /// Replaces the record by `state`.
    ///
    /// # Errors
    /// [`Error::Bpf`], [`Error::System`].
    pub fn save_state(&self, _lock: &Lock, state: &InstanceState) -> Result<()> {
        let text = state.write();
        let failed = |error| Error::bpf("keep the record of the instance", &error);
        let map = create_array("forward_state", text.len() as u32).map_err(failed)?;
        map.update(&0u32.to_ne_bytes(), &text, MapFlags::ANY).map_err(failed)?;
        self.put(map.as_fd(), &self.directory.join("state"))
    }

    /// Pins `object` (for instance a link of a program on a peer) with the instance, until the instance is
    /// detached. `name` has no dots.
    ///
    /// # Errors
    /// [`Error::Bpf`], [`Error::System`].
    pub fn pin_object(&self, _lock: &Lock, name: &str, object: BorrowedFd<'_>) -> Result<()> {
        let directory = bpffs::make(self.directory.join("others"))?;
        self.put(object, &directory.join(name))
    }

    /// The object pinned under `name`, if any.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn open_object(&self, name: &str) -> Result<Option<OwnedFd>> {
        let path = self.directory.join("others").join(name);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(link::open(&path)?))
    }

    fn pin_programs(&self, _lock: &Lock, programs: &Programs) -> Result<()> {
        let directory = bpffs::make(self.directory.join("programs"))?;
        programs.iter().try_for_each(|(name, program)| self.put(program, &directory.join(name)))
    }

    fn pin_maps(&self, _lock: &Lock, maps: &Maps) -> Result<()> {
        let directory = bpffs::make(self.directory.join("maps"))?;
        maps.iter().try_for_each(|(name, map)| self.put(map.as_fd(), &directory.join(name)))
    }

    /// Pins `object` at `path`, and replaces what is there.
    fn put(&self, object: BorrowedFd<'_>, path: &Path) -> Result<()> {
        let new = self.directory.join("new");
        match remove_file(&new) {
            Ok(()) => {}
            Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        link::pin(object, &new)?;
        fs::rename(&new, path)
            .map_err(|error| Error::system(format!("pin {}", path.display()), error))
    }

    /// Removes the content of the directory.
    fn clear(&self) -> Result<()> {
        // The record first: without it the instance does not exist.
        let state = self.directory.join("state");
        if state.exists() {
            remove_file(&state)?;
        }
        names(&self.directory)?.into_iter().try_for_each(|name| {
            let path = self.directory.join(name);
            if path.is_dir() { remove_directory(&path) } else { remove_file(&path) }
        })
    }
}
