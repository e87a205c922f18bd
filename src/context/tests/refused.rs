//! Retries, and what is refused: then nothing has changed.

use super::*;
use crate::context::{ApplyError, BeginError, CommitError, Event, ReplayError, ScoreProblem, State, Turn};

#[test]
fn a_retry_gets_the_recorded_answer_and_changes_nothing() {
    let mut context = manager(2);
    let first = run(&mut context, update("1", &["a b"]), &[("a b", &[0.1, 0.2])]);
    run(&mut context, update("2", &["c"]), &[("c a", &[0.1, 0.2])]);
    context.take_events();
    let before = context.clone();
    assert_eq!(run(&mut context, update("1", &["a b"]), &[]), first);
    assert_eq!(context.state().answer("1"), Some(&*first));
    assert_eq!(context, before);
    assert!(context.take_events().is_empty());
}

#[test]
fn an_id_stands_for_one_content() {
    let mut context = manager(2);
    run(&mut context, update("1", &["a b"]), &[("a b", &[0.1, 0.2])]);
    let before = context.clone();
    let base = update("1", &["a b"]);
    let mut texts = base.clone();
    texts.groups[0].results[1] =
        Arc::new(Chunk { url: Some("b".into()), text: "other".into(), ..Chunk::default() });
    let mut search = base.clone();
    search.groups[0].search = Some("b".into());
    let query = Update { query: Some("who?".into()), ..base };
    for other in
        [update("1", &["b a"]), update("1", &["a", "b"]), update("1", &["a b", ""]), texts, search, query]
    {
        let error = BeginError::OtherContent { id: "1".into(), update: 1 };
        assert_eq!(context.begin(other), Err(error));
    }
    assert_eq!(context.begin(update("", &["a b"])), Err(BeginError::NoId));
    assert_eq!(context, before);
}

#[test]
fn updates_come_one_after_the_other() {
    let mut context = manager(2);
    let Step::Score(batch) = context.begin(update("1", &["a b"])).unwrap() else {
        panic!("there is a batch")
    };
    let before = context.clone();
    let busy = BeginError::Busy { id: "2".into(), pending: "1".into() };
    assert_eq!(context.begin(update("2", &["a b"])), Err(busy));
    assert_eq!(
        context.begin(update("1", &["a"])),
        Err(BeginError::OtherContent { id: "1".into(), update: 1 })
    );
    assert_eq!(context.state().pending(), Some("1"));
    // sent again it goes on where it stands
    assert_eq!(context.begin(update("1", &["a b"])), Ok(Step::Score(batch.clone())));
    assert_eq!(context, before);
    context.commit(&batch, &[0.1, 0.2]).unwrap();
    assert_eq!(context.state().pending(), None);
}

#[test]
fn scores_must_fit_the_batch_that_is_awaited() {
    let mut context = manager(2);
    let Step::Score(batch) = context.begin(update("1", &["a b", "c"])).unwrap() else {
        panic!("there is a batch")
    };
    let mut fork = manager(2);
    let mut other = update("1", &["a b"]);
    other.groups[0].results[1] =
        Arc::new(Chunk { url: Some("b".into()), text: "other".into(), ..Chunk::default() });
    let Step::Score(foreign) = fork.begin(other).unwrap() else { panic!("there is a batch") };

    let before = context.clone();
    for (scores, found) in [(&[][..], 0), (&[0.1], 1), (&[0.1, 0.2, 0.3], 3)] {
        assert_eq!(context.commit(&batch, scores), Err(CommitError::Count { found, expected: 2 }));
    }
    for (score, problem) in [
        (f64::INFINITY, ScoreProblem::NotFinite),
        (f64::NEG_INFINITY, ScoreProblem::NotFinite),
        (1e101, ScoreProblem::TooLarge),
        (-f64::MAX, ScoreProblem::TooLarge),
    ] {
        let error = CommitError::Score { index: 1, chunk: ChunkId(2), score, problem };
        assert_eq!(context.commit(&batch, &[0.1, score]), Err(error));
    }
    let nan = context.commit(&batch, &[f64::NAN, 0.1]);
    assert!(
        matches!(nan, Err(CommitError::Score { index: 0, problem: ScoreProblem::NotFinite, .. })),
        "{nan:?}"
    );
    let (first, second) = (Turn { update: 1, group: 1 }, Turn { update: 1, group: 2 });
    assert_eq!(
        context.commit(&foreign, &[0.1, 0.2]),
        Err(CommitError::OtherBatch { found: first, awaited: first })
    );
    assert_eq!(context, before);

    let Step::Score(next) = context.commit(&batch, &[0.1, 0.2]).unwrap() else {
        panic!("there is a second batch")
    };
    let before = context.clone();
    assert_eq!(
        context.commit(&batch, &[0.1, 0.2]),
        Err(CommitError::OtherBatch { found: first, awaited: second })
    );
    assert_eq!(context, before);
    context.commit(&next, &[0.1, 0.2]).unwrap();
    assert_eq!(context.commit(&next, &[0.1, 0.2]), Err(CommitError::NotAwaited { found: second }));
}

