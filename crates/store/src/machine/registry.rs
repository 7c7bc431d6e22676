//! Queues, kinds and parks.

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::job::{Park, ParkScope};
use tidegate_core::limits;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;

use super::Machine;
use crate::params::{KindView, QueueView, Totals};
use crate::rows::Rows;
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Adds a queue or changes its settings, live.
    pub fn put_queue(&mut self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        let now = self.tick(now)?;
        settings.check().map_err(|e| Error::new(codes::INVALID_SETTING, format!("queue `{name}`: {e}")))?;
        let id = self.names.put_queue(None, &name, &settings);
        self.rows.put_queue(id, &name, &settings)?;
        self.lanes.put_queue(id, &name, &settings, now);
        if settings.limiter.is_none() {
            self.rows.drop_starts(id, Timestamp(i64::MAX))?;
        }
        self.signals.work = true;
        Ok(())
    }

    /// Settings of all queues, by name.
    pub fn settings(&mut self) -> Result<Vec<(QueueName, QueueSettings)>> {
        Ok(self.names.queues().filter_map(|(_, id)| self.names.queue(id).cloned()).collect())
    }

    /// Adds a queue with default settings, if it does not exist.
    pub fn ensure_queue(&mut self, name: QueueName, now: Timestamp) -> Result<()> {
        if self.names.queue_id(&name).is_some() {
            return Ok(());
        }
        self.put_queue(name, QueueSettings::default(), now)
    }

    /// Adds a kind or changes its settings. Its queue must exist.
    pub fn put_kind(&mut self, name: KindName, settings: KindSettings) -> Result<()> {
        settings.check().map_err(|e| Error::new(codes::INVALID_SETTING, format!("kind `{name}`: {e}")))?;
        self.queue_id(&settings.queue)?;
        let id = self.names.put_kind(None, &name, &settings);
        self.rows.put_kind(id, &name, &settings)
    }

    /// All queues with their counts, by name.
    pub fn queues(&mut self, now: Timestamp) -> Result<Vec<QueueView>> {
        let now = now.max(self.last_now);
        let mut views = vec![];
        for (name, id) in self.names.queues() {
            let Some((_, settings)) = self.names.queue(id) else { continue };
            let counts = self.counts.get(&id);
            let of = |f: fn(&super::Counts) -> u64| counts.map_or(0, f);
            views.push(QueueView {
                name: name.clone(),
                settings: settings.clone(),
                ready: self.lanes.ready_count(id),
                scheduled: of(|c| c.scheduled),
                running: u64::from(self.lanes.running_count(id)),
                completed: of(|c| c.completed),
                dead: of(|c| c.dead),
                cancelled: of(|c| c.cancelled),
                oldest_ready: self.lanes.oldest_ready(id),
                completed_last_minute: counts.map_or(0, |c| c.rate.last_minute(now)),
                parks: self.lanes.parks_of_queue(name).into_iter().cloned().collect(),
                parked_groups: self.lanes.parked_groups(id) as u64,
            });
        }
        Ok(views)
    }

    /// All kinds, by name.
    pub fn kinds(&mut self) -> Result<Vec<KindView>> {
        let view = |(name, settings): &(KindName, KindSettings)| KindView {
            name: name.clone(),
            settings: settings.clone(),
        };
        let mut views: Vec<KindView> = self.names.kinds().map(view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    /// Adds a park, or replaces the one of the same scope and owner.
    pub fn park(&mut self, mut park: Park, now: Timestamp) -> Result<()> {
        let now = self.tick(now)?;
        if let ParkScope::Queue(name) = &park.scope {
            self.queue_id(name)?;
        }
        if park.by.is_empty() || park.by.len() > limits::MAX_NAME_BYTES {
            let detail = format!("a park needs an owner of 1 to {} bytes", limits::MAX_NAME_BYTES);
            return Err(Error::new(codes::INVALID_REQUEST, detail));
        }
        if let Some(until) = park.until
            && (until <= now || until.since(now) > limits::MAX_DELAY_MS)
        {
            return Err(Error::new(
                codes::INVALID_TIME,
                format!("a park cannot end at {until}: ahead, at most ten years"),
            ));
        }
        park.reason = cut(park.reason, limits::MAX_NOTE_BYTES);
        self.rows.put_park(&park)?;
        self.lanes.park(park, now);
        self.signals.work = true;
        Ok(())
    }

    /// Removes a park; the others stay. False if there was none.
    pub fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Result<bool> {
        let now = self.tick(now)?;
        if self.lanes.unpark(scope, by, now).is_none() {
            return Ok(false);
        }
        self.rows.delete_park(scope, by)?;
        self.signals.work = true;
        Ok(true)
    }

    /// All parks.
    pub fn parks(&mut self) -> Result<Vec<Park>> {
        Ok(self.lanes.parks().cloned().collect())
    }

    /// Counts over the whole store.
    pub fn totals(&mut self) -> Result<Totals> {
        let mut totals = Totals { stale_refused: self.stale_refused, ..Totals::default() };
        for (_, id) in self.names.queues() {
            totals.ready += self.lanes.ready_count(id);
            totals.running += u64::from(self.lanes.running_count(id));
            if let Some(c) = self.counts.get(&id) {
                totals.scheduled += c.scheduled;
                totals.completed += c.completed;
                totals.dead += c.dead;
                totals.cancelled += c.cancelled;
            }
        }
        Ok(totals)
    }
}
