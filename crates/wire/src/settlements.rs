//! What became of attempts.

use serde::{Deserialize, Serialize};
use tidegate_core::codes;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::ConnectorName;
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::params;

use crate::parks::Scope;
use crate::{Json, Problem, Ticket, Time};

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OutcomeName {
    /// Done; `result` may say with what.
    Complete,
    /// Failed; `failure` says how, and the retry rules decide what follows.
    Fail,
    /// Put off without spending an attempt; `snooze` says until when.
    Snooze,
    /// Given back without spending an attempt, as at shutdown.
    Release,
    /// The handler stopped because it was asked to.
    Cancel,
}

/// One settled attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Settlement {
    /// Proof of holding the job.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "tkt_17_4"))]
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: OutcomeName,
    /// With `complete`: what came out. `null` is a result, too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::given")]
    pub result: Option<Json>,
    /// With `fail`: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
    /// With `snooze`: until when and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooze: Option<Snooze>,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureReport {
    /// What kind of failure; decides the retry policy.
    #[serde(default = "logic_error")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Category>))]
    pub category: Category,
    /// Short stable code for `retry_on` and `no_retry_on`.
    #[serde(default = "plain_code")]
    #[cfg_attr(feature = "openapi", schema(example = "ETIMEDOUT"))]
    pub code: String,
    /// What happened, for people. Must hold no secret.
    #[cfg_attr(feature = "openapi", schema(example = "the mail server did not answer"))]
    pub message: String,
    /// When the other side said to come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// The same as a span from now; not with `retry_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<i64>,
}

fn logic_error() -> Category {
    Category::LogicError
}

fn plain_code() -> String {
    "FAILED".to_owned()
}

