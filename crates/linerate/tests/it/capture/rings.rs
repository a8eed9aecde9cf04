//! Rings of files: `-b` as dumpcap has it, and files that go before the disk is full.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linerate_net::cpu;
use linerate_pcapfile::Reader;
use linerate_testkit::{root_or_skip, skip, wait_for};
use serde_json::Value;

use super::files::Small;
use super::support::{Cable, everybody_accepts, folder, listening, numbers};
use crate::LINERATE;

/// The files of a folder in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The number in the name of each file, and the packets in it; the name without number and time.
fn ring(folder: &Path) -> Vec<(String, String, Vec<u32>)> {
    let describe = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let [stem, number, rest] = name.split('_').collect::<Vec<_>>()[..] else {
            panic!("{name}");
        };
        let (time, extension) = rest.split_at(14);
        assert!(number.len() == 5 && time.starts_with("20"), "{name}");
        (format!("{stem}{extension}"), number.to_owned(), numbers(&path))
    };
    files(folder).into_iter().map(describe).collect()
}

#[test]
fn a_ring_of_files_is_dumpcaps() {
    root_or_skip!();
    if Command::new("dumpcap").arg("--version").output().is_err() {
        skip!("there is no dumpcap");
    }
    let cable = Cable::new();
    for limits in [
        &["packets:10", "files:3"][..],
        &["packets:10"],
        &["filesize:1", "files:4"],
        &["filesize:2"],
    ] {
        let [theirs, ours] = [folder(), folder()];
        let mut dumpcap = cable.far.command("dumpcap");
        let mut linerate = cable.far.command(LINERATE);
        // Classic files: the headers of pcapng are of other lengths.
        dumpcap.args(["-i", "far", "-P", "-f", "udp", "-w"]).arg(theirs.path().join("r.pcap"));
        linerate.args(["capture", "-i", "far", "--json", "-w"]).arg(ours.path().join("r.pcap"));
        for limit in limits {
            dumpcap.args(["-b", limit]);
            linerate.args(["-b", limit]);
        }
        let mut dumpcap = linerate_testkit::Process::start(&mut dumpcap);
        dumpcap.until("File: ");
        let linerate = listening(linerate.arg("udp"));
        cable.send(47, 64);
        wait_for("dumpcap's last packet", || {
            let last = files(theirs.path()).pop();
            last.is_some_and(|file| std::fs::metadata(file).unwrap().len() > 24)
                && ring_ends(theirs.path(), 46)
        });
        dumpcap.interrupt();
        let (status, json, printed) = linerate.interrupt();
        assert!(status.success(), "{printed}");
        let (theirs, ours) = (ring(theirs.path()), ring(ours.path()));
        assert_eq!(ours, theirs, "{limits:?}");
        let deleted = json["files"].as_u64().unwrap() - ours.len() as u64;
        assert_eq!(json["deleted_files"], deleted, "{json}");
        assert_eq!(printed.contains("older files deleted"), deleted > 0, "{printed}");
    }
}

/// Whether the packet of this number is in one of the files.
fn ring_ends(folder: &Path, number: u32) -> bool {
    files(folder).iter().any(|path| {
        let Ok(mut reader) = Reader::open(path) else { return false };
        let mut found = false;
        while let Ok(Some(record)) = reader.next() {
            let bytes = record.frame.head();
            found |= bytes.get(42..46) == Some(&number.to_be_bytes()[..]);
        }
        found
    })
}

/// Bytes that are free on a file system, of how many.
fn space(folder: &Path) -> (u64, u64) {
    let found = nix::sys::statvfs::statvfs(folder).unwrap();
    (found.blocks_available() * found.fragment_size(), found.blocks() * found.fragment_size())
}

