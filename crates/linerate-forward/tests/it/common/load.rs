//! A generator at the peer of a port.

use linerate_generate::{Config, Generator, Options, PayloadHeader, Running};
use linerate_wire::ethernet;

use super::host::{Host, LAN, PORTS, router_mac};
use super::router::Router;

/// Sends into the port `lan` on the first CPU until the value is dropped; frames carry their time.
pub(crate) fn load(router: &Router, options: Options) -> Running {
    let options = Options {
        source_mac: Some(ethernet::Address(Host { port: LAN, number: 10 }.mac().0)),
        destination_mac: Some(ethernet::Address(router_mac(LAN).0)),
        stamp: Some(options.stamp.unwrap_or(PayloadHeader::Time)),
        cpu: Some(0),
        ..options
    };
    let start = || Generator::start(Config::new(PORTS[LAN], options).expect("a plan"));
    router.outside.run(start).expect("entered").expect("started")
}
