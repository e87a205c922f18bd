//! How a context scores: fixed when it is made, stored as JSON.

use std::{num::NonZeroUsize, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    context::Config,
    ids::HeadRef,
    kv::Salt,
    score::{Control, Read, Statistic},
    service::{
        Permit, ServedModel, ServiceError,
        generate::off_thread,
        score::{HeadChoice, Orders, ScoreJob},
    },
};

/// What every batch of a context is scored with, so that its scores can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The model's name.
    pub model: String,
    /// The head set as `name@hash`, or `custom:` and its heads.
    pub head_set: String,
    /// The heads, where no set was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<HeadRef>>,
    /// What is computed of a chunk's responses.
    pub statistic: Statistic,
    /// What is subtracted.
    pub control: Control,
    /// Where rows are read.
    pub read: Read,
    /// In how many orders of a batch.
    pub orders: Orders,
    /// Longer chunks are cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_chunk: Option<NonZeroUsize>,
}

impl Settings {
    /// Those that `job` asks for, with what it leaves open filled in.
    ///
    /// # Errors
    /// When it names heads that there are not.
    pub fn new(model: &ServedModel, job: &ScoreJob) -> Result<Self, ServiceError> {
        let (heads, head_set, default) = model.heads(&job.heads)?;
        let custom = matches!(job.heads, HeadChoice::Heads(_));
        Ok(Self {
            model: model.id.clone(),
            head_set,
            heads: custom.then_some(heads),
            statistic: job.statistic.unwrap_or(default.statistic),
            control: job.control.unwrap_or(default.control),
            read: job.read.unwrap_or(default.read),
            orders: job.orders,
            max_tokens_per_chunk: job.max_tokens_per_chunk,
        })
    }

    /// Refuses a context in which no batch could be scored: its question, or as many results, would not fit the model.
    ///
    /// # Errors
    /// When that is so.
    pub async fn check(
        &self,
        model: &Arc<ServedModel>,
        question: &str,
        config: Config,
        permit: Permit,
    ) -> Result<Permit, ServiceError> {
        let (model, job) = (Arc::clone(model), self.job(model, question, Salt::none())?);
        let n = config.results_per_query.get();
        let work = move || {
            model.check_text("query", &job.queries[0])?;
            model.chunk_room(&job, 1)?;
            model.chunk_room(&job, n).map_err(|_| {
                let limit = model.max_model_len;
                let reason = format!("is {n}; no batch of so many fits into the model's {limit} tokens");
                ServiceError::invalid("results_per_query", &reason)
            })
        };
        Ok(off_thread(permit, work).await?.1)
    }

    /// A job with these settings for one query, and nothing to score yet.
    ///
    /// # Errors
    /// When the server has another model or head set by now.
    pub(super) fn job(&self, model: &ServedModel, query: &str, salt: Salt) -> Result<ScoreJob, ServiceError> {
        if self.model != model.id {
            let reason = format!("scores with model {:?}; this server has {:?}", self.model, model.id);
            return Err(ServiceError::Conflict { field: "context".into(), reason });
        }
        let heads = match &self.heads {
            Some(heads) => HeadChoice::Heads(heads.clone()),
            None => HeadChoice::Named(self.head_set.clone()),
        };
        if let Err(e) = model.heads(&heads) {
            let reason =
                format!("scores with head set {}, which this server does not have: {e}", self.head_set);
            return Err(ServiceError::Conflict { field: "context".into(), reason });
        }
        Ok(ScoreJob {
            queries: vec![query.to_owned()],
            heads,
            statistic: Some(self.statistic),
            control: Some(self.control),
            read: Some(self.read),
            orders: self.orders,
            max_tokens_per_chunk: self.max_tokens_per_chunk,
            salt,
            ..ScoreJob::default()
        })
    }
}
