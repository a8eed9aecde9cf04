//! [`Command`]: a program started inside a namespace.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{self, Child, ExitStatus, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::{io, mem, thread};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
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
    killed_with_parent: bool,
}

impl Command {
    pub(crate) fn new(namespace: Arc<Handle>, program: &OsStr) -> Self {
        let inner = process::Command::new(program);
        Self { inner, namespace, cpus: Vec::new(), killed_with_parent: false }
    }

    pub(crate) fn killed_with_parent(namespace: Arc<Handle>, program: &OsStr) -> Self {
        let mut command = Self::new(namespace, OsStr::new("setpriv"));
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        Self { killed_with_parent: true, ..command }
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

    /// Puts the child into a new process group, so that Ctrl-C at the terminal reaches only the caller.
    pub fn own_group(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(&mut self.inner, 0);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the program is not there or may not run, or a CPU does not exist.
    pub fn spawn(&mut self) -> Result<Child> {
        if self.killed_with_parent {
            return self.spawn_killed_with_parent();
        }
        self.inside(process::Command::spawn)
    }

    /// What the kernel calls the death of the parent is the end of the thread that started the child
    /// (`prctl(2)`, PR_SET_PDEATHSIG), so that this thread has to stay as long as the child does.
    fn spawn_killed_with_parent(&mut self) -> Result<Child> {
        let mut inner = mem::replace(&mut self.inner, process::Command::new(""));
        let (namespace, cpus) = (self.namespace.clone(), self.cpus.clone());
        let (tell, told) = mpsc::sync_channel(1);
        let stay = move || {
            let started = namespace.enter().map(|()| {
                let started = bind_thread(&cpus).and_then(|()| inner.spawn());
                (inner, started)
            });
            let pid = match &started {
                Ok((_, Ok(child))) => Some(Pid::from_raw(child.id().cast_signed())),
                _ => None,
            };
            // An open namespace keeps its name: the owner must be able to remove it now.
            drop(namespace);
            let _ = tell.send(started);
            if let Some(pid) = pid {
                // Leaves the child for its owner to reap; an error means that this has happened.
                let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            }
        };
        let started = thread::Builder::new()
            .name("netns-child".into())
            .spawn(stay)
            .and_then(|_| told.recv().map_err(io::Error::other));
        let started = match started {
            Ok(started) => started.map(|(inner, started)| {
                self.inner = inner;
                started
            })?,
            Err(error) => Err(error),
        };
        started.map_err(|source| self.failed(source))
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
        start: impl FnOnce(&mut process::Command) -> io::Result<T> + Send,
    ) -> Result<T> {
        let Self { inner, namespace, cpus, .. } = self;
        let started = namespace.run(|| {
            bind_thread(cpus)?;
            start(inner)
        })?;
        started.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Spawn {
            program: self.inner.get_program().to_string_lossy().into_owned(),
            namespace: self.namespace.name.clone(),
            source,
        }
    }
}

fn bind_thread(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|&cpu| set.set(cpu))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}
