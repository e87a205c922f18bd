//! Real small models against PyTorch in f32 on the same dequantised weights: attention rows, every variant of the score,
//! rankings, greedy continuations, prompts and token ids. Needs the model files and the golden files; skips loudly.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
};

use common::*;
use qrae::{
    engine::{EngineConfig, EngineHandle, RowsRequest, Tail},
    hub::ModelFiles,
    ids::{HeadRef, Span, TokenId},
    kv::Salt,
    model::{Compute, gguf::GgufFile, load},
    prompt::layout::{Chunk, NULL_QUERY, layout},
    score::{Control, Method, Read, Rows, ScoreInput, Statistic, head_responses, rank, score},
    service::{
        Admission, LoadOptions, ServedModel,
        score::{HeadChoice, ScoreJob},
    },
};
use serde::Deserialize;

const MODELS: [(&str, &str); 2] = [
    ("smollm2-135m", "smollm2-135m-instruct-q4_1.gguf"),
    ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
];

#[derive(Deserialize)]
struct Golden {
    heads: Vec<HeadRef>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    query: String,
    chunks: Vec<Chunk>,
    ids: Vec<TokenId>,
    spans: Vec<(usize, usize)>,
    p0: usize,
    null_ids: Vec<TokenId>,
    rows_control: Vec<Vec<f64>>,
    rows_query: Vec<Vec<f64>>,
    rows_query_mean: Vec<Vec<f64>>,
    head_scores: BTreeMap<String, Vec<Vec<f64>>>,
    scores: BTreeMap<String, Vec<f64>>,
    chat_ids: Vec<TokenId>,
    greedy_64: Vec<TokenId>,
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

fn golden_file(name: &str) -> Option<Golden> {
    let shared = std::env::var_os("QRAE_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let file = shared.join(format!("golden/{name}.json"));
    let Ok(text) = fs::read_to_string(&file) else {
        eprintln!("SKIPPED: {} is not there", file.display());
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

fn engine(file: &PathBuf, compute: Compute) -> EngineHandle {
    let decoder = load::gguf(&GgufFile::open(file).unwrap(), None, compute).unwrap();
    EngineHandle::start(decoder, &EngineConfig { kv_blocks: 200, ..roomy() }).unwrap()
}

/// Words in, scores out: prompt layout, tokenizer, engine and statistic together, for every method.
#[test]
fn scoring_from_words_gives_the_reference_prompts_and_scores() {
    for (name, file) in MODELS {
        let (Some(file), Some(golden)) = (model_file(file), golden_file(name)) else { continue };
        let served = ServedModel::load(
            &ModelFiles::Gguf(file),
            None,
            &LoadOptions { compute: Compute::F32, ..LoadOptions::default() },
        )
        .unwrap();
        let served = std::sync::Arc::new(served);
        let door = Admission::new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for case in &golden.cases {
            let prompt = layout(
                &served.score_prompt,
                &served.pieces,
                &case.chunks,
                &[&case.query, NULL_QUERY],
                None,
                &served.tokenizer,
            )
            .unwrap();
            let tail = |i: usize| [prompt.prefix.as_slice(), &prompt.tails[i]].concat();
            assert_eq!((tail(0), tail(1)), (case.ids.clone(), case.null_ids.clone()), "{name} {}", case.id);
            let spans: Vec<_> = prompt.chunks.iter().map(|c| (c.span.start, c.span.end)).collect();
            assert_eq!((spans, prompt.p0()), (case.spans.clone(), case.p0), "{name} {}", case.id);
            for (key, want) in &case.scores {
                let Method { statistic, control, read } = method(key);
                let job = ScoreJob {
                    queries: vec![case.query.clone()],
                    chunks: case.chunks.clone(),
                    heads: HeadChoice::Heads(golden.heads.clone()),
                    statistic: Some(statistic),
                    control: Some(control),
                    read: Some(read),
                    explain: true,
                    ..ScoreJob::default()
                };
                let permit = door.enter().unwrap();
                let answer = runtime.block_on(served.score(job, permit)).unwrap();
                let chunks = &answer.queries[0].chunks;
                let got: Vec<f64> = chunks.iter().map(|c| c.score.value).collect();
                let n: usize = chunks.iter().map(|c| c.score.n_tokens).sum();
                let undecided: Vec<f64> = chunks
                    .iter()
                    .map(|c| {
                        let tokens = c.explained.as_ref().unwrap().iter().flat_map(|t| &t.per_head);
                        undecided(statistic, tokens, n)
                    })
                    .collect();
                assert_same(&got, want, &undecided, &format!("{name} {} {key}", case.id));
                let ranks: Vec<usize> = chunks.iter().map(|c| c.rank).collect();
                assert_eq!(ranks, rank(&got), "{name} {} {key}", case.id);
                for (chunk, scored) in case.chunks.iter().zip(&answer.queries[0].chunks) {
                    let tokens = scored.explained.as_ref().unwrap();
                    assert_eq!(tokens.len(), scored.score.n_tokens);
                    // what lies in the text, put together, is the text
                    let end = tokens.iter().filter_map(|t| t.span).map(|s| s.end).max();
                    assert_eq!(end, Some(chunk.text.chars().count()), "{name} {}", case.id);
                }
            }
        }
    }
}

/// The share of a chunk's responses (over heads and tokens) that lie so close to breadth's floor that rows equal within
/// 1e-5 may fall on either side of it. 0 for the other statistics, which are continuous.
fn undecided<'a>(statistic: Statistic, responses: impl Iterator<Item = &'a f64>, n_candidates: usize) -> f64 {
    let floor = 2.0 / n_candidates as f64;
    let responses: Vec<&f64> = responses.collect();
    let close = responses.iter().filter(|r| (**r - floor).abs() < 1e-5).count();
    if statistic == Statistic::Breadth { close as f64 / responses.len().max(1) as f64 } else { 0.0 }
}

/// Scores within 1e-3, and the same ranking, but for what is undecided.
fn assert_same(got: &[f64], want: &[f64], undecided: &[f64], what: &str) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() < 1e-3 + undecided[i], "{what} chunk {i}: {got} {want}");
    }
    if undecided.iter().all(|u| *u == 0.0) {
        return assert_eq!(rank(got), rank(want), "{what}: {got:?} {want:?}");
    }
    for i in 0..want.len() {
        for j in (0..want.len()).filter(|&j| want[i] - want[j] > undecided[i] + undecided[j]) {
            assert!(got[i] > got[j], "{what}: chunks {i} and {j} changed places, {got:?} {want:?}");
        }
    }
}

