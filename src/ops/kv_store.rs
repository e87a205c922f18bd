//! The paged KV pool of the device: one K and one V pool per layer, in f32 or f16, written in place.
//!
//! K and V are rounded once, here, and everything reads them from pages: so a token's bits are the same for the step
//! that computed it and for whoever finds it through the prefix cache. Knows block ids and slots, not sequences: which block belongs to whom is `kv`'s and `sched`'s business.

use std::io;

use half::f16;

use super::{
    OpError,
    attn_rows::{AttentionRows, RowQuery, read_rows},
    cpu::{
        Cpu,
        attention::{AttentionItem, KvFloat, KvNumber, PageLayout, Pages, attention},
        buffer::Buffer,
    },
};
use crate::ids::{BLOCK_SIZE, BlockId};

/// Where one token's K and V go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The block.
    pub block: BlockId,
    /// Position inside the block, below [`BLOCK_SIZE`].
    pub slot: usize,
}

/// K and V of every layer, in pages of [`BLOCK_SIZE`] tokens.
pub struct KvStore {
    pools: Pools,
    layout: PageLayout,
    n_blocks: usize,
}

enum Pools {
    F32(Layers<f32>),
    F16(Layers<f16>),
}

struct Layers<T> {
    /// K pool, V pool.
    pools: Vec<(Buffer<T>, Buffer<T>)>,
    /// What is being written, rounded.
    rounded: Vec<T>,
    /// Something too great for the pages was written.
    saturated: bool,
}

/// The same for the layers of either type.
macro_rules! each {
    ($pools:expr, $layers:ident => $result:expr) => {
        match $pools {
            Pools::F32($layers) => $result,
            Pools::F16($layers) => $result,
        }
    };
}

impl<T: KvNumber> Layers<T> {
    fn new(n_layers: usize, n_blocks: usize, layout: PageLayout) -> io::Result<Self> {
        let pool = |page: usize| Buffer::try_sparse(n_blocks.saturating_mul(page));
        let pools = (0..n_layers).map(|_| Ok((pool(layout.k_page())?, pool(layout.v_page())?)));
        Ok(Self { pools: pools.collect::<io::Result<_>>()?, rounded: Vec::new(), saturated: false })
    }

    /// Warns, once, of K or V that pages do not hold as they are: answers and scores may be off from there on.
    fn tell_saturation(&mut self, layer: usize, x: &[f32]) {
        if !self.saturated && T::saturates(x) {
            self.saturated = true;
            tracing::warn!(
                layer,
                "K or V of this model reach beyond what f16 holds (65504) and become that; --compute f32 keeps them"
            );
        }
    }
}

