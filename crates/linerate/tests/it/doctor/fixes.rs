//! `--fix`, `--undo` and `--persist`: what was found is changed, and changed back to the letter.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};
use serde_json::{Value, json};

use super::support::{Bed, Findings};

/// A bed with a folder for the state file.
struct Fixing {
    bed: Bed,
    folder: tempfile::TempDir,
}

impl Fixing {
    fn new() -> Self {
        Self { bed: Bed::new(), folder: tempfile::tempdir().unwrap() }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state/doctor.json")
    }

    fn arguments(&self, rest: &str) -> String {
        format!("--state {} {rest}", self.state().display())
    }

    /// Everything that a change here may touch, as the tools of others show it.
    fn snapshot(&self) -> String {
        self.bed.run(
            "ethtool -k a; ethtool -l a; sysctl -a --pattern '^net.ipv[46].(conf|ip_forward)' 2>/dev/null; \
             grep . /sys/class/net/a/queues/*/rps_cpus /sys/class/net/a/napi_defer_hard_irqs \
             /sys/class/net/a/gro_flush_timeout",
        )
    }

    #[track_caller]
    fn undo(&self) -> (Value, i32) {
        let line = format!("$LINERATE doctor --undo --json {}", self.arguments(""));
        let output = self.bed.shell(&line);
        let report = serde_json::from_slice(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        (report.unwrap_or_else(|error| panic!("{error}: {errors}")), output.status.code().unwrap())
    }
}

/// Commands of the steps that were done.
fn commands(report: &Value) -> Vec<&str> {
    let steps = report["steps"].as_array().unwrap();
    let done = steps.iter().filter(|step| step["left"].is_null());
    done.map(|step| step["command"].as_str().unwrap()).collect()
}

fn has(findings: &Findings, id: &str) -> bool {
    let all = findings.report["findings"].as_array().unwrap();
    all.iter().any(|one| one["id"] == id && one["fixable"] == true)
}

/// Faults that a change fixes: the line that makes it, the job, the check, and the command.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        "echo 0 >/proc/sys/net/ipv4/ip_forward",
        "forward",
        "forwarding",
        "sysctl -w net.ipv4.ip_forward=1",
    ),
    (
        // One interface forwards, the host does not: the change of the host changes it, too.
        "echo 0 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv4/conf/a/forwarding",
        "forward",
        "forwarding",
        "sysctl -w net.ipv4.ip_forward=1",
    ),
    (
        "echo 1 >/proc/sys/net/ipv4/conf/a/rp_filter",
        "receive",
        "rp-filter",
        "sysctl -w net.ipv4.conf.a.rp_filter=2",
    ),
    ("ethtool -L a rx 1", "receive", "queues", "ethtool -L a rx 2"),
    ("ethtool -K a gro on", "capture", "gro", "ethtool -K a rx-gro off"),
    ("ethtool -K a rx-gro-list on", "capture", "gro-list", "ethtool -K a rx-gro-list off"),
    (
        "ethtool -K a rx-udp-gro-forwarding on",
        "capture",
        "gro-forwarding",
        "ethtool -K a rx-udp-gro-forwarding off",
    ),
    (
        "echo 1 >/sys/class/net/a/queues/rx-1/rps_cpus",
        "receive",
        "packet-steering",
        "echo 0 > /sys/class/net/a/queues/rx-1/rps_cpus",
    ),
    (
        "echo 2 >/sys/class/net/a/napi_defer_hard_irqs",
        "receive",
        "irq-deferral",
        "echo 0 > /sys/class/net/a/napi_defer_hard_irqs",
    ),
    (
        "echo 20000 >/sys/class/net/a/gro_flush_timeout",
        "receive",
        "irq-deferral",
        "echo 0 > /sys/class/net/a/gro_flush_timeout",
    ),
];

