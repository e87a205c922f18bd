//! The baseline every head set has to beat: BM25 over the chunks at hand.
//!
//! Owns the choice of BM25's parts; the arithmetic and the words are the `bm25` crate's. Must not know heads,
//! labels or a model's tokenizer. Tests: below, against the formula worked by hand.

use bm25::{Embedder, EmbedderBuilder, Language, Scorer};

use super::metrics::ranking;

/// Texts to be ranked by BM25.
///
/// `Σ over query words w of ln(1 + (N − n_w + ½)/(n_w + ½)) · f_w (k1 + 1) / (f_w + k1 (1 − b + b · l/l̄))`, k1 =
/// 1.2, b = 0.75: `f_w` occurrences of w in the text, `l` words of the text, `l̄` their mean over the texts, `n_w`
/// of the `N` texts hold w (Robertson and Zaragoza 2009; this idf, never negative, is Lucene's). A word the query
/// repeats counts as often. Words are lowercase English stems, stop words and punctuation left out.
///
/// The statistics are those of these texts alone: one question's chunks are what a server sees, a collection is what a
/// retriever has.
pub struct Bm25 {
    // words are told apart by 64-bit hashes: with the crate's default of 32, unlike words can meet
    embedder: Embedder<u64>,
    scorer: Scorer<usize, u64>,
    n: usize,
}

impl Bm25 {
    /// Counts the words of `texts`.
    #[must_use]
    pub fn new(texts: &[String]) -> Self {
        let corpus: Vec<&str> = texts.iter().map(String::as_str).collect();
        let embedder: Embedder<u64> = EmbedderBuilder::with_fit_to_corpus(Language::English, &corpus).build();
        let mut scorer = Scorer::new();
        for (i, text) in corpus.iter().enumerate() {
            scorer.upsert(&i, embedder.embed(text));
        }
        Self { embedder, scorer, n: texts.len() }
    }

    /// The score of each text for the query, `[texts]`, finite and at least 0, higher = more relevant. Texts without a
    /// word of the query get 0; so do all texts when the query is empty or only stop words.
    #[must_use]
    pub fn scores(&self, query: &str) -> Vec<f64> {
        let query = self.embedder.embed(query);
        (0..self.n).map(|i| self.scorer.score(&i, &query).map_or(0.0, f64::from)).collect()
    }

    /// Indices of the texts, best first; ties keep their order.
    #[must_use]
    pub fn ranking(&self, query: &str) -> Vec<usize> {
        ranking(&self.scores(query))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scores(query: &str, texts: &[&str]) -> Vec<f64> {
        Bm25::new(&texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>()).scores(query)
    }

    #[test]
    fn scores_are_those_of_the_formula_worked_by_hand() {
        // Words: [cat, sat, mat] · [dog, chase, cat, cat, run] · [bird, sing]; mean length 10/3.
        let texts = ["The cat sat on the mat.", "A dog chased the cats; a cat ran... run!", "Birds sing"];
        let found = scores("Which cats were singing?", &texts);
        let idf = |n: f64| (1.0 + (3.0 - n + 0.5) / (n + 0.5)).ln();
        let term = |f: f64, l: f64, mean: f64| f * 2.2 / (f + 1.2 * (0.25 + 0.75 * l / mean));
        // "ran" and "run" have different stems, so the second text has six words
        let mean = (3.0 + 6.0 + 2.0) / 3.0;
        let want = [
            idf(2.0) * term(1.0, 3.0, mean),
            idf(2.0) * term(2.0, 6.0, mean),
            idf(1.0) * term(1.0, 2.0, mean),
        ];
        for (found, want) in found.iter().zip(want) {
            assert!((found - want).abs() < 1e-6, "{found} is not {want}");
        }
    }

    #[test]
    fn a_repeated_word_of_the_query_counts_as_often() {
        let texts = ["red wine", "blue sea", "red sea"];
        let (once, twice) = (scores("sea red", &texts), scores("sea red red", &texts));
        let red = scores("red", &texts);
        for i in 0..3 {
            assert!((twice[i] - once[i] - red[i]).abs() < 1e-6);
        }
    }

    #[test]
    fn texts_are_ranked_best_first_and_ties_keep_their_order() {
        let texts = ["none", "a red sea", "nothing", "red red sea"].map(str::to_owned);
        assert_eq!(Bm25::new(&texts).ranking("red"), [3, 1, 0, 2]);
    }

    #[test]
    fn texts_that_share_no_word_get_nothing() {
        assert_eq!(scores("zebra", &["a lion", "a tiger", ""]), [0.0; 3]);
        let found = scores("zebra lion", &["the lion", "a tiger", "of the"]);
        assert!(found[0] > 0.0 && found[1..] == [0.0; 2], "{found:?}");
    }

    #[test]
    fn edges_are_finite() {
        assert_eq!(scores("", &["a lion", "tiger"]), [0.0; 2]);
        assert_eq!(scores("lion", &[]), [0.0; 0]);
        assert_eq!(scores("lion", &["", ""]), [0.0; 2]);
        assert_eq!(scores("the of and", &["the of and", "the"]), [0.0; 2]);
        assert_eq!(scores("lion", &["the of and"]), [0.0]);
        let one = scores("lion", &["lion"])[0];
        assert!((one - (4.0_f64 / 3.0).ln()).abs() < 1e-6, "{one}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn any_text_has_a_finite_score(query in "\\PC{0,20}", texts in prop::collection::vec("\\PC{0,30}", 0..6)) {
            let found = Bm25::new(&texts).scores(&query);
            prop_assert_eq!(found.len(), texts.len());
            prop_assert!(found.iter().all(|s| s.is_finite() && *s >= 0.0), "{:?}", found);
        }
    }
}
