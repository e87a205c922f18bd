//! One update of a context: from results to what is admitted.

use std::{num::NonZeroUsize, sync::Arc};

use super::{Contexts, Live, View, now, storage};
use crate::{
    context::{Answer, Batch, BeginError, EvaluatorTokens, Group, Mode, Record, Step, Update, UpdateCost},
    kv::Salt,
    prompt::layout::Chunk,
    service::{
        Permit, ServedModel, ServiceError,
        generate::off_thread,
        score::{ScoreAnswer, ScoreJob},
    },
    store::{Name, StoreError},
};

/// Most groups of one update: each may have a batch scored.
const MOST_GROUPS: usize = 64;

/// How often an update is worked through again because another server was faster.
const TRIES: usize = 20;

/// An update that is done.
pub struct Updated {
    /// The context after it.
    pub view: View,
    /// What became of it.
    pub answer: Arc<Answer>,
    /// Whether it was done before, and this is a retry.
    pub replayed: bool,
    /// What it weighed; nothing for a retry.
    pub cost: UpdateCost,
    /// The batches that were scored for it now.
    pub scored: Vec<ScoreAnswer>,
}

/// How an update is worked through.
struct Work<'a> {
    model: &'a Arc<ServedModel>,
    salt: &'a Salt,
    /// Cut chunks to what fits where the context says nothing of it.
    fit: bool,
}

impl Contexts {
    /// Works through an update of the context, or gives the answer that it had. Dropping the future before the update is
    /// stored leaves the context as it was. With `fit`, results that are too long are cut to what fits where the context
    /// has no `max_tokens_per_chunk`; without it they are refused.
    ///
    /// # Errors
    /// When there is no such context, the update is wrong, does not fit the model, or cannot be scored or stored. The
    /// context is as it was then.
    pub async fn update(
        &self,
        model: &Arc<ServedModel>,
        name: &Name,
        update: Update,
        (salt, fit): (&Salt, bool),
        permit: Permit,
    ) -> Result<(Updated, Permit), ServiceError> {
        if update.groups.len() > MOST_GROUPS {
            let reason = format!("has {}; at most {MOST_GROUPS} are taken at once", update.groups.len());
            return Err(ServiceError::invalid("groups", &reason));
        }
        let slot = self.slot(name);
        let mut held = slot.lock().await;
        let work = Work { model, salt, fit };
        let mut permit = permit;
        for _ in 0..TRIES {
            let live = Live::load(&self.store, name, held.take()).await?;
            *held = live.kept();
            let ((next, updated, records), back) = work.through(live.clone(), update.clone(), permit).await?;
            permit = back;
            if updated.replayed {
                return Ok((updated, permit));
            }
            let Live { header, .. } = &live;
            let (uid, at) = (&header.uid, now());
            match self.store.append(uid, header.events, &records, Some(&updated.cost), at).await {
                Ok(()) => {
                    let mut next = next;
                    next.header.events += records.len() as i64;
                    next.header.used = at;
                    let updated = Updated { view: next.view(), ..updated };
                    *held = next.kept();
                    return Ok((updated, permit));
                }
                // once more, from what is stored now
                Err(StoreError::Moved) => {}
                Err(e) => return Err(storage(name, e)),
            }
        }
        let reason = "is being updated by others all the time; try again".to_owned();
        Err(ServiceError::Conflict { field: "context".into(), reason })
    }
}

