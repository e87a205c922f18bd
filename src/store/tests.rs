//! The store on every database there is to test: a SQLite file, memory, and PostgreSQL where `QRAE_TEST_POSTGRES` names
//! one (`tests/postgres/run` starts it).

use std::num::NonZeroUsize;

use super::*;
use crate::context::{Config, Context, Mode, Retention};

const NOW: i64 = 1_000_000;

/// An owner of its own for each test, so that tests share a database.
fn owner() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn name(owner: &str, id: &str) -> Name {
    Name { owner: owner.into(), id: id.into() }
}

fn records(question: &str) -> Vec<Record> {
    let results_per_query = NonZeroUsize::new(5).unwrap();
    let config = Config { results_per_query, retention: Retention::default(), mode: Mode::Manager };
    Context::new(config, question).take_events().into_iter().map(Record::from).collect()
}

fn batch(question: &str) -> [Batch; 1] {
    [Batch { first: 0, at: NOW, records: records(question), cost: None }]
}

fn begin(batches: &[Batch]) -> Begin<'_> {
    Begin { settings: r#"{"a":1}"#, expires_in: None, batches }
}

/// Runs `test` on every database, with an owner that has nothing there.
async fn everywhere<F: Future<Output = ()>>(test: impl Fn(Store, String) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let file = Address::File(folder.path().join("deep/er #1?.sqlite"));
    for address in [file, Address::Memory] {
        test(Store::open(&address).await.unwrap(), owner()).await;
    }
    match std::env::var("QRAE_TEST_POSTGRES") {
        Ok(url) => test(Store::open(&url.parse().unwrap()).await.unwrap(), owner()).await,
        Err(_) => eprintln!("SKIPPED on PostgreSQL: QRAE_TEST_POSTGRES names no database"),
    }
}

#[tokio::test]
async fn what_is_stored_is_read_back_to_the_letter() {
    everywhere(async |store: Store, owner: String| {
        let name = name(&owner, "a");
        let odd = "ä\u{0}\u{1F3F3}\"'\\ $1 ?1\n";
        let made = store.create(&name, begin(&batch(odd)), NOW).await.unwrap();
        assert_eq!(store.header(&name, NOW).await.unwrap(), made);
        assert_eq!((made.events, made.created, made.used, made.expires()), (1, NOW, NOW, None));
        let cost = UpdateCost { update: 1, results: vec![vec![3, 4], vec![]], ..UpdateCost::default() };
        store.append(&made.uid, 1, &records("b"), Some(&cost), NOW + 7).await.unwrap();
        let header = store.header(&name, NOW).await.unwrap();
        assert_eq!((header.events, header.created, header.used), (2, NOW, NOW + 7));
        let second = Batch { first: 1, at: NOW + 7, records: records("b"), cost: Some(cost) };
        let [first] = batch(odd);
        assert_eq!(store.batches(&made.uid, 0, 2).await.unwrap(), [first.clone(), second.clone()]);
        assert_eq!(store.batches(&made.uid, 1, 2).await.unwrap(), std::slice::from_ref(&second));
        assert_eq!(store.batches(&made.uid, 2, 2).await.unwrap(), []);
        assert!(matches!(store.batches(&made.uid, 0, 3).await, Err(StoreError::Gone)));
        assert_eq!(store.batches_holding(&made.uid, 1, 9).await.unwrap(), [second]);
        assert_eq!(store.batches_holding(&made.uid, 0, 1).await.unwrap(), [first]);
    })
    .await;
}

#[tokio::test]
async fn of_two_that_start_from_the_same_events_one_is_refused() {
    everywhere(async |store: Store, owner: String| {
        let made = store.create(&name(&owner, "a"), begin(&batch("q")), NOW).await.unwrap();
        store.append(&made.uid, 1, &records("b"), None, NOW).await.unwrap();
        let late = store.append(&made.uid, 1, &records("c"), None, NOW).await;
        assert!(matches!(late, Err(StoreError::Moved)), "{late:?}");
        store.append(&made.uid, 2, &records("c"), None, NOW).await.unwrap();
        // at the same time
        let (one, two) = (records("d"), records("e"));
        let both = tokio::join!(
            store.append(&made.uid, 3, &one, None, NOW),
            store.append(&made.uid, 3, &two, None, NOW)
        );
        assert_eq!(i32::from(both.0.is_ok()) + i32::from(both.1.is_ok()), 1, "{both:?}");
        assert_eq!(store.batches(&made.uid, 0, 4).await.unwrap().len(), 4);
    })
    .await;
}

#[tokio::test]
async fn many_write_at_once_and_none_is_turned_away() {
    everywhere(async |store: Store, owner: String| {
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..40 {
            let (store, name) = (store.clone(), name(&owner, &format!("c{i}")));
            tasks.spawn(async move {
                let made = store.create(&name, begin(&batch("q")), NOW).await.unwrap();
                for n in 1..6 {
                    store.append(&made.uid, n, &records("more"), None, NOW).await.unwrap();
                }
                store.header(&name, NOW).await.unwrap().events
            });
        }
        assert!(tasks.join_all().await.iter().all(|&events| events == 6));
    })
    .await;
}

