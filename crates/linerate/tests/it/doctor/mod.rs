//! `linerate doctor`: real faults, made one by one.

mod faults;
mod fixes;
mod support;
mod surface;
