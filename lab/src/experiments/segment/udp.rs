//! `segment-udp`: UDP by CPU share, in super-packets, in fragments and in single datagrams, as in table
//! 5.2.4 of Garzarella 2013.

use anyhow::Result;

use super::throughput::{self, Description, Path};
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::Role;
use crate::topology::uplink::{EgressPath, LARGEST_PAYLOAD, MTU_PAYLOAD, Workload};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "segment-udp",
    title: "UDP by CPU share, with segmentation and without",
    about: "Datagrams from a guest through a host to a receiver, every one compared and counted, no \
            more than 256 KiB under way. CPU limits and hosts as in segment-tcp. Split datagrams have \
            1472 bytes of payload, 44 to a call (UDP_SEGMENT); single ones the same, one to a call; \
            large ones 65,507 bytes, in 45 IP fragments. Linux makes fragments before any device sees \
            the datagram (it hands no UFO super-packets out), so that no device can do it later.",
    run,
};

const SPLIT: Workload = Workload::Datagrams { payload: MTU_PAYLOAD, split: true };
const SINGLE: Workload = Workload::Datagrams { payload: MTU_PAYLOAD, split: false };
const LARGE: Workload = Workload::Datagrams { payload: LARGEST_PAYLOAD, split: false };

const UPLINK: Path = Path::new("uplink, USO", Role::Ours, EgressPath::Uplink, SPLIT);
const NONE: Path = Path::new("none", Role::Limit, EgressPath::Packets, SINGLE);
const NO_OFFLOAD: Path = Path::new("no offload, USO", Role::Peer, EgressPath::NoOffload, SPLIT);
const KERNEL: Path = Path::new("kernel GSO, USO", Role::Peer, EgressPath::Kernel, SPLIT);
const KERNEL_NONE: Path = Path::new("kernel, none", Role::Limit, EgressPath::Kernel, SINGLE);
const FRAGMENTS: Path = Path::new("uplink, fragments", Role::Ours, EgressPath::Uplink, LARGE);
const KERNEL_FRAGMENTS: Path =
    Path::new("kernel, fragments", Role::Peer, EgressPath::Kernel, LARGE);

fn run(context: &mut Context) -> Result<()> {
    let plan = Description {
        of: "UDP",
        lines: "fragments: the kernel makes them, in the sending call.",
        published: "20%",
        paths: &[UPLINK, NONE, NO_OFFLOAD, KERNEL, KERNEL_NONE, FRAGMENTS, KERNEL_FRAGMENTS],
        gains: &[(UPLINK, NONE), (KERNEL, KERNEL_NONE), (UPLINK, KERNEL), (FRAGMENTS, NONE)],
        claim: "UDP throughput through the uplink at equal CPU, segmentation over none, best share",
        bound: 1.6,
    };
    throughput::run(context, &plan)
}
