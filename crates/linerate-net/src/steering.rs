//! [`Steering`]: whether the kernel moves what an interface receives to other CPUs (receive packet steering,
//! Documentation/networking/scaling.rst).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::Context;
use crate::{Result, link};

/// The sysfs of one network namespace.
#[derive(Debug)]
pub struct Steering(OwnedFd);

impl Steering {
    /// Of the network namespace of the calling thread. What is mounted at `/sys` may be of another one, so this makes a
    /// mount of its own, which nobody else sees. Without the privilege it takes `/sys`, if that has the interfaces of this
    /// namespace and no others: names, indices and addresses.
    ///
    /// # Errors
    /// [`crate::Error::Privilege`] without CAP_SYS_ADMIN, [`crate::Error::System`].
    pub fn open() -> Result<Self> {
        let open = || -> io::Result<OwnedFd> {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let flags = MountAttrFlags::MOUNT_ATTR_RDONLY;
            Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
        };
        let mounted = || is_of_this_namespace().then(|| File::open("/sys").ok().map(OwnedFd::from));
        let open = open().or_else(|error| mounted().flatten().ok_or(error));
        open.map(Self).context(|| "mount sysfs".into())
    }

    /// Whether a receive queue of this interface gives packets to other CPUs (`rps_cpus`).
    ///
    /// # Errors
    /// [`crate::Error::System`], also if there is no such interface.
    pub fn is_on(&self, interface: &str) -> Result<bool> {
        let path = format!("class/net/{interface}/queues");
        let read = || -> io::Result<bool> {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let queues = openat(&self.0, path.as_str(), flags | OFlags::DIRECTORY, Mode::empty())?;
            for queue in Dir::read_from(&queues)? {
                let queue = queue?;
                let Some(queue) =
                    queue.file_name().to_str().ok().filter(|name| name.starts_with("rx-"))
                else {
                    continue;
                };
                let file = format!("{queue}/rps_cpus");
                // Without RPS in the kernel there is none.
                let Ok(file) = openat(&queues, file.as_str(), flags, Mode::empty()) else {
                    continue;
                };
                let mut cpus = String::new();
                File::from(file).read_to_string(&mut cpus)?;
                if cpus.chars().any(|one| !matches!(one, '0' | ',' | '\n')) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        read().context(|| format!("read the packet steering of {interface}"))
    }
}

/// Whether `/sys` shows the interfaces of the calling thread's network namespace.
fn is_of_this_namespace() -> bool {
    let Ok(links) = link::all() else { return false };
    let folder = Path::new("/sys/class/net");
    let shown = fs::read_dir(folder).into_iter().flatten().flatten();
    // Others are settings, such as `bonding_masters`.
    let count = shown.filter(|entry| entry.path().is_dir()).count();
    count == links.len()
        && links.iter().all(|link| {
            let has = |file: &str, value: String| {
                let text = fs::read_to_string(folder.join(&link.name).join(file));
                text.is_ok_and(|text| text.trim_end() == value)
            };
            has("ifindex", link.index.to_string())
                && link.address.is_none_or(|address| has("address", address.to_string()))
        })
}
