//! A generator at the far end of a port.

use linerate_generate::{Generator, Plan, Running, Settings, Stamp};
use linerate_wire::ethernet;

use super::router::Router;
use super::station::{LAN, PORTS, Station, router_mac};

/// Sends into the port `lan` on the first CPU until the value is dropped; frames carry their time.
pub(crate) fn load(router: &Router, settings: Settings) -> Running {
    let settings = Settings {
        source_mac: Some(ethernet::Address(Station { port: LAN, number: 10 }.mac().0)),
        destination_mac: Some(ethernet::Address(router_mac(LAN).0)),
        stamp: Some(settings.stamp.unwrap_or(Stamp::Time)),
        cpu: Some(0),
        ..settings
    };
    let start = || Generator::start(Plan::decide(PORTS[LAN], settings).expect("a plan"));
    router.outside.run(start).expect("entered").expect("started")
}
