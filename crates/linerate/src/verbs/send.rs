//! `linerate send`: UDP messages, the counterpart of `linerate receive`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use linerate_capture::privilege;
use linerate_generate::{Rate, Sizes};
use linerate_udp::pattern::PayloadPattern;
use linerate_udp::{MAX_MESSAGE_SIZE, Sender, SenderOptions};
use linerate_wire::ethernet::Address;
use serde::Serialize;

use super::receive::batch;
use crate::cli::as_usage_error;
use crate::cli::json::{self, Schema};
use crate::cli::progress::scaled;
use crate::cli::signals::Signals;
use crate::cli::stdio;
use crate::cli::stdio::plural;
use crate::cli::values::{duration, endpoint, parse_known};

/// How often a sender that waits for its turn checks whether it is to end.
const MAX_WAIT: Duration = Duration::from_millis(50);
/// How long frames may take to leave at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Arguments of `linerate send`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Where to, as 10.0.0.2:7000 or [ff15::1]:7000.
    #[arg(value_name = "ADDRESS:PORT", value_parser = endpoint)]
    to: SocketAddr,

    /// Address and port to send from [default: the kernel's choice].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = endpoint)]
    from: Option<SocketAddr>,

    /// Messages to send; without end if neither this nor --for is given.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this time, as 10s, 500ms or 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,

    /// Bytes of a message: a length, a range as 20-76, or a list as 64,64,1400.
    #[arg(short, long, default_value = "64", value_parser = sizes)]
    size: Sizes,

    /// Speed: max, messages a second as 450k, or bits of payload a second as 2Gbps.
    #[arg(short, long, default_value = "max")]
    rate: Rate,

    /// Messages handed to the kernel at once, at most. With --rate no more than what is due in 100 µs.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = batch)]
    batch: usize,

    /// Payload: sequence (LNRT and the message's number), time (and the nanoseconds of CLOCK_MONOTONIC),
    /// counted (and bytes that count up) [default: sequence; zeroes in messages below 12 bytes].
    #[arg(long, value_name = "PATTERN",
        value_parser = parse_known::<PayloadPattern>(["sequence", "time", "counted"]))]
    pattern: Option<PayloadPattern>,

    /// Hand over every message by itself, without segmentation by the kernel (UDP_SEGMENT).
    #[arg(long)]
    no_offload: bool,

    /// Send frames through an AF_XDP socket of this interface, past the stack, segmented by Linerate.
    #[arg(long, value_name = "IFACE")]
    xdp: Option<String>,

    /// Hardware address that frames go to [default: that of the next hop, which the kernel resolves].
    #[arg(long, value_name = "MAC", requires = "xdp")]
    next_hop: Option<Address>,

    /// One JSON object on standard output at the end.
    #[arg(long)]
    json: bool,

    /// No summary.
    #[arg(short, long)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Messages of one size are handed to the kernel together (UDP_SEGMENT), up to 64 at a time. Where it cannot \
segment them they are sent again one by one, and later ones go alone: none is lost.

Examples:
  linerate send 10.0.0.2:7000 --count 1000000
  linerate send 239.1.1.1:7000 --from 10.0.0.1:0 -s 20-76 --rate 100k --for 10s
  linerate send 10.0.0.2:7000 --xdp eth1
  linerate send [fd00::2]:7000 --xdp eth1 --next-hop 02:00:00:00:00:02";

/// Lengths that a UDP message can have.
fn sizes(text: &str) -> Result<Sizes, String> {
    let too_long =
        |part: &str| part.trim().parse::<u64>().is_ok_and(|size| size > MAX_MESSAGE_SIZE as u64);
    if let Some(size) = text.split([',', '-']).find(|part| too_long(part)) {
        return Err(format!(
            "a message of {size} bytes: a UDP message has at most {MAX_MESSAGE_SIZE}"
        ));
    }
    text.parse::<Sizes>().map_err(|error| error.to_string())
}

#[derive(Debug, Serialize)]
struct Report {
    messages: u64,
    bytes: u64,
    refused: u64,
    resent: u64,
    unreachable: u64,
    calls: u64,
    seconds: f64,
    messages_per_second: f64,
    why: Option<String>,
}

