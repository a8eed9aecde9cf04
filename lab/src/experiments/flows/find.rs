//! `flows-find`: finds the packets of one host in many captures.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use linerate_pcapfile::Reader;
use nix::sys::statvfs::statvfs;

use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::programs::{self, installed, words};
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::Pair;
use crate::traffic::recorded::{End, HEADERS, Packet, Random, Recorder};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "flows-find",
    title: "The packets of one host in many captures",
    about: "An hour of 500 hosts in 64 pcap files, of 20 GiB together (1 GiB when quick), on the disk of the \
            run's folder. A host visits a server now and then, ten times on average. A visit is a DNS query and four \
            TCP connections of one to eight seconds. linerate capture -r --flows meters the files. Then, in turns, \
            linerate find searches for one host, and tcpdump reads all files with the same filter. The packets \
            that they find are compared: time, length and bytes. The time of tcpdump depends on how much of the \
            files is in the page cache, so times are for comparison only.",
    run,
};

const FIND: &str = "linerate find";
const TCPDUMP: &str = "tcpdump";

/// Files, hosts, visits of all hosts, microseconds of the capture, and connections of a visit.
const FILES: u64 = 64;
const HOSTS: u64 = 500;
const VISITS: u64 = 5000;
const DURATION: u64 = 3_600_000_000;
const CONNECTIONS: u64 = 4;

/// When the first packet came, in microseconds since 1970.
const START: u64 = 1_700_000_000_000_000;

/// The host that is searched for.
const HOST: Ipv4Addr = host(77);

const NAME_SERVER: End = (Ipv4Addr::new(10, 9, 0, 53), 53);

const fn host(number: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, (number / 250) as u8, (number % 250) as u8 + 1)
}

/// The result of a search, and what it took.
#[derive(Debug, PartialEq)]
struct Searched {
    seconds: f64,
    packets: u64,
    /// Bytes of packet files that were read.
    bytes_read: u64,
    /// Packets that only one of the two programs found; NaN if they were not compared.
    different: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let gibibytes: u64 = context.quick_or_full(1, 20);
    let x = gibibytes as f64;
    let wanted = [FIND, TCPDUMP].map(|name| context.is_selected(name, x));
    if !wanted.contains(&true) {
        return Ok(());
    }
    let folder = context.folder().map(Path::to_owned);
    if let Some(why) = unavailable(context)? {
        context.notes.push(format!("skipped: {FIND}: {why}"));
        return Ok(());
    }
    let mut set = context.try_measure("captures", x, 1, x * 15.0, |pair| {
        Set::build(pair, folder.as_deref().context("there is no folder")?, gibibytes << 30)
    })?;
    match &set {
        Some(set) => context.notes.push(format!(
            "The set has {} bytes in {} files, and {} packets; {} flow records take {} bytes.",
            set.bytes,
            set.files.len(),
            set.packets,
            set.records,
            set.record_bytes
        )),
        // A dry run goes on.
        None if context.folder().is_some() => return Ok(()),
        None => {}
    }
    let lines = vec![(FIND.to_owned(), Role::Ours), (TCPDUMP.to_owned(), Role::Peer)];
    let expected = [2.0 + x / 2.0, 2.0 + x * 2.0];
    let samples = Samples::collect(context, lines, &[x], |context, line, _, repeat| {
        let name = [FIND, TCPDUMP][line];
        let searched = context.try_measure(name, x, repeat, expected[line], |pair| {
            let set = set.as_mut().context("there are no captures")?;
            if line == 0 { set.find(pair) } else { set.tcpdump(pair) }
        })?;
        if let Some(searched) = &searched {
            context.row(
                "searches",
                &[
                    ("line", name.to_owned()),
                    ("repeat", repeat.to_string()),
                    ("seconds", format!("{:.3}", searched.seconds)),
                    ("packets", searched.packets.to_string()),
                    ("bytes_read", searched.bytes_read.to_string()),
                    ("different", searched.different.to_string()),
                ],
            )?;
        }
        Ok(searched)
    })?;
    context.charts.push(Chart::bars(
        "time",
        format!("Time to find a host in {gibibytes} GiB"),
        "Shorter is better.",
        Axis::linear("time", "s"),
        samples.bars(x, |one| one.seconds),
    ));
    let repeats = context.options.repeats;
    let different = samples.distribution((TCPDUMP, x), |one| one.different);
    let packets = samples.median((TCPDUMP, x), |one| one.packets as f64);
    let claim = "packets that only one of find and tcpdump has, one host";
    let claim = Claim::at_most(claim, different, 0.0, repeats);
    context.claims.push(claim.adding(&format!("; of {packets} packets")));
    let bytes = set.as_ref().map_or(f64::NAN, |set| set.bytes as f64);
    let read = samples.distribution((FIND, x), |one| one.bytes_read as f64 / bytes * 100.0);
    let claim = "part of the packet files that find read, in %";
    context.claims.push(Claim::at_most(claim, read, 5.0, repeats));
    Ok(())
}

