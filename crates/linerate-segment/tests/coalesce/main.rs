//! Coalescing against frames that another hand wrote, rule by rule, and as the inverse of splitting.

mod build;
mod properties;
mod rules;
