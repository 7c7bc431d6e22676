//! What processes leave to be seen: a row each.

use async_trait::async_trait;

use super::domains::column;
use super::{PgGates, statements as sql};
use crate::GatesError;
use crate::noticeboard::{Footprint, Noticeboard};
use crate::watched::{SNAPSHOT_KEPT, SNAPSHOTS, Snapshot};

#[async_trait]
impl Noticeboard for PgGates {
    async fn publish(&self, seen: &Snapshot) -> Result<(), GatesError> {
        let link = self.shared.desk().await?;
        link.execute(sql::SEEN_PUT, &[&seen.process, &seen.to_text()]).await?;
        link.execute(sql::SEEN_PRUNE, &[&SNAPSHOT_KEPT, &(SNAPSHOTS as i64)]).await?;
        self.shared.give_back(link);
        Ok(())
    }

    async fn published(&self) -> Result<Vec<Snapshot>, GatesError> {
        let link = self.shared.desk().await?;
        let rows = link.query(sql::SEEN_ALL, &[&SNAPSHOT_KEPT, &(SNAPSHOTS as i64)]).await?;
        self.shared.give_back(link);
        let mut all = Vec::new();
        for row in &rows {
            all.extend(Snapshot::from_text(column(row, 0)?));
        }
        Ok(all)
    }

    async fn footprint(&self) -> Result<Footprint, GatesError> {
        let link = self.shared.desk().await?;
        let row = link.one(sql::SEEN_FOOTPRINT, &[]).await?;
        self.shared.give_back(link);
        Ok(Footprint { bytes: column::<i64>(&row, 0)? as u64, keys: column::<i64>(&row, 1)? as u64 })
    }
}
