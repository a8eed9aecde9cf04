//! `skeleton!`: what the build has generated for an object of programs, as a module.

/// The module `skeleton` of the generated file of this name.
macro_rules! skeleton {
    ($file:literal) => {
        #[allow(
            clippy::all,
            clippy::pedantic,
            clippy::undocumented_unsafe_blocks,
            dead_code,
            missing_docs,
            non_camel_case_types,
            non_snake_case,
            unreachable_pub,
            unsafe_code,
            unused
        )]
        mod skeleton {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    };
}

pub(crate) use skeleton;
