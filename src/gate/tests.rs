use proptest::prelude::*;

use super::{sentences::Sentence, spans::smallest, *};

/// Tokens of three characters each, from the start of the text.
fn tokens(responses: &[f64]) -> Vec<Response> {
    responses.iter().enumerate().map(|(i, &response)| Response { start: Some(3 * i), response }).collect()
}

const THREE: &str = "Aa bb. Cc dd. Ee ff.";

fn candidate<'a>(text: &'a str, score: f64, rank: usize, responses: &'a [Response]) -> Candidate<'a> {
    Candidate { text, score, rank, tokens: responses.len(), cut: None, responses }
}

fn rules(policy: Policy) -> Rules {
    Rules { policy, full: 0, share: 0.8 }
}

fn span(start: usize, end: usize) -> Span {
    Span { start, end }
}

#[test]
fn a_span_is_the_sentence_that_responds() {
    // tokens at 0 3 6 9 12 15 18: two begin in the first sentence (0..7), the one at 6 too
    let responses = tokens(&[0.0, 0.0, 0.1, 0.5, 0.4, 0.0, 0.0]);
    let gated = gate(&[candidate(THREE, 1.0, 1, &responses)], &rules(Policy::TopK(1)));
    assert_eq!(gated, [Gated { admission: Admission::Span, spans: vec![span(7, 13)], tokens: 2 }]);
    let all = Rules { share: 1.0, ..rules(Policy::TopK(1)) };
    let gated = gate(&[candidate(THREE, 1.0, 1, &responses)], &all);
    // neighbours are one span, with what stands between them
    assert_eq!(gated, [Gated { admission: Admission::Span, spans: vec![span(0, 13)], tokens: 5 }]);
}

#[test]
fn all_sentences_or_no_response_is_the_whole() {
    let even = tokens(&[1.0; 7]);
    let none = tokens(&[0.0; 7]);
    let whole = Gated { admission: Admission::Full, spans: vec![span(0, 20)], tokens: 7 };
    let chunks = [candidate(THREE, 1.0, 1, &even), candidate(THREE, 0.0, 2, &none)];
    assert_eq!(gate(&chunks, &rules(Policy::TopK(2))), [whole.clone(), whole]);
    let empty = gate(&[candidate("", 0.0, 1, &[])], &rules(Policy::TopK(1)));
    assert_eq!(empty, [Gated { admission: Admission::Full, spans: vec![], tokens: 0 }]);
    assert_eq!(gate(&[], &rules(Policy::TopK(1))), []);
}

#[test]
fn what_a_title_holds_need_not_be_held_by_sentences() {
    let mut responses = vec![Response { start: None, response: 8.0 }];
    responses.extend(tokens(&[0.0, 0.0, 0.9, 1.1, 0.0, 0.0, 0.0]));
    let gated = gate(&[candidate(THREE, 1.0, 1, &responses)], &rules(Policy::TopK(1)));
    // the title alone is enough; a chunk that is admitted shows something of its text all the same
    assert_eq!(gated[0].spans, [span(7, 13)]);
    assert_eq!(gated[0].tokens, 1 + 2);
}

#[test]
fn policies_take_the_best() {
    let responses: Vec<Vec<Response>> =
        (0..4).map(|_| tokens(&[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])).collect();
    let ranked = [(0.4, 3), (0.9, 1), (0.1, 4), (0.6, 2)];
    let chunks: Vec<_> =
        ranked.iter().zip(&responses).map(|(&(s, rank), r)| candidate(THREE, s, rank, r)).collect();
    let admitted = |rules: Rules| -> String {
        gate(&chunks, &rules)
            .iter()
            .map(|g| match g.admission {
                Admission::Full => 'f',
                Admission::Span => 's',
                Admission::Withhold => 'w',
            })
            .collect()
    };
    assert_eq!(admitted(rules(Policy::TopK(0))), "wwww");
    assert_eq!(admitted(rules(Policy::TopK(2))), "wsws");
    assert_eq!(admitted(rules(Policy::TopK(9))), "ssss");
    assert_eq!(admitted(Rules { full: 1, ..rules(Policy::TopK(2)) }), "wfws");
    assert_eq!(admitted(Rules { full: 3, ..rules(Policy::TopK(2)) }), "wfwf");
    assert_eq!(admitted(rules(Policy::Threshold(0.6))), "wsws");
    assert_eq!(admitted(rules(Policy::Threshold(0.0))), "ssss");
    // a span costs two tokens, a whole seven
    assert_eq!(admitted(rules(Policy::Budget(5))), "wsws");
    assert_eq!(admitted(rules(Policy::Budget(1))), "wwww");
    assert_eq!(admitted(Rules { full: 2, ..rules(Policy::Budget(9)) }), "wfws");
    assert_eq!(
        admitted(Rules { full: 1, ..rules(Policy::Budget(3)) }),
        "wsww",
        "no room for the whole of it"
    );
}

