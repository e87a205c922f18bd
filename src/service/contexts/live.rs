//! A context in memory, kept in step with its log.

use std::sync::Arc;

use super::{Settings, View, now, storage};
use crate::{
    context::{Context, Record, UpdateCost, Weights},
    service::ServiceError,
    store::{Batch, Header, Name, Store, StoreError},
};

/// Most bytes of text of a context that is kept in memory; larger ones are read again for each update.
const LARGEST_KEPT: usize = 1 << 20;

/// A context as its log had it when it was last looked at.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) header: Header,
    pub(super) settings: Arc<Settings>,
    pub(super) context: Context,
    pub(super) weights: Arc<Weights>,
}

impl Live {
    /// The context of that name as it is stored now. `known` is what is in memory of it; only what came after is read.
    pub(super) async fn load(store: &Store, name: &Name, known: Option<Self>) -> Result<Self, ServiceError> {
        let header = store.header(name, now()).await.map_err(|e| storage(name, e))?;
        // one that was made anew under the name has nothing in common with it
        let known = known.filter(|known| known.header.uid == header.uid);
        let from = known.as_ref().map_or(0, |known| known.header.events);
        let batches = store.batches(&header.uid, from, header.events).await.map_err(|e| storage(name, e))?;
        if let (Some(known), true) = (&known, batches.is_empty()) {
            return Ok(Self { header, ..known.clone() });
        }
        let replayed = tokio::task::spawn_blocking(move || Self::replay(known, header, &batches)).await;
        match replayed {
            Ok(live) => live.map_err(|e| storage(name, e)),
            Err(e) => Err(storage(name, StoreError::Unreadable { reason: e.to_string() })),
        }
    }

    fn replay(known: Option<Self>, header: Header, batches: &[Batch]) -> Result<Self, StoreError> {
        let unreadable = |reason: &dyn ToString| StoreError::Unreadable { reason: reason.to_string() };
        let mut rest = batches.iter();
        let mut live = match known {
            Some(known) => Self { header, ..known },
            None => {
                let first = rest.next().map(|batch| batch.records.iter().map(|record| &record.event));
                let context = Context::replay(first.into_iter().flatten()).map_err(|e| unreadable(&e))?;
                let settings = serde_json::from_str(&header.settings).map_err(|e| unreadable(&e))?;
                Self { header, settings: Arc::new(settings), context, weights: Arc::default() }
            }
        };
        for Batch { records, cost, .. } in rest {
            for Record { event, .. } in records {
                live.context.follow(event).map_err(|e| unreadable(&e))?;
            }
            live.weigh(cost.as_ref());
        }
        Ok(live)
    }

    /// Takes in what the last update weighed.
    pub(super) fn weigh(&mut self, cost: Option<&UpdateCost>) {
        if let (Some(cost), Some(answer)) = (cost, self.context.state().answers().next_back()) {
            Arc::make_mut(&mut self.weights).add(answer, cost);
        }
    }

    /// The same to be kept in memory until it is used again, where it is not so large that many of its kind fill that.
    pub(super) fn kept(&self) -> Option<Self> {
        let state = self.context.state();
        let chunks = state.cache().chain(state.whitelist().map(|admitted| &*admitted.candidate));
        let bytes: usize = chunks.map(|candidate| candidate.chunk.text.len()).sum();
        (bytes <= LARGEST_KEPT).then(|| self.clone())
    }

    pub(super) fn view(&self) -> View {
        View {
            header: self.header.clone(),
            settings: Arc::clone(&self.settings),
            state: self.context.state().clone(),
            weights: Arc::clone(&self.weights),
        }
    }
}
