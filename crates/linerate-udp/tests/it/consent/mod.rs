//! Beside plain Linux: a receiver with `auto` gets and answers what a plain socket does, whatever else is on the host.
//! One that takes frames with consent still obeys the wire, the addresses and its socket.

mod given;
mod programs;
mod situations;

use std::any::Any;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use linerate_testkit::{Namespace, exclusive, print_skipped, root_or_skip};
use linerate_udp::{Backend, Delivery, Group, Options, Receiver};
use nix::sys::socket::{
    self as nix_socket, AddressFamily, SockFlag, SockType, setsockopt, sockopt,
};

use crate::support::{Cable, HERE, TIMEOUT, back_ends, soon};

/// What a situation needs while it lasts.
type Kept = Box<dyn Any + Send>;
/// Sets options of a bound socket.
type SetOptions = fn(&UdpSocket) -> Result<(), String>;

/// How long nothing more may come before it counts as all.
const SETTLED: Duration = Duration::from_millis(15);
const MESSAGES: usize = 4;
/// Given sockets may share their address, as another socket does.
const REUSE: &[(i32, i32, i32)] = &[(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)];

/// What a receiver that takes frames with consent does in a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    /// Messages bypass what the situation has.
    Bypasses,
    /// The same as plain Linux.
    Holds,
    /// The same, once the receiver is told its interface.
    HoldsOn(&'static str),
    /// `xdp` refuses the socket, with this word.
    Refused(&'static str),
}

struct Situation {
    name: &'static str,
    /// Commands on the receiving and on the sending host.
    here: &'static [&'static str],
    there: &'static [&'static str],
    prepare: fn(&Cable) -> Result<Vec<Kept>, String>,
    /// Other sockets of the receiving host.
    others: fn(&Cable) -> Result<Vec<Other>, String>,
    bind: &'static str,
    /// Whether the socket is bound to the interface.
    interface: bool,
    /// The interface on which the group is joined; empty for that of the routes.
    group: Option<&'static str>,
    /// The receiver gets a bound socket with these options.
    given: Option<SetOptions>,
    /// Options that it has before it is bound.
    options: &'static [(i32, i32, i32)],
    from: &'static str,
    to: &'static str,
    /// Of four datagrams, on plain Linux.
    delivered: usize,
    answered: usize,
    to_others: usize,
    consent: Consent,
}

/// A socket of somebody else, and the container that it is in.
struct Other {
    socket: UdpSocket,
    _container: Option<Namespace>,
}

impl Other {
    fn here(socket: UdpSocket) -> Self {
        Self { socket, _container: None }
    }
}

/// What came of the datagrams.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// The first byte of each delivered datagram, and who sent it.
    delivered: Vec<(u8, SocketAddr)>,
    /// The first byte of each datagram that was answered, and the address that the answer came from.
    answers: Vec<(u8, SocketAddr)>,
    to_others: usize,
}

impl Outcome {
    fn counts(&self) -> [usize; 3] {
        [self.delivered.len(), self.answers.len(), self.to_others]
    }
}

/// Who receives.
enum Reader {
    Plain(UdpSocket),
    Linerate(Box<Receiver>),
}

impl Reader {
    /// Takes one datagram at most, and answers it.
    fn take(&mut self, outcome: &mut Outcome) {
        let mut answer = |socket: &UdpSocket, payload: &[u8], from| {
            outcome.delivered.push((payload[0], from));
            // The kernel may refuse it.
            let _ = socket.send_to(&payload[..1], from);
        };
        match self {
            Self::Plain(socket) => {
                let mut room = [0; 128];
                if let Ok((len, from)) = socket.recv_from(&mut room) {
                    answer(socket, &room[..len], unmapped(from));
                }
            }
            Self::Linerate(receiver) => {
                let socket = UdpSocket::from(receiver.socket().try_clone_to_owned().expect("room"));
                let mut batch = receiver.receive(soon(Duration::from_millis(1))).expect("messages");
                while let Some(message) = batch.next() {
                    answer(&socket, message.payload, message.source);
                }
            }
        }
    }
}

/// An IPv4 sender at an IPv6 socket by its IPv4 address.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn command(host: &Namespace, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let output = host.command(program).args(words).output().map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{line}: {}", printed.trim()))
}

