//! Stop strings in a stream of text: nothing of one is ever given out, wherever the pieces are cut.
//!
//! The match that ends first wins, because that is where generation stops; of several that end at the same
//! character, the longest, so that no part of a stop string is shown.

/// What one piece of text led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that is certain not to belong to a stop string.
    pub emit: String,
    /// The index of the stop string that was found. Everything from its first character on is dropped, and
    /// so is all that is pushed later.
    pub stopped: Option<usize>,
}

/// Looks for stop strings in text that arrives in pieces.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

impl StopMatcher {
    /// A matcher for these strings. Empty ones never match.
    #[must_use]
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), stopped: None }
    }

    /// Takes the next piece; gives out what can no longer be part of a stop string.
    pub fn push(&mut self, piece: &str) -> StopStep {
        if self.stopped.is_some() {
            return StopStep { emit: String::new(), stopped: self.stopped };
        }
        self.held.push_str(piece);
        if let Some((start, index)) = self.first_match() {
            self.held.truncate(start);
            self.stopped = Some(index);
            return StopStep { emit: std::mem::take(&mut self.held), stopped: self.stopped };
        }
        let keep = self.possible_start();
        let rest = self.held.split_off(keep);
        StopStep { emit: std::mem::replace(&mut self.held, rest), stopped: None }
    }

    /// What is still held when no text follows; empty after a stop.
    #[must_use]
    pub fn finish(self) -> String {
        self.held
    }

    /// Start and index of the match that ends first; at one end the longest, then the first given.
    fn first_match(&self) -> Option<(usize, usize)> {
        let matches = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        matches
            .filter_map(|(index, stop)| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at, index)))
            .min()
            .map(|(_, start, index)| (start, index))
    }

    /// Where the longest end of the held text that could begin a stop string starts.
    fn possible_start(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = (self.held.len() + 1).saturating_sub(longest);
        let ends = self.held.char_indices().map(|(at, _)| at).skip_while(|&at| at < from);
        let begins_stop = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        ends.into_iter().find(begins_stop).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The slow twin: reads the whole text character by character and looks back at each.
    fn naive(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in (0..=text.len()).filter(|&e| text.is_char_boundary(e)) {
            let ending = stops.iter().enumerate().filter(|(_, s)| !s.is_empty() && text[..end].ends_with(*s));
            if let Some((index, stop)) = ending.min_by_key(|(i, s)| (std::cmp::Reverse(s.len()), *i)) {
                return (text[..end - stop.len()].into(), Some(index));
            }
        }
        (text.into(), None)
    }

    fn run(pieces: &[&str], stops: &[&str]) -> (Vec<String>, Option<usize>, String) {
        let mut matcher = StopMatcher::new(stops.iter().map(|s| (*s).into()).collect());
        let steps: Vec<_> = pieces.iter().map(|p| matcher.push(p)).collect();
        let stopped = steps.last().and_then(|s| s.stopped);
        (steps.into_iter().map(|s| s.emit).collect(), stopped, matcher.finish())
    }

    #[test]
    fn text_is_held_exactly_as_long_as_it_may_begin_a_stop() {
        let (emits, stopped, rest) = run(&["one\n", "Obs", "x\nObserv", "ation: no"], &["\nObservation:"]);
        assert_eq!(emits, ["one", "", "\nObsx", ""]);
        assert_eq!((stopped, rest.as_str()), (Some(0), ""));
        let (emits, stopped, rest) = run(&["ab", "a"], &["abb"]);
        assert_eq!((emits, stopped, rest.as_str()), (vec![String::new(), "ab".into()], None, "a"));
    }

    #[test]
    fn nothing_comes_after_a_stop() {
        let (emits, stopped, rest) = run(&["a.", "b", "c."], &["x", "."]);
        assert_eq!((emits.concat().as_str(), stopped, rest.as_str()), ("a", Some(1), ""));
    }

    #[test]
    fn no_stops_hold_nothing() {
        for stops in [&[][..], &[""][..]] {
            assert_eq!(run(&["a", "é"], stops), (vec!["a".into(), "é".into()], None, String::new()));
        }
    }

    #[test]
    fn the_match_that_ends_first_wins_and_the_longest_of_those() {
        assert_eq!(run(&["abcd"], &["abcd", "bc"]).0, ["a"]);
        assert_eq!(run(&["abc"], &["c", "bc", "abc", "abc"]), (vec![String::new()], Some(2), String::new()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn any_cutting_equals_reading_the_whole_text(
            text in "[ab\u{e9}\u{1f600}]{0,24}",
            stops in prop::collection::vec("[ab\u{e9}\u{1f600}]{0,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<_> = cuts.iter().map(|i| i.index(chars.len() + 1)).collect();
            cuts.extend([0, chars.len()]);
            cuts.sort_unstable();
            let mut matcher = StopMatcher::new(stops.clone());
            let (mut out, mut stopped, mut seen) = (String::new(), None, String::new());
            for pair in cuts.windows(2) {
                let piece: String = chars[pair[0]..pair[1]].iter().collect();
                seen += &piece;
                let step = matcher.push(&piece);
                out += &step.emit;
                stopped = step.stopped;
                if stopped.is_none() {
                    // Held back: the longest end that begins some stop string, no more.
                    let held = &seen[out.len()..];
                    prop_assert!(held.is_empty() || stops.iter().any(|s| s.starts_with(held)));
                    let given_early = (0..out.len())
                        .filter(|&at| seen.is_char_boundary(at))
                        .any(|at| stops.iter().any(|s| s.starts_with(&seen[at..])));
                    prop_assert!(!given_early);
                }
            }
            out += &matcher.finish();
            prop_assert_eq!((out, stopped), naive(&text, &stops));
        }
    }
}
