//! The committed header is what cbindgen makes of the sources.

#[path = "../../linerate-segment-c/tests/building/mod.rs"]
mod building;

#[test]
fn the_header_is_that_of_the_sources() {
    building::hold_header("udp", std::convert::identity);
}
