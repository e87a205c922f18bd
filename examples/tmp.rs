use candle_core::{
    Device, Module, Tensor,
    quantized::{GgmlDType, QMatMul, QTensor},
};
use qrae::ops::cpu::*;
use std::time::Instant;
fn main() {
    for (m, n, k) in
        [(1usize, 4864usize, 896usize), (8, 4864, 896), (512, 4864, 896), (512, 896, 4864), (512, 1024, 1024)]
    {
        let w: Vec<f32> = (0..n * k).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect();
        let x: Vec<f32> = (0..m * k).map(|i| ((i * 7907) % 1000) as f32 / 1000.0 - 0.5).collect();
        let p = PackedMatrix::pack(&w, n, k);
        let mut y = vec![0f32; m * n];
        p.multiply(Isa::detect(), &x, &mut y);
        let reps = if m < 10 { 20 } else { 3 };
        for isa in Isa::available() {
            if isa == Isa::Portable {
                continue;
            }
            let t = Instant::now();
            for _ in 0..reps {
                p.multiply(isa, &x, &mut y);
            }
            let dt = t.elapsed().as_secs_f64() / reps as f64;
            println!(
                "{m} {n} {k} f32 {isa:?} {:.3} ms {:.1} GFLOP/s {:.1} GB/s",
                dt * 1e3,
                2.0 * (m * n * k) as f64 / dt / 1e9,
                (n * k * 4) as f64 / dt / 1e9
            );
        }
        let wt = Tensor::from_vec(w, (n, k), &Device::Cpu).unwrap();
        let xt = Tensor::from_vec(x, (m, k), &Device::Cpu).unwrap();
        for d in [
            GgmlDType::Q5_0,
            GgmlDType::Q8_0,
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q4K,
            GgmlDType::Q6K,
        ] {
            if k % 256 != 0 && matches!(d, GgmlDType::Q4K | GgmlDType::Q6K) {
                continue;
            }
            let q = QMatMul::from_qtensor(QTensor::quantize(&wt, d).unwrap()).unwrap();
            let y0 = q.forward(&xt).unwrap();
            let t = Instant::now();
            for _ in 0..reps {
                q.forward(&xt).unwrap();
            }
            let dt = t.elapsed().as_secs_f64() / reps as f64;
            let y1 = q.forward(&xt.narrow(0, 0, 1).unwrap().contiguous().unwrap()).unwrap();
            let same = y0.narrow(0, 0, 1).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
                == y1.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            println!(
                "   {d:?} {:.3} ms {:.1} GFLOP/s row-invariant {same}",
                dt * 1e3,
                2.0 * (m * n * k) as f64 / dt / 1e9
            );
        }
    }
}
