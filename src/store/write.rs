//! Writing contexts: each of these is one transaction.

use sqlx::{Any, Row, Transaction};

use super::{Batch, Header, Name, Store, StoreError};
use crate::context::{Record, UpdateCost};

/// A context as it begins.
#[derive(Clone, Debug)]
pub struct Begin<'a> {
    /// The caller's settings of it, as JSON.
    pub settings: &'a str,
    /// How many seconds after its last use it is forgotten.
    pub expires_in: Option<i64>,
    /// What has happened to it, from its first event on.
    pub batches: &'a [Batch],
}

impl Store {
    /// A new context.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when there is one of that name; when the database fails.
    pub async fn create(&self, name: &Name, begin: Begin<'_>, now: i64) -> Result<Header, StoreError> {
        let events: usize = begin.batches.iter().map(|batch| batch.records.len()).sum();
        let header = Header {
            uid: uuid::Uuid::new_v4().simple().to_string(),
            id: name.id.clone(),
            settings: begin.settings.to_owned(),
            created: now,
            used: now,
            expires_in: begin.expires_in,
            events: events as i64,
        };
        let mut transaction = self.pool.begin().await?;
        // one whose time is over is in nobody's way
        forget(&mut transaction, "used + expires_in <= $3", name, now).await?;
        let sql = "INSERT INTO contexts (uid, owner, id, settings, created, used, expires_in, events) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let insert = sqlx::query(sql)
            .bind(header.uid.clone())
            .bind(name.owner.clone())
            .bind(name.id.clone())
            .bind(header.settings.clone())
            .bind(header.created)
            .bind(header.used)
            .bind(header.expires_in)
            .bind(header.events);
        match insert.execute(&mut *transaction).await {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                return Err(StoreError::Exists);
            }
            other => other?,
        };
        for Batch { first, at, records, cost } in begin.batches {
            insert_batch(&mut transaction, &header.uid, (*first, *at), records, cost.as_ref()).await?;
        }
        transaction.commit().await?;
        Ok(header)
    }

    /// Adds what an update did to the context `uid`, which has `expected` events, and counts as its use. Once this returns,
    /// it lasts.
    ///
    /// # Errors
    /// [`StoreError::Moved`] when it has other events by now, or is gone; when the database fails: whether it was stored is
    /// not known then.
    pub async fn append(
        &self,
        uid: &str,
        expected: i64,
        records: &[Record],
        cost: Option<&UpdateCost>,
        now: i64,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let sql = "UPDATE contexts SET events = events + $1, used = $2 \
                   WHERE uid = $3 AND events = $4 AND (expires_in IS NULL OR used + expires_in > $5)";
        let update = sqlx::query(sql)
            .bind(records.len() as i64)
            .bind(now)
            .bind(uid.to_owned())
            .bind(expected)
            .bind(now);
        if update.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Err(StoreError::Moved);
        }
        insert_batch(&mut transaction, uid, (expected, now), records, cost).await?;
        Ok(transaction.commit().await?)
    }

    /// Counts as a use of the context.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when there is none; when the database fails.
    pub async fn touch(&self, uid: &str, now: i64) -> Result<(), StoreError> {
        let sql =
            "UPDATE contexts SET used = $1 WHERE uid = $2 AND (expires_in IS NULL OR used + expires_in > $3)";
        let update = sqlx::query(sql).bind(now).bind(uid.to_owned()).bind(now);
        match update.execute(&self.pool).await?.rows_affected() {
            0 => Err(StoreError::Gone),
            _ => Ok(()),
        }
    }

    /// Deletes a context and all that is known of it.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when there is none; when the database fails.
    pub async fn delete(&self, name: &Name, now: i64) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let live = "(expires_in IS NULL OR used + expires_in > $3)";
        let found = forget(&mut transaction, live, name, now).await?;
        transaction.commit().await?;
        if found == 0 { Err(StoreError::Gone) } else { Ok(()) }
    }

    /// Deletes all contexts whose time is over; how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sweep(&self, now: i64) -> Result<u64, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // the contexts go first: a write, so that nobody prolongs one in between
        let over = sqlx::query("DELETE FROM contexts WHERE used + expires_in <= $1").bind(now);
        let found = over.execute(&mut *transaction).await?.rows_affected();
        if found > 0 {
            let orphans = "DELETE FROM batches WHERE NOT EXISTS \
                           (SELECT 1 FROM contexts WHERE contexts.uid = batches.uid)";
            sqlx::query(orphans).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(found)
    }
}

/// Deletes the context of that name if `condition` (`$3` is the time) holds; how many.
async fn forget(
    transaction: &mut Transaction<'static, Any>,
    condition: &'static str,
    name: &Name,
    now: i64,
) -> Result<usize, StoreError> {
    let sql = format!("DELETE FROM contexts WHERE owner = $1 AND id = $2 AND {condition} RETURNING uid");
    let delete = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(name.owner.clone())
        .bind(name.id.clone())
        .bind(now)
        .fetch_all(&mut **transaction);
    let found = delete.await?;
    for row in &found {
        let uid: String = row.try_get("uid")?;
        sqlx::query("DELETE FROM batches WHERE uid = $1").bind(uid).execute(&mut **transaction).await?;
    }
    Ok(found.len())
}

async fn insert_batch(
    transaction: &mut Transaction<'static, Any>,
    uid: &str,
    (first, at): (i64, i64),
    records: &[Record],
    cost: Option<&UpdateCost>,
) -> Result<(), StoreError> {
    let json = "plain data can be written: this is a bug";
    let sql = "INSERT INTO batches (uid, first, count, at, records, cost) VALUES ($1, $2, $3, $4, $5, $6)";
    let insert = sqlx::query(sql)
        .bind(uid.to_owned())
        .bind(first)
        .bind(records.len() as i64)
        .bind(at)
        .bind(serde_json::to_string(records).expect(json))
        .bind(cost.map(|cost| serde_json::to_string(cost).expect(json)));
    insert.execute(&mut **transaction).await?;
    Ok(())
}
