//! [`Pins`]: what an instance leaves in bpffs, so that it outlives its daemon.
//!
//! ```text
//! /sys/fs/bpf/linerate/forward/INSTANCE/
//!     state                 a map with the record of the instance: `InstanceState`
//!     maps/NAME             every map of the programs
//!     programs/NAME         every program
//!     ports/IFINDEX/HOOK    the links of a port: xdp, ingress, egress
//!     others/NAME           what else was pinned on the instance's behalf
//! ```
//!
//! The links keep the programs on their interfaces; a daemon that starts finds them, their maps and the
//! record, and goes on from there ([`Pins::open`]). Every change of the record or of a program is one rename,
//! so that whoever looks finds the old or the new. Whoever changes an instance holds its [`Lock`], which
//! ends with the process that took it.

pub(crate) mod clsact;
mod namespace;
mod state;
mod upgrade;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::ProgramAttachType;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo, TcxLinkInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use linerate_bpf::link::{self, Link};
use linerate_bpf::map::create_array;
use rustix::fs::{FlockOperation, flock, statfs};
use rustix::io::Errno;

pub use namespace::{Namespace, instance_name};
pub use state::{InstanceState, Pinned, PortState};
pub use upgrade::Upgrade;

use crate::maps::Maps;
use crate::runtime::conntrack;
use crate::runtime::program::{Port, PortOptions, Programs, Stack};
use crate::{Error, Result};

