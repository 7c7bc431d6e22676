//! Every operation of a store, sent to the one that does it.

use async_trait::async_trait;
use tidegate_core::gates::Room;
use tidegate_core::ids::{ConnectorName, JobId, KindName, LeaseId, QueueName, ScheduleName, Seq};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::letters::PAGE;
use tidegate_core::limits;
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::schedule::TickEntry;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::machine::{Asked, Machine};
use tidegate_store::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Dependencies,
    Enqueued, Erase, Erased, JobQuery, KindView, NewJob, Page, ProcessLetters, ProcessedLetters, PutSchedule,
    QueueView, Reauthorized, Record, Recover, Recovered, RefusedDocument, Report, Resolve, ScheduleChange,
    ScheduleView, Settle, Settled, Shelf, Stood, TickQuery, Ticket, Totals,
};
use tidegate_store::rows::READ_TOGETHER;
use tidegate_store::served;
use tidegate_store::{
    Feed, Jobs, Letters, Records, Registry, Result, Schedules, Signals, Store, Upkeep, Versions,
};

use tokio::sync::oneshot;

use crate::PgStore;
use crate::error::OrStore;
use crate::link::{Request, all};
use crate::readers::For;
use crate::rows::foreseen::completions;
use crate::rows::letters::causes;
use crate::search::{Candidates, Rest, Search, find};
use crate::statements::Sql;
use crate::task::{PgMachine, Traits};

#[async_trait]
impl Jobs for PgStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let known = jobs.iter().filter(|job| job.id_may_exist).map(|job| job.id);
        let traits = Traits::write(jobs.len(), now).stores().finds(known);
        self.run(traits, move |m| m.enqueue(jobs, now)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.ask(claim).await
    }

    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        let completions = completions(&settle.settlements);
        let traits = Traits::write(settle.settlements.len(), settle.now).completes(completions);
        self.run(traits, move |m| m.settle(settle)).await
    }

    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.run(Traits::lease(leases.len(), now), move |m| m.heartbeat(leases, now)).await
    }

    async fn admitted(&self, jobs: Vec<(JobId, Room)>, now: Timestamp) -> Result<()> {
        // Most jobs are not handed out with caution, and for their sake the lock need not be taken. That of a claim of another
        // process may not be known here yet.
        let Asked { mut ask, unknown } = self.run(Traits::glance(), |m| Ok(m.that_ask(jobs))).await?;
        if !unknown.is_empty() {
            ask.extend(self.run(Traits::memory(), |m| Ok(m.that_ask(unknown))).await?.ask);
        }
        if ask.is_empty() {
            return Ok(());
        }
        self.run(Traits::lease(1, now), move |m| m.admitted(&ask, now)).await
    }

    async fn turn(&self, jobs: Vec<JobId>, gate: ConnectorName, now: Timestamp) -> Result<()> {
        self.run(Traits::lease(jobs.len(), now).finds(jobs.clone()), move |m| m.turn(&jobs, &gate, now)).await
    }

    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.run(Traits::write(reports.len(), now), move |m| m.report(reports, now)).await
    }

    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        self.run(Traits::write(1, cancel.now).finds([cancel.id]), move |m| m.cancel(cancel)).await
    }

    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
        self.run(Traits::write(1, now).finds([id]), move |m| m.run_now(id, now)).await
    }

    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.run(Traits::write(1, now).finds([id]), move |m| m.reprioritise(id, priority, now)).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.run(Traits::read(1).finds([id]), move |m| m.get(id)).await
    }

    async fn get_all(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>> {
        let link = self.readers()?.link(For::Search).await?;
        let mut jobs = Vec::with_capacity(ids.len());
        for some in ids.chunks(READ_TOGETHER).map(<[JobId]>::to_vec) {
            let found = find(&link, &some).await?;
            jobs.extend(self.run(Traits::read(found.len()), move |m| m.look_at_all(found, &some)).await?);
        }
        Ok(jobs)
    }

    async fn search(&self, query: JobQuery) -> Result<Page> {
        let limit = query.limit.clamp(1, limits::MAX_PAGE);
        let link = self.readers()?.link(For::Search).await?;
        let mut search = Search::new(query.clone());
        let mut found: Vec<(Seq, Job)> = vec![];
        loop {
            // One more than fits the page tells whether there is a next one.
            let want = limit + 1 - found.len();
            let Candidates { jobs, rest } = search.more(&link, want).await?;
            if !jobs.is_empty() {
                let query = query.clone();
                let look = move |m: &mut PgMachine| m.look_at(jobs, &query);
                found.extend(self.run(Traits::read(want), look).await?);
            }
            if found.len() > limit {
                found.truncate(limit);
                let next = found.last().map(|(seq, _)| *seq);
                return Ok(Page { jobs: found.into_iter().map(|(_, job)| job).collect(), next });
            }
            let next = match rest {
                Rest::Page(more) => {
                    search = *more;
                    continue;
                }
                Rest::Cursor(seq) => Some(seq),
                Rest::End => None,
            };
            return Ok(Page { jobs: found.into_iter().map(|(_, job)| job).collect(), next });
        }
    }

    async fn dependencies(
        &self,
        id: JobId,
        _held: Option<Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<Dependencies> {
        self.run(Traits::read(1).finds([id]), move |m| m.dependencies(id, skip, limit)).await
    }

    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        let why = self.run(Traits::read(1).finds([id]), move |m| m.why(id, now)).await?;
        Ok(served::confirmed(self, why, now).await)
    }
}

