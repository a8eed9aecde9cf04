//! Which measurements of an experiment are made.

/// Patterns for the names of measurements, `LINE at X` (`xdp at 64`), with `*` for any text and `?`
/// for any character. None admits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection(Vec<String>);

impl Selection {
    pub(crate) fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }

    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn words(&self) -> String {
        self.0.join(", ")
    }
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|from| matches(rest, &name[from..])),
        (Some((b'?', rest)), Some((_, tail))) => matches(rest, tail),
        (Some((wanted, rest)), Some((found, tail))) => wanted == found && matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        let only =
            |patterns: &[&str]| Selection::new(patterns.iter().map(|p| (*p).into()).collect());
        for (pattern, admitted, refused) in [
            ("* at 64", "xdp, discarding at 64", "xdp at 640"),
            ("xdp at *", "xdp at 1500", "xdp sockets, huge pages at 64"),
            ("tcpdump* at 64", "tcpdump, 128 MiB at 64", "dumpcap at 64"),
            ("xdp at 6?", "xdp at 64", "xdp at 6"),
            ("tcpdump at 64", "tcpdump at 64", "tcpdump at 64 "),
        ] {
            assert!(only(&[pattern]).matches(admitted), "{pattern} for {admitted}");
            assert!(!only(&[pattern]).matches(refused), "{pattern} for {refused}");
        }
        assert!(only(&["a", "xdp*"]).matches("xdp at 64"));
        assert!(Selection::default().matches("anything") && Selection::default().is_all());
    }
}
