//! quinn over this library's socket, on every backend, against quinn over its own.

#[path = "../../examples/quic.rs"]
#[allow(dead_code)]
mod quic;

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use linerate_testkit::{root_or_skip, test_name};
use linerate_udp::{Backend, Options, Socket};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};

use crate::support::{Cable, HERE, HERE6, Kind, THERE, THERE6, TIMEOUT, address, kinds};

/// Bytes of one stream, more than several windows of congestion.
const LEN: usize = 3 << 20;

fn configs() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(vec!["server".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(TIMEOUT.try_into().unwrap()));
    client.transport_config(Arc::new(transport));
    (server, client)
}

/// Several streams at once come back as they were sent.
async fn exchange(client: &Endpoint, to: std::net::SocketAddr, kind: Kind) {
    let connection = client.connect(to, "server").unwrap().await.unwrap();
    let mut streams = tokio::task::JoinSet::new();
    for number in 0..3u8 {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let sent: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8 ^ number).collect();
        streams.spawn(async move {
            let copy = sent.clone();
            let sending = tokio::spawn(async move {
                send.write_all(&copy).await.unwrap();
                send.finish().unwrap();
            });
            let came = receive.read_to_end(LEN + 1).await.unwrap();
            sending.await.unwrap();
            assert!(came == sent, "{kind}: a stream came back otherwise");
        });
    }
    streams.join_all().await;
    connection.close(0u32.into(), b"");
}

/// The driver of an endpoint drops the socket some time after the endpoint.
fn wait_until_free(cable: &Cable, bound: (&str, u16), kind: Kind) {
    let end = std::time::Instant::now() + TIMEOUT;
    while cable.here.run(|| UdpSocket::bind(bound)).unwrap().is_err() {
        assert!(std::time::Instant::now() < end, "{kind}: the socket is not dropped");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn serves(name: &str, bind: &str, to: &str, from: &str) {
    let cable = Cable::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let (server, client) = configs();
    let tokio = || Arc::new(TokioRuntime);
    for kind in kinds(&cable, name) {
        let options = Options {
            interface: Some("rx".into()),
            ring_size: 16 << 20,
            ..Options::new(address(bind, 4433))
        };
        let options = Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
        let build = || {
            let _entered = runtime.enter();
            Socket::open_for_quinn(options.clone())
        };
        let socket = cable.bind(build).unwrap();
        let config = EndpointConfig::default();
        let server = Some(server.clone());
        let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, tokio()).unwrap();
        let serving = runtime.spawn(quic::serve(endpoint.clone()));

        let plain = cable.there.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        let mut peer = Endpoint::new(EndpointConfig::default(), None, plain, tokio()).unwrap();
        peer.set_default_client_config(client.clone());
        let ways = exchange(&peer, address(to, 4433), kind);
        let done = runtime.block_on(async { tokio::time::timeout(4 * TIMEOUT, ways).await });
        assert!(done.is_ok(), "{kind}: no end");
        endpoint.close(0u32.into(), b"");
        runtime.block_on(async {
            let idle = tokio::time::timeout(Duration::from_secs(5), peer.wait_idle());
            let _ = idle.await;
            serving.await.unwrap();
        });
        assert_eq!(endpoint.local_addr().unwrap(), address(bind, 4433));
        assert!(kind.backend != Backend::Xdp || cable.veth.b.has_xdp().unwrap());
        drop((endpoint, peer));
        wait_until_free(&cable, (bind, 4433), kind);
    }
}

#[test]
fn quinn_serves_on_every_back_end() {
    root_or_skip!();
    serves(test_name!(), HERE, HERE, THERE);
}

#[test]
fn quinn_serves_both_versions_on_one_address() {
    root_or_skip!();
    serves(test_name!(), "::", HERE6, THERE6);
    serves(test_name!(), "::", HERE, THERE);
}

#[test]
fn quinn_connects_to_both_versions_from_one_address() {
    root_or_skip!();
    let cable = Cable::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let (server, client) = configs();
    let tokio = || Arc::new(TokioRuntime);
    let plain = cable.there.run(|| UdpSocket::bind(("::", 4433))).unwrap().unwrap();
    let peer = Endpoint::new(EndpointConfig::default(), Some(server), plain, tokio()).unwrap();
    runtime.spawn(quic::serve(peer.clone()));
    for kind in kinds(&cable, test_name!()) {
        let options = Options {
            interface: Some("rx".into()),
            ring_size: 16 << 20,
            ..Options::new(address("::", 4434))
        };
        let options = Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
        let build = || {
            let _entered = runtime.enter();
            Socket::open_for_quinn(options.clone())
        };
        let socket = cable.bind(build).unwrap();
        let config = EndpointConfig::default();
        let mut endpoint =
            Endpoint::new_with_abstract_socket(config, None, socket, tokio()).unwrap();
        endpoint.set_default_client_config(client.clone());
        for to in [THERE, THERE6] {
            let ways = exchange(&endpoint, address(to, 4433), kind);
            let done = runtime.block_on(async { tokio::time::timeout(4 * TIMEOUT, ways).await });
            assert!(done.is_ok(), "{kind}: {to}: no end");
        }
        runtime.block_on(async { endpoint.wait_idle().await });
        drop(endpoint);
        wait_until_free(&cable, ("::", 4434), kind);
    }
    peer.close(0u32.into(), b"");
}

/// An ICMP error or a timestamp is nothing that an endpoint can ask for: it must not end it.
#[test]
fn quinn_outlives_icmp_errors() {
    root_or_skip!();
    let cable = Cable::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let (server, client) = configs();
    let tokio = || Arc::new(TokioRuntime);
    let plain = cable.there.run(|| UdpSocket::bind((THERE, 4433))).unwrap().unwrap();
    let peer = Endpoint::new(EndpointConfig::default(), Some(server), plain, tokio()).unwrap();
    runtime.spawn(quic::serve(peer.clone()));
    for (port, kind) in (4434..).zip(kinds(&cable, test_name!())) {
        let send = linerate_udp::SendOptions { timestamps: true, ..Default::default() };
        let options = Options {
            interface: Some("rx".into()),
            ring_size: 16 << 20,
            ..Options::new(address(HERE, port))
        };
        let options = Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
        let options = Options { icmp_errors: true, send, ..options };
        let build = || {
            let _entered = runtime.enter();
            Socket::open_for_quinn(options.clone())
        };
        let socket = cable.bind(build).unwrap();
        let config = EndpointConfig::default();
        let mut endpoint =
            Endpoint::new_with_abstract_socket(config, None, socket, tokio()).unwrap();
        endpoint.set_default_client_config(client.clone());
        runtime.block_on(async {
            // Nobody listens there.
            let closed = endpoint.connect(address(THERE, 9), "server").unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(300), closed).await;
            let ways = exchange(&endpoint, address(THERE, 4433), kind);
            assert!(tokio::time::timeout(4 * TIMEOUT, ways).await.is_ok(), "{kind}: no end");
            endpoint.wait_idle().await;
        });
        drop(endpoint);
        wait_until_free(&cable, (HERE, port), kind);
    }
    peer.close(0u32.into(), b"");
}
