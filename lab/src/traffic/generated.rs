//! What is sent, and what the sender says it sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::measure::process::{Running, count};
use crate::programs::{self, words};
use crate::topology::pair::{Pair, SENDER};

/// Traffic of one measurement.
#[derive(Clone, Debug)]
pub(crate) enum Traffic {
    /// `linerate generate`.
    Generated {
        /// `--size`: bytes, a range or a list.
        size: String,
        frames: u64,
        /// Frames a second; `None` for as fast as it goes.
        rate: Option<u64>,
        /// Random addresses, ports and hardware addresses, as Trivelloni 2018 sets pktgen up (figure 6.5).
        random: bool,
        /// UDP sessions that the frames are of, one after the other; the generator's one if `None`.
        sessions: Option<Sessions>,
    },
    /// `linerate replay`.
    Replayed {
        file: PathBuf,
        loops: u64,
        /// Frames a second; `None` for as fast as it goes.
        rate: Option<u64>,
    },
}

/// The source of sessions, in the range of RFC 2544. The network is wide enough for the senders of a million.
pub(crate) const WEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Their destination.
pub(crate) const EAST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);

/// The same for IPv6 (RFC 5180), and its network.
pub(crate) const WEST_ADDRESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
pub(crate) const EAST_ADDRESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1);

/// The port of the west's first session, and that of the east.
const WEST_PORT: u64 = 1024;
const EAST_PORT: u64 = 9;

/// Source ports of one sender: sessions beyond that come from further addresses.
const PORTS: u64 = 50_000;

/// The exponent of Zipf's law.
pub(crate) const ZIPF: f64 = 1.1;

/// UDP sessions that frames are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sessions {
    pub(crate) count: u64,
    pub(crate) headers: Headers,
    pub(crate) order: Order,
}

/// Which session each frame belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Round robin.
    #[default]
    Turns,
    /// By Zipf's law with the exponent [`ZIPF`].
    Zipf,
    /// At random, with the same probability for each.
    Random,
}

/// The headers in front of UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Headers {
    #[default]
    Ipv4,
    Ipv6,
    /// IPv4 behind an 802.1Q tag of VLAN 0 (a priority tag): every Linux takes it off, with VLAN devices or without.
    Tagged,
}

impl Headers {
    /// The first address of the west, and the east's.
    pub(crate) fn ends(self) -> (IpAddr, IpAddr) {
        match self {
            Self::Ipv4 | Self::Tagged => (WEST_ADDRESS.into(), EAST_ADDRESS.into()),
            Self::Ipv6 => (WEST_ADDRESS6.into(), EAST_ADDRESS6.into()),
        }
    }
}

impl Sessions {
    /// This many of IPv4, one after the other.
    pub(crate) fn uniform(count: u64) -> Self {
        Self { count, headers: Headers::Ipv4, order: Order::Turns }
    }

    /// The same in random order.
    #[must_use]
    pub(crate) fn shuffled(self) -> Self {
        Self { order: Order::Random, ..self }
    }

    /// The arguments of `linerate generate` for what the west sends.
    pub(crate) fn words(self) -> Vec<String> {
        let (west, east) = self.headers.ends();
        let (last, ports, count) = (self.last_sender(), self.ports(), self.count);
        let mut all = words(&format!(
            "--udp --src {west}-{last} --dst {east} --sport {ports} --dport {EAST_PORT}"
        ));
        all.extend(words(&match self.order {
            Order::Turns => format!("--flows {count}"),
            Order::Zipf => format!("--flows {count} --zipf {ZIPF}"),
            Order::Random => "--random src,sport".to_owned(),
        }));
        if self.headers == Headers::Tagged {
            all.extend(words("--vlan 0"));
        }
        all
    }

    /// The same for what the east answers, to `translated` where the router stands for the west.
    pub(crate) fn answer_words(self, translated: Option<IpAddr>) -> Vec<String> {
        let (west, east) = self.headers.ends();
        let (last, ports, count) = (self.last_sender(), self.ports(), self.count);
        let asked = translated.map_or_else(|| format!("{west}-{last}"), |to| to.to_string());
        words(&format!(
            "--udp --src {east} --dst {asked} --sport {EAST_PORT} --dport {ports} --flows {count}"
        ))
    }

