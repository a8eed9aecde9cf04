//! `linerate segment`: super-packets of capture files into frames, and back.

mod arguments;
mod live;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use linerate_capture::host;
use linerate_capture::split::{
    self, JoinOptions, Operation, Progress, Rewrite, SplitOptions, TunnelPorts,
};
use linerate_pcapfile::{BlockReader, Error, Format, Writer, refuse_terminal, same_file};

pub(crate) use arguments::Arguments;
use arguments::Joined;

use super::capture::{FileFormat, compression, extension, uncompressed};
use crate::cli::json::{self, Schema};
use crate::cli::signals::Signals;
use crate::cli::stdio::plural;
use crate::cli::{self, as_usage_error, stdio};

/// Refuses options that contradict each other by their values.
pub(crate) fn check(arguments: &Arguments) -> Result<()> {
    if arguments.json && arguments.write.as_os_str() == "-" {
        bail!("--json and -w - both want standard output; write into a file, or leave out --json");
    }
    Ok(())
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    check(arguments).map_err(as_usage_error)?;
    refuse_terminal(&arguments.write)?;
    let (input, output) = (arguments.input.as_path(), arguments.write.as_path());
    if same_file(input, output) {
        return Err(Error::IsInput { path: output.to_owned() }.into());
    }
    let signals = Signals::register()?;
    let input_file = match BlockReader::open_until(input, &signals.stop()) {
        Err(Error::Cancelled { .. }) => return Ok(ExitCode::SUCCESS),
        opened => opened?,
    };
    let was_pcapng = input_file.format() == Format::Pcapng;
    let pcapng = is_pcapng(arguments, output, was_pcapng);
    if was_pcapng && !pcapng && !arguments.quiet {
        stdio::warn(
            "a pcap file has no room for comments, packet options, names and interface \
             descriptions: they are left out",
        );
    }
    let expression = arguments.expression.join(" ");
    // Before a file is made, or emptied.
    let mut filters = split::filters(Some(&expression), signals.stop());
    filters.check(None)?;
    let output = Writer::create(output, compression(arguments.compress, output), &signals.stop())?;
    let rewrite = Rewrite {
        input: input_file,
        output,
        pcapng,
        operation: operation(arguments),
        ports: TunnelPorts {
            vxlan: arguments.vxlan_port,
            geneve: arguments.geneve_port,
            gtp: arguments.gtp_port,
            gue: arguments.gue_port,
        },
        filters,
        fix_checksums: arguments.fix_checksums,
        section: host::section_header(concat!("linerate ", env!("CARGO_PKG_VERSION"))),
    };
    let progress = Progress::of(&rewrite);
    let run = || split::rewrite(rewrite, &signals.stop(), &progress);
    let outcome = live::accompany(&progress, &signals, arguments.quiet, run);
    let report = &outcome.report;
    if let Some(error) = &outcome.failure {
        cli::eprint_message(error);
    }
    if !arguments.quiet {
        stdio::eprintln(summary(report));
    }
    if report.unwritten > 0 && !report.pipe_closed {
        stdio::eprintln(format_args!(
            "{} could not be written",
            plural(report.unwritten, "packet")
        ));
    }
    if arguments.json {
        json::print(Schema::Segment, report)?;
    }
    Ok(if outcome.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn operation(arguments: &Arguments) -> Operation {
    let checksums = arguments.checksums;
    match arguments.coalesce {
        Some(joined) => Operation::Join(JoinOptions {
            tcp: joined != Joined::Udp,
            udp: joined != Joined::Tcp,
            hold: arguments.hold * 1000,
            checksums,
        }),
        None => Operation::Split(SplitOptions {
            mtu: arguments.mtu,
            mss: arguments.mss,
            uso: arguments.uso,
            fragment: arguments.fragment,
            checksums,
            ip_id: arguments.ip_id,
            max_burst: arguments.max_burst.unwrap_or(u32::MAX),
        }),
    }
}

/// Whether the output is pcapng.
fn is_pcapng(arguments: &Arguments, path: &Path, input: bool) -> bool {
    match arguments.format {
        Some(format) => format == FileFormat::Pcapng,
        None => match extension(&uncompressed(path)) {
            "pcap" => false,
            "pcapng" => true,
            _ => input,
        },
    }
}

fn summary(report: &split::Report) -> String {
    let mut text = format!("{} read, {} written\n", plural(report.read, "packet"), report.written);
    match &report.joined {
        None => text += &report.split.to_string(),
        Some(joined) => {
            text += &joined.to_string();
            if report.split.checksums > 0 {
                text += &format!("\n{} filled in", plural(report.split.checksums, "checksum"));
            }
        }
    }
    text
}
