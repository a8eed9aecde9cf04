//! A control group with a CPU limit, used to emulate a slower CPU.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{interrupt, mounts};

/// How often the kernel hands out the share (`cpu.max`, `cpu.cfs_period_us`). Short, so that a stopped
/// sender looks more like a slow one; the kernel's default is ten times this.
const PERIOD_US: u64 = 10_000;

/// How long a new kernel thread may take until it runs.
const MOVE_TIMEOUT: Duration = Duration::from_secs(5);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A control group with a limit of CPU time. Dropped, it is removed; what is still in it goes back to the
/// group above.
#[derive(Debug)]
pub struct CpuGroup {
    /// The group in each hierarchy that counts or limits CPU time: one in version 2, one or two in
    /// version 1.
    folders: Vec<PathBuf>,
    unified: bool,
}

impl CpuGroup {
    /// A group that has `share` of a core, 0.01 to 1.
    ///
    /// # Errors
    /// When the kernel has no CPU controller to give, or without root.
    pub fn create(share: f64) -> Result<Self> {
        let (unified, parents) = mounted()?;
        if parents.is_empty() {
            bail!(
                "no control group hierarchy has the CPU controller; mount one (mount -t cgroup2 none \
                 /sys/fs/cgroup)"
            );
        }
        if unified {
            // On already wherever systemd runs; groups below may have it from now on.
            write(&parents[0].join("cgroup.subtree_control"), "+cpu")?;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-lab-{}-{number}", std::process::id());
        let mut group = Self { folders: Vec::new(), unified };
        for parent in parents {
            let folder = parent.join(&name);
            fs::create_dir(&folder)
                .with_context(|| format!("cannot make the control group {}", folder.display()))?;
            group.folders.push(folder);
        }
        let quota = (share.clamp(0.01, 1.0) * PERIOD_US as f64).round() as u64;
        if unified {
            write(&group.folders[0].join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
        } else {
            write(&group.find("cpu.cfs_period_us")?, &PERIOD_US.to_string())?;
            write(&group.find("cpu.cfs_quota_us")?, &quota.to_string())?;
        }
        Ok(group)
    }

    /// Mounts the hierarchies with the CPU controllers where none is mounted, for this program and those that it
    /// starts.
    ///
    /// # Errors
    /// When they cannot be mounted.
    pub(crate) fn ensure_hierarchy() -> Result<()> {
        if !mounted()?.1.is_empty() {
            return Ok(());
        }
        let own = fs::read_to_string("/proc/self/cgroup").context("cannot read the groups")?;
        let top = Path::new("/sys/fs/cgroup");
        mounts::become_private()?;
        mounts::mount("tmpfs", top, "")?;
        for line in own.lines() {
            let controllers = line.split(':').nth(1).unwrap_or_default();
            let has_cpu = controllers.split(',').any(|one| matches!(one, "cpu" | "cpuacct"));
            if has_cpu || controllers.is_empty() {
                let at = top.join(if has_cpu { controllers } else { "unified" });
                fs::create_dir(&at)?;
                mounts::mount(if has_cpu { "cgroup" } else { "cgroup2" }, &at, controllers)?;
            }
        }
        Ok(())
    }

    /// Puts a process with all its threads, or a kernel thread, into it.
    ///
    /// # Errors
    /// When it is gone, or may not be moved.
    pub fn add(&self, pid: u32) -> Result<()> {
        let pid = pid.to_string();
        for folder in &self.folders {
            let path = folder.join("cgroup.procs");
            let moved = || match fs::write(&path, &pid) {
                // A kernel thread stays where it is until it has run for the first time.
                Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
                done => done
                    .map(|()| true)
                    .with_context(|| format!("cannot put process {pid} into {}", folder.display())),
            };
            interrupt::wait_until("a control group to take a process", MOVE_TIMEOUT, moved)?;
        }
        Ok(())
    }

    /// CPU time that everything in it has used, in user space and in the kernel.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn used(&self) -> Result<Duration> {
        if !self.unified {
            let path = self.find("cpuacct.usage")?;
            let text = fs::read_to_string(&path)?;
            let nanoseconds = text.trim().parse();
            return Ok(Duration::from_nanos(
                nanoseconds.with_context(|| format!("{} is not a number", path.display()))?,
            ));
        }
        let path = self.folders[0].join("cpu.stat");
        let text = fs::read_to_string(&path)?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        Ok(Duration::from_micros(
            used.with_context(|| format!("{} has no usage_usec", path.display()))?,
        ))
    }

    fn find(&self, file: &str) -> Result<PathBuf> {
        let paths = self.folders.iter().map(|folder| folder.join(file));
        paths.into_iter().find(|path| path.exists()).with_context(|| {
            format!("no control group has {file}: the kernel lacks CONFIG_CFS_BANDWIDTH or cpuacct")
        })
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // What is just ending can be neither moved nor removed.
            for _ in 0..100 {
                // A kernel thread is in it as long as its interface.
                let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
                if let Some(parent) = folder.parent() {
                    for pid in inside.lines() {
                        let _ = fs::write(parent.join("cgroup.procs"), pid);
                    }
                }
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

/// [`hierarchies`] of this host.
fn mounted() -> Result<(bool, Vec<PathBuf>)> {
    // Of the calling thread, which may have a mount namespace of its own.
    let mounts =
        fs::read_to_string("/proc/thread-self/mounts").context("cannot read the mounts")?;
    Ok(hierarchies(&mounts, |root| {
        let controllers = fs::read_to_string(root.join("cgroup.controllers"));
        controllers.is_ok_and(|list| list.split_whitespace().any(|word| word == "cpu"))
    }))
}

/// The roots of the hierarchies with the CPU controllers, and whether it is that of version 2, which
/// `has_cpu` is asked about.
fn hierarchies(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> (bool, Vec<PathBuf>) {
    let mut old = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(folder), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let folder = PathBuf::from(folder);
        match kind {
            "cgroup2" if has_cpu(&folder) => return (true, vec![folder]),
            "cgroup" if options.split(',').any(|word| matches!(word, "cpu" | "cpuacct")) => {
                old.push(folder);
            }
            _ => {}
        }
    }
    (false, old)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_hierarchy_with_the_controller_is_taken() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/cpuacct cgroup rw,relatime,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let old = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"];
        assert_eq!(hierarchies(mounts, |_| false), (false, paths(&old)));
        assert_eq!(hierarchies(mounts, |_| true), (true, paths(&["/sys/fs/cgroup/unified"])));
        assert_eq!(hierarchies("proc /proc proc rw 0 0\n", |_| true), (false, vec![]));
    }

    #[test]
    fn a_busy_program_gets_no_more_than_its_share_and_the_group_goes() {
        linerate_testkit::root_or_skip!();
        let group = match CpuGroup::create(0.2) {
            Ok(group) => group,
            Err(error) => {
                linerate_testkit::skip!(&format!("{error:#}"));
            }
        };
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let mut child = busy.spawn().unwrap();
        group.add(child.id()).unwrap();
        let (start, before) = (Instant::now(), group.used().unwrap());
        std::thread::sleep(Duration::from_millis(500));
        let (used, length) = (group.used().unwrap() - before, start.elapsed());
        child.kill().unwrap();
        child.wait().unwrap();
        // A quota a period, and what was left of one; the kernel may hand out a slice more.
        assert!(used > Duration::ZERO && used < length / 2, "{used:?} of {length:?}");
        let folders = group.folders.clone();
        drop(group);
        assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
    }
}
