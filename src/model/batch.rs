//! The rows of one forward pass, as plain data: several sequences side by side, deepest first.
//!
//! ```text
//! rows       0 ........................ rows_deeper_than(l) ........ rows_reaching(l) ..... n_rows
//! at layer l  run the whole block       only K, and Q at the reads   not run any more
//! ```

use crate::ids::{BLOCK_SIZE, BlockId, Depth, HeadRef, Span, TokenId};
use crate::ops::{AttentionItem, Slot};

/// What is wanted of an item besides its KV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing: a prefill chunk in the middle of a prompt.
    Nothing,
    /// The logits after its last row.
    Logits,
    /// The query vectors of `heads` at the rows `reads` (relative to the item, ascending).
    Queries {
        /// Row numbers inside the item.
        reads: Vec<usize>,
        /// Heads to capture, sorted.
        heads: Vec<HeadRef>,
    },
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchItem {
    /// Token ids, at least one.
    pub tokens: Vec<TokenId>,
    /// Position of the first token.
    pub first_position: usize,
    /// Blocks of the sequence, covering every position up to the last token.
    pub table: Vec<BlockId>,
    /// How deep to run: the number of layers with full KV.
    pub depth: Depth,
    /// What to hand back.
    pub output: Output,
}

/// Items sorted by depth, deepest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    items: Vec<BatchItem>,
    /// First row of each item, and the number of rows at the end.
    starts: Vec<usize>,
}

impl Batch {
    /// Takes items in order.
    ///
    /// # Panics
    /// When an item is empty, its table too short, or the items are not sorted deepest first: bugs in the caller.
    #[must_use]
    pub fn new(items: Vec<BatchItem>) -> Self {
        assert!(items.is_sorted_by(|a, b| a.depth >= b.depth), "batch not deepest first: this is a bug");
        let mut starts = vec![0];
        for item in &items {
            assert!(!item.tokens.is_empty(), "an empty batch item: this is a bug");
            let end = item.first_position + item.tokens.len();
            assert!(item.table.len() * BLOCK_SIZE >= end, "a table too short for its item: this is a bug");
            starts.push(starts[starts.len() - 1] + item.tokens.len());
        }
        Self { items, starts }
    }

    /// The items, deepest first.
    #[must_use]
    pub fn items(&self) -> &[BatchItem] {
        &self.items
    }

    /// Rows of item `i`.
    #[must_use]
    pub fn rows(&self, i: usize) -> Span {
        Span::new(self.starts[i], self.starts[i + 1])
    }

    /// All rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.starts[self.items.len()]
    }

    /// Items that run layer `layer` whole; they come first.
    #[must_use]
    pub fn items_deeper_than(&self, layer: usize) -> usize {
        self.items.partition_point(|i| usize::from(i.depth.0) > layer)
    }

    /// Items that have business in layer `layer`, be it only K.
    #[must_use]
    pub fn items_reaching(&self, layer: usize) -> usize {
        self.items.partition_point(|i| usize::from(i.depth.0) >= layer)
    }

    /// First row after the first `n_items` items.
    #[must_use]
    pub fn rows_of_first(&self, n_items: usize) -> usize {
        self.starts[n_items]
    }

    /// Token of every row.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenId> {
        self.items.iter().flat_map(|i| i.tokens.iter().copied()).collect()
    }

    /// Position of every row.
    #[must_use]
    pub fn positions(&self) -> Vec<u32> {
        let positions = |i: &BatchItem| i.first_position as u32..(i.first_position + i.tokens.len()) as u32;
        self.items.iter().flat_map(positions).collect()
    }

    /// KV slot of every row.
    #[must_use]
    pub fn slots(&self) -> Vec<Slot> {
        let slot = |i: &BatchItem, p: usize| Slot { block: i.table[p / BLOCK_SIZE], slot: p % BLOCK_SIZE };
        let end = |i: &BatchItem| i.first_position + i.tokens.len();
        self.items.iter().flat_map(|i| (i.first_position..end(i)).map(move |p| slot(i, p))).collect()
    }

    /// What attention needs to know of every item.
    #[must_use]
    pub fn attention_items(&self) -> Vec<AttentionItem> {
        let item = |(i, item): (usize, &BatchItem)| AttentionItem {
            first_row: self.starts[i],
            rows: item.tokens.len(),
            first_position: item.first_position,
            table: item.table.clone(),
        };
        self.items.iter().enumerate().map(item).collect()
    }

    /// Last row of every item that wants logits, in item order.
    #[must_use]
    pub fn logit_rows(&self) -> Vec<usize> {
        let wants = |i: &usize| self.items[*i].output == Output::Logits;
        (0..self.items.len()).filter(wants).map(|i| self.starts[i + 1] - 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(
        tokens: &[TokenId],
        first_position: usize,
        blocks: &[u32],
        depth: u16,
        output: Output,
    ) -> BatchItem {
        let table = blocks.iter().map(|&b| BlockId(b)).collect();
        BatchItem { tokens: tokens.to_vec(), first_position, table, depth: Depth(depth), output }
    }

    #[test]
    fn rows_slots_and_layers_of_a_mixed_batch() {
        let batch = Batch::new(vec![
            item(&[5], 40, &[7, 2], 4, Output::Logits),
            item(&[1, 2, 3], 31, &[9, 4], 4, Output::Nothing),
            item(&[8, 8], 0, &[3], 2, Output::Queries { reads: vec![1], heads: vec![] }),
        ]);
        assert_eq!(batch.tokens(), [5, 1, 2, 3, 8, 8]);
        assert_eq!(batch.positions(), [40, 31, 32, 33, 0, 1]);
        let slots: Vec<_> = batch.slots().iter().map(|s| (s.block.0, s.slot)).collect();
        assert_eq!(slots, [(2, 8), (9, 31), (4, 0), (4, 1), (3, 0), (3, 1)]);
        assert_eq!(batch.logit_rows(), [0]);
        // layer 1: all whole; layer 2: the scoring item only needs K and Q; layer 3: it has left
        assert_eq!([1, 2, 3].map(|l| batch.rows_of_first(batch.items_deeper_than(l))), [6, 4, 4]);
        assert_eq!([1, 2, 3].map(|l| batch.rows_of_first(batch.items_reaching(l))), [6, 6, 4]);
    }

    #[test]
    #[should_panic(expected = "deepest first")]
    fn shallow_items_may_not_come_first() {
        let _ = Batch::new(vec![
            item(&[1], 0, &[0], 1, Output::Nothing),
            item(&[1], 0, &[1], 2, Output::Nothing),
        ]);
    }
}
