//! What each source needs to be allowed to do, by running it with that and no more.

use std::process::Output;

use linerate_netns::{root_or_skip, say_skipped};

use crate::support::{Cable, LINERATE};

/// What docs/capture.md names for sources in XDP.
const FOR_XDP: &str = "net_raw,net_admin,bpf,perfmon";

/// Runs a capture for a moment as nobody with these capabilities; `None` without setpriv(1).
fn run(cable: &Cable, capabilities: &str, arguments: &str) -> Option<Output> {
    let sets = capabilities.split(',').map(|one| format!("+{one}")).collect::<Vec<_>>().join(",");
    let mut command = cable.far.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([format!("--inh-caps=-all,{sets}"), format!("--ambient-caps=-all,{sets}")]);
    command.arg(format!("--bounding-set=-all,{sets}"));
    command.args([LINERATE, "capture", "-i", "far", "--discard", "-B", "4096"]);
    command.args(["-a", "duration:0.1"]).args(arguments.split_whitespace());
    command.output().ok()
}

#[test]
fn the_capabilities_that_are_named_are_enough() {
    const NAME: &str = "the_capabilities_that_are_named_are_enough";
    root_or_skip!(NAME);
    let cable = Cable::lay();
    let cases = [
        ("net_raw", "--source packet udp"),
        (FOR_XDP, "--source xdp --take-over --xdp-through buffer udp"),
        (FOR_XDP, "--source tee udp"),
        (FOR_XDP, "--source xdp --take-over --xdp-through socket udp"),
    ];
    for (capabilities, arguments) in cases {
        let Some(output) = run(&cable, capabilities, arguments) else {
            return say_skipped(NAME, "needs setpriv");
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{capabilities}: {arguments}: {said}");
    }
}

#[test]
fn a_missing_capability_is_named() {
    const NAME: &str = "a_missing_capability_is_named";
    root_or_skip!(NAME);
    let cable = Cable::lay();
    let xdp = "--source xdp --take-over --xdp-through";
    let cases = [
        ("net_admin", "--source packet".to_owned(), "CAP_NET_RAW"),
        ("net_raw,net_admin", format!("{xdp} socket"), "CAP_BPF"),
        ("net_raw,net_admin", "--source tee".to_owned(), "CAP_BPF"),
        ("net_raw,net_admin,bpf", format!("{xdp} socket"), "CAP_PERFMON"),
    ];
    for (capabilities, arguments, missing) in cases {
        let Some(output) = run(&cable, capabilities, &arguments) else {
            return say_skipped(NAME, "needs setpriv");
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{capabilities}: {arguments}: {said}");
        assert!(said.contains(missing) && said.contains("setcap"), "{arguments}: {said}");
        let all = "cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep";
        assert!(missing == "CAP_NET_RAW" || said.contains(all), "{said}");
    }
}
