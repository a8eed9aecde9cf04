//! A QUIC server that sends every stream back, on the socket and backend of this library.
//!
//! `cargo run -p linerate-udp --features quinn --example quic -- 127.0.0.1:4433 CERTIFICATE.der KEY.der [BACKEND]`

use std::error::Error;
use std::sync::Arc;

use linerate_udp::{Options, Socket};
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key, ..] = &arguments[..] else {
        return Err("quic ADDRESS:PORT CERTIFICATE.der KEY.der [BACKEND]".into());
    };
    let backend = arguments.get(3).map(|name| name.parse()).transpose()?;
    let socket = Socket::open_for_quinn(Options { backend, ..Options::new(address.parse()?) })?;
    let certificate = CertificateDer::from(std::fs::read(certificate)?);
    let key = PrivateKeyDer::try_from(std::fs::read(key)?)?;
    let config = ServerConfig::with_single_cert(vec![certificate], key)?;
    let (endpoint, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
    let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime)?;
    println!("answering on {}", endpoint.local_addr()?);
    serve(endpoint).await;
    Ok(())
}

/// Serves connections until the endpoint is closed.
pub(crate) async fn serve(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = echo(incoming).await {
                eprintln!("a connection has ended: {error}");
            }
        });
    }
}

async fn echo(incoming: Incoming) -> Result<(), Box<dyn Error + Send + Sync>> {
    let connection = incoming.await?;
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::io::copy(&mut receive, &mut send).await?;
        send.finish()?;
    }
    Ok(())
}
