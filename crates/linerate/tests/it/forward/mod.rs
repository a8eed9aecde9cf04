//! `linerate forward` as a user runs it, on a router made of namespaces; real programs talk through it.

mod bridges;
mod configuration;
mod control;
mod statistics;
mod ends;
mod interfaces;
mod service;
mod support;
