//! The gated activation of the MLP: `silu(gate) · up`.

use super::cpu::{
    exp::exp,
    tile::{Isa, Vectorised},
};

/// `out = gate · sigmoid(gate) · up`, elementwise, all of one length.
pub fn swiglu(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && gate.len() == out.len(), "swiglu of unequal lengths: this is a bug");
    isa.run(SwiGlu { out, gate, up });
}

struct SwiGlu<'a> {
    out: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
}

impl Vectorised for SwiGlu<'_> {
    #[inline(always)]
    fn run(self) {
        for ((out, &g), &u) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = g / (1.0 + exp(-g)) * u;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_formula_at_every_size_of_gate() {
        let gates: Vec<f32> = (-200..200).map(|i| i as f32 * 0.7).collect();
        let ups: Vec<f32> = (0..400).map(|i| i as f32 * 0.01 - 2.0).collect();
        for isa in Isa::available() {
            let mut out = vec![0f32; gates.len()];
            swiglu(isa, &gates, &ups, &mut out);
            for ((got, &g), &u) in out.iter().zip(&gates).zip(&ups) {
                let want = f64::from(g) / (1.0 + (-f64::from(g)).exp()) * f64::from(u);
                assert!(
                    (f64::from(*got) - want).abs() <= 1e-6 * want.abs().max(1e-6),
                    "{g} {u}: {got} {want}"
                );
            }
        }
    }
}
