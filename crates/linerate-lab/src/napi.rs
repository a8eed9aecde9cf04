//! An interface whose received frames are worked off by a kernel thread (threaded NAPI), which can be
//! bound to a core and put into a control group, like the interrupt of a card.
//!
//! A veth otherwise works them off where they were sent: the far host's receiving would be paid for by
//! the sending program.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_netns::Namespace;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;

use crate::interrupt;

/// Gives the NAPI of `interface`, which must be on (through GRO), a thread, binds it to `core`, and
/// returns its process number.
///
/// # Errors
/// When the kernel is older than 5.17 (which tells a thread's whole name), or the interface has no NAPI.
pub fn to_thread(host: &Namespace, interface: &str, core: usize) -> Result<u32> {
    host.run(|| switch_on(interface))??;
    let mut pid = None;
    let found = || {
        pid = thread_of(interface);
        Ok(pid.is_some())
    };
    interrupt::wait_until("a NAPI thread", Duration::from_secs(2), found)
        .with_context(|| format!("{interface} has no NAPI, or the kernel no thread for it"))?;
    let pid = pid.with_context(|| format!("{interface} has no NAPI thread"))?;
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(pid.cast_signed()), &set))
        .with_context(|| format!("cannot bind the NAPI thread of {interface} to core {core}"))?;
    Ok(pid)
}

/// `/sys` shows the interfaces of the namespace that it was mounted in: this thread mounts one for
/// itself.
fn switch_on(interface: &str) -> Result<()> {
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, private, none))
        .and_then(|()| mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none))
        .context("cannot mount the namespace's /sys")?;
    let path = Path::new("/sys/class/net").join(interface).join("threaded");
    fs::write(&path, "1").with_context(|| {
        format!("cannot write 1 to {} (Linux 5.17 has what this takes)", path.display())
    })
}

/// The process number of the thread `napi/INTERFACE-NUMBER`.
fn thread_of(interface: &str) -> Option<u32> {
    let prefix = format!("napi/{interface}-");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(&prefix).then_some(pid)
    })
}
