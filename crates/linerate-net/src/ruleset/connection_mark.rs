//! [`ConnectionMarks`]: whether rules may give a connection another mark with each packet.

/// How rules read and write what a connection keeps for them: its mark and its labels.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionMarks {
    /// A rule looks at the mark.
    pub is_read: bool,
    pub written: Vec<Written>,
    pub reads_labels: bool,
    pub writes_labels: bool,
}

/// A rule that writes the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Only where it is this.
    pub guard: Option<u32>,
    /// What it is then. None: it depends.
    pub value: Option<u32>,
}

impl ConnectionMarks {
    /// The rules are not proven to have done all after the first packet: one of them may write another mark where one has
    /// written.
    pub(super) fn step(&self) -> bool {
        let follows = |first: &Written, next: &Written| {
            let is_admitted = match (next.guard, first.value) {
                (Some(guard), Some(value)) => guard == value,
                _ => true,
            };
            is_admitted && (first.value.is_none() || first.value != next.value)
        };
        let steps = |first| self.written.iter().any(|next| follows(first, next));
        self.reads_labels && self.writes_labels || self.is_read && self.written.iter().any(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(written: &[(Option<u32>, Option<u32>)]) -> bool {
        let written = written.iter().map(|(guard, value)| Written { guard: *guard, value: *value });
        ConnectionMarks { is_read: true, written: written.collect(), ..Default::default() }.step()
    }

    #[test]
    fn marks_step_where_a_rule_follows_another() {
        assert!(!steps(&[]));
        assert!(!steps(&[(None, Some(1))]));
        assert!(!steps(&[(Some(0), Some(1)), (Some(0), Some(2))]));
        assert!(!steps(&[(Some(0), Some(1)), (Some(2), Some(1))]));
        assert!(steps(&[(Some(0), Some(1)), (Some(1), Some(2))]));
        assert!(steps(&[(Some(0), Some(1)), (Some(1), Some(0))]));
        assert!(steps(&[(None, Some(1)), (None, Some(2))]));
        assert!(steps(&[(Some(0), None)]));
        let unread = ConnectionMarks {
            is_read: false,
            written: vec![Written::default()],
            ..Default::default()
        };
        assert!(!unread.step());
    }
}
