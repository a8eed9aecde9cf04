//! `segment-tcp`: one TCP stream by CPU share, as in Stefano Garzarella, "Ottimizzazione del network stack di
//! FreeBSD per reti ad alta velocità" (2013), tables 5.2.1 and 5.2.2.

use anyhow::Result;

use super::throughput::{self, Description, Path};
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::Role;
use crate::topology::uplink::{EgressPath, Workload};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "segment-tcp",
    title: "One TCP stream by CPU share, with segmentation and without",
    about: "One TCP stream from a guest through a host to a receiver, every byte compared. The sending \
            side (the program, the uplink and the thread that receives acknowledgements) shares a \
            control group with a CPU limit on one core; the receiver has the other core, GRO on. The \
            wire's sending end has no hardware that segments. Checksum offload: the wire's ends leave \
            checksums to each other.",
    run,
};

const fn path(name: &'static str, role: Role, egress: EgressPath) -> Path {
    Path::new(name, role, egress, Workload::Stream)
}

const UPLINK: Path = path("uplink", Role::Ours, EgressPath::Uplink);
const NONE: Path = path("none", Role::Limit, EgressPath::Packets);
const NO_OFFLOAD: Path = path("no offload", Role::Peer, EgressPath::NoOffload);
const KERNEL: Path = path("kernel GSO", Role::Peer, EgressPath::Kernel);
const KERNEL_NONE: Path = path("kernel, none", Role::Limit, EgressPath::KernelPackets);
const UPLINK_LEFT: Path = UPLINK.leaving_checksums("uplink, checksum offload");
const NONE_LEFT: Path = NONE.leaving_checksums("none, checksum offload");
const KERNEL_LEFT: Path = KERNEL.leaving_checksums("kernel GSO, checksum offload");

fn run(context: &mut Context) -> Result<()> {
    let plan = Description {
        of: "one TCP stream",
        lines: "kernel GSO: the kernel forwards, and splits at the interface.",
        published: "93%",
        paths: &[
            UPLINK,
            NONE,
            NO_OFFLOAD,
            KERNEL,
            KERNEL_NONE,
            UPLINK_LEFT,
            NONE_LEFT,
            KERNEL_LEFT,
        ],
        gains: &[(UPLINK, NONE), (UPLINK_LEFT, NONE_LEFT), (KERNEL, KERNEL_NONE), (UPLINK, KERNEL)],
        claim: "TCP throughput through the uplink at equal CPU, segmentation over none, best share",
        bound: 2.5,
    };
    throughput::run(context, &plan)
}