/// Where BPF file systems are mounted.
pub const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` in `linux/magic.h`.
const BPFFS_MAGIC: u32 = 0xcafe_4a11;
/// Directories of all instances, within the BPF file system.
const DIRECTORIES: [&str; 2] = ["linerate", "forward"];
/// How often the lock is asked for before somebody has it for good, and how long after each time: a quarter of a
/// second, in which a busy machine comes back to who only looks.
const LOCK_RETRIES: usize = 50;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Files of the links at the way out of the stack and at its entrance, of `learn` and `mark`.
const STACK: [&str; 2] = ["egress", "ingress"];

/// The directory of an instance in bpffs, there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    bpffs: PathBuf,
    directory: PathBuf,
    instance: String,
}

/// The right to change an instance; nobody else has it, and it ends with the process.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

impl Pins {
    /// Those of `instance` in the BPF file system mounted at [`BPFFS`].
    pub fn of(instance: &str) -> Self {
        Self::within(Path::new(BPFFS), instance)
    }

    /// Those of `instance` in the BPF file system mounted at `bpffs`.
    pub fn within(bpffs: &Path, instance: &str) -> Self {
        let mut directory = bpffs.to_owned();
        directory.extend(DIRECTORIES);
        directory.push(instance);
        Self { bpffs: bpffs.to_owned(), directory, instance: instance.to_owned() }
    }

    /// The names of all instances in the BPF file system mounted at `bpffs`, in order.
    ///
    /// # Errors
    /// [`Error::System`] when the directory cannot be read; that there is none is no error.
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

    /// Whether the instance has left something.
    pub fn exist(&self) -> bool {
        self.directory.join("state").exists()
    }

    /// Takes the right to change the instance, making its directory where there is none.
    ///
    /// # Errors
    /// [`Error::Running`] when another process has it; [`Error::Pin`] where no BPF file system is mounted;
    /// [`Error::Privilege`], [`Error::System`].
    pub fn lock(&self) -> Result<Lock> {
        self.check_bpffs()?;
        let action = || format!("make {}", self.directory.display());
        // Whoever removed the directory between our making and our locking it was the last to hold it.
        for attempt in 0..100 {
            fs::create_dir_all(&self.directory).map_err(|error| Error::system(action(), error))?;
            let directory = match File::open(&self.directory) {
                Ok(directory) => directory,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::system(action(), error)),
            };
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Who only looks (`is_free`) has it for an instant.
                Err(Errno::WOULDBLOCK) if attempt < LOCK_RETRIES => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL);
                    continue;
                }
                Err(Errno::WOULDBLOCK) => {
                    // The record may still name the one before, whose number may be anybody's by now.
                    let holder = holder(&directory);
                    let named = self.state().map_or(0, |state| state.process);
                    return Err(Error::Running {
                        instance: self.instance.clone(),
                        process: if holder == Some(named) { named } else { 0 },
                    });
                }
                Err(error) => {
                    let action = format!("lock {}", self.directory.display());
                    return Err(Error::system(action, error.into()));
                }
            }
            let number = |metadata: io::Result<fs::Metadata>| metadata.map(|one| one.ino()).ok();
            if number(directory.metadata()) == number(fs::metadata(&self.directory)) {
                return Ok(Lock { _directory: directory });
            }
        }
        Err(Error::Pin {
            path: self.directory.clone(),
            reason: "it is being made and removed by others all the time; try again".into(),
        })
    }

    /// Whether nobody has the right to change the instance, as its daemon has for as long as it lives. False
    /// where that cannot be told.
    pub fn is_free(&self) -> bool {
        let Ok(directory) = File::open(&self.directory) else { return false };
        flock(&directory, FlockOperation::NonBlockingLockShared).is_ok()
    }

    fn check_bpffs(&self) -> Result<()> {
        let is_bpffs = statfs(&self.bpffs).is_ok_and(|found| found.f_type as u32 == BPFFS_MAGIC);
        if is_bpffs {
            return Ok(());
        }
        Err(Error::Pin {
            path: self.bpffs.clone(),
            reason: format!(
                "no BPF file system is mounted there, which has to keep the programs; mount it with \
                 `mount -t bpf bpf {}` (`ip netns exec` hides it: use `nsenter --net=FILE` instead)",
                self.bpffs.display()
            ),
        })
    }

    /// Pins new programs and their maps, and the record of their instance.
    ///
    /// # Errors
    /// [`Error::Pin`] when the instance has left something: adopt or detach that first. [`Error::Ring`],
    /// [`Error::System`]; what was pinned by then is removed again.
    pub fn create(&self, lock: &Lock, programs: &Programs, state: &InstanceState) -> Result<()> {
        if self.exist() {
            return Err(Error::Pin {
                path: self.directory.clone(),
                reason: "an instance of this name is there; adopt it or detach it".into(),
            });
        }
        // Remains of somebody who was killed while doing this, without a record. The directory itself stays:
        // it is what is locked.
        self.clear()?;
        let pin = || -> Result<()> {
            self.pin_programs(lock, programs)?;
            self.pin_maps(lock, &programs.maps)?;
            // Last: with it the instance exists.
            self.save(lock, state)
        };
        pin().inspect_err(|_| drop(self.clear()))
    }

    /// The record of the instance.
    ///
    /// # Errors
    /// [`Error::Pin`] where there is none, or one that cannot be read.
    pub fn state(&self) -> Result<InstanceState> {
        let path = self.directory.join("state");
        let failed = |reason: String| Error::Pin { path: path.clone(), reason };
        let map = match MapHandle::from_pinned_path(&path) {
            Ok(map) => map,
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {
                return Err(failed(format!(
                    "there is no instance {}; `linerate forward run` starts it",
                    self.instance
                )));
            }
            Err(error) => return Err(Error::bpf(format!("open {}", path.display()), &error)),
        };
        let text = map
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::bpf(format!("read {}", path.display()), &error))?
            .unwrap_or_default();
        InstanceState::read(&text).map_err(failed)
    }

    /// Puts `state` in the place of the record that was there.
    ///
    /// # Errors
    /// [`Error::Ring`], [`Error::System`].
    pub fn save(&self, _lock: &Lock, state: &InstanceState) -> Result<()> {
        let text = state.write();
        let failed = |error| Error::bpf("keep the record of the instance", &error);
        let map = create_array("forward_state", text.len() as u32).map_err(failed)?;
        map.update(&0u32.to_ne_bytes(), &text, MapFlags::ANY).map_err(failed)?;
        self.put(map.as_fd(), &self.directory.join("state"))
    }

    /// Pins the links of a port, and enters the port in the record.
    ///
    /// # Errors
    /// [`Error::Ring`], [`Error::System`]; nothing of the port stays pinned.
    pub fn add_port(
        &self,
        lock: &Lock,
        state: &mut InstanceState,
        options: &PortOptions,
        port: &mut Port,
    ) -> Result<()> {
        let one = PortState::new(options, port);
        let directory = self.port(one.ifindex);
        fs::create_dir_all(&directory)
            .map_err(|error| Error::system(format!("make {}", directory.display()), error))?;
        let mut new = state.clone();
        new.ports.retain(|other| other.ifindex != one.ifindex);
        new.ports.push(one);
        let pin = || -> Result<()> {
            for stack in &port.stack {
                if let Stack::Tcx(link) = stack {
                    self.put(link.as_fd(), &directory.join(file_of(link)?))?;
                }
            }
            self.put(port.xdp.as_fd(), &directory.join("xdp"))?;
            self.save(lock, &new)
        };
        if let Err(error) = pin() {
            drop(remove_directory(&directory));
            return Err(error);
        }
        for stack in &mut port.stack {
            if let Stack::Clsact(filter) = stack {
                filter.keep();
            }
        }
        *state = new;
        Ok(())
    }

    /// Takes a port out of the record and its programs off the interface, which may be gone.
    ///
    /// # Errors
    /// [`Error::Ring`], [`Error::System`].
    pub fn remove_port(&self, lock: &Lock, state: &mut InstanceState, ifindex: u32) -> Result<()> {
        let Some(at) = state.ports.iter().position(|one| one.ifindex == ifindex) else {
            return Ok(());
        };
        self.detach_port(ifindex, state.ports[at].clsact)?;
        state.ports.remove(at);
        self.save(lock, state)
    }

    /// Keeps `object` (a link of a program on a peer, for instance) with the instance: it goes when the
    /// instance is detached. `name` has no dots.
    ///
    /// # Errors
    /// [`Error::Ring`], [`Error::System`].
    pub fn keep(&self, _lock: &Lock, name: &str, object: BorrowedFd<'_>) -> Result<()> {
        let directory = self.directory.join("others");
        fs::create_dir_all(&directory)
            .map_err(|error| Error::system(format!("make {}", directory.display()), error))?;
        self.put(object, &directory.join(name))
    }

    /// What was kept under `name`; `None` when nothing was.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn kept(&self, name: &str) -> Result<Option<OwnedFd>> {
        let path = self.directory.join("others").join(name);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(link::open(&path)?))
    }

    /// The maps of the instance: enough for who only looks.
    ///
    /// # Errors
    /// [`Error::Pin`] where the instance is not there or of another layout; [`Error::Privilege`],
    /// [`Error::System`].
    pub fn maps(&self) -> Result<Maps> {
        let state = self.state()?;
        state
            .check_layout()
            .map_err(|reason| Error::Pin { path: self.directory.clone(), reason })?;
        self.open_maps()
    }

    /// The program of the instance that has this name.
    ///
    /// # Errors
    /// [`Error::Ring`], also where the instance has none of this name.
    pub fn program(&self, name: &str) -> Result<OwnedFd> {
        Ok(link::open(&self.directory.join("programs").join(name))?)
    }

    fn open_maps(&self) -> Result<Maps> {
        let directory = self.directory.join("maps");
        let open = |name: String| -> Result<(String, MapHandle)> {
            let path = directory.join(&name);
            let map = MapHandle::from_pinned_path(&path)
                .map_err(|error| Error::bpf(format!("open {}", path.display()), &error))?;
            Ok((name, map))
        };
        names(&directory)?.into_iter().map(open).collect()
    }

    /// All that the instance left, whoever keeps it running: what a daemon that starts adopts.
    ///
    /// # Errors
    /// As [`Pins::maps`]; [`Error::Ring`].
    pub fn open(&self, _lock: &Lock) -> Result<Pinned> {
        let state = self.state()?;
        state
            .check_layout()
            .map_err(|reason| Error::Pin { path: self.directory.clone(), reason })?;
        let directory = self.directory.join("programs");
        let open = |name: String| -> Result<(String, OwnedFd)> {
            let program = link::open(&directory.join(&name))?;
            Ok((name, program))
        };
        let programs = names(&directory)?.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let programs = Programs::adopted(programs, self.open_maps()?);
        let mut pinned = Pinned { state, programs, ports: Vec::new(), gone: Vec::new() };
        for one in &pinned.state.ports {
            match self.open_port(one)? {
                Some(port) => pinned.ports.push((one.clone(), port)),
                None => pinned.gone.push(one.clone()),
            }
        }
        Ok(pinned)
    }

    /// The links of a port; `None` when its interface is gone.
    fn open_port(&self, one: &PortState) -> Result<Option<Port>> {
        let directory = self.port(one.ifindex);
        let xdp = directory.join("xdp");
        if !xdp.exists() || interface_of(&xdp)? == Some(0) {
            return Ok(None);
        }
        let mut stack = Vec::new();
        for file in STACK {
            let path = directory.join(file);
            if path.exists() {
                stack.push(Stack::Tcx(link::open(&path)?.into()));
            }
        }
        Ok(Some(Port {
            xdp: link::open(&xdp)?.into(),
            attach: one.attach(),
            generic_reason: one.generic_reason.clone(),
            stack,
        }))
    }

    /// Ends the instance: programs off their interfaces, the fast path first, former settings restored, and
    /// nothing left in bpffs. Takes it all off also where a part is of another version, or is gone.
    ///
    /// # Errors
    /// [`Error::Pin`] when the instance is of another network namespace that is still there: call it there.
    /// Otherwise the first of what failed; the rest is done all the same.
    pub fn detach(&self, lock: Lock) -> Result<()> {
        let state = self.state().ok();
        let here = Namespace::of_thread()?;
        let is_here = state.as_ref().is_none_or(|state| state.namespace == here);
        if !is_here && !self.are_all_gone()? {
            let namespace = state.map(|state| state.namespace.to_string()).unwrap_or_default();
            return Err(Error::Pin {
                path: self.directory.clone(),
                reason: format!(
                    "the instance is of network namespace {namespace}: detach it there"
                ),
            });
        }
        let mut first = Ok(());
        let mut keep = |result: Result<()>| {
            if let Err(error) = result {
                tracing::warn!(%error, "while detaching");
                if first.is_ok() {
                    first = Err(error);
                }
            }
        };
        for ifindex in names(&self.directory.join("ports"))? {
            let Ok(ifindex) = ifindex.parse() else { continue };
            let known = state.as_ref().and_then(|state| state.port(ifindex));
            let clsact = known.filter(|_| is_here).and_then(|one| one.clsact);
            keep(self.detach_port(ifindex, clsact));
        }
        let all = self.everybody();
        // Another instance of this namespace needs the settings still, and has their former values.
        if let Some(state) = state.filter(|_| is_here)
            && self.beside().next().is_none()
        {
            keep(conntrack::restore(state.windows));
        }
        keep(self.clear().and_then(|()| remove_directory(&self.directory)));
        drop(all);
        drop(lock);
        self.remove_parents();
        first
    }

    /// Pins as [`Pins::create`] does, with window tracking made liberal; `state` has the former settings then.
    ///
    /// # Errors
    /// As [`Pins::create`] and [`conntrack::be_liberal`].
    pub fn create_liberal(
        &self,
        lock: &Lock,
        programs: &Programs,
        state: &mut InstanceState,
    ) -> Result<()> {
        let _all = self.everybody()?;
        let now = conntrack::be_liberal()?;
        // Of instances in one namespace the last restores what the first has found.
        state.windows = self.beside().next().map_or(now, |other| other.windows);
        let created = self.create(lock, programs, state);
        if created.is_err() && self.beside().next().is_none() {
            conntrack::restore(now)?;
        }
        created
    }

    /// Has nobody else change the settings of a namespace meanwhile; waits for who does.
    fn everybody(&self) -> Result<File> {
        let directory = self.directory.parent().unwrap_or(&self.bpffs);
        let failed = |error| Error::system(format!("lock {}", directory.display()), error);
        let file = File::open(directory).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        Ok(file)
    }

    /// Records of the other instances in the network namespace of this thread.
    fn beside(&self) -> impl Iterator<Item = InstanceState> {
        let here = Namespace::of_thread().ok();
        let names = Self::instances(&self.bpffs).unwrap_or_default().into_iter();
        names
            .filter(|name| *name != self.instance)
            .filter_map(|name| Self::within(&self.bpffs, &name).state().ok())
            .filter(move |state| Some(state.namespace) == here)
    }

    /// Whether no link of the instance has an interface any more.
    fn are_all_gone(&self) -> Result<bool> {
        for ifindex in names(&self.directory.join("ports"))? {
            let xdp = self.directory.join("ports").join(ifindex).join("xdp");
            if xdp.exists() && interface_of(&xdp)?.is_none_or(|index| index != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn detach_port(&self, ifindex: u32, clsact: Option<bool>) -> Result<()> {
        let directory = self.port(ifindex);
        // The fast path first: what it forwarded last was learned by programs that are still there.
        for file in ["xdp", "ingress", "egress"] {
            let path = directory.join(file);
            if !path.exists() {
                continue;
            }
            // Others may hold the link; of an interface that is gone it is detached already.
            if let Err(error) = Link::from(link::open(&path)?).detach() {
                tracing::debug!(%error, path = %path.display(), "detach");
            }
            remove_file(&path)?;
        }
        if let Some(made) = clsact {
            clsact::remove(ifindex, made)?;
        }
        remove_directory(&directory)
    }

    fn pin_programs(&self, _lock: &Lock, programs: &Programs) -> Result<()> {
        let directory = self.directory.join("programs");
        fs::create_dir_all(&directory)
            .map_err(|error| Error::system(format!("make {}", directory.display()), error))?;
        programs.iter().try_for_each(|(name, program)| self.put(program, &directory.join(name)))
    }

    fn pin_maps(&self, _lock: &Lock, maps: &Maps) -> Result<()> {
        let directory = self.directory.join("maps");
        fs::create_dir_all(&directory)
            .map_err(|error| Error::system(format!("make {}", directory.display()), error))?;
        maps.iter().try_for_each(|(name, map)| self.put(map.as_fd(), &directory.join(name)))
    }

    /// Pins `object` as `path`, in place of what is there.
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

    fn port(&self, ifindex: u32) -> PathBuf {
        self.directory.join("ports").join(ifindex.to_string())
    }

    /// Removes all that is in the directory.
    fn clear(&self) -> Result<()> {
        // The record first: with it the instance ends.
        let state = self.directory.join("state");
        if state.exists() {
            remove_file(&state)?;
        }
        names(&self.directory)?.into_iter().try_for_each(|name| {
            let path = self.directory.join(name);
            if path.is_dir() { remove_directory(&path) } else { remove_file(&path) }
        })
    }

    /// The directories above, where no other instance is in them.
    fn remove_parents(&self) {
        for directory in self.directory.ancestors().skip(1).take(DIRECTORIES.len()) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
    }
}

/// The process that has the flock(2) of `file`, where `/proc/locks` tells it.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &inode))
}

/// Of a line of `/proc/locks` (proc_locks(5)) about this inode.
fn holder_in(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    let kind = words.nth(1)?;
    let process = words.nth(2)?;
    let file = words.next()?;
    let is_meant = kind == "FLOCK" && file.rsplit(':').next() == Some(inode);
    is_meant.then(|| process.parse().ok())?
}

/// The file that a link of the stack is pinned as.
fn file_of(link: &Link) -> Result<&'static str> {
    let info = LinkInfo::from_fd(link.as_fd())
        .map_err(|error| Error::bpf("ask for the hook of a link", &error))?;
    Ok(match info.info {
        LinkTypeInfo::Tcx(TcxLinkInfo { attach_type: ProgramAttachType::TcxIngress, .. }) => {
            STACK[1]
        }
        _ => STACK[0],
    })
}

/// The interface that the link pinned at `path` is on, 0 when it is gone; `None` for a link of another kind.
fn interface_of(path: &Path) -> Result<Option<u32>> {
    let failed = |error| Error::bpf(format!("open {}", path.display()), &error);
    let info = libbpf_rs::Link::open(path).and_then(|link| link.info()).map_err(failed)?;
    Ok(match info.info {
        LinkTypeInfo::Xdp(info) => Some(info.ifindex),
        LinkTypeInfo::Tcx(info) => Some(info.ifindex),
        _ => None,
    })
}

/// Names of what is in `directory`; none where it is not there.
fn names(directory: &Path) -> Result<Vec<String>> {
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

fn remove_file(path: &Path) -> Result<()> {
    fs::remove_file(path)
        .map_err(|error| Error::system(format!("remove {}", path.display()), error))
}

/// Removes `directory` with all that is in it; that it is not there is no error.
fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::system(format!("remove {}", directory.display()), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(holder(&file), None);
        flock(&file, FlockOperation::LockExclusive).unwrap();
        assert_eq!(holder(&file), Some(std::process::id()));
        // Somebody who waits is none, nor is who has a lock of another kind or of another file.
        for line in [
            "7: -> FLOCK  ADVISORY  WRITE 22719 fe:00:9980357 0 EOF",
            "8: POSIX  ADVISORY  WRITE 22719 fe:00:9980357 0 EOF",
            "9: FLOCK  ADVISORY  WRITE 22719 fe:00:19980357 0 EOF",
            "",
        ] {
            assert_eq!(holder_in(line, "9980357"), None, "{line}");
        }
        let line = "7: FLOCK  ADVISORY  WRITE 22719 00:1b:9980357 0 EOF";
        assert_eq!(holder_in(line, "9980357"), Some(22719));
    }
}
