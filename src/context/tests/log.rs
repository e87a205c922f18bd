//! The log as it is stored, and what replaying it gives.

use super::*;
use crate::context::{ChunkScore, Event, Plan, Record, State};

fn json(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| serde_json::to_string(&Record::from(event.clone())).unwrap()).collect()
}

fn parsed(lines: &[String]) -> Vec<Event> {
    lines.iter().map(|line| serde_json::from_str::<Record>(line).unwrap().event).collect()
}

#[test]
fn a_log_reads_as_what_happened() {
    let mut context = manager(2);
    run(
        &mut context,
        update("u-1", &["https://a.org/1/", "b https://www.a.org/1"]),
        &[("https://a.org/1/ b", &[0.125, 0.1 + 0.2])],
    );
    let mut current = Context::new(config(2, 0.3, Mode::CurrentSearch), "who?");
    run(&mut current, update("u-1", &["a b"]), &[("a b", &[0.0, 1.0])]);
    let lines = json(&context.take_events());
    let want = r#"
{"v":1,"event":"created","config":{"results_per_query":2,"retention":0.5,"mode":"manager"},"question":"who?"}
{"v":1,"event":"update_begun","update":1,"given":{"id":"u-1","groups":[{"results":[{"url":"https://a.org/1/","text":"of https://a.org/1/"}]},{"results":[{"url":"b","text":"of b"},{"url":"https://www.a.org/1","text":"of https://www.a.org/1"}]}]}}
{"v":1,"event":"chunk_seen","update":1,"group":1,"rank":1,"chunk":1,"key":{"page":"a.org/1"}}
{"v":1,"event":"waited","update":1,"group":1}
{"v":1,"event":"deferred","update":1,"group":1,"chunks":[1]}
{"v":1,"event":"chunk_seen","update":1,"group":2,"rank":1,"chunk":2,"key":{"name":"b"}}
{"v":1,"event":"duplicate","update":1,"group":2,"rank":2,"of":1}
{"v":1,"event":"batch_chosen","update":1,"group":2,"chunks":[1,2]}
{"v":1,"event":"scored","update":1,"group":2,"scores":[{"chunk":1,"score":0.125},{"chunk":2,"score":0.30000000000000004}]}
{"v":1,"event":"admitted","update":1,"group":2,"chunks":[2]}
{"v":1,"event":"deferred","update":1,"group":2,"chunks":[1]}
{"v":1,"event":"answered","update":1}"#;
    assert_eq!(lines, want.lines().skip(1).collect::<Vec<_>>());
    let lines = json(&current.take_events());
    assert!(
        lines.contains(&r#"{"v":1,"event":"forgotten","update":1,"group":1,"chunks":[1]}"#.to_owned()),
        "{lines:?}"
    );
}

#[test]
fn a_log_gives_the_same_state_wherever_it_is_cut() {
    let mut context = manager(2);
    let mut events = context.take_events();
    let mut states = vec![context.state().clone()];
    for (id, groups, scores) in [
        ("1", ["a b c", "d"], [0.1, 0.7]),
        ("2", ["b e", "f f"], [0.3, 1.0 / 3.0]),
        ("3", ["", "g"], [0.0, -0.0]),
    ] {
        let mut step = context.begin(update(id, &groups)).unwrap();
        loop {
            // with every event stored as it came, also while scores are awaited
            events.extend(context.take_events());
            states.push(context.state().clone());
            assert_eq!(Context::replay(&parsed(&json(&events))).unwrap().state(), context.state());
            let Step::Score(batch) = step else { break };
            // whoever has the log only goes on with the same batch
            assert_eq!(
                Context::replay(&events).unwrap().begin(update(id, &groups)),
                Ok(Step::Score(batch.clone()))
            );
            step = context.commit(&batch, &scores).unwrap();
        }
    }
    assert_eq!(states.len(), 1 + 3 * 3);
    // cut anywhere, the log goes on where it stops
    for at in 1..events.len() {
        let mut cut = State::replay(&events[..at]).unwrap();
        for event in &events[at..] {
            if !matches!(event, Event::Scored { .. } | Event::UpdateBegun { .. }) {
                assert_eq!(cut.plan(), Plan::Decide(event.clone()));
            }
            cut.apply(event).unwrap();
        }
        assert_eq!(&cut, context.state());
    }
}

#[test]
fn scores_are_stored_to_the_bit() {
    let mut draw = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        // sign and mantissa at random, magnitudes from 2^-60 up to 2^4
        let score = f64::from_bits(draw & 0x800f_ffff_ffff_ffff | (963 + draw % 64) << 52);
        let event =
            Event::Scored { update: 1, group: 1, scores: vec![ChunkScore { chunk: ChunkId(1), score }] };
        let [Event::Scored { scores, .. }] = &parsed(&json(&[event]))[..] else { panic!("another event") };
        assert_eq!(scores[0].score.to_bits(), score.to_bits(), "{score:e}");
    }
}

#[test]
fn names_of_events_are_those_in_json() {
    let mut context = manager(2);
    run(&mut context, update("1", &["a", "b b"]), &[("a b", &[0.1, 0.2])]);
    let mut current = Context::new(config(2, 0.5, Mode::CurrentSearch), "who?");
    run(&mut current, update("1", &["a b"]), &[("a b", &[0.1, 0.2])]);
    let events: Vec<Event> = context.take_events().into_iter().chain(current.take_events()).collect();
    let names: std::collections::BTreeSet<&str> = events.iter().map(Event::name).collect();
    assert_eq!(names.len(), 11, "{names:?}");
    for (event, line) in events.iter().zip(json(&events)) {
        assert!(line.starts_with(&format!(r#"{{"v":1,"event":"{}""#, event.name())), "{line}");
    }
}

#[test]
fn what_another_version_wrote_is_refused() {
    let read = |line: &str| serde_json::from_str::<Record>(line).map_err(|e| e.to_string());
    assert!(read(r#"{"v":1,"event":"waited","update":1,"group":1}"#).is_ok());
    let newer = read(r#"{"v":2,"event":"waited","update":1,"group":1}"#).unwrap_err();
    assert!(newer.contains("format 2") && newer.contains("reads format 1"), "{newer}");
    for wrong in [
        r#"{"event":"waited","update":1,"group":1}"#,
        r#"{"v":1,"event":"waited","update":1,"group":1,"why":"x"}"#,
        r#"{"v":1,"event":"slept","update":1,"group":1}"#,
        r#"{"v":1,"event":"waited","update":-1,"group":1}"#,
        r#"{"v":1,"event":"created","config":{"results_per_query":0,"retention":0.5,"mode":"manager"},"question":""}"#,
        r#"{"v":1,"event":"created","config":{"results_per_query":5,"retention":0,"mode":"manager"},"question":""}"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong} was read");
    }
}
