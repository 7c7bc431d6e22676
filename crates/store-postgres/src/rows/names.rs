//! Names, settings, parks and the starts that limiters count.

use serde::de::DeserializeOwned;
use tidegate_core::ids::{ConnectorName, GroupKey, KindName, QueueName, TenantId};
use tidegate_core::job::{Park, ParkScope, Priority};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{KindId, NameRows, Names, TenantNo};
use tokio_postgres::Row;

use super::gathered::NameWrite;
use super::{PgRows, column, unsigned};
use crate::error::corrupt;
use crate::statements::Sql;

impl NameRows for PgRows {
    fn names(&mut self) -> Result<Names> {
        self.send_gathered()?;
        let names = Names {
            queues: self.all(Sql::QueuesAll, |row| {
                let id = QueueId(unsigned(column(row, 0)?));
                Ok((id, name(row, 1, QueueName::new)?, json(row, 2, "a queue")?))
            })?,
            kinds: self.all(Sql::KindsAll, |row| {
                let id = KindId(unsigned(column(row, 0)?));
                Ok((id, name(row, 1, KindName::new)?, json(row, 2, "a kind")?))
            })?,
            tenants: self.all(Sql::TenantsAll, |row| {
                Ok((TenantNo(unsigned(column(row, 0)?)), name(row, 1, TenantId::new)?))
            })?,
            lanes: self.all(Sql::LanesAll, read_lane)?,
            parks: self.all(Sql::ParksAll, |row| json(row, 0, "a park"))?,
            starts: self.all(Sql::StartsAll, |row| {
                let queue = QueueId(unsigned(column(row, 0)?));
                Ok((queue, Timestamp(column(row, 1)?), unsigned(column(row, 2)?)))
            })?,
            policies: self.policies()?,
            version: self.last_version()?,
        };
        for (id, name, _) in &names.queues {
            self.foreseen.name_queue(name, *id);
        }
        Ok(names)
    }

    fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) -> Result<()> {
        self.foreseen.name_queue(name, id);
        self.gathered.names.push(NameWrite::Queue(id, name.clone(), settings.clone()));
        Ok(())
    }

    fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) -> Result<()> {
        self.gathered.names.push(NameWrite::Kind(id, name.clone(), settings.clone()));
        Ok(())
    }

    fn put_tenant(&mut self, id: TenantNo, name: &TenantId) -> Result<()> {
        self.gathered.tenants.insert(id, Some(name.clone()));
        Ok(())
    }

    fn delete_tenant(&mut self, id: TenantNo) -> Result<()> {
        self.gathered.remove_tenant(id);
        Ok(())
    }

    fn put_lane(&mut self, id: LaneId, key: &LaneKey) -> Result<()> {
        self.gathered.lanes.insert(id, Some(key.clone()));
        Ok(())
    }

    fn delete_lane(&mut self, id: LaneId) -> Result<()> {
        self.gathered.remove_lane(id);
        Ok(())
    }

    fn put_park(&mut self, park: &Park) -> Result<()> {
        self.gathered.names.push(NameWrite::Park(park.clone()));
        Ok(())
    }

    fn delete_park(&mut self, scope: &ParkScope, by: &str) -> Result<()> {
        self.gathered.names.push(NameWrite::Unpark(scope.clone(), by.to_owned()));
        Ok(())
    }

    fn add_starts(&mut self, queue: QueueId, at: Timestamp, n: u32) -> Result<()> {
        self.gathered.names.push(NameWrite::AddStarts(queue, at, n));
        Ok(())
    }

    fn drop_starts(&mut self, queue: QueueId, upto: Timestamp) -> Result<()> {
        self.gathered.names.push(NameWrite::DropStarts(queue, upto));
        Ok(())
    }
}

impl PgRows {
    pub(super) fn all<T>(&mut self, sql: Sql, read: impl Fn(&Row) -> Result<T>) -> Result<Vec<T>> {
        self.query(sql, &[])?.iter().map(read).collect()
    }
}

pub(super) fn name<T, E: std::fmt::Display>(
    row: &Row,
    index: usize,
    make: fn(String) -> Result<T, E>,
) -> Result<T> {
    make(column(row, index)?).map_err(|e| corrupt("a name", e))
}

pub(super) fn json<T: DeserializeOwned>(row: &Row, index: usize, what: &str) -> Result<T> {
    serde_json::from_str(column(row, index)?).map_err(|e| corrupt(what, e))
}

fn read_lane(row: &Row) -> Result<(LaneId, LaneKey)> {
    let connector: Option<&str> = column(row, 4)?;
    let level: i16 = column(row, 2)?;
    let priority = u8::try_from(level).ok().and_then(Priority::from_level);
    let key = LaneKey {
        queue: QueueId(unsigned(column(row, 1)?)),
        group: name(row, 3, GroupKey::new)?,
        connector: connector.map(ConnectorName::new).transpose().map_err(|e| corrupt("a lane", e))?,
        priority: priority.ok_or_else(|| corrupt("a lane", format!("its level is {level}")))?,
        kind: column::<Option<i32>>(row, 5)?.map(|kind| KindId(unsigned(kind))),
    };
    Ok((LaneId(unsigned(column(row, 0)?)), key))
}
