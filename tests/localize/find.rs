//! `qrae localize` finds the planted head, says so everywhere alike, and does not care how the work was split.

use std::{fs, process::Stdio, time::SystemTime};

use serde_json::json;

use super::{
    planted::PLANTED,
    support::{Home, answer, array, observations, question, questions, undated},
};

#[test]
fn the_planted_head_is_found_by_every_criterion() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 16)));
    let found = |more: &[&str]| {
        let (shown, _) = home.said(&[&["localize", "data.json", "--out", "study"], more].concat());
        let run = home.json("study/run.json");
        assert_eq!(run["best"][0]["head"], PLANTED, "{more:?}: {shown}");
        assert_eq!(run["heads"][0], PLANTED, "{more:?}: {shown}");
        assert!(shown.contains(PLANTED) && shown.contains("study/heads.toml"), "{shown}");
        run
    };
    let mass = found(&["--k", "1"]);
    assert_eq!((&mass["criterion"], &mass["inputs"]), (&json!("answer_mass"), &json!(16)));
    let value = |rank: usize| mass["best"][rank]["value"]["mean"].as_f64().unwrap();
    assert!(value(0) > 0.8 && value(1) < 0.3, "{} {}", value(0), value(1));
    assert_eq!(mass["best"][0]["top_frequency"], 1.0);
    assert_eq!(mass["held_out_auroc"]["mean"], 1.0, "the answer stands in the relevant chunk");
    assert!(mass["curve"].is_null());

    let two = found(&[]);
    assert_eq!(two["heads"].as_array().unwrap().len(), 2, "the paper's number");
    found(&["--criterion", "qrhead"]);
    let auroc = found(&["--criterion", "auroc", "--statistic", "sum"]);
    assert_eq!(
        (&auroc["method"], &auroc["held_out_auroc"]["mean"]),
        (&json!("last/query_free/sum"), &json!(1.0))
    );
    assert_eq!(auroc["best"][0]["value"]["mean"], 1.0);
    let search = found(&["--search"]);
    assert_eq!((&search["criterion"], &search["held_out_auroc"]["mean"]), (&json!("auroc"), &json!(1.0)));
    assert_eq!(
        (search["methods"].as_array().unwrap().len(), &search["methods"][0]["held_out_auroc"]),
        (24, &json!(1.0))
    );
    assert_eq!(observations(&home.at("study")).len(), 16, "observed once, for all of them");
}

