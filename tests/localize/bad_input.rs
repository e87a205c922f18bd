//! What cannot be done is told clearly: what, where, and what to do. Usage errors end with 2, others with 1.

use std::fs;

use serde_json::{Value, json};

use super::support::{Home, array, observations, question, questions};

#[test]
fn usage_errors_end_with_2() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 2)));
    for (args, says) in [
        (&["localize"][..], "DATA"),
        (&["eval"], "DATA"),
        (&["localize", "merge"], "FOLDER"),
        (&["localize", "data.json", "--shard", "0/3"], "3/8"),
        (&["localize", "data.json", "--shard", "4/3"], "3/8"),
        (&["localize", "data.json", "--k", "0"], "--k"),
        (&["localize", "data.json", "--n", "0"], "--n"),
        (&["localize", "data.json", "--criterion", "mass"], "answer_mass, qrhead, auroc"),
        (&["localize", "data.json", "--search", "--read", "last"], "--search"),
        (&["eval", "data.json", "--cut", "0"], "--cut"),
        (&["eval", "data.json", "--n", "0"], "--n"),
    ] {
        let said = home.fails(args, 2);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn data_that_cannot_be_read_is_told_with_its_place() {
    let home = Home::new();
    for (text, says) in [
        ("", "data.json: there is nothing in it"),
        ("Once upon a time", "data.json, line 1: not JSON"),
        ("[]", "data.json: there are no questions in it"),
        ("[1, 2]", "data.json, record 1: a record is an object"),
        (r#"{"query": "q", "chunks": ["a"]}"#, "is of no known form"),
        (r#"{"query": " ", "chunks": ["a"], "labels": [1]}"#, "the query is empty"),
        (r#"{"query": "q", "chunks": ["a"], "labels": [1, 0]}"#, "it has 2 labels for 1 chunk"),
    ] {
        home.write("data.json", text);
        for command in ["localize", "eval"] {
            let said = home.fails(&[command, "data.json"], 1);
            assert!(said.starts_with("error: ") && said.contains(says), "{command} {text:?}: {said}");
        }
    }
    let said = home.fails(&["localize", "absent.json"], 1);
    assert!(said.starts_with("error: absent.json cannot be read\n  because: "), "{said}");
    let said = home.fails(&["localize", "planted"], 1);
    assert!(said.contains("a BEIR folder holds corpus.jsonl"), "{said}");
    assert!(!home.at("study").exists() && !home.at("eval").exists(), "nothing is begun that cannot be ended");
}

fn without_answer(mut record: Value) -> Value {
    record.as_object_mut().unwrap().remove("answer");
    record
}

#[test]
fn questions_that_a_criterion_cannot_use_are_counted_by_reason() {
    let home = Home::new();
    let mut data = questions(0, 4);
    data.extend([question(10, "yes"), question(11, "No"), without_answer(question(12, "ZZZ"))]);
    let mut elsewhere = question(13, "KKK");
    elsewhere["answer"] = json!("never written");
    data.push(elsewhere);
    home.write("data.json", &array(&data));
    let (_, told) = home.said(&["localize", "data.json", "--out", "study"]);
    assert!(
        told.contains(
            "4 of 8 questions can be used; left out: 2 answered by yes or no, 1 whose answer stands in no chunk, 1 without an \
             answer"
        ),
        "{told}"
    );
    assert_eq!(home.json("study/run.json")["inputs"], 4);

    for (data, says) in [
        (vec![question(1, "yes"), question(2, "no")], "2 answered by yes or no"),
        (vec![without_answer(question(1, "ZZZ"))], "1 without an answer"),
        (vec![data[7].clone()], "1 whose answer stands in no chunk"),
    ] {
        home.write("none.json", &array(&data));
        let said = home.fails(&["localize", "none.json"], 1);
        assert!(said.contains(says) && said.contains("criterion answer_mass"), "{said}");
        assert!(said.contains("choose by --criterion qrhead"), "what to do: {said}");
    }
}

#[test]
fn labels_all_alike_tell_no_head_from_another() {
    let home = Home::new();
    let line =
        |label: u32| json!({"query": "who?", "chunks": ["a b", "c d"], "labels": [label, label]}).to_string();
    home.write("data.jsonl", &format!("{}\n{}\n", line(1), line(0)));
    for criterion in ["auroc", "qrhead"] {
        let said = home.fails(&["localize", "data.jsonl", "--criterion", criterion], 1);
        assert!(
            said.contains("none of 2 questions") && said.contains("2 without both relevant and other chunks"),
            "{said}"
        );
    }
    let said = home.fails(&["eval", "data.jsonl"], 1);
    assert!(said.contains("no question is left to measure on: of 2, 2 are without both"), "{said}");
    // too few to hold some out
    home.write("few.json", &array(&questions(0, 3)));
    let said = home.fails(&["localize", "few.json", "--search", "--out", "study"], 1);
    assert!(
        said.contains("3 different questions have both relevant and other chunks, 7 are needed"),
        "{said}"
    );
    let said = home.fails(&["localize", "few.json", "--search", "--criterion", "answer_mass"], 1);
    assert!(said.contains("--search") && said.contains("leave --criterion answer_mass out"), "{said}");
}

#[test]
fn questions_longer_than_the_context_are_left_out_and_counted() {
    let home = Home::new();
    let mut data = questions(0, 3);
    let mut long = question(3, "XXXXX");
    long["context"][0][1][0] = json!("over and over ".repeat(60));
    data.push(long);
    home.write("data.json", &array(&data));
    let limit = ["--max-model-len", "900"];
    let (_, told) = home.said(&[&["localize", "data.json", "--out", "study"], &limit[..]].concat());
    assert!(told.contains("1 of 4 inputs are too long for the model (question q3: "), "{told}");
    assert!(
        told.contains("the limit is 900; they are left out")
            || told.contains("the limit is 900); they are left out"),
        "{told}"
    );
    assert_eq!(home.json("study/run.json")["inputs"], 3);
    home.said(&[&["eval", "data.json", "--out", "out"], &limit[..]].concat());
    assert_eq!(home.json("out/table.json")["questions"], 3);
    for command in ["localize", "eval"] {
        let said = home.fails(&[command, "data.json", "--out", command, "--max-model-len", "100"], 1);
        assert!(
            said.contains("4 of 4 inputs are too long") && said.contains("raise --max-model-len"),
            "{said}"
        );
    }
}

#[test]
fn heads_and_studies_of_another_model_are_refused() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 3)));
    home.write("test.json", &array(&questions(3, 6)));
    home.said(&["localize", "data.json", "--out", "study"]);
    fs::create_dir(home.at("another")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(home.at("planted").join(file), home.at("another").join(file)).unwrap();
    }
    let said = home.fails(&["eval", "test.json", "--model", "another", "--head-set", "study/heads.toml"], 1);
    assert!(said.contains("planted") && said.contains("another"), "{said}");
    let said = home.fails(&["eval", "test.json", "--model", "another", "--calibration", "study"], 1);
    assert!(said.contains("study: it was made with model planted, this run has another"), "{said}");
    let said = home.fails(&["localize", "data.json", "--model", "another", "--out", "study"], 1);
    assert!(
        said.contains("with model planted, this run has another; choose another folder with --out"),
        "{said}"
    );
    let said = home.fails(&["localize", "data.json", "--compute", "f32", "--out", "study"], 1);
    assert!(said.contains("with --compute int8, this run has f32"), "{said}");
    let said = home.fails(
        &[
            "localize",
            "data.json",
            "--rope-scaling",
            r#"{"rope_type":"linear","factor":2.0}"#,
            "--out",
            "study",
        ],
        1,
    );
    assert!(said.contains("with rotary embedding ") && said.contains("linear"), "{said}");
    home.said(&["localize", "data.json", "--model", "another", "--out", "other"]);
    let said = home.fails(&["localize", "merge", "study", "other", "--out", "merged"], 1);
    assert!(said.contains("other: it was made with model another, this run has planted"), "{said}");
    let said = home.fails(&["eval", "test.json", "--head-set", "nobody"], 1);
    assert!(said.contains("\"nobody\" does not exist"), "{said}");
    // of another model even where no question would be left
    let said = home.fails(&["eval", "data.json", "--model", "another", "--calibration", "study"], 1);
    assert!(said.contains("this run has another; choose another --calibration"), "{said}");
    // a model of the same name with other weights: the last number is another one
    let weights = home.at("planted/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let said = home.fails(&["localize", "data.json", "--out", "study"], 1);
    assert!(said.contains("study: it was made with weights sha256:"), "{said}");
}

#[test]
fn a_study_is_no_evaluation_and_an_evaluation_no_study() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 3)));
    home.write("test.json", &array(&questions(3, 6)));
    home.said(&["localize", "data.json", "--out", "study"]);
    home.said(&["eval", "test.json", "--out", "judged"]);
    let said = home.fails(&["eval", "test.json", "--out", "study"], 1);
    assert!(said.contains("study is the folder of a study, and one of an evaluation is needed"), "{said}");
    for args in [
        &["localize", "data.json", "--out", "judged"][..],
        &["localize", "merge", "judged", "--out", "merged"],
        &["localize", "merge", "study", "--out", "judged"],
        &["eval", "data.json", "--calibration", "judged"],
    ] {
        let said = home.fails(args, 1);
        assert!(
            said.contains("judged is the folder of an evaluation, and one of a study is needed"),
            "{said}"
        );
    }
    assert_eq!((observations(&home.at("study")).len(), observations(&home.at("judged")).len()), (3, 3));
    fs::remove_dir_all(home.at("study/inputs")).unwrap();
    let said = home.fails(&["eval", "test.json", "--calibration", "study"], 1);
    assert!(said.contains("--calibration study holds no observations"), "{said}");
}

