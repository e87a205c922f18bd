//! `qrae eval`: how well scores rank on labelled questions, beside everything they should be compared with.

mod table;

use std::{collections::HashSet, fs, num::NonZeroUsize, path::PathBuf};

use anyhow::Context;
use clap::{Args, builder::FalseyValueParser};

use super::{
    args::{EngineArgs, ModelArgs},
    load::{self, Ready},
    localize::{identity, observe},
    questions,
};
use crate::{
    eval::{
        bm25::Bm25,
        question::Question,
        sample::{permutation, sample},
    },
    ids::HeadRef,
    score::Method,
    study::{
        folder::{Folder, Record},
        judge::{JudgeOptions, OrderSensitivity, TestQuestion, judge, order_sensitivity},
    },
};

const MORE: &str = "\
Rows:
  NAME@HASH, METHOD           the head set at hand, by its method
  paper: by answer mass     * the two heads with most attention on the answer, as in the paper
  by QRHead's score         * the two heads that QRHead would choose, by the paper's method
  search                    * heads, their number and the method, all chosen by AUROC
  by AUROC, METHOD          * heads chosen by AUROC for this method; a row for each of 24 methods
  random heads, METHOD        as many as the head set has, drawn 20 times: the mean, and from the
                              5th to the 95th percentile of the draws
  QRHead                    * the 16 heads with the best QRHead score, by that score
  in-context reranking (ICR)  all heads, by attention less that of the N/A query
  BM25                        words that query and chunk share; no model
  retrieval order             the chunks as they came
  oracle: the labels          the best there can be
Rows with * choose heads on the questions of --calibration FOLDER, and are only there with it.
Means over questions with 95 % intervals (bootstrap); ties keep the order of retrieval.

Examples:
  qrae eval labelled.jsonl                        with the model's own head set
  qrae localize train.json --search --out study/mine
  qrae eval test.json --calibration study/mine --head-set study/mine/heads.toml --out eval/mine";

/// Measure how well scores tell relevant chunks from others
#[derive(Args, Debug)]
#[command(after_help = MORE)]
pub(super) struct EvalArgs {
    /// Labelled questions: HotpotQA, labelled chunks, a BEIR folder, or a dataset on the hub
    #[arg(value_name = "DATA", long_help = questions::FORMS)]
    data: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// A head set's name, or a .toml file of one [default: the model's own]
    #[arg(long, env = "QRAE_HEAD_SET", value_name = "NAME|FILE")]
    head_set: Option<String>,
    /// A study's folder: its questions choose the heads of the other rows, and are not measured on
    #[arg(long, env = "QRAE_CALIBRATION", value_name = "FOLDER")]
    calibration: Option<PathBuf>,
    /// Most questions, drawn with --seed [default: all]
    #[arg(long, env = "QRAE_N", value_name = "N")]
    n: Option<NonZeroUsize>,
    /// Cut-off of recall and nDCG
    #[arg(long, env = "QRAE_CUT", value_name = "K", default_value = "3")]
    cut: NonZeroUsize,
    /// Also score each question with its chunks in so many random orders; each takes as long as the first
    #[arg(long, env = "QRAE_PERMUTATIONS", value_name = "N", default_value_t = 0)]
    permutations: usize,
    /// Seed of every draw
    #[arg(long, env = "QRAE_SEED", value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Folder for observations, the table (table.md, table.json) and pictures [default: eval/MODEL]
    #[arg(long, env = "QRAE_OUT", value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print JSON in place of the table
    #[arg(long, env = "QRAE_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(super) fn run(args: &EvalArgs) -> anyhow::Result<()> {
    let mut options = args.engine.options();
    options.head_set = args.head_set.as_ref().map(PathBuf::from);
    let calibration = args.calibration.as_ref().map(|path| Folder::open(path)).transpose()?;
    let records = calibration.as_ref().map(Folder::all).transpose()?.unwrap_or_default();
    let all = questions::read(&args.data, args.seed, args.model.offline)?;
    let labelled = labelled(all, &records)?;
    let drawn = sample(labelled, args.n.map_or(usize::MAX, NonZeroUsize::get), args.seed);
    let ready = load::load(&args.model, &options, true)?;
    let identity = identity(&ready);
    if let Some(calibration) = &calibration {
        calibration.must_be(&identity)?;
    }
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("eval").join(&identity.model));
    let folder = Folder::create(&out, &identity)?;
    must_differ(&folder, calibration.as_ref())?;
    let set = head_set(&ready)?;
    anyhow::ensure!(
        args.permutations == 0 || set.is_some(),
        "--permutations scores with a head set, and this model has none; name one with --head-set"
    );
    let asked: Vec<&Question> = drawn.iter().collect();
    observe(&ready, &folder, &asked, &questions::name(&args.data))?;
    let tests = tests(&folder, &asked)?;
    let judge_options = JudgeOptions { set, n_heads: identity.n_heads, k: args.cut.get(), seed: args.seed };
    let judgement = judge(&tests, &records, &judge_options)?;
    let order = match &judge_options.set {
        Some((_, heads, method)) if args.permutations > 0 => {
            Some(orders(&ready, &folder, &asked, (heads, *method), args)?)
        }
        _ => None,
    };
    let report = table::Report { judgement: &judgement, order, identity: &identity, data: &args.data };
    report.write(&out)?;
    report.print(args.json, &out)
}

