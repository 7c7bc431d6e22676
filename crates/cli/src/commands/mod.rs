//! One module per noun; each command opens the data directory, asks the store, prints one answer.

pub(crate) mod alerts;
pub(crate) mod backup;
pub(crate) mod bulk;
pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod explain;
pub(crate) mod filter;
pub(crate) mod gates;
pub(crate) mod groups;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod migrate;
pub(crate) mod parks;
pub(crate) mod queues;
pub(crate) mod registry;
pub(crate) mod schedules;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod slo;
pub(crate) mod tail;
pub(crate) mod top;
pub(crate) mod why;
pub(crate) mod work;
pub(crate) mod workers;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::ids::JobId;
use tidegate_core::job::Job;
use tidegate_core::payload::Payload;
use tidegate_store::Store;

use crate::error::{Failure, Result};
use crate::output::times_as_text;

/// A job for programs: everything known, instants as text, payload and result as the JSON they are.
#[derive(Debug, Serialize)]
pub(crate) struct JobJson<'a> {
    #[serde(flatten)]
    facts: Value,
    payload: &'a RawValue,
    result: Option<&'a RawValue>,
}

/// The view of a job for programs.
pub(crate) fn job_json(job: &Job) -> Result<JobJson<'_>> {
    let mut facts = serde_json::to_value(job)?;
    if let Value::Object(map) = &mut facts {
        map.remove("payload");
        map.remove("result");
        // By the name that it has everywhere outside of the store.
        if let Some(context) = map.remove("trace") {
            map.insert("traceparent".into(), context);
        }
    }
    times_as_text(&mut facts);
    Ok(JobJson { facts, payload: raw(&job.payload)?, result: job.result.as_ref().map(raw).transpose()? })
}

fn raw(payload: &Payload) -> Result<&RawValue> {
    Ok(serde_json::from_str(payload.as_str())?)
}

/// Any value for programs, instants as text.
pub(crate) fn facts<T: Serialize>(value: &T) -> Result<Value> {
    let mut value = serde_json::to_value(value)?;
    times_as_text(&mut value);
    Ok(value)
}

/// The job, or the error that says how to find another.
pub(crate) async fn get(store: &dyn Store, id: JobId) -> Result<Job> {
    store.get(id).await?.ok_or_else(|| no_such_job(id))
}

/// The error of an unknown job.
pub(crate) fn no_such_job(id: JobId) -> Failure {
    Failure::new(codes::JOB_NOT_FOUND, format!("there is no job {id}"))
}
