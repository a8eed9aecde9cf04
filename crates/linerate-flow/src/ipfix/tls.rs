//! [`TlsSettings`] and [`TlsStream`]: TLS to a collector (RFC 7011 section 11).

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Error;
use super::target::{Target, TlsFiles};

/// What every session with a collector needs. The files are read once, so that a session can begin again after the
/// process has given up its privileges.
pub(super) struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// # Errors
    /// [`Error::Tls`], with the file.
    pub(super) fn read(target: &Target, files: &TlsFiles) -> Result<Self, Error> {
        let failed = |reason: String| Error::Tls { target: target.clone(), reason };
        let name = ServerName::try_from(target.name().to_owned())
            .map_err(|_| failed(format!("no certificate can have the name {}", target.name())))?;
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| failed(error.to_string()))?
                .with_root_certificates(roots(files.ca.as_deref()).map_err(failed)?);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| failed(format!("{}: {error}", key.display())))?;
                let chain = certificates(certificate).map_err(failed)?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| failed(format!("{}: {error}", certificate.display())))?
            }
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// Begins a session in a connection whose timeouts are set.
    pub(super) fn connect(&self, mut stream: TcpStream) -> io::Result<TlsStream> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(TlsStream(StreamOwned::new(connection, stream)))
    }
}

/// The authorities in this file, or those of the system.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let why =
                    found.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                return Err(format!(
                    "this system has no certificates of authorities (Debian: ca-certificates); name a file by ca=. \
                     {why}"
                ));
            }
        }
    }
    Ok(roots)
}

/// The certificates in a PEM file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error| format!("{}: {error}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(failed)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if found.is_empty() {
        return Err(format!("{}: it has no certificate", file.display()));
    }
    Ok(found)
}

/// A session. Its drop tells the collector that no more comes.
pub(super) struct TlsStream(StreamOwned<ClientConnection, TcpStream>);

impl TlsStream {
    /// The connection below.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.0.sock
    }

    pub(super) fn write_all(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.write_all(message)?;
        self.0.flush()
    }

    /// Whether the collector has ended the session. It sends no data, but session tickets and keys, which this reads.
    pub(super) fn is_closed(&mut self) -> bool {
        if self.0.sock.set_nonblocking(true).is_err() {
            return true;
        }
        let closed = match self.0.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        closed || self.0.sock.set_nonblocking(false).is_err()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.0.conn.send_close_notify();
        // The connection may be gone already.
        let _ = self.0.flush();
    }
}
