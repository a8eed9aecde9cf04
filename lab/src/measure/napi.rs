//! An interface whose received frames are processed by a kernel thread (threaded NAPI), which can be
//! bound to a core and put into a control group, like the interrupt of a card.
//!
//! Otherwise a veth processes received frames on the sending CPU, and the sender is charged for it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_net::cpu;
use linerate_testkit::Namespace;

use crate::{interrupt, mounts};

/// How long a moderated interface waits before it polls again, and how often without a frame before it
/// re-enables its interrupt: 20 ms.
const INTERRUPT_MODERATION: [(&str, &str); 2] =
    [("gro_flush_timeout", "20000"), ("napi_defer_hard_irqs", "1000")];

/// Lets `interface` poll for frames every 20 µs while there are any, without an interrupt for each, as a
/// card's interrupt moderation does (Documentation/networking/napi.rst, "Software IRQ coalescing"). To wake
/// an idle core, of a virtual machine above all, costs the sender more than sending. It takes Linux 5.9.
pub(crate) fn defer_hard_irqs(host: &Namespace, interface: &str) -> Result<()> {
    host.run(|| set(interface, &INTERRUPT_MODERATION))?
}

/// Whether this process sees the kernel's threads. In a PID namespace of its own, as in a container, it does not.
pub(crate) fn are_threads_visible() -> bool {
    fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim_end() == "kthreadd")
}

/// Gives the NAPI of `interface`, which must be on (through GRO), a thread, binds it to `core`, and returns
/// its process number. It needs Linux 5.17, which reports a thread's whole name. `None`, and no thread, where the
/// kernel's threads cannot be seen and so not be bound: received frames are processed on the sending core.
pub(crate) fn enable_threaded(
    host: &Namespace,
    interface: &str,
    core: usize,
) -> Result<Option<u32>> {
    if !are_threads_visible() {
        return Ok(None);
    }
    host.run(|| set(interface, &[("threaded", "1")]))??;
    let mut pid = None;
    let found = || {
        pid = thread_of(interface);
        Ok(pid.is_some())
    };
    interrupt::wait_until("a NAPI thread", Duration::from_secs(2), found)
        .with_context(|| format!("{interface} has no NAPI, or the kernel no thread for it"))?;
    let pid = pid.with_context(|| format!("{interface} has no NAPI thread"))?;
    cpu::pin_thread(pid, core)
        .with_context(|| format!("cannot bind the NAPI thread of {interface} to core {core}"))?;
    Ok(Some(pid))
}

/// `/sys` shows the interfaces of the namespace that it was mounted in: this thread mounts one for
/// itself.
fn set(interface: &str, settings: &[(&str, &str)]) -> Result<()> {
    mounts::become_private()?;
    mounts::mount("sysfs", Path::new("/sys"), "")?;
    for (name, value) in settings {
        let path = Path::new("/sys/class/net").join(interface).join(name);
        fs::write(&path, value).with_context(|| {
            format!("cannot write {value} to {} (Linux 5.17 has what this takes)", path.display())
        })?;
    }
    Ok(())
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
