//! Two hosts and a router between them: what the `forward-*` experiments measure on.
//!
//! ```text
//!   west (out0) --veth-- (left) router (right) --veth-- (in0) east
//! ```
//!
//! A veth processes its frames on the core that sent them, so the whole topology runs on the generator's
//! core, and a stage's cost is one over the rate with it less one over the rate without it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linerate_testkit::{Namespace, Veth, VethOptions};

use crate::baseline::forward_fib;
use crate::interrupt;
use crate::measure::conntrack::ConntrackRoom;
use crate::measure::cores::Cores;
use crate::measure::napi;
use crate::measure::process::{Running, count};
use crate::programs;
use crate::topology::pair::{Pair, SENDER};
use crate::traffic::generated::{EAST_ADDRESS, Headers, Order, SendReport, Sessions, WEST_ADDRESS};

/// The router's interface towards the west.
pub(crate) const LEFT_INTERFACE: &str = "left";
/// The router's interface towards the east.
pub(crate) const RIGHT_INTERFACE: &str = "right";
/// The interface of the eastern host.
pub(crate) const EAST_INTERFACE: &str = "in0";

/// Where the router is on the hosts' networks.
const LEFT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);
const RIGHT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
const LEFT_ADDRESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0xfffe);
const RIGHT_ADDRESS6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 0xfffe);

/// Where the eastern host's servers listen.
fn server(number: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(EAST_ADDRESS, 5001 + number))
}

/// How long hosts talk before a measurement, at this many frames a second.
pub(crate) const TALK: Duration = Duration::from_secs(4);
const TALK_RATE: u64 = 1000;

/// The name of the router's flow table.
const FLOW_TABLE: &str = "linerate_lab";

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datapath {
    Linux,
    /// The kernel with netfilter's flow table.
    FlowTable,
    /// `linerate forward` with these statistics.
    Linerate(&'static str),
    /// `linerate forward` by its TC datapath alone.
    LinerateTc,
    /// A program that looks each packet up in the FIB, which only the lab has.
    Fib,
    /// A program with constants and a redirect: the limit.
    Redirect,
}

/// What the router's packet filter does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rules {
    /// There is none.
    #[default]
    None,
    /// It accepts by the state of the connection: conntrack sees each packet.
    Tracked,
    /// It masquerades what leaves to the east.
    Translated,
}

impl Rules {
    /// For `nft -f -`.
    fn text(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Tracked => Some(
                "table inet linerate_lab { chain forward { type filter hook forward priority filter; \
                 ct state { new, established, related } accept; }; }",
            ),
            Self::Translated => Some(
                "table inet linerate_lab { chain postrouting { type nat hook postrouting priority srcnat; \
                 oifname right masquerade; }; }",
            ),
        }
    }
}

/// The traffic of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTraffic {
    /// Bytes of a frame.
    pub(crate) size: u32,
    /// Frames measured, in each direction.
    pub(crate) frames: u64,
    /// That they are of.
    pub(crate) sessions: Sessions,
    /// Frames a second; as many as go if `None`.
    pub(crate) rate: Option<u64>,
}

/// Two hosts and the router.
#[derive(Debug)]
pub(crate) struct RoutedPair {
    pub(crate) west: Namespace,
    pub(crate) router: Namespace,
    pub(crate) east: Namespace,
    /// `a` is west's, `b` the router's.
    pub(crate) left: Veth,
    /// `a` is the router's, `b` east's.
    pub(crate) right: Veth,
    rules: Rules,
    /// Of the rules that take some.
    conntrack: Option<ConntrackRoom>,
    cores: Cores,
}

/// The result of a measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardOutcome {
    /// Frames sent, in all directions.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// From the first frame to the last.
    pub(crate) seconds: f64,
    /// Frames that interfaces counted as dropped.
    pub(crate) dropped: u64,
    /// Part of the measured frames that the kernel forwarded, 0 to 1; `None` where that is unknown.
    pub(crate) kernel_share: Option<f64>,
    pub(crate) void: Option<String>,
}

impl ForwardOutcome {
    /// Frames a second that arrived.
    pub(crate) fn rate(&self) -> f64 {
        self.arrived as f64 / self.seconds.max(1e-9)
    }

    /// The part that did not arrive, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        1.0 - self.arrived as f64 / self.sent.max(1) as f64
    }
}

