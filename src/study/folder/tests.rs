//! Round trips, runs that go on, and files that are refused.

use std::collections::HashMap;

use safetensors::{SafeTensors, tensor::serialize};

use super::{
    super::tests::{blank, noise},
    record::Numbers,
    *,
};
use crate::{eval::judged::JudgedError, ids::HeadRef, prompt::layout::Chunk, score::Method};

fn identity() -> Identity {
    Identity {
        format: FORMAT,
        kind: Kind::Study,
        model: "planted".into(),
        weights: "sha256:w".into(),
        n_layers: 2,
        n_heads: 3,
        rope: "theta 10000".into(),
        prompt_hash: "sha256:p".into(),
        tokenizer_hash: "sha256:t".into(),
        compute: "f32".into(),
        methods: Identity::current_methods(),
    }
}

fn question(number: usize, labels: Option<&[u32]>) -> Question {
    let chunk = |text: &str| Chunk { text: text.to_owned(), ..Chunk::default() };
    Question {
        id: format!("q{number}"),
        query: format!("Who is number {number}?"),
        chunks: vec![chunk("one"), chunk("two")],
        labels: labels.map(<[u32]>::to_vec),
        ..Question::default()
    }
}

/// Every number another one, so that nothing can be mixed up.
fn observation(seed: u32) -> Observation {
    let mut next = noise(seed);
    let mut seen = blank("", 6, 2, None).observation;
    let numbers = seen.tables.values_mut().flatten().chain(&mut seen.qr).chain(&mut seen.icr);
    numbers.for_each(|v| *v = next());
    seen.chunk_lens = vec![3, 4 + seed as usize];
    seen.answer_mass = seed.is_multiple_of(2).then(|| (0..6).map(|_| next()).collect());
    seen
}

/// A folder with three observations.
fn filled(root: &Path) -> (Folder, Vec<Question>) {
    let folder = Folder::create(root, &identity()).unwrap();
    let questions = vec![question(0, Some(&[0, 2])), question(1, None), question(2, Some(&[1, 0]))];
    for (seed, question) in (0..).zip(&questions) {
        folder.keep(question, &observation(seed)).unwrap();
    }
    (folder, questions)
}

fn first_file(folder: &Folder) -> PathBuf {
    folder.files().unwrap().remove(0)
}

#[test]
fn what_was_kept_is_read_again_by_whoever_opens_the_folder() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("a/b");
    let (_, questions) = filled(&root);
    let folder = Folder::open(&root, Kind::Study).unwrap();
    assert_eq!((folder.identity(), folder.root()), (&identity(), root.as_path()));
    for (seed, question) in (0..).zip(&questions) {
        assert!(folder.has(question));
        let found = folder.of(&[question]).unwrap();
        let want = Record {
            id: question.id.clone(),
            query: question.query.clone(),
            labels: question.labels.clone(),
            observation: observation(seed),
        };
        assert_eq!(found, [want]);
    }
    let all = folder.all().unwrap();
    assert_eq!(all.len(), 3);
    // whoever asks in whatever order, also twice, gets one order
    let asked: Vec<&Question> = questions.iter().rev().chain(&questions).collect();
    assert_eq!(folder.of(&asked).unwrap(), all);
    assert!(!folder.has(&question(3, None)));
    assert_eq!(folder.of(&[&question(3, None)]).unwrap(), []);
}

#[test]
fn a_question_with_other_text_labels_or_answer_is_another_one() {
    let home = tempfile::tempdir().unwrap();
    let (folder, questions) = filled(home.path());
    let known = &questions[0];
    assert!(folder.has(&Question { id: "renamed".into(), ..known.clone() }), "the id is never shown");
    for other in [
        Question { query: "Who?".into(), ..known.clone() },
        Question { labels: Some(vec![1, 2]), ..known.clone() },
        Question { labels: None, ..known.clone() },
        Question { answer: Some("one".into()), ..known.clone() },
        Question { chunks: known.chunks.iter().rev().cloned().collect(), ..known.clone() },
    ] {
        assert!(!folder.has(&other), "{other:?}");
    }
}

