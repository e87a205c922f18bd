//! A context and the model side by side: every step is compared, every log replayed.

use std::sync::Arc;

use qrae::context::{Answer, Batch, ChunkId, Context, Group, Record, Step, Turn, Update};

use super::model::{At, Found, Model, Outcome};

/// What was seen, to show that the histories are about something.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) waited: usize,
    pub(crate) rescored: usize,
    pub(crate) admitted_unbatched: usize,
    pub(crate) ties: usize,
    pub(crate) duplicates: usize,
    pub(crate) readmissions_of_forgotten: usize,
    pub(crate) retries: usize,
}

pub(crate) struct World {
    pub(crate) context: Context,
    pub(crate) model: Model,
    pub(crate) log: Vec<String>,
    pub(crate) updates: Vec<(Update, Arc<Answer>)>,
}

impl World {
    pub(crate) fn search(&mut self, groups: &[Vec<Found>], scores: &[f64], seen: &mut Seen) {
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
    fn refuse(&mut self, batch: &Batch, scores: &[f64]) {
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

    pub(crate) fn replayed(&self) -> Context {
        let events: Vec<_> =
            self.log.iter().map(|line| serde_json::from_str::<Record>(line).unwrap().event).collect();
        Context::replay(&events).unwrap()
    }

    pub(crate) fn retry(&mut self, nth: usize, seen: &mut Seen) {
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
