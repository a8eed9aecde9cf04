//! The code blocks of documents do what the documents say: each page's blocks run in one shell, in namespaces of their
//! own, as a reader would paste them.

mod rig;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use linerate_testkit::root_or_skip;

use rig::Rig;

/// Lines that are not run: the page, how the line begins, and the reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "make ", "the demo and the tests themselves"),
    (
        "docs/capture.md",
        "linerate capture -i eth1 --source trace",
        "capture::trace has a program to trace",
    ),
    (
        "docs/doctor.md",
        "linerate doctor forward -i eth1 -i eth2 --fix",
        "changes the host; doctor::fixes does it",
    ),
    ("docs/doctor.md", "linerate doctor --undo", "as above"),
    ("docs/fleet.md", "linerate ", "a program of its own; make test-flows asks it"),
    ("docs/fleet.md", "goflow2 ", "make test-fleet runs it"),
    ("docs/figures.md", "linerate lab", "measures for minutes"),
    ("docs/kernel.md", "", "builds a kernel; make test-kernel does it"),
    ("docs/lab.md", "linerate lab run", "measures for hours"),
    ("docs/lab.md", "linerate lab report", "needs runs; lab:: makes some"),
    ("docs/lab.md", "linerate lab demo", "make demo"),
    ("docs/packages.md", "", "make test-packages does it"),
    (
        "docs/receive.md",
        "linerate send 10.0.0.2:7000 --xdp",
        "needs another host; receive:: has one",
    ),
    ("docs/segment-c.md", "", "the tests of linerate-segment-c do it"),
    ("docs/segment.md", "linerate lab", "measures for minutes"),
    ("docs/uplink.md", "linerate uplink --vhost-user", "takes a virtual machine with a disk"),
    ("docs/uplink.md", "cloud-hypervisor", "as above"),
    ("docs/uplink.md", "linerate uplink --socket", "uplink::attached has QEMU"),
    ("docs/uplink.md", "qemu-system-x86_64", "as above"),
];

/// What a page takes for granted, as commands of the shell.
const GRANTED: &[(&str, &str)] = &[
    (
        "docs/json.md",
        "linerate forward run -i eth1 -i eth2 >/dev/null 2>&1 &\n         until linerate forward status >/dev/null 2>&1; do sleep 0.5; done",
    ),
    (
        "docs/pcap.md",
        "echo 'from scapy.all import sniff; sniff(iface=\"eth0\", count=3)' > sniff.py",
    ),
    (
        "docs/segment.md",
        "iperf3 -s -D -1 -B 192.0.2.1; sleep 1
        nsenter --net=/run/netns/peer iperf3 -c 192.0.2.1 -t 3 >/dev/null &
        linerate capture -i eth0 -c 200 -q -w tso.pcapng tcp
        linerate capture -r tso.pcapng -q -w tso.pcap
        linerate capture -r tso.pcapng -q -w quic.pcapng
        linerate segment tso.pcapng -q -w wire.pcapng.zst
        wait",
    ),
    ("docs/uplink.md", "ip netns add blue"),
];

/// Programs that a page's blocks run, and that may not be installed.
const PROGRAMS: &[&str] = &[
    "dumpcap",
    "ethtool",
    "iperf3",
    "jq",
    "prometheus",
    "setpriv",
    "suricata",
    "systemctl",
    "tcpdump",
    "tcprewrite",
    "tshark",
];

/// A block of a page, and the line that it begins at.
struct Block {
    language: String,
    line: usize,
    text: String,
}

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in read(page).lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    language: language.into(),
                    line: number + 1,
                    text: String::new(),
                });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => {
                block.text += line;
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block has no end");
    blocks
}

