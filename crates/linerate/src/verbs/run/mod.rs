//! `linerate run`: a program that uses libpcap, on Linerate's sources; with `--udp`, one that uses UDP sockets.
//!
//! The library of libpcap is preloaded, and found under libpcap's name by programs that use dlopen(3); the options reach
//! it through the environment. The system's libpcap is preloaded after it, for functions that it does not
//! have.

mod metrics;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_capture::libpcap;
use linerate_capture::statistics::handles;
use linerate_ring::Delivery;
use linerate_ring::region::Pages;
use rustix::process::{getgid, getuid};
use signal_hook::consts::SIGPIPE;

use crate::cli::metrics::Metrics;
use crate::cli::{as_usage_error, stdio, values};

/// A library that is preloaded: where `make install` puts it, below PREFIX, and what the build calls it.
struct Library {
    installed: &'static str,
    built: &'static str,
}

const PCAP: Library =
    Library { installed: "lib/linerate/libpcap.so.0.8", built: "liblinerate_pcap.so" };
const SOCKETS: Library =
    Library { installed: "lib/linerate/liblinerate-sockets.so", built: "liblinerate_sockets.so" };

const AFTER_HELP: &str = "\
Exit status: the program's; 126 if it cannot be run, 127 if it does not exist, 1 without the library.\n\
\n\
Examples:\n  \
  linerate run -- tcpdump -i eth0 -w all.pcap\n  \
  linerate run --take-over -- tcpdump -i eth1 -w all.pcap\n  \
  linerate run --source tee -- python3 sniff.py\n  \
  linerate run --udp -- iperf3 -s";

/// How an executable of the kernel's begins.
const ELF: &[u8] = b"\x7fELF";

/// Names the libpcap that serves the program, instead of its own or the system's.
const LIBPCAP: &str = "LINERATE_LIBPCAP";

/// Arguments of `linerate run`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Source of the packets: `auto` and `packet` see what libpcap sees, with a larger buffer; `tee` and
    /// `xdp` incoming frames, faster, and `xdp` takes them from the host; `libpcap` is libpcap alone. Where the
    /// source is unavailable, the program runs on the next best, and a line on standard error says why.
    #[arg(long, value_name = "SOURCE",
        value_parser = ["auto", "packet", "tee", "xdp", "libpcap"])]
    source: Option<String>,

    /// Let `auto` take the frames from the host: `xdp`, where that works.
    #[arg(long)]
    take_over: bool,

    /// How `--source xdp` delivers frames; see `linerate capture --help`.
    #[arg(long, value_name = "DELIVERY", value_parser = values::deliveries())]
    xdp_delivery: Option<Delivery>,

    /// Pages of the buffer of AF_XDP sockets: `auto`, `hugetlb`, `hugetlb-1g`, `thp` or `small`.
    #[arg(long, value_name = "PAGES", value_parser = values::pages())]
    pages: Option<Pages>,

    /// Buffer between kernel and program for each handle: in KiB, or with the suffix k, M or G in KiB, MiB or GiB
    /// (default: 64 MiB, or more if the program asks for more).
    #[arg(short = 'B', long, value_name = "KIB", value_parser = values::capture_buffer)]
    buffer_size: Option<u64>,

    /// Distribute the packets of an interface over up to N handles of the program, by flow, as programs with
    /// several capture threads expect; on packet sockets. Without it each handle sees all packets.
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,

    /// Distribute the packets of an interface over the handles of all programs that run with this number (0 to
    /// 65535), by flow, as workers in processes of their own expect; on packet sockets. It is the number of the
    /// fanout group: give each interface another one.
    #[arg(long, value_name = "ID", conflicts_with = "threads")]
    cluster: Option<u16>,

    /// Read the sources of the interfaces from this file, instead of /etc/linerate/pcap.toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Receive the UDP messages of the program in batches, in place of its libpcap: it enters the kernel once for up
    /// to 32 messages. Where it could tell, its sockets stay as they are; with LINERATE_LOG=1 lines on standard error
    /// say why.
    #[arg(long, conflicts_with_all = ["source", "take_over", "xdp_delivery", "pages", "buffer_size", "threads",
        "cluster", "config", "metrics"])]
    udp: bool,

    #[command(flatten)]
    metrics: Metrics,

    /// Serve the metrics of this process. `linerate run --metrics` starts itself with this option.
    #[arg(long, value_name = "PID", hide = true)]
    serve_metrics: Option<u32>,

    /// No message where another source than the requested one is used.
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Refuses an option in the place of the program.
pub(crate) fn check(arguments: &Arguments) -> Result<()> {
    let name = arguments.program.first().and_then(|name| name.to_str());
    if let Some(option) = name.filter(|name| name.starts_with('-')) {
        bail!(
            "run has no option {option}; options of the program come after its name, as in \
             `linerate run -- tcpdump -i eth0`"
        );
    }
    Ok(())
}

