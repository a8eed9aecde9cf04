//! The two ends of `receive-quic`: one QUIC connection between quinn endpoints, on the sockets of quinn-udp or of
//! Linerate.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use linerate_udp::{Backend, Socket};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{
    AsyncUdpSocket, ClientConfig, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime,
};
use serde::Serialize;

use crate::interrupt;

/// The name in the certificate.
const NAME: &str = "server";
/// Bytes of one write.
const CHUNK: usize = 64 << 10;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Arguments of the helper.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The own address; its port may be 0.
    #[arg(long)]
    address: SocketAddr,
    /// The socket of Linerate with this backend; default: that of quinn-udp.
    #[arg(long)]
    backend: Option<Backend>,
    /// The server's certificate: the server writes it, the client reads it.
    #[arg(long)]
    certificate: PathBuf,
    /// Send to this server; default: be the server.
    #[arg(long, requires = "seconds")]
    to: Option<SocketAddr>,
    /// How long.
    #[arg(long)]
    seconds: Option<f64>,
}

/// What one end saw.
#[derive(Debug, Serialize)]
pub(super) struct Transferred {
    bytes: u64,
    seconds: f64,
}

/// Serves until a signal asks for the end, or sends for some time.
pub(super) fn run(options: &Options) -> Result<Transferred> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match (options.to, options.seconds) {
            (Some(to), Some(seconds)) => send(options, to, Duration::from_secs_f64(seconds)).await,
            _ => serve(options).await,
        }
    })
}

fn endpoint(options: &Options, config: Option<ServerConfig>) -> Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    let socket: Arc<dyn AsyncUdpSocket> = match options.backend {
        None => runtime.wrap_udp_socket(UdpSocket::bind(options.address)?)?,
        Some(backend) => {
            let defaults = linerate_udp::Options::new(options.address);
            Socket::open_for_quinn(linerate_udp::Options { backend: Some(backend), ..defaults })?
        }
    };
    let endpoint = EndpointConfig::default();
    Ok(Endpoint::new_with_abstract_socket(endpoint, config, socket, runtime)?)
}

async fn serve(options: &Options) -> Result<Transferred> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let endpoint = endpoint(options, Some(config))?;
    // Now it can be asked.
    fs::write(&options.certificate, &certificate)?;
    let incoming = loop {
        match tokio::time::timeout(POLL_INTERVAL, endpoint.accept()).await {
            Ok(incoming) => break incoming.context("the endpoint was closed")?,
            Err(_) => interrupt::check()?,
        }
    };
    let connection = incoming.await?;
    let mut stream = connection.accept_uni().await?;
    let (start, mut bytes) = (Instant::now(), 0);
    while let Some(chunk) = stream.read_chunk(CHUNK, true).await? {
        bytes += chunk.bytes.len() as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    // The client closes the connection when it has the acknowledgement.
    connection.closed().await;
    endpoint.wait_idle().await;
    Ok(Transferred { bytes, seconds })
}

async fn send(options: &Options, to: SocketAddr, time: Duration) -> Result<Transferred> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(fs::read(&options.certificate)?))?;
    let mut endpoint = endpoint(options, None)?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = endpoint.connect(to, NAME)?.await?;
    let mut stream = connection.open_uni().await?;
    let (chunk, start, mut bytes) = (vec![7; CHUNK], Instant::now(), 0);
    while start.elapsed() < time {
        interrupt::check()?;
        stream.write_all(&chunk).await?;
        bytes += CHUNK as u64;
    }
    stream.finish()?;
    // Until the server has all of it.
    stream.stopped().await?;
    let seconds = start.elapsed().as_secs_f64();
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(Transferred { bytes, seconds })
}