/// The commands of a block, with their continued lines, without those that are not run.
fn commands(page: &str, block: &Block) -> String {
    let mut left_out = false;
    let mut continued = false;
    let mut kept = String::new();
    for line in block.text.lines() {
        if !continued {
            left_out = NOT_RUN.iter().any(|(on, start, _)| *on == page && line.starts_with(start));
        }
        continued = line.ends_with('\\');
        if !left_out {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

/// The script of a page, which says where it is.
fn script(page: &str) -> String {
    let mut script = String::new();
    for (_, granted) in GRANTED.iter().filter(|(on, _)| *on == page) {
        script += granted;
        script.push('\n');
    }
    for block in blocks(page).iter().filter(|block| block.language == "sh") {
        script += &format!("echo '== {page}:{}' >&2\n{}", block.line, commands(page, block));
    }
    script
}

fn run(test: &str, page: &str) {
    let script = script(page);
    assert!(script.contains("\n== ") || script.contains("echo '== "), "{page} has no block");
    let missing = PROGRAMS.iter().find(|program| {
        let named =
            script.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == **program);
        named && !rig::is_installed(program)
    });
    if let Some(program) = missing {
        return linerate_testkit::print_skipped(test, &format!("{program} is not installed"));
    }
    Rig::new().run(page, &script);
}

/// One test for each page with blocks for the shell.
macro_rules! pages {
    ($($name:ident $page:literal),* $(,)?) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $name() {
                root_or_skip!();
                run(stringify!($name), $page);
            }
        )*
    };
}

pages! {
    blocks_of_the_readme "README.md",
    blocks_of_the_command "crates/linerate/README.md",
    blocks_of_the_library "crates/linerate-pcap/README.md",
    blocks_of_capture "docs/capture.md",
    blocks_of_doctor "docs/doctor.md",
    blocks_of_flows "docs/flows.md",
    blocks_of_forward "docs/forward.md",
    blocks_of_json "docs/json.md",
    blocks_of_lab "docs/lab.md",
    blocks_of_metrics "docs/metrics.md",
    blocks_of_pcap "docs/pcap.md",
    blocks_of_receive "docs/receive.md",
    blocks_of_segment "docs/segment.md",
    blocks_of_sockets "docs/sockets.md",
    blocks_of_troubleshooting "docs/troubleshooting.md",
    blocks_of_uplink "docs/uplink.md",
    coming_from_dumpcap "docs/from/dumpcap.md",
    coming_from_the_flowtable "docs/from/flowtable.md",
    coming_from_recvmmsg "docs/from/recvmmsg.md",
    coming_from_tcpdump "docs/from/tcpdump.md",
    guide_to_a_container "docs/guides/container.md",
    guide_to_prometheus "docs/guides/prometheus.md",
    guide_to_replay "docs/guides/replay.md",
    guide_to_suricata "docs/guides/suricata.md",
    guide_to_systemd "docs/guides/systemd.md",
    guide_to_tshark "docs/guides/tshark.md",
    tutorial_of_capture "docs/tutorials/capture.md",
    tutorial_of_forward "docs/tutorials/forward.md",
    tutorial_of_receive "docs/tutorials/receive.md",
    tutorial_of_uplink "docs/tutorials/uplink.md",
}

/// The documents below a folder.
fn documents(folder: &str, into: &mut Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            documents(&format!("{folder}/{name}"), into);
        } else if name.ends_with(".md") {
            into.push(format!("{folder}/{name}"));
        }
    }
}

#[test]
fn every_block_is_run_or_named() {
    let mut found = vec!["README.md".to_owned()];
    documents("docs", &mut found);
    for crate_ in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        let name = crate_.unwrap().file_name().into_string().unwrap();
        if Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&name).join("README.md").is_file()
        {
            found.push(format!("crates/{name}/README.md"));
        }
    }
    let mut with_commands = BTreeSet::new();
    for page in &found {
        for block in blocks(page) {
            assert!(
                !block.language.is_empty(),
                "{page}:{}: a block without a language",
                block.line
            );
            if block.language == "sh" && !commands(page, &block).trim().is_empty() {
                with_commands.insert(page.as_str());
            }
        }
    }
    assert_eq!(with_commands, PAGES.iter().copied().collect());
    for (page, start, _) in NOT_RUN {
        let used =
            blocks(page).iter().any(|block| block.text.lines().any(|line| line.starts_with(start)));
        assert!(used, "{page} has no line that begins with {start:?}");
    }
}
