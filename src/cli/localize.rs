//! `qrae localize`: finds the heads of a model, and says how good they are.

mod files;
mod show;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    str::FromStr,
    time::Instant,
};

use anyhow::Context;
use clap::{Args, Subcommand, builder::FalseyValueParser};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    args::{EngineArgs, ModelArgs},
    load::{self, Ready},
    questions,
};
use crate::{
    eval::{
        answer::{Usability, usability},
        question::Question,
        sample::sample_where,
        select::Growth,
    },
    score::{Control, Method, Read, Statistic},
    service::ServiceError,
    study::{
        find::{Criterion, FindOptions, check_k, find},
        folder::{FORMAT, Folder, Identity, Record},
    },
};

const MORE: &str = "\
The study's folder (--out) keeps what was observed of each input, so an interrupted run goes on
where it was, and other criteria and methods are tried in a second. It holds the head set
(heads.toml), the heatmap and other pictures as SVG and PNG, heatmap.csv, and run.json with
everything that was found.

By AUROC, some questions are held out in turn: --search needs 7 labelled questions, --criterion
auroc 7 too, or 5 with --k; dozens are better. --criterion qrhead takes any number.

Examples:
  qrae localize hotpot.json --search                   heads, method and number of heads by AUROC;
                                                       the paper's way may end at chance
  qrae localize hotpotqa/hotpot_qa --search            the same, the questions fetched from the hub
  qrae localize hotpot.json                            the paper's way: attention on the answer
  qrae localize labelled.jsonl --criterion qrhead      with few questions
  qrae localize labelled.jsonl --criterion auroc --control null_query --read query_mean
  qrae localize hotpot.json --shard 3/8 --out part-3   one job of eight
  qrae localize merge part-1 part-2 … --out study      puts them together
  qrae serve --head-set study/heads.toml               uses what was found";

/// Find the attention heads that a model is scored with
///
/// Runs labelled questions through the model, reads every head, and chooses the heads that tell relevant chunks.
#[derive(Args, Debug)]
#[command(after_help = MORE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct LocalizeArgs {
    #[command(subcommand)]
    command: Option<LocalizeCommand>,
    /// Labelled questions: HotpotQA, trajectories, labelled chunks, a BEIR folder, or a dataset on the hub
    #[arg(value_name = "DATA", required = true, long_help = questions::FORMS)]
    data: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// How many questions, drawn of those that can be used
    #[arg(long, env = "QRAE_N", value_name = "N", default_value = "100")]
    n: NonZeroUsize,
    /// Observe only every COUNT-th input, beginning with the I-th; `merge` puts the folders together
    #[arg(long, env = "QRAE_SHARD", value_name = "I/COUNT")]
    shard: Option<Shard>,
    #[command(flatten)]
    choice: ChoiceArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Debug, Subcommand)]
enum LocalizeCommand {
    Merge(MergeArgs),
}

/// Put studies of the same model together, and choose heads from all of it
#[derive(Args, Debug)]
struct MergeArgs {
    /// Folders of studies
    #[arg(value_name = "FOLDER", required = true)]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    choice: ChoiceArgs,
}

/// How heads are chosen.
#[derive(Args, Debug)]
struct ChoiceArgs {
    /// The study's folder [default: study/MODEL]
    #[arg(long, env = "QRAE_OUT", value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// By what heads are chosen: answer_mass, qrhead or auroc [default: answer_mass, with --search auroc]
    #[arg(long, env = "QRAE_CRITERION", value_name = "NAME")]
    criterion: Option<Criterion>,
    /// Number of heads, with --search the most [default: 2; by AUROC what cross-validation says, at most 16]
    #[arg(long, env = "QRAE_K", value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    k: Option<u16>,
    /// What is computed per head: entropy, sum, breadth or scaled_sum
    #[arg(long, env = "QRAE_STATISTIC", value_name = "NAME", default_value_t = Method::default().statistic)]
    statistic: Statistic,
    /// What is subtracted: query_free, null_query or none
    #[arg(long, env = "QRAE_CONTROL", value_name = "NAME", default_value_t = Method::default().control)]
    control: Control,
    /// Where attention is read: last or query_mean
    #[arg(long, env = "QRAE_READ", value_name = "NAME", default_value_t = Method::default().read)]
    read: Read,
    /// Choose statistic, control, read position and number of heads too, by AUROC; held-out questions say what it is worth
    #[arg(long, env = "QRAE_SEARCH", value_parser = FalseyValueParser::new(),
        conflicts_with_all = ["statistic", "control", "read"])]
    search: bool,
    /// By AUROC, which heads go together: ranked (those that are best alone) or greedy (each next one adds most)
    /// [default: ranked]
    #[arg(long, env = "QRAE_GROWTH", value_name = "NAME")]
    growth: Option<Growth>,
    /// Seed of every draw
    #[arg(long, env = "QRAE_SEED", value_name = "N", default_value_t = 42)]
    seed: u64,
}

