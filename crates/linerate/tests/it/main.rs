//! The command as users run it: one module for each verb or subject.

mod blocks;
mod capture;
mod closed_output;
mod consent;
mod costs;
mod dashboards;
mod doctor;
mod documents;
mod extcap;
mod flow_records;
mod forward;
mod generate;
mod hostile;
mod install;
mod json;
mod kernels;
mod lab;
mod messages;
mod metrics;
mod receive;
mod receive_consent;
mod replay;
mod run;
mod segment;
mod service_manager;
mod surface;
mod terminal;
mod unit;
mod uplink;
mod web;
mod wrong;

/// The command that is tested.
const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");
