use super::*;

#[test]
fn a_line_is_broken_below_its_text() {
    let of = |line: &str| wrapped_line(line, 24);
    assert_eq!(of("  note  one two three"), "  note  one two three");
    assert_eq!(of("  note  one two three four"), "  note  one two three\n        four");
    assert_eq!(of("run `a command with blanks` there"), "run `a command with\n    blanks` there");
    assert_eq!(of("now please run `ls -l /tmp` there"), "now please run\n    `ls -l /tmp` there");
    assert_eq!(of("a /very/long/path/with/no/blanks b"), "a /very/long/path/with/no/blanks\n    b");
    assert_eq!(of("  note  /a/path/of/19/bytes"), "  note\n    /a/path/of/19/bytes");
    assert_eq!(wrapped("a\n\nb ", 2), "a\n\nb ");
}

#[test]
fn each_line_in_the_journal_has_a_priority() {
    let of = |level, text: &str| lines(level, true, text);
    assert_eq!(of(Level::ERROR, "linerate: no such file"), "<3>no such file\n");
    assert_eq!(of(Level::WARN, "linerate: warning: one\ntwo"), "<4>one\n<4>two\n");
    assert_eq!(of(Level::INFO, "1 packet"), "<6>1 packet\n");
    assert_eq!(of(Level::DEBUG, "a \u{1b}"), "<7>a \\u{1b}\n");
    assert_eq!(lines(Level::WARN, false, "linerate: warning: one"), "linerate: warning: one\n");
}
