//! The manager by example: the paper's numbers, ties, waiting, retries, forks. Names of chunks are their addresses.

mod duplicates;
mod log;
mod page;
mod refused;

use std::{num::NonZeroUsize, sync::Arc};

use super::{Answer, Batch, Candidate, ChunkId, Config, Context, Group, Mode, Step, Update};
use crate::prompt::layout::Chunk;

fn config(b: usize, retention: f64, mode: Mode) -> Config {
    let results_per_query = NonZeroUsize::new(b).unwrap();
    Config { results_per_query, retention: retention.try_into().unwrap(), mode }
}

fn manager(b: usize) -> Context {
    Context::new(config(b, 0.5, Mode::Manager), "who?")
}

/// Results named by the words of `names`.
fn group(names: &str) -> Group {
    let chunk =
        |name: &str| Chunk { url: Some(name.to_owned()), text: format!("of {name}"), ..Chunk::default() };
    Group { search: None, results: names.split_whitespace().map(|name| Arc::new(chunk(name))).collect() }
}

/// An update of one group for each of `groups`.
fn update(id: &str, groups: &[&str]) -> Update {
    Update { id: id.to_owned(), query: None, groups: groups.iter().map(|names| group(names)).collect() }
}

fn names<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> String {
    candidates.map(|c| c.chunk.url.as_deref().unwrap()).collect::<Vec<_>>().join(" ")
}

fn batch_names(batch: &Batch) -> String {
    batch.chunks.iter().map(|(_, chunk)| chunk.url.as_deref().unwrap()).collect::<Vec<_>>().join(" ")
}

fn cached(context: &Context) -> String {
    names(context.state().cache())
}

fn admitted(context: &Context) -> String {
    names(context.state().whitelist().map(|a| &*a.candidate))
}

/// Works through `update`; each batch is checked for its names and gets these scores.
fn run(context: &mut Context, update: Update, batches: &[(&str, &[f64])]) -> Arc<Answer> {
    let mut step = context.begin(update).unwrap();
    for (names, scores) in batches {
        let Step::Score(batch) = step else { panic!("no batch, but {names} was expected") };
        assert_eq!(batch_names(&batch), *names);
        step = context.commit(&batch, scores).unwrap();
    }
    match step {
        Step::Done(answer) => answer,
        Step::Score(batch) => panic!("a batch that was not expected: {}", batch_names(&batch)),
    }
}

fn ids(ids: &[u64]) -> Vec<ChunkId> {
    ids.iter().map(|id| ChunkId(*id)).collect()
}

