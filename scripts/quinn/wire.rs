//! Put into quinn's own source by `scripts/test-quinn`, for the backend `xdp`.
//!
//! The tests connect endpoints over loopback addresses, mostly each to itself. The driver of `lo` has no XDP, and a host
//! takes no packet from a wire that has its own address as source. So each socket gets a veth pair between two
//! namespaces. It receives at one end by XDP. What is sent to it leaves from the other end. Addresses are translated
//! where they meet quinn: it sees loopback addresses, with the ports that it bound.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::task::{Context, Poll};

use linerate_testkit::{Namespace, Veth, VethOptions};
use linerate_udp::{Backend, Options, Socket, Transmit, Transmitter};

use super::{AsyncUdpSocket, UdpPoller};

/// The end that receives, and the one that sends, for IPv4 and IPv6.
const NEAR: [IpAddr; 2] = addresses(2);
const FAR: [IpAddr; 2] = addresses(1);

const fn addresses(host: u8) -> [IpAddr; 2] {
    let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host as u16);
    [IpAddr::V4(Ipv4Addr::new(10, 77, 0, host)), IpAddr::V6(v6)]
}

/// The sockets that receive, by version (v6) and port.
static WIRES: LazyLock<Mutex<HashMap<(bool, u16), Weak<Wire>>>> = LazyLock::new(Mutex::default);

/// A veth pair, to one socket.
#[derive(Debug)]
struct Wire {
    // Dropped before its namespaces.
    senders: Mutex<HashMap<(bool, u16), Transmitter>>,
    _veth: Veth,
    near: Namespace,
    far: Namespace,
}

impl Wire {
    fn new() -> linerate_testkit::Result<Self> {
        let (near, far) = (Namespace::create("quinnrx")?, Namespace::create("quinntx")?);
        let options = VethOptions { up: false, ..VethOptions::default() };
        let veth = Veth::create(&far, "tx", &near, "rx", options)?;
        for (version, bits) in [24, 64].into_iter().enumerate() {
            veth.a.add_address(FAR[version], bits)?;
            veth.b.add_address(NEAR[version], bits)?;
        }
        veth.up()?;
        for version in 0..2 {
            veth.a.add_neighbour(NEAR[version], veth.b.mac())?;
            veth.b.add_neighbour(FAR[version], veth.a.mac())?;
        }
        Ok(Self { senders: Mutex::default(), _veth: veth, near, far })
    }

    /// Sends what the socket of `port` sends to the socket at the near end.
    fn send(&self, port: u16, transmit: &udp::Transmit<'_>) -> io::Result<()> {
        let v6 = transmit.destination.ip().to_canonical().is_ipv6();
        let mut senders = self.senders.lock().unwrap();
        let sender = senders.entry((v6, port)).or_insert_with(|| {
            let defaults = Options::new((FAR[usize::from(v6)], port).into());
            let options = Options { backend: Some(Backend::Recvmmsg), batch: 1, ..defaults };
            let socket = self.far.run(|| Socket::open(options)).unwrap().unwrap();
            socket.transmitter
        });
        let to = (NEAR[usize::from(v6)], transmit.destination.port()).into();
        let transmit = Transmit {
            traffic_class: transmit.ecn.map(|ecn| ecn as u8),
            segment_size: transmit.segment_size,
            ..Transmit::new(to, transmit.contents)
        };
        sender.send(&[transmit]).map_err(io::Error::other)
    }
}

/// Receives by XDP.
pub(super) fn wrap(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let bound = socket.local_addr()?;
    let wire = Arc::new(Wire::new().map_err(io::Error::other)?);
    let ip = match bound.ip() {
        ip if ip.is_unspecified() => ip,
        ip => NEAR[usize::from(ip.is_ipv6())],
    };
    let options = Options {
        interface: Some("rx".into()),
        ring_size: 4 << 20,
        backend: Some(Backend::Xdp),
        ..Options::new((ip, bound.port()).into())
    };
    let runtime = tokio::runtime::Handle::current();
    let build = || {
        let _entered = runtime.enter();
        Socket::open_for_quinn(options)
    };
    let inner = wire.near.run(build).map_err(io::Error::other)?.map_err(io::Error::other)?;
    let versions: &[bool] = match bound.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => &[false, true],
        ip => &[ip.is_ipv6()],
    };
    let mut wires = WIRES.lock().unwrap();
    for &v6 in versions {
        wires.insert((v6, bound.port()), Arc::downgrade(&wire));
    }
    Ok(Arc::new(Socket { inner, _wire: wire, bound, _reserved: socket }))
}

#[derive(Debug)]
struct Socket {
    inner: Arc<dyn published::AsyncUdpSocket>,
    _wire: Arc<Wire>,
    bound: SocketAddr,
    /// Keeps the port from others.
    _reserved: UdpSocket,
}

/// An address of the veth pair, as quinn knows it.
fn seen(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(_) if ip.is_ipv6() => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable)
    }

    fn try_send(&self, transmit: &udp::Transmit<'_>) -> io::Result<()> {
        let to = transmit.destination;
        let key = (to.ip().to_canonical().is_ipv6(), to.port());
        let wire = WIRES.lock().unwrap().get(&key).and_then(Weak::upgrade);
        // Nobody listens on another port.
        wire.map_or(Ok(()), |wire| wire.send(self.bound.port(), transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [udp::RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, bufs, meta).map_ok(|count| {
            for meta in &mut meta[..count] {
                meta.addr.set_ip(seen(meta.addr.ip()));
                meta.dst_ip = meta.dst_ip.map(seen);
            }
            count
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.bound)
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// A sender waits by itself.
#[derive(Debug)]
struct Writable;

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
