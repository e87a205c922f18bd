//! kill -9 at any instant: what was acknowledged is there, and no update is there in part.
//!
//! A child process (this binary again) works through a series of updates that is the same every time, stores each and
//! says so. It is killed in the middle, and what is stored must be exactly what the series makes of as many updates as are
//! there: at least those that were acknowledged, at most one more. `QRAE_CRASH_KILLS` sets how often;
//! `QRAE_TEST_POSTGRES` names a PostgreSQL database to do the same on.
#![allow(clippy::unwrap_used)]

use std::{
    env,
    io::{BufRead, BufReader},
    num::NonZeroUsize,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use qrae::{
    context::{Config, Context, Event, Group, Mode, Record, Retention, Step, Update, UpdateCost},
    prompt::layout::Chunk,
    store::{Address, Batch, Begin, Name, Store, StoreError},
};

const CHILD: &str = "QRAE_CRASH_CHILD";

/// Updates are large now and then, so that a kill may come in the middle of a long write.
fn update(n: usize) -> Update {
    let size = if n.is_multiple_of(7) { 20_000 } else { 40 };
    let result = |g: usize, r: usize| {
        let page = (n * 3 + g * 5 + r * 2) % (n + 7);
        let text = format!("page {page} ").repeat(size / 8);
        Arc::new(Chunk { id: None, title: None, url: Some(format!("http://x/{page}")), text })
    };
    let group = |g: usize| Group { search: None, results: (0..(n + g) % 5).map(|r| result(g, r)).collect() };
    Update { id: format!("u{n}"), query: None, groups: (0..1 + n % 3).map(group).collect() }
}

fn new() -> Context {
    let results_per_query = NonZeroUsize::new(3).unwrap();
    Context::new(Config { results_per_query, retention: Retention::default(), mode: Mode::Manager }, "q")
}

/// The events of update `n`, counted from 1, with scores that depend on nothing else.
fn work(context: &mut Context, n: usize) -> Vec<Record> {
    let mut step = context.begin(update(n)).unwrap();
    while let Step::Score(batch) = step {
        let score = |chunk: u64| ((chunk * 7919 + u64::from(batch.turn.update) * 31) % 1000) as f64 / 1000.0;
        let scores: Vec<f64> = batch.chunks.iter().map(|(id, _)| score(id.0)).collect();
        step = context.commit(&batch, &scores).unwrap();
    }
    records(context)
}

fn records(context: &mut Context) -> Vec<Record> {
    context.take_events().into_iter().map(Record::from).collect()
}

fn name(id: &str) -> Name {
    Name { owner: "crash".into(), id: id.into() }
}

/// What is stored under the name, replayed; none when there is no context yet.
async fn stored(store: &Store, name: &Name) -> Option<(String, i64, Context, Vec<Batch>)> {
    let header = match store.header(name, 0).await {
        Err(StoreError::Gone) => return None,
        other => other.unwrap(),
    };
    let batches = store.batches(&header.uid, 0, header.events).await.unwrap();
    let events: Vec<Event> = batches.iter().flat_map(|b| &b.records).map(|r| r.event.clone()).collect();
    Some((header.uid, header.events, Context::replay(&events).unwrap(), batches))
}

/// Works until it is killed.
async fn child(address: &Address, id: &str) {
    let store = Store::open(address).await.unwrap();
    let name = name(id);
    let (uid, mut events, mut context) = match stored(&store, &name).await {
        Some((uid, events, context, _)) => (uid, events, context),
        None => {
            let mut context = new();
            let batches = [Batch { first: 0, at: 0, records: records(&mut context), cost: None }];
            let begin = Begin { settings: "{}", expires_in: None, batches: &batches };
            let header = store.create(&name, begin, 0).await.unwrap();
            println!("done 0");
            (header.uid, header.events, context)
        }
    };
    let done = context.state().answers().len();
    for n in done + 1.. {
        let records = work(&mut context, n);
        let cost = UpdateCost { update: n as u32, ..UpdateCost::default() };
        store.append(&uid, events, &records, Some(&cost), 0).await.unwrap();
        println!("done {n}");
        events += records.len() as i64;
    }
}

#[tokio::test]
async fn child_process() {
    let Ok(asked) = env::var(CHILD) else { return };
    let (id, address) = asked.split_once('|').unwrap();
    child(&address.parse().unwrap(), id).await;
}

/// Starts a child, kills it some time after its first word, and gives back the last update that it acknowledged.
fn run_and_kill(address: &str, id: &str, after: Duration) -> Option<usize> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["child_process", "--exact", "--nocapture"])
        .env(CHILD, format!("{id}|{address}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let words = out.lines().map_while(Result::ok);
        words.filter_map(|line| line.strip_prefix("done ")?.parse().ok()).last()
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

async fn crash(address: &str, kills: usize) {
    let id = format!("c{}", std::process::id());
    let store = Store::open(&address.parse().unwrap()).await.unwrap();
    let (mut expected, mut at) = (new(), 0);
    expected.take_events();
    let (mut acknowledged, mut torn, begin) = (0, 0, Instant::now());
    for kill in 0..kills {
        // from before the file is open to some updates later
        let after = Duration::from_micros(2_000 + (kill as u64 * 7919) % 38_000);
        let said = run_and_kill(address, &id, after);
        acknowledged = said.map_or(acknowledged, |n: usize| n.max(acknowledged));
        let Some((_, _, context, batches)) = stored(&store, &name(&id)).await else {
            assert_eq!(said, None, "a context that was acknowledged is gone");
            continue;
        };
        let there = context.state().answers().len();
        assert!(there == acknowledged || there == acknowledged + 1, "{acknowledged} said, {there} there");
        torn += usize::from(there > acknowledged);
        acknowledged = there;
        while at < there {
            at += 1;
            work(&mut expected, at);
        }
        assert_eq!(context.state(), expected.state(), "after {there} updates");
        assert_eq!(batches.len(), there + 1);
        assert!(batches.iter().skip(1).zip(1..).all(|(b, n)| b.cost.as_ref().unwrap().update == n));
    }
    let took = begin.elapsed().as_secs_f64();
    println!("{kills} kills, {at} updates, {torn} stored and not acknowledged, {took:.1} s");
    assert!(at > kills / 4, "{at} updates with {kills} kills: too few to mean anything");
}

fn kills() -> usize {
    env::var("QRAE_CRASH_KILLS").map_or(120, |kills| kills.parse().unwrap())
}

#[tokio::test]
async fn a_killed_process_loses_nothing_it_acknowledged_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    crash(folder.path().join("contexts.sqlite").to_str().unwrap(), kills()).await;
}

#[tokio::test]
async fn a_killed_process_loses_nothing_it_acknowledged_in_postgres() {
    match env::var("QRAE_TEST_POSTGRES") {
        Ok(url) => crash(&url, kills()).await,
        Err(_) => eprintln!("SKIPPED: QRAE_TEST_POSTGRES names no database"),
    }
}
