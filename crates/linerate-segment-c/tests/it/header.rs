//! The committed header is what cbindgen makes of the sources.

#[test]
fn the_header_is_that_of_the_sources() {
    let edit = |made: String| made.replace("linerate_policy_DEFAULT", "LINERATE_POLICY_DEFAULT");
    crate::building::hold_header("segment", edit);
}