    fn last_sender(self) -> IpAddr {
        let more = self.count.div_ceil(PORTS).max(1) - 1;
        match self.headers.ends().0 {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + more as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(more)).into(),
        }
    }

    /// The ports of a sender.
    fn ports(self) -> String {
        format!("{WEST_PORT}-{}", WEST_PORT + PORTS.min(self.count.max(1)) - 1)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendReport {
    /// Frames that the sender tried.
    pub(crate) frames: u64,
    /// Frames of these that the far interface had no room for, as the sender counted.
    pub(crate) refused: u64,
    /// From the first frame to the last.
    pub(crate) seconds: f64,
}

impl SendReport {
    /// Out of what `linerate generate`, `replay` or `send` printed; `frames` is its name for them.
    pub(crate) fn read(report: &serde_json::Value, frames: &str) -> Result<Self> {
        Ok(Self {
            frames: count(report, frames)?,
            refused: count(report, "refused")?,
            seconds: report["seconds"].as_f64().context("the sender's report has no seconds")?,
        })
    }

    pub(crate) fn rate(&self) -> f64 {
        self.frames as f64 / self.seconds.max(1e-9)
    }
}

impl Traffic {
    /// 64-byte frames (without the frame check sequence), all of one flow.
    pub(crate) fn smallest(frames: u64, rate: Option<u64>) -> Self {
        Self::sized(64, frames, rate)
    }

    /// Frames of one size, all of one flow.
    pub(crate) fn sized(size: u32, frames: u64, rate: Option<u64>) -> Self {
        Self::Generated { size: size.to_string(), frames, rate, random: false, sessions: None }
    }

    /// The same frames, of these sessions.
    #[must_use]
    pub(crate) fn of_sessions(mut self, of: Sessions) -> Self {
        if let Self::Generated { sessions, .. } = &mut self {
            *sessions = Some(of);
        }
        self
    }

    /// The synthetic traffic of Trivelloni 2018, figure 6.5: 700 to 1500 bytes, everything else random.
    pub(crate) fn synthetic(frames: u64, rate: Option<u64>) -> Self {
        Self::Generated { size: "700-1500".into(), frames, rate, random: true, sessions: None }
    }

    /// Whether the receiving interface must have its NAPI on without an XDP program, which GRO does
    /// on a veth: live frames need it. Replayed TCP must not be coalesced, so there it is off.
    pub(crate) fn needs_napi(&self) -> bool {
        matches!(self, Self::Generated { .. })
    }

    /// Frames a second that were asked for; `None` for as fast as it goes.
    pub(crate) fn rate(&self) -> Option<u64> {
        let (Self::Generated { rate, .. } | Self::Replayed { rate, .. }) = self;
        *rate
    }

    /// Frames that are asked for, of a replayed trace one of each pass.
    pub(crate) fn frames(&self) -> u64 {
        match self {
            Self::Generated { frames, .. } => *frames,
            Self::Replayed { loops, .. } => *loops,
        }
    }

    /// Starts sending from the pair's sender, on the generator's core.
    pub(crate) fn start(&self, pair: &Pair) -> Result<Running> {
        let core = pair.cores.generator;
        let arguments = match self {
            Self::Generated { size, frames, rate, random, sessions } => {
                let mac = pair.cable.b.mac();
                let mut all = words(&format!(
                    "generate -i {SENDER} --json --quiet --size {size} --count {frames} --cpu {core} \
                     --dst-mac {mac}"
                ));
                if let Some(rate) = rate {
                    all.extend(words(&format!("--rate {rate}pps")));
                }
                if let Some(sessions) = sessions {
                    all.extend(sessions.words());
                }
                if *random {
                    all.extend(words(
                        "--random src,dst,sport,dport,mac,size \
                         --src 222.222.222.1-222.222.222.255 --dst 198.18.0.0/15",
                    ));
                }
                all
            }
            Self::Replayed { file, loops, rate } => {
                let speed = rate.map_or("--topspeed".to_owned(), |rate| format!("--pps {rate}"));
                let mut all =
                    words(&format!("replay -i {SENDER} --json --quiet --loop {loops} {speed}"));
                all.push(file.to_str().context("the trace's path is not UTF-8")?.to_owned());
                all
            }
        };
        let mut command = programs::linerate(&pair.sender, core, arguments)?;
        Running::start(self.sender(), &mut command)
    }

    /// Waits for the end of a sender, and reads what it says.
    pub(crate) fn finish(&self, sender: Running) -> Result<SendReport> {
        SendReport::read(&sender.wait(Duration::from_secs(1200))?.success()?.json()?, "sent")
    }

    pub(crate) fn send(&self, pair: &Pair) -> Result<SendReport> {
        self.finish(self.start(pair)?)
    }

    fn sender(&self) -> &'static str {
        match self {
            Self::Generated { .. } => "linerate generate",
            Self::Replayed { .. } => "linerate replay",
        }
    }
}