#[async_trait]
impl Registry for PgStore {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.run(Traits::write(1, now), move |m| m.put_queue(name, settings, now)).await
    }

    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        self.run(Traits::memory(), Machine::settings).await
    }

    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()> {
        self.run(Traits::write(1, now), move |m| m.ensure_queue(name, now)).await
    }

    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        self.run(Traits { now: None, ..Traits::write(1, Timestamp(0)) }, move |m| m.put_kind(name, settings))
            .await
    }

    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.run(Traits::memory(), move |m| m.queues(now)).await
    }

    async fn kinds(&self) -> Result<Vec<KindView>> {
        self.run(Traits::memory(), Machine::kinds).await
    }

    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.run(Traits::write(1, now), move |m| m.park(park, now)).await
    }

    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool> {
        self.run(Traits::write(1, now), move |m| m.unpark(&scope, &by, now)).await
    }

    async fn parks(&self) -> Result<Vec<Park>> {
        self.run(Traits::memory(), Machine::parks).await
    }
}

#[async_trait]
impl Versions for PgStore {
    async fn apply(&self, apply: Apply) -> Result<Applied> {
        self.run(Traits::write(1, apply.now), move |m| m.apply(apply)).await
    }

    async fn refuse(&self, refused: RefusedDocument, now: Timestamp) -> Result<u64> {
        self.run(Traits::write(1, now), move |m| m.refuse(refused, now)).await
    }

    async fn registry(&self) -> Result<Document> {
        self.run(Traits::memory(), PgMachine::registry).await
    }

    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.run(Traits::read(1), move |m| m.versions(limit)).await
    }

    async fn version(&self, number: u64) -> Result<Option<Version>> {
        self.run(Traits::read(1), move |m| m.version(number)).await
    }
}

#[async_trait]
impl Letters for PgStore {
    async fn recover(&self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.run(Traits::write(letters.len(), now), move |m| m.recover(letters, now)).await
    }

    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        self.run(Traits::write(1, resolve.now), move |m| m.resolve(resolve)).await
    }

    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        self.run(Traits::write(letters.len(), now), move |m| m.reauthorized(letters, &by, now)).await
    }

    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters> {
        self.run(Traits::write(PAGE, process.now), move |m| m.process_letters(process)).await
    }

    async fn causes(&self, query: CauseQuery) -> Result<Causes> {
        let Some(filter) = self.run(Traits::memory(), move |m| Ok(m.cause_filter(&query))).await? else {
            return Ok(Causes::default());
        };
        let link = self.readers()?.link(For::Search).await?;
        let (rows, total) = causes(&link, filter).await?;
        self.run(Traits::read(rows.len()), move |m| m.describe_causes(rows, total)).await
    }
}

