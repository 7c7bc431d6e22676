//! One attempt, from a claimed job to a settlement:
//!
//! admit → find the handler → parse the payload → first step → (watch) → verdict → settle
//!
//! The first step runs in the driver itself. A handler that ends there costs no task and no timer; one that has to wait
//! moves to a task of its own, where deadline, cancel, lost lease and shutdown are watched. A handler is first asked
//! to stop; what has not ended a grace period later is dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use tidegate_core::failure::{Category, Failure as Record};
use tidegate_core::gates;
use tidegate_core::time::Millis;
use tidegate_store::params::{Outcome as Verdict, Settlement};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::Span;

use super::Shared;
use super::desk::{Slot, Waiting};
use super::shutdown::{Phase, reached};
use crate::classify::by_rules;
use crate::failure::{Failed, Inner, Snooze};
use crate::gates::permit::end_of;
use crate::handler::Work;
use crate::span::duration;
use crate::{Context, Done, Outcome, StopReason};

/// How long a job waits that this worker has no handler for; another worker may have one.
const NO_HANDLER_MS: i64 = 30_000;
/// Jobs a driver starts before it lets others run.
const TURN: u32 = 64;

/// Takes jobs off the desk and starts them, until the worker stops and every handler it started has ended.
pub(crate) async fn drive(shared: Arc<Shared>, driver: usize) {
    let mut tasks = JoinSet::new();
    let mut phase = shared.phase.subscribe();
    let (mut ended, mut turn) = (None, 0);
    loop {
        while tasks.try_join_next().is_some() {}
        let stopping = *phase.borrow_and_update() != Phase::Working;
        match shared.desk.next(ended.take()) {
            Some((waiting, slot)) => {
                ended = begin(&shared, waiting, slot, &mut tasks);
                turn += 1;
                if turn == TURN {
                    turn = 0;
                    tokio::task::yield_now().await;
                }
            }
            None if stopping && tasks.is_empty() => return,
            None => tokio::select! {
                () = shared.desk.rung(driver) => {}
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                _ = phase.changed(), if !stopping => {}
            },
        }
    }
}

/// Starts a job. The slot comes back if the attempt is over already.
fn begin(shared: &Arc<Shared>, waiting: Waiting, slot: Slot, tasks: &mut JoinSet<()>) -> Option<Slot> {
    let heard = shared.roster.heard();
    let Some(run) = admit(shared, waiting) else { return Some(slot) };
    match first_step(run) {
        Step::Ended(cx, end, began) => {
            settle(shared, &cx, Some(end), Some(began));
            Some(slot)
        }
        Step::Waits(run) => {
            shared.roster.enter(&run.cx, heard);
            tasks.spawn(watch(shared.clone(), run, slot));
            None
        }
    }
}

/// A run that has been admitted.
struct Run {
    cx: Context,
    work: Guarded,
    began: Instant,
    span: Span,
}

enum Step {
    Ended(Context, End, Instant),
    Waits(Run),
}

/// How a handler ended by itself.
enum End {
    Returned(Outcome),
    Panicked(String),
}

/// Settles at once what needs no handler: a lost lease, a cancelled job, a kind that has none or lacks something, a bad payload.
fn admit(shared: &Shared, waiting: Waiting) -> Option<Run> {
    let Waiting { mut job, lease, cancelled, .. } = waiting;
    let ticket = job.ticket;
    if lease.is_lost() {
        shared.ledger.settled([ticket.lease]);
        return None;
    }
    if cancelled {
        shared.outbox.push(Settlement { ticket, outcome: Verdict::Cancel });
        return None;
    }
    if shared.rest.refuses(&job) {
        shared.outbox.push(Settlement { ticket, outcome: Verdict::Release });
        return None;
    }
    let Some(handler) = shared.handlers.get(&job.kind) else {
        let reason = format!("worker {} has no handler for kind {}", shared.name, job.kind);
        let until = shared.tide.now().plus_ms(NO_HANDLER_MS);
        shared
            .outbox
            .push(Settlement { ticket, outcome: Verdict::Snooze { until, reason, park: None, gate: None } });
        return None;
    };
    if let Some(runs) = &shared.runs {
        runs.begin(&mut job, shared.tide.store().clock_ahead_ms());
    }
    let cx = Context::new(job, lease, shared.tide.now());
    // Reading a payload is the user's code too.
    let started = catch_unwind(AssertUnwindSafe(|| handler.start(cx.clone())));
    let end = match started {
        Ok(Ok(work)) => {
            let span = span_of(&cx);
            return Some(Run { cx, work: Guarded(Some(work)), began: Instant::now(), span });
        }
        Ok(Err(failure)) => End::Returned(Err(failure)),
        Err(panic) => End::Panicked(panic_text(&*panic)),
    };
    settle(shared, &cx, Some(end), None);
    None
}

