//! The words every module shares: identities, indices and half-open ranges.
//!
//! Imports nothing of ours and nothing outside std and serde.

use std::{fmt, ops::Range, str::FromStr};

use serde::{Deserialize, Serialize};

/// A number with what it counts, for messages: `1 label`, `2 labels`.
#[must_use]
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// A vocabulary index. An alias, not a newtype: tokenizers, tensors and JSON all speak `u32`.
pub type TokenId = u32;

/// One attention head: zero-based layer and zero-based query head, written `L16H7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeadRef {
    /// Zero-based block index.
    pub layer: u16,
    /// Zero-based query head (not KV head).
    pub head: u16,
}

impl fmt::Display for HeadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}H{}", self.layer, self.head)
    }
}

impl FromStr for HeadRef {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parse = || {
            let (layer, head) = s.strip_prefix('L')?.split_once('H')?;
            let digits = |d: &str| d.bytes().all(|b| b.is_ascii_digit()).then(|| d.parse().ok())?;
            Some(Self { layer: digits(layer)?, head: digits(head)? })
        };
        parse().ok_or_else(|| format!("head {s:?} is not of the form L16H7 (zero-based layer and head)"))
    }
}

impl TryFrom<String> for HeadRef {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<HeadRef> for String {
    fn from(h: HeadRef) -> Self {
        h.to_string()
    }
}

/// A half-open range `[start, end)` of tokens or characters; `start <= end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First position inside.
    pub start: usize,
    /// First position after.
    pub end: usize,
}

impl Span {
    /// The range `[start, end)`. Panics when `end < start`: that is a bug in the caller.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        assert!(start <= end, "span {start}..{end} runs backwards: this is a bug");
        Self { start, end }
    }

    /// Number of positions inside.
    #[must_use]
    pub fn len(self) -> usize {
        self.end - self.start
    }

    /// Whether no position is inside.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The same range as a std iterator.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// Tokens per KV block (design: the paged flash-attention kernel wants a multiple of 32).
pub const BLOCK_SIZE: usize = 32;

/// A KV block of the paged pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A sequence known to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

/// How far up the stack the KV of a block is complete: the number of layers that hold K and V.
///
/// A full pass over a model of `n` layers writes depth `n`. A scoring pass that exits at layer `l`
/// writes K and V of layers `0..l` plus the K (not the V) of layer `l`: depth `l`, which is all that
/// another scoring pass down to layer `l` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depth(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "label")), ["0 labels", "1 label", "2 labels"]);
    }

    #[test]
    fn heads_are_written_and_read_in_one_form() {
        let head = HeadRef { layer: 16, head: 7 };
        assert_eq!(head.to_string(), "L16H7");
        assert_eq!("L16H7".parse(), Ok(head));
        for wrong in ["", "16-7", "L16", "H7", "L+1H2", "L1H", "LH", "L1H2H3", "l1h2", "L70000H1", "L1H 2"] {
            assert!(wrong.parse::<HeadRef>().is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    #[should_panic(expected = "runs backwards")]
    fn a_span_never_runs_backwards() {
        let _ = Span::new(3, 2);
    }
}
