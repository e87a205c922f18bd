//! What counts as seen: against the group, the cache and the whitelist; in the ablation, with nothing remembered.

use super::*;

#[test]
fn duplicates_are_told_apart_from_batch_cache_and_whitelist() {
    let mut context = manager(2);
    let spelled = ["https://www.a.org/x/?utm_source=q b b", "http://a.org/x#part c b"];
    let answer = run(
        &mut context,
        update("1", &spelled[..1]),
        &[("https://www.a.org/x/?utm_source=q b", &[0.9, 0.1])],
    );
    assert_eq!(
        answer.groups[0].results.iter().map(|r| (r.chunk.0, r.new)).collect::<Vec<_>>(),
        [(1, true), (2, true), (2, false)]
    );
    // one is in the whitelist, one in the cache
    let answer = run(&mut context, update("2", &spelled[1..]), &[("c b", &[0.2, 0.5])]);
    assert_eq!(
        answer.groups[0].results.iter().map(|r| (r.chunk.0, r.new)).collect::<Vec<_>>(),
        [(1, false), (3, true), (2, false)]
    );
    assert_eq!(admitted(&context), "https://www.a.org/x/?utm_source=q b");
}

#[test]
fn current_search_scores_what_a_group_brought_and_forgets_the_rest() {
    let mut context = Context::new(config(4, 0.5, Mode::CurrentSearch), "who?");
    // fewer than ⌈ϱB⌉: all are admitted, by their scores
    let answer = run(&mut context, update("1", &["a"]), &[("a", &[0.0])]);
    assert_eq!((answer.groups[0].cached, answer.admitted()), (1, ids(&[1])));
    // more than B: one batch of all; what is forgotten is new in the next group
    let answer = run(
        &mut context,
        update("2", &["b c a d c e f", "a b", "c g d"]),
        &[("b c d e f", &[0.1, 0.5, 0.1, 0.6, 0.2]), ("b", &[0.0]), ("g d", &[0.2, 0.3])],
    );
    assert_eq!((admitted(&context).as_str(), cached(&context).as_str()), ("a c e b g d", ""));
    assert_eq!(answer.groups[0].admitted, ids(&[5, 3]));
    assert_eq!((answer.groups[0].forgotten.clone(), answer.deferred()), (ids(&[2, 4, 6]), ids(&[])));
    // nothing new: nothing to score
    run(&mut context, update("3", &["a b c"]), &[]);
    assert!(context.state().chunk(ChunkId(2)).is_none());
}
