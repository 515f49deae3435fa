//! [`Fields`]: named values, to print or to serialize.

use std::fmt;
use std::io::{self, Write};

use serde::{Serialize, Serializer};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// Printed as decimal.
    Number(u64),
    /// Printed as hexadecimal.
    Bits(u64),
    Text(String),
    List(Vec<String>),
    Unknown,
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

macro_rules! numbers {
    ($($integer:ty)*) => {
        $(impl From<$integer> for Value {
            fn from(number: $integer) -> Self {
                Self::Number(number.into())
            }
        })*
    };
}

numbers!(u8 u16 u32 u64);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bits(bits) => write!(f, "{bits:#x}"),
            Self::Text(text) => f.write_str(text),
            Self::List(list) if list.is_empty() => f.write_str("none"),
            Self::List(list) => f.write_str(&list.join(", ")),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Named values in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Adds a value.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// Adds a value if it is known.
    pub(crate) fn with_known(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// A line for each.
    pub(crate) fn print(&self, indent: &str, out: &mut dyn Write) -> io::Result<()> {
        self.0.iter().try_for_each(|(name, value)| writeln!(out, "{indent}{:32} {value}", format!("{name}:")))
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_what_is_not_known_is_null() {
        let list = Value::List(vec!["a".into(), "b".into()]);
        let fields = Fields::default().with("z", 1_u8).with("bits", Value::Bits(16)).with("list", list);
        let fields = fields.with("index", None::<u32>).with_known("nothing", None::<u32>);
        let json = serde_json::to_string(&fields).unwrap();
        assert_eq!(json, r#"{"z":1,"bits":16,"list":["a","b"],"index":null}"#);
        let mut text = Vec::new();
        fields.print("  ", &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines,
            [vec!["z:", "1"], vec!["bits:", "0x10"], vec!["list:", "a,", "b"], vec!["index:", "unknown"]]
        );
    }
}
