//! Labelled questions from a path or dataset the user named.

mod source;
mod table;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{
    eval::{
        bm25::Bm25,
        data::{self, beir},
        question::Question,
    },
    hub::Resolver,
    ids::counted,
    text::shown,
};

/// What DATA may be, for `--help`.
pub(super) const FORMS: &str = "\
DATA is one of
  HotpotQA       its distractor JSON ({\"_id\", \"question\", \"answer\", \"supporting_facts\", \"context\"}, …), array or one per line
  trajectories   one {\"query\", \"chunks\", \"answer\", \"trajectory_id\"} per line; one input is drawn of each trajectory
  labelled       one {\"query\", \"chunks\", \"labels\"} per line; 0 is not relevant, 1 to 31 are relevant
  a BEIR folder  of three files; the chunks of a query are the 10 documents that BM25 ranks first
                 corpus.jsonl    {\"_id\": \"d1\", \"title\": \"Lamps\", \"text\": \"Who tends them …\"} per line
                 queries.jsonl   {\"_id\": \"q1\", \"text\": \"who tends lamps?\"} per line
                 qrels/test.tsv  q1, d1 and 1 with tabs between them per line, a header before them or none;
                                 or the only .tsv file of that folder
  Parquet        a .parquet file whose rows have the fields of one of these records
  a hub dataset  OWNER/NAME:FILE[@REVISION] with a .parquet, .json or .jsonl FILE, fetched once
                 hotpotqa/hotpot_qa alone is HotpotQA's validation split";

/// Chunks per query that BM25 retrieves from a BEIR corpus.
const BEIR_CANDIDATES: usize = 10;

/// The data's name in records: a path's last part, the whole name of a dataset on the hub.
pub(super) fn name(data: &Path) -> String {
    let whole = || data.display().to_string();
    match (source::dataset(data), data.file_name()) {
        (None, Some(last)) => last.to_string_lossy().into_owned(),
        _ => whole(),
    }
}

/// Reads all questions; of trajectories one each, drawn with `seed` of those that are `usable`, if any are. A dataset on
/// the hub is fetched, unless `offline`. What is not among the questions is said on stderr.
///
/// # Errors
/// When there is nothing to read or it has no known form.
pub(super) fn read(
    data: &Path,
    seed: u64,
    offline: bool,
    usable: impl Fn(&Question) -> bool,
) -> anyhow::Result<Vec<Question>> {
    let address = data.to_str().is_some_and(|typed| typed.contains("://")) && !data.exists();
    anyhow::ensure!(
        !address,
        "{} is an address, and none is fetched; download the file, or name a dataset of the hub as OWNER/NAME:FILE",
        shown(&data.to_string_lossy())
    );
    let path = &source::locate(data, || Resolver::from_env(offline, true))?;
    let (questions, notes) = if path.is_dir() {
        beir_folder(path)?
    } else {
        let all = data::parse_any(&path.display().to_string(), &text(path)?)?;
        one_per_trajectory(all, seed, usable)
    };
    for note in notes {
        // a reader of stderr that went away is no reason to stop
        let _ = writeln!(io::stderr(), "{note}");
    }
    Ok(questions)
}

/// The text of a file, that of a table as JSON.
fn text(path: &Path) -> anyhow::Result<String> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
        return Ok(table::json(path)?);
    }
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => anyhow::anyhow!(
            "{} cannot be read: it is no text in UTF-8, and so no JSON; Parquet files are to be named .parquet",
            path.display()
        ),
        _ => anyhow::Error::new(error).context(format!("{} cannot be read", path.display())),
    })
}

/// The questions, and what is to be said of those that are not among them.
type Told = (Vec<Question>, Vec<String>);

fn one_per_trajectory(all: Vec<Question>, seed: u64, usable: impl Fn(&Question) -> bool) -> Told {
    let total = all.len();
    let drawn = data::trajectory::sample_per_trajectory(all, seed, usable);
    let note = format!("drawn: {} of {}, one of each trajectory", drawn.len(), counted(total, "question"));
    let notes = if drawn.len() < total { vec![note] } else { Vec::new() };
    (drawn, notes)
}

/// BEIR's three files.
fn beir_folder(folder: &Path) -> anyhow::Result<Told> {
    let text = |file: PathBuf| {
        let text = fs::read_to_string(&file);
        text.map(|text| (file.display().to_string(), text)).with_context(|| {
            format!(
                "{} cannot be read; a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/test.tsv",
                file.display()
            )
        })
    };
    let (corpus, queries) = (text(folder.join("corpus.jsonl"))?, text(folder.join("queries.jsonl"))?);
    let qrels = text(judgements(&folder.join("qrels"))?)?;
    let collection = beir::parse(named(&corpus), named(&queries), named(&qrels))?;
    let texts: Vec<String> = collection.documents().iter().map(|d| d.serialise().0).collect();
    let index = Bm25::new(&texts);
    let (questions, skipped) = collection.questions(BEIR_CANDIDATES, |query| index.ranking(query));
    anyhow::ensure!(
        !questions.is_empty(),
        "{}: BM25's first {BEIR_CANDIDATES} documents hold a relevant one for no judged query ({} tried)",
        folder.display(),
        skipped.nothing_relevant
    );
    let notes = notes(&skipped, questions.len());
    Ok((questions, notes))
}

/// The file of judgements: `test.tsv`, or the only one there is.
fn judgements(folder: &Path) -> anyhow::Result<PathBuf> {
    let test = folder.join("test.tsv");
    if test.exists() {
        return Ok(test);
    }
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|e| e == "tsv")).collect();
    others.sort();
    anyhow::ensure!(
        others.len() < 2,
        "{} has no test.tsv, and {} other files of judgements; leave one of them there",
        folder.display(),
        others.len()
    );
    Ok(others.pop().unwrap_or(test))
}

