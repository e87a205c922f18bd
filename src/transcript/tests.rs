//! What is written once stays as it was written.

use std::{num::NonZeroUsize, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::context::{Answer, Config, Context, Mode, Retention, Step, Update};

/// Works through the updates of all blocks, with scores that depend on chunk and update alone.
fn answers(context: &mut Context, updates: impl IntoIterator<Item = Update>) -> Vec<Arc<Answer>> {
    let one = |update: Update| {
        let mut step = context.begin(update).unwrap();
        loop {
            match step {
                Step::Done(answer) => return answer,
                Step::Score(batch) => {
                    let score = |id: u64| ((id * 37 + u64::from(batch.turn.update) * 11) % 100) as f64;
                    let scores: Vec<f64> = batch.chunks.iter().map(|(id, _)| score(id.0)).collect();
                    step = context.commit(&batch, &scores).unwrap();
                }
            }
        }
    };
    updates.into_iter().map(one).collect()
}

fn new(b: usize) -> Context {
    let results_per_query = NonZeroUsize::new(b).unwrap();
    Context::new(Config { results_per_query, retention: Retention::default(), mode: Mode::Manager }, "q")
}

fn printed(pages: &[u8]) -> String {
    let results: Vec<_> = pages
        .iter()
        .map(|p| serde_json::json!({"url": format!("http://x/{p}"), "title": format!("T{p}"), "text": format!("page {p}.")}))
        .collect();
    serde_json::json!({ "results": results }).to_string()
}

/// The conversation's tool messages as the model gets them.
fn managed(context: &mut Context, texts: &[String], deferred: Deferred) -> Vec<String> {
    let messages: Vec<Message<'_>> = texts.iter().map(|text| Message { role: "tool", text }).collect();
    let blocks = find(&messages, None);
    let answers = answers(context, blocks.iter().map(|block| block.update.clone()));
    let answers: Vec<&Answer> = answers.iter().map(|answer| &**answer).collect();
    let written = write(context.state(), &answers, deferred);
    let mut out = texts.to_vec();
    for (block, text) in blocks.iter().zip(&written) {
        out[block.message] = replace(&texts[block.message], &[(block.bytes.clone(), text)]);
    }
    out
}

#[test]
fn a_block_shows_what_was_admitted_with_it() {
    let mut context = new(2);
    let texts = [printed(&[1]), printed(&[2, 3]), "42".into()];
    let out = managed(&mut context, &texts, Deferred::Stubs);
    let waiting =
        "Nothing new was found that is relevant so far.\nAlso found, and not shown:\n[1] T1 (http://x/1)";
    assert_eq!(out[0], waiting);
    let admitted = context.state().whitelist().next().unwrap().candidate.id.0;
    let first = format!(
        "[{admitted}] T{admitted} (http://x/{admitted})\npage {admitted}.\n\nAlso found, and not shown:\n"
    );
    assert!(out[1].starts_with(&first), "{}", out[1]);
    assert_eq!(out[2], "42");
    let plain = managed(&mut new(2), &texts, Deferred::Hidden);
    assert_eq!(plain[1], format!("[{admitted}] T{admitted} (http://x/{admitted})\npage {admitted}."));
}

#[test]
fn parts_are_replaced_in_place() {
    assert_eq!(replace("abcdef", &[(1..2, "XX"), (4..6, "")]), "aXXcd");
    assert_eq!(replace("ä", &[(0..2, "b")]), "b");
    assert_eq!(replace("same", &[]), "same");
}

proptest! {
    #[test]
    fn longer_conversations_begin_as_shorter_ones(
        searches in prop::collection::vec(prop::collection::vec(0_u8..20, 0..6), 1..12),
        b in 1_usize..6,
        stubs in any::<bool>(),
    ) {
        let deferred = if stubs { Deferred::Stubs } else { Deferred::Hidden };
        let texts: Vec<String> = searches.iter().map(|pages| printed(pages)).collect();
        let mut context = new(b);
        let mut before: Vec<String> = Vec::new();
        for n in 1..=texts.len() {
            let now = managed(&mut context, &texts[..n], deferred);
            prop_assert_eq!(&now[..n - 1], &before[..], "with {} searches", n);
            before = now;
        }
        // each admitted chunk is shown once, and nothing else is
        let all = before.join("\n");
        for chunk in context.state().whitelist() {
            let text = format!("\n{}", chunk.candidate.chunk.text);
            prop_assert_eq!(all.matches(&text).count(), 1);
        }
        for chunk in context.state().cache() {
            let text = format!("\n{}", chunk.chunk.text);
            prop_assert!(!all.contains(&text));
        }
        // another context of the same results writes the same
        prop_assert_eq!(managed(&mut new(b), &texts, deferred), before);
    }
}