impl RoutedPair {
    /// Builds it: forwarding on, neighbours fixed, no reverse-path filter.
    pub(crate) fn build(cores: Cores) -> Result<Self> {
        let west = Namespace::create("west")?;
        let router = Namespace::create("router")?;
        let east = Namespace::create("east")?;
        let left = Veth::create(&west, SENDER, &router, LEFT_INTERFACE, VethOptions::default())?;
        let right =
            Veth::create(&router, RIGHT_INTERFACE, &east, EAST_INTERFACE, VethOptions::default())?;
        for interface in [&left.a, &left.b, &right.a, &right.b] {
            interface.set_offloads(false)?;
            // NAPI, which live frames need where there is no XDP program.
            interface.set_gro(true)?;
        }
        for host in [&west, &router, &east] {
            for scope in ["all", "default", LEFT_INTERFACE, RIGHT_INTERFACE] {
                let _ = host.sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"), "0");
            }
        }
        router.set_forwarding(true)?;
        left.b.add_address(LEFT_ADDRESS.into(), 16)?;
        right.a.add_address(RIGHT_ADDRESS.into(), 16)?;
        left.b.add_neighbour(WEST_ADDRESS.into(), left.a.mac())?;
        right.a.add_neighbour(EAST_ADDRESS.into(), right.b.mac())?;
        let ends = [
            (&west, &left.a, WEST_ADDRESS, LEFT_ADDRESS, left.b.mac(), "198.19.0.0"),
            (&east, &right.b, EAST_ADDRESS, RIGHT_ADDRESS, right.a.mac(), "198.18.0.0"),
        ];
        for (host, interface, own, gateway, mac, far) in ends {
            interface.add_address(own.into(), 16)?;
            interface.add_neighbour(gateway.into(), mac)?;
            host.add_route(far.parse::<IpAddr>()?, 16, gateway.into())?;
        }
        Ok(Self { west, router, east, left, right, rules: Rules::None, conntrack: None, cores })
    }

    /// The same with rules, and room for this many connections.
    pub(crate) fn with_rules(mut self, rules: Rules, connections: u64) -> Result<Self> {
        if let Some(text) = rules.text() {
            self.nft(text)?;
            self.conntrack = Some(ConntrackRoom::at_least(2 * connections)?);
        }
        self.rules = rules;
        Ok(self)
    }

    /// The same, which routes IPv6 as well if it has to.
    pub(crate) fn with_headers(self, headers: Headers) -> Result<Self> {
        if let (Headers::Ipv6, (west, east)) = (headers, headers.ends()) {
            self.left.b.add_address(LEFT_ADDRESS6.into(), 64)?;
            self.right.a.add_address(RIGHT_ADDRESS6.into(), 64)?;
            self.left.b.add_neighbour(west, self.left.a.mac())?;
            self.right.a.add_neighbour(east, self.right.b.mac())?;
        }
        Ok(self)
    }

    /// Starts the datapath, and waits until it forwards. The kernel's own needs no program.
    pub(crate) fn start_datapath(
        &self,
        datapath: Datapath,
        sessions: u64,
    ) -> Result<Option<Running>> {
        match datapath {
            Datapath::Linux => Ok(None),
            Datapath::FlowTable => {
                self.flow_table()?;
                Ok(None)
            }
            Datapath::Fib => self.forward_fib().map(Some),
            Datapath::Linerate(statistics) => {
                self.accelerate(&["--statistics", statistics], sessions).map(Some)
            }
            Datapath::LinerateTc => self.accelerate(&["--datapath", "tc"], sessions).map(Some),
            Datapath::Redirect => self.redirect().map(Some),
        }
    }

    fn accelerate(&self, more: &[&str], sessions: u64) -> Result<Running> {
        let room = sessions.max(ROOM).to_string();
        let mut words =
            vec!["forward", "run", "-i", LEFT_INTERFACE, "-i", RIGHT_INTERFACE, "--metrics", "off"];
        // One packet a minute of each session would be the kernel's, in the middle of a run or not.
        words.extend("--no-probe --revalidate 1h --udp-idle 10m --tcp-idle 10m".split(' '));
        words.extend(["--max-sessions", &room]);
        words.extend(more);
        let mut running = self.linerate("linerate forward", &self.router, &words)?;
        let is_xdp = !more.contains(&"tc");
        let attached = || Ok::<_, anyhow::Error>(self.left.b.has_xdp()? && self.right.a.has_xdp()?);
        let ready = || Ok((!is_xdp || attached()?) && self.status().is_ok());
        running.wait_until("linerate forward to start", Duration::from_secs(60), ready)?;
        Ok(running)
    }

    fn forward_fib(&self) -> Result<Running> {
        let words = ["forward-fib", "-i", LEFT_INTERFACE, "-i", RIGHT_INTERFACE];
        let mut running = self.helper("the forwarding baseline", &self.router, &words)?;
        let ready = || Ok(self.router.run(forward_fib::status)?.is_ok());
        running.wait_until("a baseline to start", Duration::from_secs(60), ready)?;
        Ok(running)
    }

