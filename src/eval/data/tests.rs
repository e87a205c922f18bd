//! What holds for every format: texts are told apart, nothing makes a reader panic, and real data counts as in Python.

use std::path::PathBuf;

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use serde_json::json;

use super::*;
use crate::eval::answer::{Usability, answer_spans, usability};

const HOTPOT: &str = r#"[{"_id": "a", "question": "Who?", "answer": "Ada", "supporting_facts": [["B", 0]],
  "context": [["A", ["One.", " Two."]], ["B", ["É 😀"]]]},
 {"id": "b", "question": "Whom?", "answer": "yes", "supporting_facts": {"title": ["B"], "sent_id": [0]},
  "context": {"title": ["A", "B"], "sentences": [["One."], ["Two."]]}}]"#;
const TRAJECTORY: &str = r#"{"query": "q", "chunks": ["x", {"id": "d", "title": "t", "url": "u", "text": "y"}], "answer": "x", "trajectory_id": "run"}
{"query": "q2", "chunks": ["x"], "answer": "x", "trajectory_id": "run"}
"#;
const LABELLED: &str = r#"{"id": "a", "query": "q", "chunks": ["x", {"text": "y"}], "labels": [0, 2], "answer": "x"}
{"query": "q", "chunks": [{"text": "x", "label": true}, {"text": "y", "label": 0}]}
"#;

fn error(text: &str) -> String {
    parse_any("f", text).unwrap_err().to_string()
}

#[test]
fn forms_are_told_apart_by_their_fields() {
    let as_array = |lines: &str| format!("[{}]", lines.trim_end().replace("}\n{", "},\n{"));
    let one_line = LABELLED.lines().nth(1).unwrap().to_owned();
    for (text, form, n) in [
        (HOTPOT.to_owned(), Form::Hotpot, 2),
        (TRAJECTORY.to_owned(), Form::Trajectory, 2),
        (as_array(TRAJECTORY), Form::Trajectory, 2),
        (LABELLED.to_owned(), Form::Labelled, 2),
        (as_array(LABELLED), Form::Labelled, 2),
        (one_line, Form::Labelled, 1),
    ] {
        assert_eq!(detect("f", &text), Ok(form), "{text}");
        assert_eq!(parse_any("f", &text).unwrap().len(), n, "{text}");
    }
    let with_all = json!({"query": "q", "chunks": ["x"], "answer": "x", "trajectory_id": "t", "labels": [1]});
    assert_eq!(detect("f", &with_all.to_string()), Ok(Form::Labelled), "labels decide");
}

#[test]
fn a_text_of_no_form_is_told_the_three() {
    for text in ["{}", "[{\"title\": \"t\", \"text\": \"x\"}]", "{\"query\": \"q\", \"chunks\": [\"x\"]}"] {
        let told = error(text);
        for form in [
            "{_id, question, answer, supporting_facts, context}",
            "{query, chunks, answer, trajectory_id}",
            "{query, chunks, labels}",
        ] {
            assert!(told.contains(form), "{told}");
        }
    }
    assert!(
        error("{\"title\": 1, \"text\": 2}").contains("its first record, with title, text, is of no known")
    );
    let many: Vec<String> = (0..20).map(|i| format!("\"{}{i}\": 0", "long".repeat(99))).collect();
    assert!(error(&format!("{{{}}}", many.join(","))).len() < 800);
    assert!(error("[[1]]").contains("record 1: a record is an object with fields, and here is an array"));
}

