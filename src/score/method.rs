//! The three choices that make up a scoring method, and their names in files and requests.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A name that is none of the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {found:?}; use one of {}", allowed.join(", "))]
pub struct UnknownWord {
    /// What was being named.
    pub kind: &'static str,
    /// The name given.
    pub found: String,
    /// The names there are.
    pub allowed: &'static [&'static str],
}

/// Declares an enum whose variants have one name each, the same in serde, `Display` and `FromStr`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $kind:literal: $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every choice there is.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::score::UnknownWord;

            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::score::UnknownWord { kind: $kind, found: s.to_owned(), allowed: &[$($word),+] }),
                }
            }
        }
    };
}

pub(crate) use words;

words! {
    /// What is computed from a chunk's responses, per head.
    Statistic, "statistic":
    /// Normalised entropy: how widely the chunk responds, whatever its mass. The paper's choice.
    Entropy = "entropy",
    /// The response mass.
    Sum = "sum",
    /// The share of the chunk's tokens that respond above a noise floor.
    Breadth = "breadth",
    /// The response mass by the root of the chunk's even share. Ours; the best found so far.
    ScaledSum = "scaled_sum",
}

words! {
    /// What is subtracted from the query-conditioned row.
    Control, "control":
    /// The row at the end of the prefix, before any query. The paper's choice.
    QueryFree = "query_free",
    /// Nothing.
    None = "none",
    /// The row of a second tail whose query says nothing, read as the first one is.
    NullQuery = "null_query",
}

words! {
    /// From which positions the query-conditioned row is read.
    Read, "read":
    /// The last token of the input. The paper's choice.
    Last = "last",
    /// Every token of the tail: each row restricted and normalised on its own, then averaged.
    QueryMean = "query_mean",
}

/// How chunks are scored. The default is the paper's choice. Written `last/query_free/entropy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// What is computed from a chunk's responses.
    pub statistic: Statistic,
    /// What is subtracted first.
    pub control: Control,
    /// Where the row is read.
    pub read: Read,
}

impl Default for Method {
    fn default() -> Self {
        Self { statistic: Statistic::Entropy, control: Control::QueryFree, read: Read::Last }
    }
}

impl std::str::FromStr for Method {
    type Err = UnknownWord;

    /// `last/query_free/entropy`, or `paper` for just that.
    fn from_str(s: &str) -> Result<Self, UnknownWord> {
        let words: Vec<&str> = s.split('/').collect();
        match words[..] {
            ["paper"] => Ok(Self::default()),
            [read, control, statistic] => {
                Ok(Self { read: read.parse()?, control: control.parse()?, statistic: statistic.parse()? })
            }
            _ => {
                let allowed = &["paper", "READ/CONTROL/STATISTIC such as query_mean/null_query/scaled_sum"];
                Err(UnknownWord { kind: "method", found: s.to_owned(), allowed })
            }
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.read, self.control, self.statistic)
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn round_trips<T>(all: &[T])
    where
        T: Copy + fmt::Debug + fmt::Display + FromStr<Err = UnknownWord> + PartialEq + Serialize,
        T: serde::de::DeserializeOwned,
    {
        for &choice in all {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let json = serde_json::to_string(&choice).unwrap();
            assert_eq!(json, format!("\"{choice}\""));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), choice);
        }
        let error = "Entropy".parse::<T>().unwrap_err();
        assert!(all.iter().all(|c| error.to_string().contains(&c.to_string())), "{error}");
    }

    #[test]
    fn every_choice_has_one_name_everywhere() {
        round_trips(Statistic::ALL);
        round_trips(Control::ALL);
        round_trips(Read::ALL);
        assert_eq!(Method::default().to_string(), "last/query_free/entropy");
        assert_eq!("paper".parse(), Ok(Method::default()));
        let best =
            Method { read: Read::QueryMean, control: Control::NullQuery, statistic: Statistic::ScaledSum };
        assert_eq!(best.to_string().parse(), Ok(best));
        for (wrong, kind) in
            [("", "method"), ("last", "method"), ("a/b/c/d", "method"), ("last/none/mean", "statistic")]
        {
            assert_eq!(wrong.parse::<Method>().unwrap_err().kind, kind, "{wrong}");
        }
    }
}
