//! Singular and plural in messages.

/// A count with its noun, in the plural unless the count is 1.
///
/// ```
/// use linerate_net::text::plural;
/// assert_eq!([plural(1, "queue"), plural(2, "queue")], ["1 queue", "2 queues"]);
/// ```
pub fn plural(count: u64, name: &str) -> String {
    format!("{count} {}", noun(count, name))
}

/// The noun alone, for a count that is formatted elsewhere.
pub fn noun(count: u64, name: &str) -> String {
    format!("{name}{}", if count == 1 { "" } else { "s" })
}
