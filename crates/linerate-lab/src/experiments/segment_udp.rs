//! `segment-udp`: UDP by CPU share, in super-packets, in fragments and in single datagrams (seed 004,
//! table 5.2.4).

use anyhow::Result;

use super::segment::{Path, Paths};
use super::{Context, Experiment};
use crate::model::{Axis, Chart, Role};
use crate::uplink::{LARGEST_PAYLOAD, Load, MTU_PAYLOAD, Way};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "segment-udp",
    title: "UDP by CPU share, with segmentation and without",
    about: "Datagrams from a guest through a host to a receiver, every one compared and counted, no \
            more than 256 KiB under way. CPU limits and hosts as in segment-tcp. Split datagrams have \
            1472 bytes of payload, 44 to a call (UDP_SEGMENT); single ones the same, one to a call; \
            large ones 65,507 bytes, in 45 IP fragments. Linux makes fragments before any device sees \
            the datagram (it hands no UFO super-packets out), so that no device can do it later.",
    run,
};

const SPLIT: Load = Load::Datagrams { payload: MTU_PAYLOAD, split: true };
const SINGLE: Load = Load::Datagrams { payload: MTU_PAYLOAD, split: false };
const LARGE: Load = Load::Datagrams { payload: LARGEST_PAYLOAD, split: false };

const UPLINK: Path = Path::new("uplink, USO", Role::Ours, Way::Uplink, SPLIT);
const NONE: Path = Path::new("none", Role::Limit, Way::Packets, SINGLE);
const BEFORE: Path = Path::new("no offload, USO", Role::Peer, Way::NoOffload, SPLIT);
const KERNEL: Path = Path::new("kernel GSO, USO", Role::Peer, Way::Kernel, SPLIT);
const KERNEL_NONE: Path = Path::new("kernel, none", Role::Limit, Way::Kernel, SINGLE);
const FRAGMENTS: Path = Path::new("uplink, fragments", Role::Ours, Way::Uplink, LARGE);
const KERNEL_FRAGMENTS: Path = Path::new("kernel, fragments", Role::Peer, Way::Kernel, LARGE);

fn run(context: &mut Context) -> Result<()> {
    let all = [UPLINK, NONE, BEFORE, KERNEL, KERNEL_NONE, FRAGMENTS, KERNEL_FRAGMENTS];
    let paths = Paths::run(context, &all)?;
    let x = || Some(Axis::linear("CPU of the sending side", "% of a core"));
    context.charts.extend([
        Chart {
            id: "throughput".into(),
            title: "Throughput of UDP".into(),
            caption: "Higher is better. none: packets of the MTU through the stack. no offload: the \
                      kernel splits before the uplink's device. fragments: the kernel makes them, in \
                      the sending call."
                .into(),
            x: x(),
            y: Axis::linear("throughput", "Gbit/s"),
            lines: paths.lines(|done| done.rate() / 1e9),
        },
        Chart {
            id: "gain".into(),
            title: "Gain of segmentation at equal CPU".into(),
            caption: "Higher is better; pair by pair. The seed's largest is 20%.".into(),
            x: x(),
            y: Axis::linear("gain", "%"),
            lines: paths.gains(&[
                (UPLINK.name, NONE.name),
                (KERNEL.name, KERNEL_NONE.name),
                (UPLINK.name, KERNEL.name),
                (FRAGMENTS.name, NONE.name),
            ]),
        },
        Chart {
            id: "receiver".into(),
            title: "Load of the receiving core".into(),
            caption: "Where it is full, the receiver is the limit, and not the way to it.".into(),
            x: x(),
            y: Axis::linear("busy", "%"),
            lines: paths.lines(|done| done.receiving_core * 100.0),
        },
    ]);
    let claim =
        "UDP throughput through the uplink at equal CPU, segmentation over none, best share";
    let repeats = context.options.repeats;
    context.claims.push(paths.claim(claim, UPLINK.name, NONE.name, 1.6, repeats));
    Ok(())
}
