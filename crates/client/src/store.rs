//! The store's operations, each a call of the API.

mod jobs;
mod letters;
mod records;
mod registry;
mod schedules;
mod upkeep;
mod versions;

use async_trait::async_trait;
use tidegate_store::{Feed, Result, Signals, Store};

use crate::RemoteStore;

#[async_trait]
impl Store for RemoteStore {
    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn feed(&self) -> &Feed {
        self.follower.feed()
    }

    fn clock_ahead_ms(&self) -> i64 {
        self.skew.ahead_ms()
    }

    async fn close(&self) -> Result<()> {
        self.shut();
        Ok(())
    }
}
