//! The capabilities that each source needs: it is run with exactly those.

use std::process::Output;

use linerate_testkit::{Process, root_or_skip, skip};

use super::support::Cable;
use crate::LINERATE;

/// What docs/capture.md names for sources in XDP.
const FOR_XDP: &str = "net_raw,net_admin,bpf,perfmon";

/// The same for sockets whose buffer is more than may be locked.
const WITH_LOCK: &str = "net_raw,net_admin,bpf,perfmon,ipc_lock";

/// Runs a capture for a moment as nobody with these capabilities and 8 MiB of memory to lock; `None`
/// without prlimit(1) or setpriv(1).
fn run(cable: &Cable, capabilities: &str, arguments: &str) -> Option<Output> {
    let installed =
        |program: &str| std::process::Command::new(program).arg("--version").output().is_ok();
    if !installed("prlimit") || !installed("setpriv") {
        return None;
    }
    let sets = capabilities.split(',').map(|one| format!("+{one}")).collect::<Vec<_>>().join(",");
    let mut command = cable.far.command("prlimit");
    command.args(["--memlock=8388608:8388608", "setpriv", "--reuid", "65534"]);
    command.args(["--regid", "65534", "--clear-groups"]);
    command.args([format!("--inh-caps=-all,{sets}"), format!("--ambient-caps=-all,{sets}")]);
    command.arg(format!("--bounding-set=-all,{sets}"));
    command.args([LINERATE, "capture", "-i", "far", "--discard"]);
    command.args(["-a", "duration:0.1"]).args(arguments.split_whitespace());
    command.output().ok()
}

#[test]
fn the_capabilities_that_are_named_are_enough() {
    root_or_skip!();
    let cable = Cable::new();
    let cases = [
        ("net_raw", "--source packet udp"),
        (FOR_XDP, "--source xdp --take-over --xdp-delivery ringbuf udp"),
        (FOR_XDP, "--source tee udp"),
        (FOR_XDP, "--source xdp --take-over --xdp-delivery af-xdp -B 4096 udp"),
        (WITH_LOCK, "--source xdp --take-over --xdp-delivery af-xdp udp"),
    ];
    for (capabilities, arguments) in cases {
        let Some(output) = run(&cable, capabilities, arguments) else {
            skip!("needs prlimit and setpriv");
        };
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{capabilities}: {arguments}: {printed}");
    }
}

/// As docs/packages.md: with CAP_NET_RAW on the file of the program for a group. The test's folder may have no
/// capabilities.
#[test]
fn a_user_of_the_group_captures_and_does_nothing_else() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let program = folder.path().join("linerate-capture");
    std::fs::copy(env!("CARGO_BIN_EXE_linerate-capture"), &program).unwrap();
    let granted = std::process::Command::new("setcap").arg("cap_net_raw+ep").arg(&program).status();
    if !granted.is_ok_and(|status| status.success()) {
        skip!("needs setcap, and a folder whose files may have capabilities");
    }
    // The name of the process is the caller's.
    let as_user = |line: &str| {
        let mut command = cable.far.command("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "bash",
            "-c",
            line,
        ]);
        Process::start(&mut command)
    };
    let run = |name: &str, arguments: &str| {
        let (folder, program) = (folder.path().display(), program.display());
        as_user(&format!("cd {folder}; exec -a {name} {program} {arguments}"))
    };
    for name in ["linerate-capture", "linerate"] {
        let mut capture = run(name, "-i far -c 3 -U -w x.pcapng udp");
        capture.until("listening on far");
        // Who may look at its descriptors may take the packet socket, and send by it.
        let (status, found, printed) = as_user(&format!("ls /proc/{}/fd/", capture.id())).wait();
        assert!(!status.success() && printed.contains("denied"), "{found}{printed}");
        cable.send(3, 64);
        let (status, _, printed) = capture.wait();
        assert!(status.success() && printed.contains("3 packets captured"), "{printed}");
    }
    // All that its users need is there.
    let (status, listed, printed) = run("linerate-capture", "-D").wait();
    assert!(status.success() && listed.contains("] packet: both directions"), "{listed}{printed}");
    std::fs::write(folder.path().join("x.toml"), "interface = [\"far\"]\ntake-over = true\n")
        .unwrap();
    for arguments in ["-i far --take-over", "-i far --source xdp", "--config x.toml"] {
        let (status, _, printed) = run("linerate", arguments).wait();
        assert_eq!(status.code(), Some(2), "{arguments}: {printed}");
        assert!(printed.contains("leaves all frames to the host"), "{arguments}: {printed}");
    }
    // Other verbs are filters here, and the kernel refuses what takes more than this capability.
    for (arguments, code) in [
        ("generate -i far -c 1", 1),
        ("forward detach", 1),
        ("-i far --source tee", 1),
        ("-i far --netns 1", 1),
    ] {
        let (status, _, printed) = run("linerate", arguments).wait();
        assert_eq!(status.code(), Some(code), "{arguments}: {printed}");
    }
}

