//! What the context manager saves an agent, and what it costs: a scripted agent of many searches, its context filled in
//! three ways. Prints a table.
//!
//! `cargo bench --bench agent -- --data hotpotqa.json [--model NAME] [--questions 5] [--steps 20] [--results 5]`
//!
//! The corpus is every paragraph of the file's questions, searched with BM25. The agent of one question searches for the
//! question, then in turn for words of the question (windows of four) and for the title of the next paragraph it has seen:
//! 20 searches of five results, the same in all three ways. After each search the model is called with all that was
//! shown so far, and 16 tokens are generated. What is shown of a search:
//!
//! - *full*: every result.
//! - *search*: what the current search's best half is ([`Mode::CurrentSearch`], ϱ = 0.5); the rest is forgotten.
//! - *manager*: what enters the whitelist ([`Mode::Manager`], ϱ = 0.5); the rest waits.
//!
//! Nothing shown is taken back, so that the prefix cache serves all but what is new. *gold* are the question's supporting
//! paragraphs: *found* those that any search brought, *shown* those in the context at the end. Tokens are means over the
//! questions: of the context at the end, of all calls together, of these computed (not cached), and of scoring. Each way
//! and question has its own part of the prefix cache.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
    sync::Arc,
    time::Instant,
};

use qrae::{
    cli::resolve_model,
    context::{Config, Context, Group, Mode, Retention, Step, Update},
    engine::Sampling,
    eval::{bm25::Bm25, data, question::Question},
    hub::Resolver,
    kv::Salt,
    prompt::layout::Chunk,
    service::{
        Admission, LoadOptions, ServedModel,
        generate::{CompletionJob, GenerateOptions, TextPrompt, collect},
        score::ScoreJob,
    },
};

/// Tokens generated after each search.
const ANSWER: usize = 16;

struct Corpus {
    chunks: Vec<Arc<Chunk>>,
    index: Bm25,
}

impl Corpus {
    fn new(questions: &[Question]) -> Self {
        let mut seen = BTreeSet::new();
        let all = questions.iter().flat_map(|question| &question.chunks);
        let chunks: Vec<Arc<Chunk>> =
            all.filter(|chunk| seen.insert(chunk.text.clone())).cloned().map(Arc::new).collect();
        let texts: Vec<String> = chunks.iter().map(|chunk| chunk.serialise().0).collect();
        Self { chunks, index: Bm25::new(&texts) }
    }

    fn search(&self, query: &str, results: usize) -> Vec<Arc<Chunk>> {
        self.index.ranking(query).into_iter().take(results).map(|i| Arc::clone(&self.chunks[i])).collect()
    }
}

/// The searches of one question's agent, with their results.
fn script(corpus: &Corpus, question: &str, steps: usize, results: usize) -> Vec<(String, Vec<Arc<Chunk>>)> {
    let words: Vec<&str> = question.split_whitespace().collect();
    let mut windows = words.chunks(4).map(|window| window.join(" ")).cycle();
    let mut searches: Vec<(String, Vec<Arc<Chunk>>)> = Vec::new();
    let mut searched = BTreeSet::new();
    for step in 0..steps {
        let mut seen = searches.iter().flat_map(|(_, found)| found).filter_map(|chunk| chunk.title.clone());
        let title = seen.find(|title| !searched.contains(title)).filter(|_| step % 2 == 0);
        let query = match title {
            _ if step == 0 => question.to_owned(),
            Some(title) => title,
            None => windows.next().unwrap(),
        };
        searched.insert(query.clone());
        let found = corpus.search(&query, results);
        searches.push((query, found));
    }
    searches
}

/// What one way of filling contexts came to, summed over questions.
#[derive(Default)]
struct Tally {
    context: usize,
    sent: usize,
    computed: usize,
    scored: usize,
    scored_computed: usize,
    model_seconds: f64,
    score_seconds: f64,
    shown: usize,
}

/// A model, and who is asked on whose behalf.
struct Bench {
    model: Arc<ServedModel>,
    admission: Admission,
}

impl Bench {
    /// Scores of `chunks` for `query`.
    async fn scores(&self, query: &str, chunks: Vec<Chunk>, salt: &Salt, tally: &mut Tally) -> Vec<f64> {
        let begin = Instant::now();
        let job =
            ScoreJob { queries: vec![query.to_owned()], chunks, salt: salt.clone(), ..ScoreJob::default() };
        let answer = self.model.score(job, self.admission.enter().unwrap()).await.unwrap();
        tally.score_seconds += begin.elapsed().as_secs_f64();
        tally.scored += answer.usage.prompt_tokens;
        tally.scored_computed += answer.usage.computed_tokens;
        answer.queries[0].chunks.iter().map(|chunk| chunk.score.value).collect()
    }

    /// What is shown after the update, in order.
    async fn admitted(
        &self,
        context: &mut Context,
        update: Update,
        salt: &Salt,
        tally: &mut Tally,
    ) -> Vec<Arc<Chunk>> {
        let mut step = context.begin(update).unwrap();
        loop {
            match step {
                Step::Score(batch) => {
                    let chunks = batch.chunks.iter().map(|(_, chunk)| Chunk::clone(chunk)).collect();
                    let scores = self.scores(&batch.query, chunks, salt, tally).await;
                    step = context.commit(&batch, &scores).unwrap();
                }
                Step::Done(answer) => {
                    let chunk = |id| Arc::clone(&context.state().chunk(id).unwrap().chunk);
                    return answer.admitted().into_iter().map(chunk).collect();
                }
            }
        }
    }

