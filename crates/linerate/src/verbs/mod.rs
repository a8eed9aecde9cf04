//! One module per verb.

pub(crate) mod completion;
pub(crate) mod generate;
pub(crate) mod manual;
pub(crate) mod replay;
