//! `linerate extcap`: Linerate's sources as interfaces of Wireshark and tshark.
//!
//! Wireshark runs every program in its extcap folder and asks for interfaces, link types and options by the
//! arguments of its documentation ("Extcap: Developer Reference", Wireshark Developer's Guide, chapter 8). The
//! capture itself is that of `linerate capture`, written to the FIFO as pcapng.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Parser};
use linerate_capture::filter::{ETHERNET, Filter};
use linerate_capture::interface::{self, ANY};
use linerate_capture::link_type;
use linerate_net::link;

use super::capture;
use crate::cli::{as_usage_error, stdio};

/// Arguments of `linerate extcap`: those of Wireshark's extcap interface, and the options that Wireshark shows.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// List the interfaces.
    #[arg(long)]
    extcap_interfaces: bool,

    /// Version of the Wireshark that asks.
    #[arg(long, value_name = "VERSION")]
    extcap_version: Option<String>,

    /// The interface that is asked about, or captured on.
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,

    /// List the link types of the interface.
    #[arg(long, requires = "extcap_interface")]
    extcap_dlts: bool,

    /// List the options of the interface.
    #[arg(long, requires = "extcap_interface")]
    extcap_config: bool,

    /// The capture filter. Without --capture it is only checked: what is wrong goes to standard output.
    #[arg(long, value_name = "EXPRESSION", requires = "extcap_interface", num_args = 0..=1,
        default_missing_value = "", allow_hyphen_values = true)]
    extcap_capture_filter: Option<String>,

    /// Capture into --fifo.
    #[arg(long, requires_all = ["extcap_interface", "fifo"])]
    capture: bool,

    /// Where the packets go, as pcapng.
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    without_effect: WithoutEffect,
}

/// What Wireshark may pass to any extcap program, and what has no effect here: no option has values to load again or is
/// changed while the capture runs, and no log is written.
#[derive(Debug, Args)]
struct WithoutEffect {
    #[arg(long, hide = true, value_name = "OPTION")]
    extcap_reload_option: Option<String>,
    #[arg(long, hide = true, value_name = "FILE")]
    extcap_control_in: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "FILE")]
    extcap_control_out: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "LEVEL")]
    log_level: Option<String>,
    #[arg(long, hide = true, value_name = "FILE")]
    log_file: Option<PathBuf>,
    #[arg(long, hide = true, num_args = 0..=1)]
    debug: Option<Option<String>>,
    #[arg(long, hide = true, value_name = "FILE")]
    debug_file: Option<PathBuf>,
}

/// The options of a capture, with the names that `linerate capture` has for them.
#[derive(Debug, Args)]
struct Options {
    /// Source of the packets, as `linerate capture --source`.
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Let `auto` take the frames from the host: `xdp`, where that works.
    #[arg(long)]
    take_over: bool,
    /// Where `--source trace` looks at frames.
    #[arg(long, value_name = "POINT")]
    trace_at: Option<String>,
    /// Capture incoming packets, outgoing ones, or both.
    #[arg(long, value_name = "in|out|inout")]
    direction: Option<String>,
    /// Keep at most this many bytes of each packet.
    #[arg(long, value_name = "BYTES")]
    snapshot_length: Option<String>,
    /// Buffer between kernel and program, in KiB, or with the suffix k, M or G.
    #[arg(long, value_name = "KIB")]
    buffer_size: Option<String>,
    /// Do not put the interface into promiscuous mode.
    #[arg(long)]
    no_promiscuous_mode: bool,
    /// Split super-packets into the frames that the wire carries.
    #[arg(long)]
    split: bool,
    /// Find the processes that send and receive each packet.
    #[arg(long)]
    process_info: bool,
}

