//! Domains as this process knows them, and their settings in the database.
//!
//! The settings that were last given by any process are in force for all. Every transaction compares the version that
//! it knows with the row's, so nobody decides by settings that are out of date. States carry the number of the settings
//! they were written under and are brought forward when they are next used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tidegate_core::gates::{Compiled, GateSet, Micros, Partition, SECOND, Start, Target};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::lanes::LaneKey;
use super::link::{Link, unreachable};
use super::state;
use super::statements as sql;
use crate::GatesError;
use crate::operations::{Note, Order, Said, Switch};

/// Longest time that a gate looks back: what was lost before does not matter.
const LONGEST_MEMORY: Micros = 31 * 24 * 3_600 * SECOND;
/// Most settings of earlier times that are remembered.
const SETS: usize = 1_000;

/// A domain as this process last saw it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) version: i64,
    pub(super) layout: i64,
    pub(super) set: Compiled,
    pub(super) said: Arc<Said>,
}

impl Known {
    /// The partition of a target.
    pub(super) fn lane(&self, target: &Target) -> LaneKey {
        let mut part = String::new();
        self.set.partition_into(target, &mut part);
        self.lane_of(target.domain(), &part)
    }

    /// A partition by its name.
    pub(super) fn lane_of(&self, domain: &str, part: &str) -> LaneKey {
        LaneKey { domain: domain.into(), part: part.into(), split: self.set.split() }
    }
}

/// Settings by domain and layout.
type Earlier = HashMap<(Box<str>, i64), Arc<Compiled>>;

/// All that are known.
#[derive(Debug, Default)]
pub(super) struct Domains {
    known: RwLock<HashMap<Box<str>, Arc<Known>>>,
    earlier: Mutex<Earlier>,
}

pub(super) fn unknown(domain: &str) -> GatesError {
    GatesError::UnknownDomain { domain: domain.into() }
}

pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, GatesError> {
    row.try_get(at).map_err(unreachable)
}

fn compile(text: &str) -> Result<Compiled, GatesError> {
    let set: GateSet = serde_json::from_str(text)
        .map_err(|e| GatesError::Corrupt(format!("settings that this version does not understand: {e}")))?;
    Ok(Compiled::new(set)?)
}

fn to_text(set: &GateSet) -> Result<String, GatesError> {
    serde_json::to_string(set)
        .map_err(|e| GatesError::Corrupt(format!("settings that cannot be written: {e}")))
}

fn note(row: &Row, at: usize) -> Result<Note, GatesError> {
    Ok(Note { who: column(row, at)?, why: column(row, at + 1)? })
}

/// The gates of a domain that are off.
pub(super) async fn switches(link: &Link, domain: &str) -> Result<Vec<Switch>, GatesError> {
    let rows = link.query(sql::SWITCHES_ALL, &[&domain]).await?;
    rows.iter()
        .map(|row| Ok(Switch { gate: column(row, 0)?, at: column(row, 1)?, note: note(row, 2)? }))
        .collect()
}

/// Its breakers that are open for all keys by order, then.
pub(super) async fn orders(link: &Link, domain: &str, at: Micros) -> Result<Vec<Order>, GatesError> {
    let rows = link.query(sql::ORDERS_ALL, &[&domain, &at]).await?;
    let order = |row| {
        let (gate, until, at) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
        Ok(Order { gate, until, at, note: note(row, 3)? })
    };
    rows.iter().map(order).collect()
}

