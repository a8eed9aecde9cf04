//! `as_text!` serialises a value as the text that the command line accepts.

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
