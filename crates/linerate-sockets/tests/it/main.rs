//! Programs run with and without the library, and must print the same.

mod cases;
mod programs;
