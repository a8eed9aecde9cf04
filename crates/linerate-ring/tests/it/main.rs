//! Rings, sockets and tees, with the kernel on the other side.

mod cards;
mod counting;
mod drops;
mod packet;
mod packet_counts;
mod packet_fanout;
mod packet_support;
mod packet_transmit;
mod packet_virtio;
mod queues;
mod receiver;
mod region;
mod tee;
mod trace;
mod tun;
mod vlan;
mod xdp;
mod xdp_counts;
mod xdp_filter;
mod xdp_support;
