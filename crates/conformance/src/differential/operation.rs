//! One operation of a history, and its reply in a form that can be compared between stores.

use tidegate_core::codes::Code;
use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName, ScheduleName, Seq};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::schedule::{ScheduleSpec, TickEntry};
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::params::{
    Advanced, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Dependencies, Enqueued,
    Erase, Erased, JobQuery, KindView, NewJob, Outcome, Page, ProcessLetters, ProcessedLetters, PutSchedule,
    QueueView, Recover, Recovered, Report, Resolve, ScheduleChange, ScheduleView, Settle, Settled,
    Settlement, TickQuery, Ticket, Totals,
};
use tidegate_store::{Result, Store};

/// A ticket by its place among all that were handed out; beyond the last one it is made up.
pub(super) type TicketNo = usize;

/// One operation. Tickets are named by their place among all that were handed out.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the same operations as the store's traits")]
pub enum Operation {
    Enqueue(Vec<NewJob>),
    Claim(Claim),
    Settle(Vec<(usize, Outcome)>, u64),
    Heartbeat(Vec<usize>),
    Report(Vec<(usize, f64, Vec<String>)>),
    Cancel(JobId, bool),
    RunNow(JobId),
    Reprioritise(JobId, Priority),
    Get(JobId),
    Search(JobQuery),
    Why(JobId),
    Dependencies(JobId, u32, usize),
    PutQueue(QueueName, Box<QueueSettings>),
    EnsureQueue(QueueName),
    PutKind(KindName, Box<KindSettings>),
    Queues,
    Kinds,
    Park(Park),
    Unpark(ParkScope, String),
    Parks,
    Recover(Vec<Recover>),
    Resolve(Resolve),
    ProcessLetters { at_once: bool },
    Causes(usize),
    Advance,
    Prune(usize),
    Erase(Erase),
    Totals,
    PutSchedule(ScheduleName, Box<ScheduleSpec>),
    DeleteSchedule(ScheduleName),
    PauseSchedule(ScheduleName),
    ResumeSchedule(ScheduleName),
    Schedules,
    Ticks(ScheduleName),
    Restart,
}

type Answer<T> = std::result::Result<T, Code>;

/// What a store said. Errors are compared by code.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "one per operation")]
pub enum Reply {
    Enqueued(Answer<Vec<Enqueued>>),
    Claimed(Answer<Claimed>),
    Settled(Answer<Vec<Settled>>),
    Beats(Answer<Vec<Beat>>),
    Reported(Answer<Vec<bool>>),
    Cancelled(Answer<CancelReply>),
    State(Answer<State>),
    Done(Answer<()>),
    Job(Answer<Option<Box<Job>>>),
    Page(Answer<Page>),
    Why(Answer<Box<Why>>),
    Dependencies(Answer<Dependencies>),
    Queues(Answer<Vec<QueueView>>),
    Kinds(Answer<Vec<KindView>>),
    Was(Answer<bool>),
    Parks(Answer<Vec<Park>>),
    Recovered(Answer<Vec<Recovered>>),
    Processed(Answer<ProcessedLetters>),
    Causes(Answer<Causes>),
    Advanced(Answer<Advanced>),
    Count(Answer<u64>),
    Erased(Answer<Erased>),
    Totals(Answer<Totals>),
    Schedule(Answer<ScheduleChange>),
    Schedules(Answer<Vec<ScheduleView>>),
    Ticks(Answer<Vec<TickEntry>>),
    Restarted,
}

/// The tickets that a store handed out, in order.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    all: Vec<Ticket>,
    leases: Vec<LeaseId>,
}

impl Tickets {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn get(&self, no: TicketNo) -> Ticket {
        let made_up = Ticket { lease: LeaseId(i64::MAX - no as i64), seq: Seq(1) };
        self.all.get(no).copied().unwrap_or(made_up)
    }

    /// The lease by its place among all leases.
    fn place(&self, lease: LeaseId) -> LeaseId {
        LeaseId(self.leases.iter().position(|l| *l == lease).map_or(-1, |i| i as i64))
    }

    fn take(&mut self, claimed: &mut Claimed) {
        if let Some(lease) = &mut claimed.lease {
            self.leases.push(lease.id);
            lease.id = self.place(lease.id);
        }
        for job in &mut claimed.jobs {
            self.all.push(job.ticket);
            job.ticket.lease = self.place(job.ticket.lease);
        }
    }

    fn settle_place(&self, job: &mut Job) {
        if let Some(held) = &mut job.held {
            held.lease = self.place(held.lease);
        }
    }
}

fn code<T>(reply: Result<T>) -> Answer<T> {
    reply.map_err(|e| e.code)
}