/// Why the search cannot be made here.
fn unavailable(context: &mut Context) -> Result<Option<String>> {
    if !installed(TCPDUMP) {
        return Ok(Some(format!("{TCPDUMP} is not installed")));
    }
    let searched = context.with_pair(|pair| {
        let nowhere = words("find 192.0.2.1 -r /nonexistent -w /nonexistent/found.pcapng");
        let mut command = programs::linerate(&pair.receiver, pair.cores.consumer, nowhere)?;
        Running::start(FIND, &mut command)?.wait(Duration::from_secs(20))
    });
    let Some(finished) = searched.transpose()? else { return Ok(None) };
    // linerate-flows reports the missing folder; without it, the command says how to build it.
    let missing = finished.stderr.contains("make flows");
    Ok(missing.then(|| finished.stderr.trim().to_owned()))
}

/// The captures and their flow records.
struct Set {
    folder: tempfile::TempDir,
    files: Vec<PathBuf>,
    bytes: u64,
    packets: u64,
    records: u64,
    record_bytes: u64,
    /// What `find` found last.
    found: PathBuf,
}

impl Set {
    fn build(pair: &Pair, folder: &Path, bytes: u64) -> Result<Self> {
        let found = statvfs(folder)
            .with_context(|| format!("cannot read the free space of {}", folder.display()))?;
        let free = found.blocks_available() * found.fragment_size();
        ensure!(
            free > bytes + bytes / 10,
            "{} has {} MiB free, and the captures take {}; use --out or --quick",
            folder.display(),
            free >> 20,
            (bytes + bytes / 10) >> 20
        );
        let folder = tempfile::Builder::new().prefix("captures-").tempdir_in(folder)?;
        let (files, packets) = write(folder.path(), bytes, VISITS, DURATION)?;
        let sizes = files.iter().map(|file| Ok(file.metadata()?.len()));
        let bytes = sizes.sum::<Result<u64>>()?;
        let (mut records, mut record_bytes) = (0, 0);
        for file in &files {
            let mut command = programs::linerate(
                &pair.receiver,
                pair.cores.consumer,
                words("capture --json --quiet -r"),
            )?;
            command.arg(file).arg("--flows").arg(folder.path().join("flows"));
            let capture = Running::start("linerate capture", &mut command)?;
            let report = capture.wait(Duration::from_secs(600))?.success()?.json()?;
            records += count(&report["flows"], "records")?;
            record_bytes += count(&report["flows"], "file_bytes")?;
        }
        let found = folder.path().join("found.pcapng");
        Ok(Self { folder, files, bytes, packets, records, record_bytes, found })
    }

    fn find(&mut self, pair: &Pair) -> Result<Searched> {
        // What is compared later has to be of this search.
        let _ = fs::remove_file(&self.found);
        let arguments = [String::from("find"), HOST.to_string(), "-r".into()];
        let mut command = programs::linerate(&pair.receiver, pair.cores.consumer, arguments)?;
        command.arg(self.folder.path().join("flows")).arg("-w").arg(&self.found);
        let start = Instant::now();
        let finished = Running::start(FIND, &mut command)?.wait(Duration::from_secs(1200))?;
        let seconds = start.elapsed().as_secs_f64();
        let (packets, bytes_read) = find_report(&finished.success()?.stderr)?;
        ensure!(packets > 0, "{FIND} found no packet of {HOST}");
        Ok(Searched { seconds, packets, bytes_read, different: f64::NAN })
    }

