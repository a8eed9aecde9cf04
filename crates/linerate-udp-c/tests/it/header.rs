//! The committed header is what cbindgen makes of the sources.

#[test]
fn the_header_is_that_of_the_sources() {
    crate::building::hold_header("udp", std::convert::identity);
}
