//! Queues, kinds and parks.

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::job::{Park, ParkScope};
use tidegate_core::lanes::GATE_PARK;
use tidegate_core::limits;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::retry::RetryPolicy;
use tidegate_core::time::Timestamp;

use super::counts::{Counts, LastMinute};
use super::{Change, KindNamed, Machine, QueueNamed};
use crate::params::{KindView, QueueView, Totals};
use crate::rows::{KindId, Rows};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Adds a queue or changes its settings, live.
    pub fn put_queue(&mut self, name: QueueName, mut settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.tick(now)?;
        let refuse = |e: String| Error::new(codes::INVALID_SETTING, format!("queue `{name}`: {e}"));
        if let Some(policy) = &settings.policy {
            settings.retry = self.policy(policy).map_err(refuse)?;
        }
        settings.check().map_err(refuse)?;
        let id = self.memory.names.queue_number(&name);
        self.rows.put_queue(id, &name, &settings)?;
        if settings.limiter.is_none() {
            self.rows.drop_starts(id, Timestamp(i64::MAX))?;
        }
        self.change(Change::Queue(Box::new(QueueNamed { id, name, settings })))
    }

    /// What a name of a policy means now.
    fn policy(&self, name: &str) -> std::result::Result<RetryPolicy, String> {
        let policies = &self.memory.names.policies;
        policies.named(name).map(std::borrow::Cow::into_owned).ok_or_else(|| {
            let known: Vec<&str> = policies.names().collect();
            format!("there is no retry policy {name:?}; there are {}", known.join(", "))
        })
    }

    /// Settings of all queues, by name.
    pub fn settings(&mut self) -> Result<Vec<(QueueName, QueueSettings)>> {
        Ok(self.memory.names.queues().filter_map(|(_, id)| self.memory.names.queue(id).cloned()).collect())
    }

    /// Adds a queue with default settings, if it does not exist.
    pub fn ensure_queue(&mut self, name: QueueName, now: Timestamp) -> Result<()> {
        if self.memory.names.queue_id(&name).is_some() {
            return Ok(());
        }
        self.put_queue(name, QueueSettings::default(), now)
    }

    /// Adds a kind or changes its settings. Its queue must exist. Who is not a document leaves alone what a document described.
    pub fn put_kind(&mut self, name: KindName, mut settings: KindSettings) -> Result<()> {
        let refuse = |e: String| Error::new(codes::INVALID_SETTING, format!("kind `{name}`: {e}"));
        if let Some(policy) = &settings.policy {
            settings.retry = Some(self.policy(policy).map_err(refuse)?);
        }
        settings.check().map_err(refuse)?;
        self.queue_id(&settings.queue)?;
        let id = self.memory.names.kind_number(&name);
        let there = self.memory.names.kind(id).map(|(_, there)| there);
        if there.is_some_and(|there| there.managed) && !settings.managed {
            let detail = format!("kind `{name}` is described by the registry's document");
            return Err(Error::new(codes::KIND_MANAGED, detail));
        }
        if let Some(there) = there {
            settings.reveal(there);
        }
        if let Some(field) = settings.hidden(there).first() {
            return Err(refuse(format!("{field}: {}", tidegate_core::registry::HIDDEN)));
        }
        // A schedule comes with the document that has it, or is one of its own.
        let schedule = there.and_then(|there| there.schedule.clone());
        if settings.schedule.is_some() && settings.schedule != schedule {
            let detail = format!(
                "kind `{name}`: its schedule comes with a document (`tidegate registry apply`), or is put as one of its own"
            );
            return Err(Error::new(codes::INVALID_SETTING, detail));
        }
        settings.schedule = schedule;
        settings.document = there.and_then(|there| there.document.clone());
        self.write_kind(name, settings)
    }

    pub(super) fn write_kind(&mut self, name: KindName, settings: KindSettings) -> Result<()> {
        let id = self.memory.names.kind_number(&name);
        self.rows.put_kind(id, &name, &settings)?;
        self.change(Change::Kind(Box::new(KindNamed { id, name, settings })))
    }

    /// All queues with their counts, by name.
    pub fn queues(&mut self, now: Timestamp) -> Result<Vec<QueueView>> {
        let now = now.max(self.last_now);
        let mut views = vec![];
        let glances = self.memory.lanes.glance();
        for (name, id) in self.memory.names.queues() {
            let Some((_, settings)) = self.memory.names.queue(id) else { continue };
            let glance = glances.get(&id).copied().unwrap_or_default();
            let counts = self.memory.counts.get(&id);
            let of = |f: fn(&Counts) -> u64| counts.map_or(0, f);
            let minute = counts.map_or_else(LastMinute::default, |c| c.rate.last_minute(now));
            views.push(QueueView {
                name: name.clone(),
                settings: settings.clone(),
                blocked: of(|c| c.blocked),
                ready: self.memory.lanes.ready_count(id),
                scheduled: of(|c| c.scheduled),
                running: u64::from(self.memory.lanes.running_count(id)),
                completed: of(|c| c.completed),
                dead: of(|c| c.dead),
                cancelled: of(|c| c.cancelled),
                oldest_ready: glance.oldest_ready,
                completed_last_minute: minute.completed,
                failed_last_minute: minute.failed,
                run_ms_last_minute: minute.run_ms,
                stalled: self.memory.lanes.stalled(id),
                parks: self.memory.lanes.parks_of_queue(name).into_iter().cloned().collect(),
                parked_groups: glance.parked_groups as u64,
            });
        }
        Ok(views)
    }

    /// All kinds, by name.
    pub fn kinds(&mut self) -> Result<Vec<KindView>> {
        let view = |(_, (name, settings)): (KindId, &(KindName, KindSettings))| KindView {
            name: name.clone(),
            settings: settings.clone().as_shown(),
        };
        let mut views: Vec<KindView> = self.memory.names.kinds().map(view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    /// Adds a park, or replaces the one of the same scope and owner.
    pub fn park(&mut self, park: Park, now: Timestamp) -> Result<()> {
        let now = self.tick(now)?;
        if park.by.is_empty() || park.by.len() > limits::MAX_NAME_BYTES {
            let detail = format!("a park needs an owner of 1 to {} bytes", limits::MAX_NAME_BYTES);
            return Err(Error::new(codes::INVALID_REQUEST, detail));
        }
        if park.by.starts_with(GATE_PARK) {
            let detail = format!(
                "a park cannot be owned by `{}`: gates end those themselves; choose another name",
                park.by
            );
            return Err(Error::new(codes::INVALID_REQUEST, detail));
        }
        self.put_park(park, now)
    }

    /// The same, whoever owns it.
    pub(super) fn put_park(&mut self, mut park: Park, now: Timestamp) -> Result<()> {
        if let ParkScope::Queue(name) = &park.scope {
            self.queue_id(name)?;
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
        self.change(Change::Parked(Box::new(park)))
    }

    /// Removes a park; the others stay. False if there was none.
    pub fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Result<bool> {
        self.tick(now)?;
        if !self.memory.lanes.is_parked_by(scope, by) {
            return Ok(false);
        }
        self.end_park(scope.clone(), by.to_owned())?;
        Ok(true)
    }

    pub(super) fn end_park(&mut self, scope: ParkScope, by: String) -> Result<()> {
        self.rows.delete_park(&scope, &by)?;
        self.change(Change::Unparked(Box::new((scope, by))))
    }

    /// All parks.
    pub fn parks(&mut self) -> Result<Vec<Park>> {
        Ok(self.memory.lanes.parks().cloned().collect())
    }

    /// Counts over the whole store.
    pub fn totals(&mut self) -> Result<Totals> {
        let timetable = &self.memory.timetable;
        let mut totals = Totals {
            stale_refused: self.stale_refused,
            schedules: timetable.active() as u64,
            next_tick: timetable.next().map(|(at, _)| at),
            ..Totals::default()
        };
        for (_, id) in self.memory.names.queues() {
            totals.ready += self.memory.lanes.ready_count(id);
            totals.running += u64::from(self.memory.lanes.running_count(id));
            if let Some(c) = self.memory.counts.get(&id) {
                totals.blocked += c.blocked;
                totals.scheduled += c.scheduled;
                totals.completed += c.completed;
                totals.dead += c.dead;
                totals.cancelled += c.cancelled;
            }
        }
        Ok(totals)
    }
}
