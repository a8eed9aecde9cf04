//! One module per verb.

pub(crate) mod capture;
pub(crate) mod completion;
pub(crate) mod doctor;
pub(crate) mod extcap;
pub(crate) mod flows;
pub(crate) mod forward;
pub(crate) mod generate;
pub mod lab;
pub(crate) mod manual;
pub(crate) mod receive;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod segment;
pub(crate) mod send;
pub(crate) mod uplink;
