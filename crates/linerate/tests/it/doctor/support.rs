//! A veth pair with `linerate doctor` at one end, and faults to be made there.

use std::process::Output;

use linerate_testkit::{Namespace, Veth, VethOptions};
use serde_json::Value;

use crate::LINERATE;

/// `a` in the namespace `near` is examined; `b` in `far` is its peer.
pub(super) struct Bed {
    pub(super) near: Namespace,
    pub(super) far: Namespace,
    pub(super) veth: Veth,
}

impl Bed {
    /// Everything is as `linerate doctor` wants it that a fault will change.
    pub(super) fn new() -> Self {
        let near = Namespace::create("doc-near").unwrap();
        let far = Namespace::create("doc-far").unwrap();
        let options = VethOptions { queues: 2, ..VethOptions::default() };
        let veth = Veth::create(&near, "a", &far, "b", options).unwrap();
        near.set_forwarding(true).unwrap();
        veth.b.set_offloads(false).unwrap();
        veth.b
            .set_features(&[("tx-vlan-hw-insert", false), ("tx-vlan-stag-hw-insert", false)])
            .unwrap();
        Self { near, far, veth }
    }

    /// Runs a line of shell where `a` is, with a /sys of its namespace, and `FAR` as the name of the other.
    pub(super) fn shell(&self, line: &str) -> Output {
        let far = format!("FAR={}", self.far.name());
        std::process::Command::new("ip")
            .args(["netns", "exec", self.near.name(), "env", &far])
            .args([&format!("LINERATE={LINERATE}"), "sh", "-ec", line])
            .output()
            .unwrap()
    }

    /// The same for what has to work.
    #[track_caller]
    pub(super) fn run(&self, line: &str) -> String {
        let output = self.shell(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the doctor finds on `a`; `before` stands before the command, as a line of shell.
    #[track_caller]
    pub(super) fn findings_after(&self, before: &str, arguments: &str) -> Findings {
        let line = format!("{before} $LINERATE doctor --json -i a {arguments}");
        Findings::read(&self.shell(&line))
    }

    #[track_caller]
    pub(super) fn findings(&self, arguments: &str) -> Findings {
        self.findings_after("", arguments)
    }
}

/// The JSON object of a run.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) report: Value,
    pub(super) status: i32,
}

impl Findings {
    #[track_caller]
    fn read(output: &Output) -> Self {
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|error| panic!("{error}: {errors}"));
        Self { report, status: output.status.code().unwrap() }
    }

    /// The finding of this check and severity whose text contains `words`.
    pub(super) fn get(&self, id: &str, severity: &str, words: &str) -> Option<&Value> {
        self.report["findings"].as_array().unwrap().iter().find(|one| {
            one["id"] == id
                && one["severity"] == severity
                && one["what"].as_str().unwrap().contains(words)
        })
    }
}