#[test]
fn head_set_heatmap_pictures_and_record_say_the_same() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 8)));
    let (shown, told) = home.said(&["localize", "data.json", "--out", "study", "--seed", "5"]);
    assert!(!shown.contains('\x1b') && !told.contains("left out"), "{shown}{told}");
    let run = home.json("study/run.json");
    for field in ["version", "date", "prompt_hash", "tokenizer_hash"] {
        assert!(run[field].as_str().is_some_and(|s| !s.is_empty()), "{field}: {run}");
    }
    for (field, want) in [
        ("model", json!("planted")),
        ("compute", json!("int8")),
        ("data", json!("data.json")),
        ("seed", json!(5)),
    ] {
        assert_eq!(run[field], want, "{field}");
    }
    // heads.toml
    let toml: toml::Table = home.read("study/heads.toml").parse().unwrap();
    assert_eq!(json!(toml["heads"]), run["heads"]);
    assert_eq!(
        (json!(toml["model"]), json!(toml["n_layers"]), json!(toml["n_heads"])),
        (json!("planted"), json!(3), json!(4))
    );
    assert_eq!(
        (json!(toml["prompt_hash"]), json!(toml["tokenizer_hash"])),
        (run["prompt_hash"].clone(), run["tokenizer_hash"].clone())
    );
    let provenance = toml["provenance"].as_table().unwrap();
    assert_eq!(
        (json!(provenance["data"]), json!(provenance["n"]), json!(provenance["seed"])),
        (json!("data.json"), json!(8), json!(5))
    );
    let mass = provenance["values"][PLANTED].as_float().unwrap();
    assert!((mass - run["best"][0]["value"]["mean"].as_f64().unwrap()).abs() <= 5e-5);
    // heatmap.csv
    let csv = home.read("study/heatmap.csv");
    let mut rows = csv.lines();
    assert_eq!(rows.next(), Some("layer,H0,H1,H2,H3"));
    let heat = run["heatmap"].as_array().unwrap();
    assert_eq!(heat.len(), 3);
    for (layer, (row, want)) in rows.zip(heat).enumerate() {
        let fields: Vec<f64> = row.split(',').map(|f| f.parse().unwrap()).collect();
        assert_eq!((fields.len(), fields[0]), (5, layer as f64));
        for (got, want) in fields[1..].iter().zip(want.as_array().unwrap()) {
            assert!((got - want.as_f64().unwrap()).abs() < 1e-6, "{row}");
        }
    }
    // pictures
    for name in ["heatmap", "stability", "scores"] {
        let png = fs::read(home.at(&format!("study/{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 1000, "{name}.png");
        let svg = home.read(&format!("study/{name}.svg"));
        assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{name}.svg: {}", &svg[..40]);
        assert!(svg.contains("planted"), "{name}.svg names the model");
        assert!(name == "scores" || svg.contains(PLANTED), "{name}.svg names the head");
    }
}

#[test]
fn the_head_set_scores_with_the_model_it_was_found_with() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 8)));
    home.said(&["localize", "data.json", "--out", "study", "--k", "1"]);
    let request = format!(
        r#"{{"query": "tell me? who keeps it", "chunks": ["the first lamp is out", "the second, {}, burns", "the third is lost"]}}"#,
        answer(77)
    );
    let file = home.write("request.json", &request);
    let (scored, _) =
        home.said(&["score", "--json", "--head-set", "study/heads.toml", file.to_str().unwrap()]);
    let scored: serde_json::Value = serde_json::from_str(&scored).unwrap();
    assert_eq!(scored["heads"], json!([PLANTED]));
    assert!(scored["head_set"].as_str().unwrap().starts_with("heads@"), "{scored}");
    let ranks: Vec<u64> =
        scored["results"].as_array().unwrap().iter().map(|r| r["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks[1], 1, "{scored}");
}

#[test]
fn parts_give_what_one_run_gives() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 10)));
    home.said(&["localize", "data.json", "--out", "whole", "--n", "8"]);
    for shard in ["1/3", "2/3", "3/3"] {
        let part = format!("part{}", &shard[..1]);
        let (shown, _) = home.said(&["localize", "data.json", "--n", "8", "--out", &part, "--shard", shard]);
        assert!(shown.contains("qrae localize merge"), "{shown}");
        assert!(!home.at(&part).join("heads.toml").exists(), "a part alone chooses nothing");
    }
    let counts = ["part1", "part2", "part3"].map(|part| observations(&home.at(part)).len());
    assert_eq!(counts, [3, 3, 2]);
    let said = home.fails(&["localize", "merge", "part3", "part1", "--out", "merged"], 1);
    assert!(
        said.contains("of 3 parts of the 8 inputs drawn from data.json with seed 42, part 2 is missing"),
        "{said}"
    );
    let (shown, _) = home.said(&[
        "localize",
        "data.json",
        "--n",
        "8",
        "--out",
        "part1",
        "--shard",
        "1/3",
        "--search",
        "--k",
        "3",
        "--seed",
        "5",
    ]);
    assert!(shown.contains("merge part1 OTHERS … --search --k 3 --seed 5 --out study"), "{shown}");
    let said = home.fails(&["localize", "merge", "part1", "part2", "part3", "--out", "merged"], 1);
    assert!(said.contains("drawn from data.json with seed 5, parts 2 and 3 are missing"), "{said}");
    fs::remove_dir_all(home.at("part1")).unwrap();
    home.said(&["localize", "data.json", "--n", "8", "--out", "part1", "--shard", "1/3"]);
    assert!(!home.at("merged").exists());
    let (_, told) = home.said(&["localize", "merge", "part3", "part1", "part2", "--out", "merged"]);
    assert!(told.contains("3 observations taken from part1"), "{told}");
    for file in ["heads.toml", "run.json", "heatmap.csv", "heatmap.svg"] {
        let (merged, whole) = (home.read(&format!("merged/{file}")), home.read(&format!("whole/{file}")));
        assert_eq!(undated(&merged), undated(&whole), "{file}");
    }
    let bytes =
        |study: &str| observations(&home.at(study)).iter().map(|f| fs::read(f).unwrap()).collect::<Vec<_>>();
    assert_eq!(bytes("merged"), bytes("whole"));
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 8)));
    let run = || home.said(&["localize", "data.json", "--out", "study"]).1;
    assert!(!run().contains("observed before"));
    let (first, record) = (home.read("study/heads.toml"), home.read("study/run.json"));
    let files = observations(&home.at("study"));
    assert_eq!(files.len(), 8);
    // what an interruption leaves: some are missing, one is half written
    for file in &files[..3] {
        fs::remove_file(file).unwrap();
    }
    fs::write(files[0].with_extension("99.part"), b"half").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for file in &files[3..] {
        fs::File::options().append(true).open(file).unwrap().set_modified(long_ago).unwrap();
    }
    let told = run();
    assert!(told.contains("5 of 8 inputs were observed before, in study; new: 3"), "{told}");
    assert_eq!(
        (undated(&home.read("study/heads.toml")), undated(&home.read("study/run.json"))),
        (undated(&first), undated(&record))
    );
    for (i, file) in files.iter().enumerate() {
        let modified = fs::metadata(file).unwrap().modified().unwrap();
        assert_eq!(modified == long_ago, i >= 3, "{i}: those that were there are not touched");
    }
    // a file that was tampered with is told, and removing it helps
    fs::write(&files[4], b"no numbers").unwrap();
    let said = home.fails(&["localize", "data.json", "--out", "study"], 1);
    assert!(
        said.contains(files[4].file_name().unwrap().to_str().unwrap()) && said.contains("remove it"),
        "{said}"
    );
    fs::remove_file(&files[4]).unwrap();
    run();
    assert_eq!(undated(&home.read("study/heads.toml")), undated(&first));
}