#[test]
fn the_oldest_files_go_before_the_disk_is_full() {
    root_or_skip!();
    let (cable, disk) = (Cable::new(), Small::mount("size=8m"));
    let done = AtomicBool::new(false);
    let (json, read, least) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut least = u64::MAX;
            while !done.load(Relaxed) {
                least = least.min(space(disk.path()).0);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            least
        });
        let path = disk.path().join("r.pcapng");
        let options = "-b filesize:500 --keep-free 30% --json -U udp";
        let capture = cable.capture(&format!("-w {} {options}", path.display()));
        cable.send(1000, 1000);
        wait_for("a finished file", || files(disk.path()).len() > 1);
        // One that is read by Linerate stays.
        let read = files(disk.path()).remove(0);
        let reader = Reader::open(&read).unwrap();
        cable.send(20_000, 1000);
        let (status, json, printed) = capture.interrupt();
        done.store(true, Relaxed);
        assert!(status.success(), "{printed}");
        assert!(printed.contains("older files deleted"), "{printed}");
        drop(reader);
        (json, read, watch.join().unwrap())
    });
    let total = space(disk.path()).1;
    assert!(least >= total * 3 / 10, "{least} of {total} were free");
    let kept = files(disk.path());
    assert!(kept.contains(&read), "{kept:?}");
    let deleted = json["deleted_files"].as_u64().unwrap();
    assert!(deleted > 10 && kept.len() as u64 + deleted == json["files"], "{json}");
    assert_eq!(json["dropped"]["disk"], 0, "{json}");
    // What is kept is whole, and all of the end is.
    for file in &kept {
        everybody_accepts(file);
    }
    let last: Vec<u32> = kept[1..].iter().flat_map(|file| numbers(file)).collect();
    assert_eq!(last, (20_000 - last.len() as u32..20_000).collect::<Vec<_>>());
}

/// With a file for each reader, a reader deletes the oldest file of all: its own would not do.
#[test]
fn readers_with_files_of_their_own_delete_the_oldest_of_all() {
    root_or_skip!();
    let cpus = cpu::allowed().unwrap();
    if cpus.len() < 2 {
        skip!("two readers take two CPUs here");
    }
    let (cable, disk) = (Cable::new(), Small::mount("size=8m"));
    let path = disk.path().join("r.pcapng");
    let readers = "--source packet --threads 2 --fanout cpu --per-thread-files";
    let options = format!("{readers} -b filesize:500 --keep-free 30% --json -U udp");
    let capture = cable.capture(&format!("-w {} {options}", path.display()));
    // The reader of the second CPU needs the room that the files of the first one have.
    for cpu in &cpus[..2] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cpu::pin(*cpu).unwrap();
                cable.send(8000, 1000);
            });
        });
    }
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!((&json["captured"], &json["dropped"]["disk"]), (&16_000.into(), &0.into()));
    let (free, total) = space(disk.path());
    assert!(free >= total * 3 / 10, "{free} of {total} are free");
    let kept = files(disk.path());
    let deleted = json["deleted_files"].as_u64().unwrap();
    assert!(deleted > 10 && kept.len() as u64 + deleted == json["files"], "{json}");
    let packets: Vec<u32> = kept.iter().flat_map(|file| numbers(file)).collect();
    // The last packets of the second CPU are there in one piece, and are most of what is kept.
    let last = packets.iter().filter(|number| (4000..8000).contains(*number)).count();
    assert!(last >= 4000, "{last} of {}", packets.len());
}

