//! tcpdump's printing, by the tcpdump that is installed: it reads the packets as a pcap file from a pipe.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linerate_ring::poll;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::event::{PollFd, PollFlags};

use super::arguments::{Arguments, Precision};
use crate::cli::stdio;

/// The options of tcpdump that these arguments ask for; none where Linerate prints the lines itself.
pub(super) fn options(arguments: &Arguments) -> Vec<String> {
    let letters = [
        ('e', u8::from(arguments.link_header)),
        ('v', arguments.verbose),
        ('A', arguments.ascii),
        ('X', arguments.hex_ascii),
        ('x', arguments.hex),
        ('t', arguments.time_format),
    ];
    let given = letters.into_iter().filter(|(_, count)| *count > 0);
    given.map(|(letter, count)| format!("-{}", letter.to_string().repeat(count.into()))).collect()
}

/// A tcpdump that waits for packets.
#[derive(Debug)]
pub(super) struct Decoder {
    child: Child,
    /// The JSON object is alone on standard output: the lines go to standard error.
    to_stderr: bool,
    /// Kept until the writer has opened the pipe.
    input: Option<ChildStdin>,
}

impl Decoder {
    /// Starts tcpdump with these options.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn start(arguments: &Arguments, options: &[String]) -> Result<Self> {
        let mut command = Command::new("tcpdump");
        // Names are never looked up, and each line is printed at once.
        command.args(["-n", "-l"]).args(options);
        if arguments.time_stamp_precision == Some(Precision::Nano) {
            command.arg("--nano");
        }
        command.args(["-r", "-"]).stdin(Stdio::piped());
        if arguments.json {
            command.stdout(std::io::stderr());
        }
        // A terminal's Ctrl-C ends the capture. tcpdump ends after the last packet that was captured.
        command.process_group(0);
        // The terminal would stop it as one that writes from the background (`stty tostop`). It inherits the mask.
        let background = SigSet::from(Signal::SIGTTOU);
        let before = background.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let spawned = command.spawn();
        before?.thread_set_mask()?;
        let mut child = match spawned {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{} print through tcpdump, which is not installed; without them Linerate prints a line for each \
                 packet itself, and -w FILE writes them",
                options.join(", ")
            ),
            child => child.context("cannot run tcpdump")?,
        };
        let input = child.stdin.take();
        Ok(Self { child, to_stderr: arguments.json, input })
    }

    /// The pipe's name, until [`Decoder::opened`].
    pub(super) fn path(&self) -> PathBuf {
        let fd = self.input.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        PathBuf::from(format!("/proc/self/fd/{fd}"))
    }

    /// The writer has opened the pipe: when it closes it, tcpdump is at the end of the file.
    pub(super) fn opened(&mut self) {
        self.input = None;
    }

    /// Whether somebody can still read what it prints. The kernel reports an error on a pipe without a reader.
    fn is_read(&self) -> bool {
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let output = if self.to_stderr { stderr.as_fd() } else { stdout.as_fd() };
        let mut polled = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
        let _ = poll(&mut polled, Duration::ZERO);
        !polled[0].revents().contains(PollFlags::ERR)
    }

    /// Waits until all is printed; whether tcpdump succeeded.
    pub(super) fn finish(mut self) -> bool {
        self.input = None;
        match self.child.wait() {
            Ok(status) if status.success() => true,
            Ok(_) if !self.is_read() => true,
            Ok(status) => {
                stdio::warn(format_args!("tcpdump, which prints the packets: {status}"));
                false
            }
            Err(error) => {
                stdio::warn(format_args!("cannot wait for tcpdump: {error}"));
                false
            }
        }
    }
}

impl Drop for Decoder {
    /// Where the capture did not start; otherwise it has ended.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
