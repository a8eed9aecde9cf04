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

/// Keeps the calling thread on `cpu`, counted from 0. Threads that it starts afterwards inherit that.
///
/// # Errors
/// `EINVAL` for a CPU that the machine does not have or that this process may not use (`cpuset(7)`).
pub fn pin(cpu: usize) -> io::Result<()> {
    bind(None, cpu)
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
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_told_to_and_those_it_starts_too() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
            assert_eq!(std::thread::spawn(|| allowed().unwrap()).join().unwrap(), [last]);
        })
        .join()
        .unwrap();
        check_affinity(&before).unwrap();
        assert_eq!(check_affinity(&[last, usize::MAX, last]).unwrap_err().0, usize::MAX);
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn cpus_and_threads_that_there_are_not_are_refused() {
        for none in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            assert_eq!(pin(none).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        }
        for none in [0, i32::MAX.cast_unsigned(), u32::MAX] {
            let refused = pin_thread(none, 0).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
        }
    }
}
