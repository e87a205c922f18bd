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

/// The data's name in records: its path's last part.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        format!("{:#}", read(path, 1, true).unwrap_err())
    }

    #[test]
    fn a_beir_folder_is_searched_by_bm25() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        assert!(error(home.path()).contains("a BEIR folder holds corpus.jsonl"), "{}", error(home.path()));
        let filler: String = (0..20)
            .map(|i| format!("{{\"_id\": \"f{i}\", \"title\": \"\", \"text\": \"herring number {i}\"}}\n"))
            .collect();
        write(
            "corpus.jsonl",
            &format!(
                "{filler}{{\"_id\": \"lamp\", \"title\": \"Lamps\", \"text\": \"Who tends the lighthouse\"}}\n"
            ),
        );
        write(
            "queries.jsonl",
            "{\"_id\": \"q1\", \"text\": \"lighthouse herring\"}\n{\"_id\": \"q2\", \"text\": \"lighthouse\"}\n",
        );
        assert!(error(home.path()).contains("qrels"), "{}", error(home.path()));
        fs::create_dir(home.path().join("qrels")).unwrap();
        let qrels = "query-id\tcorpus-id\tscore\nq1\tlamp\t2\n";
        write("qrels/test.tsv", &format!("{qrels}q2\tf19\t1\n"));
        let found = read(home.path(), 1, true).unwrap();
        assert_eq!(found.len(), 1, "BM25 puts f19 behind others for q2, so that one is left out");
        let question = &found[0];
        assert_eq!((question.query.as_str(), question.chunks.len()), ("lighthouse herring", BEIR_CANDIDATES));
        assert_eq!(question.chunks[0].title.as_deref(), Some("Lamps"), "the rarer word counts more");
        let labels = question.labels.as_ref().unwrap();
        assert_eq!((labels[0], labels[1..].iter().sum::<u32>()), (2, 0));

        write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq2\tf19\t1\n");
        assert!(error(home.path()).contains("for none of 1 judged queries"), "{}", error(home.path()));
    }

    #[test]
    fn one_input_is_drawn_of_each_trajectory() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("runs.jsonl");
        let line = |run: usize, search: usize| {
            format!(
                "{{\"query\": \"search {search}\", \"chunks\": [\"a\", \"b\"], \"answer\": \"a\", \"trajectory_id\": \"run{run}\"}}\n"
            )
        };
        let text: String = (0..6).flat_map(|run| (0..5).map(move |search| line(run, search))).collect();
        fs::write(&file, text).unwrap();
        let of = |seed| {
            let found = read(&file, seed, true).unwrap();
            let runs: Vec<_> = found.iter().map(|q| q.trajectory.clone().unwrap()).collect();
            assert_eq!(runs, (0..6).map(|run| format!("run{run}")).collect::<Vec<_>>());
            found.into_iter().map(|q| q.query).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert!((2..9).any(|seed| of(seed) != of(1)), "another seed, another draw");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("data.json");
        assert!(error(&file).contains("data.json cannot be read"), "{}", error(&file));
        for (text, says) in [
            ("", "there is nothing in it"),
            (" \n", "there is nothing in it"),
            ("[]", "there are no questions in it"),
            ("Once upon a time", "not JSON"),
            ("{\"query\": \"q\"}", "is of no known form; known are HotpotQA"),
        ] {
            fs::write(&file, text).unwrap();
            assert!(error(&file).contains(says), "{text:?}: {}", error(&file));
        }
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(error(&file).contains("cannot be read"), "{}", error(&file));
    }

    #[test]
    fn data_is_named_without_its_place() {
        assert_eq!(name(Path::new("/a/b/hotpot.json")), "hotpot.json");
        assert_eq!(name(Path::new("beir/scifact/")), "scifact");
        assert_eq!(name(Path::new("..")), "..");
    }
}
