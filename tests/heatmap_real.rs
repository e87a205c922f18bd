//! The heatmap of real small models against PyTorch in f32 on the same dequantised weights: every head's attention on the
//! answers of six questions. Needs the model files and the questions; skips loudly. The numbers are in `golden/heatmap.json`.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs, path::PathBuf};

use qrae::{
    eval::{
        answer::{Usability, usability},
        data,
        question::Question,
    },
    hub::ModelFiles,
    model::Compute,
    service::{LoadOptions, ServedModel},
};
use serde::Deserialize;

const MODELS: [(&str, &str); 2] = [
    ("smollm2-135m", "smollm2-135m-instruct-q4_1.gguf"),
    ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
];

/// Questions of the reference.
const FIRST: usize = 6;

#[derive(Deserialize)]
struct Heatmap {
    inputs: usize,
    skipped: usize,
    /// `[layers][heads]`
    answer_mass: Vec<Vec<f64>>,
}

fn model_file(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("QRAE_MODELS")
        .map(PathBuf::from)
        .or_else(|| Some(dirs::cache_dir()?.join("qrae/models")));
    let file = dir?.join(name);
    file.is_file().then_some(file).or_else(|| {
        eprintln!("SKIPPED: {name} is not there; `qrae models pull` fetches it");
        None
    })
}

fn questions() -> Option<Vec<Question>> {
    let shared = std::env::var_os("QRAE_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let file = shared.join("data/hotpotqa_distractor_60.json");
    let Ok(text) = fs::read_to_string(&file) else {
        eprintln!("SKIPPED: {} is not there", file.display());
        return None;
    };
    let mut questions = data::parse_any("hotpotqa_distractor_60.json", &text).unwrap();
    questions.truncate(FIRST);
    Some(questions)
}

#[test]
fn attention_on_answers_equals_the_reference_in_every_head() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/heatmap.json");
    let golden: BTreeMap<String, Heatmap> =
        serde_json::from_str(&fs::read_to_string(golden).unwrap()).unwrap();
    assert_eq!(golden.len(), MODELS.len());
    for (name, file) in MODELS {
        let (Some(file), Some(questions)) = (model_file(file), questions()) else { continue };
        let want = &golden[name];
        let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
        let served = ServedModel::load(&ModelFiles::Gguf(file), None, &options).unwrap();
        let usable: Vec<&Question> = questions.iter().filter(|q| usability(q) == Usability::Usable).collect();
        assert_eq!((usable.len(), FIRST - usable.len()), (want.inputs, want.skipped), "{name}");
        let heads = want.answer_mass.concat();
        let mut sums = vec![0.0; heads.len()];
        for question in &usable {
            let mass = served.observe(question).unwrap().observation.answer_mass.unwrap();
            assert_eq!(mass.len(), heads.len(), "{name}");
            sums.iter_mut().zip(mass).for_each(|(sum, m)| *sum += f64::from(m));
        }
        let (mut worst, mut at) = (0.0, 0);
        for (head, (sum, want)) in sums.iter().zip(&heads).enumerate() {
            let apart = (sum / usable.len() as f64 - want).abs();
            assert!(apart.is_finite());
            if apart > worst {
                (worst, at) = (apart, head);
            }
        }
        let per_layer = want.answer_mass[0].len();
        println!(
            "{name}: every head within {worst:.1e}, the farthest L{}H{}",
            at / per_layer,
            at % per_layer
        );
        // heads differ by up to 0.05
        assert!(worst < 1e-4, "{name}: {worst}");
    }
}