fn set<T>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) -> Result<(), String> {
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` is readable for its size.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, size_of::<T>() as u32) };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

fn option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> Result<(), String> {
    set(socket, level, name, &value)
}

/// Drops datagrams that begin with `B`.
pub(crate) fn filter(socket: &UdpSocket) -> Result<(), String> {
    let instruction = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut program = [
        instruction(0x30, 0, 8),
        libc::sock_filter { jf: 1, ..instruction(0x15, 0, u32::from(b'B')) },
        instruction(0x06, 0, 0),
        instruction(0x06, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// An IPsec policy of the socket that blocks all it receives: `IP_XFRM_POLICY` with a `struct xfrm_userpolicy_info`.
fn block(socket: &UdpSocket) -> Result<(), String> {
    const IP_XFRM_POLICY: i32 = 17;
    let mut policy = [0_u8; 168];
    // `sel.family`, and `action` behind `dir`, which is in.
    policy[40..42].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    policy[161] = 1;
    set(socket, libc::IPPROTO_IP, IP_XFRM_POLICY, &policy)
}

/// A plain socket of the receiving host, with options that are set before it is bound. Only joined groups are received.
fn plain(cable: &Cable, bind: &str, options: &[(i32, i32, i32)]) -> Result<UdpSocket, String> {
    let bind: SocketAddr = bind.parse().expect("an address");
    let open = || -> Result<UdpSocket, String> {
        let family = if bind.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = nix_socket::socket(family, SockType::Datagram, SockFlag::SOCK_NONBLOCK, None);
        let socket = UdpSocket::from(socket.map_err(|error| error.to_string())?);
        for &(level, name, value) in options {
            option(&socket, level, name, value)?;
        }
        if bind.is_ipv4() {
            option(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
        }
        let name = nix_socket::SockaddrStorage::from(bind);
        let bound = nix_socket::bind(socket.as_raw_fd(), &name);
        bound.map(|()| socket).map_err(|error| format!("bind to {bind}: {error}"))
    };
    cable.here.run(open).expect("the namespace")
}

/// Joins the group of the tests on the interface that has `address`.
fn join(socket: &UdpSocket, address: &str) {
    let [group, on] = ["239.7.7.7", address].map(|text| text.parse().expect("an address"));
    socket.join_multicast_v4(&group, &on).expect("a group");
}

impl Situation {
    fn plain_socket(&self, cable: &Cable) -> Result<UdpSocket, String> {
        let shares = self.given.is_some() || self.bind.starts_with("239.");
        let options = [if shares { REUSE } else { &[] }, self.options].concat();
        let socket = plain(cable, self.bind, &options)?;
        if self.interface {
            let name = std::ffi::OsString::from("rx");
            setsockopt(&socket, sockopt::BindToDevice, &name).map_err(|error| error.to_string())?;
        }
        if let Some(on) = self.group {
            let address = match on {
                "rx" => HERE,
                "other" => "10.66.0.1",
                _ => "0.0.0.0",
            };
            cable.here.run(|| join(&socket, address)).expect("the namespace");
        }
        if let Some(set) = self.given {
            cable.here.run(|| set(&socket)).expect("the namespace")?;
        }
        Ok(socket)
    }

    /// With consent by this delivery.
    fn receiver(&self, cable: &Cable, consent: Option<Delivery>) -> Result<Receiver, String> {
        let options = match self.given {
            Some(_) => Options::from_socket(OwnedFd::from(self.plain_socket(cable)?)),
            None => Ok(Options::new(self.bind.parse().expect("an address"))),
        };
        let mut options = Options {
            ring_size: 16 << 20,
            take_over: consent.is_some(),
            delivery: consent.unwrap_or_default(),
            ..options.map_err(|error| error.to_string())?
        };
        if let (Some(_), Consent::HoldsOn(name)) = (consent, self.consent) {
            options.interface = Some(name.into());
        }
        if self.interface {
            options.interface = Some("rx".into());
        }
        if let Some(on) = self.group {
            let group = Group::any_source("239.7.7.7".parse().expect("a group"));
            options.groups.push(if on.is_empty() { group } else { group.on(on) });
        }
        cable.bind(|| Receiver::open(options.clone())).map_err(|error| error.to_string())
    }

    /// What comes of four datagrams at a reader that `open` makes on hosts of their own.
    fn observe(
        &self,
        open: impl FnOnce(&Cable) -> Result<Reader, String>,
    ) -> Result<Outcome, String> {
        let cable = Cable::new();
        self.here.iter().try_for_each(|line| command(&cable.here, line))?;
        self.there.iter().try_for_each(|line| command(&cable.there, line))?;
        let _kept = (self.prepare)(&cable)?;
        let others = (self.others)(&cable)?;
        let mut reader = open(&cable)?;
        let sender = cable.there.run(|| UdpSocket::bind(self.from)).expect("the namespace");
        let sender = sender.map_err(|error| format!("bind to {}: {error}", self.from))?;
        sender.set_broadcast(true).expect("broadcasts");
        sender.set_nonblocking(true).expect("a socket that does not block");
        let before = cable.veth.b.statistics().expect("statistics").rx_packets;
        for number in 0..MESSAGES {
            // Of growing length, which GRO does not join: rules see each.
            let payload = vec![b'A' + number as u8; 64 + number];
            sender.send_to(&payload, self.to).map_err(|error| format!("{}: {error}", self.to))?;
        }
        let mut outcome = Outcome::default();
        let wanted = [self.delivered, self.answered, self.to_others];
        let end = Instant::now() + TIMEOUT;
        let mut since = Instant::now();
        while Instant::now() < end && since.elapsed() < SETTLED {
            let counts = outcome.counts();
            reader.take(&mut outcome);
            let mut room = [0; 128];
            while let Ok((_, from)) = sender.recv_from(&mut room) {
                outcome.answers.push((room[0], from));
            }
            for other in &others {
                other.socket.set_nonblocking(true).expect("a socket that does not block");
                while other.socket.recv(&mut room).is_ok() {
                    outcome.to_others += 1;
                }
            }
            let arrived = cable.veth.b.statistics().expect("statistics").rx_packets - before;
            let all = outcome.counts().iter().zip(wanted).all(|(count, wanted)| *count >= wanted);
            if outcome.counts() != counts || !all || arrived < MESSAGES as u64 {
                since = Instant::now();
            }
        }
        outcome.delivered.sort_unstable();
        outcome.answers.sort_unstable();
        Ok(outcome)
    }
}

impl Situation {
    /// Compares with plain Linux: without consent, and with it where that holds. Returns what differs.
    fn compare(&self, has_xdp: bool) -> Vec<String> {
        let name = self.name;
        let plain = self.observe(|cable| self.plain_socket(cable).map(Reader::Plain));
        let plain = match plain {
            Ok(plain) => plain,
            Err(why) => {
                print_skipped(name, &why);
                return Vec::new();
            }
        };
        let wanted = [self.delivered, self.answered, self.to_others];
        assert_eq!(plain.counts(), wanted, "plain Linux: {name}: {plain:?}");
        let with_consent = has_xdp && self.consent != Consent::Bypasses;
        let differs = |consent: Option<Delivery>| {
            let ours = self.observe(|cable| {
                let receiver = self.receiver(cable, consent)?;
                let why = receiver.selection_reasons().join("; ");
                let takes = receiver.backend() == Backend::Xdp;
                match self.consent {
                    Consent::Refused(word) if consent.is_some() => {
                        assert!(!takes && why.contains(word), "{name}: {why}");
                    }
                    _ => assert_eq!(takes, consent.is_some(), "{name}: {why}"),
                }
                Ok(Reader::Linerate(Box::new(receiver)))
            });
            let ours = ours.unwrap_or_else(|why| panic!("{name}: {why}"));
            let text = || format!("{name}, consent {consent:?}: {ours:?}, plain Linux: {plain:?}");
            (ours != plain).then(text)
        };
        let deliveries = [Delivery::AfXdp, Delivery::RingBuffer].map(Some);
        let consents = deliveries.into_iter().filter(|_| with_consent);
        std::iter::once(None).chain(consents).filter_map(differs).collect()
    }
}

/// Some at a time: most of the time goes to the commands that set a host up.
fn compare_all(situations: &[&Situation]) {
    let has_xdp = back_ends(&Cable::new(), "consent").contains(&Backend::Xdp);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut differing = Vec::new();
        while let Some(situation) = situations.get(next.fetch_add(1, Relaxed)) {
            differing.extend(situation.compare(has_xdp));
        }
        differing
    };
    let differing: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    println!("{} situations, {} differ", situations.len(), differing.len());
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn a_receiver_leaves_everything_to_the_host_and_with_consent_obeys_its_socket() {
    root_or_skip!();
    compare_all(&situations::all());
}

#[test]
fn a_receiver_obeys_the_filters_of_its_control_group() {
    let _exclusive = exclusive();
    root_or_skip!();
    // One at a time: they have one group.
    situations::CONTROL_GROUP.iter().for_each(|situation| compare_all(&[situation]));
}
