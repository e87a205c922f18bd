//! How heads are chosen, as flags.

use std::path::PathBuf;

use clap::{Args, builder::FalseyValueParser};

use crate::{
    eval::select::Growth,
    score::{Control, Method, Read, Statistic},
    study::find::{Criterion, FindOptions},
};

const DEFAULT_SEED: u64 = 42;

/// How heads are chosen.
#[derive(Args, Debug)]
pub(super) struct ChoiceArgs {
    /// The study's folder [default: study/MODEL]
    #[arg(long, env = "QRAE_OUT", value_name = "FOLDER")]
    pub(super) out: Option<PathBuf>,
    /// By what heads are chosen: answer_mass, qrhead or auroc [default: answer_mass, with --search auroc]
    #[arg(long, env = "QRAE_CRITERION", value_name = "NAME")]
    criterion: Option<Criterion>,
    /// Number of heads, with --search the most [default: 2; by AUROC what cross-validation says, at most 16]
    #[arg(long, env = "QRAE_K", value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) k: Option<u16>,
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
    #[arg(long, env = "QRAE_SEED", value_name = "N", default_value_t = DEFAULT_SEED)]
    pub(super) seed: u64,
}

impl ChoiceArgs {
    pub(super) fn criterion(&self) -> anyhow::Result<Criterion> {
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

    pub(super) fn options(&self) -> anyhow::Result<FindOptions> {
        Ok(FindOptions {
            criterion: self.criterion()?,
            k: self.k.map(usize::from),
            method: Method { statistic: self.statistic, control: self.control, read: self.read },
            growth: self.growth.unwrap_or(Growth::Ranked),
            search: self.search,
            seed: self.seed,
        })
    }

    /// The flags that make these choices, but --out; each after a space.
    pub(super) fn flags(&self) -> String {
        let paper = Method::default();
        let unlike = |name: &str, value: String, default: String| {
            (value != default).then(|| format!(" --{name} {value}"))
        };
        [
            self.search.then(|| " --search".to_owned()),
            self.criterion.map(|c| format!(" --criterion {c}")),
            self.k.map(|k| format!(" --k {k}")),
            self.growth.map(|g| format!(" --growth {g}")),
            unlike("statistic", self.statistic.to_string(), paper.statistic.to_string()),
            unlike("control", self.control.to_string(), paper.control.to_string()),
            unlike("read", self.read.to_string(), paper.read.to_string()),
            unlike("seed", self.seed.to_string(), DEFAULT_SEED.to_string()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        choice: ChoiceArgs,
    }

    #[test]
    fn flags_are_told_as_they_were_given() {
        let told = |args: &[&str]| {
            let args = ["x"].iter().chain(args);
            Flags::try_parse_from(args).map(|flags| flags.choice.flags()).unwrap()
        };
        assert_eq!(told(&["--out", "there"]), "");
        for given in [
            "--search --k 4 --growth greedy --seed 7",
            "--criterion auroc --statistic breadth --control null_query --read query_mean",
        ] {
            assert_eq!(told(&given.split(' ').collect::<Vec<_>>()), format!(" {given}"));
        }
    }
}
