//! What is said, in each form, with and without privileges; and that looking changes nothing.

use std::collections::BTreeSet;

use linerate_testkit::root_or_skip;

use super::support::{Bed, Findings};

fn ids(findings: &Findings) -> BTreeSet<(String, bool)> {
    let all = findings.report["findings"].as_array().unwrap();
    all.iter()
        .map(|one| (one["id"].as_str().unwrap().to_owned(), one["interface"].is_null()))
        .collect()
}

/// `nsenter --net` leaves the /sys of the host.
#[test]
fn a_foreign_sysfs_has_a_remedy() {
    root_or_skip!();
    let bed = Bed::new();
    let findings = bed.findings_after("nsenter --mount=/proc/$PPID/ns/mnt", "");
    for id in ["packet-steering", "irq-deferral"] {
        let found = findings.get(id, "unknown", "/sys shows another network namespace").unwrap();
        assert_eq!(found["command"], "ip netns exec NAME linerate doctor", "{found}");
    }
}

/// Each check says something of its own, and at least that it may not see.
#[test]
fn without_privileges_no_check_is_missing() {
    root_or_skip!();
    let bed = Bed::new();
    let root = bed.findings("");
    let expected: BTreeSet<_> = linerate_doctor::checks::CHECKS
        .iter()
        .map(|check| (check.id.to_owned(), !check.is_of_interface()))
        .collect();
    assert_eq!(ids(&root), expected);

    let nobody = bed.findings_after("setpriv --reuid 65534 --regid 65534 --clear-groups", "");
    assert_eq!(ids(&nobody), expected);
    assert_eq!(nobody.status, 4, "capabilities are missing");
    // What the peer announces is seen without.
    assert!(nobody.get("port", "warning", "takes TC").is_some(), "{:#}", nobody.report);
    for (id, words) in [("xdp-mode", "CAP_BPF"), ("rules", "not permitted"), ("tcx", "CAP_BPF")] {
        assert!(nobody.get(id, "unknown", words).is_some(), "{id}: {:#}", nobody.report);
    }
    // What is unknown costs nothing that could be told, and what is well needs nothing.
    for one in nobody.report["findings"].as_array().unwrap() {
        assert_eq!(one["cost"].is_null(), one["severity"] == "unknown" || one["severity"] == "ok");
        assert!(one["severity"] != "ok" || one["command"].is_null(), "{one}");
    }
}

/// The program that tries XDP is gone afterwards, and so is what the driver changed for it.
#[test]
fn looking_changes_nothing() {
    root_or_skip!();
    let bed = Bed::new();
    let state = || {
        bed.run(
            "ethtool -k a; ethtool -l a; ip -details link show dev a; \
             ip netns exec $FAR ethtool -k b; sysctl -a --pattern '^net.ipv[46].conf' 2>/dev/null",
        )
    };
    let before = state();
    assert!(bed.findings("").get("xdp-mode", "ok", "native").is_some());
    assert_eq!(before, state());
    let not_tried = bed.findings("--no-attach");
    assert!(not_tried.get("xdp-mode", "unknown", "--no-attach").is_some());
}

#[test]
fn a_problem_of_many_interfaces_is_a_short_line() {
    root_or_skip!();
    let bed = Bed::new();
    bed.run(
        "for i in $(seq 100); do ip link add interface$i type veth peer name peer$i; \
         ip link set interface$i up; done",
    );
    let text = String::from_utf8(bed.shell("$LINERATE doctor").stdout).unwrap();
    assert!(text.contains(" others): "), "{text}");
    let longest = text.lines().map(str::len).max().unwrap();
    assert!(longest < 300, "{longest}: {text}");
    let listed = String::from_utf8(bed.shell("$LINERATE doctor --json").stdout).unwrap();
    assert!(listed.contains("\"interface100\""), "the JSON output has all");
    // Errors, too.
    for verb in ["capture -i no", "forward run -i no", "generate -i no", "uplink -i no --tap x"] {
        let output = bed.shell(&format!("$LINERATE {verb}"));
        let text = String::from_utf8(output.stderr).unwrap();
        let longest = text.lines().map(str::len).max().unwrap();
        assert!(!output.status.success() && longest < 400, "{verb}: {longest}: {text}");
    }
}

#[test]
fn the_text_has_what_the_json_has() {
    root_or_skip!();
    let bed = Bed::new();
    let plain = bed.shell("ethtool -L a rx 1; $LINERATE doctor -i a capture");
    let text = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(plain.status.code(), Some(3), "{text}");
    for line in [
        "  warning  queues: receive channels: 1 of 2 in use, for ",
        "           measured  ethtool -l (netlink)\n",
        "           cost      one CPU receives what several could\n",
        "           fix       ethtool -L a rx 2\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("  ok ") && !text.contains("forwarding"), "{text}");
    let all = String::from_utf8(bed.shell("$LINERATE doctor -i a --all").stdout).unwrap();
    assert!(all.contains("  ok       link: up, with a carrier\n"), "{all}");
    assert!(all.contains("[forward]") && all.trim_end().ends_with(" ok"), "{all}");
}

#[test]
fn what_is_not_there_is_named() {
    root_or_skip!();
    let bed = Bed::new();
    let gone = bed.shell("$LINERATE doctor -i none");
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8(gone.stderr).unwrap().contains("no interface named none"));
    let job = bed.shell("$LINERATE doctor sleep");
    assert_eq!(job.status.code(), Some(2));
    assert!(String::from_utf8(job.stderr).unwrap().contains("uplink"));
}
