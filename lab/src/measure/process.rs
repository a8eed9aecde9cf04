//! A program that runs beside the experiment, and never outlives it: one made by
//! `linerate_testkit::Namespace::command_killed_with_parent` not even when this process is killed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linerate_testkit::Command;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::interrupt;

/// A started program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    child: Child,
    stdout: File,
    stderr: File,
    reaped: bool,
}

/// CPU seconds that a program and the children it waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cpu {
    /// In user space.
    pub(crate) user: f64,
    /// In the kernel on its behalf.
    pub(crate) system: f64,
}

/// The CPU time of a program that runs, to the nanosecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock(ClockId);

impl CpuClock {
    /// What all its threads have used so far, in user space and in the kernel.
    pub(crate) fn read(self) -> Result<Duration> {
        let time = clock_gettime(self.0).context("cannot read a program's CPU time")?;
        Ok(Duration::from(time))
    }
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// What it is called in messages.
    pub(crate) name: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) cpu: Cpu,
}

impl Running {
    /// Starts `command` in a process group of its own, its output kept in unnamed files.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let stdout = tempfile::tempfile().context("cannot make a file for a program's output")?;
        let stderr = tempfile::tempfile().context("cannot make a file for a program's output")?;
        let child = command
            .own_group()
            .stdin(std::process::Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()?;
        Ok(Self { name: name.to_owned(), child, stdout, stderr, reaped: false })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn clock(&self) -> Result<CpuClock> {
        clock_getcpuclockid(Pid::from_raw(self.child.id().cast_signed()))
            .map(CpuClock)
            .with_context(|| format!("{} has no CPU clock", self.name))
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal)
            .with_context(|| format!("cannot signal {}", self.name))
    }

    /// Fails if it has ended by itself, with its output.
    pub(crate) fn check(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            return Ok(());
        }
        self.reaped = true;
        let said = text(&mut self.stderr)?;
        bail!("{} ended early: {}", self.name, last_lines(&said));
    }

    /// Waits until `condition` holds; fails when the program ends before that, or after `limit`.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        interrupt::wait_until(what, limit, || {
            self.check()?;
            condition()
        })
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Finished> {
        let before = children();
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                self.reaped = true;
                break status;
            }
            if Instant::now() > deadline {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            // Rarely: who waits here may share the core that is measured.
            interrupt::sleep(Duration::from_millis(10))?;
        };
        let after = children();
        Ok(Finished {
            name: self.name.clone(),
            status,
            stdout: text(&mut self.stdout)?,
            stderr: text(&mut self.stderr)?,
            cpu: Cpu { user: after.user - before.user, system: after.system - before.system },
        })
    }

    /// Asks it to end as Ctrl-C does, and waits.
    pub(crate) fn stop(self, limit: Duration) -> Result<Finished> {
        self.signal(Signal::SIGINT)?;
        self.wait(limit)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Finished {
    /// Itself, if it succeeded; otherwise an error with its output.
    pub(crate) fn success(self) -> Result<Self> {
        if !self.status.success() {
            bail!("{} failed ({}): {}", self.name, self.status, last_lines(&self.stderr));
        }
        Ok(self)
    }

    /// The JSON object that it printed last.
    pub(crate) fn json(&self) -> Result<serde_json::Value> {
        let start = self.stdout.find('{').with_context(|| {
            format!("{} printed no JSON object: {}", self.name, last_lines(&self.stderr))
        })?;
        serde_json::from_str(self.stdout[start..].trim())
            .with_context(|| format!("{} printed JSON that cannot be read", self.name))
    }
}

/// A count out of a JSON object.
pub(crate) fn count(value: &serde_json::Value, key: &str) -> Result<u64> {
    value[key].as_u64().with_context(|| format!("no count {key:?} in {value}"))
}

/// What all children together have used that were waited for: the difference over one wait is what
/// that child used, to the microsecond.
fn children() -> Cpu {
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or_else(
        |_| Cpu::default(),
        |usage| Cpu { user: seconds(usage.user_time()), system: seconds(usage.system_time()) },
    )
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines[lines.len().saturating_sub(6)..].join("\n  ")
}
