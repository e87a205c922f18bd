//! Contexts on disk: the logs of their events, in SQLite or PostgreSQL.
//!
//! A context is a row, and its events are rows of *batches*: what one update did is one batch, written in one transaction
//! together with the number of events that the context has then. So an update is stored whole or not at all, wherever the
//! process or the machine stops; and of two writers that started from the same events, one finds that the context has
//! [moved](StoreError::Moved). What is acknowledged was synced to disk before.
//!
//! Knows no model and decides nothing about chunks. The caller says what time it is. Tests: `tests.rs` on both databases,
//! and `tests/contexts_crash.rs`, which kills the process at any instant.

mod address;
mod error;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::time::Duration;

use sqlx::{
    AnyPool, Executor,
    any::{AnyPoolOptions, install_default_drivers},
    migrate::Migrator,
};

pub use address::Address;
pub use error::StoreError;
pub use write::Begin;

use crate::context::{Record, UpdateCost};

static MIGRATIONS: Migrator = sqlx::migrate!("src/store/migrations");

/// How long a writer waits for others before it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections to a database. SQLite has one writer at a time; the others read meanwhile.
const CONNECTIONS: u32 = 8;

/// Stored contexts; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: AnyPool,
    /// A connection that nobody uses, where memory is the place: it is there while somebody is connected, and a connection
    /// is closed when a caller goes away in the middle of a transaction.
    _keeper: Option<AnyPool>,
}

/// Whose context, and what it is called. Different owners may use the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Who made it.
    pub owner: String,
    /// What they call it.
    pub id: String,
}

/// What is stored of a context besides its events. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its own for ever: one of the same name that is made after it was deleted has another.
    pub uid: String,
    /// What it is called.
    pub id: String,
    /// The caller's settings of it, as JSON.
    pub settings: String,
    /// When it was made.
    pub created: i64,
    /// When an update was last stored, or its life prolonged.
    pub used: i64,
    /// How many seconds after its last use it is forgotten; never by default.
    pub expires_in: Option<i64>,
    /// How many events it has.
    pub events: i64,
}

impl Header {
    /// When it will be forgotten if it is not used.
    #[must_use]
    pub fn expires(&self) -> Option<i64> {
        self.expires_in.map(|seconds| self.used.saturating_add(seconds))
    }
}

/// What happened to a context at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The number of its first event, from 0.
    pub first: i64,
    /// When it was stored.
    pub at: i64,
    /// The events; never none.
    pub records: Vec<Record>,
    /// What the update weighed, where it was one.
    pub cost: Option<UpdateCost>,
}

impl Store {
    /// Opens the store and brings its tables up to date.
    ///
    /// # Errors
    /// When the place cannot be reached or written to, or a newer version has been there.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let failed = |reason: String| StoreError::Open { address: address.clone(), reason };
        install_default_drivers();
        if let Address::File(path) = address
            && let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
        }
        let sqlite = !matches!(address, Address::Postgres(_));
        let url = address.url();
        let options = AnyPoolOptions::new().acquire_timeout(PATIENCE).after_connect(move |connection, _| {
            Box::pin(async move {
                if sqlite {
                    let wait = format!("PRAGMA busy_timeout = {}", PATIENCE.as_millis());
                    connection.execute(sqlx::AssertSqlSafe(wait)).await?;
                    connection.execute("PRAGMA journal_mode = WAL").await?;
                    connection.execute("PRAGMA synchronous = FULL").await?;
                }
                Ok(())
            })
        });
        let connect =
            async |options: AnyPoolOptions| options.connect(&url).await.map_err(|e| failed(e.to_string()));
        // what memory holds has no lock that connections could wait for, so there is one
        let (keeper, most) = match address {
            Address::Memory => {
                let lasting = options.clone().max_connections(1).idle_timeout(None).max_lifetime(None);
                (Some(connect(lasting).await?), 1)
            }
            _ => (None, CONNECTIONS),
        };
        let pool = connect(options.max_connections(most)).await?;
        MIGRATIONS.run(&pool).await.map_err(|e| failed(e.to_string()))?;
        Ok(Self { pool, _keeper: keeper })
    }
}
