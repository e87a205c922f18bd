//! The paged KV pool of a device: one K and one V pool per layer, written in place.
//!
//! Knows block ids and slots, not sequences: which block belongs to whom is `kv`'s and `sched`'s business.

use candle_core::{
    CpuStorage, CustomOp3, DType, Device, InplaceOp1, InplaceOp2, Layout, Result, Shape, Tensor, bail,
};

use super::{
    attn_rows::{RowQuery, read_rows},
    cpu::Cpu,
    cpu::attention::{AttentionItem, PageLayout, Pages, attention},
    f32_slice, f32_slice_mut,
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
    layers: Vec<(Tensor, Tensor)>,
    layout: PageLayout,
    n_blocks: usize,
}

impl KvStore {
    /// Room for `n_blocks` blocks in each of `n_layers` layers. On the CPU the operating system hands out the
    /// memory as pages are first written.
    pub fn new(n_layers: usize, n_blocks: usize, layout: PageLayout, device: &Device) -> Result<Self> {
        let pool = |page: usize| Tensor::zeros(n_blocks * page, DType::F32, device);
        let layers = (0..n_layers).map(|_| Ok((pool(layout.k_page())?, pool(layout.v_page())?)));
        Ok(Self { layers: layers.collect::<Result<_>>()?, layout, n_blocks })
    }

    /// Blocks in the pool.
    #[must_use]
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Bytes that one block takes over all layers.
    #[must_use]
    pub fn block_bytes(n_layers: usize, layout: PageLayout) -> usize {
        n_layers * (layout.k_page() + layout.v_page()) * size_of::<f32>()
    }

    /// Writes `k [n, n_kv_heads, head_dim]` (after RoPE) of `n` tokens to their slots in `layer`.
    pub fn write_k(&mut self, layer: usize, slots: &[Slot], k: &Tensor) -> Result<()> {
        self.check(slots, k)?;
        self.layers[layer].0.inplace_op2(k, &Write { slots, layout: self.layout, what: Half::K })
    }

    /// Writes `v [n, n_kv_heads, head_dim]` of `n` tokens to their slots in `layer`.
    pub fn write_v(&mut self, layer: usize, slots: &[Slot], v: &Tensor) -> Result<()> {
        self.check(slots, v)?;
        self.layers[layer].1.inplace_op2(v, &Write { slots, layout: self.layout, what: Half::V })
    }

    fn check(&self, slots: &[Slot], x: &Tensor) -> Result<()> {
        let want = (slots.len(), self.layout.n_kv_heads, self.layout.head_dim);
        if x.dims3()? != want {
            bail!("kv write: {:?} for {} slots of {:?}", x.shape(), slots.len(), self.layout);
        }
        match slots.iter().find(|s| s.block.0 as usize >= self.n_blocks || s.slot >= BLOCK_SIZE) {
            Some(slot) => bail!("kv write: {slot:?} in a pool of {} blocks", self.n_blocks),
            None => Ok(()),
        }
    }

    /// Copies one block over another in every layer: the copy in copy-on-write.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        for (k, v) in &self.layers {
            for (pool, page) in [(k, self.layout.k_page()), (v, self.layout.v_page())] {
                pool.inplace_op1(&CopyPage { from, to, page })?;
            }
        }
        Ok(())
    }

    /// Causal attention of `q [n_rows, n_heads, head_dim]` over `layer`; output like `q`. Every row must belong to
    /// one item, whose table covers its positions.
    pub fn attention(&self, layer: usize, q: &Tensor, items: &[AttentionItem]) -> Result<Tensor> {
        let (rows, n_heads, head_dim) = q.dims3()?;
        let PageLayout { n_kv_heads, .. } = self.layout;
        if head_dim != self.layout.head_dim || !n_heads.is_multiple_of(n_kv_heads) {
            bail!("attention: q {:?} over {:?}", q.shape(), self.layout);
        }
        for item in items {
            let blocks = (item.first_position + item.rows).div_ceil(BLOCK_SIZE);
            let outside = item.table.iter().take(blocks).any(|b| b.0 as usize >= self.n_blocks);
            if item.first_row + item.rows > rows || item.table.len() < blocks || outside {
                bail!("attention: {item:?} with {rows} rows and {} blocks", self.n_blocks);
            }
        }
        let (k, v) = &self.layers[layer];
        q.apply_op3_no_bwd(k, v, &Attend { layout: self.layout, items, n_heads })
    }

    /// Attention rows restricted to candidate positions, `[n_reads][heads][n_candidates]`: see [`super::attn_rows`].
    pub fn attention_rows(&self, layer: usize, q: &Tensor, query: &RowQuery<'_>) -> Result<Vec<f32>> {
        let covered = query.table.len() * BLOCK_SIZE;
        if query.candidates.iter().any(|s| s.end > covered)
            || query.table.iter().any(|b| b.0 as usize >= self.n_blocks)
        {
            bail!("attention rows: candidates past a table of {covered} positions");
        }
        read_rows(q, &self.layers[layer].0, self.layout, query)
    }
}

#[derive(Clone, Copy)]
enum Half {
    K,
    V,
}

struct Write<'a> {
    slots: &'a [Slot],
    layout: PageLayout,
    what: Half,
}

impl InplaceOp2 for Write<'_> {
    fn name(&self) -> &'static str {
        "kv write"
    }

    fn cpu_fwd(
        &self,
        pool: &mut CpuStorage,
        pool_layout: &Layout,
        x: &CpuStorage,
        layout: &Layout,
    ) -> Result<()> {
        let x = f32_slice(x, layout, self.name())?;
        let pool = f32_slice_mut(pool, pool_layout, self.name())?;
        let width = self.layout.n_kv_heads * self.layout.head_dim;
        for (at, x) in self.slots.iter().zip(x.chunks_exact(width)) {
            match self.what {
                Half::K => self.layout.write_k(pool, at.block, at.slot, x),
                Half::V => self.layout.write_v(pool, at.block, at.slot, x),
            }
        }
        Ok(())
    }
}

struct CopyPage {
    from: BlockId,
    to: BlockId,
    page: usize,
}

impl InplaceOp1 for CopyPage {
    fn name(&self) -> &'static str {
        "kv copy"
    }

    fn cpu_fwd(&self, pool: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let pool = f32_slice_mut(pool, layout, self.name())?;
        let start = self.from.0 as usize * self.page;
        pool.copy_within(start..start + self.page, self.to.0 as usize * self.page);
        Ok(())
    }
}

struct Attend<'a> {
    layout: PageLayout,
    items: &'a [AttentionItem],
    n_heads: usize,
}

impl CustomOp3 for Attend<'_> {
    fn name(&self) -> &'static str {
        "paged attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let pages = Pages {
            k: f32_slice(k, k_layout, self.name())?,
            v: f32_slice(v, v_layout, self.name())?,
            layout: self.layout,
        };
        let q = f32_slice(q, q_layout, self.name())?;
        let mut out = vec![0f32; q.len()];
        attention(&Cpu::current(), q, self.n_heads, pages, self.items, &mut out);
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}
