//! Searches of agent runs: what was asked, what came back, and the run's reference answer.
//!
//! `{id?, query, chunks: [text or {id?, title?, url?, text}, …], answer, trajectory_id}`. The searches of one run are
//! alike, so one of them stands for the run. Tests: at the end of this file.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::{
    chunked::{self, Unnamed},
    error::DataError,
    read_questions,
};
use crate::eval::question::Question;

pub(super) const EXPECTED: &str = "a trajectory record is {query, chunks, answer, trajectory_id}";

/// Reads JSON Lines or a JSON array. Every question has an answer and a trajectory; one without an id is called
/// `trajectory/n`, the n-th of its trajectory that has none.
///
/// # Errors
/// When the text is not of this form; the message says where and why.
pub fn parse(file: &str, text: &str) -> Result<Vec<Question>, DataError> {
    let mut unnamed = Unnamed::new();
    read_questions(file, text, EXPECTED, |fields, number| {
        let question = chunked::question(fields, number, &mut unnamed)?;
        if question.answer.is_none() {
            return Err(fields.missing("answer"));
        }
        if question.trajectory.is_none() {
            return Err(fields.missing("trajectory_id"));
        }
        Ok(question)
    })
}

/// Keeps one question of each trajectory, and all that belong to none, in their order: a usable one where the trajectory
/// has any. Which one depends on the seed, the trajectory's name and its own questions in their order only, so other
/// trajectories may come, go and move.
#[must_use]
pub fn sample_per_trajectory(
    questions: Vec<Question>,
    seed: u64,
    usable: impl Fn(&Question) -> bool,
) -> Vec<Question> {
    let mut members: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, question) in questions.iter().enumerate() {
        if let Some(name) = &question.trajectory {
            members.entry(name).or_default().push(i);
        }
    }
    let mut kept: Vec<bool> = questions.iter().map(|question| question.trajectory.is_none()).collect();
    for (name, own) in members {
        kept[draw(own, &mut generator(seed, name), |i| usable(&questions[i]))] = true;
    }
    questions.into_iter().zip(kept).filter_map(|(question, kept)| kept.then_some(question)).collect()
}

/// Draws without replacement until one is usable; when none is, the first one drawn stands for all.
fn draw(mut from: Vec<usize>, generator: &mut ChaCha8Rng, usable: impl Fn(usize) -> bool) -> usize {
    let mut next = || (!from.is_empty()).then(|| from.swap_remove(generator.random_range(0..from.len())));
    let first = next().expect("a trajectory has a question: this is a bug");
    std::iter::once(first).chain(std::iter::from_fn(next)).find(|&i| usable(i)).unwrap_or(first)
}