/// Rows of one case: control, and the query's and the null query's tails by read.
struct Read4 {
    control: Rows,
    query: HashMap<Read, Rows>,
    null: HashMap<Read, Rows>,
}

fn read_case(engine: &EngineHandle, heads: &[HeadRef], case: &Case) -> Read4 {
    let (prefix, tail) = case.ids.split_at(case.p0 + 1);
    let null = &case.null_ids[case.p0 + 1..];
    assert_eq!(case.null_ids[..=case.p0], *prefix);
    let mut sorted = heads.to_vec();
    sorted.sort_unstable();
    let tails = [tail, tail, null, null].map(<[TokenId]>::to_vec);
    let reads = [1, tail.len(), 1, null.len()];
    let request = RowsRequest {
        prefix: prefix.to_vec(),
        tails: tails.into_iter().zip(reads).map(|(tokens, reads)| Tail::read_last(tokens, reads)).collect(),
        control: true,
        heads: sorted.clone(),
        candidates: case.spans.iter().map(|&(a, b)| Span::new(a, b)).collect(),
        salt: Salt::none(),
    };
    let out = rows(engine, &request).unwrap();
    // back to the golden file's order of heads
    let reorder = |rows: &Rows| {
        let at = |h: &HeadRef| sorted.iter().position(|s| s == h).unwrap();
        let data = heads.iter().flat_map(|h| rows.row(at(h)).to_vec()).collect();
        Rows::new(heads.len(), rows.n_candidates(), data).unwrap()
    };
    let by_read = |i: usize| {
        HashMap::from([
            (Read::Last, reorder(&out.tails[i][0])),
            (Read::QueryMean, reorder(&out.tails[i + 1][0])),
        ])
    };
    Read4 { control: reorder(out.control.as_ref().unwrap()), query: by_read(0), null: by_read(2) }
}

fn worst(rows: &Rows, want: &[Vec<f64>]) -> f64 {
    let diffs = want.iter().enumerate().flat_map(|(h, want)| {
        assert_eq!(want.len(), rows.n_candidates());
        rows.row(h).iter().zip(want).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>()
    });
    diffs.fold(0.0, worse)
}

