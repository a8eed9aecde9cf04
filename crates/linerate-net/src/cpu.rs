//! On which CPUs a thread runs (sched_setaffinity(2)).

use std::io;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the calling thread may run on, counted from 0, in ascending order.
///
/// # Errors
/// When the query fails: with 1024 CPUs and more `EINVAL`.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// The CPUs that are online, counted from 0.
pub fn online() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_list(&text);
    if cpus.is_empty() { allowed().unwrap_or_else(|_| vec![0]) } else { cpus }
}

/// The NUMA node of `cpu`; `None` for a machine with one node.
pub fn node(cpu: usize) -> Option<u32> {
    let nodes = parse_list(&std::fs::read_to_string("/sys/devices/system/node/online").ok()?);
    let has_cpu = |node: &usize| {
        let path = format!("/sys/devices/system/node/node{node}/cpulist");
        std::fs::read_to_string(path).is_ok_and(|text| parse_list(&text).contains(&cpu))
    };
    let found = if nodes.len() > 1 { nodes.into_iter().find(has_cpu) } else { None };
    found.and_then(|node| u32::try_from(node).ok())
}

/// The numbers of a list as the kernel writes it, such as `0-3,8`; empty for anything else.
pub(crate) fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    ranges.unwrap_or_default().into_iter().flatten().collect()
}

/// Keeps the calling thread on `cpu`, counted from 0. Threads that it starts afterwards inherit that.
///
/// # Errors
/// `EINVAL` for a CPU that the machine does not have or that this process may not use (`cpuset(7)`).
pub fn pin(cpu: usize) -> io::Result<()> {
    bind(None, cpu)
}

/// Keeps the calling thread on these CPUs.
///
/// # Errors
/// As of [`pin`], if it may use none of them.
pub fn pin_to_any(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps the thread with the ID `thread` on `cpu`, counted from 0.
///
/// # Errors
/// As of [`pin`]; `ESRCH` if there is no such thread, `EPERM` for another user's.
pub fn pin_thread(thread: u32, cpu: usize) -> io::Result<()> {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    bind(Some(pid.ok_or(Errno::SRCH)?), cpu)
}

/// Whether the calling thread may stay on each of `cpus`; it stays on none.
///
/// # Errors
/// The first that is refused, and the error of [`pin`].
pub fn check_affinity(cpus: &[usize]) -> Result<(), (usize, io::Error)> {
    let Some(&first) = cpus.first() else { return Ok(()) };
    let before = sched_getaffinity(None).map_err(|errno| (first, errno.into()))?;
    let answer = cpus.iter().try_for_each(|&cpu| pin(cpu).map_err(|error| (cpu, error)));
    sched_setaffinity(None, &before).map_err(|errno| (first, errno.into()))?;
    answer
}

fn bind(thread: Option<Pid>, cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL.into());
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(thread, &one)?)
}

#[cfg(test)]
mod tests;
