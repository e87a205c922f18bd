//! Contexts as a service: the manager of `crate::context`, kept in a store, and scored by the model.
//!
//! Every update starts from what is stored, works on a copy, and is stored whole when it is done; only then is it answered.
//! Updates of one context wait for each other, and those of different contexts do not. Several servers may share a store:
//! where another one was faster, the update is worked through again from what is stored then.
//!
//! Knows no HTTP. Tests: `tests/http/contexts.rs`.

mod live;
mod settings;
mod transcript;
mod update;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lru::LruCache;
use tokio::sync::Mutex as AsyncMutex;

pub use settings::Settings;
pub use transcript::{Managed, ManagedBlock, Managing, NewContext};
pub use update::Updated;

use self::live::Live;
use super::ServiceError;
use crate::{
    context::{Config, Context, Record, State, Weights},
    store::{Batch, Begin, Header, Name, Store, StoreError},
};

/// Contexts that are kept in memory, those that were used last.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).expect("a number above 0");

/// How often contexts whose time is over are deleted. They are not found before that either.
const SWEEP: Duration = Duration::from_secs(60);

/// A context's place in memory; what is in it is used by one update at a time.
type Slot = Arc<AsyncMutex<Option<Live>>>;

/// All contexts of a store; cheap to clone.
#[derive(Clone)]
pub struct Contexts {
    store: Store,
    slots: Arc<Mutex<LruCache<Name, Slot>>>,
}

/// A context at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// What is stored besides its events.
    pub header: Header,
    /// How it scores.
    pub settings: Arc<Settings>,
    /// What it is.
    pub state: State,
    /// What its chunks weigh.
    pub weights: Arc<Weights>,
}

impl Contexts {
    /// Those of `store`.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, slots: Arc::new(Mutex::new(LruCache::new(KEPT))) }
    }

    /// Deletes contexts whose time is over, from time to time, for ever.
    pub async fn sweep(self) {
        loop {
            match self.store.sweep(now()).await {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, "contexts were deleted: their time was over"),
                Err(e) => tracing::warn!("contexts whose time is over could not be deleted: {e}"),
            }
            tokio::time::sleep(SWEEP).await;
        }
    }

    /// A new context, forgotten `expires_in` seconds after its last use, or never.
    ///
    /// # Errors
    /// When there is one of that name, or it cannot be stored.
    pub async fn create(
        &self,
        name: &Name,
        settings: &Settings,
        config: Config,
        question: &str,
        expires_in: Option<i64>,
    ) -> Result<View, ServiceError> {
        let at = now();
        let records = Context::new(config, question).take_events().into_iter().map(Record::from).collect();
        let batches = [Batch { first: 0, at, records, cost: None }];
        self.begin(name, &json(settings), expires_in, &batches, at).await
    }

    /// A new context with the history of another one up to update `after`, or all of it.
    ///
    /// # Errors
    /// When there is none, or none with so many updates, or one of the new name; when it cannot be stored.
    pub async fn fork(
        &self,
        name: &Name,
        new: &Name,
        after: Option<u32>,
        expires_in: Option<i64>,
    ) -> Result<View, ServiceError> {
        let at = now();
        let header = self.store.header(name, at).await.map_err(|e| storage(name, e))?;
        let batches = self.store.batches(&header.uid, 0, header.events).await;
        let mut batches = batches.map_err(|e| storage(name, e))?;
        // the first batch is its making, and every other one an update
        let updates = batches.len() - 1;
        if let Some(after) = after {
            let after = after as usize;
            if after > updates {
                let reason = format!("is {after}, but the context has {updates} updates");
                return Err(ServiceError::invalid("after_update", &reason));
            }
            batches.truncate(after + 1);
        }
        self.begin(new, &header.settings, expires_in.or(header.expires_in), &batches, at).await
    }

    async fn begin(
        &self,
        name: &Name,
        settings: &str,
        expires_in: Option<i64>,
        batches: &[Batch],
        at: i64,
    ) -> Result<View, ServiceError> {
        let begin = Begin { settings, expires_in, batches };
        self.store.create(name, begin, at).await.map_err(|e| storage(name, e))?;
        self.view(name).await
    }

    /// A context as it is now.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn view(&self, name: &Name) -> Result<View, ServiceError> {
        let slot = self.slot(name);
        // an update in progress is not waited for: it is not stored yet
        let known = slot.try_lock().ok().and_then(|live| live.clone());
        Ok(Live::load(&self.store, name, known).await?.view())
    }

    /// Up to `limit` of an owner's contexts whose ids come after `after`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn list(&self, owner: &str, after: &str, limit: i64) -> Result<Vec<Header>, ServiceError> {
        self.store.list(owner, after, limit, now()).await.map_err(|e| database(&e))
    }

    /// Batches of a context's events, the first of which holds event number `from`, up to `limit` of them; and how many
    /// events it has.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn events(
        &self,
        name: &Name,
        from: i64,
        limit: i64,
    ) -> Result<(Vec<Batch>, i64), ServiceError> {
        let header = self.store.header(name, now()).await.map_err(|e| storage(name, e))?;
        let batches = self.store.batches_holding(&header.uid, from, limit).await;
        Ok((batches.map_err(|e| storage(name, e))?, header.events))
    }

    /// All that is stored of a context.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn export(&self, name: &Name) -> Result<(Header, Vec<Batch>), ServiceError> {
        let header = self.store.header(name, now()).await.map_err(|e| storage(name, e))?;
        let batches = self.store.batches(&header.uid, 0, header.events).await;
        Ok((header, batches.map_err(|e| storage(name, e))?))
    }

    /// Deletes a context.
    ///
    /// # Errors
    /// When there is none, or the store fails.
    pub async fn delete(&self, name: &Name) -> Result<(), ServiceError> {
        self.store.delete(name, now()).await.map_err(|e| storage(name, e))?;
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop(name);
        Ok(())
    }

    fn slot(&self, name: &Name) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.get_or_insert(name.clone(), Slot::default))
    }
}

fn json(settings: &Settings) -> String {
    serde_json::to_string(settings).expect("plain data can be written: this is a bug")
}

/// What a failure of the store is to the caller.
fn storage(name: &Name, error: StoreError) -> ServiceError {
    match error {
        StoreError::Gone => ServiceError::NoContext { id: name.id.clone() },
        StoreError::Exists => {
            let reason = format!("there is a context {:?} already; choose another id, or none", name.id);
            ServiceError::Conflict { field: "id".into(), reason }
        }
        other => database(&other),
    }
}

fn database(error: &StoreError) -> ServiceError {
    ServiceError::Storage { reason: error.to_string() }
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}
