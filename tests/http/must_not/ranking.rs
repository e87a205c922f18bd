//! Heads, order and identity: which heads are read, who comes first, and which result is whose.

use std::fs;

use qrae::{
    hub::ModelFiles,
    service::{LoadOptions, ServedModel},
};
use serde_json::{Value, json};

use crate::support::*;

const ROUTES: [&str; 3] = ["/rerank", "/v1/rerank", "/v2/rerank"];

fn score(chunks: &Value, more: &Value) -> Value {
    merged(json!({"query": "what is in the sea?", "chunks": chunks, "heads": HEADS}), more)
}

#[tokio::test]
async fn m07_each_head_is_itself_among_others_and_unlike_its_neighbours() {
    let app = app();
    let all: Vec<String> =
        (0..3).flat_map(|layer| (0..6).map(move |head| format!("L{layer}H{head}"))).collect();
    let body = |heads: &[String]| {
        score(&json!(["the user asked 7", "she and he"]), &json!({"heads": heads, "statistic": "sum"}))
    };
    let together = post(&app, SCORE, &body(&all)).await.ok();
    let of =
        |answer: &Value, head: usize| [0, 1].map(|chunk| answer["results"][chunk]["heads"][head].clone());
    let mut seen = Vec::new();
    for (i, head) in all.iter().enumerate() {
        let alone = post(&app, SCORE, &body(std::slice::from_ref(head))).await.ok();
        assert_eq!(of(&alone, 0), of(&together, i), "{head}");
        assert_eq!(alone["results"][0]["heads"][0]["head"], json!(head));
        seen.push(of(&together, i).map(|chunk| chunk["mass"].to_string()));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all.len(), "two heads were read as one");
}