    /// Calls the model with all that was shown.
    async fn call(&self, text: &str, salt: &Salt, tally: &mut Tally) {
        let begin = Instant::now();
        let options = GenerateOptions {
            sampling: Sampling::default(),
            max_tokens: Some(ANSWER),
            ignore_eos: true,
            salt: salt.clone(),
            ..GenerateOptions::default()
        };
        let job = CompletionJob { prompts: vec![TextPrompt::Text(text.to_owned())], echo: false, options };
        let mut answer = self.model.complete(job, self.admission.enter().unwrap()).await.unwrap();
        collect(&mut answer, 1).await.unwrap();
        let usage = answer.usage();
        tally.model_seconds += begin.elapsed().as_secs_f64();
        tally.sent += usage.prompt_tokens;
        tally.computed += usage.prompt_tokens - usage.cached_tokens;
        tally.context = usage.prompt_tokens;
    }

    /// One agent, from its question to its last call.
    async fn run(
        &self,
        question: &Question,
        searches: &[(String, Vec<Arc<Chunk>>)],
        mode: Option<Mode>,
        results: usize,
    ) -> Tally {
        let mut tally = Tally::default();
        let salt = Salt::new(&format!("{} {mode:?}", question.id));
        let results_per_query = NonZeroUsize::new(results).unwrap();
        let mut context = mode.map(|mode| {
            let config = Config { results_per_query, retention: Retention::default(), mode };
            Context::new(config, &question.query)
        });
        let mut text =
            format!("Answer the question with the help of searches.\nQuestion: {}\n", question.query);
        let mut shown = BTreeSet::new();
        for (i, (search, found)) in searches.iter().enumerate() {
            let admitted = match &mut context {
                None => found.clone(),
                Some(context) => {
                    let group = Group { search: Some(search.clone()), results: found.clone() };
                    let update = Update { id: i.to_string(), query: None, groups: vec![group] };
                    self.admitted(context, update, &salt, &mut tally).await
                }
            };
            text += &format!("\nSearch {}: {search}\n", i + 1);
            for chunk in &admitted {
                text += &format!("{}\n", chunk.serialise().0);
                shown.insert(chunk.text.clone());
            }
            self.call(&text, &salt, &mut tally).await;
        }
        tally.shown = gold(question).filter(|chunk| shown.contains(&chunk.text)).count();
        tally
    }
}

fn gold(question: &Question) -> impl Iterator<Item = &Chunk> {
    let labels = question.labels.as_deref().unwrap();
    question.chunks.iter().zip(labels).filter(|(_, label)| **label > 0).map(|(chunk, _)| chunk)
}

fn main() {
    let mut flags = HashMap::new();
    let mut given = std::env::args().skip(1).filter(|flag| flag != "--bench");
    while let (Some(name), Some(value)) = (given.next(), given.next()) {
        flags.insert(name, value);
    }
    let number = |name: &str, default: usize| flags.get(name).map_or(default, |n| n.parse().unwrap());
    let (steps, results) = (number("--steps", 20), number("--results", 5));
    let name = flags.get("--model").map_or("qwen2.5-coder-0.5b-instruct", String::as_str);
    let Some(data) = flags.get("--data") else {
        return println!("SKIPPED: --data names a file of HotpotQA questions");
    };
    let parsed = data::parse_any(data, &std::fs::read_to_string(data).unwrap()).unwrap();
    let corpus = Corpus::new(&parsed);
    let questions = &parsed[..number("--questions", 5).min(parsed.len())];

    let (files, card) = resolve_model(name, &Resolver::from_env(false, true).unwrap()).unwrap();
    let options = LoadOptions { kv_tokens: Some(65_536), ..LoadOptions::default() };
    let model = Arc::new(ServedModel::load(&files, card.as_ref(), &options).unwrap());
    let bench = Bench { model, admission: Admission::new(1) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();

    let scripts: Vec<_> = questions.iter().map(|q| script(&corpus, &q.query, steps, results)).collect();
    let wanted: usize = questions.iter().map(|q| gold(q).count()).sum();
    let found: usize = questions
        .iter()
        .zip(&scripts)
        .map(|(question, searches)| {
            let found: BTreeSet<&str> =
                searches.iter().flat_map(|(_, found)| found).map(|chunk| chunk.text.as_str()).collect();
            gold(question).filter(|chunk| found.contains(chunk.text.as_str())).count()
        })
        .sum();
    let n = questions.len();
    println!(
        "{name}: {n} questions, {steps} searches of {results} results over {} paragraphs; gold found {found} of {wanted}\n",
        corpus.chunks.len()
    );
    println!(
        "| | context at the end | sent in all | computed | scoring | computed | model s | scoring s | all s | gold shown |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (way, mode) in
        [("full", None), ("search", Some(Mode::CurrentSearch)), ("manager", Some(Mode::Manager))]
    {
        let mut sum = Tally::default();
        for (question, searches) in questions.iter().zip(&scripts) {
            let one = runtime.block_on(bench.run(question, searches, mode, results));
            sum = Tally {
                context: sum.context + one.context,
                sent: sum.sent + one.sent,
                computed: sum.computed + one.computed,
                scored: sum.scored + one.scored,
                scored_computed: sum.scored_computed + one.scored_computed,
                model_seconds: sum.model_seconds + one.model_seconds,
                score_seconds: sum.score_seconds + one.score_seconds,
                shown: sum.shown + one.shown,
            };
        }
        let (model, scoring) = (sum.model_seconds / n as f64, sum.score_seconds / n as f64);
        println!(
            "| {way} | {} | {} | {} | {} | {} | {model:.1} | {scoring:.1} | {:.1} | {} of {wanted} |",
            sum.context / n,
            sum.sent / n,
            sum.computed / n,
            sum.scored / n,
            sum.scored_computed / n,
            model + scoring,
            sum.shown
        );
    }
}
