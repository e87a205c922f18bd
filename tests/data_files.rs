//! Every file in `models/` and `heads/` loads, is listed among the shipped ones, and refers only to files
//! that exist. A bad data file never reaches a server.

use std::{collections::BTreeSet, fs, path::Path};

use qrae::{
    model::card::{ModelCard, shipped_cards, shipped_head_sets},
    score::{
        Control, Method, Read, Statistic,
        heads::{HeadTarget, RawHeadSet, Standing},
    },
};

/// Name (without `.toml`) and text of every file in a folder of the repository.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<(String, String)> = fs::read_dir(&folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| {
            let name =
                path.file_stem().and_then(|f| f.to_str()).expect("file names are plain text").to_owned();
            (name, fs::read_to_string(&path).expect("data files are UTF-8"))
        })
        .collect();
    files.sort();
    files
}

fn cards() -> Vec<ModelCard> {
    files("models")
        .iter()
        .map(|(name, text)| ModelCard::parse(name, text).unwrap_or_else(|e| panic!("{e}")))
        .collect()
}

fn head_sets() -> Vec<RawHeadSet> {
    files("heads")
        .iter()
        .map(|(name, text)| RawHeadSet::parse(name, text).unwrap_or_else(|e| panic!("{e}")))
        .collect()
}

#[test]
fn every_file_ships() {
    assert_eq!(cards(), shipped_cards());
    assert_eq!(head_sets(), shipped_head_sets());
}

#[test]
fn cards_pin_their_weights_and_name_head_sets_that_exist() {
    let sets = head_sets();
    for card in cards() {
        let is_commit = card.revision.len() == 40 && card.revision.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_commit, "{}: a shipped card names a commit, not {}", card.id, card.revision);
        assert!(!card.stop_tokens.is_empty(), "{}", card.id);
        let Some(name) = &card.default_head_set else { continue };
        let set = sets
            .iter()
            .find(|s| s.name == *name)
            .unwrap_or_else(|| panic!("{}: no heads/{name}.toml", card.id));
        assert_eq!(set.model.as_ref(), Some(&card.id), "{name}");
    }
}

#[test]
fn no_two_cards_share_a_file() {
    let mut seen = BTreeSet::new();
    for file in cards().into_iter().flat_map(|c| c.files) {
        assert!(seen.insert(file.name.clone()) && seen.insert(file.sha256), "{} appears twice", file.name);
    }
}

#[test]
fn head_sets_fit_the_models_they_name() {
    let ids: Vec<String> = cards().into_iter().map(|c| c.id).collect();
    for set in head_sets() {
        let model = set.model.clone().expect("a shipped set names its model");
        let variant = set
            .name
            .strip_prefix(&model)
            .unwrap_or_else(|| panic!("{} is not named after {model}", set.name));
        assert!(variant.is_empty() || variant.starts_with('.'), "{}: write <model>.<variant>.toml", set.name);
        let published = set.standing() == Standing::Published;
        assert_eq!(variant == ".published", published, "{}", set.name);
        assert!(published || ids.contains(&model), "{}: no models/{model}.toml", set.name);
        if published {
            assert_eq!(set.method, Some(Method::default()), "{}: the paper has one method", set.name);
        }
        let full_rows = vec![true; set.n_layers];
        let (prompt_hash, tokenizer_hash) = (set.prompt_hash.clone(), set.tokenizer_hash.clone());
        let target = HeadTarget {
            model: &model,
            n_heads: set.n_heads,
            full_rows: &full_rows,
            prompt_hash: prompt_hash.as_deref().unwrap_or("unknown"),
            tokenizer_hash: tokenizer_hash.as_deref().unwrap_or("unknown"),
        };
        let n = set.heads.len();
        let checked = set.check(&target).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(checked.heads().len(), n);
    }
}

#[test]
fn the_papers_heads_are_the_papers() {
    let table_6 = [
        ("literesearcher-4b", "L18H15 L20H15"),
        ("deepdiver-7b", "L17H0 L18H22"),
        ("webseer-14b", "L36H21 L47H33"),
        ("openresearcher-30b", "L19H18 L26H9 L26H25"),
        ("openpangu-2.0-flash", "L36H41 L39H24 L39H30 L39H32 L45H36"),
    ];
    let sets = head_sets();
    for (model, heads) in table_6 {
        let set =
            sets.iter().find(|s| s.name == format!("{model}.published")).unwrap_or_else(|| panic!("{model}"));
        let mut found = set.heads.clone();
        found.sort_unstable();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.join(" "), heads, "{model}");
    }
}

/// What RESULTS.md says of them holds only for sets found as it says.
#[test]
fn the_sets_found_here_are_bound_and_have_a_record() {
    for card in cards() {
        let name = card.default_head_set.as_ref().unwrap_or_else(|| panic!("{} has no head set", card.id));
        let set = head_sets().into_iter().find(|s| s.name == *name).expect("its file is there");
        let method =
            Method { statistic: Statistic::ScaledSum, control: Control::NullQuery, read: Read::QueryMean };
        assert_eq!((set.standing(), set.method), (Standing::Bound, Some(method)), "{name}");
        assert!(set.provenance.held_out_auroc.is_some_and(|a| (0.5..1.0).contains(&a)), "{name}");
        let record = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("heads/records/{name}.json"));
        let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
        let heads: Vec<String> = set.heads.iter().map(ToString::to_string).collect();
        assert_eq!(
            (record["heads"].clone(), record["prompt_hash"].as_str()),
            (heads.into(), set.prompt_hash.as_deref())
        );
        assert_eq!(
            record["held_out_auroc"]["mean"].as_f64().map(|a| (a * 1e4).round() / 1e4),
            set.provenance.held_out_auroc
        );
    }
}
