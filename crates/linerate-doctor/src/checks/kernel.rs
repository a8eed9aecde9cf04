//! The kernel: types, the BPF file system, lockdown, the compiler of BPF programs, the clock.

use std::path::Path;

use linerate_forward::runtime::pins::{BPFFS, is_bpffs};
use linerate_net::privilege::{self, CapabilitySet};

use rustix::io::Errno;

use super::Answer;
use crate::context::Context;
use crate::host::read;
use crate::setting::{Change, chosen};

pub(super) fn btf(_: &Context<'_>) -> Vec<Answer> {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Answer::ok("the kernel describes its types").alone();
    }
    let what = "there is no /sys/kernel/btf/vmlinux: the sources trace and drops are unavailable, and \
                forward leaves tracked connections to the kernel";
    Answer::warning(what).by_hand("boot a kernel with CONFIG_DEBUG_INFO_BTF").alone()
}

pub(super) fn bpffs(_: &Context<'_>) -> Vec<Answer> {
    if is_bpffs(Path::new(BPFFS)) {
        return Answer::ok(format!("a BPF file system is at {BPFFS}")).alone();
    }
    Answer::fatal(format!("no BPF file system is at {BPFFS}")).change(Change::bpffs(BPFFS)).alone()
}

pub(super) fn lockdown(_: &Context<'_>) -> Vec<Answer> {
    const FOLDER: &str = "/sys/kernel/security";
    let text = read(Path::new(FOLDER).join("lockdown"));
    let is_mounted = std::fs::read_dir(FOLDER).is_ok_and(|mut entries| entries.next().is_some());
    lockdown_of(text, is_mounted).alone()
}

fn lockdown_of(text: Option<String>, is_mounted: bool) -> Answer {
    match text.map(chosen).as_deref() {
        Some("confidentiality") => Answer::warning(
            "lockdown is at confidentiality: tracing programs may not read the kernel's memory, so the \
             sources trace and drops do not work",
        )
        .by_hand("boot with lockdown=integrity"),
        Some(level) => Answer::ok(format!("lockdown is at {level}")),
        None if is_mounted => Answer::ok("the kernel has no lockdown"),
        None => Answer::unknown("securityfs is not mounted, or not readable")
            .by_hand("mount -t securityfs securityfs /sys/kernel/security"),
    }
}

pub(super) fn tracing(context: &Context<'_>) -> Vec<Answer> {
    if !context.options.attach {
        return Answer::unknown("not tried (--no-attach)").alone();
    }
    let tried = linerate_bpf::trace::probe().map_err(|error| error.to_string());
    let is_allowed = [CapabilitySet::BPF, CapabilitySet::PERFMON]
        .into_iter()
        .all(|one| privilege::has_any(one | CapabilitySet::SYS_ADMIN));
    tracing_of(tried, is_allowed).alone()
}

fn tracing_of(tried: Result<(), String>, is_allowed: bool) -> Answer {
    match tried {
        Ok(()) => Answer::ok("a program can trace a function of the kernel (fentry)"),
        Err(_) if !is_allowed => {
            Answer::unknown("it cannot be tried without CAP_BPF and CAP_PERFMON").by_hand("run it as root")
        }
        Err(error) if error.contains(&Errno::PERM.to_string()) => Answer::warning(error).by_hand(
            "a security module, or the host of this container or virtual machine, refuses tracing programs: allow them \
             there",
        ),
        Err(error) => Answer::warning(error).by_hand(
            "boot a kernel with CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER, on an architecture that has BPF \
             trampolines",
        ),
    }
}

pub(super) fn jit(_: &Context<'_>) -> Vec<Answer> {
    let setting = |name: &str| read(format!("/proc/sys/net/core/{name}"));
    jit_of(setting("bpf_jit_enable").as_deref(), setting("bpf_jit_harden").as_deref()).alone()
}

fn jit_of(enabled: Option<&str>, harden: Option<&str>) -> Answer {
    match (enabled, harden) {
        (Some("0"), _) => Answer::warning("BPF programs are interpreted (bpf_jit_enable is 0)")
            .change(Change::sysctl("net/core/bpf_jit_enable", 1)),
        (_, Some("2")) => Answer::warning(
            "the constants of all BPF programs are blinded (bpf_jit_harden is 2), which makes them longer",
        )
        .change(Change::sysctl("net/core/bpf_jit_harden", 1)),
        (Some(_), _) => Answer::ok("BPF programs are compiled"),
        (None, _) => Answer::unknown(
            "this network namespace does not show net.core.bpf_jit_enable, or the process may not read it",
        ),
    }
}

pub(super) fn clock(_: &Context<'_>) -> Vec<Answer> {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    clock_of(source.as_deref()).alone()
}

fn clock_of(source: Option<&str>) -> Answer {
    match source {
        // Registers of a device, which each reading of the clock waits for.
        Some(slow @ ("hpet" | "acpi_pm" | "pit" | "jiffies" | "refined-jiffies")) => {
            Answer::warning(format!("the clock source is {slow}")).by_hand(
                "see the kernel's log for why tsc is unstable: dmesg | grep -i clocksource",
            )
        }
        Some(source) => Answer::ok(format!("the clock source is {source}")),
        None => Answer::unknown("sysfs does not show the clock source"),
    }
}

#[cfg(test)]
mod tests;