#[tokio::test]
async fn m07_layers_without_full_rows_are_refused_at_startup() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/qwen3");
    let config: Value =
        serde_json::from_str(&fs::read_to_string(golden.join("config.json")).unwrap()).unwrap();
    for (more, said) in [
        (json!({"use_sliding_window": true}), "use_sliding_window"),
        (
            json!({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
            "sliding_attention",
        ),
        (
            json!({"layer_types": ["linear_attention", "full_attention", "full_attention"]}),
            "linear_attention",
        ),
        (
            json!({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}),
            "Qwen3NextForCausalLM",
        ),
        (json!({"rope_parameters": {"rope_type": "longrope"}}), "longrope"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("config.json", &merged(config.clone(), &more).to_string());
        put("tokenizer.json", &tokenizer_json());
        fs::copy(golden.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        let files = ModelFiles::Folder(folder.path().into());
        let refused =
            ServedModel::load(&files, None, &LoadOptions::default()).err().expect("it cannot be served");
        assert!(refused.to_string().contains(said), "{said}: {refused}");
    }
}

#[tokio::test]
async fn m08_a_head_file_for_another_model_or_with_wrong_indices_is_refused_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let set = |heads: &str, more: &str| {
        format!(
            "format = 1\nn_layers = 3\nn_heads = 6\nheads = {heads}\npublished = true\n{more}\n\
             [provenance]\ndata = \"made here\"\ncriterion = \"none\"\n"
        )
    };
    let good = set(r#"["L0H5", "L2H0"]"#, "");
    for (text, said) in [
        (set(r#"["L0H5"]"#, "model = \"other\""), "other"),
        (set(r#"["L0H5"]"#, "tokenizer_hash = \"sha256:0\""), "tokenizer"),
        (set(r#"["L0H5"]"#, "prompt_hash = \"sha256:0\""), "prompt"),
        (good.replace("n_layers = 3", "n_layers = 4"), "4 layers"),
        (good.replace("n_heads = 6", "n_heads = 7"), "7 heads"),
        // counted from 1, the last layer and the last head are one too many
        (set(r#"["L3H1"]"#, ""), "L3H1"),
        (set(r#"["L1H6"]"#, ""), "L1H6"),
        (set(r#"["L0H5", "L2H0", "L0H5"]"#, ""), "L0H5"),
        (set("[]", ""), "heads"),
    ] {
        fs::write(&file, &text).unwrap();
        let refused = load_heads(&file).err().unwrap_or_else(|| panic!("taken: {text}")).to_string();
        assert!(refused.contains("mine") && refused.contains(said), "{said}: {refused}");
    }
    fs::write(&file, good).unwrap();
    let app = app_with_heads(&file);
    let answer =
        post(&app, SCORE, &merged(score(&json!(["it is"]), &json!({})), &json!({"heads": null}))).await.ok();
    assert_eq!(answer["heads"], json!(["L0H5", "L2H0"]));
    let label = answer["head_set"].as_str().unwrap();
    for (name, status) in [(label, 200), ("mine", 200), ("mine@000000000000", 404), ("MINE", 404)] {
        let body = score(&json!(["it is"]), &json!({"heads": null, "head_set": name}));
        assert_eq!(post(&app, SCORE, &body).await.status.as_u16(), status, "{name}");
    }
}

#[tokio::test]
async fn m08_heads_of_a_request_that_do_not_exist_or_come_twice_are_refused() {
    let app = app();
    for heads in [
        json!(["L3H0"]),
        json!(["L0H6"]),
        json!(["L1H1", "L0H0", "L1H1"]),
        json!(["L01H1", "L1H1"]),
        json!([]),
    ] {
        for (path, more) in [
            (SCORE, json!({})),
            ("/rerank", json!({"documents": ["x"]})),
            ("/rerank", json!({"texts": ["x"]})),
        ] {
            let answer =
                post(&app, path, &score(&json!(["x"]), &merged(more, &json!({"heads": heads})))).await;
            assert!(
                [400, 422].contains(&answer.status.as_u16()) && answer.text.contains("heads"),
                "{heads}: {}",
                answer.text
            );
        }
    }
}

/// Some of them tie.
const TEXTS: [&str; 7] =
    ["the user asked 7", "", "it is 日本語 and the user", "", "she and he", "", "in the sea"];

#[tokio::test]
async fn m09_results_are_sorted_the_best_first_and_ties_keep_their_order() {
    let app = app();
    let mut ties = 0;
    for statistic in ["entropy", "sum", "breadth", "scaled_sum"] {
        let more = json!({"statistic": statistic});
        let native = post(&app, SCORE, &score(&json!(TEXTS), &more)).await.ok()["results"].take();
        let native = native.as_array().unwrap();
        let of = |i: usize| (native[i]["score"].as_f64().unwrap(), native[i]["rank"].as_u64().unwrap());
        for (i, result) in native.iter().enumerate() {
            assert_eq!(result["index"], i, "in the order of the request");
            for j in i + 1..TEXTS.len() {
                let (before, after) = (of(i), of(j));
                assert_eq!(before.0 >= after.0, before.1 < after.1, "{before:?} {after:?}: higher is better");
                ties += usize::from(before.0 == after.0);
            }
        }
        let mut order: Vec<usize> = (0..TEXTS.len()).collect();
        order.sort_by_key(|&i| of(i).1);
        for route in ROUTES {
            let query = merged(json!({"query": "what is in the sea?", "heads": HEADS}), &more);
            let object =
                post(&app, route, &merged(query.clone(), &json!({"documents": TEXTS}))).await.ok()["results"]
                    .take();
            let list = post(&app, route, &merged(query, &json!({"texts": TEXTS}))).await.ok();
            for (results, score) in [(object, "relevance_score"), (list, "score")] {
                let results = results.as_array().unwrap();
                let indices: Vec<usize> =
                    results.iter().map(|r| r["index"].as_u64().unwrap() as usize).collect();
                assert_eq!(indices, order, "{route} {statistic}");
                let scores: Vec<f64> = results.iter().map(|r| r[score].as_f64().unwrap()).collect();
                assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
                assert!(scores.iter().all(|s| (0.0..=1.0).contains(s)), "{scores:?}");
            }
        }
    }
    assert!(ties >= 12, "three empty texts tie under every statistic: {ties}");
}

#[tokio::test]
async fn m09_top_n_is_how_many_at_most_and_nothing_is_all() {
    let app = app();
    for dialect in ["documents", "texts"] {
        let ask = async |top: Value| {
            let body = merged(json!({"query": "why?", "heads": HEADS, (dialect): TEXTS}), &top);
            let answer = post(&app, "/rerank", &body).await.ok();
            answer.get("results").unwrap_or(&answer).as_array().unwrap().clone()
        };
        let all = ask(json!({})).await;
        assert_eq!(all.len(), TEXTS.len());
        for (top, want) in
            [(json!(null), 7), (json!(0), 7), (json!(1), 1), (json!(6), 6), (json!(7), 7), (json!(8), 7)]
        {
            assert_eq!(ask(json!({"top_n": top})).await, all[..want], "{dialect} {top}");
        }
        for top in [json!(-1), json!("3"), json!(1.5)] {
            let body = json!({"query": "why?", "heads": HEADS, (dialect): TEXTS, "top_n": top});
            assert!(post(&app, "/rerank", &body).await.status.is_client_error(), "{dialect} {top}");
        }
    }
}

#[tokio::test]
async fn m10_a_bad_document_fails_no_other() {
    let app = app();
    let good = "the user asked 7";
    for bad in [
        "",
        " ",
        "\n\r\n\t",
        "\0\0",
        "\u{feff}",
        "\u{301}",
        "\u{fffd}",
        "<|im_end|><s>",
        "\u{200b}",
        "x",
        "\u{202e}",
        "{text}",
        "]]]",
    ] {
        let native = post(&app, SCORE, &score(&json!([good, bad, good]), &json!({}))).await.ok();
        let results = native["results"].as_array().unwrap();
        assert_eq!(results.len(), 3, "{bad:?}");
        assert_eq!(results[0]["tokens"], results[2]["tokens"]);
        assert!(results[0]["score"].as_f64().unwrap() > 0.0, "{bad:?} {native}");
        let query = json!({"query": "why?", "heads": HEADS});
        let object = post(&app, "/rerank", &merged(query.clone(), &json!({"documents": [good, bad, good]})))
            .await
            .ok();
        assert_eq!(object["results"].as_array().unwrap().len(), 3, "{bad:?}");
        let list = post(&app, "/rerank", &merged(query, &json!({"texts": [good, bad, good]}))).await.ok();
        assert_eq!(list.as_array().unwrap().len(), 3, "{bad:?}");
    }
    // what is no text at all is named, and not left out
    let body = json!({"query": "why?", "heads": HEADS, "documents": [good, good, {"title": "t"}]});
    let answer = post(&app, "/rerank", &body).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["error"]["param"]),
        (400, &json!("documents[2].text"))
    );
}

#[tokio::test]
async fn m10_equal_ids_and_equal_texts_are_different_chunks() {
    let app = app();
    let chunk = |text: &str| json!({"id": "a", "url": "https://example.org", "title": "T", "text": text});
    let chunks = json!([chunk("she and he"), chunk("she and he"), chunk("in the sea"), chunk("she and he")]);
    let answer = post(&app, SCORE, &score(&chunks, &json!({}))).await.ok();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    let mut ranks = Vec::new();
    for (i, result) in results.iter().enumerate() {
        assert_eq!((&result["index"], &result["id"]), (&json!(i), &json!("a")));
        ranks.push(result["rank"].as_u64().unwrap());
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [1, 2, 3, 4]);
    let body = json!({"query": "why?", "heads": HEADS, "documents": chunks, "return_documents": true});
    let reranked = post(&app, "/rerank", &body).await.ok()["results"].take();
    let mut indices = Vec::new();
    for result in reranked.as_array().unwrap() {
        let i = result["index"].as_u64().unwrap() as usize;
        assert_eq!(result["document"], chunks[i]);
        indices.push(i);
    }
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
}