/// One of several equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    /// From 1.
    number: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parse = || {
            let (number, count) = s.split_once('/')?;
            Some(Self { number: number.parse().ok()?, count: count.parse().ok()? })
        };
        let fits = |s: &Self| (1..=s.count).contains(&s.number);
        parse()
            .filter(fits)
            .ok_or_else(|| format!("{s:?} is not I/COUNT with I from 1 to COUNT, such as 3/8"))
    }
}

impl Shard {
    fn has(self, index: usize) -> bool {
        index % self.count == self.number - 1
    }
}

impl ChoiceArgs {
    fn criterion(&self) -> anyhow::Result<Criterion> {
        let default = if self.search { Criterion::Auroc } else { Criterion::AnswerMass };
        let criterion = self.criterion.unwrap_or(default);
        anyhow::ensure!(
            !self.search || criterion == Criterion::Auroc,
            "--search compares methods by AUROC; leave --criterion {criterion} out"
        );
        anyhow::ensure!(
            self.growth.is_none() || criterion == Criterion::Auroc,
            "--growth says how sets grow by AUROC, and criterion {criterion} takes the highest means; leave it out, or add \
             --criterion auroc"
        );
        Ok(criterion)
    }

    fn options(&self) -> anyhow::Result<FindOptions> {
        Ok(FindOptions {
            criterion: self.criterion()?,
            k: self.k.map(usize::from),
            method: Method { statistic: self.statistic, control: self.control, read: self.read },
            growth: self.growth.unwrap_or(Growth::Ranked),
            search: self.search,
            seed: self.seed,
        })
    }
}

pub(super) fn run(args: &LocalizeArgs) -> anyhow::Result<()> {
    match (&args.command, &args.data) {
        (Some(LocalizeCommand::Merge(merge)), _) => merge_folders(merge),
        (None, Some(data)) => localize(args, data),
        (None, None) => anyhow::bail!("DATA is missing; see qrae localize --help"),
    }
}

fn merge_folders(args: &MergeArgs) -> anyhow::Result<()> {
    let begin = Instant::now();
    let parts = args.folders.iter().map(|f| Folder::open(f)).collect::<Result<Vec<_>, _>>()?;
    let identity = parts[0].identity();
    let folder = Folder::create(&out(&args.choice, &identity.model), identity)?;
    for part in &parts {
        let taken = folder.take_from(part)?;
        eprintln!("{taken} observations taken from {}", part.root().display());
    }
    conclude(&folder, &folder.all()?, &args.choice, begin, None)
}

fn out(choice: &ChoiceArgs, model: &str) -> PathBuf {
    choice.out.clone().unwrap_or_else(|| Path::new("study").join(model))
}

fn localize(args: &LocalizeArgs, data: &Path) -> anyhow::Result<()> {
    let begin = Instant::now();
    let criterion = args.choice.criterion()?;
    let all = questions::read(data, args.choice.seed, args.model.offline)?;
    count_useless(&all, criterion)?;
    let usable = |question: &Question| useless(question, criterion).is_none();
    let drawn = sample_where(all, args.n.get(), args.choice.seed, usable);
    let options = args.engine.options();
    let ready = load::load(&args.model, &options, true)?;
    let identity = identity(&ready);
    check_k(args.choice.k.map(usize::from), identity.n_layers * identity.n_heads)?;
    let folder = Folder::create(&out(&args.choice, &identity.model), &identity)?;
    let mine = |i: &usize| args.shard.is_none_or(|shard| shard.has(*i));
    let inputs: Vec<&Question> = (0..drawn.len()).filter(mine).map(|i| &drawn[i]).collect();
    observe(&ready, &folder, &inputs, &questions::name(data))?;
    if let Some(shard) = args.shard {
        println!(
            "part {} of {} is observed in {}\nwhen all are: qrae localize merge FOLDER … --out study",
            shard.number,
            shard.count,
            folder.root().display()
        );
        return Ok(());
    }
    let records = folder.of(&inputs)?;
    conclude(&folder, &records, &args.choice, begin, Some(&args.model.model))
}

/// What belongs to the observations of this model.
pub(super) fn identity(ready: &Ready) -> Identity {
    let model = &ready.model;
    let spec = model.engine.spec();
    Identity {
        format: FORMAT,
        model: ready.card.as_ref().map_or(&model.id, |card| &card.id).clone(),
        n_layers: spec.n_layers,
        n_heads: spec.n_heads,
        prompt_hash: model.prompt_hash.clone(),
        tokenizer_hash: model.tokenizer.hash().to_owned(),
        compute: model.compute.to_string(),
        methods: Identity::current_methods(),
    }
}

