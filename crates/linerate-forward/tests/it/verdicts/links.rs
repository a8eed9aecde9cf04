//! BPF programs at netfilter's hooks.

use std::cell::RefCell;

use libbpf_rs::{
    Link, NF_INET_FORWARD, NF_INET_LOCAL_IN, NF_INET_POST_ROUTING, NF_INET_PRE_ROUTING,
    NFPROTO_IPV4, NFPROTO_IPV6, NetfilterOpts, ObjectBuilder,
};
use linerate_testkit::{Namespace, probe_or_skip};

use super::Bench;
use crate::common::compiled;

/// Attaches a program to a hook of the namespace, which drops long packets.
fn attach(router: &Namespace, protocol_family: i32, hooknum: i32) -> Result<Link, String> {
    let attach = || {
        let object = ObjectBuilder::default().open_file(compiled("netfilter"))?.load()?;
        let program = object.progs_mut().next().expect("a program");
        let options = NetfilterOpts { protocol_family, hooknum, ..NetfilterOpts::default() };
        program.attach_netfilter_with_opts(options)
    };
    router.run(attach).expect("entered").map_err(|error| format!("{error:#}"))
}

#[test]
fn a_bpf_program_at_a_hook_keeps_the_sessions_that_it_sees() {
    learner_or_skip!();
    let mut bench = Bench::new();
    let probe = attach(bench.routers()[0], NFPROTO_IPV4, NF_INET_LOCAL_IN);
    probe_or_skip!(probe.err());
    let links = RefCell::new(Vec::new());
    for (family, hook, is_kept) in [
        (NFPROTO_IPV4, NF_INET_LOCAL_IN, false),
        (NFPROTO_IPV4, NF_INET_FORWARD, true),
        (NFPROTO_IPV6, NF_INET_PRE_ROUTING, true),
        (NFPROTO_IPV6, NF_INET_POST_ROUTING, true),
    ] {
        let load = |router: &Namespace| {
            links.borrow_mut().push(attach(router, family, hook)?);
            Ok(())
        };
        let compared = bench.compare(load, |_| String::new(), is_kept);
        compared.unwrap_or_else(|error| panic!("family {family}, hook {hook}: {error}"));
        links.borrow_mut().clear();
    }
    bench.compare(|_| Ok(()), |_| String::new(), false).expect("they are gone");
}
