//! `qrae eval`: how well scores rank on labelled questions, beside everything they should be compared with.

mod table;

use std::{collections::HashSet, num::NonZeroUsize, path::PathBuf};

use anyhow::Context;
use clap::{Args, builder::FalseyValueParser};

use super::{
    args::{EngineArgs, ModelArgs},
    load,
    localize::{default_out, identity, observe, remove_pictures},
    questions,
    terminal::tell,
};
use crate::{
    eval::{
        bm25::Bm25,
        question::Question,
        sample::{permutation, sample},
    },
    ids::HeadRef,
    score::{Method, heads::HeadSet},
    study::{
        folder::{Folder, Kind, Record},
        judge::{JudgeOptions, OrderSensitivity, TestQuestion, judge, order_sensitivity},
    },
    text::shown,
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
    if let Some(out) = &args.out {
        Folder::may_be(out, Kind::Evaluation)?;
    }
    let calibration = args.calibration.as_ref().map(|path| Folder::open(path, Kind::Study)).transpose()?;
    let records = calibration.as_ref().map(records).transpose()?.unwrap_or_default();
    let mut pool =
        Pool::new(questions::read(&args.data, args.seed, args.model.offline, Question::tells_apart)?);
    pool.tell_apart()?;
    let ready = load::load(&args.model, &options, true)?;
    let identity = identity(&ready, Kind::Evaluation)?;
    if let Some(calibration) = &calibration {
        calibration
            .must_be(&identity, "choose another --calibration, or the model and flags it was made with")?;
    }
    pool.not_used(&records)?;
    let drawn = sample(pool.tell(), args.n.map_or(usize::MAX, NonZeroUsize::get), args.seed);
    let set = ready.model.head_sets.default_set().ok(); // a model without one is judged by the other rows alone
    anyhow::ensure!(
        args.permutations == 0 || set.is_some(),
        "--permutations scores with a head set, and this model has none; name one with --head-set"
    );
    let root = args.out.clone().unwrap_or_else(|| default_out("eval", &identity.model));
    let folder = Folder::create(&root, &identity)?;
    let orders = orders(&drawn, args.permutations, args.seed);
    let all: Vec<&Question> = orders.iter().flatten().map(|(_, question)| question).collect();
    if let Some(told) = observe(&ready, &folder, &all)? {
        anyhow::bail!(told);
    }
    let tests = tests(&folder, &drawn)?;
    let heads = |set: &HeadSet| (set.label(), set.heads().to_vec(), set.default_method());
    let (k, seed) = (args.cut.get(), args.seed);
    let judge_options = JudgeOptions { set: set.map(heads), n_heads: identity.n_heads, k, seed };
    let judgement = judge(&tests, &records, &judge_options)?;
    let order = match &judge_options.set {
        Some((_, heads, method)) if args.permutations > 0 => {
            Some(sensitivity(&folder, &orders, (heads, *method), k)?)
        }
        _ => None,
    };
    let set_inputs = set.and_then(|set| set.provenance().n);
    let report =
        table::Report { judgement: &judgement, order, identity: &identity, data: &args.data, set_inputs };
    remove_pictures(&root);
    report.write(&root)?;
    report.print(args.json, &root)
}

/// What heads are chosen on.
fn records(calibration: &Folder) -> anyhow::Result<Vec<Record>> {
    let records = calibration.all()?;
    let root = calibration.root().display();
    anyhow::ensure!(
        !records.is_empty(),
        "--calibration {root} holds no observations; `qrae localize DATA --out {root}` makes them"
    );
    Ok(records)
}

/// Questions that can be measured on, and how many of all cannot, by reason.
struct Pool {
    total: usize,
    left: Vec<Question>,
    left_out: Vec<(usize, &'static str)>,
}

impl Pool {
    fn new(all: Vec<Question>) -> Self {
        Self { total: all.len(), left: all, left_out: Vec::new() }
    }