#[tokio::test]
async fn names_belong_to_owners_and_may_be_used_again() {
    everywhere(async |store: Store, owner: String| {
        let (mine, others) = (name(&owner, "a"), name(&self::owner(), "a"));
        let made = store.create(&mine, begin(&batch("q")), NOW).await.unwrap();
        assert!(matches!(store.create(&mine, begin(&batch("q")), NOW).await, Err(StoreError::Exists)));
        assert!(matches!(store.header(&others, NOW).await, Err(StoreError::Gone)));
        assert!(matches!(store.delete(&others, NOW).await, Err(StoreError::Gone)));
        store.create(&others, begin(&batch("q")), NOW).await.unwrap();
        store.delete(&mine, NOW).await.unwrap();
        assert!(matches!(store.delete(&mine, NOW).await, Err(StoreError::Gone)));
        assert!(matches!(store.header(&mine, NOW).await, Err(StoreError::Gone)));
        assert!(store.batches_holding(&made.uid, 0, 9).await.unwrap().is_empty(), "nothing is left");
        let again = store.create(&mine, begin(&batch("r")), NOW).await.unwrap();
        assert_ne!(again.uid, made.uid);
        let stale = store.append(&made.uid, 1, &records("b"), None, NOW).await;
        assert!(matches!(stale, Err(StoreError::Moved)), "{stale:?}");
        assert!(store.header(&others, NOW).await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_context_ends_so_long_after_its_last_use() {
    everywhere(async |store: Store, owner: String| {
        let name = name(&owner, "a");
        let batches = batch("q");
        let short = Begin { expires_in: Some(10), ..begin(&batches) };
        let made = store.create(&name, short.clone(), NOW).await.unwrap();
        assert_eq!(made.expires(), Some(NOW + 10));
        assert!(store.header(&name, NOW + 9).await.is_ok());
        assert!(matches!(store.header(&name, NOW + 10).await, Err(StoreError::Gone)));
        store.touch(&made.uid, NOW + 9).await.unwrap();
        store.append(&made.uid, 1, &records("b"), None, NOW + 18).await.unwrap();
        assert!(store.header(&name, NOW + 27).await.is_ok());
        for late in [
            store.touch(&made.uid, NOW + 28).await,
            store.append(&made.uid, 2, &records("b"), None, NOW + 28).await,
            store.delete(&name, NOW + 28).await,
        ] {
            assert!(late.is_err());
        }
        // its name is free
        let again = store.create(&name, short, NOW + 28).await.unwrap();
        assert!(store.batches_holding(&made.uid, 0, 9).await.unwrap().is_empty());
        let lasting = store.create(&self::name(&owner, "b"), begin(&batches), NOW).await.unwrap();
        assert!(store.sweep(NOW + 38).await.unwrap() >= 1);
        assert!(store.batches_holding(&again.uid, 0, 9).await.unwrap().is_empty());
        assert_eq!(store.batches_holding(&lasting.uid, 0, 9).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_closed_connection_takes_nothing_with_it() {
    everywhere(async |store: Store, owner: String| {
        let name = name(&owner, "a");
        store.create(&name, begin(&batch("q")), NOW).await.unwrap();
        store.pool.acquire().await.unwrap().close().await.unwrap();
        // as when a caller goes away in the middle
        drop(store.pool.begin().await.unwrap());
        let made = store.header(&name, NOW).await.unwrap();
        store.append(&made.uid, 1, &records("b"), None, NOW).await.unwrap();
        let other = Store::open(&Address::Memory).await.unwrap();
        assert!(matches!(other.header(&name, NOW).await, Err(StoreError::Gone)), "it has memory of its own");
    })
    .await;
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    everywhere(async |store: Store, owner: String| {
        for id in ["b", "a", "c"] {
            store.create(&name(&owner, id), begin(&batch("q")), NOW).await.unwrap();
        }
        let ids = async |after: &str, limit| -> Vec<String> {
            let found = store.list(&owner, after, limit, NOW).await.unwrap();
            found.into_iter().map(|header| header.id).collect()
        };
        assert_eq!(ids("", 2).await, ["a", "b"]);
        assert_eq!(ids("b", 2).await, ["c"]);
        assert!(ids("c", 2).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_file_outlives_the_process_and_a_bad_place_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::File(folder.path().join("x.sqlite"));
    let name = name("o", "a");
    let store = Store::open(&address).await.unwrap();
    store.create(&name, begin(&batch("q")), NOW).await.unwrap();
    // a second server on the same file
    let other = Store::open(&address).await.unwrap();
    assert!(other.header(&name, NOW).await.is_ok());
    drop((store, other));
    assert!(Store::open(&address).await.unwrap().header(&name, NOW).await.is_ok());
    let folder = Address::File(folder.path().to_owned());
    let nowhere: Address = "postgres://nobody:secret@127.0.0.1:1/none".parse().unwrap();
    for address in [folder, nowhere] {
        let error = Store::open(&address).await.unwrap_err().to_string();
        assert!(error.starts_with("contexts cannot be stored at") && !error.contains("secret"), "{error}");
    }
}