#[test]
fn rows_scores_and_rankings_equal_the_reference() {
    for (name, file) in MODELS {
        let (Some(file), Some(golden)) = (model_file(file), golden_file(name)) else { continue };
        let engine = engine(&file, Compute::F32);
        for case in &golden.cases {
            let read = read_case(&engine, &golden.heads, case);
            let rows = rows_apart(&read, case);
            println!("{name} {}: rows within {}", case.id, rows.map(|r| format!("{r:.1e}")).join(", "));
            assert!(rows.iter().all(|w| *w < 1e-4), "{name} {}: {rows:?}", case.id);
            assert_eq!(case.scores.len(), 18);
            let lens: Vec<usize> = case.spans.iter().map(|(a, b)| b - a).collect();
            let mut worst = 0f64;
            for (key, want) in &case.scores {
                let input = score_input(&read, &lens, key);
                let got = score(&input).unwrap();
                let mut start = 0;
                let mut share_undecided = vec![];
                for (chunk, got) in got.iter().enumerate() {
                    let tokens = start..start + got.n_tokens;
                    start = tokens.end;
                    let mut of_chunk = 0.0;
                    for (head, got) in got.heads.iter().enumerate() {
                        let responses = head_responses(&input, head).unwrap();
                        let of_head =
                            undecided(input.statistic, responses[tokens.clone()].iter(), responses.len());
                        of_chunk += of_head / golden.heads.len() as f64;
                        let apart = (got.score - case.head_scores[key][chunk][head]).abs();
                        worst = worse(worst, apart - of_head);
                    }
                    share_undecided.push(of_chunk);
                }
                let values: Vec<f64> = got.iter().map(|g| g.value).collect();
                assert_same(&values, want, &share_undecided, &format!("{name} {} {key}", case.id));
            }
            println!("{name} {}: scores of heads within {worst:.2e}", case.id);
            assert!(worst < 1e-3, "{name} {}: {worst}", case.id);
        }
        assert_idle(&engine);
    }
}

/// How far the rows are from the reference: control, last token, mean over the tail.
fn rows_apart(read: &Read4, case: &Case) -> [f64; 3] {
    [
        worst(&read.control, &case.rows_control),
        worst(&read.query[&Read::Last], &case.rows_query),
        worst(&read.query[&Read::QueryMean], &case.rows_query_mean),
    ]
}

/// What the method `key` scores.
fn score_input<'a>(read: &'a Read4, chunk_lens: &'a [usize], key: &str) -> ScoreInput<'a> {
    let method = method(key);
    let control = match method.control {
        Control::QueryFree => Some(&read.control),
        Control::NullQuery => Some(&read.null[&method.read]),
        Control::None => None,
    };
    let conditioned = &read.query[&method.read];
    ScoreInput { chunk_lens, conditioned, control, statistic: method.statistic }
}

/// What 8-bit activations cost: prints rows, scores, pairs of chunks that change places and the length of equal
/// greedy text, against PyTorch in f32 on the same weights; and holds them to about twice what was measured.
#[test]
fn eight_bit_activations_stay_close_to_the_reference() {
    for ((name, file), (row_limit, score_limit, pairs_limit)) in MODELS.into_iter().zip(INT8_LIMITS) {
        let (Some(file), Some(golden)) = (model_file(file), golden_file(name)) else { continue };
        let engine = engine(&file, Compute::Int8);
        let (mut worst_row, mut worst_score, mut sum, mut n, mut turned, mut pairs) =
            (0f64, 0f64, 0.0, 0, 0, 0);
        for case in &golden.cases {
            let read = read_case(&engine, &golden.heads, case);
            worst_row = rows_apart(&read, case).into_iter().fold(worst_row, worse);
            let lens: Vec<usize> = case.spans.iter().map(|(a, b)| b - a).collect();
            for (key, want) in &case.scores {
                let got = score(&score_input(&read, &lens, key)).unwrap();
                let got: Vec<f64> = got.iter().map(|s| s.value).collect();
                for (i, (a, b)) in got.iter().zip(want).enumerate() {
                    worst_score = worse(worst_score, (a - b).abs());
                    sum += (a - b).abs();
                    n += 1;
                    // a pair of chunks that the reference tells apart
                    for j in (0..i).filter(|&j| (want[i] - want[j]).abs() > 1e-9) {
                        pairs += 1;
                        turned += usize::from((got[i] - got[j]) * (want[i] - want[j]) < 0.0);
                    }
                }
            }
            let request = generate_request(case.chat_ids.clone(), case.greedy_64.len());
            let got = ids(&generate(&engine, &request).unwrap());
            let equal = got.iter().zip(&case.greedy_64).take_while(|(a, b)| a == b).count();
            println!("{name} {}: first {equal} of {} greedy tokens equal", case.id, case.greedy_64.len());
        }
        let (mean, share) = (sum / f64::from(n), turned as f64 / pairs as f64);
        println!(
            "{name}: rows within {worst_row:.1e}; scores within {worst_score:.3}, {mean:.4} on average; {turned} of {pairs} pairs turned"
        );
        assert!(worst_row < row_limit && mean < score_limit && share < pairs_limit, "{name}");
    }
}

