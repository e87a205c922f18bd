//! The context manager against a naive model, over random histories: searches with few pages and many duplicates, scores
//! with many ties, retries, forks, scores that do not fit, and logs cut after each update.
//!
//! The model is the text of the rules written down with one list of chunks that is searched from its start each time. It
//! knows a page by its number; only the results it makes spell that page in one of several ways.

#![allow(clippy::unwrap_used)] // a test may panic, in its helpers too

use std::{num::NonZeroUsize, sync::Arc};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config as Runs, TestRunner},
};
use qrae::{
    context::{Answer, ChunkId, Config, Context, Group, Mode, Record, Step, Turn, Update},
    prompt::layout::Chunk,
};

/// A result: which page, spelled how.
#[derive(Clone, Copy, Debug)]
struct Found {
    page: usize,
    spelling: usize,
}

impl Found {
    fn chunk(self) -> Chunk {
        let n = self.page;
        let url = [
            format!("https://site{n}.org/page"),
            format!("http://www.SITE{n}.org:80/page/?utm_source=feed#top"),
            format!("https://site{n}.org/./%70age?gclid=1"),
        ];
        // every third page is known by a number, every other third by its text alone
        let (url, text) = match n % 3 {
            0 => (Some(url[self.spelling].clone()), format!("spelling {}", self.spelling)),
            1 => (
                Some([format!("doc-{n}"), format!(" doc-{n}"), format!("doc-{n}\n")][self.spelling].clone()),
                String::new(),
            ),
            _ => (
                [None, Some(String::new()), Some("  ".to_owned())][self.spelling].clone(),
                format!("text  {n}{}", " ".repeat(self.spelling)),
            ),
        };
        Chunk { id: Some(self.spelling.to_string()), title: None, url, text }
    }
}

/// Where a chunk is, as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Cache,
    Whitelist,
    Gone,
}

#[derive(Clone, Debug)]
struct Naive {
    page: usize,
    seen: (u32, u32, u32),
    scores: Vec<f64>,
    at: At,
}

impl Naive {
    fn mean(&self) -> f64 {
        let mut sum = 0.0;
        for score in &self.scores {
            sum += score;
        }
        sum / self.scores.len() as f64
    }
}

/// All chunks ever seen, in the order they were seen in.
#[derive(Clone, Debug)]
struct Model {
    b: usize,
    kept: usize,
    current_search: bool,
    chunks: Vec<Naive>,
}

/// What became of a group: the chunk of each result, the batch, the admitted, those left. Chunks by place in the list.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    results: Vec<(usize, bool)>,
    batch: Vec<usize>,
    admitted: Vec<usize>,
    left: Vec<usize>,
}

impl Model {
    fn all(&self, at: At) -> Vec<usize> {
        (0..self.chunks.len()).filter(|i| self.chunks[*i].at == at).collect()
    }