/// A job put off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Snooze {
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The same as a span from now; not with `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<i64>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Park this scope until then, in the same step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub park: Option<Scope>,
    /// The domain whose gates refused the job. Waiting for a gate is not counted as a snooze, and its park ends when the
    /// first of the scope's jobs may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "shopify"))]
    pub gate: Option<ConnectorName>,
}

/// Settled attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleRequest {
    /// The attempts.
    pub settlements: Vec<Settlement>,
}

impl Settlement {
    /// The request of a worker for whom it is `now`. Times go as spans: the clocks of two machines differ.
    pub fn new(settled: params::Settlement, now: Timestamp) -> Self {
        use params::Outcome;
        let ticket = Ticket(settled.ticket);
        let mut this =
            Self { ticket, outcome: OutcomeName::Complete, result: None, failure: None, snooze: None };
        match settled.outcome {
            Outcome::Complete(result) => this.result = result.map(Json::from),
            Outcome::Fail(f) => {
                this.outcome = OutcomeName::Fail;
                // A time in the past is no wish; the store ignores it.
                let retry_in_ms = f.retry_at.map(|t| t.since(now)).filter(|ms| *ms >= 0);
                let (category, code, message) = (f.category, f.code, f.message);
                this.failure = Some(FailureReport { category, code, message, retry_at: None, retry_in_ms });
            }
            Outcome::Snooze { until, reason, park, gate } => {
                this.outcome = OutcomeName::Snooze;
                let for_ms = Some(until.since(now).max(0));
                this.snooze = Some(Snooze { until: None, for_ms, reason, park: park.map(Scope::from), gate });
            }
            Outcome::Release => this.outcome = OutcomeName::Release,
            Outcome::Cancel => this.outcome = OutcomeName::Cancel,
        }
        this
    }
}

impl FailureReport {
    fn into_failure(self, now: Timestamp) -> Result<Failure, Problem> {
        let retry_at = one_time(self.retry_at, self.retry_in_ms, ("retry_at", "retry_in_ms"), now)
            .map_err(|p| p.within("/failure"))?;
        Ok(Failure { retry_at, ..Failure::new(self.category, self.code, self.message) })
    }
}

impl Settlement {
    /// The settlement at this time.
    pub fn into_settlement(self, now: Timestamp) -> Result<params::Settlement, Problem> {
        use params::Outcome;
        let stray = |field: &str, with: &str| {
            Err(Problem::invalid(format!("`{field}` goes with outcome `{with}` alone"))
                .at(format!("/{field}")))
        };
        if self.result.is_some() && self.outcome != OutcomeName::Complete {
            return stray("result", "complete");
        }
        if self.failure.is_some() && self.outcome != OutcomeName::Fail {
            return stray("failure", "fail");
        }
        if self.snooze.is_some() && self.outcome != OutcomeName::Snooze {
            return stray("snooze", "snooze");
        }
        let missing =
            |field: &str| Problem::invalid(format!("missing field `{field}`")).at(format!("/{field}"));
        let outcome = match self.outcome {
            OutcomeName::Complete => {
                let check = |json: Json| json.checked(limits::MAX_RESULT_BYTES, "/result");
                Outcome::Complete(self.result.map(check).transpose()?)
            }
            OutcomeName::Fail => {
                Outcome::Fail(self.failure.ok_or_else(|| missing("failure"))?.into_failure(now)?)
            }
            OutcomeName::Snooze => {
                let snooze = self.snooze.ok_or_else(|| missing("snooze"))?;
                let until = one_time(snooze.until, snooze.for_ms, ("until", "for_ms"), now)
                    .and_then(|t| t.ok_or_else(|| Problem::invalid("missing field `until` or `for_ms`")))
                    .map_err(|p| p.within("/snooze"))?;
                let park =
                    snooze.park.map(|s| s.into_scope().map_err(|p| p.within("/snooze/park"))).transpose()?;
                Outcome::Snooze { until, reason: snooze.reason, park, gate: snooze.gate }
            }
            OutcomeName::Release => Outcome::Release,
            OutcomeName::Cancel => Outcome::Cancel,
        };
        Ok(params::Settlement { ticket: self.ticket.0, outcome })
    }
}

/// A time given in one of two ways, or not at all.
pub(crate) fn one_time(
    at: Option<Time>,
    in_ms: Option<i64>,
    names: (&str, &str),
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    match (at, in_ms) {
        (Some(_), Some(_)) => {
            Err(Problem::invalid(format!("`{}` and `{}` exclude each other", names.0, names.1))
                .at(format!("/{}", names.1)))
        }
        (Some(at), None) => Ok(Some(at.0)),
        (None, Some(ms)) if ms < 0 => {
            Err(Problem::new(codes::INVALID_TIME, format!("`{}` must not be negative", names.1))
                .at(format!("/{}", names.1)))
        }
        (None, Some(ms)) => Ok(Some(now.plus_ms(ms))),
        (None, None) => Ok(None),
    }
}

/// Reply to a settle request: one for each settlement, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleReply {
    /// The replies.
    pub settled: Vec<Settled>,
}

/// Reply to one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Settled {
    /// What was done with it.
    pub status: SettledStatus,
    /// The job's state now, if it was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::State>))]
    pub state: Option<State>,
    /// When it runs again, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
}

/// What was done with a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SettledStatus {
    /// It was applied.
    Applied,
    /// It was refused: the lease no longer holds the job.
    Stale,
}

impl From<params::Settled> for Settled {
    fn from(settled: params::Settled) -> Self {
        let (status, state, run_at) = match settled {
            params::Settled::Applied(state) => (SettledStatus::Applied, Some(state), None),
            params::Settled::Again(at) => (SettledStatus::Applied, Some(State::Scheduled), Some(Time(at))),
            params::Settled::Stale => (SettledStatus::Stale, None, None),
        };
        Self { status, state, run_at }
    }
}

impl From<Settled> for params::Settled {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled { status: SettledStatus::Stale, .. } => Self::Stale,
            Settled { run_at: Some(at), .. } => Self::Again(at.0),
            Settled { state, .. } => Self::Applied(state.unwrap_or(State::Completed)),
        }
    }
}