#[async_trait]
impl Schedules for PgStore {
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange> {
        self.run(Traits::write(1, put.now), move |m| m.put_schedule(put)).await
    }

    async fn delete_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<bool> {
        self.run(Traits::write(1, now), move |m| m.delete_schedule(&name, now)).await
    }

    async fn pause_schedule(&self, name: ScheduleName, by: String, now: Timestamp) -> Result<ScheduleView> {
        self.run(Traits::write(1, now), move |m| m.pause_schedule(&name, by, now)).await
    }

    async fn resume_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<ScheduleView> {
        self.run(Traits::write(1, now), move |m| m.resume_schedule(&name, now)).await
    }

    async fn run_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<JobId> {
        self.run(Traits::write(1, now), move |m| m.run_schedule(&name, now)).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        self.run(Traits::memory(), Machine::schedules).await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>> {
        self.run(Traits::memory(), move |m| m.schedule(&name)).await
    }

    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>> {
        self.run(Traits::read(1), move |m| m.schedule_ticks(&query)).await
    }
}

#[async_trait]
impl Upkeep for PgStore {
    async fn advance(&self, now: Timestamp) -> Result<Advanced> {
        self.run(Traits::lease(1, now), move |m| m.advance(now)).await
    }

    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64> {
        self.run(Traits::lease(limit, now), move |m| m.prune(limit, now)).await
    }

    async fn erase(&self, erase: Erase) -> Result<Erased> {
        self.run(Traits::write(erase.scan, erase.now), move |m| m.erase(&erase)).await
    }

    async fn totals(&self) -> Result<Totals> {
        self.run(Traits::memory(), Machine::totals).await
    }
}

#[async_trait]
impl Records for PgStore {
    async fn put_record(&self, record: Record, now: Timestamp) -> Result<()> {
        record.check()?;
        let link = self.readers()?.link(For::Notes).await?;
        let (on, expires) = (record.shelf.name(), record.expires.map(|t| t.0));
        let requests: Vec<Request<'_, u64>> = vec![
            Box::pin(async { link.execute(Sql::RecordsExpire, &[&on, &now.0]).await }),
            Box::pin(async {
                link.execute(Sql::RecordsPut, &[&on, &record.key, &record.body, &expires]).await
            }),
        ];
        all(requests).await.into_iter().try_for_each(|done| done.map(drop))
    }

    async fn records(&self, on: Shelf, now: Timestamp) -> Result<Vec<Record>> {
        let link = self.readers()?.link(For::Notes).await?;
        let rows = link.query(Sql::RecordsAll, &[&on.name(), &now.0]).await?;
        let read = |row: &tokio_postgres::Row| {
            Ok(Record {
                shelf: on,
                key: row.try_get(0).or_store()?,
                body: row.try_get(1).or_store()?,
                expires: row.try_get::<_, Option<i64>>(2).or_store()?.map(Timestamp),
            })
        };
        rows.iter().map(read).collect()
    }

    async fn delete_record(&self, on: Shelf, key: String) -> Result<bool> {
        let link = self.readers()?.link(For::Notes).await?;
        Ok(link.execute(Sql::RecordsDelete, &[&on.name(), &key]).await? > 0)
    }
}

#[async_trait]
impl Store for PgStore {
    fn signals(&self) -> &Signals {
        self.channels()
    }

    fn feed(&self) -> &Feed {
        self.events()
    }

    async fn stand(&self, claim: Claim, leave: oneshot::Receiver<()>) -> Result<Stood> {
        self.run_standing(claim, leave).await
    }

    fn clock_ahead_ms(&self) -> i64 {
        self.clock_ahead()
    }

    async fn close(&self) -> Result<()> {
        self.shut().await
    }
}
