//! Wrong command lines: each ends with status 2, and its message names what is wrong and what is expected.

use std::process::{Command, Stdio};

use crate::LINERATE;

/// Command lines, each with words of the answer.
const WRONG: &[(&str, &str)] = &[
    ("capture --foo", "unexpected argument '--foo' found"),
    ("capture -w", "a value is required for '--write <FILE>' but none was supplied"),
    ("capture --source ring", "[possible values: auto, packet, xdp, tee, trace, drops]"),
    ("capture --threads 0", "auto, or a number of readers from 1 to 256"),
    ("capture --cpu x", "CPUs below 1024 are written as `1` or `0,2-3`"),
    ("capture -c 0", "0 is too small: expected 1 or more"),
    ("capture -c many", "expected a whole number"),
    ("capture -C big", "a number, or one with k, M or G"),
    ("capture -C 0", "a file needs room for a packet"),
    ("capture -G 0", "0 is too small: expected 1 or more"),
    (
        "capture -W 3 -w x.pcap",
        "-W limits the number of files, but nothing starts a new file: give -C SIZE",
    ),
    ("capture -a duration:0", "a time has to be above 0, and at most 100 years"),
    (
        "capture -a minutes:5",
        "a limit is duration:SECONDS, packets:NUMBER, filesize:KB or files:NUMBER",
    ),
    ("capture -b files:0", "it is filesize:KB, duration:SECONDS, interval:SECONDS"),
    (
        "capture -B 0",
        "a size from 1 to 2147483648 in KiB, as 65536, or with its unit, as 64M or 1G",
    ),
    ("capture -B 64MB", "in KiB, as 65536, or with its unit, as 64M or 1G"),
    ("run -B 64MB -- true", "in KiB, as 65536, or with its unit, as 64M or 1G"),
    ("capture -s 64KB", "a number of bytes from 0 to 262144, with k, M or G for binary multiples"),
    ("capture -s 1M", "a number of bytes from 0 to 262144"),
    ("capture -g", "capture has no option -g: --group NAME lets a group read the files"),
    ("capture -k 2412", "capture has no option -k: set the channel first: `iw dev NAME set freq"),
    ("capture -N 10", "capture has no option -N: -B is the only buffer to choose (-N of dumpcap)"),
    ("capture -f udp", "capture has no option -f: a filter comes last, without an option"),
    (
        "capture --capture-comment x",
        "`editcap --capture-comment TEXT` adds it to the file afterwards",
    ),
    ("capture --temp-dir /tmp", "there are no temporary files: -w names the file"),
    ("capture -a files:3 -w x", "-a files: needs -C, -G or -b, which start another file"),
    ("capture -b printname:x -w y", "-b files: needs one of"),
    ("capture -b nametimenum:3 -w x", "nametimenum:1 or 2"),
    ("capture -b signal:TERM -w x", "signal:HUP, USR1 or USR2"),
    ("capture -r x -b signal:HUP -w y", "-b signal: is for a capture from an interface"),
    ("capture --flows f --active-timeout 60", "\"60\" lacks its unit: write 60s for seconds"),
    ("capture --flows f --idle-timeout 0s", "a time from 1s to 1d"),
    ("capture --flows f --flow-file-time 2d", "a time from 1s to 1d"),
    ("capture -s -1", "unexpected argument '-1' found"),
    ("capture --keep 7", "an age is a number and s, m, h, d or w, such as 7d"),
    (
        "capture --keep-free 200%",
        "`200%` is neither a percentage such as 10% nor a size such as 20G",
    ),
    ("capture --sample 3", "`3` is not a sample such as 1/100"),
    ("capture --pages large", "[possible values: auto, hugetlb, hugetlb-1g, thp, small]"),
    ("capture --compress zip", "[possible values: zstd, lz4, none]"),
    ("capture -i lo -i lo", "-i lo is given twice: each packet of lo would be captured twice"),
    ("capture -Q sideways", "[possible values: in, out, inout]"),
    ("capture --netns a --netns b -D", "-D and -L list one namespace: give one --netns"),
    ("capture -d", "capture has no option -d: `tcpdump -d EXPRESSION` prints the BPF program of"),
    ("doctor swim", "[possible values: capture, forward, receive, uplink]"),
    (
        "doctor --check everything",
        "[possible values: capabilities, memlock, cpus, limits, btf, bpffs, lockdown,",
    ),
    ("doctor --foo", "unexpected argument '--foo' found"),
    ("doctor --undo --fix", "the argument '--undo' cannot be used with '--fix'"),
    ("doctor --undo capture", "the argument '--undo' cannot be used with '[JOB]...'"),
    ("doctor -i", "a value is required for '--interface <IFACE>' but none was supplied"),
    ("doctor --undo --persist", "the argument '--undo' cannot be used with '--persist'"),
    ("doctor --all --undo", "the argument '--all' cannot be used with '--undo'"),
    ("doctor --state", "a value is required for '--state <FILE>' but none was supplied"),
    ("doctor --persist --undo", "the argument '--persist' cannot be used with '--undo'"),
    ("doctor --root", "a value is required for '--root <DIR>' but none was supplied"),
    ("doctor capture swim", "[possible values: capture, forward, receive, uplink]"),
    ("doctor --json=1", "unexpected value '1' for '--json' found; no more were expected"),
    ("doctor -x", "unexpected argument '-x' found"),
    (
        "doctor --no-attach=yes",
        "unexpected value 'yes' for '--no-attach' found; no more were expected",
    ),
    ("forward", "Forward packets in XDP as the kernel forwarded their session before"),
    ("forward fly", "unrecognized subcommand 'fly'"),
    ("forward run", "--interface <IFACE>"),
    ("forward run -i", "a value is required for '--interface <IFACE>' but none was supplied"),
    ("forward run -i a -i a", "interface a is named twice: name each once"),
    ("forward run -i a/b", "\"a/b\" is not a valid interface name: `ip -br link` lists them"),
    ("forward run -i a --udp-idle 0s", "udp-idle: 0s is out of range; it can be 1s to 7d"),
    ("forward run -i a --tcp-idle 9d", "tcp-idle: 9d is out of range; it can be 1s to 7d"),
    ("forward run -i a --max-sessions 3", "max-sessions is 3; it can be 1024 to 50000000"),
    ("forward run -i a --statistics all", "[possible values: slot, none]"),
    ("forward run -i a --datapath fast", "choose one of auto, xdp, tc"),
    (
        "forward run -i a --metrics nowhere",
        "\"nowhere\" is not an address with a port: write 127.0.0.1:9818 or",
    ),
    (
        "forward run -i a --instance a/b",
        "\"a/b\" is not a valid instance name: 1 to 64 letters, digits, '-' and '_'",
    ),
    ("forward run -i a --log xml", "[possible values: text, json]"),
    (
        "forward status --instance ..",
        "\"..\" is not a valid instance name: 1 to 64 letters, digits, '-' and '_'",
    ),
    (
        "forward block nobody",
        "\"nobody\" is not an address or prefix: write it as 192.0.2.1, 192.0.2.0/24 or",
    ),
    ("forward block 10.0.0.1/33", "10.0.0.1/33: an address of this family has 32 bits"),
    ("forward block 10.0.0.1 --for 0s", "a time longer than 0s"),
    ("forward flush now", "unexpected argument 'now' found"),
    (
        "forward sessions --sort colour",
        "[possible values: table, packets, bytes, packet-rate, byte-rate, age, idle,",
    ),
    ("forward sessions --limit x", "expected a whole number"),
    ("forward top --interval 0", "\"0\" lacks its unit: write 0s for seconds, 0ms, 0m or 0h"),
    ("forward unblock", "<ADDRESS[/BITS]|SESSION>"),
    ("forward check-config", "<FILE>"),
    ("generate", "--interface <IFACE>"),
    (
        "generate -i a --rate fast",
        "rate \"fast\": expected max, frames per second as 450kpps, or bits per second",
    ),
    ("generate -i a --rate 0", "rate \"0\": must be a number above 0"),
    ("generate -i a --tcp --tcp-flags syn,nul", "expected a list of fin, syn, rst"),
    ("generate -i a --tcp-flags syn", "--tcp"),
    ("generate -i a --dscp 64", "64 is not in 0..=63"),
    ("generate -i lo --src 2001:db8::1 --no-df", "no DF: needs IPv4"),
    ("generate -i lo --size 3", "size 3: too short for 42 bytes of headers: at least 42"),
    ("generate -i a --size 100-50", "size 100-50: the range runs backwards"),
    (
        "generate -i a --size x",
        "size \"x\": expected bytes as 64, a range as 64-1500, a list as 64,64,1500,",
    ),
    ("generate -i a --tcp --udp", "the argument '--tcp' cannot be used with '--udp'"),
    ("generate -i lo --vlan 5000", "5000 is not in 0..=4094"),
    (
        "generate -i a --dst 10.0.0.300",
        "address \"10.0.0.300\": expected an address as 10.0.0.1, a range as",
    ),
    (
        "generate -i lo --src 10.0.0.1 --dst fd00::1",
        "source 10.0.0.1 and destination fd00::1: must be both IPv4 or both IPv6",
    ),
    (
        "generate -i a --sport 99999",
        "port \"99999\": expected 0 to 65535, or a range as 1024-65535",
    ),
    ("generate -i a --dst-mac zz", "malformed MAC address: expected six hexadecimal bytes, as"),
    (
        "generate -i a --random colour",
        "random \"colour\": expected a list of src, dst, sport, dport, mac, smac,",
    ),
    ("generate -i a --stamp date", "stamp \"date\": expected none, sequence or time"),
    ("generate -i a --backend dpdk", "[possible values: auto, live, packet, xdp]"),
    ("generate -i a --count x", "expected a whole number"),
    ("generate -i a --seconds -1", "unexpected argument '-1' found"),
    ("generate -i a --zipf x", "a number above 0"),
    ("generate -i lo --flows 0", "0 is too small: expected 1 or more"),
    ("receive", "--bind <ADDRESS:PORT>"),
    (
        "receive --bind nowhere:7000",
        "write an address and a port, as 10.0.0.2:7000, 0.0.0.0:7000 (every address)",
    ),
    ("receive --bind 10.0.0.2", "a port is missing, as in 10.0.0.2:7000"),
    ("receive --bind 127.0.0.1:99999", "99999 is not a port: ports end at 65535"),
    ("receive --bind 127.0.0.1:0 --for 0s", "a time has to be above 0, and at most 100 years"),
    ("receive --bind 127.0.0.1:0 --count 0", "0 is too small: expected 1 or more"),
    (
        "receive --bind 127.0.0.1:0 --batch 0",
        "a whole number from 1 to 1048576: messages in a batch",
    ),
    (
        "receive --bind 127.0.0.1:0 --join 10.0.0.1",
        "10.0.0.1 is not a multicast group: multicast groups are 224.0.0.0/4 and ff00::/8",
    ),
    (
        "receive --bind 127.0.0.1:0 --message-size 70000",
        "a whole number from 1 to 65507: bytes, which is what a UDP message can have",
    ),
    (
        "receive --bind 127.0.0.1:0 --backend dpdk",
        "[possible values: auto, recvmmsg, gro, uring, xdp]",
    ),
    (
        "receive --bind 127.0.0.1:0 --calibrate 1s --backend gro",
        "--calibrate is for --backend auto: gro was asked for",
    ),
    (
        "receive --bind 127.0.0.1:0 --backend gro --ring 1M",
        "--ring is for the backend xdp: gro was asked for",
    ),
    ("receive --bind 127.0.0.1:0 --threads 0", "a number of readers from 1 to 256"),
    (
        "receive --bind 127.0.0.1:0 --threads 2 --xdp-delivery ringbuf",
        "--xdp-delivery is for the backend xdp, which has one reader and one port",
    ),
    (
        "receive --bind 127.0.0.1:0 --reuseport flow",
        "--reuseport needs a port that others can name: 127.0.0.1:0 leaves the",
    ),
    (
        "receive --bind 127.0.0.1:0 --reuseport cpu",
        "write flow, or cpu:N or spread:N with the number of receivers that share",
    ),
    (
        "receive --bind 127.0.0.1:0 --check time --timestamps",
        "--timestamps and --check time both measure the latency, each from another",
    ),
    (
        "receive --bind 127.0.0.1:0 --coalesce-usecs 5 --spin",
        "the argument '--coalesce-usecs <MICROSECONDS>' cannot be used with '--spin'",
    ),
    ("receive --bind 127.0.0.1:0 --feed itch", "[possible values: moldudp64]"),
    (
        "receive --bind 127.0.0.1:7000 --bind-b 127.0.0.1:7000 --feed moldudp64",
        "both lines of the feed would be 127.0.0.1:7000",
    ),
    ("replay", "--interface <IFACE>"),
    ("replay -i a", "<FILE>..."),
    ("replay a.pcap", "--interface <IFACE>"),
    (
        "replay -i a --pps fast a.pcap",
        "rate \"fast\": expected max, frames per second as 450kpps, or bits per second",
    ),
    (
        "replay -i a --pps 5 --mbps 4 a.pcap",
        "the argument '--pps <RATE>' cannot be used with '--mbps <MBPS>'",
    ),
    ("replay -i a --pps 2Gbps a.pcap", "frames per second, not bits"),
    ("replay -i a --mbps 0 a.pcap", "'--mbps <MBPS>': a number above 0"),
    ("replay -i a --mbps x a.pcap", "'--mbps <MBPS>': a number above 0"),
    ("replay -i a --multiplier x a.pcap", "'--multiplier <X>': a number above 0"),
    (
        "replay -i a --multiplier 2 --topspeed a.pcap",
        "the argument '--multiplier <X>' cannot be used with '--topspeed'",
    ),
    ("replay -i a --loop-delay 0 a.pcap", "a time has to be above 0, and at most 100 years"),
    ("replay -i a --loop x a.pcap", "expected a whole number"),
    ("replay -i a --limit 0 a.pcap", "'--limit <N>': 0 is too small: expected 1 or more"),
    ("replay -i a --limit x a.pcap", "expected a whole number"),
    ("replay -i a --cpu x a.pcap", "a whole number from 0 to 1023: the number of a CPU"),
    ("replay -i a --backend live a.pcap", "[possible values: packet, xdp]"),
    ("replay -i a --multiplier 0 a.pcap", "'--multiplier <X>': a number above 0"),
    ("replay -i a --speed 5 a.pcap", "unexpected argument '--speed' found"),
    ("run", "<PROGRAM>..."),
    ("run --source af", "[possible values: auto, packet, tee, xdp, libpcap]"),
    ("run --source auto", "<PROGRAM>..."),
    ("run -B 0 -- true", "a size from 1 to 2147483648 in KiB, as 65536, or with its unit"),
    ("run -B x -- true", "in KiB, as 65536, or with its unit"),
    ("run --threads 0 -- true", "a number of readers from 1 to 256"),
    ("run --threads 999 -- true", "a number of readers from 1 to 256"),
    ("run --threads x -- true", "a number of readers from 1 to 256"),
    ("run --pages big -- true", "[possible values: auto, hugetlb, hugetlb-1g, thp, small]"),
    ("run --xdp-delivery mail -- true", "[possible values: auto, af-xdp, ringbuf]"),
    ("run --config", "a value is required for '--config <FILE>' but none was supplied"),
    ("run --take-over", "<PROGRAM>..."),
    (
        "run --foo -- true",
        "run has no option --foo; options of the program come after its name, as in",
    ),
    (
        "run --take-over=1 -- true",
        "unexpected value '1' for '--take-over' found; no more were expected",
    ),
    (
        "run -i eth0 -- true",
        "run has no option -i; options of the program come after its name, as in",
    ),
    ("run --pages", "[possible values: auto, hugetlb, hugetlb-1g, thp, small]"),
    ("segment", "--write <OUT>"),
    ("segment a.pcap", "--write <OUT>"),
    ("segment -w b.pcap", "<IN>"),
    ("segment a.pcap -w b.pcap --mtu 5", "5 is not in 68..=65535"),
    ("segment a.pcap -w b.pcap --mtu x", "expected a whole number"),
    ("segment a.pcap -w b.pcap --mss 0", "0 is not in 1..=65535"),
    ("segment a.pcap -w b.pcap --uso 99999", "99999 is not in 1..=65535"),
    ("segment a.pcap -w b.pcap --coalesce=sctp", "[possible values: tcp, udp, all]"),
    ("segment a.pcap -w b.pcap --hold x", "expected a whole number"),
    ("segment a.pcap -w b.pcap --checksums maybe", "[possible values: full, partial, none]"),
    ("segment a.pcap -w b.pcap --ip-id random", "[possible values: increment, fixed]"),
    ("segment a.pcap -w b.pcap --format csv", "[possible values: pcapng, pcap]"),
    ("segment a.pcap -w b.pcap --compress zip", "[possible values: zstd, lz4, none]"),
    ("segment a.pcap -w b.pcap --max-burst x", "expected a whole number"),
    (
        "segment a.pcap -w b.pcap --coalesce --fragment",
        "the argument '--coalesce[=<WHAT>]' cannot be used with '--fragment'",
    ),
    ("segment a.pcap -w b.pcap --foo", "unexpected argument '--foo' found"),
    (
        "segment a.pcap -w b.pcap --coalesce --uso 100",
        "the argument '--coalesce[=<WHAT>]' cannot be used with '--uso <BYTES>'",
    ),
    ("send", "<ADDRESS:PORT>"),
    ("send nowhere", "write an address and a port, as 10.0.0.2:7000, 0.0.0.0:7000 (every address)"),
    ("send 127.0.0.1", "a port is missing, as in 127.0.0.1:7000"),
    ("send ::1", "a port is missing, as in [::1]:7000, or an IPv6 address stands in brackets,"),
    ("send 127.0.0.1:0", "127.0.0.1:0 is not an address and port to send to: port 0 is reserved"),
    ("send 127.0.0.1:9 --count 0", "0 is too small: expected 1 or more"),
    ("send 127.0.0.1:9 --count x", "expected a whole number"),
    ("send 127.0.0.1:9 --for 0s", "a time has to be above 0, and at most 100 years"),
    ("send 127.0.0.1:9 --size 70000", "a message of 70000 bytes: a UDP message has at most 65507"),
    (
        "send 127.0.0.1:9 --size x",
        "size \"x\": expected bytes as 64, a range as 64-1500, a list as 64,64,1500,",
    ),
    (
        "send 127.0.0.1:9 --rate fast",
        "rate \"fast\": expected max, frames per second as 450kpps, or bits per second",
    ),
    ("send 127.0.0.1:9 --batch 0", "a whole number from 1 to 1048576: messages in a batch"),
    ("send 127.0.0.1:9 --pattern noise", "[possible values: sequence, time, counted]"),
    (
        "send 127.0.0.1:9 --count 1 --size 5 --pattern sequence",
        "a message of 5 bytes has no room for the pattern, which takes 12",
    ),
    (
        "send 127.0.0.1:9 --from nowhere",
        "write an address and a port, as 10.0.0.2:7000, 0.0.0.0:7000 (every address)",
    ),
    (
        "send 127.0.0.1:9 --next-hop zz",
        "malformed MAC address: expected six hexadecimal bytes, as 02:00:00:00:00:01",
    ),
    ("send 127.0.0.1:9 --foo", "unexpected argument '--foo' found"),
    ("uplink", "--interface <IFACE>"),
    ("uplink --tap a", "--interface <IFACE>"),
    (
        "uplink --tap a --tun b -i c",
        "the argument '--tap <NAME>' cannot be used with '--tun <NAME>'",
    ),
    (
        "uplink --tap a-name-that-is-too-long -i c",
        "the name of an interface has 1 to 15 bytes without space, slash or colon",
    ),
    (
        "uplink --tap a/b -i c",
        "the name of an interface has 1 to 15 bytes without space, slash or colon",
    ),
    (
        "uplink --tun .. -i c",
        "the name of an interface has 1 to 15 bytes without space, slash or colon",
    ),
    (
        "uplink --socket a --attach b -i c",
        "the argument '--socket <PATH>' cannot be used with '--attach <NAME>'",
    ),
    ("uplink --fd x -i c", "expected a whole number"),
    ("uplink --tap a -i c --mtu 5", "5 is not in 68..=65535"),
    ("uplink --tap a -i c --mtu x", "expected a whole number"),
    (
        "uplink --tap a -i c --mac zz",
        "malformed MAC address: expected six hexadecimal bytes, as 02:00:00:00:00:01",
    ),
    (
        "uplink --tun a -i c --mac 02:00:00:00:00:01",
        "the argument '--tun <NAME>' cannot be used with '--mac <MAC>'",
    ),
    (
        "uplink --tun a -i c --take-over",
        "the argument '--tun <NAME>' cannot be used with '--take-over'",
    ),
    ("uplink --tap a -i c --queues 0", "0 is not in 1..=256"),
    ("uplink --tap a -i c --queues x", "expected a whole number"),
    ("uplink --tap a -i c --cpu x", "CPUs below 1024 are written as `1` or `0,2-3`"),
    ("uplink --tap a -i c --backend dpdk", "[possible values: auto, xdp, packet]"),
    ("uplink --tap a -i c --policy colour=red", "an unknown setting; expected a list as"),
    ("uplink --tap a -i c --max-burst x", "expected a whole number"),
    ("uplink --tap a -i c --foo", "unexpected argument '--foo' found"),
    ("lab", "Measure Linerate against its peers, and draw the report"),
    ("lab dance", "unrecognized subcommand 'dance'"),
    ("lab run", "<EXPERIMENT>..."),
    (
        "lab run nothing",
        "there is no experiment \"nothing\"; choose of capture-rate, capture-stage,",
    ),
    ("lab run capture-rate --repeats 0", "0 is not in 1..=65535"),
    ("lab run capture-rate --repeats x", "expected a whole number"),
    ("lab run capture-rate --foo", "unexpected argument '--foo' found"),
    ("lab report --foo", "unexpected argument '--foo' found"),
    ("lab list extra", "unexpected argument 'extra' found"),
    ("lab demo --out", "a value is required for '--out <DIR>' but none was supplied"),
    ("extcap", "Wireshark's arguments are missing: --extcap-interfaces, or"),
    (
        "extcap --extcap-interface",
        "a value is required for '--extcap-interface <NAME>' but none was supplied",
    ),
    ("extcap --capture", "--extcap-interface <NAME>"),
    ("completion", "<SHELL>"),
    ("completion tcsh", "[possible values: bash, elvish, fish, powershell, zsh]"),
    ("manual", "<DIRECTORY>"),
];

