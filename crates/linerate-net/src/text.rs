//! Words in messages: singular and plural, and the names of variants.

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

/// Names that a line of a message has at most: an interface's has up to 15 characters.
pub const LISTED: usize = 8;

/// The names with commas between, or the first of them and how many others there are.
///
/// ```
/// use linerate_net::text::list;
/// assert_eq!(list(&["a", "b"]), "a, b");
/// assert_eq!(list(&["x"; 200]), "x, x, x, x, x, x, x, x and 192 others");
/// ```
pub fn list(names: &[impl AsRef<str>]) -> String {
    // One more takes as much room as its count.
    let shown = if names.len() <= LISTED + 1 { names.len() } else { LISTED };
    let text = names[..shown].iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len() - shown {
        0 => text,
        others => format!("{text} and {others} others"),
    }
}

/// Names the variants of an enum as options and reports do: `ALL`, `name`, `Display` and `FromStr`, whose error lists the
/// names. A name after `or` is in this list, and is parsed elsewhere.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Side {
///     Left,
///     Right,
/// }
/// linerate_net::named!(Side, "side" or "auto": Left = "left", Right = "right");
/// assert_eq!(("left".parse(), Side::Right.to_string().as_str()), (Ok(Side::Left), "right"));
/// let error = "up".parse::<Side>().unwrap_err();
/// assert_eq!(error, "unknown side `up`: choose one of auto, left, right");
/// ```
#[macro_export]
macro_rules! named {
    ($kind:ty, $what:literal $(or $other:literal)?: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name, as options and reports have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> std::result::Result<Self, String> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => {
                        let names = [$($other,)? $($name),+].join(", ");
                        Err(format!(concat!("unknown ", $what, " `{}`: choose one of {}"), text, names))
                    }
                }
            }
        }
    };
}

/// Defines an enum of reasons that are counted. Its numbers are indices of counters; each has a name, as [`named!`] gives
/// them, and an explanation in a line, which is its documentation, too.
#[macro_export]
macro_rules! reasons {
    ($(#[$outer:meta])* $kind:ident $what:literal: $($name:ident $text:literal $about:literal,)*) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $kind {
            $(#[doc = $about] $name,)*
        }

        $crate::named!($kind, $what: $($name = $text),*);

        impl $kind {
            /// A one-line explanation.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }
        }
    };
}
