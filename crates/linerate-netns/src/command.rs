//! [`Command`]: a program started inside a namespace.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{self, Child, ExitStatus, Output, Stdio};
use std::sync::Arc;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::namespace::Handle;
use crate::{Error, Result};

/// As [`std::process::Command`], but the child runs in a namespace, and optionally on chosen CPUs.
///
/// The child inherits both from the thread that starts it, so nothing runs between fork and exec.
#[derive(Debug)]
pub struct Command {
    inner: process::Command,
    namespace: Arc<Handle>,
    cpus: Vec<usize>,
}

impl Command {
    pub(crate) fn new(namespace: Arc<Handle>, program: &OsStr) -> Self {
        Self { inner: process::Command::new(program), namespace, cpus: Vec::new() }
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = S>) -> &mut Self {
        self.inner.args(arguments);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Sets the folder it runs in.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(directory);
        self
    }

    /// Binds the child and all its threads to these CPUs; unset leaves the choice to the scheduler.
    pub fn cpus(&mut self, cpus: impl IntoIterator<Item = usize>) -> &mut Self {
        self.cpus = cpus.into_iter().collect();
        self
    }

    /// Sets its standard input.
    pub fn stdin(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.inner.stdin(stdio);
        self
    }

    /// Sets its standard output.
    pub fn stdout(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.inner.stdout(stdio);
        self
    }

    /// Sets its standard error.
    pub fn stderr(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.inner.stderr(stdio);
        self
    }

    /// Puts the child into a process group of its own, so that a Ctrl-C at the terminal reaches
    /// only the caller, who then ends the child as it sees fit.
    pub fn own_group(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(&mut self.inner, 0);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the program is not there or may not run, or a CPU does not exist.
    pub fn spawn(&mut self) -> Result<Child> {
        self.inside(process::Command::spawn)
    }

    /// Runs it to its end and collects what it printed.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn output(&mut self) -> Result<Output> {
        self.inside(process::Command::output)
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn status(&mut self) -> Result<ExitStatus> {
        self.inside(process::Command::status)
    }

    fn inside<T: Send>(
        &mut self,
        start: impl FnOnce(&mut process::Command) -> std::io::Result<T> + Send,
    ) -> Result<T> {
        let Self { inner, namespace, cpus } = self;
        let started = namespace.run(|| {
            bind_thread(cpus)?;
            start(inner)
        })?;
        started.map_err(|source| Error::Spawn {
            program: inner.get_program().to_string_lossy().into_owned(),
            namespace: namespace.name.clone(),
            source,
        })
    }
}

fn bind_thread(cpus: &[usize]) -> std::io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|&cpu| set.set(cpu))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}
