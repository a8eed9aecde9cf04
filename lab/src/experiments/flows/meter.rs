//! `flows-meter`: metering the flows of a capture file, beside other meters.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::experiments::capture::write::memory_folder;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::measure::process::{Finished, Running, count};
use crate::programs::{self, installed, words};
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::Pair;
use crate::traffic::recorded::{Packet, Random, Recorder};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "flows-meter",
    title: "Metering the flows of a file",
    about: "The same pcap file in a tmpfs, with 100,000 flows of TCP and UDP in random order, both directions, \
            64 to 1514 bytes (7:4:1 of 64, 590 and 1514), is metered by each program in turns (A B A B …), on one \
            core. All run with their default settings and room for all flows, and write their records to files in \
            the tmpfs: linerate Parquet, nfpcapd its own format, argus its own, pmacctd CSV. softflowd writes no \
            files and exports nowhere, which costs it less. The two seconds that pmacctd sleeps before it reads \
            a file do not count. In the ten seconds of the file no flow ends, so that each program writes all of \
            them at the end. pmacctd and argus do not say \
            how many packets they metered; each of the others must have metered all.",
    run,
};

/// The meters, ours first.
const METERS: [Meter; 5] =
    [Meter::Linerate, Meter::Softflowd, Meter::Pmacctd, Meter::Nfpcapd, Meter::Argus];

/// Flows in the file.
const FLOWS: u64 = 100_000;
const X: f64 = FLOWS as f64;

/// Ports of a client.
const PORTS: u64 = 1000;

/// Microseconds that the packets take.
const DURATION: u64 = 10_000_000;

/// Maximum bytes of a packet in the file, with its share of all records.
const BYTES_A_PACKET: u64 = 512;

/// How long pmacctd sleeps before it reads a file.
const PMACCTD_SLEEP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meter {
    Linerate,
    Softflowd,
    Pmacctd,
    Nfpcapd,
    Argus,
}

/// What metering the file cost.
struct Metered {
    seconds: f64,
    /// Seconds of CPU time; of pmacctd without the process that writes the file.
    cpu: f64,
    /// Bytes written.
    bytes: u64,
}

impl Meter {
    fn name(self) -> &'static str {
        match self {
            Self::Linerate => "linerate",
            Self::Softflowd => "softflowd",
            Self::Pmacctd => "pmacctd",
            Self::Nfpcapd => "nfpcapd",
            Self::Argus => "argus",
        }
    }

    fn role(self) -> Role {
        if self == Self::Linerate { Role::Ours } else { Role::Peer }
    }

    fn is_installed(self) -> bool {
        self == Self::Linerate || installed(self.name())
    }

    /// Meters `file` into `folder`, which is empty.
    fn start(self, pair: &Pair, file: &Path, folder: &Path) -> Result<Running> {
        let core = pair.cores.consumer;
        let path = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
        let (input, output) = (path(file)?, path(folder)?);
        let arguments = match self {
            Self::Linerate => format!("capture -r {input} --flows {output} --json --quiet"),
            Self::Softflowd => {
                format!("-d -r {input} -m {} -p {output}/pid -c none", 2 * FLOWS)
            }
            Self::Pmacctd => {
                let config = folder.join("pmacctd.conf");
                fs::write(&config, pmacctd_config(&input, &output))?;
                format!("-f {}", path(&config)?)
            }
            Self::Nfpcapd => format!("-r {input} -w {output} -e 300,60 -B 524288"),
            Self::Argus => format!("-X -r {input} -w {output}/argus"),
        };
        let mut command = match self {
            Self::Linerate => programs::linerate(&pair.receiver, core, words(&arguments))?,
            _ => {
                let mut command = pair.receiver.command_killed_with_parent(self.name());
                command.args(words(&arguments)).cpus([core]);
                command
            }
        };
        Running::start(self.name(), &mut command)
    }

    /// Fails unless it metered all packets. pmacctd and argus do not report how many they metered.
    fn verify(self, finished: &Finished, packets: u64) -> Result<()> {
        let said = match self {
            Self::Linerate => {
                let flows = &finished.json()?["flows"];
                let (exported, records) = (count(flows, "exported")?, count(flows, "records")?);
                ensure!(records == exported, "{records} records of {exported} flows");
                Some(count(flows, "packets")?)
            }
            Self::Softflowd => {
                number_after(&finished.stdout, &finished.stderr, "Packets processed:")
            }
            Self::Nfpcapd => number_after(&finished.stdout, &finished.stderr, "Processed:"),
            Self::Pmacctd | Self::Argus => None,
        };
        let silent = matches!(self, Self::Pmacctd | Self::Argus);
        ensure!(
            said == Some(packets) || (silent && said.is_none()),
            "{} metered {said:?} of {packets} packets",
            self.name()
        );
        Ok(())
    }
}