const AFTER_HELP: &str = "\
Wireshark calls this verb. `make install` puts a script for it below PREFIX/lib/linerate/extcap; a link to the \
script in Wireshark's extcap folder (tshark -G folders names it) makes the interfaces appear.\n\
\n\
Exit status: 0 on success, 1 on failure, 2 for a wrong command line.\n\
\n\
Examples:\n  \
linerate extcap --extcap-interfaces\n  \
tshark -i linerate-eth1 -c 10";

/// The name, for Wireshark, of an interface of this host is this with the host's name for it.
const PREFIX: &str = "linerate-";
/// The name, for Wireshark, of the packets that the kernel drops. No interface of the host can have it.
const DROPS: &str = "linerate_drops";

/// What an interface is a capture of.
enum Target {
    /// An interface of the host, or all.
    Interface(String),
    /// The packets that the kernel drops.
    Drops,
}

impl Target {
    fn parse(name: &str) -> Result<Self> {
        match name.strip_prefix(PREFIX) {
            _ if name == DROPS => Ok(Self::Drops),
            Some(interface) if !interface.is_empty() => Ok(Self::Interface(interface.to_owned())),
            _ => bail!(
                "there is no interface '{name}' here: --extcap-interfaces lists {PREFIX}NAME and {DROPS}"
            ),
        }
    }
}

/// Refuses arguments that ask for nothing.
pub(crate) fn check(arguments: &Arguments) -> Result<()> {
    let Arguments { extcap_dlts, extcap_config, extcap_capture_filter, capture, .. } = arguments;
    if arguments.extcap_interfaces {
        return Ok(());
    }
    if arguments.extcap_interface.is_none() {
        bail!(
            "Wireshark's arguments are missing: --extcap-interfaces, or --extcap-interface NAME with \
             --extcap-dlts, --extcap-config or --capture"
        );
    }
    if !(*extcap_dlts || *extcap_config || *capture || extcap_capture_filter.is_some()) {
        bail!(
            "what about the interface: --extcap-dlts, --extcap-config, --extcap-capture-filter or --capture?"
        );
    }
    Ok(())
}