/// A log that has every kind of event but `forgotten`.
fn log() -> Vec<Event> {
    let mut context = manager(2);
    run(&mut context, update("1", &["a", "b b"]), &[("a b", &[0.1, 0.2])]);
    run(&mut context, update("2", &["c a", "d"]), &[("c a", &[0.1, 0.2]), ("d c", &[0.0, 0.0])]);
    run(&mut context, update("3", &["c"]), &[]);
    context.take_events()
}

#[test]
fn an_event_out_of_place_is_refused_and_changes_nothing() {
    let log = log();
    for at in 1..log.len() {
        let state = State::replay(&log[..at]).unwrap();
        for event in log.iter().filter(|event| **event != log[at]) {
            let mut tried = state.clone();
            if tried.apply(event).is_err() {
                assert_eq!(tried, state, "{event:?} was refused and did something");
            } else {
                // only what might have been decided here instead
                let kinds = (log[at].name(), event.name());
                let open = matches!(kinds, ("update_begun", "update_begun"))
                    || event.turn().is_some() && event.turn() == log[at].turn();
                assert!(open, "{event:?} came instead of {:?}", log[at]);
            }
        }
    }
}

#[test]
fn a_log_with_a_hole_is_no_log() {
    let log = log();
    for hole in 0..log.len() - 1 {
        let events: Vec<&Event> =
            log.iter().enumerate().filter(|(i, _)| *i != hole).map(|(_, e)| e).collect();
        assert!(State::replay(events).is_err(), "without {:?}", log[hole]);
    }
    assert_eq!(State::replay([]), Err(ReplayError::Empty));
    let twice = State::replay([&log[0], &log[0]]).unwrap_err();
    assert!(
        matches!(&twice, ReplayError::Event { at: 1, source: ApplyError::Order { event: "created", .. } }),
        "{twice}"
    );
}

#[test]
fn chunks_that_do_not_fit_are_named() {
    let log = log();
    let (update, group) = (1, 2);
    let state = State::replay(&log[..log.iter().position(|e| e.name() == "batch_chosen").unwrap()]).unwrap();
    for (chunks, wrong) in [(vec![1, 1], 1), (vec![1, 9], 9), (vec![0], 0)] {
        let event = Event::BatchChosen { update, group, chunks: ids(&chunks) };
        let error = state.clone().apply(&event).unwrap_err();
        assert!(matches!(error, ApplyError::Chunk { chunk, .. } if chunk == ChunkId(wrong)), "{error}");
    }
    assert!(state.clone().apply(&Event::BatchChosen { update, group, chunks: vec![] }).is_err());

    // a result as another chunk than it can be
    let begun = State::replay(&log[..2]).unwrap();
    let (update, group, rank) = (1, 1, 1);
    let key = |name: &str| crate::context::Key::Name(name.into());
    let seen = |chunk, key| Event::ChunkSeen { update, group, rank, chunk: ChunkId(chunk), key };
    for event in
        [seen(0, key("a")), seen(2, key("a")), Event::Duplicate { update, group, rank, of: ChunkId(1) }]
    {
        let error = begun.clone().apply(&event).unwrap_err();
        assert!(matches!(error, ApplyError::Chunk { .. }), "{event:?}: {error}");
    }
    let (group, rank) = (2, 1);
    let known = Event::ChunkSeen { update, group, rank, chunk: ChunkId(2), key: key("a") };
    let second = log.iter().position(|e| e.turn().is_some_and(|t| t.group == 2)).unwrap();
    let error = State::replay(&log[..second]).unwrap().apply(&known).unwrap_err();
    assert_eq!(error.to_string(), "`chunk_seen` names chunk 1, which is the same one already");
}