    /// Keeps questions whose labels tell chunks apart; of those that ask the same of the same chunks, the first.
    fn tell_apart(&mut self) -> anyhow::Result<()> {
        let tells =
            |q: &Question| q.labels.as_ref().is_some_and(|l| l.iter().any(|&l| l > 0) && l.contains(&0));
        self.keep("are without both relevant and other chunks", tells)?;
        let mut seen = HashSet::new();
        let shown = |q: &Question| Question { answer: None, ..q.clone() }.content_hash();
        self.keep("ask the same of the same chunks as another", |q| seen.insert(shown(q)))
    }

    /// Keeps questions that no head was chosen on. What asks the same as a calibration record was used, whatever its chunks
    /// and their order.
    fn not_used(&mut self, calibration: &[Record]) -> anyhow::Result<()> {
        let asked: HashSet<&str> = calibration.iter().map(|record| record.query.as_str()).collect();
        self.keep("were used to choose heads", |q| !asked.contains(q.query.as_str()))
    }

    fn keep(&mut self, why: &'static str, mut wanted: impl FnMut(&Question) -> bool) -> anyhow::Result<()> {
        let before = self.left.len();
        self.left.retain(|q| wanted(q));
        self.left_out.push((before - self.left.len(), why));
        self.left_out.retain(|&(n, _)| n > 0);
        let told: Vec<String> = self.left_out.iter().map(|(n, why)| format!("{n} {why}")).collect();
        anyhow::ensure!(
            !self.left.is_empty(),
            "no question is left to measure on: of {}, {}",
            self.total,
            told.join(", ")
        );
        Ok(())
    }

    /// Says how many are left out, and gives the others.
    fn tell(self) -> Vec<Question> {
        for (n, why) in self.left_out {
            tell(format_args!("{n} of {} questions are left out: they {why}", self.total));
        }
        self.left
    }
}

fn tests(folder: &Folder, asked: &[Question]) -> anyhow::Result<Vec<TestQuestion>> {
    let mut tests = Vec::new();
    for question in asked {
        if let Some(record) = folder.of(&[question])?.pop() {
            let texts: Vec<String> = question.chunks.iter().map(|c| c.serialise().0).collect();
            tests.push(TestQuestion { record, bm25: Bm25::new(&texts).scores(&question.query) });
        }
    }
    Ok(tests)
}

/// A question with its chunks in some order, and where each chunk came from.
type Ordered = (Vec<usize>, Question);

/// The questions in their own order, and in `n` random ones.
fn orders(questions: &[Question], n: usize, seed: u64) -> Vec<Vec<Ordered>> {
    let ordered = |number: usize| {
        let each = questions.iter().zip(0..);
        each.map(|(question, i)| reordered(question, number, seed.wrapping_add(i))).collect()
    };
    (0..=n).map(ordered).collect()
}

/// What the order of the chunks changes, from the questions that were observed.
fn sensitivity(
    folder: &Folder,
    orders: &[Vec<Ordered>],
    (heads, method): (&[HeadRef], Method),
    k: usize,
) -> anyhow::Result<OrderSensitivity> {
    let n_heads = folder.identity().n_heads;
    let observed: Vec<usize> = (0..orders[0].len()).filter(|&i| folder.has(&orders[0][i].1)).collect();
    let mut all = Vec::new();
    for these in orders {
        let mut scores = Vec::new();
        for (order, question) in observed.iter().map(|&i| &these[i]) {
            let record = folder.of(&[question])?.pop();
            let record =
                record.with_context(|| format!("question {} was not observed", shown(&question.id)))?;
            let mut back = vec![0.0; order.len()];
            for (&at, score) in order.iter().zip(record.scores(heads, method, n_heads)?) {
                back[at] = score;
            }
            scores.push(back);
        }
        all.push(scores);
    }
    let labels = observed.iter().map(|&i| orders[0][i].1.labels.clone().unwrap_or_default());
    Ok(order_sensitivity(&all, &labels.collect::<Vec<_>>(), k)?)
}

/// The question with its chunks in the `number`-th order, 0 being its own.
fn reordered(question: &Question, number: usize, seed: u64) -> Ordered {
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