#[test]
fn nothing_beyond_the_cut_is_shown_unless_it_is_paid_for() {
    // "Aa bb. Cc dd" of 20 characters was scored, in four tokens of seven
    let responses = tokens(&[0.0, 0.0, 0.1, 0.9]);
    let cut = Candidate { tokens: 7, cut: Some(12), ..candidate(THREE, 1.0, 1, &responses) };
    let gated = gate(&[cut], &rules(Policy::Budget(6)));
    assert_eq!(gated, [Gated { admission: Admission::Span, spans: vec![span(7, 12)], tokens: 1 }]);
    let all = Rules { share: 1.0, ..rules(Policy::Budget(6)) };
    // all that was scored is not all there is
    assert_eq!(
        gate(&[cut], &all),
        [Gated { admission: Admission::Span, spans: vec![span(0, 12)], tokens: 4 }]
    );
    let whole = Rules { full: 1, ..rules(Policy::TopK(1)) };
    assert_eq!(gate(&[cut], &whole)[0].tokens, 7);
    // cut inside its title: whatever that has, it is not more than the chunk
    let title = [Response { start: None, response: 1.0 }; 2];
    let cut = Candidate { tokens: 9, cut: Some(0), ..candidate(THREE, 1.0, 1, &title) };
    let withheld = Gated { admission: Admission::Withhold, spans: vec![], tokens: 9 };
    assert_eq!(gate(&[cut], &rules(Policy::TopK(0))), [withheld]);
}

#[test]
fn titles_are_counted_before_anything_else() {
    let titled = |n: usize| -> Vec<Response> {
        let mut all = vec![Response { start: None, response: 0.0 }; n];
        all.extend(tokens(&[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]));
        all
    };
    let (a, b) = (titled(3), titled(4));
    let chunks = [candidate(THREE, 0.5, 2, &a), candidate(THREE, 0.9, 1, &b)];
    for (budget, want, tokens) in [
        (100, [Admission::Span, Admission::Span], [5, 6]),
        (10, [Admission::Withhold, Admission::Span], [3, 6]),
        (8, [Admission::Withhold, Admission::Withhold], [3, 4]),
        (0, [Admission::Withhold, Admission::Withhold], [3, 4]),
    ] {
        let gated = gate(&chunks, &rules(Policy::Budget(budget)));
        assert_eq!(gated.iter().map(|g| g.admission).collect::<Vec<_>>(), want, "{budget}");
        assert_eq!(gated.iter().map(|g| g.tokens).collect::<Vec<_>>(), tokens, "{budget}");
    }
}

#[test]
fn sentences_are_counted_in_characters_whatever_the_script() {
    let text = "  Zürich 🏔️ ist groß.\r\n\r\n東京は大きい。大阪もだ。 مرحبا بالعالم. ";
    let all: Vec<char> = text.chars().collect();
    let responses: Vec<Response> =
        (0..all.len()).map(|i| Response { start: Some(i), response: 1.0 }).collect();
    let sentences = sentences::of(text, &responses);
    let words: Vec<String> =
        sentences.iter().map(|s| all[s.span.range()].iter().collect::<String>()).collect();
    assert_eq!(words, ["Zürich 🏔️ ist groß.", "東京は大きい。", "大阪もだ。", "مرحبا بالعالم."]);
    // no token is lost, that of white space included
    assert_eq!(sentences.iter().map(|s| s.tokens).sum::<usize>(), all.len());
}