#[test]
fn work_goes_on_where_it_stopped_and_half_written_files_are_not_there() {
    let home = tempfile::tempdir().unwrap();
    let (folder, questions) = filled(home.path());
    let file = folder.file(&questions[1].content_hash());
    // as a run leaves it that dies while it writes
    fs::rename(&file, file.with_extension("4711.part")).unwrap();
    let again = Folder::create(home.path(), &identity()).unwrap();
    assert_eq!(questions.iter().map(|q| again.has(q)).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(again.all().unwrap().len(), 2);
    again.keep(&questions[1], &observation(1)).unwrap();
    assert_eq!(again.all().unwrap().len(), 3);

    fs::remove_dir_all(home.path().join("inputs")).unwrap();
    let empty = Folder::create(home.path(), &identity()).unwrap();
    assert_eq!(empty.all().unwrap(), []);
    empty.keep(&questions[1], &observation(1)).unwrap();
}

#[test]
fn a_folder_of_another_model_is_refused_by_what_differs() {
    let home = tempfile::tempdir().unwrap();
    let (folder, _) = filled(home.path());
    let mine = identity;
    for (other, field, found, wanted) in [
        (Identity { model: "other".into(), ..mine() }, "model", "planted", "other"),
        (Identity { weights: "sha256:v".into(), ..mine() }, "weights", "sha256:w", "sha256:v"),
        (Identity { rope: "theta 1".into(), ..mine() }, "rotary embedding", "theta 10000", "theta 1"),
        (Identity { n_layers: 3, ..mine() }, "layers × heads", "2 × 3", "3 × 3"),
        (Identity { prompt_hash: "sha256:q".into(), ..mine() }, "prompt", "sha256:p", "sha256:q"),
        (Identity { tokenizer_hash: "x".into(), ..mine() }, "tokenizer", "sha256:t", "x"),
        (Identity { compute: "int8".into(), ..mine() }, "--compute", "f32", "int8"),
    ] {
        let error = Folder::create(home.path(), &other).unwrap_err();
        let told = error.to_string();
        let StudyError::Other { field: f, found: a, wanted: b, path, .. } = error else { panic!("{told}") };
        assert_eq!((f, a.as_str(), b.as_str(), path.as_path()), (field, found, wanted, home.path()));
        assert!(told.contains(&format!("with {field} {found}, this run has {wanted}")), "{told}");
        assert!(told.contains("--out"), "{told}");
        let told = folder.must_be(&other, "do that").unwrap_err().to_string();
        assert!(told.ends_with("; do that"), "{told}");
    }
    assert!(folder.must_be(&mine(), "").is_ok());
    let evil = Identity { model: "a\u{1b}[31m".into(), ..mine() };
    let told = folder.must_be(&evil, "").unwrap_err().to_string();
    assert!(told.contains("a\\u{1b}[31m") && !told.contains('\u{1b}'), "{told}");
}

#[test]
fn a_folder_of_another_version_is_refused_by_what_it_lacks() {
    let home = tempfile::tempdir().unwrap();
    let (_, questions) = filled(home.path());
    let rewrite = |identity: &Identity| {
        fs::write(home.path().join("study.toml"), toml::to_string(identity).unwrap()).unwrap();
        Folder::open(home.path(), Kind::Study).unwrap_err().to_string()
    };
    let mut fewer = identity();
    let gone = fewer.methods.remove(2);
    assert!(rewrite(&fewer).contains(&format!("with methods fewer, this run has {gone};")));
    fewer.methods.push("last/none/colour".into());
    assert!(rewrite(&fewer).contains(&format!("with methods last/none/colour, this run has {gone};")));
    assert!(rewrite(&Identity { format: 3, ..identity() }).contains("with format 3, this run has 2"));
    for (n_layers, n_heads) in [(0, 3), (2, 0), (usize::MAX >> 1, 3)] {
        let said = rewrite(&Identity { n_layers, n_heads, ..identity() });
        assert!(said.contains("study.toml: no model has") && !said.contains("remove it"), "{said}");
    }
    for text in ["", "format = 1\n", "{", "model = 3"] {
        fs::write(home.path().join("study.toml"), text).unwrap();
        let error = Folder::create(home.path(), &identity()).unwrap_err();
        assert!(matches!(error, StudyError::Unreadable { .. }), "{text:?}: {error}");
    }
    assert_eq!(questions.len(), 3, "and the observations stay");
    assert_eq!(fs::read_dir(home.path().join("inputs")).unwrap().count(), 3);
}

#[test]
fn no_study_is_told_with_how_to_make_one() {
    let home = tempfile::tempdir().unwrap();
    let told = Folder::open(home.path(), Kind::Study).unwrap_err().to_string();
    assert!(told.contains("no study is there; `qrae localize DATA --out"), "{told}");
    fs::write(home.path().join("file"), "x").unwrap();
    let error = Folder::create(&home.path().join("file"), &identity()).unwrap_err();
    assert!(matches!(error, StudyError::Io { .. }), "{error}");
}

#[test]
fn an_evaluations_folder_is_no_study_and_a_study_no_evaluation() {
    let home = tempfile::tempdir().unwrap();
    let (study, judged) = (home.path().join("study"), home.path().join("judged"));
    filled(&study);
    let evaluation = Identity { kind: Kind::Evaluation, ..identity() };
    Folder::create(&judged, &evaluation).unwrap();
    let told = Folder::create(&study, &evaluation).unwrap_err().to_string();
    assert!(
        told.ends_with("study is the folder of a study, and one of an evaluation is needed; choose another"),
        "{told}"
    );
    for error in
        [Folder::open(&judged, Kind::Study).unwrap_err(), Folder::may_be(&judged, Kind::Study).unwrap_err()]
    {
        assert!(matches!(error, StudyError::OtherKind { .. }), "{error}");
    }
    assert!(Folder::may_be(&judged, Kind::Evaluation).is_ok());
    assert!(Folder::open(&study, Kind::Study).unwrap().must_be(&evaluation, "").is_ok(), "the same model");
}

#[test]
fn somebodys_files_and_observations_of_nobody_are_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let (_, questions) = filled(home.path());
    fs::remove_file(home.path().join("study.toml")).unwrap();
    for error in [
        Folder::create(home.path(), &identity()).unwrap_err(),
        Folder::may_be(home.path(), Kind::Study).unwrap_err(),
    ] {
        assert!(matches!(&error, StudyError::Foreign { inside, .. } if inside == "inputs"), "{error}");
        assert!(error.to_string().contains("choose another folder with --out"), "{error}");
    }
    assert!(!home.path().join("study.toml").exists());
    assert_eq!(fs::read_dir(home.path().join("inputs")).unwrap().count(), questions.len());

    // what a run leaves that dies before it has written study.toml is nobody's
    let begun = home.path().join("begun");
    fs::create_dir(&begun).unwrap();
    fs::write(begun.join("study.toml.4711.part"), "half").unwrap();
    assert!(Folder::create(&begun, &identity()).is_ok());
}

