//! Finished runs: which part of which draw of inputs lies in a folder, so that a merge knows what is missing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::StudyError;
use crate::{eval::question::Question, prompt::layout::content_hash};

/// A part of the inputs drawn of some data that was observed to its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Name of the file or folder the inputs were drawn from.
    pub data: String,
    /// Seed of the draw.
    pub seed: u64,
    /// Inputs drawn, in all parts.
    pub n: usize,
    /// Hash of all of them: what tells draws of other data, seeds or criteria apart.
    pub draw: String,
    /// Which part, from 1.
    pub part: usize,
    /// Number of parts.
    pub of: usize,
    /// Names of the observations that the part had when it was done.
    pub observed: Vec<String>,
}

impl Run {
    /// Part `part` of `of` of what was `drawn` from `data`.
    #[must_use]
    pub fn new(data: &str, seed: u64, drawn: &[Question], (part, of): (usize, usize)) -> Self {
        let hashes: Vec<String> = drawn.iter().map(Question::content_hash).collect();
        let mut fields = vec!["draw 1"];
        fields.extend(hashes.iter().map(String::as_str));
        Self {
            data: data.to_owned(),
            seed,
            n: drawn.len(),
            draw: content_hash(&fields),
            part,
            of,
            observed: Vec::new(),
        }
    }

    /// The same with the names of what was observed.
    #[must_use]
    pub fn with(self, observed: Vec<String>) -> Self {
        Self { observed, ..self }
    }

    /// Name of its file, one for each part of each draw.
    pub(super) fn file_name(&self) -> String {
        let digits: String = self
            .draw
            .trim_start_matches("sha256:")
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(24)
            .collect();
        format!("{digits}-{}-of-{}.json", self.part, self.of)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let run: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let fits = (1..=run.of).contains(&run.part);
        if fits { Ok(run) } else { Err(format!("there is no part {} of {}", run.part, run.of)) }
    }
}

/// Checks that of every draw all parts are among `runs`.
///
/// # Errors
/// Names the parts that are missing of one.
pub(super) fn all_parts(runs: &[Run]) -> Result<(), StudyError> {
    let mut draws: BTreeMap<&str, BTreeMap<usize, BTreeSet<usize>>> = BTreeMap::new();
    for run in runs {
        draws.entry(&run.draw).or_default().entry(run.of).or_default().insert(run.part);
    }
    for (draw, divisions) in draws {
        if divisions.iter().any(|(&of, parts)| parts.len() == of) {
            continue;
        }
        let (&of, parts) =
            divisions.iter().max_by_key(|(_, parts)| parts.len()).expect("each draw has a run");
        let run = runs.iter().find(|run| run.draw == draw && run.of == of).expect("it was counted");
        return Err(StudyError::Parts {
            of,
            n: run.n,
            data: run.data.clone(),
            seed: run.seed,
            missing: missing(of, parts),
        });
    }
    Ok(())
}

/// `part 2 is`, `parts 2 and 3 are`, `parts 2, 3, 4 and 12 others are`.
fn missing(of: usize, parts: &BTreeSet<usize>) -> String {
    const NAMED: usize = 5;
    let n = of - parts.len();
    let mut named: Vec<String> =
        (1..=of).filter(|p| !parts.contains(p)).take(NAMED).map(|p| p.to_string()).collect();
    if n == 1 {
        return format!("part {} is", named[0]);
    }
    let last = if n > NAMED { format!("{} others", n - NAMED) } else { named.pop().unwrap_or_default() };
    format!("parts {} and {last} are", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(draw: &str, part: usize, of: usize) -> Run {
        Run { data: "d.json".into(), seed: 7, n: 8, draw: draw.into(), part, of, observed: Vec::new() }
    }

    #[test]
    fn parts_are_all_there_or_named() {
        let told = |runs: &[Run]| all_parts(runs).map_err(|e| e.to_string()).err().unwrap_or_default();
        assert_eq!(told(&[run("a", 1, 1), run("b", 2, 2), run("b", 1, 2)]), "");
        let said = told(&[run("a", 1, 3), run("a", 3, 3), run("a", 3, 3)]);
        assert!(
            said.starts_with("of 3 parts of the 8 inputs drawn from d.json with seed 7, part 2 is missing"),
            "{said}"
        );
        let said = told(&[run("a", 1, 2), run("b", 2, 2)]);
        assert!(said.contains("part 2 is missing"), "parts of two draws are no whole: {said}");
        assert!(told(&[run("a", 2, 3)]).contains("parts 1 and 3 are missing"));
        let said = told(&[run("a", 2, usize::MAX)]);
        assert!(
            said.contains(&format!("parts 1, 3, 4, 5, 6 and {} others are missing", usize::MAX - 6)),
            "{said}"
        );
        // observed whole after all, or divided otherwise
        assert_eq!(told(&[run("a", 1, 3), run("a", 1, 1)]), "");
        assert_eq!(told(&[run("a", 1, 3), run("a", 1, 2), run("a", 2, 2)]), "");
    }

    #[test]
    fn draws_are_told_apart_by_what_was_drawn() {
        let question = |query: &str| Question { query: query.into(), ..Question::default() };
        let of = |questions: &[Question], seed| Run::new("d.json", seed, questions, (1, 2)).draw;
        let both = [question("a"), question("b")];
        assert_eq!(of(&both, 1), of(&both, 2), "another seed that draws the same");
        assert_ne!(of(&both, 1), of(&both[..1], 1));
        assert_ne!(of(&both, 1), of(&[question("b"), question("a")], 1), "parts would be others");
    }

    #[test]
    fn files_that_hold_no_run_are_told() {
        let text = serde_json::to_string(&run("../../x", 2, 3)).unwrap();
        let found = Run::parse(text.as_bytes()).unwrap();
        assert_eq!((found.seed, found.file_name().as_str()), (7, "-2-of-3.json"));
        for (from, to) in
            [("\"part\":2", "\"part\":0"), ("\"part\":2", "\"part\":4"), ("seed", "sed"), ("{", "[")]
        {
            assert!(Run::parse(text.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
}