#[test]
fn three_of_five_are_admitted() {
    let mut context = manager(5);
    let answer = run(&mut context, update("1", &["a b c d e"]), &[("a b c d e", &[0.1, 0.5, 0.2, 0.4, 0.3])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("b d e", "a c"));
    assert_eq!(answer.groups[0].admitted, ids(&[2, 4, 5]));
    assert_eq!(answer.groups[0].deferred, ids(&[1, 3]));
}

#[test]
fn five_of_ten_are_admitted() {
    let mut context = manager(10);
    let scores = [0.1, 0.5, 0.2, 0.4, 0.3, 0.9, 0.0, 0.8, 0.7, 0.6];
    run(&mut context, update("1", &["a b c d e f g h i j"]), &[("a b c d e f g h i j", &scores)]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("b f h i j", "a c d e g"));
}

#[test]
fn below_b_chunks_nothing_is_scored_and_nothing_admitted() {
    let mut context = manager(3);
    let answer = run(&mut context, update("1", &["a b"]), &[]);
    assert_eq!((answer.groups[0].cached, answer.groups[0].scores.len()), (2, 0));
    assert_eq!((answer.admitted(), answer.deferred()), (ids(&[]), ids(&[1, 2])));
    run(&mut context, update("2", &["b a"]), &[]);
    run(&mut context, update("3", &["c"]), &[("a b c", &[0.1, 0.3, 0.2])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("b c", "a"));
    run(&mut context, update("4", &["d"]), &[]);
    assert_eq!(cached(&context), "a d");
}

#[test]
fn all_scored_chunks_compete_and_unscored_ones_never() {
    let mut context = manager(2);
    // six in the cache, two scored, one admitted
    run(&mut context, update("1", &["a b c d e f"]), &[("a b", &[-0.7, -0.8])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a", "b c d e f"));
    // c and d have the fewest scores; the best mean is still b's
    let answer = run(&mut context, update("2", &[""]), &[("c d", &[-0.9, -0.85])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b", "c d e f"));
    assert_eq!((answer.admitted(), answer.deferred()), (ids(&[2]), ids(&[3, 4])));
    run(&mut context, update("3", &["f e"]), &[("e f", &[-1.0, -2.0])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b d", "c e f"));
}

#[test]
fn the_fewest_scores_come_first_and_the_mean_decides() {
    let mut context = manager(3);
    run(&mut context, update("1", &["a b c"]), &[("a b c", &[0.9, 0.8, 0.4])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b", "c"));
    // new ones are ahead of c, which was seen first
    run(&mut context, update("2", &["d e f g"]), &[("d e f", &[0.5, 0.45, 0.3])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b d e", "c f g"));
    // g has no score, c and f have one each
    let answer = run(&mut context, update("3", &[""]), &[("g c f", &[0.1, 0.3, 0.6])]);
    let means: Vec<f64> = answer.groups[0].scores.iter().map(|s| s.mean).collect();
    assert_eq!(means, [0.1, (0.4 + 0.3) / 2.0, (0.3 + 0.6) / 2.0]);
    assert_eq!(answer.groups[0].admitted, ids(&[6, 3]));
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b c d e f", "g"));
    let f = context.state().chunk(ChunkId(6)).unwrap();
    let history: Vec<(u32, u32, f64)> =
        f.scores.iter().map(|s| (s.turn.update, s.turn.group, s.value)).collect();
    assert_eq!(history, [(2, 1, 0.3), (3, 1, 0.6)]);
}

#[test]
fn ties_go_to_the_first_seen() {
    let mut context = manager(4);
    run(&mut context, update("1", &["a b c d"]), &[("a b c d", &[0.5, 0.7, 0.5, 0.5])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b", "c d"));
    // 0 and -0 are one mean, and c's is the same as that of two newer ones
    run(&mut context, update("2", &["e f"]), &[("e f c d", &[0.25, 0.25, 0.0, -0.5])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b c e", "d f"));
    run(&mut context, update("3", &["g h"]), &[("g h f d", &[-0.0, 0.0, -0.25, 0.0])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b c d e f", "g h"));
}

#[test]
fn groups_are_worked_through_in_order_each_with_one_batch() {
    let mut context = manager(2);
    let answer = run(
        &mut context,
        update("1", &["a", "b c d", "a c e"]),
        &[("a b", &[0.2, 0.1]), ("c d", &[0.05, 0.04])],
    );
    // the first group waits; in the second a is admitted; in the third its score of b competes
    assert_eq!(answer.groups.iter().map(|g| g.cached).collect::<Vec<_>>(), [1, 4, 4]);
    assert_eq!(
        answer.groups.iter().map(|g| g.admitted.clone()).collect::<Vec<_>>(),
        [ids(&[]), ids(&[1]), ids(&[2])]
    );
    assert_eq!(
        answer.groups.iter().map(|g| g.deferred.clone()).collect::<Vec<_>>(),
        [ids(&[1]), ids(&[2, 3, 4]), ids(&[3, 4, 5])]
    );
    let third: Vec<(u64, bool)> = answer.groups[2].results.iter().map(|r| (r.chunk.0, r.new)).collect();
    assert_eq!(third, [(1, false), (3, false), (5, true)]);
    assert_eq!((answer.admitted(), answer.deferred()), (ids(&[1, 2]), ids(&[3, 4, 5])));
    let seen = context.state().chunk(ChunkId(5)).unwrap().first_seen;
    assert_eq!((seen.update, seen.group, seen.rank), (1, 3, 3), "duplicates count in ranks");
}

#[test]
fn the_whitelist_is_presented_as_it_was_first_seen() {
    let mut context = manager(2);
    run(&mut context, update("1", &["a b"]), &[("a b", &[0.1, 0.2])]);
    run(&mut context, update("2", &["c"]), &[("c a", &[0.5, 0.3])]);
    assert_eq!(admitted(&context), "b c");
    run(&mut context, update("3", &["d"]), &[("d a", &[0.0, 0.9])]);
    assert_eq!(admitted(&context), "a b c");
    let after = |n| names(context.state().whitelist_after(n).map(|a| &*a.candidate));
    assert_eq!([0, 1, 2, 3].map(after), ["", "b", "b c", "a b c"]);
}

#[test]
fn an_update_may_bring_its_own_query_and_nothing_else_changes() {
    let mut context = manager(1);
    let mut queries = Vec::new();
    for query in [None, Some("whose?".to_owned())] {
        let given = Update { query: query.clone(), ..update(&format!("{query:?}"), &["a b"]) };
        let Step::Score(batch) = context.begin(given).unwrap() else { panic!("there is a batch") };
        queries.push(batch.query.clone());
        context.commit(&batch, &[0.5]).unwrap();
    }
    assert_eq!(queries, ["who?", "whose?"]);
}

#[test]
fn an_update_may_bring_nothing() {
    let mut context = manager(1);
    let answer = run(&mut context, update("none", &[]), &[]);
    assert_eq!((answer.groups.len(), answer.update), (0, 1));
    run(&mut context, update("empty", &["", ""]), &[]);
    run(&mut context, update("more", &["a b c"]), &[("a", &[0.0])]);
    run(&mut context, update("waiting ones have their turn", &["", "", ""]), &[("b", &[0.0]), ("c", &[0.0])]);
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a b c", ""));
}

#[test]
fn a_fork_goes_on_by_itself() {
    let mut context = manager(2);
    run(&mut context, update("1", &["a b c"]), &[("a b", &[0.1, 0.2])]);
    let mut fork = context.clone();
    let before = context.clone();
    run(&mut fork, update("2", &["x"]), &[("c x", &[0.5, 0.6])]);
    assert_eq!(context, before);
    run(&mut context, update("2", &["y z"]), &[("c y", &[0.7, 0.1])]);
    assert_eq!((admitted(&context).as_str(), admitted(&fork).as_str()), ("b c", "b x"));
    assert_eq!((cached(&context).as_str(), cached(&fork).as_str()), ("a y z", "a c"));
}
