//! Frame accounting per kind of traffic and round.

use crate::experiments::capture::measurement::Measurement;
use crate::peers::capture::PeerReport;

/// What one capture saw in one round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) sent: u64,
    pub(super) peer_report: PeerReport,
    pub(super) interface_dropped: u64,
    pub(super) in_file: u64,
}

impl Round {
    pub(super) fn new(measured: &Measurement, in_file: u64) -> Self {
        let interface_dropped = measured.interface_dropped;
        let peer_report = measured.peer_report.clone();
        Self { sent: measured.sent.frames, peer_report, interface_dropped, in_file }
    }

    /// Every frame is in the file or in a count.
    fn balances(&self) -> bool {
        self.peer_report.captured + self.peer_report.lost() + self.interface_dropped == self.sent
            && self.in_file == self.peer_report.captured
    }
}

/// All rounds of one capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    rounds: Vec<Round>,
}

impl Ledger {
    pub(super) fn of(round: Round) -> Self {
        Self { rounds: vec![round] }
    }

    pub(super) fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    /// Every frame of every round is in the file or in a count. One round that is not is one too many:
    /// no median speaks for it.
    pub(super) fn balances(&self) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(Round::balances)
    }

    /// The frames sent, of how many rounds.
    pub(super) fn sent(&self) -> String {
        let sent = self.sum(|round| round.sent);
        match self.rounds.len() {
            0 | 1 => sent.to_string(),
            rounds => format!("{sent} in {rounds} rounds"),
        }
    }

    /// What is in the files, and the outcome of the rest.
    pub(super) fn words(&self) -> String {
        let in_file = self.sum(|round| round.in_file);
        let lost = self.sum(|round| round.sent).saturating_sub(in_file);
        let wrong = self.rounds.iter().filter(|round| !round.balances()).count();
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
        let wrong = self.rounds.iter().enumerate().filter(|(_, round)| !round.balances());
        let words: Vec<String> = wrong
            .map(|(at, round)| {
                let Round { sent, peer_report, interface_dropped, in_file } = round;
                format!(
                    "round {}: {sent} sent, {in_file} in file, {} captured, {} dropped, {} dropped \
                     by interfaces",
                    at + 1,
                    peer_report.captured,
                    peer_report.lost(),
                    interface_dropped
                )
            })
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// The source that Linerate took, in parentheses; empty for others.
    pub(super) fn source(&self) -> String {
        match self.rounds.first().map(|round| round.peer_report.source.as_str()) {
            None | Some("") => String::new(),
            Some(source) => format!(" ({source})"),
        }
    }

    fn sum(&self, of: fn(&Round) -> u64) -> u64 {
        self.rounds.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(captured: u64, dropped: u64, in_file: u64) -> Round {
        let dropped = [("ring".to_owned(), dropped)].into();
        let peer_report = PeerReport { captured, dropped, ..PeerReport::default() };
        Round { sent: 100, peer_report, interface_dropped: 5, in_file }
    }

    #[test]
    fn one_round_that_does_not_come_out_is_enough_for_a_no() {
        let mut ledger = Ledger::of(round(90, 0, 90));
        assert!(!ledger.balances() && ledger.words().ends_with("NOT ACCOUNTED FOR"));
        for _ in 0..4 {
            ledger.add(round(90, 5, 90));
        }
        assert!(!ledger.balances(), "the last rounds say nothing of the first");
        assert_eq!(ledger.words(), "450 in file, NOT ACCOUNTED FOR in 1 of 5 rounds");
        assert_eq!(ledger.sent(), "500 in 5 rounds");
        let open = ledger.open().unwrap();
        assert!(open.starts_with("round 1: 100 sent, 90 in file"), "{open}");
    }

    #[test]
    fn counted_drops_are_told_and_hold() {
        let mut ledger = Ledger::of(round(95, 0, 95));
        assert_eq!(ledger.words(), "95 in file, 5 counted as dropped");
        ledger.add(round(80, 15, 80));
        assert!(ledger.balances() && ledger.open().is_none());
        ledger.add(round(80, 15, 79));
        assert!(!ledger.balances(), "a captured frame that is not in the file");
        assert!(!Ledger::default().balances(), "nothing was round");
    }
}