fn span_of(cx: &Context) -> Span {
    if !tracing::enabled!(tracing::Level::INFO) {
        return Span::none();
    }
    let job = cx.job();
    tracing::info_span!("job", id = %job.id, kind = %job.kind, queue = %job.queue, attempt = job.attempt)
}

/// Polls the handler once. It is polled again, with a waker that counts, as soon as its task runs.
fn first_step(mut run: Run) -> Step {
    let mut nobody = task::Context::from_waker(task::Waker::noop());
    let span = std::mem::replace(&mut run.span, Span::none());
    let step = span.in_scope(|| Pin::new(&mut run.work).poll(&mut nobody));
    match step {
        Poll::Ready(end) => Step::Ended(run.cx, end, run.began),
        Poll::Pending => Step::Waits(Run { span, ..run }),
    }
}

/// Watches over a handler that waits for something.
async fn watch(shared: Arc<Shared>, mut run: Run, slot: Slot) {
    let deadline = run.began + duration(run.cx.job().timeout_ms);
    let span = run.span.clone();
    let mut work = Spanned { work: &mut run.work, span: &span };
    let stopped = tokio::select! {
        biased;
        end = &mut work => Ok(end),
        () = run.cx.cancelled() => Err(()),
        () = sleep_until(deadline) => {
            run.cx.stop(StopReason::TimedOut);
            shared.tally.change().timeouts += 1;
            Err(())
        }
    };
    let end = match stopped {
        Ok(end) => Some(end),
        Err(()) => in_grace(&shared, &run.cx, &mut work).await,
    };
    run.work.abort();
    shared.roster.leave(&run.cx);
    settle(&shared, &run.cx, end, Some(run.began));
    shared.desk.end(slot, run.began.elapsed().as_secs_f64() * 1_000.0);
}

/// Lets a handler that was asked to stop end by itself, for a while.
async fn in_grace(shared: &Shared, cx: &Context, work: &mut Spanned<'_>) -> Option<End> {
    tracing::debug!(job = %cx.id(), reason = ?cx.stop_reason(), "asked the handler to stop");
    let mut phase = shared.phase.subscribe();
    tokio::select! {
        biased;
        end = work => Some(end),
        () = tokio::time::sleep(shared.grace) => None,
        () = reached(&mut phase, Phase::Now) => None,
    }
}

/// Hands the outcome to the completer. `began` is when the handler did, if it did.
fn settle(shared: &Shared, cx: &Context, end: Option<End>, began: Option<Instant>) {
    if let Some(End::Panicked(_)) = end {
        shared.tally.change().panics += 1;
    }
    let lacks = matches!(&end, Some(End::Returned(Err(failure))) if failure.is_unready());
    let by_itself = matches!(end, Some(End::Returned(_))) && cx.stop_reason().is_none();
    if let (Some(End::Returned(Err(failure))), Some(began), true) = (&end, began, lacks) {
        shared.rest.begin(cx.job(), began, failure.message());
    }
    let outcome = verdict(shared, cx, end);
    if let (Verdict::Complete(_) | Verdict::Fail(_), Some(began), true) = (&outcome, began, by_itself) {
        shared.rest.end(cx.job(), began);
    }
    let permits = std::mem::take(&mut *cx.permits());
    for held in permits.iter().filter(|h| h.take()) {
        let end = if lacks { gates::End::Unused } else { end_of(&outcome, shared.tide.now()) };
        shared.gates.give_back(held.permit.clone(), gates::Outcome::of(end));
    }
    let ticket = cx.job().ticket;
    if let Some(runs) = &shared.runs {
        runs.ended(ticket, &outcome, shared.tide.store().clock_ahead_ms());
    }
    shared.outbox.push(Settlement { ticket, outcome });
}

