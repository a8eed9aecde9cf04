use linerate_net::Steering;
use linerate_net::privilege::{CapabilitySet, keep_only};
use linerate_testkit::{root_or_skip, wait_for};

use crate::support::cable;

#[test]
fn without_the_privilege_sys_is_taken_only_if_it_shows_this_namespace() {
    root_or_skip!();
    let open = || {
        keep_only(CapabilitySet::NET_ADMIN).unwrap();
        Steering::open().is_ok()
    };
    let here = move || wait_for("an interface of others to be in both or neither", open);
    std::thread::spawn(here).join().unwrap();
    assert!(!cable().near.run(open).unwrap());
}