/// Per model: largest error of a row's value, mean error of a score, share of pairs that change places.
const INT8_LIMITS: [(f64, f64, f64); 2] = [(3e-2, 4e-3, 0.04), (4e-2, 3e-3, 0.02)];

/// `last/query_free/entropy`.
fn method(key: &str) -> Method {
    let parts: Vec<&str> = key.split('/').collect();
    Method {
        read: parts[0].parse().unwrap(),
        control: parts[1].parse().unwrap(),
        statistic: parts[2].parse().unwrap(),
    }
}

#[test]
fn greedy_continuations_equal_the_reference() {
    for (name, file) in MODELS {
        let (Some(file), Some(golden)) = (model_file(file), golden_file(name)) else { continue };
        let engine = engine(&file, Compute::F32);
        for case in &golden.cases {
            let stop = case.greedy_64[case.greedy_64.len() - 1];
            let stop_tokens = if case.greedy_64.len() < 64 { vec![stop] } else { vec![] };
            let request =
                qrae::engine::GenerateRequest { stop_tokens, ..generate_request(case.chat_ids.clone(), 64) };
            let got = generate(&engine, &request).unwrap();
            assert_eq!(ids(&got), case.greedy_64, "{name} {}", case.id);
        }
    }
}

#[test]
fn the_contract_holds_on_a_real_model() {
    let Some(file) = model_file(MODELS[0].1) else { return };
    let decoder = || load::gguf(&GgufFile::open(&file).unwrap(), None, Compute::Int8).unwrap();
    let request = RowsRequest {
        prefix: (0..300).map(|i| 1000 + (i * 37) % 20_000).collect(),
        tails: vec![
            Tail::read_last((0..20).map(|i| 500 + i).collect(), 20),
            Tail::read_last((0..7).map(|i| 900 + i).collect(), 7),
        ],
        control: true,
        heads: heads(&["L7H4", "L14H3"]),
        candidates: vec![Span::new(40, 150), Span::new(152, 290)],
        salt: Salt::none(),
    };
    let run = |config: EngineConfig, times: usize| {
        let engine = EngineHandle::start(decoder(), &EngineConfig { kv_blocks: 64, ..config }).unwrap();
        let all: Vec<_> = (0..times).map(|_| numbers(&rows(&engine, &request).unwrap())).collect();
        assert_idle(&engine);
        all
    };
    let truth = run(EngineConfig { prefix_cache: false, early_exit: false, threads: 1, ..roomy() }, 1);
    let chunk = |n| qrae::sched::SchedConfig {
        max_batched_tokens: n,
        prefill_chunk: n,
        prefill_beside_decode: n,
        max_sequences: 8,
    };
    for sched in [roomy().sched, chunk(64), chunk(7), chunk(1)] {
        for got in run(EngineConfig { sched, ..roomy() }, 2) {
            assert!(got == truth[0], "other bits under {sched:?}");
        }
    }
    // beside a chat and other scores, in a pool so small that they evict one another
    let config = EngineConfig { kv_blocks: 30, sched: chunk(64), ..roomy() };
    let engine = EngineHandle::start(decoder(), &config).unwrap();
    let others: Vec<RowsRequest> = (1..4)
        .map(|i| RowsRequest { prefix: request.prefix.iter().map(|t| t + i).collect(), ..request.clone() })
        .collect();
    let mut chat = engine.generate(generate_request(request.prefix[..100].to_vec(), 60));
    let pending: Vec<_> = [&others[0], &request, &others[1]].map(|r| engine.rows(r.clone())).into();
    let together: Vec<_> =
        pending.into_iter().map(|p| numbers(&p.blocking_recv().unwrap().unwrap())).collect();
    assert!(together[1] == truth[0], "other bits beside others");
    assert_eq!(collect(&mut chat[0]).unwrap().len(), 60);
    for other in &others {
        rows(&engine, other).unwrap();
    }
    let evicted = rows(&engine, &request).unwrap();
    assert_eq!(evicted.cached_tokens, 0, "nothing was evicted, so this proves nothing");
    assert!(numbers(&evicted) == truth[0], "other bits after eviction");
    assert_idle(&engine);
}
