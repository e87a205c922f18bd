//! The one door to matrix products: weights in, packed once; every linear layer goes through it.

use std::sync::Arc;

use super::{
    Activations, OpError,
    cpu::{Cpu, PackedMatrix, Product, QuantMatrix, Weight, buffer::Scratch, multiply},
};

/// A linear map `x [m, k] -> x · Wᵀ (+ bias) [m, n]`.
///
/// Bits of an output row depend on that row of `x` alone (see [`super::cpu`]). Cheap to clone.
#[derive(Clone)]
pub struct Linear {
    weight: Arc<Weight>,
    bias: Option<Arc<[f32]>>,
}

impl Linear {
    /// A matrix of plain numbers: f32 arithmetic.
    #[must_use]
    pub fn plain(weight: PackedMatrix) -> Self {
        Self { weight: Arc::new(Weight::Plain(weight)), bias: None }
    }

    /// A quantised matrix: 8-bit arithmetic.
    #[must_use]
    pub fn quantised(weight: QuantMatrix) -> Self {
        Self { weight: Arc::new(Weight::Quant(weight)), bias: None }
    }

    /// The same map with `bias [n]` added.
    ///
    /// # Panics
    /// When the bias has another length: that is a bug in the caller.
    #[must_use]
    pub fn with_bias(self, bias: Option<Vec<f32>>) -> Self {
        assert!(bias.as_ref().is_none_or(|b| b.len() == self.n()), "a bias of another length: this is a bug");
        Self { bias: bias.map(Into::into), ..self }
    }

    /// Output features.
    #[must_use]
    pub fn n(&self) -> usize {
        self.weight.n()
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.weight.bytes()
    }

    /// The matrix.
    pub(super) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// The map reads 8-bit rows.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        self.weight.is_quant()
    }

    /// Rows `ids` of the weight matrix into `out [ids.len(), k]`: an embedding look-up.
    ///
    /// # Errors
    /// When an id is not below `n`.
    pub fn rows(&self, cpu: &Cpu, ids: &[u32], out: &mut Scratch<f32>) -> Result<(), OpError> {
        let (n, k) = (self.weight.n(), self.weight.k());
        if let Some(&token) = ids.iter().find(|&&id| id as usize >= n) {
            return Err(OpError::Token { token, vocab: n });
        }
        out.resize(ids.len() * k);
        let rows = super::cpu::disjoint::Disjoint::new(out);
        cpu.parallel(ids.len(), |r| {
            // SAFETY: each row belongs to one task.
            #[allow(unsafe_code)]
            self.weight.copy_row(ids[r] as usize, unsafe { rows.part(r * k, k) });
        });
        Ok(())
    }
}

/// One of the maps of [`forward`]: where its rows go, and whether they are added to what is there.
pub struct Output<'a> {
    /// The map.
    pub linear: &'a Linear,
    /// Resized to `[m, n]`; with `onto`, it has that size and is added to.
    pub y: &'a mut Scratch<f32>,
    /// Add to `y`, as a residual connection does.
    pub onto: bool,
}

impl<'a> Output<'a> {
    /// `y = linear(x)`.
    #[must_use]
    pub fn set(linear: &'a Linear, y: &'a mut Scratch<f32>) -> Self {
        Self { linear, y, onto: false }
    }
}

/// Several maps of the same rows, computed side by side.
///
/// # Panics
/// When sizes do not fit: a bug in the caller.
pub fn forward<const N: usize>(cpu: &Cpu, x: &Activations, outputs: [Output<'_>; N]) {
    let m = x.n_rows();
    let mut products = outputs.map(|o| {
        if !o.onto {
            o.y.resize(m * o.linear.n());
        }
        let bias = o.linear.bias.as_deref();
        Product { weight: &o.linear.weight, bias, onto: o.onto, y: o.y }
    });
    multiply(cpu, m, x.inputs(), &mut products);
}