/// A generator of its own for each trajectory.
fn generator(seed: u64, name: &str) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(name.as_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::eval::data::At;

    fn line(trajectory: &str, query: &str) -> String {
        format!(
            "{{\"query\": \"{query}\", \"chunks\": [\"x\"], \"answer\": \"a\", \"trajectory_id\": \"{trajectory}\"}}\n"
        )
    }

    /// `runs[i]` searches of run `i`, one after another in turn.
    fn questions(runs: &[usize]) -> Vec<Question> {
        let most = runs.iter().max().copied().unwrap_or(0);
        let turns = (0..most).flat_map(|n| (0..runs.len()).map(move |run| (n, run)));
        let text: String = turns
            .filter(|&(n, run)| n < runs[run])
            .map(|(n, run)| line(&format!("run{run}"), &n.to_string()))
            .collect();
        parse("f", &text).unwrap()
    }

    fn choice(sample: &[Question]) -> BTreeMap<String, String> {
        sample.iter().map(|q| (q.trajectory.clone().unwrap(), q.query.clone())).collect()
    }

    #[test]
    fn searches_are_named_within_their_run() {
        let all = questions(&[2, 1]);
        assert_eq!(all.iter().map(|q| q.id.as_str()).collect::<Vec<_>>(), ["run0/1", "run1/1", "run0/2"]);
        assert_eq!((all[0].answer.as_deref(), &all[0].labels), (Some("a"), &None));
    }

    #[test]
    fn one_search_stands_for_each_run() {
        let runs = [5, 1, 3, 8];
        let all = questions(&runs);
        let sample = sample_per_trajectory(all.clone(), 42, |_| true);
        assert_eq!(choice(&sample).len(), runs.len());
        assert_eq!(sample.len(), runs.len());
        assert_eq!(sample, sample_per_trajectory(all.clone(), 42, |_| true));
        let mut order = sample.iter().map(|s| all.iter().position(|q| q == s).unwrap());
        assert!(order.by_ref().is_sorted(), "in their order");
    }

    #[test]
    fn other_runs_may_come_go_and_move() {
        let all = questions(&[6, 7, 8, 9]);
        let want = choice(&sample_per_trajectory(all.clone(), 7, |_| true));
        let mut moved = all.clone();
        moved.sort_by_key(|q| std::cmp::Reverse(q.trajectory.clone())); // stable: a run's own order stays
        assert_eq!(choice(&sample_per_trajectory(moved, 7, |_| true)), want);
        let fewer: Vec<Question> =
            all.into_iter().filter(|q| q.trajectory.as_deref() != Some("run1")).collect();
        let mut want_fewer = want;
        want_fewer.remove("run1");
        assert_eq!(choice(&sample_per_trajectory(fewer, 7, |_| true)), want_fewer);
    }

    #[test]
    fn every_search_has_its_chance_whatever_the_other_runs_give() {
        let all = questions(&[4, 4]);
        let mut counts = BTreeMap::<Vec<String>, usize>::new();
        for seed in 0..1600 {
            let chosen = choice(&sample_per_trajectory(all.clone(), seed, |_| true)).into_values().collect();
            *counts.entry(chosen).or_default() += 1;
        }
        assert_eq!(counts.len(), 16, "all pairs");
        // 100 expected, standard deviation 9.7
        assert!(counts.values().all(|n| (55..=145).contains(n)), "{counts:?}");
    }

    #[test]
    fn a_search_that_cannot_be_used_stands_for_a_run_only_where_all_are_such() {
        let all = questions(&[4, 3]);
        let usable =
            |q: &Question| q.trajectory.as_deref() == Some("run0") && ["1", "3"].contains(&q.query.as_str());
        let mut counts = BTreeMap::<String, usize>::new();
        for seed in 0..400 {
            let some = choice(&sample_per_trajectory(all.clone(), seed, usable));
            let any = choice(&sample_per_trajectory(all.clone(), seed, |_| true));
            assert_eq!(some.len(), 2, "no run is lost");
            assert_eq!(some["run1"], any["run1"]);
            if ["1", "3"].contains(&any["run0"].as_str()) {
                assert_eq!(some["run0"], any["run0"], "what can be used is drawn whoever else cannot");
            }
            *counts.entry(some["run0"].clone()).or_default() += 1;
        }
        assert_eq!(counts.keys().collect::<Vec<_>>(), ["1", "3"]);
        assert!(counts.values().all(|n| (150..=250).contains(n)), "{counts:?}"); // standard deviation 10
    }

    #[test]
    fn questions_of_no_run_all_stay() {
        let mut all = questions(&[1, 1, 1]);
        for question in &mut all {
            question.trajectory = None;
        }
        assert_eq!(sample_per_trajectory(all.clone(), 1, |_| true), all);
        assert_eq!(sample_per_trajectory(Vec::new(), 1, |_| true), []);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (field, says) in [
            ("answer", "`answer` is missing; a trajectory record is {query, chunks, answer, trajectory_id}"),
            ("trajectory_id", "`trajectory_id` is missing"),
            ("query", "`query` is missing"),
            ("chunks", "`chunks` is missing"),
        ] {
            let text = format!("{}{}", line("a", "q"), line("b", "q").replace(field, "other"));
            let error = parse("t.jsonl", &text).unwrap_err();
            assert_eq!(error.at, At::Line(2), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