    /// One group. `score` gives the score of the n-th chunk of a batch.
    fn group(
        &mut self,
        update: u32,
        group: u32,
        found: &[Found],
        mut score: impl FnMut(usize) -> f64,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for (i, result) in found.iter().enumerate() {
            let known = self.chunks.iter().position(|c| c.page == result.page && c.at != At::Gone);
            let place = known.unwrap_or(self.chunks.len());
            if known.is_none() {
                let seen = (update, group, i as u32 + 1);
                self.chunks.push(Naive { page: result.page, seen, scores: vec![], at: At::Cache });
            }
            outcome.results.push((place, known.is_none()));
        }
        let mut batch = self.all(At::Cache);
        if !self.current_search {
            if batch.len() < self.b {
                batch.clear();
            }
            // a stable sort: among equals the first seen
            batch.sort_by_key(|i| self.chunks[*i].scores.len());
            batch.truncate(self.b);
        }
        for (nth, i) in batch.iter().enumerate() {
            self.chunks[*i].scores.push(score(nth));
        }
        let mut ranked: Vec<usize> =
            self.all(At::Cache).into_iter().filter(|i| !self.chunks[*i].scores.is_empty()).collect();
        ranked.sort_by(|i, j| self.chunks[*j].mean().partial_cmp(&self.chunks[*i].mean()).unwrap());
        if !batch.is_empty() {
            outcome.admitted = ranked.into_iter().take(self.kept).collect();
        }
        for i in &outcome.admitted {
            self.chunks[*i].at = At::Whitelist;
        }
        let brought = |i: usize| outcome.results.contains(&(i, true));
        outcome.left = self.all(At::Cache).into_iter().filter(|i| brought(*i) || batch.contains(i)).collect();
        if self.current_search {
            for i in self.all(At::Cache) {
                self.chunks[i].at = At::Gone;
            }
        }
        outcome.batch = batch;
        outcome
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A search call; its batches get scores from this list, over and over.
    Search { groups: Vec<Vec<Found>>, scores: Vec<f64> },
    /// The n-th update so far comes again.
    Retry(usize),
    /// Everything goes on in a clone; the original must not notice.
    Fork,
    /// Everything goes on in what the log gives.
    Restart,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let found = (0..24_usize, 0..3_usize).prop_map(|(page, spelling)| Found { page, spelling });
    let groups = prop::collection::vec(prop::collection::vec(found, 0..9), 0..4);
    let score = prop_oneof![
        4 => (0..5_i32).prop_map(|n| f64::from(n) / 4.0),
        1 => Just(-0.0),
        2 => -1.0..1.0_f64,
    ];
    let search = (groups, prop::collection::vec(score, 1..20))
        .prop_map(|(groups, scores)| Op::Search { groups, scores });
    let op = prop_oneof![
        8 => search,
        2 => any::<usize>().prop_map(Op::Retry),
        1 => Just(Op::Fork),
        1 => Just(Op::Restart),
    ];
    prop::collection::vec(op, 1..16)
}

fn configs() -> impl Strategy<Value = (usize, u32, Mode)> {
    let mode = prop_oneof![3 => Just(Mode::Manager), 1 => Just(Mode::CurrentSearch)];
    (1..8_usize, prop::sample::select(vec![1_u32, 10, 30, 50, 50, 50, 70, 100]), mode)
}

/// What was seen, to show that the histories are about something.
#[derive(Debug, Default)]
struct Seen {
    waited: usize,
    rescored: usize,
    admitted_unbatched: usize,
    ties: usize,
    duplicates: usize,
    readmissions_of_forgotten: usize,
    retries: usize,
}

struct World {
    context: Context,
    model: Model,
    log: Vec<String>,
    updates: Vec<(Update, Arc<Answer>)>,
}

impl World {
    fn search(&mut self, groups: &[Vec<Found>], scores: &[f64], seen: &mut Seen) {
        let number = self.updates.len() as u32 + 1;
        let results = |found: &Vec<Found>| found.iter().map(|f| Arc::new(f.chunk())).collect();
        let update = Update {
            id: format!("update {number}"),
            query: None,
            groups: groups.iter().map(|found| Group { search: None, results: results(found) }).collect(),
        };
        let mut draw = scores.iter().copied().cycle();
        let mut step = self.context.begin(update.clone()).unwrap();
        let mut outcomes = Vec::new();
        for (g, found) in groups.iter().enumerate() {
            let turn = Turn { update: number, group: g as u32 + 1 };
            let mut expected = self.model.clone();
            let given: Vec<f64> = match &step {
                Step::Score(batch) if batch.turn == turn => draw.by_ref().take(batch.chunks.len()).collect(),
                _ => vec![],
            };
            let outcome =
                expected.group(number, turn.group, found, |nth| given.get(nth).copied().unwrap_or(0.0));
            self.model = expected;
            match &step {
                Step::Score(batch) if batch.turn == turn => {
                    let batch = batch.clone();
                    assert_eq!(batch.query, "why?");
                    assert_eq!(places(batch.chunks.iter().map(|(id, _)| *id)), outcome.batch);
                    self.refuse(&batch, &given);
                    step = self.context.commit(&batch, &given).unwrap();
                }
                _ => assert!(outcome.batch.is_empty(), "no batch where the model has {outcome:?}"),
            }
            note(&self.model, &outcome, seen);
            outcomes.push(outcome);
        }
        let Step::Done(answer) = step else { panic!("a batch that the model does not have: {step:?}") };
        assert_eq!(answer.groups.len(), groups.len());
        for (group, outcome) in answer.groups.iter().zip(&outcomes) {
            let results: Vec<(usize, bool)> = group.results.iter().map(|r| (place(r.chunk), r.new)).collect();
            let left = if self.model.current_search { &group.forgotten } else { &group.deferred };
            let said = Outcome {
                results,
                batch: places(group.scores.iter().map(|s| s.chunk)),
                admitted: places(group.admitted.iter().copied()),
                left: places(left.iter().copied()),
            };
            assert_eq!(&said, outcome);
        }
        self.updates.push((update, answer));
        let events = self.context.take_events().into_iter().map(Record::from);
        self.log.extend(events.map(|record| serde_json::to_string(&record).unwrap()));
        self.compare();
    }

    /// Scores that do not fit, or not here, are refused and change nothing.
    fn refuse(&mut self, batch: &qrae::context::Batch, scores: &[f64]) {
        let before = self.context.clone();
        let mut wrong = scores.to_vec();
        wrong[scores.len() / 2] = f64::NAN;
        assert!(self.context.commit(batch, &wrong).is_err());
        assert!(self.context.commit(batch, &scores[1..]).is_err());
        let mut other = batch.clone();
        other.chunks.rotate_left(1);
        other.turn.group += u32::from(other == *batch);
        assert!(self.context.commit(&other, scores).is_err());
        assert!(self.context.begin(Update { id: "other".into(), query: None, groups: vec![] }).is_err());
        assert_eq!(self.context, before);
    }

