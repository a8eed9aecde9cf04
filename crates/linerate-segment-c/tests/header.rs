//! The committed header is what cbindgen makes of the sources.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(here, config).unwrap().write(&mut made);
    // Words of Rust that C has others for.
    let made = String::from_utf8(made)
        .unwrap()
        .replace("// # Safety\n", "// The caller sees to it that:\n")
        .replace("linerate_policy_DEFAULT", "LINERATE_POLICY_DEFAULT");
    let path = here.join("include/linerate/segment.h");
    if std::env::var_os("LINERATE_WRITE_HEADER").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "{} is not that of the sources; run this test with LINERATE_WRITE_HEADER=1",
        path.display()
    );
}
