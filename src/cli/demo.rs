//! `qrae demo`: scores nine search results for one question, then answers it from all of them and from the better half.

mod answer;
mod show;
mod story;

use std::{
    io::{self, Write},
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, bail};
use clap::Args;

use super::{
    args::{EngineArgs, ModelArgs},
    load,
    terminal::{Flow, Screen, thousands},
};
use crate::{
    prompt::layout::Chunk,
    service::{
        Admission, ServedModel,
        score::{ScoreAnswer, ScoreJob},
    },
};
use answer::Answer;
use show::Page;
use story::Story;

/// See what qrae does, on a small model
///
/// Fetches the model (about 0.5 GB) if it is not on this machine, scores nine search results for one question, shows
/// which of their words respond to it, and answers the question from all results and from the better half of them.
#[derive(Args, Debug)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(super) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("starting the runtime")?;
    runtime.block_on(demo(args))
}

async fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    let begin = Instant::now();
    let story = Story::shipped();
    let mut out = io::stdout().lock();
    let mut page = Page { out: &mut out, screen: Screen::stdout(), story: &story };
    page.opening()?;
    let ready = load::load(&args.model, &args.engine.options(), true)?;
    if ready.model.head_sets.default_set().is_err() {
        bail!("{} has no head set, so it cannot score; run the demo without --model", args.model.model);
    }
    page.model(&ready)?;
    page.question()?;
    let model = Arc::new(ready.model);
    let scores = score(&model, &story).await?;
    let kept = kept(&scores);
    page.scoring(&model, &scores)?;
    page.ranking(&scores, &kept)?;
    page.texts(&scores, &kept)?;

    let all: Vec<&Chunk> = story.snippets.iter().collect();
    let better: Vec<&Chunk> = kept.iter().map(|&i| &story.snippets[i]).collect();
    let from_all = answer(&mut page, &model, &all, "all").await?;
    let from_kept = answer(&mut page, &model, &better, "kept").await?;
    page.closing(&scores, &from_all, &from_kept)?;
    page.what_next(begin.elapsed())?;
    Ok(())
}

async fn score(model: &Arc<ServedModel>, story: &Story) -> anyhow::Result<ScoreAnswer> {
    let job = ScoreJob {
        queries: vec![story.question.clone()],
        chunks: story.snippets.clone(),
        explain: true,
        ..ScoreJob::default()
    };
    let spinner = load::spinner("reading all results and the question, once");
    let answer = model.score(job, Admission::new(1).enter()?).await;
    spinner.finish_and_clear();
    Ok(answer?)
}

/// The better half, rounded up, in the order the results came in.
fn kept(scores: &ScoreAnswer) -> Vec<usize> {
    let chunks = &scores.queries[0].chunks;
    let half = chunks.len().div_ceil(2);
    (0..chunks.len()).filter(|&i| chunks[i].rank <= half).collect()
}

/// Answers from these results, under a heading; `cache` is as in [`answer::ask`].
async fn answer<W: Write>(
    page: &mut Page<'_, W>,
    model: &Arc<ServedModel>,
    results: &[&Chunk],
    cache: &str,
) -> anyhow::Result<Answer> {
    let permit = Admission::new(1).enter()?;
    let asked = answer::ask(model, &page.story.question, results, cache, permit).await?;
    let tokens = asked.prompt_tokens();
    page.answering(results.len(), tokens)?;
    let spinner = load::spinner(&format!("reading {} tokens", thousands(tokens)));
    let mut flow = Flow::new(&mut *page.out, page.screen.width, show::INDENT);
    let answer = asked.listen(|text| {
        spinner.finish_and_clear();
        Ok(flow.push(text)?)
    });
    let answer = answer.await;
    spinner.finish_and_clear();
    let answer = answer?;
    flow.finish()?;
    page.answer_cost(&answer)?;
    Ok(answer)
}