#[cfg(unix)]
#[test]
fn links_are_replaced_and_lead_somewhere() {
    let home = tempfile::tempdir().unwrap();
    let (victim, link) = (home.path().join("victim"), home.path().join("heads.toml"));
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    write_whole(&link, b"new").unwrap();
    assert_eq!((fs::read(&victim).unwrap(), fs::read(&link).unwrap()), (b"mine".to_vec(), b"new".to_vec()));
    let dangling = home.path().join("dangling");
    std::os::unix::fs::symlink(home.path().join("nowhere"), &dangling).unwrap();
    let told = Folder::create(&dangling, &identity()).unwrap_err().to_string();
    assert!(told.contains("is a link that leads nowhere"), "{told}");
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let taken = home.path().join("heads.toml");
    fs::create_dir(&taken).unwrap(); // a file cannot be moved onto a folder
    let told = write_whole(&taken, b"new").unwrap_err().to_string();
    assert!(told.contains("heads.toml: "), "{told}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no .part");
}

/// The file of the first observation, its about and numbers changed, and what reading it says.
fn tampered(change: impl FnOnce(&mut serde_json::Value, &mut Vec<(String, Numbers)>)) -> String {
    let home = tempfile::tempdir().unwrap();
    let (folder, _) = filled(home.path());
    let file = first_file(&folder);
    let bytes = fs::read(&file).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let about = header.metadata().as_ref().unwrap()["about"].clone();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut parts: Vec<(String, Numbers)> =
        tensors.iter().map(|(n, t)| (n.to_owned(), Numbers(t.shape().to_vec(), t.data().to_vec()))).collect();
    let mut about: serde_json::Value = serde_json::from_str(&about).unwrap();
    change(&mut about, &mut parts);
    let about = HashMap::from([("about".to_owned(), about.to_string())]);
    fs::write(&file, serialize(parts, Some(about)).unwrap()).unwrap();
    match folder.all() {
        Ok(_) => String::new(),
        Err(error @ StudyError::Broken { .. }) => {
            let told = error.to_string();
            assert!(told.contains(&file.display().to_string()), "{told}");
            assert!(told.contains("remove it, and what it held is observed again"), "{told}");
            told
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn files_that_were_tampered_with_are_broken_and_name_what_is_wrong() {
    assert_eq!(tampered(|_, _| ()), "", "rewritten, and nothing changed");
    let said = tampered(|_, parts| parts.iter_mut().find(|p| p.0 == "qr").unwrap().1.1[3] = 0x7f);
    assert_eq!(said, "", "another number is a number");
    let nan = |_: &mut serde_json::Value, parts: &mut Vec<(String, Numbers)>| {
        let qr = parts.iter_mut().find(|p| p.0 == "qr").unwrap();
        qr.1.1[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    };
    assert!(tampered(nan).contains("qr holds what is no number"));
    let without = |name: &'static str| tampered(move |_, parts| parts.retain(|p| p.0 != name));
    for name in ["qr", "icr", "last/none/sum"] {
        assert!(without(name).contains(name), "{name}");
    }
    let short = |_: &mut serde_json::Value, parts: &mut Vec<(String, Numbers)>| {
        let icr = parts.iter_mut().find(|p| p.0 == "icr").unwrap();
        icr.1 = Numbers(vec![1], vec![0; 4]);
    };
    assert!(tampered(short).contains("icr does not hold 2 numbers of 32 bits"));
    let labels = |about: &mut serde_json::Value, _: &mut Vec<_>| about["labels"] = [1, 0, 0].into();
    assert!(tampered(labels).contains("other than 2 labels"));
    let lens = |about: &mut serde_json::Value, _: &mut Vec<_>| about["chunk_lens"] = "many".into();
    assert!(tampered(lens).contains("invalid type"));
}

#[test]
fn files_that_hold_something_else_are_broken() {
    let home = tempfile::tempdir().unwrap();
    let (folder, questions) = filled(home.path());
    let file = first_file(&folder);
    let whole = fs::read(&file).unwrap();
    let nobody = serialize(Vec::<(String, Numbers)>::new(), None).unwrap();
    for bytes in [vec![], b"text".to_vec(), whole[..whole.len() - 1].to_vec(), vec![0xff; 64], nobody] {
        fs::write(&file, &bytes).unwrap();
        let error = folder.all().unwrap_err();
        assert!(matches!(error, StudyError::Broken { .. }), "{error}");
    }
    // and doing what it says helps
    fs::remove_file(&file).unwrap();
    assert_eq!(questions.iter().filter(|q| folder.has(q)).count(), 2);
    assert_eq!(folder.all().unwrap().len(), 2);
}

#[test]
fn a_file_under_another_name_is_no_observation() {
    let home = tempfile::tempdir().unwrap();
    let (folder, _) = filled(home.path());
    let file = first_file(&folder);
    let copy = file.with_file_name("x (conflicted copy).safetensors");
    fs::copy(&file, &copy).unwrap();
    let told = folder.all().unwrap_err().to_string();
    assert!(
        told.contains("conflicted copy") && told.contains("its name is not that of the question in it"),
        "{told}"
    );
    fs::remove_file(&copy).unwrap();
    assert_eq!(folder.all().unwrap().len(), 3);
    let last = folder.files().unwrap().remove(2);
    fs::copy(&file, &last).unwrap();
    assert!(folder.all().is_err(), "nor one in place of another");
}

/// Folders `a` and `b` with parts of three questions, which are two finished runs.
fn parts(home: &Path) -> (Folder, Folder) {
    let (_, questions) = filled(&home.join("whole"));
    let part = |name: &str, number: usize, own: &[usize]| {
        let folder = Folder::create(&home.join(name), &identity()).unwrap();
        for &i in own {
            folder.keep(&questions[i], &observation(i as u32)).unwrap();
        }
        let observed = folder.observed(&questions.iter().collect::<Vec<_>>());
        assert_eq!(observed.len(), own.len());
        folder.finish(&Run::new("d.json", 1, &questions, (number, 2)).with(observed)).unwrap();
        folder
    };
    (part("a", 1, &[0, 1]), part("b", 2, &[1, 2]))
}

#[test]
fn parts_are_put_together_and_what_is_there_stays() {
    let home = tempfile::tempdir().unwrap();
    let (a, b) = parts(home.path());
    let whole = Folder::open(&home.path().join("whole"), Kind::Study).unwrap();
    let root = home.path().join("merged");
    let both = [a.clone(), b.clone()];
    let (merged, taken) = Folder::merge(&root, &both).unwrap();
    assert_eq!(taken, [2, 1]);
    assert_eq!(merged.all().unwrap(), whole.all().unwrap());
    let bytes = |folder: &Folder| -> Vec<Vec<u8>> {
        folder.files().unwrap().iter().map(|f| fs::read(f).unwrap()).collect()
    };
    assert_eq!(bytes(&merged), bytes(&whole), "the same files, whoever wrote them");
    assert_eq!(merged.runs().unwrap().len(), 2);
    assert_eq!(Folder::merge(&root, &both).unwrap().1, [0, 0], "again");
    assert_eq!(Folder::merge(a.root(), &both).unwrap().1, [0, 1], "into one of them");
    assert_eq!(Folder::merge(&home.path().join("more"), &[merged]).unwrap().1, [3]);
}

#[test]
fn nothing_is_written_of_parts_that_do_not_fit() {
    let home = tempfile::tempdir().unwrap();
    let (a, b) = parts(home.path());
    let root = home.path().join("merged");
    let refused = |parts: &[Folder]| {
        let error = Folder::merge(&root, parts).unwrap_err();
        assert!(!root.exists(), "{error}");
        error
    };
    let lost = first_file(&a);
    let kept = fs::read(&lost).unwrap();
    fs::remove_file(&lost).unwrap();
    let error = refused(&[a.clone(), b.clone()]);
    assert!(error.to_string().contains("a: 1 of 2 observations are gone; run its part again"), "{error}");
    fs::write(&lost, kept).unwrap();
    let other = Identity { compute: "int8".into(), ..identity() };
    let other = Folder::create(&home.path().join("other"), &other).unwrap();
    let error = refused(&[a.clone(), b.clone(), other]);
    assert!(matches!(error, StudyError::Other { field: "--compute", .. }), "{error}");
    assert!(error.to_string().contains("only studies that were made alike"), "{error}");

    let error = refused(std::slice::from_ref(&a));
    assert!(error.to_string().contains("part 2 is missing"), "{error}");
    let begun = Folder::create(&home.path().join("begun"), &identity()).unwrap();
    let error = refused(&[a.clone(), b.clone(), begun]);
    assert!(matches!(error, StudyError::Unfinished { .. }), "{error}");

    // the part's own file is named, so that removing it helps
    let file = b.files().unwrap().remove(1);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let error = refused(&[a.clone(), b.clone()]);
    assert!(matches!(&error, StudyError::Broken { path, .. } if *path == file), "{error}");
    fs::write(&file, whole).unwrap();

    // a study of something else
    let elsewhere = Folder::create(&root, &identity()).unwrap();
    elsewhere.keep(&question(7, None), &observation(7)).unwrap();
    let error = Folder::merge(&root, &[a, b]).unwrap_err();
    assert!(matches!(error, StudyError::Strangers { .. }), "{error}");
    assert_eq!(elsewhere.files().unwrap().len(), 1);
}

#[test]
fn records_know_their_scores() {
    let method = Method::default();
    let mut record = blank("q", 6, 2, Some(&[0, 1]));
    super::super::tests::set(&mut record, method, 4, &[0.5, 1.0]);
    super::super::tests::set(&mut record, method, 5, &[0.0, 0.5]);
    let heads = |names: &[&str]| names.iter().map(|h| h.parse().unwrap()).collect::<Vec<HeadRef>>();
    assert_eq!(record.scores(&heads(&["L1H1", "L1H2"]), method, 3).unwrap(), [0.25, 0.75]);
    assert!(matches!(
        record.scores(&heads(&["L2H0"]), method, 3),
        Err(JudgedError::NoSuchHead { head: 6, n_heads: 6 })
    ));
    assert_eq!(record.judged(method).unwrap().labels(), [0, 1]);
    assert_eq!(blank("q", 6, 2, None).judged(method).unwrap().labels(), [0, 0], "unknown is not relevant");
}