impl KvStore {
    /// Room for `n_blocks` blocks of `float` in each of `n_layers` layers. The operating system hands out the memory as
    /// pages are first written.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn new(n_layers: usize, n_blocks: usize, layout: PageLayout, float: KvFloat) -> io::Result<Self> {
        let pools = match float {
            KvFloat::F32 => Pools::F32(Layers::new(n_layers, n_blocks, layout)?),
            KvFloat::F16 => Pools::F16(Layers::new(n_layers, n_blocks, layout)?),
        };
        Ok(Self { pools, layout, n_blocks })
    }

    /// Blocks in the pool.
    #[must_use]
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Bytes that one block takes over all layers.
    #[must_use]
    pub fn block_bytes(n_layers: usize, layout: PageLayout, float: KvFloat) -> usize {
        n_layers * (layout.k_page() + layout.v_page()) * float.bytes()
    }

    /// Writes `k [n, n_kv_heads, head_dim]` (after RoPE) of `n` tokens to their slots in `layer`, rounded to what pages
    /// hold ([`KvNumber::rounded`]).
    ///
    /// # Errors
    /// When a slot is outside the pool, or `k` has another shape.
    pub fn write_k(&mut self, layer: usize, slots: &[Slot], k: &[f32]) -> Result<(), OpError> {
        let (width, layout) = (self.check(slots, k)?, self.layout);
        each!(&mut self.pools, layers => {
            layers.tell_saturation(layer, k);
            let k = KvNumber::rounded(k, &mut layers.rounded);
            for (at, k) in slots.iter().zip(k.chunks_exact(width)) {
                layout.write_k(&mut layers.pools[layer].0, at.block, at.slot, k);
            }
        });
        Ok(())
    }

    /// Writes `v [n, n_kv_heads, head_dim]` of `n` tokens to their slots in `layer`, rounded likewise.
    ///
    /// # Errors
    /// When a slot is outside the pool, or `v` has another shape.
    pub fn write_v(&mut self, layer: usize, slots: &[Slot], v: &[f32]) -> Result<(), OpError> {
        let (width, layout) = (self.check(slots, v)?, self.layout);
        each!(&mut self.pools, layers => {
            layers.tell_saturation(layer, v);
            let v = KvNumber::rounded(v, &mut layers.rounded);
            for (at, v) in slots.iter().zip(v.chunks_exact(width)) {
                layout.write_v(&mut layers.pools[layer].1, at.block, at.slot, v);
            }
        });
        Ok(())
    }

    /// Values of one token.
    fn check(&self, slots: &[Slot], x: &[f32]) -> Result<usize, OpError> {
        let op = "kv write";
        let width = self.layout.n_kv_heads * self.layout.head_dim;
        if x.len() != slots.len() * width {
            return Err(OpError::Shape { op, found: x.len(), expected: slots.len() * width });
        }
        let outside = |s: &&Slot| s.block.0 as usize >= self.n_blocks || s.slot >= BLOCK_SIZE;
        match slots.iter().find(outside) {
            Some(slot) => Err(OpError::Block { op, block: slot.block, blocks: self.n_blocks }),
            None => Ok(width),
        }
    }

    fn check_table(&self, op: &'static str, table: &[BlockId], positions: usize) -> Result<(), OpError> {
        let needed = positions.div_ceil(BLOCK_SIZE);
        if table.len() < needed {
            let position = table.len() * BLOCK_SIZE;
            return Err(OpError::Table { op, position, blocks: table.len() });
        }
        match table[..needed].iter().find(|b| b.0 as usize >= self.n_blocks) {
            Some(&block) => Err(OpError::Block { op, block, blocks: self.n_blocks }),
            None => Ok(()),
        }
    }

    /// Copies one block over another in every layer: the copy in copy-on-write.
    ///
    /// # Errors
    /// When one is outside the pool.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), OpError> {
        for block in [from, to] {
            if block.0 as usize >= self.n_blocks {
                return Err(OpError::Block { op: "kv copy", block, blocks: self.n_blocks });
            }
        }
        let (from, to, layout) = (from.0 as usize, to.0 as usize, self.layout);
        each!(&mut self.pools, layers => for (k, v) in &mut layers.pools {
            for (pool, page) in [(k, layout.k_page()), (v, layout.v_page())] {
                pool.copy_within(from * page..(from + 1) * page, to * page);
            }
        });
        Ok(())
    }

    /// Causal attention of `q [n_rows, n_heads, head_dim]` over `layer` into `out`, of the same shape. Every row must
    /// belong to one item, whose table covers its positions.
    ///
    /// # Errors
    /// When an item's table is too short or names a block outside the pool, or an item's rows do not exist.
    pub fn attention(
        &self,
        cpu: &Cpu,
        layer: usize,
        (q, n_heads): (&[f32], usize),
        items: &[AttentionItem],
        out: &mut [f32],
    ) -> Result<(), OpError> {
        let op = "attention";
        let width = n_heads * self.layout.head_dim;
        let rows = items.iter().map(|i| i.first_row.saturating_add(i.rows)).max().unwrap_or(0);
        let expected = rows.saturating_mul(width);
        if q.len() < expected || q.len() != out.len() {
            return Err(OpError::Shape { op, found: q.len().min(out.len()), expected });
        }
        for item in items {
            self.check_table(op, &item.table, item.first_position.saturating_add(item.rows))?;
        }
        each!(&self.pools, layers => {
            let (k, v) = &layers.pools[layer];
            attention(cpu, q, n_heads, Pages { k, v, layout: self.layout }, items, out);
        });
        Ok(())
    }

    /// Attention rows restricted to candidate positions, and shares where wanted: see [`super::attn_rows`].
    ///
    /// # Errors
    /// When the candidates or what a read sees reach past the table, the table names a block outside the pool, or `q`
    /// has another shape.
    pub fn attention_rows(
        &self,
        cpu: &Cpu,
        layer: usize,
        q: &[f32],
        query: &RowQuery<'_>,
    ) -> Result<AttentionRows, OpError> {
        let op = "attention rows";
        let seen = query.visible.unwrap_or_default().iter().copied();
        let end = query.candidates.iter().map(|s| s.end).chain(seen).max().unwrap_or(0);
        self.check_table(op, query.table, end)?;
        let width = query.kv_heads.len() * self.layout.head_dim;
        if let Some(visible) = query.visible.filter(|v| v.len() * width != q.len()) {
            return Err(OpError::Shape { op, found: q.len(), expected: visible.len() * width });
        }
        if !q.len().is_multiple_of(width.max(1)) {
            return Err(OpError::Shape {
                op,
                found: q.len(),
                expected: q.len().next_multiple_of(width.max(1)),
            });
        }
        Ok(each!(&self.pools, layers => read_rows(cpu, q, &layers.pools[layer].0[..], self.layout, query)))
    }
}
