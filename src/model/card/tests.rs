//! Model cards: what is accepted, what is refused and where.

use super::*;

const CARD: &str = r#"
format = 1
id = "m-1b"
repository = "owner/m-1b-gguf"
revision = "0123456789abcdef0123456789abcdef01234567"
files = [{ name = "m-1b.gguf", hub_path = "sub/M.gguf", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }]
architecture = "llama"
dtype = "q4_1"
max_context = 8192
default_head_set = "m-1b"
stop_tokens = ["<|im_end|>"]
licence = "Apache-2.0"

[score_prompt]
query_suffix = ""

[packages]
member = { suffix = ".gguf" }
packages = ["m-part1==0.9.0", "m-part2==0.9.0"]
"#;

fn edited(from: &str, to: &str) -> Result<ModelCard, CardProblem> {
    assert!(CARD.contains(from), "{from}");
    ModelCard::parse("m-1b", &CARD.replace(from, to)).map_err(|e| {
        assert!(e.to_string().starts_with("model card m-1b: "), "{e}");
        e.problem
    })
}

#[test]
fn a_card_is_read_with_defaults_for_what_it_leaves_out() {
    let card = ModelCard::parse("m-1b", CARD).unwrap();
    assert_eq!((card.id.as_str(), card.max_context, card.bos.as_deref()), ("m-1b", 8192, None));
    assert_eq!(
        card.score_prompt,
        ScorePrompt { query_suffix: Some(String::new()), ..ScorePrompt::default() }
    );
    assert_eq!((card.files[0].name.as_str(), card.files[0].hub_path()), ("m-1b.gguf", "sub/M.gguf"));
    assert_eq!(card.packages.unwrap().packages.len(), 2);
    let card = edited("hub_path = \"sub/M.gguf\", ", "").unwrap();
    assert_eq!(card.files[0].hub_path(), "m-1b.gguf");
}

#[test]
fn a_wrong_field_is_named() {
    let cases = [
        ("\"owner/m-1b-gguf\"", "\"m-1b-gguf\"", "repository"),
        ("\"owner/m-1b-gguf\"", "\"a/b/c\"", "repository"),
        ("\"owner/m-1b-gguf\"", "\"../b\"", "repository"),
        ("\"0123456789abcdef0123456789abcdef01234567\"", "\"\"", "revision"),
        ("name = \"m-1b.gguf\"", "name = \"../m.gguf\"", "files.name"),
        ("name = \"m-1b.gguf\"", "name = \"a/m.gguf\"", "files.name"),
        ("sub/M.gguf", "../M.gguf", "files.hub_path"),
        ("sub/M.gguf", "/M.gguf", "files.hub_path"),
        ("sha256 = \"0", "sha256 = \"A", "files.sha256"),
        ("sha256 = \"0", "sha256 = \"", "files.sha256"),
        ("\"llama\"", "\"\"", "architecture"),
        ("8192", "0", "max_context"),
        ("m-part2==0.9.0", "m-part2", "packages.packages"),
        ("m-part2==0.9.0", "--index==0.9.0", "packages.packages"),
        ("[\"m-part1==0.9.0\", \"m-part2==0.9.0\"]", "[]", "packages.packages"),
        ("\".gguf\"", "\"\"", "packages.member"),
    ];
    for (from, to, wrong) in cases {
        match edited(from, to) {
            Err(CardProblem::Field { field, .. }) => assert_eq!(field, wrong, "{from} -> {to}"),
            other => panic!("{from} -> {to} gave {other:?}"),
        }
    }
}

#[test]
fn other_files_are_refused() {
    assert_eq!(edited("format = 1", "format = 2\nnew_field = 1"), Err(CardProblem::OtherFormat { found: 2 }));
    assert_eq!(edited("id = \"m-1b\"", "id = \"other\""), Err(CardProblem::OtherId { id: "other".into() }));
    assert!(matches!(edited("dtype", "dtipe"), Err(CardProblem::NotToml { .. })));
    assert!(matches!(edited("query_suffix", "sufix"), Err(CardProblem::NotToml { .. })));
    assert!(matches!(edited("query_suffix = \"\"", "block = \"{i}\""), Err(CardProblem::Prompt(_))));
    let two = r#"files = [{ name = "b", sha256 = "1111111111111111111111111111111111111111111111111111111111111111" }, "#;
    assert_eq!(edited("files = [", two), Err(CardProblem::PackagesOfManyFiles { files: 2 }));
}

#[test]
fn members_are_files_in_a_folder_or_with_a_suffix() {
    let folder = Member::Folder("data".into());
    for (path, matches) in [
        ("pkg/data/part", true),
        ("data/part", true),
        ("pkg/data/deep/part", true),
        ("pkg/data/", false),
        ("pkg/data", false),
        ("pkg/metadata/part", false),
        ("data", false),
    ] {
        assert_eq!(folder.matches(path), matches, "{path}");
    }
    let suffix = Member::Suffix(".gguf".into());
    for (path, matches) in [("pkg/m.gguf", true), ("m.gguf", true), ("m.gguf/", false), ("m.gguf.txt", false)]
    {
        assert_eq!(suffix.matches(path), matches, "{path}");
    }
}

#[test]
fn everything_shipped_loads() {
    let ids: Vec<String> = shipped_cards().into_iter().map(|c| c.id).collect();
    assert!(ids.contains(&"qwen2.5-coder-0.5b-instruct".to_owned()) && ids.is_sorted());
    let names: Vec<String> = shipped_head_sets().into_iter().map(|s| s.name).collect();
    assert!(names.contains(&"webseer-14b.published".to_owned()) && names.is_sorted());
}