#[test]
fn what_is_fixed_is_undone_to_the_letter() {
    root_or_skip!();
    for (fault, job, id, command) in FAULTS {
        let fixing = Fixing::new();
        fixing.bed.run(fault);
        let before = fixing.snapshot();
        let line = format!("{job} --check {id}");
        assert!(has(&fixing.bed.findings(&line), id), "{fault}");

        let fixed = fixing.bed.findings(&fixing.arguments(&format!("{line} --fix")));
        assert_eq!(commands(&fixed.report), [*command], "{fault}: {:#}", fixed.report);
        assert!(!has(&fixed, id), "{fault}: {:#}", fixed.report);
        assert_ne!(fixing.snapshot(), before, "{fault}");
        let recorded: Value = serde_json::from_slice(&fs::read(fixing.state()).unwrap()).unwrap();
        assert!(!recorded["entries"].as_array().unwrap().is_empty());

        let (undone, status) = fixing.undo();
        assert_eq!(status, 0, "{fault}: {undone:#}");
        assert_eq!(fixing.snapshot(), before, "{fault}: {undone:#}");
        assert!(!fixing.state().exists(), "nothing is left to undo");
    }
}

/// The value of a setting in sysfs of the namespace.
const DEFER: &str = "/sys/class/net/a/napi_defer_hard_irqs";

/// A bed whose one fault was fixed.
fn fixed() -> Fixing {
    let fixing = Fixing::new();
    fixing.bed.run("ethtool -L a rx 1");
    let fixed = fixing.bed.findings(&fixing.arguments("--check queues --fix"));
    assert_eq!(commands(&fixed.report), ["ethtool -L a rx 2"], "{:#}", fixed.report);
    fixing
}

#[test]
fn what_somebody_has_changed_since_stays() {
    root_or_skip!();
    let fixing = Fixing::new();
    fixing.bed.run(&format!("echo 2 >{DEFER}"));
    fixing.bed.findings(&fixing.arguments("--check irq-deferral --fix"));
    fixing.bed.run(&format!("echo 5 >{DEFER}"));
    let (undone, status) = fixing.undo();
    assert_eq!(status, 1, "{undone:#}");
    let left = undone["steps"][0]["left"].as_str().unwrap();
    assert!(left.contains("somebody has set it to 5"), "{undone:#}");
    assert_eq!(fixing.bed.run(&format!("cat {DEFER}")).trim(), "5");
}

#[test]
fn a_second_fix_keeps_what_was_there_first() {
    root_or_skip!();
    let fixing = fixed();
    fixing.bed.run("ethtool -L a rx 1");
    fixing.bed.findings(&fixing.arguments("--check queues --fix"));
    assert_eq!(fixing.undo().1, 0);
    assert!(fixing.bed.run("ethtool -l a").contains("RX:\t\t1\n"));
}

/// After a restart the kernel has forgotten: nothing is set back that has its value, and that is said.
#[test]
fn after_a_restart_it_says_what_is_left() {
    root_or_skip!();
    let fixing = fixed();
    let mut state: Value = serde_json::from_slice(&fs::read(fixing.state()).unwrap()).unwrap();
    state["boot"] = json!("another");
    state["namespace"] = json!(1);
    fs::write(fixing.state(), state.to_string()).unwrap();
    // No more changes on top of those of another boot.
    let refused = fixing.bed.shell(&format!(
        "echo 1 >{DEFER}; $LINERATE doctor -i a --check irq-deferral --fix {}",
        fixing.arguments("")
    ));
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--undo"));

    fixing.bed.run("ethtool -L a rx 1");
    let (undone, status) = fixing.undo();
    assert_eq!((status, &undone["restarted"]), (0, &json!(true)), "{undone:#}");
    assert_eq!(undone["steps"][0]["unchanged"], true, "{undone:#}");
    assert!(!fixing.state().exists());
    let none = fixing.bed.shell(&format!("$LINERATE doctor --undo {}", fixing.arguments("")));
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8(none.stderr).unwrap().contains("nothing to undo"));
}