/// What is left out of a collection, a line each.
fn notes(skipped: &beir::Skipped, kept: usize) -> Vec<String> {
    let beir::Skipped { unjudged, nothing_relevant, unmatched_judgements, relevant, not_retrieved } =
        *skipped;
    let judged = kept + nothing_relevant;
    let all = [
        (
            unmatched_judgements,
            format!(
                "left out: {}, of a query or document that is not there",
                counted(unmatched_judgements, "judgement")
            ),
        ),
        (unjudged, format!("left out: {unjudged} of {} queries, without a judgement", judged + unjudged)),
        (
            nothing_relevant,
            format!(
                "left out: {nothing_relevant} of {judged} judged queries, without a relevant document in BM25's first {BEIR_CANDIDATES}"
            ),
        ),
        (
            not_retrieved,
            format!(
                "{} of {relevant} relevant documents are among BM25's first {BEIR_CANDIDATES}; recall is of these alone",
                relevant - not_retrieved
            ),
        ),
    ];
    all.into_iter().filter(|(n, _)| *n > 0).map(|(_, note)| note).collect()
}

fn named((name, text): &(String, String)) -> beir::Source<'_> {
    beir::Source { name, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        format!("{:#}", all(path, 1).unwrap_err())
    }

    fn all(path: &Path, seed: u64) -> anyhow::Result<Vec<Question>> {
        read(path, seed, true, |_| true)
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
        let found = all(home.path(), 1).unwrap();
        assert_eq!(found.len(), 1, "BM25 puts f19 behind others for q2, so that one is left out");
        let question = &found[0];
        assert_eq!((question.query.as_str(), question.chunks.len()), ("lighthouse herring", BEIR_CANDIDATES));
        assert_eq!(question.chunks[0].title.as_deref(), Some("Lamps"), "the rarer word counts more");
        let labels = question.labels.as_ref().unwrap();
        assert_eq!((labels[0], labels[1..].iter().sum::<u32>()), (2, 0));

        write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq2\tf19\t1\n");
        assert!(error(home.path()).contains("for no judged query (1 tried)"), "{}", error(home.path()));
    }

    #[test]
    fn judgements_of_another_split_are_taken_where_they_are_alone() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        fs::create_dir(home.path().join("qrels")).unwrap();
        write("corpus.jsonl", "{\"_id\": \"d\", \"text\": \"a lamp\"}");
        write("queries.jsonl", "{\"_id\": \"q\", \"text\": \"lamp\"}");
        write("qrels/dev.tsv", "q\td\t1\n");
        assert_eq!(all(home.path(), 1).unwrap()[0].labels, Some(vec![1]));
        write("qrels/train.tsv", "q\td\t2\n");
        let said = error(home.path());
        assert!(said.contains("has no test.tsv, and 2 other files of judgements"), "{said}");
        write("qrels/test.tsv", "q\td\t3\n");
        assert_eq!(all(home.path(), 1).unwrap()[0].labels, Some(vec![3]));
    }

    #[test]
    fn all_that_is_left_out_of_a_collection_is_told() {
        assert_eq!(notes(&beir::Skipped { relevant: 9, ..Default::default() }, 4), [""; 0]);
        let skipped = beir::Skipped {
            unjudged: 5,
            nothing_relevant: 2,
            unmatched_judgements: 1,
            relevant: 9,
            not_retrieved: 3,
        };
        assert_eq!(
            notes(&skipped, 4),
            [
                "left out: 1 judgement, of a query or document that is not there",
                "left out: 5 of 11 queries, without a judgement",
                "left out: 2 of 6 judged queries, without a relevant document in BM25's first 10",
                "6 of 9 relevant documents are among BM25's first 10; recall is of these alone",
            ]
        );
    }

    #[test]
    fn help_names_the_candidates_and_the_labels() {
        assert!(FORMS.contains(&format!("the {BEIR_CANDIDATES} documents")));
        assert!(FORMS.contains(&format!("1 to {}", crate::eval::judged::Judged::MOST_LABEL)));
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
            let found = all(&file, seed).unwrap();
            let runs: Vec<_> = found.iter().map(|q| q.trajectory.clone().unwrap()).collect();
            assert_eq!(runs, (0..6).map(|run| format!("run{run}")).collect::<Vec<_>>());
            found.into_iter().map(|q| q.query).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert!((2..9).any(|seed| of(seed) != of(1)), "another seed, another draw");

        for seed in 0..20 {
            let found = read(&file, seed, true, |question| question.query == "search 3").unwrap();
            assert!(found.len() == 6 && found.iter().all(|q| q.query == "search 3"), "seed {seed}");
        }
        let total = data::parse_any("x", &fs::read_to_string(&file).unwrap()).unwrap();
        let (_, notes) = one_per_trajectory(total.clone(), 1, |_| true);
        assert_eq!(notes, ["drawn: 6 of 30 questions, one of each trajectory"]);
        assert_eq!(
            one_per_trajectory(total.into_iter().step_by(5).collect(), 1, |_| true).1,
            [""; 0],
            "nothing to say"
        );
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
        assert!(error(&file).contains("cannot be read: it is no text in UTF-8"), "{}", error(&file));
        let folder = home.path().join("absent/");
        assert!(error(&folder).contains("absent/ cannot be read"), "{}", error(&folder));
        let address = error(Path::new("http://example.org/x.json"));
        assert!(address.contains("is an address, and none is fetched"), "{address}");
    }

    #[test]
    fn data_is_named_without_its_place() {
        assert_eq!(name(Path::new("/a/b/hotpot.json")), "hotpot.json");
        assert_eq!(name(Path::new("beir/scifact/")), "scifact");
        assert_eq!(name(Path::new("..")), "..");
    }

    #[test]
    fn a_dataset_keeps_its_whole_name() {
        for whole in ["hotpotqa/hotpot_qa", "owner/name:dir/x.jsonl@v1", "owner/name:x.parquet"] {
            assert_eq!(name(Path::new(whole)), whole);
        }
    }
}
