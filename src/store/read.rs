//! Reading contexts.

use sqlx::{Row, any::AnyRow};

use super::{Batch, Header, Name, Store, StoreError};

impl Store {
    /// The context of that name, unless its time is over.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when there is none; when the database fails.
    pub async fn header(&self, name: &Name, now: i64) -> Result<Header, StoreError> {
        let sql = "SELECT uid, id, settings, created, used, expires_in, events FROM contexts \
                   WHERE owner = $1 AND id = $2 AND (expires_in IS NULL OR used + expires_in > $3)";
        let query = sqlx::query(sql).bind(name.owner.clone()).bind(name.id.clone()).bind(now);
        let row = query.fetch_optional(&self.pool).await?;
        row.as_ref().map(header).transpose()?.ok_or(StoreError::Gone)
    }

    /// Up to `limit` of an owner's contexts whose ids come after `after`, by id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list(
        &self,
        owner: &str,
        after: &str,
        limit: i64,
        now: i64,
    ) -> Result<Vec<Header>, StoreError> {
        let sql = "SELECT uid, id, settings, created, used, expires_in, events FROM contexts \
                   WHERE owner = $1 AND id > $2 AND (expires_in IS NULL OR used + expires_in > $3) \
                   ORDER BY id LIMIT $4";
        let query = sqlx::query(sql).bind(owner.to_owned()).bind(after.to_owned()).bind(now).bind(limit);
        query.fetch_all(&self.pool).await?.iter().map(header).collect()
    }

    /// The batches of the context `uid` from the one that begins with event `from`, up to event `until`.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when it was deleted; when what is stored cannot be read, or the database fails.
    pub async fn batches(&self, uid: &str, from: i64, until: i64) -> Result<Vec<Batch>, StoreError> {
        if from >= until {
            return Ok(Vec::new());
        }
        let sql = "SELECT first, at, records, cost FROM batches \
                   WHERE uid = $1 AND first >= $2 AND first < $3 ORDER BY first";
        let query = sqlx::query(sql).bind(uid.to_owned()).bind(from).bind(until);
        let rows = query.fetch_all(&self.pool).await?;
        let batches: Vec<Batch> = rows.iter().map(batch).collect::<Result<_, _>>()?;
        let mut next = from;
        for batch in &batches {
            if batch.first != next {
                return Err(StoreError::Gone);
            }
            next += batch.records.len() as i64;
        }
        if next == until { Ok(batches) } else { Err(StoreError::Gone) }
    }

    /// Up to `limit` batches of the context `uid`, the first of which holds event `from`.
    ///
    /// # Errors
    /// When what is stored cannot be read, or the database fails.
    pub async fn batches_holding(&self, uid: &str, from: i64, limit: i64) -> Result<Vec<Batch>, StoreError> {
        let sql = "SELECT first, at, records, cost FROM batches \
                   WHERE uid = $1 AND first + count > $2 ORDER BY first LIMIT $3";
        let query = sqlx::query(sql).bind(uid.to_owned()).bind(from).bind(limit);
        query.fetch_all(&self.pool).await?.iter().map(batch).collect()
    }
}

fn header(row: &AnyRow) -> Result<Header, StoreError> {
    Ok(Header {
        uid: row.try_get("uid")?,
        id: row.try_get("id")?,
        settings: row.try_get("settings")?,
        created: row.try_get("created")?,
        used: row.try_get("used")?,
        expires_in: row.try_get("expires_in")?,
        events: row.try_get("events")?,
    })
}

fn batch(row: &AnyRow) -> Result<Batch, StoreError> {
    let records: String = row.try_get("records")?;
    let cost: Option<String> = row.try_get("cost")?;
    let unreadable = |e: serde_json::Error| StoreError::unreadable(&e);
    Ok(Batch {
        first: row.try_get("first")?,
        at: row.try_get("at")?,
        records: serde_json::from_str(&records).map_err(unreadable)?,
        cost: cost.map(|cost| serde_json::from_str(&cost)).transpose().map_err(unreadable)?,
    })
}