#[test]
fn another_namespace_has_other_settings() {
    root_or_skip!();
    let fixing = fixed();
    let other = Namespace::create("doc-other").unwrap();
    let _veth = Veth::create(&other, "a", &other, "b", VethOptions::default()).unwrap();
    let state = fixing.state();
    let undo = ["doctor", "--undo", "--state", state.to_str().unwrap()];
    let refused = other.command(crate::LINERATE).args(undo).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("another network namespace"));
    // One that is gone had the inode of this one.
    let recorded = fs::read(&state).unwrap();
    let mut gone: Value = serde_json::from_slice(&recorded).unwrap();
    gone["namespace_cookie"] = json!(gone["namespace_cookie"].as_u64().unwrap() - 1);
    fs::write(&state, gone.to_string()).unwrap();
    let line = format!("$LINERATE doctor --undo {}", fixing.arguments(""));
    let refused = fixing.bed.shell(&line);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("another network namespace"));
    fs::write(&state, recorded).unwrap();
    assert_eq!(fixing.undo().1, 0);
}

/// The files that make the changes again are whole, known to systemd, and removed with the changes.
#[test]
fn what_is_kept_over_a_restart_is_removed_with_it() {
    root_or_skip!();
    let fixing = Fixing::new();
    fixing
        .bed
        .run(&format!("echo 0 >/proc/sys/net/ipv4/ip_forward; ethtool -L a rx 1; echo 2 >{DEFER}"));
    let root = fixing.folder.path().join("root");
    let checks = "--check forwarding --check queues --check irq-deferral";
    let line = format!("{checks} --fix --persist --root {}", root.display());
    fixing.bed.findings(&fixing.arguments(&line));

    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let sysctl = read("etc/sysctl.d/90-linerate-doctor.conf");
    assert!(sysctl.ends_with("net.ipv4.ip_forward = 1\n"), "{sysctl}");
    let unit = "etc/systemd/system/linerate-doctor-a.service";
    let text = read(unit);
    for line in [
        "ExecStart=-ethtool -L a rx 2",
        r#"ExecStart=-/bin/sh -c 'echo "$$1" > "$$2"' sh 0 /sys/class/net/a/napi_defer_hard_irqs"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{text}");
    }
    let wanted =
        "etc/systemd/system/sys-subsystem-net-devices-a.device.wants/linerate-doctor-a.service";
    assert_eq!(fs::read_link(root.join(wanted)).unwrap(), Path::new("/").join(unit));
    let verify =
        std::process::Command::new("systemd-analyze").arg("verify").arg(root.join(unit)).output();
    if let Ok(verify) = verify {
        let said = String::from_utf8_lossy(&verify.stderr);
        assert!(!said.contains("linerate-doctor-a"), "{said}");
    }

    // One that somebody has changed stays.
    fs::write(root.join("etc/sysctl.d/90-linerate-doctor.conf"), "mine\n").unwrap();
    let (undone, status) = fixing.undo();
    assert_eq!(status, 1, "{undone:#}");
    assert!(!root.join(unit).exists() && fs::read_link(root.join(wanted)).is_err());
    assert_eq!(read("etc/sysctl.d/90-linerate-doctor.conf"), "mine\n");
}

/// A BPF file system is mounted, and unmounted again.
#[test]
fn a_mount_is_undone() {
    root_or_skip!();
    let fixing = Fixing::new();
    let state = fixing.state();
    // All in one shell: mounts are those of its mount namespace.
    let lines = format!(
        "mount --make-rprivate /; \
         $LINERATE doctor -i a --check bpffs --fix --state {0} >&2; stat -f -c %T /sys/fs/bpf; \
         $LINERATE doctor --undo --state {0} >&2; stat -f -c %T /sys/fs/bpf",
        state.display()
    );
    let printed = fixing.bed.run(&lines);
    let kinds: Vec<_> = printed.lines().collect();
    assert_eq!((kinds[0], kinds.len()), ("bpf_fs", 2), "{printed}");
    assert_ne!(kinds[1], "bpf_fs");
    assert!(!state.exists());
}

#[test]
fn another_interface_of_the_name_is_left_alone() {
    root_or_skip!();
    let fixing = fixed();
    fixing.bed.run(
        "ip link del dev a; ip link add dev a numrxqueues 2 numtxqueues 2 type veth peer name b",
    );
    assert!(fixing.bed.run("ethtool -l a").contains("RX:\t\t2\n"));
    let (undone, status) = fixing.undo();
    let left = undone["steps"][0]["left"].as_str().unwrap();
    assert!(status == 1 && left.contains("another interface"), "{undone:#}");
    assert!(fixing.bed.run("ethtool -l a").contains("RX:\t\t2\n"));
}

