//! The library, as programs meet it.

mod calls;
mod cluster;
mod cycles;
mod header;
mod life;
mod privileges;
mod programs;
mod support;
mod suricata;