#[test]
fn somebodys_files_are_not_written_over() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 3)));
    home.said(&["localize", "data.json", "--out", "study"]);
    fs::create_dir(home.at("mine")).unwrap();
    home.write("mine/table.md", "my own");
    for args in [
        &["localize", "data.json", "--out", "mine"][..],
        &["localize", "merge", "study", "--out", "mine"],
        &["eval", "data.json", "--out", "mine"],
    ] {
        let said = home.fails(args, 1);
        assert!(said.contains("mine is not empty (table.md is in it)"), "{said}");
    }
    assert_eq!(
        (home.read("mine/table.md").as_str(), fs::read_dir(home.at("mine")).unwrap().count()),
        ("my own", 1)
    );
    // observations that nobody knows the model of
    fs::remove_file(home.at("study/study.toml")).unwrap();
    let said = home.fails(&["localize", "data.json", "--out", "study"], 1);
    assert!(said.contains("no study.toml says"), "{said}");
    // a name from a file leads nowhere else
    let toml = |model: &str| {
        home.said(&["localize", "data.json", "--out", model]);
        let text = home.read(&format!("{model}/study.toml"));
        home.write(&format!("{model}/study.toml"), &text.replace("\"planted\"", "\"../../away\""));
    };
    toml("evil");
    home.said(&["localize", "merge", "evil"]);
    assert!(home.at("study/away/heads.toml").exists());
}

