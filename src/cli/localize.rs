//! `qrae localize`: finds the heads of a model, and says how good they are.

mod choice;
mod files;
mod identity;
mod observe;
mod show;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    str::FromStr,
    time::Instant,
};

use clap::{Args, Subcommand};

use super::{
    args::{EngineArgs, ModelArgs},
    load, questions,
    terminal::tell,
};
use crate::{
    eval::{
        answer::{Usability, usability},
        question::Question,
        sample::sample_where,
    },
    study::{
        find::{Criterion, check_k, find},
        folder::{Folder, Kind, Record, Run},
    },
};

use choice::ChoiceArgs;
pub(super) use files::remove_pictures;
pub(super) use identity::identity;
pub(super) use observe::observe;

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

pub(super) fn run(args: &LocalizeArgs) -> anyhow::Result<()> {
    match (&args.command, &args.data) {
        (Some(LocalizeCommand::Merge(merge)), _) => merge_folders(merge),
        (None, Some(data)) => localize(args, data),
        (None, None) => anyhow::bail!("DATA is missing; see qrae localize --help"),
    }
}

fn merge_folders(args: &MergeArgs) -> anyhow::Result<()> {
    let begin = Instant::now();
    let open = |folder: &PathBuf| Folder::open(folder, Kind::Study);
    let parts = args.folders.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let identity = parts[0].identity();
    check_k(args.choice.k.map(usize::from), identity.n_layers * identity.n_heads)?;
    args.choice.criterion()?;
    let root = args.choice.out.clone().unwrap_or_else(|| default_out("study", &identity.model));
    let (folder, taken) = Folder::merge(&root, &parts)?;
    for (part, taken) in parts.iter().zip(taken) {
        tell(format_args!("{taken} observations taken from {}", part.root().display()));
    }
    let runs = folder.runs()?;
    let data: BTreeSet<&str> = runs.iter().map(|run| run.data.as_str()).collect();
    let data = data.into_iter().collect::<Vec<_>>().join(", ");
    conclude(&folder, &folder.all()?, &args.choice, &data, (begin, None))
}

/// The folder of a model where none was named. The name may come out of a file, and must not lead elsewhere.
pub(super) fn default_out(command: &str, model: &str) -> PathBuf {
    let last = Path::new(model).file_name().map_or("model".into(), |name| name.to_string_lossy());
    Path::new(command).join(last.replace(|c: char| c.is_control() || c == '\\', "_"))
}

fn localize(args: &LocalizeArgs, data: &Path) -> anyhow::Result<()> {
    let begin = Instant::now();
    let criterion = args.choice.criterion()?;
    if let Some(out) = &args.choice.out {
        Folder::may_be(out, Kind::Study)?;
    }
    let usable = |question: &Question| useless(question, criterion).is_none();
    let all = questions::read(data, args.choice.seed, args.model.offline, usable)?;
    count_useless(&all, criterion)?;
    let drawn = sample_where(all, args.n.get(), args.choice.seed, usable);
    let options = args.engine.options();
    let ready = load::load(&args.model, &options, true)?;
    let identity = identity(&ready, Kind::Study)?;
    check_k(args.choice.k.map(usize::from), identity.n_layers * identity.n_heads)?;
    let root = args.choice.out.clone().unwrap_or_else(|| default_out("study", &identity.model));
    let folder = Folder::create(&root, &identity)?;
    let shard = args.shard.unwrap_or(Shard { number: 1, count: 1 });
    let inputs: Vec<&Question> = (0..drawn.len()).filter(|&i| shard.has(i)).map(|i| &drawn[i]).collect();
    let nothing_left = observe(&ready, &folder, &inputs)?;
    let name = questions::name(data);
    let run = Run::new(&name, args.choice.seed, &drawn, (shard.number, shard.count));
    folder.finish(&run.with(folder.observed(&inputs)))?;
    if args.shard.is_some() {
        if let Some(told) = nothing_left {
            tell(told);
        }
        return say_part(shard, (inputs.len(), drawn.len()), &root, &args.choice);
    }
    if let Some(told) = nothing_left {
        anyhow::bail!(told);
    }
    conclude(&folder, &folder.of(&inputs)?, &args.choice, &name, (begin, Some(&args.model.model)))
}

/// Says what a part of several has, and how the parts become a whole.
fn say_part(
    shard: Shard,
    (n, drawn): (usize, usize),
    root: &Path,
    choice: &ChoiceArgs,
) -> anyhow::Result<()> {
    let Shard { number, count } = shard;
    let root = root.display();
    let done = match n {
        0 => format!("part {number} of {count} has no inputs, as {drawn} were drawn"),
        _ => format!("part {number} of {count} is observed in {root}: {n} of {drawn} inputs"),
    };
    let flags = choice.flags();
    writeln!(
        io::stdout().lock(),
        "{done}\nwhen all parts are: qrae localize merge {root} OTHERS …{flags} --out study"
    )?;
    Ok(())
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
        tell(format_args!("{usable} of {total} questions can be used; left out: {left_out}"));
    }
    Ok(())
}

/// Chooses heads from the records of `data`, writes what was found into the folder, and shows it. `model` is the model as it
/// was named.
fn conclude(
    folder: &Folder,
    records: &[Record],
    choice: &ChoiceArgs,
    data: &str,
    (begin, model): (Instant, Option<&str>),
) -> anyhow::Result<()> {
    let found = find(records, folder.identity().n_heads, &choice.options()?)?;
    files::write(folder, &found, data, choice.seed)?;
    show::print(&found, folder, begin.elapsed(), model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_leads_nowhere_else() {
        for (model, folder) in [
            ("qwen", "study/qwen"),
            ("/etc/x", "study/x"),
            ("../../x", "study/x"),
            ("", "study/model"),
            ("..", "study/model"),
            ("/", "study/model"),
            ("a\u{1b}[31m", "study/a_[31m"),
        ] {
            assert_eq!(default_out("study", model), Path::new(folder), "{model:?}");
        }
    }

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
