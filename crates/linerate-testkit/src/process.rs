//! [`Process`]: a program that runs beside a test.

use std::io::Read;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use serde_json::Value;

use crate::{Command, TIMEOUT};

/// A program that runs beside a test, and is killed when this value is dropped: with all of its process group, if it
/// is the leader of one ([`Command::own_group`]).
///
/// What it prints is read all the time, so that it never waits for a reader. Every method panics where the
/// program does not do what the test expects of it, and shows what it has printed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Receiver<(Stream, Vec<u8>)>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Stdout,
    Stderr,
}

impl Process {
    /// Starts a program, with its standard output and standard error piped to this process.
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::from(command.spawn().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed to standard error so far, as far as [`Process::until`] has read.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Waits until it has printed `text`, to standard output or standard error.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let contains = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
        while !contains(&self.stderr) && !contains(&self.stdout) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.keep(piece),
                Err(error) => panic!("it never printed {text:?} ({error}): {}", self.printed()),
            }
        }
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal)
            .unwrap_or_else(|error| panic!("{signal}: {error}: {}", self.printed()));
    }

    /// Waits until it ends by itself: its status, standard output and standard error.
    #[track_caller]
    pub fn wait(mut self) -> (ExitStatus, String, String) {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is ours to wait for") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.printed());
            if let Ok(piece) = self.output.recv_timeout(Duration::from_millis(5)) {
                self.keep(piece);
            }
        };
        // The pipes stay open where a program that it started has them, too.
        while let Ok(piece) = self.output.recv_timeout(Duration::from_secs(1)) {
            self.keep(piece);
        }
        (status, String::from_utf8_lossy(&self.stdout).into_owned(), self.stderr())
    }

    /// Sends it a signal and waits until it ends: its status, standard output and standard error.
    #[track_caller]
    pub fn end(self, signal: Signal) -> (ExitStatus, String, String) {
        self.signal(signal);
        self.wait()
    }

    /// Waits until it ends by itself, without a failure: its standard output as JSON, or null.
    #[track_caller]
    pub fn report(self) -> Value {
        let (status, stdout, stderr) = self.wait();
        assert!(status.success(), "{status}: {stderr}");
        serde_json::from_str(&stdout).unwrap_or(Value::Null)
    }

    /// Ends it as Ctrl-C does, which it must take for no failure: its standard output as JSON, or null.
    #[track_caller]
    pub fn stop(self) -> Value {
        self.signal(Signal::SIGINT);
        self.report()
    }

    /// Ends it as Ctrl-C does: its status, its standard output as JSON (or null), and its standard error.
    #[track_caller]
    pub fn interrupt(self) -> (ExitStatus, Value, String) {
        let (status, stdout, stderr) = self.end(Signal::SIGINT);
        (status, serde_json::from_str(&stdout).unwrap_or(Value::Null), stderr)
    }

    fn keep(&mut self, (stream, bytes): (Stream, Vec<u8>)) {
        match stream {
            Stream::Stdout => self.stdout.extend(bytes),
            Stream::Stderr => self.stderr.extend(bytes),
        }
    }

    /// What it has printed so far, for the message of a failure.
    fn printed(&self) -> String {
        [&self.stderr[..], &self.stdout].map(String::from_utf8_lossy).concat()
    }
}

/// Takes those pipes of the child that are there.
impl From<Child> for Process {
    fn from(mut child: Child) -> Self {
        let (sender, output) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            forward(pipe, Stream::Stdout, sender.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            forward(pipe, Stream::Stderr, sender);
        }
        Self { child, output, stdout: Vec::new(), stderr: Vec::new() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Until it has been waited for, nothing else gets its number.
        if let Ok(None) = self.child.try_wait() {
            let id = Pid::from_raw(self.child.id().cast_signed());
            if getpgid(Some(id)) == Ok(id) {
                let _ = killpg(id, Signal::SIGKILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end on a thread.
fn forward(
    mut pipe: impl Read + Send + 'static,
    stream: Stream,
    sender: Sender<(Stream, Vec<u8>)>,
) {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = pipe.read(&mut buffer) {
            if sender.send((stream, buffer[..len].to_vec())).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Namespace, root_or_skip, wait_for};

    #[test]
    fn a_group_ends_with_its_leader() {
        root_or_skip!();
        let namespace = Namespace::create("group").unwrap();
        let mut command = namespace.command("sh");
        command.args(["-c", "sleep 1000 & echo started; wait"]);
        let mut process = Process::start(command.own_group());
        process.until("started");
        let group = Pid::from_raw(process.id().cast_signed());
        assert_eq!(killpg(group, None), Ok(()));
        drop(process);
        wait_for("the end of the group", || killpg(group, None).is_err());
    }
}
