//! The command as users run it: one module for each verb or subject.

mod capture;
mod forward;
mod forward_lab;
mod generate;
mod kernels;
mod lab;
mod receive;
mod receive_lab;
mod replay;
mod run;
mod segment;
mod segment_rate;
mod segment_uplink;
mod surface;
mod uplink;
