//! What is in the files, and where they end.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use linerate_testkit::{root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{
    Cable, accepts, folder, holds_the_first, numbers, read, statistics, write_mixed,
};

#[test]
fn rotation_loses_nothing() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let stem = folder.path().join("ring.pcap");
    let capture = cable.capture(&format!("-w {} -C 100k --json udp", stem.display()));
    cable.send(5000, 100);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let files = json["files"].as_u64().unwrap();
    assert!(files > 5, "{json}");
    let mut all = numbers(&stem);
    for number in 1..files {
        let path = folder.path().join(format!("ring.pcap{number}"));
        accepts("tcpdump", &["-nqr"], &path);
        all.extend(numbers(&path));
    }
    assert_eq!(all, (0..5000).collect::<Vec<_>>());
}

#[test]
fn a_second_capture_into_a_file_is_refused_and_names_the_first() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, rotation) in
        [("x.pcap", ""), ("ring", "-C 20k -W 3"), ("sizes", "-C 20k"), ("hour%H", "-G 86400")]
    {
        let path = path(name);
        let capture = cable.capture(&format!("-w {path} {rotation} --json udp"));
        cable.send(300, 100);
        wait_for("packets in a file", || {
            let files = std::fs::read_dir(folder.path()).unwrap().flatten();
            files.map(|file| file.metadata().unwrap().len()).sum::<u64>() > 0
        });
        let second = cable.run(&format!("-i far -w {path} {rotation} -a duration:1 udp"));
        let error = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(1), "{name}: {error}");
        let holder = format!("linerate (process {}) writes ", capture.id());
        assert!(error.contains(&holder) && error.contains("choose another name"), "{error}");
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        assert_eq!(json["captured"], 300, "{json}");
        if rotation.is_empty() {
            assert_eq!(numbers(path.as_ref()), (0..300).collect::<Vec<_>>());
        }
        // It is free again.
        let third = cable.run(&format!("-i far -w {path} {rotation} -a duration:1 udp"));
        assert!(third.status.success(), "{}", String::from_utf8_lossy(&third.stderr));
        for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
}

#[test]
fn a_rotation_that_comes_to_a_name_in_use_goes_on_beside_it() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let stem = folder.path().join("x");
    let rotating = cable.capture(&format!("-w {} -C 20k -W 2 --json udp", stem.display()));
    let other = folder.path().join("x1");
    let capture = cable.capture(&format!("-w {} --json udp port 9", other.display()));
    cable.send(300, 100);
    let (status, json, printed) = rotating.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!(json["captured"], 300, "{json}");
    let holder = format!("linerate (process {}) writes it", capture.id());
    assert!(printed.contains(&holder), "{printed}");
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert!(numbers(&other).is_empty());
}

#[test]
fn compressed_files_read_back() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    for extension in ["zst", "lz4"] {
        let path = folder.path().join(format!("x.pcapng.{extension}"));
        let capture = cable.capture(&format!("-w {} udp", path.display()));
        cable.send(1000, 400);
        capture.interrupt();
        assert_eq!(numbers(&path), (0..1000).collect::<Vec<_>>(), "{extension}");
        assert!(std::fs::metadata(&path).unwrap().len() < 200_000, "{extension}");
    }
}

/// A small file system, mounted until this is dropped.
pub(super) struct Small(tempfile::TempDir);

impl Small {
    pub(super) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub(super) fn mount(options: &str) -> Self {
        let folder = folder();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), folder.path(), Some("tmpfs"), flags, Some(options))
            .unwrap();
        Self(folder)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = nix::mount::umount(self.0.path());
    }
}