impl Work<'_> {
    /// The context after the update, with what is to be stored of it.
    async fn through(
        &self,
        mut live: Live,
        update: Update,
        permit: Permit,
    ) -> Result<((Live, Updated, Vec<Record>), Permit), ServiceError> {
        let done_before = live.context.state().answer(&update.id).is_some();
        let query = update.query.as_deref().unwrap_or(live.context.state().question());
        let job = live.settings.job(self.model, query, self.salt.clone())?;
        let groups = update.groups.clone();
        let mut step = live.context.begin(update).map_err(refused)?;
        if let (true, Step::Done(answer)) = (done_before, &step) {
            let updated = Updated {
                view: live.view(),
                answer: Arc::clone(answer),
                replayed: true,
                cost: UpdateCost::default(),
                scored: Vec::new(),
            };
            return Ok(((live, updated, Vec::new()), permit));
        }
        let (mut permit, measured) = self.measure(&live, &job, groups, permit).await?;
        let job = ScoreJob { max_tokens_per_chunk: measured.cut, ..job };
        let mut evaluator = EvaluatorTokens::default();
        let mut scored = Vec::new();
        let answer = loop {
            match step {
                Step::Done(answer) => break answer,
                Step::Score(batch) => {
                    let (answer, back) = self.score(&job, &batch, permit).await?;
                    permit = back;
                    evaluator.add(&tokens(&answer));
                    let scores: Vec<f64> =
                        answer.queries[0].chunks.iter().map(|chunk| chunk.score.value).collect();
                    scored.push(answer);
                    step = live
                        .context
                        .commit(&batch, &scores)
                        .expect("the scores are those of the batch, and finite: this is a bug");
                }
            }
        };
        let cost = UpdateCost { update: answer.update, results: measured.tokens, evaluator };
        live.weigh(Some(&cost));
        let records = live.context.take_events().into_iter().map(Record::from).collect();
        let updated = Updated { view: live.view(), answer, replayed: false, cost, scored };
        Ok(((live, updated, records), permit))
    }

    async fn score(
        &self,
        job: &ScoreJob,
        batch: &Batch,
        permit: Permit,
    ) -> Result<(ScoreAnswer, Permit), ServiceError> {
        let chunks = batch.chunks.iter().map(|(_, chunk)| Chunk::clone(chunk)).collect();
        let job = ScoreJob { chunks, ..job.clone() };
        self.model.score_within(job, permit, |answer| answer).await.map_err(of_results)
    }

    /// Tokens of the results, which are refused where a batch with them might not fit the model.
    async fn measure(
        &self,
        live: &Live,
        job: &ScoreJob,
        groups: Vec<Group>,
        permit: Permit,
    ) -> Result<(Permit, Measured), ServiceError> {
        let config = *live.context.state().config();
        let (model, job, fit) = (Arc::clone(self.model), job.clone(), self.fit);
        let work = move || {
            let tokens = tokens_of(&model, &groups)?;
            let longest = groups.iter().map(|group| group.results.len()).max().unwrap_or(0);
            let n = match config.mode {
                Mode::Manager => config.results_per_query.get(),
                Mode::CurrentSearch => longest.max(1),
            };
            let room = model.chunk_room(&job, n)?;
            let cut = job.max_tokens_per_chunk.map_or(usize::MAX, NonZeroUsize::get);
            if cut <= room {
                return Ok(Measured { tokens, cut: job.max_tokens_per_chunk });
            }
            if fit {
                return Ok(Measured { tokens, cut: NonZeroUsize::new(room) });
            }
            let places = tokens
                .iter()
                .enumerate()
                .flat_map(|(g, t)| t.iter().enumerate().map(move |(r, t)| (g, r, *t)));
            for (group, result, tokens) in places {
                if tokens.min(cut) > room {
                    let field = result_field(groups.len(), group, result);
                    let reason = format!(
                        "has {tokens} tokens; beside the query a batch of {n} results has room for {room} tokens each: \
                         send shorter results, or make the context with max_tokens_per_chunk of at most {room}"
                    );
                    return Err(ServiceError::invalid(field, &reason));
                }
            }
            Ok(Measured { tokens, cut: job.max_tokens_per_chunk })
        };
        let (measured, permit) = off_thread(permit, work).await?;
        Ok((permit, measured))
    }
}

/// Results, measured.
struct Measured {
    /// Tokens of each result, group by group.
    tokens: Vec<Vec<usize>>,
    /// What chunks are cut to when they are scored.
    cut: Option<NonZeroUsize>,
}

fn tokens_of(model: &ServedModel, groups: &[Group]) -> Result<Vec<Vec<usize>>, ServiceError> {
    let mut all = Vec::with_capacity(groups.len());
    for (g, group) in groups.iter().enumerate() {
        for (r, result) in group.results.iter().enumerate() {
            let bytes = result.title.as_ref().map_or(0, String::len) + result.text.len();
            model.check_bytes(&result_field(groups.len(), g, r), bytes)?;
        }
        let chunks: Vec<Chunk> = group.results.iter().map(|chunk| Chunk::clone(chunk)).collect();
        all.push(model.chunk_tokens(&chunks).map_err(of_results)?);
    }
    Ok(all)
}

/// A result as it was sent: `results[r]` where there is one group, else `groups[g].results[r]`.
fn result_field(groups: usize, group: usize, result: usize) -> String {
    if groups == 1 { format!("results[{result}]") } else { format!("groups[{group}].results[{result}]") }
}

/// A batch's chunks are results to the caller.
fn of_results(mut error: ServiceError) -> ServiceError {
    if let ServiceError::Invalid { field, .. }
    | ServiceError::TooLong { field, .. }
    | ServiceError::TextTooLong { field, .. } = &mut error
        && field.starts_with("chunks")
    {
        "results".clone_into(field);
    }
    error
}

fn refused(error: BeginError) -> ServiceError {
    let field = "update_id".into();
    match error {
        BeginError::NoId => ServiceError::Invalid { field, reason: "must not be empty".into() },
        other => ServiceError::Conflict { field, reason: other.to_string() },
    }
}

fn tokens(answer: &ScoreAnswer) -> EvaluatorTokens {
    let usage = &answer.usage;
    EvaluatorTokens {
        prompt: usage.prompt_tokens,
        cached: usage.prompt_tokens.saturating_sub(usage.computed_tokens),
        computed: usage.computed_tokens,
    }
}
