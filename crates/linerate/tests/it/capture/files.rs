//! What is in the files, and where they end.

use linerate_testkit::root_or_skip;
use serde_json::Value;

use super::support::{Cable, accepts, folder, holds_the_first, numbers, statistics};

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
