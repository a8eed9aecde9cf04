//! tcpdump's printing, by the tcpdump that is installed: it reads the packets as a pcap file from a pipe.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

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
    /// Kept until the writer has opened the pipe.
    input: Option<ChildStdin>,
}

impl Decoder {
    /// Starts tcpdump with these options.
    ///
    /// # Errors
    ///
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
            // The JSON object is alone on standard output.
            command.stdout(std::io::stderr());
        }
        // A terminal's Ctrl-C ends the capture. tcpdump ends after the last packet that was captured.
        command.process_group(0);
        let mut child = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{} print through tcpdump, which is not installed; without them Linerate prints a line for each \
                 packet itself, and -w FILE writes them",
                options.join(", ")
            ),
            child => child.context("cannot run tcpdump")?,
        };
        let input = child.stdin.take();
        Ok(Self { child, input })
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

    /// Waits until all is printed; whether tcpdump succeeded.
    pub(super) fn finish(mut self) -> bool {
        self.input = None;
        match self.child.wait() {
            Ok(status) if status.success() => true,
            // Nobody reads the lines any more.
            Ok(status) if status.signal() == Some(Signal::SIGPIPE as i32) => true,
            Ok(status) => {
                stdio::eprintln(format_args!(
                    "linerate: tcpdump, which prints the packets: {status}"
                ));
                false
            }
            Err(error) => {
                stdio::eprintln(format_args!("linerate: cannot wait for tcpdump: {error}"));
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
