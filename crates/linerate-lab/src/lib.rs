//! Experiments, runs, charts and the report.
//!
//! An experiment lays two hosts in network namespaces, drives traffic from one to the other with
//! the `linerate` command itself, captures it with Linerate and with its peers as their users do,
//! and checks of every single run that each frame sent was received or counted as dropped. What it
//! measured goes into a folder of raw CSV and one JSON summary ([`store`]); the report
//! ([`report`]) is drawn from the summaries alone.
#![deny(unsafe_code)]

pub mod bench;
pub mod cgroup;
pub mod connections;
pub mod consumer;
pub mod counters;
pub mod datagrams;
pub mod demo;
pub mod experiments;
pub mod facts;
pub mod interrupt;
pub mod kernel;
pub mod load;
pub mod measure;
pub mod messages;
pub mod model;
pub mod napi;
pub mod owner;
pub mod pages;
pub mod pcap_loop;
pub mod peer;
pub mod process;
pub mod programs;
pub mod progress;
pub mod redirect;
pub mod report;
pub mod road;
pub mod sink;
pub mod splitter;
pub mod statistics;
pub mod store;
pub mod stream;
pub mod traffic;
pub mod uplink;
