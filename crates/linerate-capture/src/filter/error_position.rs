//! The position in an expression at which libpcap found an error. libpcap itself does not report it.

use std::time::{Duration, Instant};

/// Longest time to look for the position: names in the expression may ask a slow name server.
const MAX_SEARCH_TIME: Duration = Duration::from_millis(300);

/// Endings that complete a valid start of an expression.
const ENDINGS: [&str; 10] = [
    "",
    "tcp",
    "1",
    "1.2.3.4",
    "host 1.2.3.4",
    "0 = 1",
    "= 1",
    "1 = 1",
    "0:2",
    "00:00:5e:00:53:01",
];

/// Byte offset in `text` of what `message` complains about.
///
/// A message that quotes a word of the text means that word. A syntax error lies at the first word
/// after the longest start that some ending completes; `compiles` tries that.
pub(super) fn find(text: &str, message: &str, compiles: impl Fn(&str) -> bool) -> Option<usize> {
    let words: Vec<(usize, &str)> = words(text).collect();
    if !message.contains("syntax error") {
        return words
            .iter()
            .filter(|(_, word)| self::words(message).any(|(_, other)| other == *word))
            .max_by_key(|(_, word)| word.len())
            .map(|&(start, _)| start);
    }
    let started = Instant::now();
    for (start, _) in words.into_iter().rev() {
        let sound = &text[..start];
        for ending in ENDINGS {
            if started.elapsed() > MAX_SEARCH_TIME {
                return None;
            }
            if compiles(&format!("{sound} {ending}{}", closing(sound, ending))) {
                return Some(start);
            }
        }
    }
    None
}

/// The brackets that `sound` leaves open, closed, with a comparison after those of an accessor.
fn closing(sound: &str, ending: &str) -> String {
    let mut open = Vec::new();
    for letter in sound.chars() {
        match letter {
            '(' | '[' => open.push(letter),
            ')' | ']' => drop(open.pop()),
            _ => {}
        }
    }
    let mut closing = String::new();
    for bracket in open.into_iter().rev() {
        closing.push_str(if bracket == '(' { ")" } else { "]" });
        if bracket == '[' && !ending.contains('=') && !sound.contains('=') {
            closing.push_str(" = 1");
        }
    }
    closing
}

/// Words, numbers and signs with their byte offsets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let joined = |letter: char| letter.is_alphanumeric() || ".:-_/".contains(letter);
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].len() - text[at..].trim_start().len();
        let start = at;
        let first = text[start..].chars().next()?;
        at += if joined(first) {
            text[start..].find(|letter| !joined(letter)).unwrap_or(text.len() - start)
        } else {
            first.len_utf8()
        };
        Some((start, &text[start..at]))
    })
}
