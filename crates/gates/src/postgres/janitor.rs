//! Forgets what nobody uses: partitions at rest, settings that no state was written under, states in memory.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::gates::Micros;

use super::domains::column;
use super::link::Link;
use super::statements as sql;
use super::{PAGE, Shared, state};
use crate::GatesError;

/// Tidies up for ever, now and then.
pub(super) async fn keep(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(shared.options.sweep_every).await;
        shared.lanes.forget_old();
        if let Err(error) = sweep(&shared, shared.options.unused).await {
            tracing::debug!("Unused gates could not be forgotten this time: {error}");
        }
    }
}

/// Forgets partitions that were not used for so long and would be the same if they were new; how many.
pub(super) async fn sweep(shared: &Shared, unused: Duration) -> Result<u32, GatesError> {
    let link = shared.desk().await?;
    let clock: Micros = column(&link.one(sql::DOMAINS_CLOCK, &[]).await?, 0)?;
    let since = clock - unused.as_micros() as Micros;
    let (mut domain, mut part, mut gone) = (String::new(), String::new(), 0);
    loop {
        let rows = link.query(sql::PARTITIONS_UNUSED, &[&domain, &part, &since, &PAGE]).await?;
        let Some(last) = rows.last() else { break };
        (domain, part) = (column(last, 0)?, column(last, 1)?);
        for row in &rows {
            gone += u32::from(forget(shared, &link, (column(row, 0)?, column(row, 1)?), since, clock).await?);
        }
    }
    link.execute(sql::SETS_PRUNE, &[&since]).await?;
    shared.give_back(link);
    Ok(gone)
}

/// Forgets one partition, if it is at rest. Whoever makes or forgets one has the domain's lock.
async fn forget(
    shared: &Shared,
    link: &Link,
    (domain, part): (&str, &str),
    since: Micros,
    clock: Micros,
) -> Result<bool, GatesError> {
    link.begin().await?;
    link.opt(sql::DOMAINS_LOCK, &[&domain]).await?;
    let mut at_rest = false;
    if let Some(row) = link.opt(sql::PARTITIONS_UNUSED_LOCK, &[&domain, &part, &since]).await?
        && let Some(set) = shared.domains.earlier(link, domain, column(&row, 0)?).await?
        && let Ok(mut state) = state::decode(&set, column(&row, 1)?)
    {
        at_rest = state.at_rest(&set, clock);
    }
    if at_rest {
        link.execute(sql::PARTITIONS_DELETE, &[&domain, &part]).await?;
    }
    link.commit().await?;
    if at_rest && let Some(known) = shared.domains.get(domain) {
        shared.lanes.forget(&known.lane_of(domain, part));
    }
    Ok(at_rest)
}