    fn redirect(&self) -> Result<Running> {
        let (to, from) = (self.right.b.mac().to_string(), self.right.a.mac().to_string());
        let words = ["redirect", "-i", LEFT_INTERFACE, "--to", RIGHT_INTERFACE];
        let words = [&words[..], &["--dst-mac", &to, "--src-mac", &from]].concat();
        let mut running = self.helper("the plain redirect", &self.router, &words)?;
        let ready = || self.left.b.has_xdp().map_err(Into::into);
        running.wait_until("a redirect to begin", Duration::from_secs(20), ready)?;
        Ok(running)
    }

    fn flow_table(&self) -> Result<()> {
        let rules = format!(
            "table ip {FLOW_TABLE} {{\n\
             flowtable fast {{ hook ingress priority 0; devices = {{ {LEFT_INTERFACE}, {RIGHT_INTERFACE} }}; }}\n\
             chain forward {{ type filter hook forward priority 0; policy accept;\n\
             ip protocol {{ tcp, udp }} flow add @fast; }}\n}}\n"
        );
        self.nft(&rules).context("no flow table here")
    }

    fn nft(&self, rules: &str) -> Result<()> {
        let output = self.router.command("nft").arg(rules).output().context("cannot run nft")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}", said.lines().next().unwrap_or("nft says nothing"));
        }
        Ok(())
    }

    /// Why there is no flow table on this machine; `None` where there is.
    pub(crate) fn flowtable_unavailable(cores: Cores) -> Result<Option<String>> {
        let routed = Self::build(cores)?;
        Ok(routed.flow_table().err().map(|error| format!("{error:#}")))
    }

    /// Starts `linerate` in `host`, off the generator's CPU.
    fn linerate(&self, name: &str, host: &Namespace, words: &[&str]) -> Result<Running> {
        Running::start(name, &mut programs::linerate(host, self.cores.consumer, words)?)
    }

    /// Starts a helper in `host`, off the generator's CPU.
    fn helper(&self, name: &str, host: &Namespace, words: &[&str]) -> Result<Running> {
        Running::start(name, &mut programs::helper(host, self.cores.consumer, words)?)
    }

    /// The status of the baseline or the accelerator that forwards, as `linerate forward status` prints it.
    pub(crate) fn status(&self) -> Result<serde_json::Value> {
        if let Ok(status) = self.router.run(forward_fib::status)? {
            return Ok(status);
        }
        let words = ["forward", "status", "--json"];
        let running = self.linerate("linerate forward status", &self.router, &words)?;
        running.wait(Duration::from_secs(20))?.success()?.json()
    }

    /// Packets that the programs handed to the kernel.
    fn passed_to_kernel(&self) -> Result<u64> {
        let status = self.status()?;
        let reasons = status["reasons"].as_array().context("a status without reasons")?;
        Ok(reasons.iter().filter_map(|reason| reason["packets"].as_u64()).sum())
    }

    /// Sends enough for every session to be learned, and returns how much that was. Start the receiver first:
    /// attaching or detaching an XDP program is a link change, after which sessions are learned again.
    pub(crate) fn warm_up(&self, traffic: &SessionTraffic) -> Result<u64> {
        // A session is admitted at its second packet, if no other candidate took its place meanwhile: of a million at
        // once one in sixty is not learned with the third.
        let frames = (8 * traffic.sessions.count).max(10_000);
        let sessions = Sessions { order: Order::Turns, ..traffic.sessions };
        let all = SessionTraffic { frames, sessions, rate: None, ..*traffic };
        let sender = self.generate(&all, false)?;
        Ok(finish(sender)?.frames)
    }

    /// Has the hosts talk, so that conntrack takes their connections for established, and for ASSURED: UDP is that after
    /// two seconds of packets in both directions. Returns how much the west sent.
    fn talk(&self, traffic: &SessionTraffic) -> Result<u64> {
        let slow = SessionTraffic {
            frames: TALK.as_secs() * TALK_RATE,
            rate: Some(TALK_RATE),
            ..*traffic
        };
        let asks = self.generate(&slow, false)?;
        // An answer before the question would make a connection of its own.
        interrupt::sleep(Duration::from_secs(1))?;
        let answers = self.generate(&slow, true)?;
        let sent = finish(asks)?.frames;
        finish(answers)?;
        Ok(sent)
    }

    /// Warms up, sends, in one direction or both, and counts what arrives. `kernel_share` is the part that the kernel may
    /// forward, 0 to 1, where somebody can tell.
    pub(crate) fn measure(
        &self,
        traffic: &SessionTraffic,
        both: bool,
        kernel_share: Option<f64>,
    ) -> Result<ForwardOutcome> {
        let sinks = [
            Some(self.sink(&self.east, EAST_INTERFACE)?),
            both.then(|| self.sink(&self.west, SENDER)).transpose()?,
        ];
        // Plain Linux forwards the connections of those who do not answer as well.
        let talks = self.rules != Rules::None && kernel_share.is_some();
        let answered = (talks && !both).then(|| self.sink(&self.west, SENDER)).transpose()?;
        let empty = self.drops()?;
        let talked = if talks { self.talk(traffic)? } else { 0 };
        let warm = talked + self.warm_up(traffic)?;
        interrupt::sleep(Duration::from_millis(100))?;
        let handed = |at: &Self| kernel_share.map(|_| at.passed_to_kernel()).transpose();
        let (before, dropped) = (handed(self)?, self.drops()?);
        let senders = [
            Some(self.generate(traffic, false)?),
            both.then(|| self.generate(traffic, true)).transpose()?,
        ];
        let mut passed = ForwardOutcome::default();
        for sender in senders.into_iter().flatten() {
            let sent = finish(sender)?;
            passed.sent += sent.frames;
            passed.seconds = passed.seconds.max(sent.seconds);
        }
        interrupt::sleep(Duration::from_millis(100))?;
        for sink in sinks.into_iter().flatten() {
            let report = sink.stop(Duration::from_secs(20))?.success()?.json()?;
            passed.arrived += count(&report, "captured")?;
        }
        if let Some(sink) = answered {
            sink.stop(Duration::from_secs(20))?.success()?;
        }
        // What arrived before is what was sent then and not dropped.
        passed.arrived = passed.arrived.saturating_sub(warm.saturating_sub(dropped - empty));
        passed.dropped = self.drops()?.saturating_sub(dropped);
        let handed = handed(self)?.zip(before).map(|(after, before)| after - before);
        passed.kernel_share = handed.map(|handed| handed as f64 / passed.sent.max(1) as f64);
        passed.void = passed.void_reason(kernel_share.unwrap_or(1.0));
        Ok(passed)
    }

    /// Counts and drops what comes to an interface of a host.
    pub(crate) fn sink(&self, host: &Namespace, interface: &str) -> Result<Running> {
        let words = ["sink", "-i", interface];
        let mut sink = self.helper("the sink", host, &words)?;
        let end = if interface == EAST_INTERFACE { &self.right.b } else { &self.left.a };
        let ready = || end.has_xdp().map_err(Into::into);
        sink.wait_until("the sink to begin", Duration::from_secs(20), ready)?;
        Ok(sink)
    }

    /// From the west on the generator's core, or what the east answers on the other.
    pub(crate) fn generate(&self, traffic: &SessionTraffic, back: bool) -> Result<Running> {
        let (host, interface, core, mac) = match back {
            false => (&self.west, SENDER, self.cores.generator, self.left.b.mac()),
            true => (&self.east, EAST_INTERFACE, self.cores.consumer, self.right.a.mac()),
        };
        let translated =
            (self.rules == Rules::Translated).then_some(match traffic.sessions.headers {
                Headers::Ipv6 => RIGHT_ADDRESS6.into(),
                Headers::Ipv4 | Headers::Tagged => RIGHT_ADDRESS.into(),
            });
        let common = ["generate", "-i", interface, "--json", "--quiet"];
        let mut command = programs::linerate(host, core, common)?;
        command.args(["--cpu", &core.to_string(), "--dst-mac", &mac.to_string()]);
        command.args(["--size", &traffic.size.to_string(), "--count", &traffic.frames.to_string()]);
        command.args(match back {
            false => traffic.sessions.words(),
            true => traffic.sessions.answer_words(translated),
        });
        if let Some(rate) = traffic.rate {
            command.args(["--rate", &format!("{rate}pps")]);
        }
        Running::start("linerate generate", &mut command)
    }

    /// Frames that interfaces dropped, without those that the sinks drop on purpose.
    fn drops(&self) -> Result<u64> {
        let mut sum = 0;
        for interface in [&self.left.a, &self.right.a, &self.right.b, &self.left.b] {
            sum += interface.statistics()?.tx_dropped;
        }
        for interface in [&self.left.b, &self.right.a] {
            sum += interface.statistics()?.rx_dropped;
        }
        Ok(sum)
    }

    /// Gives both hosts' interfaces a queue, like a card: frames that the veth pair has no room for wait
    /// there. A veth without one drops it (and one with a queue too, before Linux 6.16), and a TCP whose
    /// segments its own host drops fifteen times, half a second apart, gives the connection up
    /// (`tcp_send_probe0`): with thousands of connections whose timers fire together that happens.
    pub(crate) fn add_qdisc(&self) -> Result<()> {
        for (host, interface) in [(&self.west, SENDER), (&self.east, EAST_INTERFACE)] {
            let words = ["qdisc", "replace", "dev", interface, "root", "pfifo", "limit", "100000"];
            let output = host.command("tc").args(words).output().context("cannot run tc")?;
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(output.status.success(), "no queue on {interface}: {said}");
        }
        Ok(())
    }

    /// Starts a server of this number in the east that sends back what comes, and waits until it listens.
    pub(crate) fn echo(&self, number: u16) -> Result<Running> {
        let address = server(number).to_string();
        let mut server = self.helper("the server", &self.east, &["echo", "--address", &address])?;
        let listens = || {
            let sockets =
                self.east.run(|| std::fs::read_to_string("/proc/thread-self/net/tcp"))??;
            let state = |line: &str| line.split_whitespace().nth(3) == Some("0A");
            let listening = sockets.lines().skip(1).filter(|line| state(line)).count();
            Ok(listening > usize::from(number))
        };
        server.wait_until("a server to listen", Duration::from_secs(10), listens)?;
        Ok(server)
    }

    /// Starts a client in the west that opens `connections` to the server of this number and holds them.
    pub(crate) fn connect(
        &self,
        number: u16,
        connections: u64,
        rounds: u64,
        ready: &Path,
    ) -> Result<Running> {
        self.west.sysctl("net.ipv4.ip_local_port_range", "1024 65535")?;
        let [connections, rounds] = [connections, rounds].map(|number| number.to_string());
        let (address, ready) =
            (server(number).to_string(), ready.to_str().context("no UTF-8 path")?);
        let words = ["hold", "--address", &address, "--connections", &connections];
        let words = [&words[..], &["--rounds", &rounds, "--ready", ready]].concat();
        let mut command = programs::helper(&self.west, self.cores.generator, words)?;
        Running::start("the client", &mut command)
    }

    /// Has the router's receiving worked off on the other core, as if the generator were on another
    /// machine.
    pub(crate) fn receive_on_other_core(&self) -> Result<()> {
        // What the veth peer does with a frame follows on the same core: it counts and drops, for every
        // datapath. A thread of its own beside a generator that never sleeps would lose frames.
        napi::enable_threaded(&self.router, LEFT_INTERFACE, self.cores.consumer)?.context(
            "a PID namespace hides the NAPI thread of the router: run it outside of the container",
        )?;
        Ok(())
    }
}

