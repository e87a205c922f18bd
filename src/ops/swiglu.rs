//! The gated activation of the MLP, fused: `silu(gate) · up`.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{
    cpu::{Isa, exp::exp, tile::Vectorised},
    f32_slice,
};

/// `gate · sigmoid(gate) · up`, elementwise on two contiguous tensors of one shape.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.shape() != up.shape() {
        bail!("swiglu: gate {:?}, up {:?}", gate.shape(), up.shape());
    }
    gate.apply_op2_no_bwd(up, &SwiGlu)
}

struct SwiGlu;

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        g: &CpuStorage,
        gl: &Layout,
        u: &CpuStorage,
        ul: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (f32_slice(g, gl, self.name())?, f32_slice(u, ul, self.name())?);
        let mut out = vec![0f32; gate.len()];
        const PART: usize = 1 << 14;
        let isa = Isa::detect();
        out.par_chunks_mut(PART).zip(gate.par_chunks(PART)).zip(up.par_chunks(PART)).for_each(
            |((out, g), u)| {
                isa.run(Part { out, gate: g, up: u });
            },
        );
        Ok((CpuStorage::F32(out), gl.shape().clone()))
    }
}

struct Part<'a> {
    out: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
}

impl Vectorised for Part<'_> {
    #[inline(always)]
    fn run(self) {
        for ((out, &g), &u) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = g / (1.0 + exp(-g)) * u;
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn it_is_the_formula_at_every_size_of_gate() {
        let gates: Vec<f32> = (-200..200).map(|i| i as f32 * 0.7).collect();
        let ups: Vec<f32> = (0..400).map(|i| i as f32 * 0.01 - 2.0).collect();
        let t = |v: &[f32]| Tensor::from_slice(v, v.len(), &Device::Cpu).unwrap();
        let out = swiglu(&t(&gates), &t(&ups)).unwrap().to_vec1::<f32>().unwrap();
        for ((got, &g), &u) in out.iter().zip(&gates).zip(&ups) {
            let want = f64::from(g) / (1.0 + (-f64::from(g)).exp()) * f64::from(u);
            assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs().max(1e-6), "{g} {u}: {got} {want}");
        }
    }
}