/// Aggregates by addresses, ports and protocol, as the other meters do.
fn pmacctd_config(input: &str, output: &str) -> String {
    let (entries, file) = (4 * FLOWS + 9, format!("{output}/pmacctd.csv"));
    format!(
        "daemonize: false\npcap_savefile: {input}\npidfile: {output}/pid\nplugins: print\n\
         aggregate: src_host, dst_host, src_port, dst_port, proto\nprint_output: csv\n\
         print_output_file: {file}\nprint_refresh_time: 3600\nprint_cache_entries: {entries}\n\
         plugin_pipe_size: 67108864\nplugin_buffer_size: 65536\n"
    )
}

/// The number after these words.
fn number_after(stdout: &str, stderr: &str, words: &str) -> Option<u64> {
    let after = |text: &str| {
        let (_, rest) = text.split_once(words)?;
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    after(stdout).or_else(|| after(stderr))
}

fn run(context: &mut Context) -> Result<()> {
    let packets: u64 = context.quick_or_full(1_000_000, 3_000_000);
    let mut meters = METERS.to_vec();
    meters.retain(|meter| {
        let here = meter.is_installed();
        if !here {
            context.notes.push(format!("skipped: {}: it is not installed", meter.name()));
        }
        here
    });
    let folder = memory_folder(packets * BYTES_A_PACKET)?;
    let file = folder.path().join("flows.pcap");
    if context.folder().is_some() {
        let bytes = record(&file, packets)?;
        context.notes.push(format!("The file has {packets} packets and {} MB.", bytes / 1_000_000));
    }
    let lines = meters.iter().map(|meter| (meter.name().to_owned(), meter.role())).collect();
    let samples = Samples::collect(context, lines, &[X], |context, line, _, repeat| {
        let meter = meters[line];
        let seconds = 1.0 + packets as f64 / if meter.role() == Role::Ours { 5e6 } else { 5e5 };
        let metered = context.try_measure(meter.name(), X, repeat, seconds, |pair| {
            measure(pair, meter, &file, packets)
        })?;
        if let Some(Metered { seconds, cpu, bytes }) = &metered {
            let cells = [
                ("seconds", format!("{seconds:.3}")),
                ("cpu_s", format!("{cpu:.3}")),
                ("packets_per_second", format!("{:.0}", packets as f64 / seconds)),
                ("bytes_written", bytes.to_string()),
            ];
            context.row("meters", (meter.name(), X, repeat), &cells)?;
        }
        Ok(metered)
    })?;
    context.charts.push(Chart::bars(
        "rate",
        "Packets of a file metered a second",
        "Longer is better. One core each.",
        Axis::linear("metered", "million packets a second"),
        samples.bars(X, |one| packets as f64 / one.seconds / 1e6),
    ));
    context.charts.push(Chart::bars(
        "cpu",
        "CPU time of a packet",
        "Shorter is better. For pmacctd without the process that writes its file.",
        Axis::linear("CPU time", "ns"),
        samples.bars(X, |one| one.cpu * 1e9 / packets as f64),
    ));
    let time = |one: &Metered| one.seconds;
    let peers = meters.iter().filter(|meter| meter.role() == Role::Peer).map(|meter| meter.name());
    let known = peers.map(|name| (samples.median((name, X), time), name));
    let fastest = known.filter(|(median, _)| median.is_finite()).min_by(|a, b| a.0.total_cmp(&b.0));
    let ours = Meter::Linerate.name();
    let ratio = fastest.and_then(|(_, name)| samples.ratio((name, X), (ours, X), time));
    let claim = "packets of a file metered a second over the fastest of softflowd, pmacctd, nfpcapd and argus";
    let claim = Claim::at_least(claim, ratio, 5.0, context.options.repeats);
    let against = fastest.map(|(_, name)| format!("; against {name}")).unwrap_or_default();
    context.claims.push(claim.adding(&against));
    Ok(())
}

/// Writes the file, and returns its size in bytes.
fn record(path: &Path, packets: u64) -> Result<u64> {
    const SIZES: [usize; 12] = [64, 64, 64, 64, 64, 64, 64, 590, 590, 590, 590, 1514];
    let mut recorder = Recorder::create(path)?;
    let mut random = Random::new(1);
    for number in 0..packets {
        let flow = random.below(FLOWS);
        let client = Ipv4Addr::from_bits(0x0a00_0001 + (flow / PORTS) as u32);
        let client = (client, 1024 + (flow % PORTS) as u16);
        let server = (Ipv4Addr::from_bits(0xc612_0000 + (flow % 4099) as u32), 443);
        let (from, to) = if random.below(2) == 0 { (client, server) } else { (server, client) };
        let size = SIZES[random.below(SIZES.len() as u64) as usize];
        let packet = Packet { from, to, tcp: !flow.is_multiple_of(4), size };
        recorder.write(1_700_000_000_000_000 + number * DURATION / packets, &packet)?;
    }
    recorder.finish()
}

/// Meters the file once.
fn measure(pair: &Pair, meter: Meter, file: &Path, packets: u64) -> Result<Metered> {
    let folder = file.parent().unwrap_or(file);
    let folder = tempfile::tempdir_in(folder).context("cannot make a folder for flow records")?;
    let start = Instant::now();
    let finished = meter.start(pair, file, folder.path())?.wait(Duration::from_secs(120))?;
    let mut seconds = start.elapsed();
    let finished = finished.success()?;
    if meter == Meter::Pmacctd {
        seconds = seconds.saturating_sub(PMACCTD_SLEEP);
    }
    meter.verify(&finished, packets)?;
    let bytes = size(folder.path())?;
    ensure!(meter == Meter::Softflowd || bytes > FLOWS, "{} wrote no records", meter.name());
    let cpu = finished.cpu.user + finished.cpu.system;
    Ok(Metered { seconds: seconds.as_secs_f64(), cpu, bytes })
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut all = 0;
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        all += if path.is_dir() { size(&path)? } else { path.symlink_metadata()?.len() };
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use linerate_pcapfile::Reader;
    use linerate_wire::flow::Key;

    use super::*;

    #[test]
    fn what_meters_say_is_read() {
        let softflowd = "Number of active flows: 0\nPackets processed: 1000\nFragments: 0\n";
        assert_eq!(number_after(softflowd, "", "Packets processed:"), Some(1000));
        let nfpcapd = "Startup nfpcapd.\nProcessed: 1000, skipped: 0, short caplen: 0\n";
        assert_eq!(number_after("", nfpcapd, "Processed:"), Some(1000));
        assert_eq!(number_after("", "Processed: many", "Processed:"), None);
    }

    #[test]
    fn the_file_has_flows_in_both_directions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.pcap");
        record(&path, 2000).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let (mut clients, mut packets, mut times) = (0, 0, Vec::new());
        while let Some(record) = reader.next().unwrap() {
            let key = Key::of(record.frame.head()).unwrap();
            clients += u32::from(key.destination_port == 443);
            packets += 1;
            times.push(record.frame.timestamp.unwrap().0);
        }
        assert!(packets == 2000 && (800..1200).contains(&clients), "{clients} of {packets}");
        assert!(times.is_sorted() && times[1999] - times[0] < 10_000_000_000);
    }
}