    /// Reads all files, and compares what is found with what `find` found last.
    fn tcpdump(&mut self, pair: &Pair) -> Result<Searched> {
        let outputs: Vec<_> = self.files.iter().map(|file| file.with_extension("found")).collect();
        let start = Instant::now();
        for (file, output) in self.files.iter().zip(&outputs) {
            let mut command = pair.receiver.command_killed_with_parent(TCPDUMP);
            command
                .cpus([pair.cores.consumer])
                .args(words("-Z root -r"))
                .arg(file)
                .arg("-w")
                .arg(output);
            command.args(["host".to_owned(), HOST.to_string()]);
            Running::start(TCPDUMP, &mut command)?.wait(Duration::from_secs(600))?.success()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let found = std::slice::from_ref(&self.found);
        let (packets, different) = match self.found.is_file() {
            true => compare(&outputs, found).map(|(packets, count)| (packets, count as f64))?,
            false => (compare(&outputs, &[])?.0, f64::NAN),
        };
        Ok(Searched { seconds, packets, bytes_read: self.bytes, different })
    }
}

/// `linerate: 12 packets of 3 flow records; read 4096 of 81920 bytes in 2 files`: packets and bytes read.
fn find_report(said: &str) -> Result<(u64, u64)> {
    let line = said.lines().find(|line| line.contains("; read "));
    let line = line.with_context(|| format!("{FIND} did not say what it read: {said}"))?;
    let number = |before: &str| -> Option<u64> {
        line.split_once(before)?.1.split(' ').next()?.parse().ok()
    };
    number("linerate: ").zip(number("; read ")).with_context(|| format!("cannot read {line:?}"))
}

/// Packets of the first files, and how many are only in one of the two.
fn compare(ours: &[PathBuf], theirs: &[PathBuf]) -> Result<(u64, u64)> {
    let mut sides = [ours, theirs].map(Packets::new);
    let mut heads = [sides[0].next()?, sides[1].next()?];
    let (mut packets, mut different) = (0, 0);
    loop {
        // Both are in the order of time. Where they differ, only one of them has the earlier packet.
        let skip = match &heads {
            [None, None] => return Ok((packets, different)),
            [Some(one), Some(other)] if one == other => None,
            [Some(one), Some(other)] => Some(usize::from(one.0 > other.0)),
            [one, _] => Some(usize::from(one.is_none())),
        };
        different += u64::from(skip.is_some());
        for side in 0..2 {
            if skip.is_none_or(|skip| skip == side) {
                packets += u64::from(side == 0);
                heads[side] = sides[side].next()?;
            }
        }
    }
}

/// The packets of several files: time, length and bytes.
struct Packets<'a> {
    files: std::slice::Iter<'a, PathBuf>,
    reader: Option<Reader>,
}

impl<'a> Packets<'a> {
    fn new(files: &'a [PathBuf]) -> Self {
        Self { files: files.iter(), reader: None }
    }

    fn next(&mut self) -> Result<Option<(u64, u32, Vec<u8>)>> {
        loop {
            if let Some(reader) = &mut self.reader
                && let Some(record) = reader.next()?
            {
                let time = record.frame.timestamp.context("a packet without a time")?.0;
                return Ok(Some((time, record.frame.wire_len, record.frame.head().to_vec())));
            }
            let Some(file) = self.files.next() else { return Ok(None) };
            self.reader = Some(Reader::open(file)?);
        }
    }
}

/// A TCP connection, or a DNS query and its answer.
struct Exchange {
    client: End,
    server: End,
    tcp: bool,
    /// Packets that are left, and microseconds between them.
    packets: u64,
    gap: u64,
}

impl Exchange {
    /// The next packet.
    fn packet(&mut self) -> Packet {
        self.packets -= 1;
        let (to_server, to_client) = ((self.client, self.server), (self.server, self.client));
        let ((from, to), size) = match (self.tcp, self.packets) {
            (false, 1) => (to_server, 78),
            (false, _) => (to_client, 94),
            // Two segments of the answer, and an acknowledgement.
            (true, left) if left % 3 == 0 => (to_server, HEADERS),
            (true, _) => (to_client, 1514),
        };
        Packet { from, to, tcp: self.tcp, size }
    }
}

