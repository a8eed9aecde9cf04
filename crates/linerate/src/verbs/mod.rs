//! One module per verb.

pub(crate) mod completion;
pub(crate) mod manual;
