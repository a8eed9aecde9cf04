//! Names in texts. `named!` defines an enum with names, and `counters!` one of causes that the programs count, with
//! names and explanations. `as_text!`: serialises a value as the text that the command line accepts.

/// An enum whose values have names in texts, by which they are written and parsed.
macro_rules! named {
    ($(#[$outer:meta])* $kind:ident: $($(#[$inner:meta])* $name:ident $text:literal,)*) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $kind {
            $($(#[$inner])* $name,)*
        }

        impl $kind {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in texts.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|one| one.name() == text).copied();
                found.ok_or_else(|| {
                    format!("{text:?} is none of {}", [$($text,)*].join(", "))
                })
            }
        }
    };
}

pub(crate) use named;

/// The same for causes, whose numbers are indices of counters. Each has a one-line explanation.
macro_rules! counters {
    ($(#[$outer:meta])* $kind:ident: $($name:ident $text:literal $about:literal,)*) => {
        crate::named::named! {
            $(#[$outer])*
            #[repr(u32)]
            $kind:
            $(#[doc = $about] $name $text,)*
        }

        impl $kind {
            /// A one-line explanation.
            pub fn description(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }

            /// Names and explanations, in the order of the counters.
            pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
                Self::ALL.iter().map(|one| (one.name(), one.description()))
            }
        }
    };
}

pub(crate) use counters;

/// Serializes a type by `Display`, and parses it by `FromStr`, whose error is a sentence.
macro_rules! as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use as_text;

/// The names of the constants of `enumeration` in a C header that begin with `prefix`, as words.
#[cfg(test)]
pub(crate) fn constants(header: &str, enumeration: &str, prefix: &str) -> Vec<String> {
    let (_, list) = header.split_once(&format!("enum {enumeration} {{")).expect("the enum");
    let (list, _) = list.split_once("};").expect("its end");
    list.lines()
        .filter_map(|line| line.trim().strip_prefix(prefix)?.split(',').next())
        .map(|name| name.to_lowercase().replace('_', "-"))
        .collect()
}
