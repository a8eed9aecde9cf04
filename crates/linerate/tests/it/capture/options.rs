//! Each option does what it says, or says that it does not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_pcapfile::Reader;
use linerate_testkit::{root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{Cable, accepts, folder, numbers, read, write_mixed};
use crate::LINERATE;

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Packets of a file, and the longest piece of one.
fn content(path: &Path) -> (usize, usize) {
    let mut reader = Reader::open(path).unwrap();
    let (mut packets, mut longest) = (0, 0);
    while let Some(record) = reader.next().unwrap() {
        packets += 1;
        longest = longest.max(record.frame.len());
    }
    (packets, longest)
}

#[test]
fn json_is_alone_on_standard_output() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let output = read(&input, "--json udp");
    let report: Value = serde_json::from_slice(&output.stdout).expect("nothing but the report");
    assert_eq!(report["captured"], 50, "{report}");
    let lines = String::from_utf8(output.stderr).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains(" IP ")).count(), 50, "{lines}");
}

#[test]
fn rotation_names_its_files_as_the_manual_says() {
    // A hundred packets of a hundred seconds, 42 to 71 bytes, 5,550 in all and 1,600 for their headers.
    let cases: [(&str, &[&str]); 6] = [
        ("-C 2k", &["out", "out1", "out2", "out3"]),
        ("-C 1k -W 3", &["out0", "out1", "out2"]),
        ("-G 25", &["out", "out1", "out2", "out3"]),
        ("-G 25 -W 2", &["out", "out1"]),
        ("-G 1000", &["out"]),
        ("-G 50 -C 2k", &["out", "out1", "out2", "out3"]),
    ];
    for (arguments, expected) in cases {
        let folder = folder();
        let input = folder.path().join("in.pcap");
        write_mixed(&input);
        let made = folder.path().join("made");
        std::fs::create_dir(&made).unwrap();
        let path = made.join("out");
        let output = read(&input, &format!("-w {} --format pcap {arguments}", path.display()));
        assert!(output.status.success(), "{arguments}: {output:?}");
        assert_eq!(names(&made), expected, "{arguments}");
        let packets = |name: &String| content(&made.join(name)).0;
        let total: usize = names(&made).iter().map(packets).sum();
        match arguments {
            // A ring writes over, and a count of periods ends the capture.
            "-C 1k -W 3" => assert!((30..100).contains(&total), "{total}"),
            "-G 25 -W 2" => assert_eq!(total, 50),
            _ => assert_eq!(total, 100, "{arguments}"),
        }
    }
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let made = folder.path().join("made");
    std::fs::create_dir(&made).unwrap();
    let output = read(&input, &format!("-G 25 -w {}/%s.pcap", made.display()));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(&made), ["0.pcap", "25.pcap", "50.pcap", "75.pcap"]);
}

#[test]
fn a_program_runs_on_each_finished_file() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let out = folder.path().join("out.pcap");
    let program = folder.path().join("after");
    let log = folder.path().join("log");
    std::fs::write(&program, format!("#!/bin/sh\necho \"$1\" >> {}\n", log.display())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let arguments = format!("-w {} -C 2k -z {}", out.display(), program.display());
    assert!(read(&input, &arguments).status.success());
    let seen = || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("four files", || seen().len() >= 4);
    let mut seen = seen();
    seen.sort();
    let stem = out.display().to_string();
    assert_eq!(seen, [stem.clone(), format!("{stem}1"), format!("{stem}2"), format!("{stem}3")]);
}

