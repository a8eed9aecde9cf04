//! `receive-matrix`: the table of Nicholas Orlowsky, "Modifications to Linux Kernel Networking Stack" (2024).

use anyhow::Result;

use super::messages::{Load, MAX_LIVE_MESSAGE, ReceiveOutcome};
use super::readers::{candidates, lines, once};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::report::summary::{Axis, Chart, Claim};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-matrix",
    title: "Time for a fixed count of messages, by size and by messages a call",
    about: "The table of Orlowsky 2024: a fixed count of messages, every byte of each checked, by message size and by \
            how many of them a call may take at most. recvmmsg is its \"regular kernel\". The \
            generator goes at a rate that the slowest reader bears without loss, so that all get the same \
            messages; the time is the CPU time of the reader, which is what its change of the kernel saves. \
            Messages of 8192 bytes, a tenth as many at a tenth of the rate, come from a socket, in frames \
            of an MTU of 9000, which are longer than AF_XDP's chunks: where xdp goes through sockets it leaves \
            them to the stack. \
            Batches of more than 2 GiB are left out.",
    run,
};

const SIZES: [&[u32]; 4] = [&[64], &[256], &[1024], &[8192]];
/// Bytes of the largest batch.
const MAX_BATCH_BYTES: u64 = 2 << 30;

fn run(context: &mut Context) -> Result<()> {
    let all = candidates(context, false);
    let batches: &[u64] =
        context.quick_or_full(&[64, 1000], &[1, 8, 64, 1000, 10_000, 100_000, 1_000_000]);
    let many: u64 = context.quick_or_full(200_000, 1_000_000);
    let (mut wrong, mut runs) = (0, 0);
    for sizes in context.quick_or_full(&[SIZES[0], SIZES[3]][..], &SIZES[..]) {
        let size = sizes[0];
        let tenth = if size > MAX_LIVE_MESSAGE { 10 } else { 1 };
        let (messages, rate) = (many / tenth, Some(200_000 / tenth));
        let batches: Vec<u64> = batches
            .iter()
            .copied()
            .filter(|batch| batch * u64::from(size) <= MAX_BATCH_BYTES)
            .collect();
        let xs: Vec<f64> = batches.iter().map(|&batch| batch as f64).collect();
        let samples = Samples::collect(context, lines(&all), &xs, |context, at, place, repeat| {
            let (batch, message_size) = (batches[place].to_string(), size.to_string());
            let more = ["--batch", &batch, "--message-size", &message_size, "--check", "sequence"];
            let load = Load { sizes, messages, rate, flows: 1, stamp: "sequence" };
            let seen = once(context, &all[at], xs[place], repeat, &load, &more)?;
            // All of them, each right, none twice: the same for every backend.
            if let Some(seen) = seen.as_ref().filter(|seen| is_complete(seen)) {
                let check = &seen.report["check"];
                let of = |key: &str| check[key].as_u64().unwrap_or(0);
                wrong += seen.sent.frames.abs_diff(of("good")) + of("missing") + of("wrong");
                runs += 1;
            }
            Ok(seen)
        })?;
        context.charts.push(Chart::lines(
            format!("size-{size}"),
            format!("CPU time for {messages} messages of {size} bytes"),
            "Lower is better.",
            Axis::logarithmic("messages a call, at most", ""),
            Axis::linear("CPU time", "s"),
            samples.lines(|one| if is_complete(one) { one.cpu } else { f64::NAN }),
        ));
    }
    let claim = "messages that differ between backends, of those that all received";
    context.claims.push(if runs == 0 {
        Claim::open(claim, "no run counted", "0")
    } else {
        Claim::new(claim, format!("{wrong} ({runs} runs of {many}, or a tenth)"), "0", wrong == 0)
    });
    Ok(())
}

/// Whether a run counts, and no message was lost in it.
fn is_complete(one: &ReceiveOutcome) -> bool {
    one.void.is_none() && one.lost == 0
}