/// Applies an operation, all but a restart.
pub(super) async fn apply(
    store: &dyn Store,
    tickets: &mut Tickets,
    operation: Operation,
    now: Timestamp,
) -> Reply {
    match operation {
        Operation::Enqueue(jobs) => Reply::Enqueued(code(store.enqueue(jobs, now).await)),
        Operation::Claim(claim) => {
            let mut reply = store.claim(claim).await;
            if let Ok(claimed) = &mut reply {
                tickets.take(claimed);
            }
            Reply::Claimed(code(reply))
        }
        Operation::Settle(outcomes, seed) => {
            let one = |(no, outcome)| Settlement { ticket: tickets.get(no), outcome };
            let settlements = outcomes.into_iter().map(one).collect();
            Reply::Settled(code(store.settle(Settle { settlements, now, seed }).await))
        }
        Operation::Heartbeat(nos) => {
            let mut leases: Vec<LeaseId> = nos.iter().map(|no| tickets.get(*no).lease).collect();
            leases.dedup();
            let mut reply = store.heartbeat(leases, now).await;
            for beat in reply.iter_mut().flatten() {
                beat.lease = tickets.place(beat.lease);
            }
            Reply::Beats(code(reply))
        }
        Operation::Report(reports) => {
            let one = |(no, fraction, log): (TicketNo, f64, Vec<String>)| Report {
                ticket: tickets.get(no),
                progress: Some((fraction, "on the way".into())),
                log,
            };
            Reply::Reported(code(store.report(reports.into_iter().map(one).collect(), now).await))
        }
        Operation::Cancel(id, cascade) => {
            let cancel = CancelJob { id, note: "differs?".into(), cascade, now };
            Reply::Cancelled(code(store.cancel(cancel).await))
        }
        Operation::RunNow(id) => Reply::State(code(store.run_now(id, now).await)),
        Operation::Reprioritise(id, priority) => {
            Reply::Done(code(store.reprioritise(id, priority, now).await))
        }
        Operation::Get(id) => {
            let mut reply = store.get(id).await;
            if let Ok(Some(job)) = &mut reply {
                tickets.settle_place(job);
            }
            Reply::Job(code(reply).map(|job| job.map(Box::new)))
        }
        Operation::Search(query) => Reply::Page(walk(store, tickets, query).await),
        Operation::Why(id) => Reply::Why(code(store.why(id, now).await).map(Box::new)),
        Operation::Dependencies(id, skip, limit) => {
            Reply::Dependencies(code(store.dependencies(id, None, skip, limit).await))
        }
        Operation::PutQueue(name, settings) => Reply::Done(code(store.put_queue(name, *settings, now).await)),
        Operation::EnsureQueue(name) => Reply::Done(code(store.ensure_queue(name, now).await)),
        Operation::PutKind(name, settings) => Reply::Done(code(store.put_kind(name, *settings).await)),
        Operation::Queues => Reply::Queues(code(store.queues(now).await)),
        Operation::Kinds => Reply::Kinds(code(store.kinds().await)),
        Operation::Park(park) => Reply::Done(code(store.park(park, now).await)),
        Operation::Unpark(scope, by) => Reply::Was(code(store.unpark(scope, by, now).await)),
        Operation::Parks => Reply::Parks(code(store.parks().await)),
        Operation::Recover(letters) => Reply::Recovered(code(store.recover(letters, now).await)),
        Operation::Resolve(resolve) => Reply::Done(code(store.resolve(resolve).await)),
        Operation::ProcessLetters { at_once } => {
            let process = ProcessLetters { every_ms: 60_000, at_once, now };
            Reply::Processed(code(store.process_letters(process).await))
        }
        Operation::Causes(limit) => {
            Reply::Causes(code(store.causes(CauseQuery { limit, ..CauseQuery::default() }).await))
        }
        Operation::Advance => Reply::Advanced(code(store.advance(now).await)),
        Operation::Prune(limit) => Reply::Count(code(store.prune(limit, now).await)),
        Operation::Erase(erase) => Reply::Erased(code(store.erase(erase).await)),
        Operation::Totals => Reply::Totals(code(store.totals().await)),
        Operation::PutSchedule(name, spec) => {
            let put = PutSchedule { name, spec: *spec, now };
            Reply::Schedule(code(store.put_schedule(put).await))
        }
        Operation::DeleteSchedule(name) => Reply::Was(code(store.delete_schedule(name, now).await)),
        Operation::PauseSchedule(name) => {
            let reply = store.pause_schedule(name, "ann".into(), now).await;
            Reply::Schedules(code(reply).map(|view| vec![view]))
        }
        Operation::ResumeSchedule(name) => {
            Reply::Schedules(code(store.resume_schedule(name, now).await).map(|view| vec![view]))
        }
        Operation::Schedules => Reply::Schedules(code(store.schedules().await)),
        Operation::Ticks(name) => {
            let query = TickQuery { name, before: None, limit: 100 };
            Reply::Ticks(code(store.schedule_ticks(query).await))
        }
        Operation::Restart => Reply::Restarted,
    }
}

/// How many pages a search may take in a history, with few jobs in it.
const PAGES: usize = 200;

/// All that a search finds. A store may hand back a page early, with a cursor to go on from, so pages may differ
/// where the jobs do not.
async fn walk(store: &dyn Store, tickets: &Tickets, mut query: JobQuery) -> Answer<Page> {
    let mut found = Page::default();
    for _ in 0..PAGES {
        let mut page = code(store.search(query.clone()).await)?;
        page.jobs.iter_mut().for_each(|job| tickets.settle_place(job));
        found.jobs.append(&mut page.jobs);
        found.next = page.next;
        if page.next.is_none() {
            break;
        }
        query.cursor = page.next;
    }
    Ok(found)
}