/// Sends, and reports.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.check().map_err(as_usage_error)?;
    let signals = Signals::register()?;
    let mut sender = arguments.open()?;
    privilege::drop_all();
    signals.drop_privileges();
    let start = Instant::now();
    let answer = arguments.send(&mut sender, &signals, start);
    let sent = sender.statistics();
    let seconds = start.elapsed().as_secs_f64();
    let report = Report {
        messages: sent.messages,
        bytes: sent.bytes,
        refused: sent.refused,
        resent: sent.unsegmented,
        unreachable: sent.unreachable,
        calls: sent.syscalls,
        seconds,
        messages_per_second: sent.messages as f64 / seconds.max(1e-9),
        why: sender.fallback_reason().map(str::to_owned),
    };
    if !arguments.quiet {
        stdio::eprintln(format_args!(
            "{} in {seconds:.3} s, {}; {} refused, {} sent again one by one",
            plural(report.messages, "message"),
            scaled(report.messages_per_second, "msg/s"),
            report.refused,
            report.resent
        ));
        if report.unreachable > 0 {
            stdio::eprintln(format_args!(
                "linerate: {} from {}: no socket listens there (the kernel limits their rate)",
                plural(report.unreachable, "ICMP error"),
                arguments.to
            ));
        }
        if let Some(why) = &report.why {
            stdio::eprintln(format_args!("linerate: {why}"));
        }
    }
    if arguments.json {
        json::print(Schema::Send, &report)?;
    }
    answer.map(|()| ExitCode::SUCCESS)
}

impl Arguments {
    /// Refuses a destination without a port, and messages that are too short for the pattern.
    pub(crate) fn check(&self) -> Result<()> {
        if self.to.port() == 0 {
            anyhow::bail!("{} is not an address and port to send to: port 0 is reserved", self.to);
        }
        let Some(pattern) = self.pattern else { return Ok(()) };
        let (shortest, least) = (usize::from(self.size.min()), pattern.min_len());
        if shortest < least {
            anyhow::bail!(
                "a message of {shortest} bytes has no room for the pattern, which takes {least}"
            );
        }
        Ok(())
    }

    fn open(&self) -> Result<Sender> {
        Ok(Sender::open(SenderOptions {
            from: self.from,
            batch: self.batch,
            message_size: self.size.max().into(),
            gso: !self.no_offload,
            rate: self.rate.packets(self.size.mean().max(1.0)),
            interface: self.xdp.clone(),
            next_hop: self.next_hop,
            ..SenderOptions::new(self.to)
        })?)
    }

    fn send(&self, sender: &mut Sender, signals: &Signals, start: Instant) -> Result<()> {
        let count = self.count.unwrap_or(u64::MAX);
        let (batch, pattern) = (sender.batch() as u64, self.pattern.unwrap_or_default());
        for number in 0..count {
            if number.is_multiple_of(batch) && !self.turn(sender, signals, start)? {
                break;
            }
            let payload = sender.message(self.len(number))?;
            pattern.write(number, payload);
        }
        if !sender.drain(DRAIN_TIMEOUT)? {
            anyhow::bail!(
                "the device did not take all frames within {} seconds",
                DRAIN_TIMEOUT.as_secs()
            );
        }
        Ok(())
    }

    /// Waits until another batch may begin; false when it is time to end.
    fn turn(&self, sender: &mut Sender, signals: &Signals, start: Instant) -> Result<bool> {
        // Centuries are without end.
        let end = self.time.and_then(|time| start.checked_add(time));
        loop {
            let now = Instant::now();
            if signals.is_stopped() || end.is_some_and(|end| now >= end) {
                return Ok(false);
            }
            let next = now + MAX_WAIT;
            if sender.wait_until_due(Some(end.map_or(next, |end| next.min(end))))? {
                return Ok(true);
            }
        }
    }

    /// The length of message `number`.
    fn len(&self, number: u64) -> usize {
        match &self.size {
            Sizes::Fixed(size) => usize::from(*size),
            Sizes::Range(min, max) => {
                usize::from(*min) + (number % (u64::from(max - min) + 1)) as usize
            }
            Sizes::Mix(sizes) => usize::from(sizes[(number % sizes.len() as u64) as usize]),
        }
    }
}