#[test]
fn files_are_of_this_run_and_say_what_they_replace() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 8)));
    home.write("again.json", &array(&questions(0, 6)));
    let run = |args: &[&str]| home.said(&[&["localize"], args, &["--out", "study"]].concat()).1;
    assert!(!run(&["data.json"]).contains("replaced"));
    assert!(!run(&["data.json"]).contains("replaced"), "the same again");
    let told = run(&["again.json", "--k", "1"]);
    assert!(told.contains("6 of 6 inputs were observed before") && !told.contains("interrupt"), "{told}");
    assert!(
        told.contains("study/heads.toml is replaced, which had L1H2 ")
            && told.contains("by answer_mass of data.json, 8 inputs"),
        "{told}"
    );
    assert_eq!(home.json("study/run.json")["data"], "again.json", "not where they were observed first");
    assert!(home.at("study/scores.png").exists());
    // without labels there are no scores to draw, and none of before stay
    let line = |i: usize| {
        json!({"query": format!("tell me? {i}"), "answer": answer(i), "trajectory_id": i.to_string(),
        "chunks": ["nothing here", format!("they call it {}", answer(i))]})
    };
    home.write("runs.jsonl", &(0..3).map(|i| format!("{}\n", line(i))).collect::<String>());
    let told = run(&["runs.jsonl"]);
    assert!(told.contains("interrupt at any time"), "{told}");
    assert!(home.at("study/heatmap.png").exists() && !home.at("study/scores.png").exists());
    assert!(!home.at("study/scores.svg").exists());
    let left: Vec<_> = fs::read_dir(home.at("study")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".part")), "{left:?}");
}

#[test]
fn a_part_without_inputs_is_told_and_merges() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 2)));
    for part in ["1", "2", "3"] {
        let (shown, _) =
            home.said(&["localize", "data.json", "--out", part, "--shard", &format!("{part}/3")]);
        assert_eq!(shown.contains("part 3 of 3 has no inputs, as 2 were drawn"), part == "3", "{shown}");
    }
    home.said(&["localize", "merge", "1", "2", "3", "--out", "merged", "--k", "1"]);
    assert_eq!(home.json("merged/run.json")["inputs"], 2);
}