#[test]
fn very_many_sentences_are_taken_together() {
    let text = "a. B. ".repeat(2000);
    let responses: Vec<Response> =
        (0..4000).map(|i| Response { start: Some(3 * i), response: 1.0 }).collect();
    let sentences = sentences::of(&text, &responses);
    assert!((200..=256).contains(&sentences.len()), "{}", sentences.len());
    assert_eq!(sentences.iter().map(|s| s.tokens).sum::<usize>(), 4000);
    assert!(sentences.windows(2).all(|w| w[0].span.end < w[1].span.start));
}

/// All subsets, the plain way: the fewest tokens, then the most response.
fn twin(sentences: &[Sentence], in_title: f64, share: f64) -> Option<(usize, f64)> {
    let sum = |set: u32| -> (usize, f64) {
        let inside = sentences.iter().enumerate().filter(|(i, _)| set & (1 << i) != 0);
        inside.fold((0, 0.0), |(t, m), (_, s)| (t + s.tokens, m + s.mass))
    };
    let all = sum(u32::MAX).1;
    let mut best: Option<(usize, f64)> = None;
    for set in 0..1_u32 << sentences.len() {
        let (tokens, mass) = sum(set);
        let enough = mass > 0.0 && in_title + mass >= share * (in_title + all) - 1e-9;
        let better = best.is_none_or(|(t, m)| tokens < t || tokens == t && mass > m);
        if enough && better {
            best = Some((tokens, mass));
        }
    }
    best
}

proptest! {
    #[test]
    fn no_smaller_set_of_sentences_holds_the_share(
        sentences in prop::collection::vec((1_usize..9, 0_u8..20), 0..9),
        title in 0_u8..30,
        share in prop::sample::select(vec![0.1, 0.5, 0.75, 1.0]),
    ) {
        // masses of eighths add without rounding
        let sentences: Vec<Sentence> = sentences
            .iter()
            .map(|&(tokens, mass)| Sentence { span: Span::default(), tokens, mass: f64::from(mass) / 8.0 })
            .collect();
        let title = f64::from(title) / 8.0;
        let kept = smallest(&sentences, title, share);
        let found = (!kept.is_empty()).then(|| {
            let sum = |f: fn(&Sentence) -> f64| kept.iter().map(|&i| f(&sentences[i])).sum::<f64>();
            (kept.iter().map(|&i| sentences[i].tokens).sum::<usize>(), sum(|s| s.mass))
        });
        prop_assert_eq!(found, twin(&sentences, title, share));
        prop_assert!(kept.windows(2).all(|w| w[0] < w[1]));
        prop_assert!(kept.iter().all(|&i| sentences[i].mass > 0.0));
    }

    #[test]
    fn spans_lie_in_the_text_and_a_budget_is_kept(
        texts in prop::collection::vec("[A-Z][a-zé。 .\n]{0,40}", 1..6),
        seed in prop::collection::vec(0_u8..4, 300),
        budget in 0_usize..60,
        full in 0_usize..3,
    ) {
        let mut draws = seed.iter().cycle();
        let responses: Vec<Vec<Response>> = texts
            .iter()
            .map(|text| {
                let starts = (0..text.chars().count()).step_by(2);
                starts.map(|s| Response { start: Some(s), response: f64::from(*draws.next().unwrap()) }).collect()
            })
            .collect();
        let chunks: Vec<_> = texts
            .iter()
            .zip(&responses)
            .enumerate()
            .map(|(i, (text, r))| candidate(text, 1.0, i + 1, r))
            .collect();
        let gated = gate(&chunks, &Rules { policy: Policy::Budget(budget), full, share: 0.7 });
        prop_assert!(gated.iter().map(|g| g.tokens).sum::<usize>() <= budget);
        for (g, text) in gated.iter().zip(&texts) {
            let chars: Vec<char> = text.chars().collect();
            prop_assert!(g.spans.windows(2).all(|w| w[0].end <= w[1].start));
            for s in &g.spans {
                prop_assert!(s.start < s.end && s.end <= chars.len());
                if g.admission == Admission::Span {
                    prop_assert!(!chars[s.start].is_whitespace() && !chars[s.end - 1].is_whitespace());
                }
            }
            prop_assert_eq!(g.spans.is_empty(), g.admission == Admission::Withhold);
        }
    }
}