    /// The state against the model, and against the log.
    fn compare(&self) {
        let state = self.context.state();
        let naive = |at| self.model.all(at).into_iter().map(|i| (i, self.model.chunks[i].clone()));
        let said = state.cache().chain(state.whitelist().map(|a| &*a.candidate));
        for (said, (i, naive)) in said.zip(naive(At::Cache).chain(naive(At::Whitelist))) {
            assert_eq!(place(said.id), i);
            assert_eq!((said.first_seen.update, said.first_seen.group, said.first_seen.rank), naive.seen);
            assert_eq!(
                said.scores.iter().map(|s| s.value.to_bits()).collect::<Vec<_>>(),
                naive.scores.iter().map(|s| s.to_bits()).collect::<Vec<_>>()
            );
            assert_eq!(
                said.mean().unwrap_or(f64::INFINITY),
                if naive.scores.is_empty() { f64::INFINITY } else { naive.mean() }
            );
        }
        assert_eq!(state.cache().len(), self.model.all(At::Cache).len());
        assert_eq!(state.whitelist().len(), self.model.all(At::Whitelist).len());
        assert_eq!(state.answers().len(), self.updates.len());
        assert_eq!(self.replayed().state(), state);
    }

    fn replayed(&self) -> Context {
        let events: Vec<_> =
            self.log.iter().map(|line| serde_json::from_str::<Record>(line).unwrap().event).collect();
        Context::replay(&events).unwrap()
    }

    fn retry(&mut self, nth: usize, seen: &mut Seen) {
        let Some((update, answer)) = self.updates.get(nth % self.updates.len().max(1)) else { return };
        seen.retries += 1;
        let before = self.context.clone();
        assert_eq!(self.context.begin(update.clone()), Ok(Step::Done(Arc::clone(answer))));
        let other = Update { query: Some("another".into()), ..update.clone() };
        assert!(self.context.begin(other).is_err());
        assert_eq!(self.context, before);
    }
}

/// The place in the model's list of a chunk: numbers begin at 1 and count every chunk seen.
fn place(id: ChunkId) -> usize {
    id.0 as usize - 1
}

fn places(ids: impl Iterator<Item = ChunkId>) -> Vec<usize> {
    ids.map(place).collect()
}

fn note(model: &Model, outcome: &Outcome, seen: &mut Seen) {
    let mean = |i: &usize| model.chunks[*i].mean();
    seen.waited += usize::from(outcome.batch.is_empty());
    seen.rescored += outcome.batch.iter().filter(|i| model.chunks[**i].scores.len() > 1).count();
    seen.admitted_unbatched += outcome.admitted.iter().filter(|i| !outcome.batch.contains(i)).count();
    let last = outcome.admitted.last().map(mean);
    seen.ties += usize::from(last.is_some_and(|last| outcome.left.iter().any(|i| mean(i) == last)));
    seen.duplicates += outcome.results.iter().filter(|(_, new)| !new).count();
    let again =
        |i: &usize| model.chunks[..*i].iter().any(|c| c.at == At::Gone && c.page == model.chunks[*i].page);
    seen.readmissions_of_forgotten += outcome.admitted.iter().filter(|i| again(i)).count();
}

fn history(b: usize, hundredths: u32, mode: Mode, ops: &[Op], seen: &mut Seen) {
    let retention = (f64::from(hundredths) / 100.0).try_into().unwrap();
    let config = Config { results_per_query: NonZeroUsize::new(b).unwrap(), retention, mode };
    let mut context = Context::new(config, "why?");
    let created = serde_json::to_string(&Record::from(context.take_events().remove(0))).unwrap();
    let kept = (hundredths as usize * b).div_ceil(100);
    let model = Model { b, kept, current_search: mode == Mode::CurrentSearch, chunks: vec![] };
    let mut world = World { context, model, log: vec![created], updates: vec![] };
    let mut originals = Vec::new();
    for op in ops {
        match op {
            Op::Search { groups, scores } => world.search(groups, scores, seen),
            Op::Retry(nth) => world.retry(*nth, seen),
            Op::Fork => {
                let fork = world.context.clone();
                originals.push((std::mem::replace(&mut world.context, fork), world.replayed()));
            }
            Op::Restart => world.context = world.replayed(),
        }
    }
    for (original, then) in originals {
        assert_eq!(original, then, "a fork was noticed");
    }
}

#[test]
fn the_manager_does_what_the_rules_say() {
    let mut runner = TestRunner::new(Runs { cases: 1500, failure_persistence: None, ..Runs::default() });
    let strategy = (configs(), ops());
    runner
        .run(&strategy, |((b, hundredths, mode), ops)| {
            history(b, hundredths, mode, &ops, &mut Seen::default());
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_histories_reach_what_the_rules_are_about() {
    let mut runner = TestRunner::deterministic();
    let strategy = (configs(), ops());
    let mut seen = Seen::default();
    for _ in 0..300 {
        let ((b, hundredths, mode), ops) = strategy.new_tree(&mut runner).unwrap().current();
        history(b, hundredths, mode, &ops, &mut seen);
    }
    let counts = [
        seen.waited,
        seen.rescored,
        seen.admitted_unbatched,
        seen.ties,
        seen.duplicates,
        seen.readmissions_of_forgotten,
        seen.retries,
    ];
    assert!(counts.iter().all(|n| *n >= 20), "{seen:?}");
}