impl Domains {
    /// What is known of a domain.
    pub(super) fn get(&self, domain: &str) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(domain).cloned()
    }

    fn put(&self, domain: &str, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        // If two read at the same time and the older one stays, the next transaction finds out.
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(domain.into(), known.clone());
        known
    }

    /// Reads a domain; none if it is not there.
    pub(super) async fn load(&self, link: &Link, domain: &str) -> Result<Option<Arc<Known>>, GatesError> {
        let Some(row) = link.opt(sql::DOMAINS_GET, &[&domain]).await? else { return Ok(None) };
        let mut set = compile(column(&row, 2)?)?;
        // Read after the version: what came in between is found again by the next.
        let said =
            Said { off: switches(link, domain).await?, orders: orders(link, domain, Micros::MIN).await? };
        set.disable(said.off.iter().map(|switch| switch.gate.as_str()));
        set.order(said.orders.iter().map(|order| (order.gate.as_str(), order.until)));
        let said = Arc::new(said);
        Ok(Some(self.put(domain, Known { version: column(&row, 0)?, layout: column(&row, 1)?, set, said })))
    }

    /// The row of a domain that this process knows is gone: somebody has emptied the database. It is made again from
    /// memory, and notes that what was known of its partitions is lost.
    pub(super) async fn make_again(&self, link: &Link, domain: &str) -> Result<Arc<Known>, GatesError> {
        let known = self.get(domain).ok_or_else(|| unknown(domain))?;
        tracing::warn!(
            domain,
            "The gates of this domain are not in the database any more; they start again, without credit."
        );
        let text = to_text(known.set.set())?;
        link.opt(sql::DOMAINS_INSERT, &[&domain, &text, &true]).await?;
        self.load(link, domain).await?.ok_or_else(|| unknown(domain))
    }

    /// Gives a domain its settings. Nothing happens if it has them.
    pub(super) async fn configure(&self, link: &Link, domain: &str, set: GateSet) -> Result<(), GatesError> {
        let new = Compiled::new(set)?;
        let text = to_text(new.set())?;
        link.opt(sql::DOMAINS_INSERT, &[&domain, &text, &false]).await?;
        link.begin().await?;
        link.opt(sql::DOMAINS_LOCK, &[&domain]).await?;
        let row = link.opt(sql::DOMAINS_GET, &[&domain]).await?.ok_or_else(|| unknown(domain))?;
        let old: String = column(&row, 2)?;
        if old != text {
            // Settings that this version does not understand are not in the way of new ones, nor are their states.
            let moves = compile(&old).map_or(true, |old| old.split() != new.split());
            if moves {
                if column(&link.one(sql::PARTITIONS_BUSY, &[&domain]).await?, 0)? {
                    link.roll_back().await?;
                    return Err(GatesError::InUse { domain: domain.into() });
                }
                link.execute(sql::PARTITIONS_DROP, &[&domain]).await?;
            }
            link.execute(sql::DOMAINS_CONFIGURE, &[&domain, &text, &moves]).await?;
            let names: Vec<&str> = new.set().gates.iter().map(|g| g.name.as_str()).collect();
            link.execute(sql::SWITCHES_RETAIN, &[&domain, &names]).await?;
            let breakers: Vec<&str> = names.into_iter().filter(|name| new.is_breaker(name)).collect();
            link.execute(sql::ORDERS_RETAIN, &[&domain, &breakers]).await?;
        }
        link.commit().await?;
        self.load(link, domain).await?.map(|_| ()).ok_or_else(|| unknown(domain))
    }

    /// Settings of an earlier time, if they are still there.
    pub(super) async fn earlier(
        &self,
        link: &Link,
        domain: &str,
        layout: i64,
    ) -> Result<Option<Arc<Compiled>>, GatesError> {
        if let Some(known) = self.get(domain).filter(|k| k.layout == layout) {
            return Ok(Some(Arc::new(known.set.clone())));
        }
        let name = (Box::from(domain), layout);
        if let Some(set) = self.earlier.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(Some(set.clone()));
        }
        let Some(row) = link.opt(sql::SETS_GET, &[&domain, &layout]).await? else { return Ok(None) };
        let Ok(set) = compile(column(&row, 0)?) else { return Ok(None) };
        let set = Arc::new(set);
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if earlier.len() >= SETS {
            earlier.clear();
        }
        earlier.insert(name, set.clone());
        Ok(Some(set))
    }
}

/// A partition that is not there.
pub(super) struct Missing<'a> {
    pub(super) key: &'a LaneKey,
    /// For a time that was given instead of the server's.
    pub(super) now: Option<Micros>,
    pub(super) mark: i64,
    /// Something was there: this mark's state cannot be read, or (0) this process has seen it.
    pub(super) lost: Option<i64>,
}

/// Makes a partition. It starts full if nobody has called, and without credit if what was known has been lost: this
/// process has seen it, or its domain had some and has none. False if the domain has changed.
pub(super) async fn make(link: &Link, known: &Known, missing: Missing<'_>) -> Result<bool, GatesError> {
    let (domain, part) = (&*missing.key.domain, &*missing.key.part);
    link.begin().await?;
    let row = link.opt(sql::DOMAINS_LOCK, &[&domain]).await?;
    let same = row.as_ref().map(|row| column::<i64>(row, 0)).transpose()? == Some(known.version);
    let Some(row) = row.filter(|_| same) else {
        link.roll_back().await?;
        return Ok(false);
    };
    let (used, earlier, clock): (bool, Option<Micros>, Micros) =
        (column(&row, 2)?, column(&row, 3)?, column(&row, 4)?);
    let any: bool = column(&link.one(sql::PARTITIONS_ANY, &[&domain]).await?, 0)?;
    let lost = missing.lost.is_some() || (used && !any);
    let now = missing.now.unwrap_or(clock);
    if lost {
        tracing::warn!(domain, part, "The state of gates has been lost; they start without credit.");
    }
    let since = if lost { Some(now) } else { earlier.filter(|at| now - at < LONGEST_MEMORY) };
    let start = since.map_or(Start::Full, |at| Start::Empty { at });
    let bytes = state::encode(&Partition::new(&known.set, start)).map_err(GatesError::Corrupt)?;
    let (mark, layout) = (missing.mark, known.layout);
    if let Some(damaged) = missing.lost.filter(|mark| *mark != 0) {
        // One state is damaged; nothing is known against the others.
        let params: [&(dyn ToSql + Sync); 7] = [&domain, &part, &damaged, &mark, &layout, &bytes, &clock];
        link.execute(sql::PARTITIONS_REPLACE, &params).await?;
    } else {
        let lost_at = if lost { Some(now) } else { None };
        link.execute(sql::PARTITIONS_INSERT, &[&domain, &part, &mark, &layout, &bytes, &clock]).await?;
        link.execute(sql::DOMAINS_USED, &[&domain, &lost_at]).await?;
    }
    link.commit().await?;
    Ok(true)
}