#[test]
fn names_of_fields_send_nothing_to_the_terminal() {
    let told = error(r#"{"query": "q", "\u001b[31mred\u202e": 1}"#);
    assert!(told.contains("query, \\u{1b}[31mred\\u{202e},"), "{told:?}");
    let told = error(
        r#"{"query": "q", "chunks": ["x"], "labels": [1], "id": "\u001b"}
        {"query": "q", "chunks": ["x"], "labels": [1], "id": "\u001b"}"#,
    );
    assert!(told.contains("the id \"\\u{1b}\" is also"), "{told:?}");
}

#[test]
fn texts_without_records_say_so() {
    for text in ["", " \n\n", "\u{feff}"] {
        assert_eq!(error(text), "f: there is nothing in it; a download may have failed");
    }
    for text in ["[]", " [ ]\n"] {
        assert!(error(text).starts_with("f: there are no questions in it"), "{}", error(text));
        for parse in [hotpot::parse, trajectory::parse, labelled::parse] {
            assert!(matches!(parse("f", text).unwrap_err().problem, Problem::NoQuestions { .. }));
        }
    }
    assert!(error("question,answer\nWho?,Ada\n").starts_with("f, line 1: not JSON: expected"));
}

#[test]
fn ids_are_unique_in_every_form() {
    let doubled = HOTPOT.replace("\"id\": \"b\"", "\"id\": \"a\"");
    assert!(error(&doubled).starts_with("f, record 2: the id \"a\" is also that of record 1;"));
    let doubled = format!("{LABELLED}{}", LABELLED.lines().next().unwrap());
    assert!(error(&doubled).starts_with("f, line 3: the id \"a\" is also that of line 1;"));
    let doubled = TRAJECTORY.replace("\"query\": \"q2\"", "\"id\": \"run/1\", \"query\": \"q2\"");
    assert!(error(&doubled).starts_with("f, line 2: the id \"run/1\" is also that of line 1;"));
}

#[test]
fn a_record_of_another_form_in_the_middle_is_told() {
    let hotpot = HOTPOT.trim_start_matches('[').split("},\n").next().unwrap().replace('\n', "") + "}\n";
    for (first, second, says) in [
        (hotpot.as_str(), TRAJECTORY, "`_id` is missing; a HotpotQA record is {"),
        (TRAJECTORY, hotpot.as_str(), "`query` is missing; a trajectory record is {"),
        (LABELLED, hotpot.as_str(), "`query` is missing; a labelled record is {"),
        (LABELLED, TRAJECTORY, "`labels` is missing; a labelled record is {"),
        (TRAJECTORY, LABELLED, "`trajectory_id` is missing; a trajectory record is {"),
        (
            TRAJECTORY,
            "\"text\"",
            "a trajectory record is {query, chunks, answer, trajectory_id}, and here is a text",
        ),
    ] {
        let line = first.lines().count() + 1;
        let told = error(&format!("{first}{second}"));
        assert!(told.starts_with(&format!("f, line {line}: {says}")), "{told}");
    }
}

#[test]
fn real_questions_count_as_in_python() {
    let shared = std::env::var_os("QRAE_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("data/hotpotqa_distractor_60.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        return eprintln!("SKIPPED: no {}; set QRAE_SHARED to the folder that holds data/", path.display());
    };
    assert_eq!(detect("f", &text), Ok(Form::Hotpot));
    let questions = parse_any("f", &text).unwrap();
    assert_eq!(questions.len(), 60);
    for question in &questions {
        assert_eq!(question.chunks.len(), 10);
        assert_eq!(question.labels.as_ref().unwrap().iter().sum::<u32>(), 2);
    }
    let count = |kind| questions.iter().filter(|question| usability(question) == kind).count();
    // Counted with Python's str.lower and str.find by the reference's rule, over all chunks of all questions that are
    // not answered with yes or no: questions with an occurrence, occurrences, and the sum of where they begin.
    let (usable, occurrences, starts) = (59, 165, 34465);
    assert_eq!((count(Usability::Usable), count(Usability::YesNo)), (usable, 1));
    assert_eq!((count(Usability::NoAnswer), count(Usability::NotInText)), (0, 0));
    let spans: Vec<_> = questions
        .iter()
        .filter(|question| usability(question) == Usability::Usable)
        .flat_map(|q| q.chunks.iter().map(|c| (c.serialise().0, q.answer.clone().unwrap())))
        .flat_map(|(text, answer)| answer_spans(&text, &answer))
        .collect();
    assert_eq!(spans.len(), occurrences);
    assert_eq!(spans.iter().map(|span| span.start).sum::<usize>(), starts);
}

/// Reads a text in every way there is; whatever comes out must be sound, and an error must name its file.
fn read_all(text: &str) -> Result<(), TestCaseError> {
    let _ = detect("some file", text);
    for parse in [parse_any, hotpot::parse, trajectory::parse, labelled::parse] {
        match parse("some file", text) {
            Ok(questions) => sound(&questions)?,
            Err(e) => prop_assert!(e.to_string().starts_with("some file"), "{}", e),
        }
    }
    let other = "{\"_id\": \"a\", \"text\": \"x\"}";
    for texts in [[text, other, "a\ta\t1"], [other, text, "a\ta\t1"], [other, other, text]] {
        let [corpus, queries, qrels] = texts.map(|text| beir::Source { name: "f", text });
        if let Ok(collection) = beir::parse(corpus, queries, qrels) {
            let n_documents = collection.documents().len();
            sound(&collection.questions(3, |_| (0..n_documents).collect()).0)?;
        }
    }
    Ok(())
}

fn sound(questions: &[Question]) -> Result<(), TestCaseError> {
    let mut ids: Vec<&str> = questions.iter().map(|question| question.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    prop_assert_eq!(ids.len(), questions.len());
    for question in questions {
        prop_assert!(!question.query.trim().is_empty() && !question.chunks.is_empty());
        if let Some(labels) = &question.labels {
            prop_assert_eq!(labels.len(), question.chunks.len());
        }
        let _ = (usability(question), question.content_hash());
    }
    let sample = trajectory::sample_per_trajectory(questions.to_vec(), 1, |_| true);
    prop_assert!(sample.len() <= questions.len() && sample.is_empty() == questions.is_empty());
    Ok(())
}

fn valid() -> impl Strategy<Value = String> {
    let beir = "{\"_id\": \"a\", \"title\": \"t\", \"text\": \"x\"}\n{\"_id\": \"b\", \"text\": \"é\"}\n";
    let qrels = "query-id\tcorpus-id\tscore\na\ta\t1\na\tb\t-1\n";
    select(vec![HOTPOT, TRAJECTORY, LABELLED, beir, qrels]).prop_map(str::to_owned)
}

/// Cuts out the characters between two places and puts something else there.
fn mutated(text: &str, from: Index, to: Index, instead: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (a, b) = (from.index(chars.len() + 1), to.index(chars.len() + 1));
    let (a, b) = (a.min(b), a.max(b).min(a.min(b) + 20));
    chars[..a].iter().copied().chain(instead.chars()).chain(chars[b..].iter().copied()).collect()
}

fn string(most: usize) -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..most).prop_map(|chars| chars.into_iter().collect())
}