/// Becomes the program.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    check(arguments).map_err(as_usage_error)?;
    let (name, rest) = arguments.program.split_first().context("no program was named")?;
    if let Some(process) = arguments.serve_metrics {
        return metrics::serve(process, arguments);
    }
    let mut command = Command::new(name);
    command.args(rest);
    if arguments.udp {
        let library = SOCKETS.find()?;
        if let Some(reason) = loads_nothing(name) {
            if !arguments.quiet {
                let name = name.display();
                stdio::eprintln(format_args!(
                    "linerate: {name} {reason}: it runs without Linerate"
                ));
            }
            // Another C library's loader would refuse the library.
            return Ok(execute(command, name));
        }
        command.env("LD_PRELOAD", joined("LD_PRELOAD", vec![library])?);
        command.envs(arguments.variables());
        return Ok(execute(command, name));
    }
    let library = PCAP.find()?;
    let system = libpcap_of(name, arguments.quiet)?;
    let mut preload = vec![library.clone()];
    if let Some(system) = system {
        command.env(LIBPCAP, &system);
        preload.push(system);
    }
    command.env("LD_PRELOAD", joined("LD_PRELOAD", preload)?);
    if let Some(folder) = library.parent().filter(|folder| folder.join("libpcap.so.0.8").exists()) {
        command.env("LD_LIBRARY_PATH", joined("LD_LIBRARY_PATH", vec![folder.to_owned()])?);
    }
    command.envs(arguments.variables());
    if let Some(file) = &arguments.config {
        let file =
            file.canonicalize().with_context(|| format!("cannot find {}", file.display()))?;
        command.env("LINERATE_CONFIG", file);
    }
    let counters = metrics::start(arguments, name)?;
    if let Some(counters) = &counters {
        command.env(handles::COUNTERS_FD_VARIABLE, counters.as_raw_fd().to_string());
    }
    Ok(execute(command, name))
}

