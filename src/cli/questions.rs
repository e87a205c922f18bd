//! Labelled questions from a path or dataset the user named.

mod source;
mod table;

use std::{fs, path::Path};

use anyhow::Context;

use crate::{
    eval::{
        bm25::Bm25,
        data::{self, beir},
        question::Question,
    },
    hub::Resolver,
};

/// What DATA may be, for `--help`.
pub(super) const FORMS: &str = "\
DATA is one of
  HotpotQA       its distractor JSON ({\"_id\", \"question\", \"answer\", \"supporting_facts\", \"context\"}, …), array or one per line
  trajectories   one {\"query\", \"chunks\", \"answer\", \"trajectory_id\"} per line; one input is drawn of each trajectory
  labelled       one {\"query\", \"chunks\", \"labels\"} per line; 0 is not relevant
  a BEIR folder  corpus.jsonl, queries.jsonl, qrels/test.tsv; BM25 retrieves the candidates
  Parquet        a .parquet file whose rows have the fields of one of these records
  a hub dataset  OWNER/NAME[:FILE][@REVISION] with a .parquet, .json or .jsonl FILE, fetched once; hotpotqa/hotpot_qa
                 needs no FILE and is HotpotQA's validation split";

/// Chunks per query that BM25 retrieves from a BEIR corpus.
const BEIR_CANDIDATES: usize = 10;

/// Reads all questions; of trajectories one each, drawn with `seed`. A dataset on the hub is fetched, unless `offline`.
///
/// # Errors
/// When there is nothing to read or it has no known form.
pub(super) fn read(data: &Path, seed: u64, offline: bool) -> anyhow::Result<Vec<Question>> {
    let path = &source::locate(data, || Resolver::from_env(offline, true))?;
    if path.is_dir() {
        return beir_folder(path);
    }
    let text = if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
        table::json(path)?
    } else {
        fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?
    };
    let questions = data::parse_any(&path.display().to_string(), &text)?;
    let drawn = questions.iter().any(|q| q.trajectory.is_some());
    Ok(if drawn { data::trajectory::sample_per_trajectory(questions, seed) } else { questions })
}

/// BEIR's three files. The test judgements are used, or whichever one file there is.
fn beir_folder(folder: &Path) -> anyhow::Result<Vec<Question>> {
    let text = |name: &str| {
        let file = folder.join(name);
        let text = fs::read_to_string(&file);
        text.map(|text| (file.display().to_string(), text)).with_context(|| {
            format!(
                "{} cannot be read; a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/test.tsv",
                file.display()
            )
        })
    };
    let (corpus, queries, qrels) = (text("corpus.jsonl")?, text("queries.jsonl")?, text("qrels/test.tsv")?);
    let collection = beir::parse(named(&corpus), named(&queries), named(&qrels))?;
    let texts: Vec<String> = collection.documents().iter().map(|d| d.serialise().0).collect();
    let index = Bm25::new(&texts);
    let (questions, skipped) = collection.questions(BEIR_CANDIDATES, |query| index.ranking(query));
    anyhow::ensure!(
        !questions.is_empty(),
        "{}: BM25's first {BEIR_CANDIDATES} documents hold a relevant one for none of {} judged queries",
        folder.display(),
        skipped.nothing_relevant
    );
    if skipped.nothing_relevant > 0 {
        eprintln!(
            "{} of {} judged queries are left out: BM25's first {BEIR_CANDIDATES} documents hold no relevant one",
            skipped.nothing_relevant,
            questions.len() + skipped.nothing_relevant
        );
    }
    Ok(questions)
}

fn named((name, text): &(String, String)) -> beir::Source<'_> {
    beir::Source { name, text }
}
