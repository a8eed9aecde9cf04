//! A service of systemd: what its unit refuses, and what messages then say. There is no systemd here: INVOCATION_ID, a
//! control group with the unit's name, its egress filter and its read-only mounts are made as systemd makes them.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libbpf_rs::{Link, ObjectBuilder};
use linerate_testkit::tools::compile_bpf;
use linerate_testkit::{Process, root_or_skip, skip};

use crate::LINERATE;
use crate::capture::support::{Cable, write_mixed};

/// A control group of the version that the host has, with the name of a unit.
struct Unit {
    name: String,
    folder: PathBuf,
}

impl Unit {
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        let name = format!("linerate-{name}-{}@eth0.service", std::process::id());
        let folder = Path::new(mount.split(' ').nth(1)?).join(&name);
        fs::create_dir(&folder).ok()?;
        Some(Self { name, folder })
    }

    /// Arguments of a shell that runs this script, and then the command with what follows, in the service.
    fn enter(&self, script: &str) -> [String; 4] {
        let group = self.folder.display();
        let enter =
            format!("echo $$ >{group}/cgroup.procs; export INVOCATION_ID=1; {script}; exec \"$@\"");
        ["-c".to_owned(), enter, "sh".to_owned(), LINERATE.to_owned()]
    }

    /// Lets sockets of the service send to this host only, as IPAddressDeny=any and IPAddressAllow=localhost.
    fn deny(&self) -> Link {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("deny.bpf.c");
        let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
            SEC(\"cgroup_skb/egress\") int deny(struct __sk_buff *skb)\n\
            { unsigned char first = 0; bpf_skb_load_bytes(skb, 16, &first, 1); return first == 127; }\n\
            char LICENSE[] SEC(\"license\") = \"Dual MIT/GPL\";\n";
        fs::write(&source, text).unwrap();
        let mut object = ObjectBuilder::default();
        let object = object.open_file(compile_bpf(&source, folder.path())).unwrap().load().unwrap();
        let program = object.progs_mut().next().unwrap();
        program.attach_cgroup(File::open(&self.folder).unwrap().as_raw_fd()).unwrap()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn a_collector_that_the_unit_denies_names_ip_address_allow() {
    root_or_skip!();
    let Some(unit) = Unit::new("deny") else { skip!("no control group of version 2") };
    let _denied = unit.deny();
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let cable = Cable::new();
    let run = |is_service: bool, collector: &str| {
        let script = if is_service { "ip link set lo up" } else { "unset INVOCATION_ID" };
        let mut command = cable.far.command("sh");
        command.args(unit.enter(script));
        command.args(["capture", "-q", "-r"]).arg(&input).args(["--flows", collector]);
        Process::start(&mut command).wait()
    };
    let remedy = format!(
        "if IPAddressDeny= of the unit {0} is the reason, run `systemctl edit {0}`, add \
         `IPAddressAllow=10.9.0.1` below [Service]",
        unit.name
    );
    for collector in ["ipfix://10.9.0.1", "ipfix+tcp://10.9.0.1"] {
        let (status, _, printed) = run(true, collector);
        assert!(!status.success() && printed.contains(&remedy), "{collector}: {printed}");
    }
    let (_, _, printed) = run(false, "ipfix://10.9.0.1");
    assert!(printed.contains("not permitted") && !printed.contains("IPAddress"), "{printed}");
    // The refusal of this host's port has another reason.
    let (_, _, printed) = run(true, "ipfix://127.0.0.1");
    assert!(printed.contains("refused") && !printed.contains("IPAddress"), "{printed}");
}

#[test]
fn a_path_that_the_unit_denies_names_the_setting() {
    root_or_skip!();
    let Some(unit) = Unit::new("path") else { skip!("no control group of version 2") };
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in.pcap"), folder.path().join("out 50%"));
    write_mixed(&input);
    fs::create_dir(&out).unwrap();
    let run = |prepare: &str, arguments: &[&str]| -> Output {
        let mut command = Command::new("unshare");
        let script = format!("at='{}'; {prepare}", out.display());
        command.args(["--mount", "sh"]).args(unit.enter(&script));
        command.args(arguments).output().unwrap()
    };
    let (input, at) = (input.to_str().unwrap(), out.to_str().unwrap());
    let (file, flows) = (format!("{at}/x.pcap"), format!("{at}/flows/new"));
    let by_mount = "mount --bind \"$at\" \"$at\" && mount -o remount,bind,ro \"$at\"";
    let edit = format!("the unit {0} does not allow it: run `systemctl edit {0}`", unit.name);
    let quoted = format!("\"{}\"", at.replace('%', "%%"));
    for arguments in [
        &["capture", "-q", "-r", input, "-w", &file][..],
        &["capture", "-q", "-r", input, "--flows", &flows],
        &["capture", "-q", "-r", input, "-b", "packets:5", "-w", &file],
        &["segment", input, "-w", &file],
    ] {
        let output = run(by_mount, arguments);
        let printed = String::from_utf8_lossy(&output.stderr);
        let setting = format!("{edit}, add `ReadWritePaths={quoted}` below [Service]");
        assert!(!output.status.success() && printed.contains(&setting), "{arguments:?}: {printed}");
    }
    // The file system itself is read-only: no setting helps.
    let capture = ["capture", "-q", "-r", input, "-w", &file];
    let output = run("mount -t tmpfs -o ro none \"$at\"", &capture);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("Read-only") && !printed.contains("unit"), "{printed}");

    // Without these capabilities root is a user as others are.
    let lacking = ["--bounding-set", "-dac_override,-dac_read_search,-setuid,-setgid"];
    let run = |prepare: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "setpriv"]).args(lacking).args(["--inh-caps", "-all", "sh"]);
        let script = format!("at='{}'; {prepare}", out.display());
        command.args(unit.enter(&script));
        let output = command.args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    std::os::unix::fs::chown(&out, Some(65534), None).unwrap();
    let printed = run("true", &capture);
    assert!(
        printed.contains(&format!("{edit}, add `CapabilityBoundingSet=CAP_DAC_OVERRIDE`")),
        "{printed}"
    );
    let hidden = "mount -t tmpfs -o mode=0 none /home";
    let printed = run(hidden, &["capture", "-q", "-r", input, "-w", "/home/x/y.pcap"]);
    assert!(printed.contains(&format!("{edit}, add `ProtectHome=no`")), "{printed}");
    let printed =
        run("true", &["capture", "-q", "-i", "lo", "-c", "1", "-w", "/dev/null", "-Z", "nobody"]);
    assert!(printed.contains(&format!("{edit}, add `User=nobody`")), "{printed}");
}
