//! `linerate capture` as a user runs it, on real interfaces, judged by other programs.

mod any;
mod compiling;
mod configuration;
mod ends;
mod files;
mod flows;
mod keeping;
mod limits;
mod loopback;
mod neighbours;
mod options;
mod pointers;
mod printing;
mod privileges;
mod processes;
mod queues;
mod reading;
mod rings;
mod selecting;
mod sharing;
mod sources;
mod stalls;
pub(crate) mod support;
mod trace;
mod words;