/// A service that starts again deletes what it wrote before, and nothing else.
#[test]
fn old_files_of_an_earlier_capture_go_and_others_stay() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("r.pcap");
    let options = "-b packets:10 --json -U udp";
    let first = cable.capture(&format!("-w {} {options}", path.display()));
    cable.send(35, 64);
    wait_for("four files", || files(folder.path()).len() == 4);
    first.interrupt();
    let earlier = files(folder.path());
    let gzip = Command::new("gzip").arg(&earlier[0]).status().unwrap();
    assert!(gzip.success());
    let others = [
        "r.pcap",
        "r_notes.pcap",
        "r_00001_20260101000000.pcap.txt",
        "q_00001_20260101000000.pcap",
    ];
    let others = others.map(|name| folder.path().join(name));
    let foreign = folder.path().join("r_00001_20260101000000.pcap");
    let link = folder.path().join("r_00002_20260101000000.pcap");
    for file in others.iter().chain([&foreign]) {
        std::fs::write(file, "somebody's").unwrap();
    }
    std::os::unix::fs::chown(&foreign, Some(1000), None).unwrap();
    std::os::unix::fs::symlink(&others[0], &link).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let second = cable.capture(&format!("-w {} --keep 1s {options}", path.display()));
    cable.send(5, 64);
    wait_for("no earlier files", || earlier.iter().all(|file| !file.exists()));
    let (_, json, printed) = second.interrupt();
    assert_eq!(json["deleted_files"], 4, "{printed}");
    for file in others.iter().chain([&foreign, &link]) {
        assert!(file.symlink_metadata().is_ok(), "{}", file.display());
    }
    let left = files(folder.path());
    assert!(left.iter().all(|file| file.extension().is_none_or(|end| end != "gz")), "{left:?}");
}

/// What a compressor that `-z` runs makes of the files goes in their place.
#[test]
fn compressed_files_of_the_capture_go_before_the_disk_is_full() {
    root_or_skip!();
    let (cable, disk, folder) = (Cable::new(), Small::mount("size=4m"), folder());
    let path = disk.path().join("r.pcap");
    // As gzip, but the packets, which are alike, keep their size.
    let gzip = folder.path().join("gzip");
    std::fs::write(&gzip, "#!/bin/sh\ncp -p \"$1\" \"$1.gz\" && rm \"$1\"\n").unwrap();
    std::fs::set_permissions(&gzip, PermissionsExt::from_mode(0o755)).unwrap();
    let options = format!("-b filesize:200 --keep-free 40% -z {} --json -U udp", gzip.display());
    let capture = cable.capture(&format!("-w {} {options}", path.display()));
    cable.send(20_000, 1000);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert!(json["deleted_files"].as_u64().unwrap() > 50, "{json}");
    assert_eq!(json["dropped"]["disk"], 0, "{json}");
    let (free, total) = space(disk.path());
    assert!(free >= total * 4 / 10, "{free} of {total} are free");
    let kept = files(disk.path());
    assert!(kept.iter().any(|file| file.extension().is_some_and(|end| end == "gz")), "{kept:?}");
}

#[test]
fn a_disk_that_others_have_filled_ends_the_capture() {
    root_or_skip!();
    let (cable, disk) = (Cable::new(), Small::mount("size=4m"));
    std::fs::write(disk.path().join("other"), vec![0; 3 << 20]).unwrap();
    let path = disk.path().join("r.pcap");
    let capture =
        cable.capture(&format!("-w {} -C 100k --keep-free 50% --json udp", path.display()));
    cable.send(500, 1000);
    let (status, out, printed) = capture.wait();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("no older file of this capture to delete"), "{printed}");
    let json: Value = serde_json::from_str(&out).unwrap();
    assert!(json["dropped"]["disk"].as_u64().unwrap() > 0, "{json}");
    assert!(disk.path().join("other").exists());
}

#[test]
fn old_files_go_when_their_time_is_over() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("r.pcap");
    let options = "-b packets:10 --keep 2s --json -U udp";
    let capture = cable.capture(&format!("-w {} {options}", path.display()));
    cable.send(25, 64);
    wait_for("three files", || files(folder.path()).len() == 3);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    cable.send(1, 64);
    wait_for("one file", || files(folder.path()).len() == 1);
    let (_, json, printed) = capture.interrupt();
    assert_eq!(json["deleted_files"], 2, "{printed}");
    for wrong in ["-b files:3", "--keep 7d", "--keep-free 10%"] {
        let output = cable.run(&format!("-i far -w {} {wrong}", path.display()));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
