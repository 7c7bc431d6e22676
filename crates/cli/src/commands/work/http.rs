//! An HTTP endpoint per job: POST with the payload as body. 2xx is done, with the answer as the result, or without one
//! if the answer cannot be kept, because the work was done all the same; 429 and 503 with
//! `Retry-After` put the job off without spending an attempt; other 4xx are final; 5xx and broken connections are tried
//! again. An endpoint that cannot be reached got nothing: the job is as it was, and the worker waits for its endpoint. The job's id
//! goes along as `Idempotency-Key`, so that an endpoint can tell a repetition.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{Category, Context, Error, Failure, Outcome, done, done_with};
use tidegate_core::codes;
use tidegate_core::limits;

use crate::error::{Failure as Refusal, Result as Answer};
use tidegate_server::outgoing::{Client, Request, Response};

/// Longest delay that an endpoint can ask for.
const LONGEST: Duration = Duration::from_millis(limits::MAX_SERVER_DELAY_MS as u64);
/// How long one that is to end when nothing is left waits for its endpoint.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where jobs are sent.
pub(super) struct Endpoint {
    url: String,
    client: Client,
    /// How long it may be away; none: for ever.
    patience: Option<Duration>,
    away_since: Mutex<Option<Instant>>,
}

impl Endpoint {
    pub(super) fn new(url: &str, until_idle: bool) -> Answer<Self> {
        Client::check(url).map_err(|e| {
            Refusal::new(codes::INVALID_REQUEST, format!("--url: {e}"))
                .hint("write it like http://127.0.0.1:9000/jobs")
        })?;
        let client = Client::new(url.starts_with("https:")).map_err(|e| Refusal::new(codes::INTERNAL, e))?;
        let patience = until_idle.then_some(PATIENCE);
        Ok(Self { url: url.to_owned(), client, patience, away_since: Mutex::default() })
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
        let answer = tokio::select! {
            answer = self.client.send(request) => answer,
            // The connection is closed with the request: the endpoint can notice.
            () = cx.cancelled() => return Err(Failure::logic("STOPPED", "the job was asked to stop")),
        };
        match answer {
            Err(e) if e.unreachable => Err(self.is_away(&e.why)),
            answered => {
                *self.away_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
                match answered {
                    Ok(answer) => judge(cx, &answer).await,
                    Err(e) => Err(Failure::new(Category::TransientNetwork, "NO_ANSWER", e.why)),
                }
            }
        }
    }

    /// Nothing was sent.
    fn is_away(&self, why: &str) -> Failure {
        let mut since = self.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = since.get_or_insert_with(Instant::now).elapsed();
        let why = format!("the endpoint cannot be reached: {why}");
        match self.patience {
            Some(patience) if since >= patience => {
                Failure::unfit(Error::new(codes::ENDPOINT_UNREACHABLE, why))
            }
            _ => Failure::unready(why),
        }
    }
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