/// Answers one question of Wireshark, or captures.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    check(arguments).map_err(as_usage_error)?;
    if arguments.extcap_interfaces {
        return list_interfaces().map(|()| ExitCode::SUCCESS);
    }
    let target = Target::parse(arguments.extcap_interface.as_deref().unwrap_or_default())?;
    if arguments.capture {
        return capture(arguments, &target);
    }
    if arguments.extcap_dlts {
        list_link_types(&target)?;
    } else if arguments.extcap_config {
        list_options(&target)?;
    } else if let Some(filter) = &arguments.extcap_capture_filter {
        // Wireshark colours its filter field by whether there is an answer.
        if let Err(error) = check_filter(&target, filter) {
            stdio::println(error)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether Wireshark can read a name: braces end its fields.
fn is_expressible(name: &str) -> bool {
    !name.contains(['{', '}']) && !name.contains(char::is_control)
}

fn list_interfaces() -> Result<()> {
    stdio::println(format_args!(
        "extcap {{version={}}}{{display=Linerate}}",
        env!("CARGO_PKG_VERSION")
    ))?;
    let mut known = vec![ANY.to_owned()];
    known.extend(
        link::all()?.into_iter().filter(|one| interface::linktype(one).is_ok()).map(|one| one.name),
    );
    for name in known {
        if !is_expressible(&name) {
            stdio::warn(format_args!(
                "Wireshark cannot be told the name of interface {name:?}: it has a brace or a \
                 control character"
            ));
            continue;
        }
        let display = match name.as_str() {
            ANY => "Linerate: all interfaces".to_owned(),
            name => format!("Linerate: {name}"),
        };
        stdio::println(format_args!("interface {{value={PREFIX}{name}}}{{display={display}}}"))?;
    }
    stdio::println(format_args!(
        "interface {{value={DROPS}}}{{display=Linerate: packets that the kernel drops}}"
    ))?;
    Ok(())
}

/// The number of the link type of what is captured.
fn link_type_of(target: &Target) -> Result<u16> {
    match target {
        Target::Interface(name) if name != ANY => {
            Ok(interface::linktype(&interface::by_name(name)?)?)
        }
        _ => Ok(ETHERNET),
    }
}

fn check_filter(target: &Target, text: &str) -> Result<()> {
    let (link_type, snaplen) = (link_type_of(target)?, u32::from(u16::MAX));
    if let Target::Interface(name) = target
        && name != ANY
    {
        match Filter::compile_live(name, text, link_type, snaplen) {
            // Without the privilege to open the interface, or while it is down, the words that only sockets know
            // (`inbound`) are refused here; the rest is judged as well.
            Err(
                linerate_capture::Error::FilterInterface { .. }
                | linerate_capture::Error::Ring(linerate_ring::Error::InterfaceDown(_)),
            ) => {}
            judged => return judged.map(drop).map_err(Into::into),
        }
    }
    Filter::compile(text, link_type, snaplen, true)?;
    Ok(())
}

/// Link types by libpcap's numbers and names (pcap-linktype(7)).
fn list_link_types(target: &Target) -> Result<()> {
    let number = link_type_of(target)?;
    let (name, display) = link_type::name(number);
    stdio::println(format_args!("dlt {{number={number}}}{{name={name}}}{{display={display}}}"))
}

/// One option as Wireshark draws it; a selector with its values, of which the first is the default.
struct Control {
    option: &'static str,
    display: &'static str,
    tooltip: &'static str,
    kind: &'static str,
    values: &'static [(&'static str, &'static str)],
}

const SOURCE: Control = Control {
    option: "source",
    display: "Source",
    tooltip: "Where frames are taken from. Only xdp takes them away from the host",
    kind: "selector",
    values: &[
        ("auto", "auto: the best that leaves the host its traffic"),
        ("packet", "packet: a packet socket, both directions"),
        ("tee", "tee: copies of incoming frames at the driver"),
        ("xdp", "xdp: takes incoming frames at the driver"),
        ("trace", "trace: the frames of the XDP program that is attached"),
    ],
};
const TAKE_OVER: Control = Control {
    option: "take-over",
    display: "auto may take the frames from the host (xdp)",
    tooltip: "The host does not get the frames that the capture takes",
    kind: "boolflag",
    values: &[],
};
const TRACE_AT: Control = Control {
    option: "trace-at",
    display: "trace shows frames",
    tooltip: "As they came to the XDP program, as they left it, or both",
    kind: "selector",
    values: &[
        ("both", "as they came and as they left"),
        ("entry", "as they came"),
        ("exit", "as they left, with the verdict"),
    ],
};
const DIRECTION: Control = Control {
    option: "direction",
    display: "Direction",
    tooltip: "Outgoing packets are seen by packet sockets only",
    kind: "selector",
    values: &[("inout", "both"), ("in", "incoming"), ("out", "outgoing")],
};
const SPLIT: Control = Control {
    option: "split",
    display: "Split super-packets into the frames of the wire",
    tooltip: "For packet sockets: undoes TSO, USO and GRO, with all checksums",
    kind: "boolflag",
    values: &[],
};
const NO_PROMISCUOUS_MODE: Control = Control {
    option: "no-promiscuous-mode",
    display: "Leave promiscuous mode off",
    tooltip: "Only frames for this host, multicasts and broadcasts",
    kind: "boolflag",
    values: &[],
};
const PROCESS_INFO: Control = Control {
    option: "process-info",
    display: "Find the processes of packets",
    tooltip: "Process, container, pod and unit, in the comment of each packet",
    kind: "boolflag",
    values: &[],
};
const SNAPSHOT_LENGTH: Control = Control {
    option: "snapshot-length",
    display: "Bytes of each packet",
    tooltip: "Longer packets are cut; empty for all",
    kind: "unsigned",
    values: &[],
};
const BUFFER_SIZE: Control = Control {
    option: "buffer-size",
    display: "Buffer in KiB",
    tooltip: "Between kernel and program; empty for the default, 64 MiB or more",
    kind: "unsigned",
    values: &[],
};

fn list_options(target: &Target) -> Result<()> {
    let controls: &[Control] = match target {
        Target::Interface(name) if name == ANY => {
            &[DIRECTION, SPLIT, PROCESS_INFO, SNAPSHOT_LENGTH, BUFFER_SIZE]
        }
        Target::Interface(_) => &[
            SOURCE,
            TAKE_OVER,
            TRACE_AT,
            DIRECTION,
            SPLIT,
            PROCESS_INFO,
            NO_PROMISCUOUS_MODE,
            SNAPSHOT_LENGTH,
            BUFFER_SIZE,
        ],
        Target::Drops => &[PROCESS_INFO, SNAPSHOT_LENGTH, BUFFER_SIZE],
    };
    for (number, control) in controls.iter().enumerate() {
        let Control { option, display, tooltip, kind, values } = control;
        stdio::println(format_args!(
            "arg {{number={number}}}{{call=--{option}}}{{display={display}}}{{tooltip={tooltip}}}{{type={kind}}}"
        ))?;
        for (index, (value, display)) in values.iter().enumerate() {
            let default = if index == 0 { "true" } else { "false" };
            stdio::println(format_args!(
                "value {{arg={number}}}{{value={value}}}{{display={display}}}{{default={default}}}"
            ))?;
        }
    }
    Ok(())
}

/// Captures as `linerate capture` with the same options does.
fn capture(arguments: &Arguments, target: &Target) -> Result<ExitCode> {
    #[derive(Debug, Parser)]
    #[command(name = "linerate extcap --capture", no_binary_name = true)]
    struct Command {
        #[command(flatten)]
        arguments: capture::Arguments,
    }
    let options = &arguments.options;
    // Values stand in one word with their option: none can be taken for another option.
    let mut words = vec!["--quiet".to_owned(), "--format=pcapng".to_owned()];
    match target {
        Target::Interface(name) => words.push(format!("--interface={name}")),
        Target::Drops => words.push("--source=drops".to_owned()),
    }
    for (option, value) in [
        ("source", &options.source),
        ("trace-at", &options.trace_at),
        ("direction", &options.direction),
        ("snapshot-length", &options.snapshot_length),
        ("buffer-size", &options.buffer_size),
    ] {
        let value = value.as_ref().filter(|value| !value.is_empty());
        words.extend(value.map(|value| format!("--{option}={value}")));
    }
    for (option, is_set) in [
        ("take-over", options.take_over),
        ("no-promiscuous-mode", options.no_promiscuous_mode),
        ("split", options.split),
        ("process-info", options.process_info),
    ] {
        words.extend(is_set.then(|| format!("--{option}")));
    }
    words.push("--".to_owned());
    words.extend(arguments.extcap_capture_filter.clone().filter(|filter| !filter.is_empty()));
    let mut command = match Command::try_parse_from(words) {
        Ok(command) => command.arguments,
        Err(error) => {
            let _ = error.print();
            release(arguments.fifo.as_deref());
            return Ok(ExitCode::from(2));
        }
    };
    linerate_pcapfile::allow_foreign_pipes();
    command.write.clone_from(&arguments.fifo);
    // Wireshark shows what a capture prints as an error. The counts are in the file's statistics block, the warnings in
    // the comment of the interface.
    command.final_report = false;
    let status = crate::cli::exit_status(capture::run(command, 0));
    release(arguments.fifo.as_deref());
    Ok(status)
}

/// Opens and closes the FIFO. dumpcap waits in it for the first bytes, and would wait for ever where the capture could
/// not start. Where it has ended already, nobody reads any more, and the open fails.
fn release(fifo: Option<&Path>) {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(fifo) = fifo {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let _ = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(fifo);
    }
}