impl ForwardOutcome {
    fn void_reason(&self, bound: f64) -> Option<String> {
        let explained = self.arrived + self.dropped;
        if explained < self.sent {
            let missing = self.sent - explained;
            return Some(format!("{missing} of {} frames are unaccounted for", self.sent));
        }
        if self.loss() > 0.01 {
            return Some(format!("{:.1}% of the frames were dropped", self.loss() * 100.0));
        }
        let kernel_share = self.kernel_share.filter(|kernel_share| *kernel_share > bound)?;
        Some(format!("{:.1}% of the packets were the kernel's", kernel_share * 100.0))
    }
}

/// The same frames over the veth pair `pair`, into the sink: the topology without the router.
pub(crate) fn without_router(pair: &Pair, traffic: &SessionTraffic) -> Result<ForwardOutcome> {
    let ours = crate::peers::capture::Peer::sink();
    let frames =
        crate::traffic::generated::Traffic::sized(traffic.size, traffic.frames, traffic.rate)
            .of_sessions(traffic.sessions);
    let measured = crate::experiments::capture::measurement::measure(pair, &ours, &frames)?;
    Ok(ForwardOutcome {
        sent: measured.sent.frames,
        arrived: measured.peer_report.captured,
        seconds: measured.sent.seconds,
        dropped: measured.interface_dropped,
        kernel_share: None,
        void: measured.void,
    })
}

/// Ends what [`RoutedPair::start_datapath`] started.
pub(crate) fn end_datapath(running: Option<Running>) -> Result<()> {
    if let Some(running) = running {
        running.stop(Duration::from_secs(30))?.success()?;
    }
    Ok(())
}

/// The least capacity of a table.
const ROOM: u64 = 1 << 16;

fn finish(sender: Running) -> Result<SendReport> {
    SendReport::read(&sender.wait(Duration::from_secs(600))?.success()?.json()?, "sent")
}