#[test]
fn a_list_of_interfaces_advises_the_one_capability_that_captures() {
    root_or_skip!();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
    let Ok(output) = command.args([LINERATE, "capture", "-D"]).output() else {
        skip!("needs setpriv");
    };
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && listed.contains("`sudo setcap cap_net_raw+ep "), "{listed}");
}

#[test]
fn what_cannot_be_written_is_said_before_an_interface_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for (arguments, says) in [
        (vec!["-Z", "nosuchuser", "-w", "/dev/null"], "no such user"),
        (vec!["-w", folder], "is a directory"),
        (vec!["-w", folder, "-C", "1"], "is a directory"),
        (vec!["-w", &format!("{folder}/none/x.pcap")], "No such file or directory"),
        (vec!["-w", "/dev/null/x.pcap", "-b", "packets:1"], "ot a directory"),
    ] {
        for from in [["-i", "nosuchinterface"], ["-r", "/nosuchfile"]] {
            let mut command = std::process::Command::new(LINERATE);
            let output = command.arg("capture").args(from).args(&arguments).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {printed}");
            assert!(printed.contains(says) && !printed.contains("nosuchi"), "{printed}");
        }
    }
}

#[test]
fn a_missing_capability_is_named() {
    root_or_skip!();
    let cable = Cable::new();
    let xdp = "--source xdp --take-over --xdp-delivery";
    let cases = [
        ("net_admin", "--source packet".to_owned(), "CAP_NET_RAW"),
        ("net_raw,net_admin", format!("{xdp} af-xdp"), "CAP_BPF"),
        ("net_raw,net_admin", "--source tee".to_owned(), "CAP_BPF"),
        ("net_raw,net_admin,bpf", format!("{xdp} af-xdp"), "CAP_PERFMON"),
        ("net_admin,bpf,perfmon", format!("{xdp} af-xdp"), "the capability CAP_NET_RAW;"),
        (FOR_XDP, format!("{xdp} af-xdp"), "CAP_IPC_LOCK"),
    ];
    for (capabilities, arguments, missing) in cases {
        let Some(output) = run(&cable, capabilities, &arguments) else {
            skip!("needs prlimit and setpriv");
        };
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{capabilities}: {arguments}: {printed}");
        let remedy = match missing {
            "CAP_NET_RAW" => "setcap cap_net_raw+ep",
            "CAP_IPC_LOCK" => "ulimit -l",
            _ => "setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep",
        };
        assert!(printed.contains(missing) && printed.contains(remedy), "{arguments}: {printed}");
    }
}

#[test]
fn the_tee_of_another_process_takes_more() {
    root_or_skip!();
    let cable = Cable::new();
    let first = cable.capture("--source tee --discard -B 4096");
    let Some(output) = run(&cable, FOR_XDP, "--source tee -B 4096") else {
        skip!("needs prlimit and setpriv");
    };
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains("CAP_SYS_ADMIN"), "{printed}");
    let more = format!("{FOR_XDP},sys_admin");
    let output = run(&cable, &more, "--source tee -B 4096").unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(first.interrupt().0.success());
}

/// With all capabilities, but not over this network namespace, which a user namespace of the process does not own: no
/// capability of a file would help.
#[test]
fn what_no_capability_helps_is_said_in_the_kernels_words() {
    root_or_skip!();
    let cable = Cable::new();
    let forward = "forward run -i far --metrics off --instance words";
    let errors = |prepare: &str, arguments: &str| {
        let net = format!("nsenter --net={}", cable.far.path().display());
        let line = format!("{net} {prepare} {LINERATE} {arguments}");
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let user_namespace = "unshare --user --map-root-user";
    if errors(user_namespace, "--version").is_some() {
        skip!("needs user namespaces");
    }
    for arguments in [
        "capture -i far --source packet --discard",
        "capture -i far --source tee --discard",
        "capture -i far --source xdp --take-over --discard",
        "receive --bind 10.9.0.2:7000 --backend xdp --take-over",
        "receive --bind 10.9.0.2:99",
        "replay -i far /nofile",
        forward,
    ] {
        let printed = errors(user_namespace, arguments).expect(arguments);
        let is_kernels = printed.contains("(os error 1)") || printed.contains("(os error 13)");
        assert!(is_kernels && !printed.contains("CAP_"), "{arguments}: {printed}");
    }

    let read_only = "unshare --mount sh -c 'mount --bind /proc/sys /proc/sys && \
                     mount -o remount,bind,ro /proc/sys && exec \"$@\"' sh";
    let printed = errors(read_only, forward).expect("it writes a setting");
    assert!(printed.contains("Read-only file system") && !printed.contains("CAP_"), "{printed}");

    // Without them the command is named that grants them.
    let none = "setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all";
    let printed = errors(none, forward).expect("it needs capabilities");
    let remedy = "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep /";
    assert!(printed.contains(remedy), "{printed}");
}
