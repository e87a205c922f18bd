//! Head sets: what is accepted, what is refused and with which words.

use super::*;
use crate::score::{Control, Read, Statistic};

const BOUND: &str = r#"
format = 1
model = "m"
n_layers = 4
n_heads = 2
heads = ["L3H0", "L1H1"]
prompt_hash = "sha256:p"
tokenizer_hash = "sha256:t"
method = { statistic = "breadth", control = "null_query", read = "query_mean" }
provenance = { data = "40 questions", criterion = "auroc", n = 40, auroc = 0.88, values = { L1H1 = 0.5, L0H0 = 0.1 } }
"#;

const TARGET: HeadTarget<'_> = HeadTarget {
    model: "m",
    n_heads: 2,
    full_rows: &[true, true, false, true],
    prompt_hash: "sha256:p",
    tokenizer_hash: "sha256:t",
};

fn load(text: &str, target: &HeadTarget<'_>) -> Result<HeadSet, HeadSetProblem> {
    RawHeadSet::parse("m.test", text).and_then(|raw| raw.check(target)).map_err(|e| {
        assert!(e.to_string().starts_with("head set m.test: "), "{e}");
        e.problem
    })
}

/// The bound file with some text replaced; each `from` must be there.
fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(BOUND.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn a_bound_set_is_sorted_and_knows_its_depth_and_method() {
    let set = load(BOUND, &TARGET).unwrap();
    assert_eq!(set.heads(), [HeadRef { layer: 1, head: 1 }, HeadRef { layer: 3, head: 0 }]);
    assert_eq!((set.name(), set.standing()), ("m.test", Standing::Bound));
    let method = Method { statistic: Statistic::Breadth, control: Control::NullQuery, read: Read::QueryMean };
    assert_eq!((set.method(), set.default_method()), (Some(method), method));
    assert_eq!((set.provenance().n, set.provenance().values.len()), (Some(40), 2));
    assert!(set.hash().starts_with("sha256:"));
    assert_eq!(set.label(), format!("m.test@{}", &set.hash()[7..19]));
}

#[test]
fn a_set_survives_being_written_and_read() {
    let raw = RawHeadSet::parse("m.test", BOUND).unwrap();
    assert_eq!(RawHeadSet::parse("m.test", &raw.to_toml()).unwrap(), raw);
}

#[test]
fn what_does_not_fit_the_model_is_refused_with_the_facts() {
    let full = [true; 4];
    let target = HeadTarget { model: "other", ..TARGET };
    assert_eq!(
        load(BOUND, &target),
        Err(HeadSetProblem::OtherModel { found_with: "m".into(), loaded: "other".into() })
    );
    let target = HeadTarget { n_heads: 3, ..TARGET };
    assert_eq!(load(BOUND, &target), Err(HeadSetProblem::OtherShape { named: (4, 2), loaded: (4, 3) }));
    let target = HeadTarget { full_rows: &full[..3], ..TARGET };
    assert_eq!(load(BOUND, &target), Err(HeadSetProblem::OtherShape { named: (4, 2), loaded: (3, 2) }));
    let target = HeadTarget { prompt_hash: "sha256:q", ..TARGET };
    assert!(matches!(load(BOUND, &target), Err(HeadSetProblem::OtherPrompt { .. })));
    let target = HeadTarget { tokenizer_hash: "sha256:q", ..TARGET };
    assert!(matches!(load(BOUND, &target), Err(HeadSetProblem::OtherTokenizer { .. })));
    let windowed = edited(&[("L3H0", "L2H0")]);
    assert_eq!(
        load(&windowed, &TARGET),
        Err(HeadSetProblem::NoFullRows { head: HeadRef { layer: 2, head: 0 } })
    );
    assert!(load(&windowed, &HeadTarget { full_rows: &full, ..TARGET }).is_ok());
}

#[test]
fn heads_must_exist_and_be_named_once() {
    let heads = |list: &str| load(&edited(&[(r#"["L3H0", "L1H1"]"#, list)]), &TARGET);
    assert_eq!(heads("[]"), Err(HeadSetProblem::NoHeads));
    assert_eq!(
        heads(r#"["L1H1", "L3H0", "L1H1"]"#),
        Err(HeadSetProblem::Repeated { head: HeadRef { layer: 1, head: 1 } })
    );
    for (name, layer, head) in [("L4H0", 4, 0), ("L1H2", 1, 2)] {
        let head = HeadRef { layer, head };
        assert_eq!(
            heads(&format!("[\"{name}\"]")),
            Err(HeadSetProblem::OutOfRange { head, n_layers: 4, n_heads: 2 })
        );
    }
    assert!(matches!(
        load(&edited(&[("L0H0 =", "L9H0 =")]), &TARGET),
        Err(HeadSetProblem::OutOfRange { .. })
    ));
    match heads("[[1, 1]]") {
        Err(HeadSetProblem::NotToml { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_of_another_form_are_refused() {
    let newer = edited(&[("format = 1", "format = 2\nsomething_new = true")]);
    assert_eq!(load(&newer, &TARGET), Err(HeadSetProblem::OtherFormat { found: 2, known: 1 }));
    for wrong in [
        edited(&[("n_layers", "layers")]),
        edited(&[("auroc = 0.88", "aurok = 0.88")]),
        "heads = [".into(),
        String::new(),
    ] {
        assert!(matches!(load(&wrong, &TARGET), Err(HeadSetProblem::NotToml { .. })), "{wrong}");
    }
    let raw = RawHeadSet { format: 7, ..RawHeadSet::parse("m.test", BOUND).unwrap() };
    assert_eq!(raw.check(&TARGET).unwrap_err().problem, HeadSetProblem::OtherFormat { found: 7, known: 1 });
}

#[test]
fn what_is_not_proven_must_be_stated() {
    let no_prompt = ("prompt_hash = \"sha256:p\"\n", "");
    let no_tokenizer = ("tokenizer_hash = \"sha256:t\"\n", "");
    let no_model = ("model = \"m\"\n", "");
    let provisional = ("format = 1", "format = 1\nprovisional = true");
    let published = ("format = 1", "format = 1\npublished = true");
    for (edit, field) in [(no_prompt, "prompt_hash"), (no_tokenizer, "tokenizer_hash"), (no_model, "model")] {
        assert_eq!(load(&edited(&[edit]), &TARGET), Err(HeadSetProblem::Unbound { field }));
    }
    assert_eq!(load(&edited(&[no_prompt, provisional]), &TARGET).unwrap().standing(), Standing::Provisional);
    assert_eq!(
        load(&edited(&[no_model, no_prompt, provisional]), &TARGET),
        Err(HeadSetProblem::Unbound { field: "model" })
    );
    assert_eq!(load(&edited(&[provisional]), &TARGET), Err(HeadSetProblem::NotProvisional));
    let free = edited(&[no_model, no_prompt, no_tokenizer, published]);
    assert_eq!(load(&free, &TARGET).unwrap().standing(), Standing::Published);
    let both = edited(&[no_prompt, ("format = 1", "format = 1\nprovisional = true\npublished = true")]);
    assert_eq!(load(&both, &TARGET), Err(HeadSetProblem::TwoStandings));
    // A hash that is there is checked, whatever the standing.
    let target = HeadTarget { tokenizer_hash: "sha256:q", ..TARGET };
    assert!(matches!(
        load(&edited(&[no_prompt, provisional]), &target),
        Err(HeadSetProblem::OtherTokenizer { .. })
    ));
}

#[test]
fn the_hash_names_what_decides_scores_and_nothing_else() {
    let hash = |text: &str, target: &HeadTarget<'_>| load(text, target).unwrap().hash().to_owned();
    let base = hash(BOUND, &TARGET);
    let unchanged = [
        edited(&[(r#"["L3H0", "L1H1"]"#, r#"["L1H1", "L3H0"]"#)]),
        edited(&[("40 questions", "41 questions")]),
        edited(&[("prompt_hash = \"sha256:p\"\n", ""), ("format = 1", "format = 1\nprovisional = true")]),
    ];
    for text in &unchanged {
        assert_eq!(hash(text, &TARGET), base, "{text}");
    }
    let free = edited(&[
        ("prompt_hash = \"sha256:p\"\n", ""),
        ("model = \"m\"\n", ""),
        ("format = 1", "format = 1\npublished = true"),
    ]);
    let mut seen = vec![
        base,
        hash(&edited(&[("L3H0", "L3H1")]), &TARGET),
        hash(&edited(&[("breadth", "sum")]), &TARGET),
        hash(&free, &HeadTarget { prompt_hash: "sha256:q", ..TARGET }),
        hash(&free, &HeadTarget { model: "n", ..TARGET }),
    ];
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}
