//! How many requests may be in the house at once. A permit is a parameter of every use case, so none can forget it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ServiceError;

/// The door. One request of any kind, whatever its number of chunks or queries, is one permit.
#[derive(Clone, Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
    limit: usize,
}

/// The right to be served; gives its place back when dropped.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    /// At most `limit` requests at once, counting queued ones.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(limit)), limit }
    }

    /// A permit, or [`ServiceError::Overloaded`] when the house is full.
    ///
    /// # Errors
    /// When `limit` requests are inside.
    pub fn enter(&self) -> Result<Permit, ServiceError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit
            .map(|permit| Permit { _permit: permit })
            .map_err(|_| ServiceError::Overloaded { limit: self.limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_house_says_so_and_a_dropped_permit_makes_room() {
        let door = Admission::new(2);
        let (first, second) = (door.enter().unwrap(), door.enter().unwrap());
        assert!(matches!(door.enter(), Err(ServiceError::Overloaded { limit: 2 })));
        drop(first);
        let third = door.enter().unwrap();
        assert!(door.enter().is_err());
        drop((second, third));
    }
}