fn execute(mut command: Command, name: &OsStr) -> ExitCode {
    let error = command.exec();
    // It has set SIGPIPE back to what ends a program: the line below may lead nowhere.
    let _ = signal_hook::flag::register(SIGPIPE, Arc::default());
    stdio::eprintln(format_args!("linerate: cannot run {}: {error}", name.display()));
    ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

impl Arguments {
    /// The options, as the library reads them from the environment.
    fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        fn text(value: Option<impl ToString>) -> Option<String> {
            value.map(|value| value.to_string())
        }
        let given = [
            ("LINERATE_SOURCE", self.source.clone()),
            ("LINERATE_TAKE_OVER", text(self.take_over.then_some(1))),
            ("LINERATE_XDP_DELIVERY", text(self.xdp_delivery)),
            ("LINERATE_PAGES", text(self.pages)),
            ("LINERATE_BUFFER", text(self.buffer_size)),
            ("LINERATE_THREADS", text(self.threads)),
            ("LINERATE_CLUSTER", text(self.cluster)),
            ("LINERATE_QUIET", text(self.quiet.then_some(1))),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

/// The libpcap that serves the program: the one that the user names, else the program's own, else the system's.
fn libpcap_of(program: &OsStr, quiet: bool) -> Result<Option<PathBuf>> {
    if let Some(named) = env::var_os(LIBPCAP).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        let found = named.canonicalize();
        return found.map(Some).with_context(|| format!("{LIBPCAP}: {}", named.display()));
    }
    let system = libpcap::search_paths().find_map(|place| place.canonicalize().ok());
    let name = program.display();
    let listed = path_of(program).and_then(|path| Some((libraries(&path)?, path)));
    if let Some((libraries, path)) = &listed
        && !quiet
        && !libraries.contains(" (0x")
        && is_elf(path)
    {
        stdio::eprintln(format_args!(
            "linerate: {name} is linked statically, or for another C library: the loader gives it no libpcap of \
             Linerate's"
        ));
    }
    let own = listed.and_then(|(libraries, _)| own_libpcap(&libraries));
    let own = own.filter(|own| Some(own) != system.as_ref());
    if let Some(own) = own.as_ref().filter(|_| !quiet) {
        let own = own.display();
        stdio::eprintln(format_args!(
            "linerate: {name} has a libpcap of its own and gets it: {own}"
        ));
    }
    Ok(own.or(system))
}

/// The file that `exec` takes for the program.
fn path_of(program: &OsStr) -> Option<PathBuf> {
    match Path::new(program).components().count() {
        1 => env::split_paths(&env::var_os("PATH")?)
            .map(|folder| folder.join(program))
            .find(|path| path.is_file()),
        _ => Some(PathBuf::from(program)),
    }
}

/// What ldd(1) prints of a program: a line with an address for each library that the loader gives to it. Nothing for
/// scripts. `None` where there is no ldd.
fn libraries(path: &Path) -> Option<String> {
    let listed = Command::new("ldd").arg(path).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(listed.stdout).ok()
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; ELF.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == ELF
}

/// The libpcap among these libraries. None for programs that load it later.
fn own_libpcap(libraries: &str) -> Option<PathBuf> {
    let libraries = libraries.lines().filter(|line| line.trim_start().starts_with("libpcap.so"));
    let mut places = libraries.filter_map(|line| line.split_once("=> ")?.1.split(" (").next());
    Path::new(places.next()?).canonicalize().ok()
}

/// Why a preloaded library changes nothing for a program. `None` also where that cannot be known.
fn loads_nothing(program: &OsStr) -> Option<&'static str> {
    /// The name of the note that Go's linker puts in front of everything else.
    const GO: &[u8] = b"\x04\0\0\0Go\0\0";
    let path = path_of(program)?;
    let mut head = Vec::new();
    let file = File::open(&path).ok()?;
    file.take(8192).read_to_end(&mut head).ok()?;
    if !head.starts_with(ELF) {
        return None;
    }
    if head.windows(GO.len()).any(|bytes| bytes == GO) {
        return Some("is a Go program, which does not use the C library's sockets");
    }
    let file = path.metadata().ok()?;
    let other_user = file.mode() & 0o4000 != 0 && file.uid() != getuid().as_raw();
    let other_group = file.mode() & 0o2000 != 0 && file.gid() != getgid().as_raw();
    if other_user || other_group {
        return Some(
            "is setuid or setgid, and the loader preloads only what the system has for it",
        );
    }
    let is_dynamic = libraries(&path)?.contains(" (0x");
    (!is_dynamic).then_some("is linked statically, or for another C library")
}

impl Library {
    /// Beside this command as it was built, or below the folder that it was installed in.
    fn find(&self) -> Result<PathBuf> {
        let own = env::current_exe().context("cannot tell where this command is")?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let prefix = beside.parent().unwrap_or(Path::new("/"));
        let places = [prefix.join(self.installed), beside.join(self.built)];
        match places.iter().find(|place| place.is_file()) {
            Some(found) => Ok(found.clone()),
            None => bail!(
                "the library that `linerate run` preloads is neither {} nor {}: `make build` builds it, \
                 `make install` puts it in its place",
                places[0].display(),
                places[1].display()
            ),
        }
    }
}

/// A list of the loader's with `first` in front of what the variable has.
fn joined(variable: &str, first: Vec<PathBuf>) -> Result<OsString> {
    if let Some(path) = first.iter().find(|path| path.to_string_lossy().contains([':', ' '])) {
        bail!("the loader cannot read {} in {variable}: it has a colon or a space", path.display());
    }
    let rest = env::var_os(variable).filter(|value| !value.is_empty());
    let list = first.into_iter().map(PathBuf::into_os_string).chain(rest);
    Ok(list.collect::<Vec<_>>().join(std::ffi::OsStr::new(":")))
}
