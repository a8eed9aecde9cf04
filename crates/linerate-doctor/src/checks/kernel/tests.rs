use super::*;
use crate::finding::Severity;

#[test]
fn lockdown_is_read_as_the_kernel_writes_it() {
    let of = |text: &str| lockdown_of(Some(text.to_owned()), true).severity;
    assert_eq!(of("none integrity [confidentiality]"), Severity::Warning);
    assert_eq!(of("none [integrity] confidentiality"), Severity::Ok);
    assert_eq!(lockdown_of(None, true).severity, Severity::Ok);
    assert_eq!(lockdown_of(None, false).severity, Severity::Unknown);
}

#[test]
fn tracing_that_fails_is_a_warning_only_with_the_privilege_for_it() {
    let refused = || Err("cannot trace: not supported".to_owned());
    assert_eq!(tracing_of(Ok(()), true).severity, Severity::Ok);
    assert_eq!(tracing_of(refused(), false).severity, Severity::Unknown);
    let answer = tracing_of(refused(), true);
    assert_eq!(answer.severity, Severity::Warning);
    assert!(answer.what.contains("not supported"), "{answer:?}");
    let remedy = answer.remedy.command().unwrap_or_default();
    assert!(remedy.contains("CONFIG_DEBUG_INFO_BTF"), "{answer:?}");
    let denied = tracing_of(Err(format!("cannot trace: {}", Errno::PERM)), true);
    let remedy = denied.remedy.command().unwrap_or_default();
    assert!(remedy.contains("security module"), "{denied:?}");
}

#[test]
fn a_slow_clock_and_an_interpreter_are_warnings() {
    assert_eq!(clock_of(Some("hpet")).severity, Severity::Warning);
    assert_eq!(clock_of(Some("tsc")).severity, Severity::Ok);
    assert_eq!(clock_of(None).severity, Severity::Unknown);
    assert_eq!(jit_of(Some("0"), Some("0")).severity, Severity::Warning);
    assert_eq!(jit_of(Some("1"), Some("2")).severity, Severity::Warning);
    assert_eq!(jit_of(Some("1"), Some("1")).severity, Severity::Ok);
    assert_eq!(jit_of(None, None).severity, Severity::Unknown);
}
