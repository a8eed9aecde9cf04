//! Nothing is learned from what the kernel decided before a change: a packet is held back in the router,
//! waiting for the address of a neighbour, while the configuration changes.

use linerate_forward::refusal::Refusal;
use linerate_forward::table::session::State;

use linerate_testkit::wait_for;

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, at};
use linerate_testkit::tools::{ip, run};
use std::time::Duration;

/// Hosts that are not there, and so do not say their addresses.
const ABSENT: [[&str; 2]; 2] = [["10.2.0.98", "10.2.0.99"], ["fd02::98", "fd02::99"]];

#[test]
fn what_was_decided_before_a_change_is_not_learned_after_it() {
    learner_or_skip!();
    let lab = Lab::new("lge");
    let fast = Accelerator::attach_with(&lab, 1, Duration::from_secs(60));
    for family in BOTH {
        let client = Lab::udp(&lab.left, LEFT[family], 4000);
        for (held, absent) in ABSENT[family].into_iter().enumerate() {
            let changes = held == 1;
            let there = at(absent, 5000);
            let session = || fast.session(at(LEFT[family], 4000), there);
            client.send_to(b"held", there).expect("sent");
            // It has come in, and waits.
            wait_for("a neighbour is looked for", || {
                run(&lab.router, "ip", &["neigh", "show", absent], "").contains("INCOMPLETE")
            });
            assert!(session().is_none(), "{}", fast.describe());
            let refused = fast.refused(Refusal::Generation);
            if changes {
                fast.control.bump_generation();
            }
            let mac = lab.wan.b.mac();
            ip(&lab.router, &format!("neigh replace {absent} dev wan lladdr {mac} nud permanent"));
            if changes {
                wait_for("refused", || fast.refused(Refusal::Generation) == refused + 1);
                assert!(session().is_none(), "{}", fast.describe());
            } else {
                wait_for("learned", || session().is_some());
                assert_eq!(fast.refused(Refusal::Generation), refused, "{}", fast.describe());
            }
            // The next packet is judged by the state of now.
            client.send_to(b"next", there).expect("sent");
            wait_for("learned", || {
                session().is_some_and(|record| {
                    matches!(record.state, State::Fast | State::Due) && record.packets == 2
                })
            });
        }
    }
}
