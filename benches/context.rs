//! What a decision of the context manager costs beside the scoring it asks for. Prints a table.
//!
//! `cargo bench --bench context`
//!
//! B = 10, ϱ = 0.5; caches of growing size in which every chunk has a score. *plan* takes an update of ten results (eight
//! new, two duplicates) up to its batch, *commit* takes the scores up to the answer, events included. *fork* clones the
//! context. *replay* is the whole log, from events in memory. Medians of 101 updates, *replay* and *fork* of 11.
#![allow(clippy::unwrap_used)]

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use qrae::{
    context::{Config, Context, Event, Group, Mode, Retention, Step, Update},
    prompt::layout::Chunk,
};

const B: usize = 10;

fn result(n: usize) -> Arc<Chunk> {
    let url = Some(format!("https://www.example.org/articles/2026/{n}/index.html?utm_source=search&page=2"));
    let text = format!("Sentence {n} of a page that was found. ").repeat(50);
    Arc::new(Chunk { id: None, title: Some(format!("Page {n}")), url, text })
}

fn update(n: usize, results: impl Iterator<Item = usize>) -> Update {
    let group = Group { search: None, results: results.map(result).collect() };
    Update { id: format!("update {n}"), query: None, groups: vec![group] }
}

/// Scores without order, in [0, 1).
fn scores(seed: usize, n: usize) -> Vec<f64> {
    (0..n).map(|i| ((seed * 7919 + i * 104_729) % 65_537) as f64 / 65_537.0).collect()
}

/// A context with `cached` chunks in its cache, all scored, and the events that led to it.
fn filled(cached: usize) -> (Context, Vec<Event>) {
    let results_per_query = NonZeroUsize::new(B).unwrap();
    let config = Config { results_per_query, retention: Retention::default(), mode: Mode::Manager };
    let mut context = Context::new(config, "Which page says it?");
    // each update scores ten and admits five: when all are scored, half are in the cache
    for n in 0..2 * cached / B {
        let results = if n == 0 { 0..2 * cached } else { 0..0 };
        let Step::Score(batch) = context.begin(update(n, results)).unwrap() else {
            panic!("the cache holds a batch")
        };
        context.commit(&batch, &scores(n, B)).unwrap();
    }
    assert!(context.state().cache().all(|chunk| !chunk.scores.is_empty()));
    let events = context.take_events();
    (context, events)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds that `run` takes, and what it gives.
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let value = run();
    (begin.elapsed().as_secs_f64() * 1e6, value)
}

fn main() {
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "cached", "whitelist", "plan", "commit", "fork", "replay"
    );
    for cached in [100, 1_000, 10_000, 100_000] {
        let (mut context, mut events) = filled(cached);
        let (at, whitelist) = (context.state().cache().len(), context.state().whitelist().len());
        let (mut plans, mut commits) = (Vec::new(), Vec::new());
        for i in 0..101 {
            let new = 10 * cached + i * 8;
            let given = update(1_000_000 + i, (new..new + 8).chain([i, i + 1]));
            let (plan, step) = timed(|| context.begin(given));
            let Step::Score(batch) = step.unwrap() else { panic!("the cache holds a batch") };
            let given = scores(i, batch.chunks.len());
            let (commit, _) = timed(|| context.commit(&batch, &given).unwrap());
            plans.push(plan);
            commits.push(commit);
        }
        events.extend(context.take_events());
        let fork = median((0..11).map(|_| timed(|| context.clone()).0).collect());
        let replay = median((0..11).map(|_| timed(|| Context::replay(&events).unwrap()).0).collect());
        let [plan, commit] = [plans, commits].map(median);
        println!(
            "{at:>8} {whitelist:>10} {plan:>7.0} µs {commit:>7.0} µs {fork:>7.0} µs {:>9.1} ms",
            replay / 1e3
        );
    }
}
