//! Experiments, runs, charts and the report.
#![forbid(unsafe_code)]
