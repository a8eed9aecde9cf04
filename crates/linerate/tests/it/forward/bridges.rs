//! A port below a bridge: frames for the router are addressed to the bridge, and come to it through the bridge.

use linerate_testkit::{root_or_skip, wait_for};

use super::datapath::{port, steer};
use super::support::Net;

/// Not the MAC address of a member port, which the kernel would choose by default.
const MAC: &str = "02:00:00:00:0b:01";

fn ip(net: &Net, lines: &[&str]) {
    lines.iter().for_each(|line| net.router_does(&format!("ip {line}")));
}

fn join(net: &Net) {
    ip(net, &["addr del 10.9.1.1/24 dev left", "link set left master br0"]);
    ip(net, &["addr add 10.9.1.1/24 dev br0"]);
    renew(net);
}

fn leave(net: &Net) {
    ip(net, &["addr del 10.9.1.1/24 dev br0", "link set left nomaster"]);
    ip(net, &["addr add 10.9.1.1/24 dev left"]);
    renew(net);
}

/// The client asks anew who has the router's address.
fn renew(net: &Net) {
    linerate_testkit::tools::ip(&net.client, "neigh flush dev host");
}

/// What `status` says that lies on port `left`.
fn upper_devices(net: &Net) -> serde_json::Value {
    let status = net.json("status").remove(0);
    let ports = status["ports"].as_array().unwrap();
    ports.iter().find(|port| port["interface"] == "left").unwrap()["upper_devices"].clone()
}

#[test]
fn a_port_forwards_also_below_a_bridge() {
    root_or_skip!();
    let net = Net::new();
    ip(&net, &["link add br0 type bridge", &format!("link set br0 address {MAC} up")]);
    join(&net);
    let _daemon = net.run("");
    assert_eq!(upper_devices(&net), serde_json::json!(["br0"]));
    assert!(net.stdout_of("status").contains("br0"), "{}", net.stdout_of("status"));
    assert_eq!(net.ask(0, 4000, 30), 30);
    let learned = |port| {
        let sessions = net.json(&format!("sessions --port {port}"));
        let fast = sessions.iter().filter(|one| one["packets"].as_u64() > Some(20));
        fast.count()
    };
    assert_eq!(learned(4000), 2, "both ways: {:?}", net.sessions());

    // While it runs: what the bridge passes up waits for another CPU, and must not be overtaken.
    let left = || port(&net, "left")["ingress"].clone();
    let steered = "receive packet steering (RPS) of the interface above";
    steer(&net, "br0", "3");
    wait_for("the kernel forwards", || left()["reason"] == steered && left()["datapath"].is_null());
    steer(&net, "br0", "0");
    wait_for("XDP again", || left()["datapath"] == "xdp");

    // Out of the bridge, and into it again.
    leave(&net);
    wait_for("the bridge to be left", || upper_devices(&net) == serde_json::json!([]));
    assert_eq!(net.ask(0, 4001, 30), 30);
    assert_eq!(learned(4001), 2, "both ways: {:?}", net.sessions());
    join(&net);
    wait_for("the bridge to be joined", || upper_devices(&net) == serde_json::json!(["br0"]));
    assert_eq!(net.ask(0, 4002, 30), 30);
    assert_eq!(learned(4002), 2, "both ways: {:?}", net.sessions());
}