#[test]
fn more_heads_than_there_are_is_told_before_anything_is_observed() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 2)));
    let said = home.fails(&["localize", "data.json", "--out", "study", "--k", "13"], 1);
    assert!(said.contains("--k 13 heads cannot be chosen of 12"), "{said}");
    assert!(!home.at("study").exists());
    home.said(&["localize", "data.json", "--out", "study", "--k", "12"]);
    let said = home.fails(&["localize", "merge", "study", "--k", "13", "--out", "merged"], 1);
    assert!(said.contains("--k 13 heads"), "{said}");
}

#[test]
fn folders_that_hold_no_study_are_told() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 2)));
    for args in [
        &["localize", "merge", "planted", "--out", "merged"][..],
        &["eval", "data.json", "--calibration", "planted"],
    ] {
        let said = home.fails(args, 1);
        assert!(
            said.contains("planted: no study is there; `qrae localize DATA --out planted` makes one"),
            "{said}"
        );
    }
    assert!(!home.at("merged").exists());
    // a study in which nothing was observed
    home.said(&["localize", "data.json", "--out", "study", "--shard", "3/3"]);
    assert!(observations(&home.at("study")).is_empty());
    let said = home.fails(&["localize", "merge", "study", "--out", "merged"], 1);
    assert!(said.contains("parts 1 and 2 are missing"), "{said}");
}

#[test]
fn what_would_measure_on_its_own_choice_is_refused() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 2)));
    home.write("test.json", &array(&questions(2, 4)));
    home.said(&["localize", "data.json", "--out", "study"]);
    let said = home.fails(&["eval", "data.json", "--calibration", "study"], 1);
    assert!(said.contains("no question is left to measure on: of 2, 2 were used to choose heads"), "{said}");
    let said = home.fails(&["eval", "test.json", "--calibration", "study", "--out", "planted/../study"], 1);
    assert!(said.contains("study is the folder of a study, and one of an evaluation is needed"), "{said}");
    assert_eq!(observations(&home.at("study")).len(), 2, "and nothing was added");
    let said = home.fails(&["eval", "test.json", "--permutations", "2"], 1);
    assert!(said.contains("--permutations") && said.contains("--head-set"), "{said}");
    // few calibration questions: the rows that need more are named, the others are there
    let (shown, _) = home.said(&["eval", "test.json", "--calibration", "study", "--out", "out"]);
    assert!(shown.contains("no row \"search\": 2 different questions have both"), "{shown}");
    assert_eq!(home.json("out/table.json")["left_out"].as_array().unwrap().len(), 2);
}