/// The verbs that people type by hand.
const VERBS: &[&str] = &[
    "capture", "doctor", "forward", "generate", "receive", "replay", "run", "segment", "send",
    "uplink",
];

fn ask(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(LINERATE).args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn wrong_command_lines_end_with_2_and_say_what_is_expected() {
    for verb in VERBS {
        let count = WRONG.iter().filter(|(line, _)| line.split(' ').next() == Some(verb)).count();
        assert!(count >= 15, "{verb}: {count}");
    }
    for (line, expected) in WRONG {
        let words: Vec<_> = line.split(' ').collect();
        let (status, stdout, stderr) = ask(&words);
        assert_eq!(status, Some(2), "{line}: {stderr}");
        assert!(stdout.is_empty(), "{line}: {stdout}");
        assert!(stderr.contains(expected), "{line}: {stderr}");
    }
}

#[test]
fn failures_end_with_1_and_say_what_failed() {
    for (line, expected) in [
        ("capture -r /nowhere/a.pcap", "cannot open /nowhere/a.pcap"),
        ("doctor -i nowhere", "no interface named nowhere; there "),
        ("forward check-config /nowhere/a.toml", "/nowhere/a.toml"),
        (
            "capture --netns nowhere",
            "cannot open the network namespace /run/netns/nowhere (`ip netns` lists those with a name)",
        ),
        ("capture -i nowhere", "no interface named nowhere; there "),
        ("generate -i nowhere", "no interface named nowhere; there "),
        ("replay -i nowhere in.pcap", "no interface named nowhere; there "),
        ("receive --bind 203.0.113.9:7000 --for 1s", "no interface of this network namespace has"),
        ("replay -i lo /nowhere/a.pcap", "cannot open /nowhere/a.pcap"),
        ("segment /nowhere/a.pcap -w b.pcap", "cannot open /nowhere/a.pcap"),
        ("send 127.0.0.1:9 --xdp nowhere --count 1", "no interface named nowhere"),
        ("uplink --tap up0 -i nowhere", "no interface named nowhere; there "),
        ("manual /proc/nowhere", "/proc/nowhere"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let (status, stdout, stderr) = ask(&words);
        assert_eq!(status, Some(1), "{line}: {stderr}");
        assert!(stdout.is_empty() && stderr.contains(expected), "{line}: {stderr}");
    }
}

/// A name or a value of somebody else must not steer the terminal.
#[test]
fn control_characters_are_escaped() {
    let red = "a\u{1b}[31m";
    for words in [
        &["capture", "-i", red][..],
        &["capture", "--source", red],
        &["capture", "-r", red],
        &["doctor", "-i", red],
        &["generate", "-i", red],
        &["run", "--", red],
        &[red],
    ] {
        let (status, _, stderr) = ask(words);
        assert!(matches!(status, Some(1 | 2 | 127)), "{words:?}: {stderr}");
        // clap removes them from what it prints of a value.
        let is_shown = stderr.contains("\\u{1b}") || stderr.starts_with("error: ");
        assert!(is_shown && !stderr.contains('\u{1b}'), "{words:?}: {stderr:?}");
    }
}
