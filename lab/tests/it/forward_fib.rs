//! The forwarding baseline without sessions.

use linerate_forward::reason::Reason;
use linerate_lab::baseline::forward_fib::Accelerator;
use linerate_testkit::lab::{Lab, deliver};
use linerate_testkit::root_or_skip;

#[test]
fn the_stateless_baseline_forwards_at_once() {
    root_or_skip!();
    let net = Lab::new("base");
    let ports = ["lan".to_owned(), "wan".to_owned()];
    let started = net.router.run(|| Accelerator::start(&ports)).expect("entered");
    let mut fast = started.unwrap_or_else(|error| panic!("{error:#}"));
    for family in [0, 1] {
        let flow = net.flow(family);
        for _ in 0..10 {
            fast.tick().expect("a heartbeat");
            deliver(&flow.server, flow.ask("question"), &flow.client, "answer");
        }
    }
    assert_eq!(fast.slow_path(Reason::Unknown).unwrap(), 0);
}
