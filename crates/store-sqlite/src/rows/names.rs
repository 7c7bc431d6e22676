//! Names, settings, parks and the starts that limiters count.

use rusqlite::{Row, params};
use serde::de::DeserializeOwned;
use tidegate_core::ids::{ConnectorName, GroupKey, KindName, QueueName, TenantId};
use tidegate_core::job::{Park, ParkScope, Priority};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{KindId, NameRows, Names, TenantNo};

use super::{SqliteRows, sql};
use crate::error::{OrStore, corrupt};

impl NameRows for SqliteRows {
    fn names(&mut self) -> Result<Names> {
        Ok(Names {
            queues: self.all(sql!("queues/all"), |row| {
                Ok((QueueId(row.get(0).or_store()?), name(row, 1, QueueName::new)?, json(row, 2, "a queue")?))
            })?,
            kinds: self.all(sql!("kinds/all"), |row| {
                Ok((KindId(row.get(0).or_store()?), name(row, 1, KindName::new)?, json(row, 2, "a kind")?))
            })?,
            tenants: self.all(sql!("tenants/all"), |row| {
                Ok((TenantNo(row.get(0).or_store()?), name(row, 1, TenantId::new)?))
            })?,
            lanes: self.all(sql!("lanes/all"), read_lane)?,
            parks: self.all(sql!("parks/all"), read_park)?,
            starts: self.all(sql!("starts/all"), |row| {
                Ok((
                    QueueId(row.get(0).or_store()?),
                    Timestamp(row.get(1).or_store()?),
                    row.get(2).or_store()?,
                ))
            })?,
            policies: self.policies()?,
            version: self.last_version()?,
        })
    }

    fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) -> Result<()> {
        let settings = serde_json::to_string(settings).map_err(|e| corrupt("a queue", e))?;
        self.put(sql!("queues/put"), params![id.0, name.as_str(), settings])
    }

    fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) -> Result<()> {
        let settings = serde_json::to_string(settings).map_err(|e| corrupt("a kind", e))?;
        self.put(sql!("kinds/put"), params![id.0, name.as_str(), settings])
    }

    fn put_tenant(&mut self, id: TenantNo, name: &TenantId) -> Result<()> {
        self.put(sql!("tenants/put"), params![id.0, name.as_str()])
    }

    fn delete_tenant(&mut self, id: TenantNo) -> Result<()> {
        self.put(sql!("tenants/delete"), params![id.0])
    }

    fn put_lane(&mut self, id: LaneId, key: &LaneKey) -> Result<()> {
        let connector = key.connector.as_ref().map(ConnectorName::as_str);
        let kind = key.kind.map(|kind| kind.0);
        let values = params![id.0, key.queue.0, key.group.as_str(), connector, key.priority.level(), kind];
        self.put(sql!("lanes/put"), values)
    }

    fn delete_lane(&mut self, id: LaneId) -> Result<()> {
        self.put(sql!("lanes/delete"), params![id.0])
    }

    fn put_park(&mut self, park: &Park) -> Result<()> {
        let values = params![scope_text(&park.scope)?, park.by, park.reason, park.until.map(|t| t.0)];
        self.put(sql!("parks/put"), values)
    }

    fn delete_park(&mut self, scope: &ParkScope, by: &str) -> Result<()> {
        self.put(sql!("parks/delete"), params![scope_text(scope)?, by])
    }

    fn add_starts(&mut self, queue: QueueId, at: Timestamp, n: u32) -> Result<()> {
        self.put(sql!("starts/add"), params![queue.0, at.0, n])
    }

    fn drop_starts(&mut self, queue: QueueId, upto: Timestamp) -> Result<()> {
        self.put(sql!("starts/drop"), params![queue.0, upto.0])
    }
}

impl SqliteRows {
    pub(super) fn put(&mut self, text: &str, values: impl rusqlite::Params) -> Result<()> {
        self.conn.prepare_cached(text).and_then(|mut s| s.execute(values)).or_store()?;
        Ok(())
    }

    pub(super) fn all<T>(&mut self, text: &str, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
        let mut statement = self.conn.prepare_cached(text).or_store()?;
        let mut rows = statement.query([]).or_store()?;
        let mut found = vec![];
        while let Some(row) = rows.next().or_store()? {
            found.push(read(row)?);
        }
        Ok(found)
    }
}

fn scope_text(scope: &ParkScope) -> Result<String> {
    serde_json::to_string(scope).map_err(|e| corrupt("a park", e))
}

pub(super) fn name<T, E: std::fmt::Display>(
    row: &Row<'_>,
    column: usize,
    make: fn(String) -> Result<T, E>,
) -> Result<T> {
    make(row.get(column).or_store()?).map_err(|e| corrupt("a name", e))
}

pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize, what: &str) -> Result<T> {
    let text = row.get_ref(column).or_store()?;
    let text = text.as_str().map_err(|e| corrupt(what, e))?;
    serde_json::from_str(text).map_err(|e| corrupt(what, e))
}

fn read_lane(row: &Row<'_>) -> Result<(LaneId, LaneKey)> {
    let connector: Option<String> = row.get(3).or_store()?;
    let level: u8 = row.get(4).or_store()?;
    let key = LaneKey {
        queue: QueueId(row.get(1).or_store()?),
        group: name(row, 2, GroupKey::new)?,
        connector: connector.map(ConnectorName::new).transpose().map_err(|e| corrupt("a lane", e))?,
        priority: Priority::from_level(level)
            .ok_or_else(|| corrupt("a lane", format!("its level is {level}")))?,
        kind: row.get::<_, Option<u32>>(5).or_store()?.map(KindId),
    };
    Ok((LaneId(row.get(0).or_store()?), key))
}

fn read_park(row: &Row<'_>) -> Result<Park> {
    Ok(Park {
        scope: json(row, 0, "a park")?,
        by: row.get(1).or_store()?,
        reason: row.get(2).or_store()?,
        until: row.get::<_, Option<i64>>(3).or_store()?.map(Timestamp),
    })
}