/// JSON of the fields the readers know, with values of all kinds.
fn json_value() -> impl Strategy<Value = Value> {
    let names = "_id id question query answer context supporting_facts supporting_titles title text sentences sent_id \
        chunks labels label trajectory_id url";
    let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..3_u32).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec!["", " ", "a", "yes", "İ"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(names.clone()), inner), 0..7)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A good record whose fields are replaced by anything.
fn damaged_record() -> impl Strategy<Value = String> {
    let records = [HOTPOT, TRAJECTORY, LABELLED].map(|text| {
        let all = Records::new("f", text).unwrap();
        all.map(|record| record.unwrap().1).collect::<Vec<_>>()
    });
    (select(records.concat()), any::<Index>(), json_value()).prop_map(|(mut record, which, value)| {
        let fields = record.as_object_mut().unwrap();
        let which = which.index(fields.len());
        *fields.values_mut().nth(which).unwrap() = value;
        record.to_string()
    })
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in string(80), json in json_value()) {
        read_all(&text)?;
        read_all(&json.to_string())?;
        read_all(&format!("[{json}, {json}]"))?;
    }

    #[test]
    fn no_damage_to_a_good_text_makes_a_reader_panic(
        text in valid(), edits in vec((any::<Index>(), any::<Index>(), prop_oneof![
            string(3), select(vec!["", "\"", "[", "]", "{", "}", ",", ":", "null", "\n", "\t", "\u{0}", "-1", "1e999"]).prop_map(str::to_owned)
        ]), 1..4),
    ) {
        let damaged = edits.iter().fold(text, |text, (from, to, instead)| mutated(&text, *from, *to, instead));
        read_all(&damaged)?;
    }

    #[test]
    fn no_field_of_another_kind_makes_a_reader_panic(records in vec(damaged_record(), 1..3)) {
        read_all(&records.join("\n"))?;
        read_all(&format!("[{}]", records.join(",")))?;
    }

    #[test]
    fn questions_survive_being_written_as_labelled_records(
        texts in vec(string(6), 1..4), asked in string(6), seed in any::<u32>(),
    ) {
        let query = format!("?{asked}");
        let labels: Vec<u32> = (0..texts.len() as u32).map(|i| seed.rotate_left(i) % 32).collect();
        let line = json!({"query": query, "chunks": texts, "labels": labels}).to_string();
        let question = &labelled::parse("f", &line).unwrap()[0];
        prop_assert_eq!(&question.query, &query);
        prop_assert_eq!(question.chunks.iter().map(|c| c.text.clone()).collect::<Vec<_>>(), texts);
        prop_assert_eq!(question.labels.as_ref(), Some(&labels));
    }
}
