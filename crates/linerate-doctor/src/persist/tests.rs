use linerate_net::ethtool::Parameter;

use super::*;

#[test]
fn each_setting_has_its_file() {
    let changes = [
        Change::sysctl("net/ipv4/ip_forward", 1),
        Change::sysctl("net/ipv4/conf/eth0.5/rp_filter", 2),
        Change::sysfs("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
        Change::sysfs("/sys/class/net/eth-1/queues/rx-0/rps_cpus", 0),
        Change::feature("eth-1", "rx-gro", false),
        Change::parameter("eth-1", Parameter::RxRing, 4096),
        Change::bpffs("/sys/fs/bpf"),
    ];
    let files = files(&changes);
    let text = |path: &str| files[Path::new(path)].strip_prefix(HEADER).unwrap().to_owned();
    assert_eq!(text(SYSCTL), "net.ipv4.ip_forward = 1\nnet/ipv4/conf/eth0.5/rp_filter = 2\n");
    assert_eq!(
        text(TMPFILES),
        "w /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor - - - - performance\n"
    );
    let unit = text("etc/systemd/system/linerate-doctor-eth\\x2d1.service");
    for line in [
        "BindsTo=sys-subsystem-net-devices-eth\\x2d1.device",
        r#"ExecStart=-/bin/sh -c 'echo "$$1" > "$$2"' sh 0 /sys/class/net/eth-1/queues/rx-0/rps_cpus"#,
        "ExecStart=-ethtool -K eth-1 rx-gro off",
        "ExecStart=-ethtool -G eth-1 rx 4096",
    ] {
        assert!(unit.lines().any(|one| one == line), "{line}\n{unit}");
    }
    assert_eq!(files.len(), 4, "{files:#?}");
}

#[test]
fn no_name_is_a_part_of_a_command() {
    for (name, expected) in [
        ("eth0.5", "eth0.5"),
        ("a;b", r#""a;b""#),
        ("$(b)", r#""$$(b)""#),
        ("%i", "%%i"),
        (r#"a"\'"#, r#""a\"\\'""#),
    ] {
        assert_eq!(unit_quoted(name), expected);
    }
}
