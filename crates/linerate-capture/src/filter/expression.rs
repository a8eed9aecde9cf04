//! [`Expression`]: `host in @FILE` and `net in @FILE` in an expression, for which libpcap has no words.

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use linerate_bpf::filter::{AddressSet, placeholders};

use crate::{Error, Result};

/// A condition that each frame fulfils.
const ANYTHING: &str = "(greater 0)";

/// What begins the name of a file.
const FILE: char = '@';

/// An expression, with the addresses of the files that it names.
pub(super) struct Expression<'t> {
    text: &'t str,
    look_ups: Vec<LookUp<'t>>,
    pub(super) sets: Vec<Arc<AddressSet>>,
}

/// One look-up.
struct LookUp<'t> {
    /// Its place in the text.
    range: Range<usize>,
    /// What is before `host` or `net`: `src`, `ip6 dst`.
    qualifiers: &'t str,
    protocol: Option<&'t str>,
    /// The number of the set.
    set: usize,
}

impl LookUp<'_> {
    fn placeholders(&self, variant: usize) -> String {
        let Self { qualifiers, protocol, set, .. } = self;
        let (v4, v6) = placeholders(*set, variant);
        match protocol {
            Some("ip6") => format!("({qualifiers}host {v6})"),
            Some(_) => format!("({qualifiers}host {v4})"),
            None => format!("({qualifiers}host {v4} or {qualifiers}host {v6})"),
        }
    }
}

impl<'t> Expression<'t> {
    /// # Errors
    ///
    /// [`Error::Filter`] for a file that cannot be read, or whose lines are no addresses, and for one in another place.
    pub(super) fn read(text: &'t str) -> Result<Self> {
        let words: Vec<Range<usize>> = words(text);
        let word = |number: usize| words.get(number).map_or("", |range| &text[range.clone()]);
        let mut files: Vec<(bool, &str)> = Vec::new();
        let mut sets = Vec::new();
        let mut look_ups = Vec::new();
        for number in 0..words.len() {
            let Some(file) = word(number).strip_prefix(FILE) else { continue };
            let place = words[number].start;
            let kind = number.checked_sub(2).filter(|_| word(number - 1) == "in");
            let Some(kind) = kind.filter(|&kind| matches!(word(kind), "host" | "net")) else {
                let message =
                    "a file stands for hosts or networks: `host in @FILE`, `net in @FILE`";
                return Err(Error::filter(text, message.to_owned(), Some(place)));
            };
            let networks = word(kind) == "net";
            let known = files.iter().position(|&known| known == (networks, file));
            let set = match known {
                Some(set) => set,
                None => {
                    let set = members(Path::new(file), networks)
                        .map_err(|message| Error::filter(text, message, Some(place)))?;
                    files.push((networks, file));
                    sets.push(Arc::new(set));
                    sets.len() - 1
                }
            };
            let before = |by: usize| kind.checked_sub(by).map_or("", word);
            let is_direction = |word: &str| matches!(word, "src" | "dst");
            let directions = match is_direction(before(1)) {
                true if is_direction(before(3)) && matches!(before(2), "or" | "and") => 3,
                is_one => usize::from(is_one),
            };
            let protocol = before(directions + 1);
            let protocol =
                Some(protocol).filter(|word| matches!(*word, "ip" | "ip6" | "arp" | "rarp"));
            let first = kind - directions - usize::from(protocol.is_some());
            look_ups.push(LookUp {
                range: words[first].start..words[number].end,
                qualifiers: &text[words[first].start..words[kind].start],
                protocol,
                set,
            });
        }
        Ok(Self { text, look_ups, sets })
    }

    /// The expression with placeholders for the addresses of the files, in one of two variants.
    pub(super) fn with_placeholders(&self, variant: usize) -> String {
        self.with(|_, look_up| look_up.placeholders(variant))
    }

    /// The position in the expression for one in [`Expression::with_placeholders`].
    pub(super) fn position(&self, variant: usize, mut position: usize) -> usize {
        for look_up in &self.look_ups {
            let Range { start, end } = look_up.range;
            let length = look_up.placeholders(variant).len();
            if position < start {
                break;
            }
            if position < start + length {
                return start;
            }
            position = position - length + (end - start);
        }
        position
    }

    /// What accepts each frame that the expression may accept, whatever is in the files: the other conditions of one that
    /// only `and` combines. Each of them must hold, and a load of theirs beyond the frame rejects it here as there. `None`
    /// with `or` and `not`: a condition may accept before such a load, and `vlan` moves what follows it in any copy.
    pub(super) fn without_look_ups(&self) -> Option<String> {
        let rest = self.with(|_, _| ANYTHING.to_owned());
        // A look-up is as unknown as its opposite.
        let rest = rest.replace(&format!("not {ANYTHING}"), ANYTHING);
        let alternates =
            |word: Range<usize>| matches!(&rest[word], "or" | "|" | "||" | "not" | "!");
        (!words(&rest).into_iter().any(alternates)).then(|| rest.clone())
    }

    fn with(&self, instead: impl Fn(usize, &LookUp<'t>) -> String) -> String {
        let mut text = String::new();
        let mut end = 0;
        for (number, look_up) in self.look_ups.iter().enumerate() {
            text += &self.text[end..look_up.range.start];
            text += &instead(number, look_up);
            end = look_up.range.end;
        }
        text + &self.text[end..]
    }
}

/// The words of an expression, and its other signs. The name of a file ends at a blank or a parenthesis.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut grows = false;
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        let in_file =
            grows && words.last().is_some_and(|word| text[word.start..].starts_with(FILE));
        let is_sign = "()".contains(letter) || !in_file && "!&|[]".contains(letter);
        match words.last_mut() {
            _ if letter.is_whitespace() => grows = false,
            Some(last) if grows && !is_sign => last.end = end,
            _ => {
                words.push(at..end);
                grows = !is_sign;
            }
        }
    }
    words
}

/// The set of a file: an address or a network a line, and comments from `#` on.
fn members(path: &Path, networks: bool) -> std::result::Result<AddressSet, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text); // a byte order mark
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then_some((number, line))
    });
    let members = lines.map(|(number, line)| {
        member(line, networks)
            .map_err(|why| format!("line {} of {}: `{line}` {why}", number + 1, path.display()))
    });
    Ok(AddressSet::new(networks, members.collect::<std::result::Result<Vec<_>, _>>()?))
}

fn member(text: &str, networks: bool) -> std::result::Result<(IpAddr, u8), &'static str> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) if networks => (address, Some(length)),
        Some(_) => return Err("is a network; `net in` looks networks up"),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| "is no IP address")?;
    let (bits, all) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let length = length.map_or(Ok(all), str::parse).ok().filter(|length| *length <= all);
    let length = length.ok_or("has no such prefix length")?;
    match bits.checked_shl(length.into()) {
        None | Some(0) => Ok((address, length)),
        Some(_) => Err("has bits after its prefix length"),
    }
}

#[cfg(test)]
mod tests;
