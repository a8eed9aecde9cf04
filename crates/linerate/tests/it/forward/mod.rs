//! `linerate forward` as a user runs it, on a router made of namespaces; real programs talk through it.

mod beside;
mod bridges;
mod configuration;
mod control;
mod datapath;
mod devices;
mod ends;
mod flows;
mod interfaces;
mod lifetimes;
mod neighbours;
mod others;
mod rules;
mod service;
mod size;
mod statistics;
pub(crate) mod support;
