//! TLS of a build without it: settings cannot be read.

use std::io;
use std::net::TcpStream;

use super::Error;
use super::target::{Target, TlsFiles};

pub(super) enum TlsSettings {}

pub(super) enum TlsStream {}

impl TlsSettings {
    pub(super) fn read(target: &Target, _: &TlsFiles) -> Result<Self, Error> {
        let reason = "this program was built without TLS".into();
        Err(Error::Tls { target: target.clone(), reason })
    }

    pub(super) fn connect(&self, _: TcpStream) -> io::Result<TlsStream> {
        match *self {}
    }
}

impl TlsStream {
    pub(super) fn socket(&self) -> &TcpStream {
        match *self {}
    }

    pub(super) fn write_all(&mut self, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn is_closed(&mut self) -> bool {
        match *self {}
    }
}
