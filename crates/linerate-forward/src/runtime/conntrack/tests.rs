use linerate_testkit::{Namespace, root_or_skip, skip};

use super::*;

#[test]
fn the_settings_are_restored_as_they_were() {
    root_or_skip!();
    let namespace = Namespace::create("liberal").expect("a namespace");
    let inside = || {
        let saved = relax_tcp_tracking().expect("set");
        if saved.liberal.is_none() {
            skip!("no connection tracking");
        }
        let both =
            || [TCP_BE_LIBERAL, TCP_IGNORE_INVALID_RST].map(|setting| read(setting).unwrap_or(9));
        let has_resets = saved.resets.is_some();
        let resets = |value| if has_resets { value } else { 9 };
        assert_eq!(saved, SavedSysctls { liberal: Some(0), resets: has_resets.then_some(0) });
        assert_eq!(both(), [1, resets(1)]);
        restore(saved).expect("restored");
        assert_eq!(both(), [0, resets(0)]);

        // If it was on before, it stays on.
        write(TCP_BE_LIBERAL, 1).expect("written");
        let saved = relax_tcp_tracking().expect("set");
        restore(saved).expect("restored");
        assert_eq!(both(), [1, resets(0)]);

        // If someone disabled it in the meantime, it stays off.
        write(TCP_BE_LIBERAL, 0).expect("written");
        restore(SavedSysctls { liberal: Some(1), resets: None }).expect("restored");
        assert_eq!(both(), [0, resets(0)]);
    };
    namespace.run(inside).expect("entered");
}