#[test]
fn a_full_disk_leaves_a_valid_file_and_counts_the_rest() {
    root_or_skip!();
    let cable = Cable::new();
    let disk = Small::mount("size=512k");
    let path = disk.0.path().join("full.pcapng");
    let capture = cable.capture(&format!("-w {} --json udp", path.display()));
    cable.send(3000, 1000);
    // It ends without a signal, once it notices.
    let (status, out, printed) = capture.wait();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("No space left") && printed.contains("full.pcapng"), "{printed}");
    let (json, kept) = holds_the_first(&path, &out);
    assert_eq!(json["captured"], kept, "{json}");
    // Ethernet, IPv4, UDP and the payload.
    assert_eq!(json["bytes"], kept * (14 + 20 + 8 + 1000), "{json}");
    for key in ["captured", "bytes"] {
        assert_eq!(json["interfaces"][0][key], json[key], "{key} in {json}");
    }
    assert_eq!(json["interfaces"][0]["dropped"]["disk"], json["dropped"]["disk"], "{json}");
}

#[test]
fn a_full_disk_in_the_middle_of_a_rotation_leaves_true_statistics() {
    root_or_skip!();
    let cable = Cable::new();
    let disk = Small::mount("size=512k");
    let path = disk.0.path().join("full");
    let capture = cable.capture(&format!("-w {} -C 100k --json udp", path.display()));
    cable.send(3000, 1000);
    let (status, out, printed) = capture.wait();
    assert_eq!(status.code(), Some(1), "{printed}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let files = json["files"].as_u64().unwrap();
    assert!(files > 2, "{json}");
    let mut written = 0;
    for number in 0..files - 1 {
        let name = if number == 0 { "full".to_owned() } else { format!("full{number}") };
        let path = disk.0.path().join(name);
        written += numbers(&path).len() as u64;
        // Counted since the start of the capture.
        assert_eq!(statistics(&path).delivered, Some(written), "file {number}");
    }
    let last = disk.0.path().join(format!("full{}", files - 1));
    written += numbers(&last).len() as u64;
    assert_eq!(json["interfaces"][0]["captured"], written, "{json}");
    assert_eq!(json["captured"], written, "{json}");
}

#[test]
fn another_user_owns_the_file() {
    root_or_skip!();
    use std::os::unix::fs::{MetadataExt, chown};
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let cable = Cable::new();
    let folder = folder();
    chown(folder.path(), Some(nobody.uid.as_raw()), None).unwrap();
    for source in ["packet", "tee"] {
        let path = folder.path().join(source);
        let file = path.display();
        let options = format!("--source {source} -Z nobody -C 50k -w {file} -B 16384 udp");
        let capture = cable.capture(&options);
        cable.send(1000, 64);
        let (status, _, printed) = capture.interrupt();
        assert!(
            status.success() && printed.contains("1000 packets captured"),
            "{source}: {printed}"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), nobody.uid.as_raw());
    }
}

#[test]
fn limits_end_the_capture() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("c.pcap");
    let capture = cable.capture(&format!("-w {} -c 7 udp", path.display()));
    cable.send(100, 64);
    let (status, _, printed) = capture.wait();
    assert!(status.success() && printed.contains("7 packets captured"), "{printed}");
    assert_eq!(numbers(&path), (0..7).collect::<Vec<_>>());
    let output = cable.run("-i far -a duration:0.2 --discard");
    assert!(output.status.success(), "{output:?}");
}

/// Also where a rotation comes to it, and by another name.
#[test]
fn the_input_is_never_overwritten() {
    let folder = folder();
    let [first, second, link] =
        ["trace.pcap", "trace.pcap1", "link.pcap"].map(|name| folder.path().join(name));
    write_mixed(&second);
    std::fs::hard_link(&second, &link).unwrap();
    let content = std::fs::read(&second).unwrap();
    for (output, options) in [(&first, "-C 2k"), (&link, ""), (&link, "-b packets:9 -C 2k")] {
        let by_name = read(&second, &format!("-w {} {options}", output.display()));
        let input = std::fs::File::open(&second).unwrap();
        let mut command = std::process::Command::new(crate::LINERATE);
        command.args(["capture", "-r", "-", "-w"]).arg(output).args(options.split_whitespace());
        for done in [by_name, command.stdin(input).output().unwrap()] {
            assert!(!done.status.success(), "{done:?}");
            assert_eq!(std::fs::read(&second).unwrap(), content, "{options}");
        }
    }
    let printed = read(&second, &format!("-w {} -C 2k", first.display())).stderr;
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("trace.pcap1 would be emptied before it is read"), "{printed}");
}