/// Writes the files, of about `bytes` together. Returns them and the number of their packets.
fn write(folder: &Path, bytes: u64, visits: u64, duration: u64) -> Result<(Vec<PathBuf>, u64)> {
    let mut random = Random::new(1);
    let packets_of_connection = (bytes / visits / CONNECTIONS / (1530 * 2 + 70) * 3).max(3);
    let mut exchanges: Vec<Exchange> = Vec::new();
    // The exchanges that are not over, by the time of their next packet.
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let (mut files, mut packets, mut last) = (Vec::new(), 0_u64, 0);
    let mut recorder: Option<Recorder> = None;
    for visit in 0..=visits {
        let begin = visit * duration / visits;
        while let Some(Reverse((time, number))) = next.peek().copied() {
            // After the last visit, the packets that are left are written.
            if time >= begin && visit < visits {
                break;
            }
            next.pop();
            // No two packets have the same time, so their order is the same for all programs.
            last = time.max(last + 1);
            if recorder.as_ref().is_none_or(|recorder| recorder.len() > bytes / FILES) {
                if let Some(full) = recorder.take() {
                    full.finish()?;
                }
                let path = folder.join(format!("{:03}.pcap", files.len()));
                recorder = Some(Recorder::create(&path)?);
                files.push(path);
            }
            let exchange = &mut exchanges[number];
            let packet = exchange.packet();
            if exchange.packets > 0 {
                next.push(Reverse((last + exchange.gap, number)));
            }
            let Some(recorder) = &mut recorder else { bail!("there is no file") };
            recorder.write(START + last, &packet)?;
            packets += 1;
            if packets.is_multiple_of(1 << 16) {
                interrupt::check()?;
            }
        }
        if visit == visits {
            break;
        }
        let client = host(random.below(HOSTS));
        let mut port = 32_768 + random.below(28_000) as u16;
        for connection in 0..=CONNECTIONS {
            port += 1;
            let tcp = connection > 0;
            let server = Ipv4Addr::from_bits(0xc612_0000 + random.below(1 << 16) as u32);
            let (server, count) = match tcp {
                true => ((server, 443), packets_of_connection),
                false => (NAME_SERVER, 2),
            };
            let gap = if tcp { (1_000_000 + random.below(7_000_000)) / count } else { 20_000 };
            next.push(Reverse((begin + connection * 30_000, exchanges.len())));
            exchanges.push(Exchange { client: (client, port), server, tcp, packets: count, gap });
        }
    }
    if let Some(last) = recorder {
        last.finish()?;
    }
    for file in &files {
        // Otherwise the kernel would write them during the measurement.
        fs::File::open(file)?.sync_all()?;
    }
    Ok((files, packets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_find_says_is_read() {
        let said = "linerate: 12 packets of 3 flow records; read 4096 of 81920 bytes in 2 files\n";
        assert_eq!(find_report(said).unwrap(), (12, 4096));
        let said = "linerate: 1 packet of 1 flow record; read 96 of 8192 bytes in 1 file\n";
        assert_eq!(find_report(said).unwrap(), (1, 96));
        assert!(find_report("linerate: no such folder").is_err());
    }

    #[test]
    fn the_files_have_their_size_and_are_in_the_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let (files, packets) = write(folder.path(), 4 << 20, 50, 60_000_000).unwrap();
        let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!((3 << 20..5 << 20).contains(&bytes), "{bytes}");
        assert!((FILES - 8..FILES + 8).contains(&(files.len() as u64)), "{} files", files.len());
        let mut all = Packets::new(&files);
        let (mut count, mut last) = (0, 0);
        while let Some((time, _, _)) = all.next().unwrap() {
            assert!(time > last);
            (count, last) = (count + 1, time);
        }
        assert_eq!(count, packets);
    }

    #[test]
    fn packets_of_one_side_only_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let packet = Packet { from: NAME_SERVER, to: NAME_SERVER, tcp: false, size: 60 };
        let file = |name: &str, times: &[u64]| {
            let path = folder.path().join(name);
            let mut recorder = Recorder::create(&path).unwrap();
            times.iter().for_each(|time| recorder.write(*time, &packet).unwrap());
            recorder.finish().unwrap();
            path
        };
        let ours = [file("a", &[1, 2]), file("b", &[3, 5])];
        assert_eq!(compare(&ours, &[file("c", &[1, 2, 3, 5])]).unwrap(), (4, 0));
        assert_eq!(compare(&ours, &[file("d", &[1, 3, 4, 5, 6])]).unwrap(), (4, 3));
        assert_eq!(compare(&ours, &[file("e", &[])]).unwrap(), (4, 4));
    }
}
