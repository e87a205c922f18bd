//! The one door to matrix products: weights in, packed once for the device; every linear layer goes through it.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor, bail};

use super::cpu::{Isa, PackedMatrix};

/// A linear map `x [m, k] -> x · Wᵀ (+ bias) [m, n]`, f32.
///
/// Bits of an output row depend on that row of `x` alone (see [`super::cpu`]). Cheap to clone.
#[derive(Clone)]
pub struct Linear {
    weight: Arc<PackedMatrix>,
    bias: Option<Tensor>,
}

impl Linear {
    /// Packs the row-major `[n, k]` weight matrix.
    ///
    /// # Panics
    /// When `weight` does not hold `n * k` values: that is a bug in the caller.
    #[must_use]
    pub fn new(weight: &[f32], n: usize, k: usize) -> Self {
        Self { weight: Arc::new(PackedMatrix::pack(weight, n, k)), bias: None }
    }

    /// The same map with `bias [n]` added.
    #[must_use]
    pub fn with_bias(self, bias: Option<Tensor>) -> Self {
        Self { bias, ..self }
    }

    /// `x [m, k] -> [m, n]`. Fails when the shape or dtype of `x` does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (_, k) = x.dims2()?;
        if k != self.weight.k() || x.dtype() != DType::F32 {
            bail!(
                "linear: input {:?} {:?}, weight [{}, {}]",
                x.shape(),
                x.dtype(),
                self.weight.n(),
                self.weight.k()
            );
        }
        let y = x.apply_op1_no_bwd(&Multiply(&self.weight))?;
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }

    /// Rows `ids` of the weight matrix, `[ids.len(), k]`: an embedding look-up.
    ///
    /// # Errors
    /// When an id is not below `n`.
    pub fn rows(&self, ids: &[u32], like: &Tensor) -> Result<Tensor> {
        let (n, k) = (self.weight.n(), self.weight.k());
        let mut data = vec![0f32; ids.len() * k];
        for (&id, out) in ids.iter().zip(data.chunks_exact_mut(k.max(1))) {
            if id as usize >= n {
                bail!("embedding: token {id} of a vocabulary of {n}");
            }
            self.weight.copy_row(id as usize, out);
        }
        Tensor::from_vec(data, (ids.len(), k), like.device())
    }
}

struct Multiply<'a>(&'a PackedMatrix);

impl CustomOp1 for Multiply<'_> {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = super::f32_slice(x, layout, self.name())?;
        let m = layout.dims()[0];
        let mut y = vec![0f32; m * self.0.n()];
        self.0.multiply(Isa::detect(), x, &mut y);
        Ok((CpuStorage::F32(y), Shape::from((m, self.0.n()))))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn bias_rows_and_shape_errors() {
        let linear = Linear::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, 2);
        let bias = Tensor::new(&[0.5f32, 0.0, -1.0], &Device::Cpu).unwrap();
        let x = Tensor::new(&[[1.0f32, 1.0], [0.0, 2.0]], &Device::Cpu).unwrap();
        let y = linear.clone().with_bias(Some(bias)).forward(&x).unwrap();
        assert_eq!(y.to_vec2::<f32>().unwrap(), [[3.5, 7.0, 10.0], [4.5, 8.0, 11.0]]);
        let rows = linear.rows(&[2, 0], &x).unwrap();
        assert_eq!(rows.to_vec2::<f32>().unwrap(), [[5.0, 6.0], [1.0, 2.0]]);
        assert!(linear.rows(&[3], &x).unwrap_err().to_string().contains("token 3"));
        assert!(linear.forward(&x.t().unwrap().contiguous().unwrap().reshape((1, 4)).unwrap()).is_err());
        // a strided input is refused by name, not misread
        assert!(linear.forward(&x.t().unwrap()).unwrap_err().to_string().contains("linear"));
    }
}