/// Test questions must not get among those that heads are chosen on.
fn must_differ(folder: &Folder, calibration: Option<&Folder>) -> anyhow::Result<()> {
    let real = |folder: &Folder| fs::canonicalize(folder.root()).ok();
    anyhow::ensure!(
        calibration.is_none_or(|calibration| real(calibration) != real(folder)),
        "--out and --calibration are both {}; choose another folder with --out",
        folder.root().display()
    );
    Ok(())
}

/// Questions whose labels tell chunks apart and that no head was chosen on. What asks the same as a calibration record was
/// used, whatever its chunks and their order.
fn labelled(all: Vec<Question>, calibration: &[Record]) -> anyhow::Result<Vec<Question>> {
    let total = all.len();
    let tells = |q: &Question| q.labels.as_ref().is_some_and(|l| l.iter().any(|&l| l > 0) && l.contains(&0));
    let (labelled, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(tells);
    let asked: HashSet<&str> = calibration.iter().map(|record| record.query.as_str()).collect();
    let (used, fresh): (Vec<_>, Vec<_>) =
        labelled.into_iter().partition(|q| asked.contains(q.query.as_str()));
    anyhow::ensure!(
        !fresh.is_empty(),
        "no question is left to measure on: of {total}, {} are without both relevant and other chunks, {} were used to \
         choose heads",
        rest.len(),
        used.len()
    );
    for (n, why) in [
        (rest.len(), "are without both relevant and other chunks"),
        (used.len(), "were used to choose heads"),
    ] {
        if n > 0 {
            eprintln!("{n} of {total} questions are left out: they {why}");
        }
    }
    Ok(fresh)
}

fn tests(folder: &Folder, asked: &[&Question]) -> anyhow::Result<Vec<TestQuestion>> {
    let mut tests = Vec::new();
    for question in asked {
        if let Some(record) = folder.of(&[question])?.pop() {
            let texts: Vec<String> = question.chunks.iter().map(|c| c.serialise().0).collect();
            tests.push(TestQuestion { record, bm25: Bm25::new(&texts).scores(&question.query) });
        }
    }
    Ok(tests)
}

/// The head set at hand; a model without one is judged by the other rows alone.
fn head_set(ready: &Ready) -> anyhow::Result<Option<(String, Vec<HeadRef>, Method)>> {
    let Ok(set) = ready.model.head_sets.default_set() else { return Ok(None) };
    Ok(Some((set.label(), set.heads().to_vec(), set.default_method())))
}

/// Observes the questions with their chunks in other orders.
fn orders(
    ready: &Ready,
    folder: &Folder,
    asked: &[&Question],
    (heads, method): (&[HeadRef], Method),
    args: &EvalArgs,
) -> anyhow::Result<OrderSensitivity> {
    let n_heads = folder.identity().n_heads;
    let asked: Vec<&Question> = asked.iter().filter(|q| folder.has(q)).copied().collect();
    let mut all = Vec::new();
    for number in 0..=args.permutations {
        let permuted: Vec<(Vec<usize>, Question)> =
            asked.iter().enumerate().map(|(i, q)| reordered(q, number, args.seed + i as u64)).collect();
        let these: Vec<&Question> = permuted.iter().map(|(_, q)| q).collect();
        observe(ready, folder, &these, &questions::name(&args.data))?;
        let mut scores = Vec::new();
        for (order, question) in &permuted {
            let record = folder.of(&[question])?.pop();
            let record = record.with_context(|| format!("question {} was not observed", question.id))?;
            let mut back = vec![0.0; order.len()];
            for (&at, score) in order.iter().zip(record.scores(heads, method, n_heads)?) {
                back[at] = score;
            }
            scores.push(back);
        }
        all.push(scores);
    }
    let labels: Vec<Vec<u32>> = asked.iter().map(|q| q.labels.clone().unwrap_or_default()).collect();
    Ok(order_sensitivity(&all, &labels, args.cut.get())?)
}

/// The question with its chunks in the `number`-th order, 0 being its own; and where each chunk came from.
fn reordered(question: &Question, number: usize, seed: u64) -> (Vec<usize>, Question) {
    let n = question.chunks.len();
    let order: Vec<usize> = if number == 0 { (0..n).collect() } else { permutation(n, seed, number as u64) };
    let labels = question.labels.as_ref();
    let reordered = Question {
        chunks: order.iter().map(|&i| question.chunks[i].clone()).collect(),
        labels: labels.map(|labels| order.iter().map(|&i| labels[i]).collect()),
        ..question.clone()
    };
    (order, reordered)
}
