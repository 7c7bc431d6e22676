//! Looks at the readings every few seconds, judges them, keeps what has changed and hands out what is to be told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::alerts::{Book, Incident, KEPT_MS, Phase, Readings, Severity, Silence, evaluate};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Record, Shelf};
use tidegate_store::{Error, Result};

use super::{EVALUATOR, Post};
use crate::app::App;

/// How many evaluations a process may miss before another one takes over, and the shortest time for that.
const MISSES: (i64, i64) = (3, 5_000);

/// Evaluates for as long as the server runs.
pub(crate) async fn watch(app: Arc<App>, post: Arc<Post>) {
    let every = Duration::from_millis(post.settings.every_ms as u64);
    let mut failing = false;
    loop {
        tokio::time::sleep(every).await;
        let looked = async {
            if !is_ours(&post).await? {
                return Ok(None);
            }
            let readings = app.watch.readings(&app, post.now()).await;
            step(&post, &readings).await.map(Some)
        };
        match looked.await {
            Ok(firing) => {
                failing = false;
                app.watch.set_firing(firing.unwrap_or_default());
            }
            Err(error) if !std::mem::replace(&mut failing, true) => {
                let error: Error = error;
                tracing::warn!(code = %error.code, "alerts could not be evaluated: {error}; trying again");
            }
            Err(_) => {}
        }
    }
}

/// One evaluation. Returns the rules that fire, once for each incident.
pub(super) async fn step(post: &Post, readings: &Readings) -> Result<Vec<(String, Severity)>> {
    let (store, now) = (&*post.store, post.now());
    let known = super::incidents(store, now).await?;
    let mut book: Book = known.into_iter().map(|i| ((i.rule.clone(), i.target.clone()), i)).collect();
    let silences: Vec<Silence> =
        super::silences(store, now).await?.into_iter().map(|(_, silence)| silence).collect();
    let rules = post.settings.in_force(&store.kinds().await?);
    let mut found = evaluate(&rules, readings, &book, &silences, now);
    // First the jobs: if what follows is lost, the next evaluation finds the same tellings, whose keys are taken.
    for telling in &found.tellings {
        let about = |i: &&mut Incident| (&i.rule, &i.target) == (&telling.rule, &telling.target);
        let incident = found.changed.iter_mut().find(about);
        let before = incident.as_ref().map(|i| i.told_by.clone()).unwrap_or_default();
        let told = super::tell(post, telling, &before).await?;
        if let Some(incident) = incident {
            // Channels that it is no longer told to are forgotten once it is over.
            incident.told_by.extend(told);
        }
    }
    for incident in found.changed {
        store.put_record(record(&incident, now)?, now).await?;
        book.insert((incident.rule.clone(), incident.target.clone()), incident);
    }
    let firing = book.into_values().filter(|i| i.phase == Phase::Firing);
    Ok(firing.map(|i| (i.rule, i.severity)).collect())
}

fn record(incident: &Incident, now: Timestamp) -> Result<Record> {
    let body = serde_json::to_string(incident).map_err(|e| Error::internal(e.to_string()))?;
    Ok(Record {
        shelf: Shelf::Alerts,
        key: format!("{}/{}", incident.rule, incident.target),
        body,
        expires: (incident.phase == Phase::Quiet).then(|| now.plus_ms(KEPT_MS)),
    })
}

/// Whether this process evaluates. One that finds nobody does, says so, and goes on as long as nobody says otherwise.
pub(super) async fn is_ours(post: &Post) -> Result<bool> {
    let now = post.now();
    let records = post.store.records(Shelf::Alerts, now).await?;
    let mine = format!("\"{:x}\"", post.process);
    let lasts = (post.settings.every_ms * MISSES.0).max(MISSES.1);
    let known = records.iter().find(|r| r.key == EVALUATOR);
    if known.is_some_and(|r| r.body != mine) {
        return Ok(false);
    }
    // Renewed before it ends, and not with every look: it is a write.
    let fresh = known.and_then(|r| r.expires).is_some_and(|at| at.since(now) > lasts / 2);
    if !fresh {
        let expires = Some(now.plus_ms(lasts));
        let record = Record { shelf: Shelf::Alerts, key: EVALUATOR.into(), body: mine, expires };
        post.store.put_record(record, now).await?;
    }
    Ok(true)
}
