//! Coalescing against frames that another hand wrote, rule by rule, and as the inverse of splitting.

pub(crate) mod build;
mod properties;
mod rules;
