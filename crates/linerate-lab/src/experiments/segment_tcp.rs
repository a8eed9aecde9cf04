//! `segment-tcp`: one TCP stream by CPU share (seed 004, tables 5.2.1 and 5.2.2).

use anyhow::Result;

use super::segment::{Path, Paths};
use super::{Context, Experiment};
use crate::model::{Axis, Chart, Role};
use crate::uplink::{Load, Way};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "segment-tcp",
    title: "One TCP stream by CPU share, with segmentation and without",
    about: "One TCP stream from a guest through a host to a receiver, every byte compared. The sending \
            side (the program, the uplink and the thread that receives acknowledgements) shares a \
            control group with a CPU limit on one core; the receiver has the other core, GRO on. The \
            wire's sending end has no hardware that segments. Checksum offload: the wire's ends leave \
            checksums to each other.",
    run,
};

const fn path(name: &'static str, role: Role, way: Way) -> Path {
    Path::new(name, role, way, Load::Stream)
}

const UPLINK: Path = path("uplink", Role::Ours, Way::Uplink);
const NONE: Path = path("none", Role::Limit, Way::Packets);
const BEFORE: Path = path("no offload", Role::Peer, Way::NoOffload);
const KERNEL: Path = path("kernel GSO", Role::Peer, Way::Kernel);
const KERNEL_NONE: Path = path("kernel, none", Role::Limit, Way::KernelPackets);
const UPLINK_LEFT: Path = UPLINK.leaving_checksums("uplink, checksum offload");
const NONE_LEFT: Path = NONE.leaving_checksums("none, checksum offload");
const KERNEL_LEFT: Path = KERNEL.leaving_checksums("kernel GSO, checksum offload");

fn run(context: &mut Context) -> Result<()> {
    let all = [UPLINK, NONE, BEFORE, KERNEL, KERNEL_NONE, UPLINK_LEFT, NONE_LEFT, KERNEL_LEFT];
    let paths = Paths::run(context, &all)?;
    let x = || Some(Axis::linear("CPU of the sending side", "% of a core"));
    context.charts.extend([
        Chart {
            id: "throughput".into(),
            title: "Throughput of one TCP stream".into(),
            caption: "Higher is better. none: packets of the MTU through the stack. no offload: the \
                      kernel splits before the uplink's device. kernel GSO: the kernel forwards, and \
                      splits at the interface."
                .into(),
            x: x(),
            y: Axis::linear("throughput", "Gbit/s"),
            lines: paths.lines(|done| done.rate() / 1e9),
        },
        Chart {
            id: "gain".into(),
            title: "Gain of segmentation at equal CPU".into(),
            caption: "Higher is better; pair by pair. The seed's largest is 93%.".into(),
            x: x(),
            y: Axis::linear("gain", "%"),
            lines: paths.gains(&[
                (UPLINK.name, NONE.name),
                (UPLINK_LEFT.name, NONE_LEFT.name),
                (KERNEL.name, KERNEL_NONE.name),
                (UPLINK.name, KERNEL.name),
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
        "TCP throughput through the uplink at equal CPU, segmentation over none, best share";
    let repeats = context.options.repeats;
    context.claims.push(paths.claim(claim, UPLINK.name, NONE.name, 2.5, repeats));
    Ok(())
}
