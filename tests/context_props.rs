//! The context manager against a naive model, over random histories: searches with few pages and many duplicates, scores
//! with many ties, retries, forks, scores that do not fit, and logs cut after each update.
#![allow(clippy::unwrap_used)] // a test may panic, in its helpers too

#[path = "context/model.rs"]
mod model;
#[path = "context/world.rs"]
mod world;

use std::num::NonZeroUsize;

use model::{Found, Model};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config as Runs, TestRunner},
};
use qrae::context::{Config, Context, Mode, Record};
use world::{Seen, World};

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
    let mut runner = TestRunner::new(Runs { cases: 800, failure_persistence: None, ..Runs::default() });
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
