//! `linerate lab`: experiments, charts and the report.
//!
//! An experiment builds hosts in network namespaces (`topology`), drives traffic from one to the other
//! with the `linerate` command (`traffic`), receives it with Linerate and with its rivals as their users
//! do (`peers`), and checks of every run that each frame sent was received or counted as dropped. The
//! results go into a folder of raw CSV and one JSON summary; the page of `report` is drawn from the
//! summaries alone.
//!
//! `linerate lab` starts this as a program of its own, so that the command that users install carries none
//! of it.
#![deny(unsafe_code)]
// The steps of an experiment are one story.
#![allow(clippy::too_many_lines)]

pub mod baseline;
mod command;
mod demo;
mod experiments;
mod helpers;
mod interrupt;
pub mod measure;
mod mounts;
mod peers;
mod programs;
mod progress;
mod report;
mod topology;
mod traffic;

pub use command::run;