/// What an attempt comes to. A handler that was asked to stop and finished its work all the same has finished it; an
/// error on its way out is blamed on the stop.
fn verdict(shared: &Shared, cx: &Context, end: Option<End>) -> Verdict {
    let end = match end {
        Some(End::Returned(Ok(Done { result }))) => return Verdict::Complete(result),
        Some(End::Returned(Err(failure))) => match failure.into_inner() {
            Inner::Snooze(Snooze { until, reason, park, gate }) => {
                return Verdict::Snooze { until, reason, park, gate };
            }
            Inner::Unfit(error) => {
                shared.unfit.send_if_modified(|first| first.is_none() && first.replace(error).is_none());
                return Verdict::Release;
            }
            Inner::Unready(_) if cx.stop_reason() == Some(StopReason::Cancelled) => return Verdict::Cancel,
            Inner::Unready(_) => return Verdict::Release,
            Inner::Failed(failed) => Ok(failed),
        },
        Some(End::Panicked(text)) => Err(Record::new(Category::LogicError, "PANIC", text)),
        None => Err(Record::new(Category::LogicError, "ABORTED", "the handler was aborted")),
    };
    match (cx.stop_reason(), end) {
        (Some(StopReason::Cancelled), _) => Verdict::Cancel,
        (Some(StopReason::LeaseLost | StopReason::Shutdown), _) => Verdict::Release,
        (Some(StopReason::TimedOut), _) => {
            let text =
                format!("the handler did not end within its timeout of {}", Millis(cx.job().timeout_ms));
            Verdict::Fail(Record::new(Category::LogicError, "TIMEOUT", text))
        }
        (None, Ok(failed)) => Verdict::Fail(classified(shared, failed).into_record(shared.tide.now())),
        (None, Err(record)) => Verdict::Fail(record),
    }
}

/// Lets the worker's own rules say the category. They are the user's code: a panic says nothing.
fn classified(shared: &Shared, mut failed: Failed) -> Failed {
    let source = failed.source.take();
    let said = catch_unwind(AssertUnwindSafe(|| source.and_then(|source| by_rules(&*source, &shared.rules))));
    if said.is_err() {
        tracing::warn!("a rule for classifying errors panicked");
    }
    if let Ok(Some(category)) = said {
        failed.category = category;
    }
    failed
}

/// A handler whose panics are outcomes.
struct Guarded(Option<Work>);

impl Guarded {
    /// Drops the handler's future; a panic on the way is nobody's concern any more.
    fn abort(&mut self) {
        let work = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(work))).is_err() {
            tracing::warn!("a handler panicked while it was dropped");
        }
    }
}

impl Future for Guarded {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<End> {
        let Some(work) = self.0.as_mut() else { return Poll::Pending };
        let end = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => End::Returned(outcome),
            Err(panic) => End::Panicked(panic_text(&*panic)),
        };
        self.abort();
        Poll::Ready(end)
    }
}

/// A handler inside its span.
struct Spanned<'a> {
    work: &'a mut Guarded,
    span: &'a Span,
}

impl Future for Spanned<'_> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<End> {
        let this = &mut *self;
        this.span.in_scope(|| Pin::new(&mut *this.work).poll(cx))
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the handler panicked: {}", text.as_deref().unwrap_or("without a message"))
}