#[cfg(target_os = "linux")]
#[test]
fn nobody_listening_is_no_reason_to_panic() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 3)));
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let status = |args: &[&str], out: bool| {
        let mut command = home.command(args);
        command.stdout(if out { full().into() } else { Stdio::null() });
        command.stderr(if out { Stdio::null() } else { full().into() });
        command.status().unwrap().code()
    };
    assert_eq!(status(&["localize", "data.json", "--out", "part", "--shard", "1/2"], true), Some(1));
    // what is told on stderr goes nowhere, and the work is done
    assert_eq!(status(&["localize", "data.json", "--out", "study"], false), Some(0));
    assert_eq!(status(&["localize", "data.json", "--out", "study"], false), Some(0));
    assert_eq!(status(&["eval", "data.json", "--out", "out"], false), Some(0));
    assert!(home.at("out/table.md").exists());
}

#[test]
fn other_criteria_draw_the_same_questions_as_far_as_they_can() {
    let home = Home::new();
    let mut data = questions(0, 12);
    data[3] = question(3, "yes");
    data[8] = question(8, "no");
    home.write("data.json", &array(&data));
    for seed in ["1", "2", "3"] {
        let run = |criterion| {
            home.said(&[
                "localize",
                "data.json",
                "--out",
                seed,
                "--n",
                "8",
                "--seed",
                seed,
                "--criterion",
                criterion,
                "--k",
                "1",
            ]);
            observations(&home.at(seed)).len()
        };
        assert_eq!(run("answer_mass"), 8);
        assert!(run("auroc") <= 10, "only those that were of no use before are new");
    }
}

#[test]
fn threads_and_prefix_caching_change_nothing() {
    let home = Home::new();
    home.write("data.json", &array(&questions(0, 6)));
    home.said(&["localize", "data.json", "--out", "a"]);
    home.said(&[
        "localize",
        "data.json",
        "--out",
        "b",
        "--threads",
        "2",
        "--no-prefix-caching",
        "--prefill-chunk",
        "64",
    ]);
    assert_eq!(undated(&home.read("a/run.json")), undated(&home.read("b/run.json")));
}

#[test]
fn answers_in_other_letters_and_cases_are_found() {
    let home = Home::new();
    // asked for in lower case, written in upper case; two bytes a letter
    let mut data = Vec::new();
    for number in 0..6 {
        let mut record = question(number, &"Ж".repeat(3 + number));
        record["answer"] = json!("ж".repeat(3 + number));
        data.push(record);
    }
    home.write("data.json", &array(&data));
    let (_, told) = home.said(&["localize", "data.json", "--out", "study", "--k", "1"]);
    assert!(!told.contains("left out"), "{told}");
    let run = home.json("study/run.json");
    assert_eq!((&run["inputs"], &run["heads"]), (&json!(6), &json!([PLANTED])));
    assert!(run["best"][0]["value"]["mean"].as_f64().unwrap() > 0.6, "{}", run["best"][0]);
}

#[test]
fn one_input_of_each_trajectory_is_observed() {
    let home = Home::new();
    let line = |run: usize, search: usize| {
        let name = answer(run);
        json!({"query": format!("tell me? search {search}"), "answer": name, "trajectory_id": format!("run {run}"),
            "chunks": ["nothing here", {"title": "lamps", "text": format!("they call it {name} {search}")}]})
    };
    let lines: String =
        (0..5).flat_map(|run| (0..3).map(move |search| format!("{}\n", line(run, search)))).collect();
    home.write("runs.jsonl", &lines);
    let (shown, _) = home.said(&["localize", "runs.jsonl", "--out", "study", "--k", "1"]);
    let run = home.json("study/run.json");
    assert_eq!((&run["inputs"], &run["heads"]), (&json!(5), &json!([PLANTED])));
    assert!(run["auroc"].is_null() && run["held_out_auroc"].is_null(), "trajectories have no labels");
    let again = ["qrae eval LABELLED --model ", "/planted --head-set study/heads.toml"];
    assert!(again.iter().all(|part| shown.contains(part)), "{shown}");
    assert!(!home.at("study/scores.png").exists());
}