#[test]
fn files_are_written_as_asked() {
    let folder = folder();
    let (input, out) = (folder.path().join("in.pcap"), folder.path().join("out"));
    write_mixed(&input);
    let filter = folder.path().join("filter");
    std::fs::write(&filter, "udp\n").unwrap();
    let by_file = format!("-F {}", filter.display());
    // Options, packets, longest, and the first bytes of the file.
    let pcapng = [0x0a, 0x0d, 0x0d, 0x0a];
    let (micro, nano) = ([0xd4, 0xc3, 0xb2, 0xa1], [0x4d, 0x3c, 0xb2, 0xa1]);
    let cases: [(&str, usize, usize, [u8; 4]); 9] = [
        ("", 100, 71, pcapng),
        ("--format pcap", 100, 71, micro),
        ("--format pcap --time-stamp-precision nano", 100, 71, nano),
        ("-s 50", 100, 50, pcapng),
        ("-s 0", 100, 71, pcapng),
        ("-c 7", 7, 48, pcapng),
        ("-a packets:8", 8, 49, pcapng),
        ("-a packets:8 -c 3", 3, 44, pcapng),
        (&by_file, 50, 70, pcapng),
    ];
    for (arguments, packets, longest, magic) in cases {
        let output = read(&input, &format!("-w {} {arguments}", out.display()));
        assert!(output.status.success(), "{arguments}: {output:?}");
        assert_eq!(content(&out), (packets, longest), "{arguments}");
        assert_eq!(std::fs::read(&out).unwrap()[..4], magic, "{arguments}");
        accepts("tcpdump", &["-nqr"], &out);
    }
    let output = read(&input, &format!("-w {} --format pcap -a filesize:2", out.display()));
    assert!(output.status.success(), "{output:?}");
    let length = std::fs::metadata(&out).unwrap().len();
    assert!((1900..=2100).contains(&length), "{length} bytes");
}

#[test]
fn compressed_input_is_read() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let packed = Command::new("gzip").arg("-k").arg(&input).status();
    if !packed.is_ok_and(|status| status.success()) {
        skip!("needs gzip");
    }
    let output = read(&folder.path().join("in.pcap.gz"), "--discard --json udp");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["received"], &json["captured"]), (&100.into(), &50.into()), "{output:?}");
}

#[test]
fn a_file_whose_packets_are_only_counted_gets_its_counts_printed() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    for (options, wanted) in [
        ("--discard udp", "50 packets captured\n100 packets read\n"),
        ("--discard -c 1", "1 packet captured\n1 packet read\n"),
        ("--discard --quiet udp", ""),
    ] {
        let output = read(&input, options);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), wanted, "{options}");
    }
}

#[test]
fn a_file_that_gzip_does_not_compress_is_said() {
    let folder = folder();
    let (input, out) = (folder.path().join("in.pcap"), folder.path().join("out.pcap.gz"));
    write_mixed(&input);
    let output = read(&input, &format!("-w {}", out.display()));
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("out.pcap.gz will not be compressed"), "{said}");
    assert_eq!(std::fs::read(&out).unwrap()[..4], 0x0a0d_0d0a_u32.to_le_bytes());
    let output = read(&input, &format!("-w {} --compress zstd", out.display()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("will not be compressed"), "{said}");
}

/// A named pipe to read from, and a file to write into it.
fn pipe_and_sample() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = folder();
    let (input, sample) = (folder.path().join("in.pipe"), folder.path().join("sample.pcap"));
    write_mixed(&sample);
    nix::unistd::mkfifo(&input, nix::sys::stat::Mode::S_IRWXU).unwrap();
    (folder, input, std::fs::read(&sample).unwrap())
}

#[test]
fn a_file_that_is_read_slowly_answers_signals() {
    let (folder, input, bytes) = pipe_and_sample();
    let out = folder.path().join("out.pcapng");
    let mut command = Command::new(LINERATE);
    command.args(["capture", "-r"]).arg(&input).arg("-w").arg(&out).arg("udp");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = std::fs::File::options().write(true).open(&input).unwrap();
    pipe.write_all(&bytes[..4000]).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    let id = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(id, Signal::SIGUSR1).unwrap();
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut printed = String::new();
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut errors, &mut printed).unwrap();
    }
    assert!(printed.contains("packets captured") && printed.contains("packets read"), "{printed}");
    pipe.write_all(&bytes[4000..]).unwrap();
    drop(pipe);
    assert!(child.wait().unwrap().success());
    assert_eq!(content(&out).0, 50);
}

#[test]
fn a_pipe_with_nothing_to_read_is_left_at_the_first_signal() {
    let (folder, input, bytes) = pipe_and_sample();
    let out = folder.path().join("out.pcapng");
    // No writer; a silent writer; a writer that stops within a record.
    for sent in [None, Some(0), Some(4000)] {
        let mut command = Command::new(LINERATE);
        command.args(["capture", "-r"]).arg(&input).arg("-w").arg(&out);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let pipe = sent.map(|sent| {
            let mut pipe = std::fs::File::options().write(true).open(&input).unwrap();
            pipe.write_all(&bytes[..sent]).unwrap();
            pipe
        });
        std::thread::sleep(Duration::from_millis(400));
        let id = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(id, Signal::SIGINT).unwrap();
        let ended = child.wait_with_output().unwrap();
        drop(pipe);
        assert!(ended.status.success(), "{sent:?}: {ended:?}");
        if sent == Some(4000) {
            assert!((1..100).contains(&content(&out).0), "{ended:?}");
        }
    }
}

