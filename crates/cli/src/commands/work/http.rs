//! An HTTP endpoint per job: POST with the payload as body. 2xx is done, with the answer as the result, or without one
//! if the answer cannot be kept, because the work was done all the same; 429 and 503 with
//! `Retry-After` put the job off without spending an attempt; other 4xx are final; 5xx and broken connections are tried
//! again. Without a connection, within the job's time either, nothing was sent: the job is as it was, and the worker waits for
//! its endpoint. The job's id goes along as `Idempotency-Key`, so that an endpoint can tell a repetition.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{Category, Context, Error, Failure, Outcome, StopReason, done, done_with};
use tidegate_core::codes;
use tidegate_core::limits;

use crate::error::{Failure as Refusal, Result as Answer};
use tidegate_server::outgoing::{CONNECT, Client, Request, Response};

/// Longest delay that an endpoint can ask for.
const LONGEST: Duration = Duration::from_millis(limits::MAX_SERVER_DELAY_MS as u64);
/// How long one that is to end when nothing is left waits for its endpoint.
const PATIENCE: Duration = Duration::from_secs(5);
/// Vain attempts farther apart than this are no one outage: a worker tries again after five seconds at most.
const APART: Duration = CONNECT.saturating_add(Duration::from_secs(6));

/// Where jobs are sent.
pub(super) struct Endpoint {
    url: String,
    client: Client,
    /// How long it may be away; none: for ever.
    patience: Option<Duration>,
    away: Mutex<Option<Away>>,
}

/// Since when, and until when, it could not be reached.
#[derive(Debug, Clone, Copy)]
struct Away {
    since: Instant,
    last: Instant,
}

impl Away {
    /// It could not be reached now either.
    fn still(before: Option<Self>, now: Instant) -> Self {
        let same = before.filter(|away| now.duration_since(away.last) < APART);
        Self { since: same.map_or(now, |away| away.since), last: now }
    }
}

impl Endpoint {
    pub(super) fn new(url: &str, until_idle: bool) -> Answer<Self> {
        Client::check(url).map_err(|e| {
            Refusal::new(codes::INVALID_REQUEST, format!("--url: {e}"))
                .hint("write it like http://127.0.0.1:9000/jobs")
        })?;
        let client = Client::new(url.starts_with("https:")).map_err(|e| Refusal::new(codes::INTERNAL, e))?;
        let patience = until_idle.then_some(PATIENCE);
        Ok(Self { url: url.to_owned(), client, patience, away: Mutex::default() })
    }

    /// Sends one job.
    pub(super) async fn call(&self, cx: &Context) -> Outcome {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("idempotency-key", cx.id().to_string()),
            ("tidegate-job-id", cx.id().to_string()),
            ("tidegate-attempt", cx.attempt().to_string()),
            ("tidegate-queue", cx.queue().to_string()),
            ("tidegate-kind", cx.kind().to_string()),
        ];
        headers.extend(cx.tenant().map(|t| ("tidegate-tenant", t.to_string())));
        headers.extend(cx.traceparent().map(|t| ("traceparent", t.to_owned())));
        let request = Request {
            method: "POST",
            url: &self.url,
            headers,
            body: cx.payload().as_str().to_owned(),
            max_answer: limits::MAX_RESULT_BYTES,
        };
        // A connection is closed with the request: the endpoint can notice.
        match self.client.send_until(request, cx.cancelled()).await {
            Err(e) if e.unreachable => match cx.stop_reason() {
                None | Some(StopReason::TimedOut) => Err(self.is_away(&e.why)),
                Some(_) => Err(stopped()),
            },
            answered => {
                *self.away() = None;
                match answered {
                    Ok(answer) => judge(cx, &answer).await,
                    Err(_) if cx.is_cancelled() => Err(stopped()),
                    Err(e) => Err(Failure::new(Category::TransientNetwork, "NO_ANSWER", e.why)),
                }
            }
        }
    }

    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing was sent.
    fn is_away(&self, why: &str) -> Failure {
        let now = Instant::now();
        let away = {
            let mut known = self.away();
            let away = Away::still(*known, now);
            *known = Some(away);
            away
        };
        let why = format!("the endpoint cannot be reached: {why}");
        match self.patience {
            Some(patience) if now.duration_since(away.since) >= patience => {
                Failure::unfit(Error::new(codes::ENDPOINT_UNREACHABLE, why))
            }
            _ => Failure::unready(why),
        }
    }
}

fn stopped() -> Failure {
    Failure::logic("STOPPED", "the job was asked to stop")
}

async fn judge(cx: &Context, answer: &Response) -> Outcome {
    let status = answer.status;
    let said = answer.text.lines().next().map_or(String::new(), |l| format!(": {}", cut(l)));
    let fail =
        |category| Err(Failure::new(category, format!("HTTP_{status}"), format!("answered {status}{said}")));
    match status {
        200..=299 if answer.cut_off => {
            without_result(cx, status, &format!("more than {} bytes", limits::MAX_RESULT_BYTES)).await
        }
        200..=299 => match result(&answer.text) {
            Err(refused) => without_result(cx, status, refused.message()).await,
            done => done,
        },
        429 | 503 if answer.retry_after().is_some() => {
            let delay = answer.retry_after().unwrap_or_default().min(LONGEST);
            cx.snooze(delay, format!("the endpoint answered {status} and asks to come back"))
        }
        429 => fail(Category::TransientRateLimit),
        408 | 425 => fail(Category::TransientNetwork),
        401 => fail(Category::PermanentAuth),
        403 => fail(Category::PermanentPermission),
        300..=399 | 404 | 405 | 410 => fail(Category::PermanentConfig),
        400..=499 => fail(Category::InvalidInput),
        _ => fail(Category::TransientServer),
    }
}

/// Completes a job whose answer cannot be kept, and says so in its log. Doing the work again would not help.
async fn without_result(cx: &Context, status: u16, why: &str) -> Outcome {
    let line = format!("the endpoint answered {status}, and the answer was not kept as the result: {why}");
    if let Err(error) = cx.log(line).await {
        tracing::debug!(job = %cx.id(), code = %error.code, "a log line was not kept: {error}");
    }
    done()
}

fn cut(line: &str) -> String {
    line.chars().take(200).collect()
}

fn result(text: &str) -> Outcome {
    match text.trim() {
        "" => done(),
        text => match serde_json::from_str::<&serde_json::value::RawValue>(text) {
            Ok(json) => done_with(json),
            Err(_) => done_with(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vain_attempts_far_apart_are_no_one_outage() {
        let first = Instant::now();
        let away = Away::still(None, first);
        let away = Away::still(Some(away), first + CONNECT + Duration::from_secs(5));
        assert_eq!(away.since, first);
        let later = away.last + APART;
        assert_eq!(Away::still(Some(away), later).since, later);
    }
}
