//! A test that runs itself again in another process.

/// The arguments with which this test program, run once more, runs only the calling test, or the test `$name`
/// of its module. A variable of the environment tells that process which part it plays.
#[macro_export]
macro_rules! only_this_test {
    () => {
        $crate::run_single_test_args(module_path!(), $crate::test_name!())
    };
    ($name:expr) => {
        $crate::run_single_test_args(module_path!(), $name)
    };
}

/// As [`only_this_test!`](crate::only_this_test), for the test `name` of the module whose path, with the name
/// of the crate before it, is `module`.
pub fn run_single_test_args(module: &str, name: &str) -> [String; 4] {
    let path = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    ["--exact".into(), path, "--nocapture".into(), "--test-threads=1".into()]
}