/// Why the criterion cannot use the question; nothing when it can.
fn useless(question: &Question, criterion: Criterion) -> Option<&'static str> {
    let labels = question.labels.as_deref().unwrap_or_default();
    let tells = labels.iter().any(|&l| l > 0) && labels.contains(&0);
    match (criterion, usability(question)) {
        (Criterion::AnswerMass, Usability::YesNo) => Some("answered by yes or no"),
        (Criterion::AnswerMass, Usability::NoAnswer) => Some("without an answer"),
        (Criterion::AnswerMass, Usability::NotInText) => Some("whose answer stands in no chunk"),
        (Criterion::QrHead | Criterion::Auroc, _) if !tells => Some("without both relevant and other chunks"),
        _ => None,
    }
}

/// Says how many questions cannot be used, and why.
///
/// # Errors
/// When none can.
fn count_useless(all: &[Question], criterion: Criterion) -> anyhow::Result<()> {
    let total = all.len();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in all.iter().filter_map(|question| useless(question, criterion)) {
        *reasons.entry(reason).or_default() += 1;
    }
    let usable = total - reasons.values().sum::<usize>();
    let left_out: Vec<String> = reasons.iter().map(|(why, n)| format!("{n} {why}")).collect();
    let left_out = left_out.join(", ");
    anyhow::ensure!(
        usable > 0,
        "none of {total} questions can be used for criterion {criterion}: {left_out}; {}",
        criterion.advice()
    );
    if usable < total {
        eprintln!("{usable} of {total} questions can be used; left out: {left_out}");
    }
    Ok(())
}

/// Observes the inputs that are not in the folder yet, which come from `data`. Those that do not fit the model are left
/// out and counted.
pub(super) fn observe(
    ready: &Ready,
    folder: &Folder,
    inputs: &[&Question],
    data: &str,
) -> anyhow::Result<()> {
    let missing: Vec<&Question> = inputs.iter().filter(|q| !folder.has(q)).copied().collect();
    if missing.len() < inputs.len() {
        eprintln!(
            "{} inputs were observed before, in {}",
            inputs.len() - missing.len(),
            folder.root().display()
        );
    }
    let style = ProgressStyle::with_template("observing {wide_bar} {pos}/{len} inputs, {eta} left")
        .expect("a fixed template: this is a bug");
    let bar = ProgressBar::new(missing.len() as u64).with_style(style);
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    let mut too_long = Vec::new();
    for question in &missing {
        match ready.model.observe(question) {
            Ok(observed) => folder.keep(question, data, &observed.observation)?,
            Err(error @ ServiceError::TooLong { .. }) => too_long.push(format!("{}: {error}", question.id)),
            Err(error) => return Err(error).with_context(|| format!("question {}", question.id)),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(first) = too_long.first() {
        let told = format!(
            "{} of {} inputs are too long for the model (question {first})",
            too_long.len(),
            inputs.len()
        );
        anyhow::ensure!(too_long.len() < inputs.len(), "{told}; give shorter ones, or raise --max-model-len");
        eprintln!("{told}; they are left out");
    }
    Ok(())
}

/// Chooses heads from the records, writes what was found into the folder, and shows it. `model` is the model as it was named.
fn conclude(
    folder: &Folder,
    records: &[Record],
    choice: &ChoiceArgs,
    begin: Instant,
    model: Option<&str>,
) -> anyhow::Result<()> {
    let found = find(records, folder.identity().n_heads, &choice.options()?)?;
    let data: BTreeSet<&str> = records.iter().map(|r| r.data.as_str()).collect();
    let data = data.into_iter().collect::<Vec<_>>().join(", ");
    files::write(folder, &found, &data, choice.seed)?;
    show::print(&found, folder, begin.elapsed(), model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_parts_that_make_a_whole() {
        let of = |text: &str| text.parse::<Shard>();
        assert_eq!(of("3/8"), Ok(Shard { number: 3, count: 8 }));
        for text in ["0/3", "4/3", "0/0", "1/0", "3", "a/b", "1/2/3", "-1/3", ""] {
            assert!(of(text).unwrap_err().contains("such as 3/8"), "{text}");
        }
        for count in 1..5 {
            let parts: Vec<Shard> = (1..=count).map(|number| Shard { number, count }).collect();
            for i in 0..20 {
                assert_eq!(
                    parts.iter().filter(|shard| shard.has(i)).count(),
                    1,
                    "input {i} of {count} parts"
                );
            }
        }
    }
}
