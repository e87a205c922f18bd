//! The naive model: the rules of the manager as they are written, over one list of all chunks that is searched from its
//! start each time. It knows a page by its number; only the results it makes spell that page in one of several ways.

use qrae::prompt::layout::Chunk;

/// A result: which page, spelled how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) page: usize,
    pub(crate) spelling: usize,
}

impl Found {
    pub(crate) fn chunk(self) -> Chunk {
        let n = self.page;
        let url = [
            format!("https://site{n}.org/page"),
            format!("http://www.SITE{n}.org:80/page/?utm_source=feed#top"),
            format!("https://site{n}.org/./%70age?gclid=1"),
        ];
        // every third page is known by a number, every other third by its text alone
        let (url, text) = match n % 3 {
            0 => (Some(url[self.spelling].clone()), format!("spelling {}", self.spelling)),
            1 => (
                Some([format!("doc-{n}"), format!(" doc-{n}"), format!("doc-{n}\n")][self.spelling].clone()),
                String::new(),
            ),
            _ => (
                [None, Some(String::new()), Some("  ".to_owned())][self.spelling].clone(),
                format!("text  {n}{}", " ".repeat(self.spelling)),
            ),
        };
        Chunk { id: Some(self.spelling.to_string()), title: None, url, text }
    }
}

/// Where a chunk is, as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    Cache,
    Whitelist,
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) page: usize,
    pub(crate) seen: (u32, u32, u32),
    pub(crate) scores: Vec<f64>,
    pub(crate) at: At,
}

impl Naive {
    pub(crate) fn mean(&self) -> f64 {
        let mut sum = 0.0;
        for score in &self.scores {
            sum += score;
        }
        sum / self.scores.len() as f64
    }
}

/// All chunks ever seen, in the order they were seen in.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) b: usize,
    pub(crate) kept: usize,
    pub(crate) current_search: bool,
    pub(crate) chunks: Vec<Naive>,
}

/// What became of a group: the chunk of each result, the batch, the admitted, those left. Chunks by place in the list.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) results: Vec<(usize, bool)>,
    pub(crate) batch: Vec<usize>,
    pub(crate) admitted: Vec<usize>,
    pub(crate) left: Vec<usize>,
}

impl Model {
    pub(crate) fn all(&self, at: At) -> Vec<usize> {
        (0..self.chunks.len()).filter(|i| self.chunks[*i].at == at).collect()
    }

    /// One group. `score` gives the score of the n-th chunk of a batch.
    pub(crate) fn group(
        &mut self,
        update: u32,
        group: u32,
        found: &[Found],
        mut score: impl FnMut(usize) -> f64,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for (i, result) in found.iter().enumerate() {
            let known = self.chunks.iter().position(|c| c.page == result.page && c.at != At::Gone);
            let place = known.unwrap_or(self.chunks.len());
            if known.is_none() {
                let seen = (update, group, i as u32 + 1);
                self.chunks.push(Naive { page: result.page, seen, scores: vec![], at: At::Cache });
            }
            outcome.results.push((place, known.is_none()));
        }
        let mut batch = self.all(At::Cache);
        if !self.current_search {
            if batch.len() < self.b {
                batch.clear();
            }
            // a stable sort: among equals the first seen
            batch.sort_by_key(|i| self.chunks[*i].scores.len());
            batch.truncate(self.b);
        }
        for (nth, i) in batch.iter().enumerate() {
            self.chunks[*i].scores.push(score(nth));
        }
        let mut ranked: Vec<usize> =
            self.all(At::Cache).into_iter().filter(|i| !self.chunks[*i].scores.is_empty()).collect();
        ranked.sort_by(|i, j| self.chunks[*j].mean().partial_cmp(&self.chunks[*i].mean()).unwrap());
        if !batch.is_empty() {
            outcome.admitted = ranked.into_iter().take(self.kept).collect();
        }
        for i in &outcome.admitted {
            self.chunks[*i].at = At::Whitelist;
        }
        let brought = |i: usize| outcome.results.contains(&(i, true));
        outcome.left = self.all(At::Cache).into_iter().filter(|i| brought(*i) || batch.contains(i)).collect();
        if self.current_search {
            for i in self.all(At::Cache) {
                self.chunks[i].at = At::Gone;
            }
        }
        outcome.batch = batch;
        outcome
    }
}