#[test]
fn reading_a_file_is_shown_on_a_terminal() {
    let (_folder, input, bytes) = pipe_and_sample();
    let command = format!("exec {LINERATE} capture -r {} --discard udp", input.display());
    let mut script = Command::new("script");
    script.args(["-qefc", &command, "/dev/null"]).stdout(Stdio::piped()).stdin(Stdio::null());
    let Ok(child) = script.spawn() else {
        skip!("needs script");
    };
    let mut pipe = std::fs::File::options().write(true).open(&input).unwrap();
    pipe.write_all(&bytes).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    drop(pipe);
    let ended = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{shown}");
    assert!(shown.contains("100 packets read, 50 captured"), "{shown:?}");
}

#[test]
fn an_interface_is_captured_as_asked() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    // Options, and the line that each of them prints.
    let socket = "--source xdp --take-over --xdp-delivery af-xdp -B 4096";
    let cases = [
        ("-p", ""),
        ("-s 60", ""),
        ("--immediate-mode", ""),
        ("-j host", ""),
        ("-j host_lowprec", ""),
        ("--source tee -j host_lowprec", ""),
        ("--cpu 0", ""),
        ("--source packet --busy-poll 50 -v", "snapshot length"),
        ("--source tee --busy-poll 50", "--busy-poll has no effect"),
        ("--source tee -j adapter", "-j adapter has no effect"),
        ("--source packet --pages small", "--pages has no effect"),
        ("--source packet --xdp-delivery af-xdp", "--xdp-delivery has no effect"),
        ("--source packet --take-over", "--take-over has no effect on the source packet"),
        ("--source tee --take-over", "--take-over has no effect on the source tee"),
        (&format!("{socket} --pages small --busy-poll 50 -v"), "AF_XDP sockets (requested)"),
        (&format!("{socket} --pages small -v"), "; pages: small; "),
        ("--source xdp --take-over --xdp-delivery ringbuf -B 4096 -v", "a ring buffer (requested)"),
        ("--threads 2 --fanout rnd -v", "several readers"),
    ];
    for (number, (arguments, words)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.pcapng"));
        let capture = cable.capture(&format!("{arguments} -w {} udp", path.display()));
        cable.send(30, 64);
        capture.signal(Signal::SIGTERM);
        let (status, _, printed) = capture.wait();
        assert!(status.success() && printed.contains(words), "{arguments}: {printed}");
        assert_eq!(printed.contains("has no effect"), words.contains("no effect"), "{printed}");
        // Only these have a choice.
        assert!(!printed.contains("pages: ") || arguments.contains("af-xdp"), "{printed}");
        let mut all = numbers(&path);
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<_>>(), "{arguments}: {printed}");
        let longest = if arguments == "-s 60" { 60 } else { 106 };
        assert_eq!(content(&path).1, longest, "{arguments}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    root_or_skip!();
    let cable = Cable::new();
    let cases = [
        ("--fanout lb", 2, "--threads"),
        ("--cpu 999", 1, "CPU 999"),
        ("--source nosuch", 2, "packet"),
        ("--pages nosuch", 2, "hugetlb-1g"),
        ("--threads 2 --fanout nosuch", 2, "rollover"),
        ("--filter-in nosuch", 2, "kernel"),
        ("--xdp-delivery nosuch", 2, "ringbuf"),
        ("-Q nosuch", 2, "inout"),
    ];
    for (arguments, status, words) in cases {
        let output = cable.run(&format!("-i far --discard {arguments}"));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {printed}");
        assert!(printed.contains(words), "{arguments}: no {words} in {printed}");
    }
    // Nobody reads a log file in colours.
    let socket = "--source xdp --take-over --xdp-delivery af-xdp --pages hugetlb-1g -B 4194304";
    let output = cable.run(&format!("-i far --discard {socket}"));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    if !output.status.success() {
        assert!(printed.contains("nr_hugepages"), "the command that reserves them: {printed}");
    }
}