/// The printed commands do what they say, and the name of an interface is no command.
#[test]
fn names_are_quoted_in_commands() {
    root_or_skip!();
    let fixing = Fixing::new();
    let folder = fixing.folder.path().display();
    let name = r#""x;false;'\$(y)""#;
    let setting = format!("/sys/class/net/{name}/napi_defer_hard_irqs");
    fixing
        .bed
        .run(&format!("ip link set dev a down; ip link set dev a name {name}; echo 2 >{setting}"));
    let output = fixing.bed.shell(&format!(
        "$LINERATE doctor --json -i {name} --check irq-deferral --fix --persist --root {folder}/root {}",
        fixing.arguments("")
    ));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let command = commands(&report)[0];
    let now = fixing.bed.run(&format!("echo 2 >{setting}; {command}; cat {setting}"));
    assert_eq!(now, "0\n", "{report:#}");
    let unit = "linerate-doctor-x\\x3bfalse\\x3b\\x27\\x24\\x28y\\x29.service";
    let unit = format!("{folder}/root/etc/systemd/system/{unit}");
    let text = fs::read_to_string(&unit).unwrap_or_else(|error| panic!("{unit}: {error}"));
    let argument = r#"sh 0 "/sys/class/net/x;false;'$$(y)/napi_defer_hard_irqs""#;
    assert!(text.contains(argument), "{text}");
    assert_eq!(fixing.undo().1, 0);
}

#[test]
fn others_can_neither_hold_up_nor_direct_what_is_undone() {
    root_or_skip!();
    let fixing = fixed();
    let folder = fixing.state().parent().unwrap().to_owned();
    let shared =
        |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    shared(fixing.folder.path(), 0o755);
    shared(&folder, 0o755);
    assert_eq!(fs::metadata(fixing.state()).unwrap().mode() & 0o777, 0o600);
    let lock = folder.join("doctor.lock");
    assert_eq!(fs::metadata(&lock).unwrap().mode() & 0o777, 0o600);
    // Who can read the folder locks it.
    let mut nobody = std::process::Command::new("setpriv");
    nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "flock"]);
    let mut holder = nobody
        .arg(&folder)
        .args(["sh", "-c", "echo; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();

    // A state file of somebody else, and one that somebody else may have written, is not believed.
    let state = fixing.state();
    let refused = |words: &str| {
        let line = format!("$LINERATE doctor --undo {}", fixing.arguments(""));
        let output = fixing.bed.shell(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{said}");
    };
    chown(&state, Some(65534), None).unwrap();
    refused("user 65534");
    chown(&state, Some(0), None).unwrap();
    shared(&state, 0o666);
    refused("mode 666");
    shared(&state, 0o600);
    let moved = folder.join("moved");
    fs::rename(&state, &moved).unwrap();
    symlink(&moved, &state).unwrap();
    refused("symbolic link");
    fs::rename(&moved, &state).unwrap();

    // A link at the place of the new file leads nowhere.
    let victim = folder.join("victim");
    fs::write(&victim, "whole").unwrap();
    symlink(&victim, folder.join("doctor.new")).unwrap();
    fixing.bed.run(&format!("echo 2 >{DEFER}"));
    fixing.bed.findings(&fixing.arguments("--check irq-deferral --fix"));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
    assert!(!folder.join("doctor.new").exists());

    // What another process records while this one waits for it is undone, too.
    let mut other: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    let last = other["entries"].as_array_mut().unwrap().pop().unwrap();
    let whole = fs::read(&state).unwrap();
    fs::write(&state, other.to_string()).unwrap();
    let held = fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    let undone = std::thread::scope(|scope| {
        let undo = scope.spawn(|| fixing.undo());
        std::thread::sleep(std::time::Duration::from_millis(300));
        fs::write(&state, whole).unwrap();
        drop(held);
        undo.join().unwrap()
    });
    assert_eq!(undone.1, 0, "{undone:?}");
    assert!(!state.exists() && commands(&undone.0).len() == 2, "{last} {undone:?}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
}
