//! `qrae eval` measures the planted head set beside everything else, and shows it everywhere alike.

use std::fs;

use serde_json::{Value, json};

use super::{
    planted::PLANTED,
    support::{Home, array, observations, questions},
};

fn row<'a>(table: &'a Value, name: &str) -> &'a Value {
    let rows = table["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("no row {name} in {table:#}"))
}

#[test]
fn the_table_has_every_row_and_is_the_same_everywhere() {
    let home = Home::new();
    home.write("train.json", &array(&questions(0, 10)));
    home.write("test.json", &array(&questions(8, 16)));
    home.said(&["localize", "train.json", "--out", "study", "--k", "1"]);
    let args = [
        "eval",
        "test.json",
        "--calibration",
        "study",
        "--head-set",
        "study/heads.toml",
        "--permutations",
        "2",
        "--out",
        "out",
    ];
    let (printed, told) = home.said(&[&args[..], &["--json"]].concat());
    assert!(told.contains("2 of 8 questions are left out: they were used to choose heads"), "{told}");
    assert!(!told.contains("observed before"), "the first run: {told}");
    let table: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(home.json("out/table.json"), table);
    assert_eq!(table["head_set_inputs"], 10);
    assert_eq!(
        (&table["questions"], &table["calibration"], &table["model"]),
        (&json!(6), &json!(10), &json!("planted"))
    );
    for name in [
        "heads@",
        "paper",
        "by QRHead",
        "search",
        "by AUROC",
        "random heads",
        "QRHead",
        "in-context",
        "BM25",
        "retrieval order",
        "oracle",
    ] {
        for metric in ["auroc", "recall", "ndcg", "mrr"] {
            let Value::Object(interval) = &row(&table, name)[metric] else { panic!("{name} {metric}") };
            assert!(
                interval.values().all(|v| v.as_f64().is_some_and(f64::is_finite)),
                "{name} {metric}: {interval:?}"
            );
        }
    }
    assert_eq!(row(&table, "heads@")["heads"], json!([PLANTED]));
    assert_eq!(row(&table, "random heads")["note"], "20 sets of 1");
    for perfect in ["heads@", "search", "oracle"] {
        assert_eq!(row(&table, perfect)["auroc"], json!({"mean": 1.0, "low": 1.0, "high": 1.0}), "{perfect}");
    }
    let chance = row(&table, "random heads")["auroc"]["mean"].as_f64().unwrap();
    assert!((0.2..0.95).contains(&chance), "{chance}");
    assert_eq!(table["order"]["orders"], 3);
    assert_eq!(table["order"]["auroc"], 1.0, "whatever the order: {}", table["order"]);
    assert!(table["over_bm25"]["mean"].as_f64().is_some() && table["left_out"] == json!([]));
    // the given order and two others of each question; an order may come twice
    let seen = observations(&home.at("out")).len();
    assert!((12..=18).contains(&seen), "{seen}");

    // again, for people: nothing is observed again, and Markdown has the rows of the terminal
    let (shown, told) = home.said(&args);
    assert!(
        told.contains(&format!("{seen} of {seen} inputs were observed before, in out; new: 0")),
        "{told}"
    );
    assert_eq!(observations(&home.at("out")).len(), seen);
    assert_eq!(home.json("out/table.json"), table);
    // what a row ranks by is in one piece, and its numbers too
    for part in
        ["query_mean/null_query/scaled_sum", "last/query_free/entropy", "oracle: the labels", "100–100"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let markdown = home.read("out/table.md");
    let rows = table["rows"].as_array().unwrap();
    let lines: Vec<&str> = markdown.lines().filter(|l| l.starts_with("| ")).collect();
    assert_eq!(lines.len(), 1 + rows.len());
    assert!(
        lines[0].contains("AUROC") && lines[0].contains("R@3") && lines[0].contains("nDCG@3"),
        "{markdown}"
    );
    for (line, row) in lines[1..].iter().zip(rows) {
        assert_eq!(line.matches(" | ").count(), 5, "{line}");
        assert!(line.contains(row["name"].as_str().unwrap()), "{line}");
    }
    for sentence in [
        "6 questions measured",
        "heads were chosen on 10 other inputs",
        "over BM25's",
        "with the chunks in 3 orders",
        "length bias",
    ] {
        assert!(
            markdown.contains(sentence) || sentence == "length bias" && table["length_bias"].is_null(),
            "{sentence}: {markdown}"
        );
        assert!(
            shown.contains(sentence) || sentence == "length bias" && table["length_bias"].is_null(),
            "{sentence}: {shown}"
        );
    }
    for name in ["auroc", "scores", "lengths"] {
        assert!(fs::read(home.at(&format!("out/{name}.png"))).unwrap().starts_with(b"\x89PNG"), "{name}");
        assert!(home.read(&format!("out/{name}.svg")).contains("planted"), "{name}");
    }
}

#[test]
fn without_heads_the_baselines_are_measured() {
    let home = Home::new();
    home.write("test.json", &array(&questions(0, 3)));
    let (shown, _) = home.said(&["eval", "test.json", "--n", "2", "--cut", "1"]);
    assert!(shown.contains("BM25") && shown.contains("R@1") && shown.contains("eval/planted"), "{shown}");
    let table = home.json("eval/planted/table.json");
    assert_eq!(
        (&table["questions"], &table["calibration"], &table["cut"]),
        (&json!(2), &json!(0), &json!(1))
    );
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{table:#}");
    assert!(shown.contains("more rows with --calibration FOLDER"), "{shown}");
    assert!(table["over_bm25"].is_null() && table["order"].is_null() && table["length_bias"].is_null());
    assert!(!home.at("eval/planted/scores.png").exists());
}

#[test]
fn a_collection_is_measured_too() {
    let home = Home::new();
    fs::create_dir_all(home.at("beir/qrels")).unwrap();
    let (mut corpus, mut queries, mut qrels) =
        (String::new(), String::new(), "query-id\tcorpus-id\tscore\n".to_owned());
    for i in 0..12 {
        corpus += &format!(
            "{}\n",
            json!({"_id": format!("d{i}"), "title": "lamps", "text": format!("lamp number n{i} of the town")})
        );
    }
    for i in 0..3 {
        queries += &format!("{}\n", json!({"_id": format!("q{i}"), "text": format!("which lamp is n{i}?")}));
        qrels += &format!("q{i}\td{i}\t1\n");
    }
    for (name, text) in [("corpus.jsonl", &corpus), ("queries.jsonl", &queries), ("qrels/test.tsv", &qrels)] {
        home.write(&format!("beir/{name}"), text);
    }
    home.said(&["eval", "beir", "--out", "out"]);
    let table = home.json("out/table.json");
    assert_eq!((&table["questions"], &row(&table, "BM25")["auroc"]["mean"]), (&json!(3), &json!(1.0)));
    assert_eq!(row(&table, "retrieval order")["mrr"]["mean"], 1.0, "retrieved by BM25");
}

#[test]
fn what_is_asked_twice_counts_once() {
    let home = Home::new();
    let mut data = questions(0, 2);
    for copy in 0..3 {
        let mut again = data[0].clone();
        again["_id"] = json!(format!("copy {copy}"));
        data.push(again);
    }
    home.write("test.json", &array(&data));
    let (_, told) = home.said(&["eval", "test.json", "--out", "out"]);
    assert!(
        told.contains("3 of 5 questions are left out: they ask the same of the same chunks as another"),
        "{told}"
    );
    assert_eq!(home.json("out/table.json")["questions"], 2);
}

#[test]
fn questions_without_text_are_left_out() {
    let home = Home::new();
    let line = |query: &str, first: &str| json!({"query": query, "chunks": [first, ""], "labels": [1, 0]});
    let lines = [line("who?", "the keeper"), line("and who?", ""), line("who else?", "nobody")];
    home.write("data.jsonl", &lines.map(|line| line.to_string()).join("\n"));
    let told = home.said(&["eval", "data.jsonl", "--out", "out"]).1;
    assert!(told.contains("1 of 3 inputs have nothing the model could read (question "), "{told}");
    assert_eq!(home.json("out/table.json")["questions"], 2);
    home.said(&["localize", "data.jsonl", "--criterion", "qrhead", "--out", "study"]);
    assert_eq!(home.json("study/run.json")["inputs"], 2);
    home.write("empty.jsonl", &line("who?", "").to_string());
    let said = home.fails(&["eval", "empty.jsonl", "--out", "other"], 1);
    assert!(
        said.contains("1 of 1 inputs have nothing the model could read")
            && said.contains("give chunks with text"),
        "{said}"
    );
}