/// No packet comes, and the files still end in time.
#[test]
fn the_clock_ends_the_files_of_an_idle_interface() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let finished = folder.path().join("finished");
    let program = folder.path().join("note");
    std::fs::write(&program, format!("#!/bin/sh\necho $1 >> {}\n", finished.display())).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let with = |options: String| cable.capture(&format!("--json {options} udp"));
    let z = format!("-z {}", program.display());
    let running = [
        // It ends by itself.
        with(format!("-G 1 -W 2 -w {} {z}", path("g-%s.pcap"))),
        with(format!("-b duration:1 -w {} {z}", path("b.pcapng"))),
        with(format!("-b duration:1 --skip-empty -w {} {z}", path("skipped.pcapng"))),
        cable.capture(&format!("-G 1 -i lo -w {} udp", path("several-%s.pcapng"))),
    ];
    let names = || {
        let text = std::fs::read_to_string(&finished).unwrap_or_default();
        let names = text.lines().map(|line| line.rsplit('/').next().unwrap().to_owned());
        names.collect::<BTreeSet<_>>()
    };
    let count = |of: &str| names().iter().filter(|name| name.starts_with(of)).count();
    wait_for("two periods of dumpcap's", || count("b_") >= 2);
    let several = || {
        let names = std::fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("several-")).count()
    };
    wait_for("two files of several readers", || several() >= 2);
    let [tcpdumps, dumpcaps, skipped, several] = running;
    let (status, json, printed) = tcpdumps.wait();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(status.success() && json["files"] == 2, "{json} {printed}");
    assert_eq!(count("g-"), 2);
    cable.send(1, 64);
    wait_for("a file with a packet", || count("skipped_") == 1);
    for capture in [dumpcaps, skipped, several] {
        let (status, _, printed) = capture.end(Signal::SIGINT);
        assert!(status.success(), "{printed}");
    }
    assert_eq!(count("skipped_"), 1);
}

/// dumpcap's other words of -b and -a, without an interface.
#[test]
fn names_are_printed_and_files_are_counted() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let (output, list) = (folder.path().join("out.pcap"), folder.path().join("list"));
    let options = format!(
        "-w {} -b packets:10 -b nametimenum:2 -b printname:{} -a files:3",
        output.display(),
        list.display()
    );
    let done = read(&input, &options);
    assert!(done.status.success(), "{done:?}");
    let list = std::fs::read_to_string(&list).unwrap();
    let names: Vec<_> = list.lines().collect();
    assert_eq!(names.len(), 3, "{list}");
    for (number, name) in names.iter().enumerate() {
        assert!(name.ends_with(&format!("_{:05}.pcap", number + 1)), "{list}");
        assert!(std::path::Path::new(name).exists(), "{list}");
    }
    let refused = read(&input, &format!("-w {} -a files:3", output.display()));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn a_signal_starts_another_file() {
    root_or_skip!();
    for (name, signal) in [("HUP", Signal::SIGHUP), ("SIGUSR2", Signal::SIGUSR2)] {
        let (cable, folder) = (Cable::new(), folder());
        let options =
            format!("-w {}/f.pcapng --json -b signal:{name} udp", folder.path().display());
        let capture = cable.capture(&options);
        let files = || {
            let files = std::fs::read_dir(folder.path()).unwrap();
            files.map(|file| file.unwrap().path()).collect::<BTreeSet<_>>()
        };
        for number in 1..=3 {
            wait_for("the file", || files().len() == number);
            if number < 3 {
                cable.send(10 * number as u32, 64);
            }
            capture.signal(signal);
            wait_for("another file", || files().len() > number);
        }
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let counts: Vec<_> = files().iter().map(|file| numbers(file).len()).collect();
        assert_eq!((counts, &json["files"]), (vec![10, 20, 0, 0], &4.into()), "{printed}");
    }
}
