//! What became of the frames of one kind of traffic, round by round.

use crate::measure::Measured;
use crate::peer::Tally;

/// What one capture saw in one round.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) sent: u64,
    pub(super) tally: Tally,
    pub(super) interface_dropped: u64,
    pub(super) in_file: u64,
}

impl Seen {
    pub(super) fn new(measured: &Measured, in_file: u64) -> Self {
        let interface_dropped = measured.interface_dropped;
        let tally = measured.tally.clone();
        Self { sent: measured.sent.frames, tally, interface_dropped, in_file }
    }

    /// Every frame is in the file or in a count.
    fn balances(&self) -> bool {
        self.tally.captured + self.tally.lost() + self.interface_dropped == self.sent
            && self.in_file == self.tally.captured
    }
}

/// All rounds of one capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    rounds: Vec<Seen>,
}

impl Account {
    pub(super) fn of(seen: Seen) -> Self {
        Self { rounds: vec![seen] }
    }

    pub(super) fn add(&mut self, seen: Seen) {
        self.rounds.push(seen);
    }

    /// Every frame of every round is in the file or in a count. One round that is not is one too many:
    /// no median speaks for it.
    pub(super) fn balances(&self) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(Seen::balances)
    }

    /// The frames sent, of how many rounds.
    pub(super) fn sent(&self) -> String {
        let sent = self.sum(|seen| seen.sent);
        match self.rounds.len() {
            0 | 1 => sent.to_string(),
            rounds => format!("{sent} in {rounds} rounds"),
        }
    }

    /// What is in the files, and what became of the rest.
    pub(super) fn words(&self) -> String {
        let in_file = self.sum(|seen| seen.in_file);
        let lost = self.sum(|seen| seen.sent).saturating_sub(in_file);
        let wrong = self.rounds.iter().filter(|seen| !seen.balances()).count();
        let verdict = match (wrong, lost, self.rounds.len()) {
            (0, 0, _) => "all of them".to_owned(),
            (0, lost, _) => format!("{lost} counted as dropped"),
            (_, _, 1) => "NOT ACCOUNTED FOR".to_owned(),
            (wrong, _, rounds) => format!("NOT ACCOUNTED FOR in {wrong} of {rounds} rounds"),
        };
        format!("{in_file} in file, {verdict}")
    }

    /// The rounds that do not come out, with all their counts; `None` where all do.
    pub(super) fn open(&self) -> Option<String> {
        let wrong = self.rounds.iter().enumerate().filter(|(_, seen)| !seen.balances());
        let words: Vec<String> = wrong
            .map(|(at, seen)| {
                let Seen { sent, tally, interface_dropped, in_file } = seen;
                format!(
                    "round {}: {sent} sent, {in_file} in file, {} captured, {} dropped, {} dropped \
                     by interfaces",
                    at + 1,
                    tally.captured,
                    tally.lost(),
                    interface_dropped
                )
            })
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// The source that Linerate took, in parentheses; empty for others.
    pub(super) fn source(&self) -> String {
        match self.rounds.first().map(|seen| seen.tally.source.as_str()) {
            None | Some("") => String::new(),
            Some(source) => format!(" ({source})"),
        }
    }

    fn sum(&self, of: fn(&Seen) -> u64) -> u64 {
        self.rounds.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(captured: u64, dropped: u64, in_file: u64) -> Seen {
        let dropped = [("ring".to_owned(), dropped)].into();
        let tally = Tally { captured, dropped, ..Tally::default() };
        Seen { sent: 100, tally, interface_dropped: 5, in_file }
    }

    #[test]
    fn one_round_that_does_not_come_out_is_enough_for_a_no() {
        let mut account = Account::of(seen(90, 0, 90));
        assert!(!account.balances() && account.words().ends_with("NOT ACCOUNTED FOR"));
        for _ in 0..4 {
            account.add(seen(90, 5, 90));
        }
        assert!(!account.balances(), "the last rounds say nothing of the first");
        assert_eq!(account.words(), "450 in file, NOT ACCOUNTED FOR in 1 of 5 rounds");
        assert_eq!(account.sent(), "500 in 5 rounds");
        let open = account.open().unwrap();
        assert!(open.starts_with("round 1: 100 sent, 90 in file"), "{open}");
    }

    #[test]
    fn counted_drops_are_told_and_hold() {
        let mut account = Account::of(seen(95, 0, 95));
        assert_eq!(account.words(), "95 in file, 5 counted as dropped");
        account.add(seen(80, 15, 80));
        assert!(account.balances() && account.open().is_none());
        account.add(seen(80, 15, 79));
        assert!(!account.balances(), "a captured frame that is not in the file");
        assert!(!Account::default().balances(), "nothing was seen");
    }
}
