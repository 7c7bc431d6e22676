//! A span: something that took time, in a trace.

use tidegate_core::ids::{JobId, KindName, QueueName, TenantId};
use tidegate_core::trace::{Place, TraceParent};

/// What a span is to the ones around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Puts something where another takes it.
    Producer,
    /// Takes it.
    Consumer,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A name, an id or a code.
    Text(String),
    /// A number.
    Number(i64),
}

/// Something that happened at one time within a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub name: &'static str,
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// More about it.
    pub attributes: Vec<(&'static str, Value)>,
}

/// A span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its trace and its own id.
    pub context: TraceParent,
    /// The span that it is a child of.
    pub parent: Option<u64>,
    /// Its name.
    pub name: String,
    /// What it is to others.
    pub kind: Kind,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// What it was about.
    pub attributes: Vec<(&'static str, Value)>,
    /// What happened within it.
    pub events: Vec<Event>,
    /// Whether it failed.
    pub failed: bool,
}

/// The job that a span is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) id: JobId,
    pub(crate) kind: &'a KindName,
    /// Not known if it is its kind's, at an enqueue.
    pub(crate) queue: Option<&'a QueueName>,
    pub(crate) tenant: Option<&'a TenantId>,
}

impl Span {
    pub(crate) fn begin(place: Place, kind: Kind, verb: &str, subject: Subject<'_>, began_ns: u64) -> Self {
        let Subject { id, kind: name, queue, tenant } = subject;
        let text = |v: &str| Value::Text(v.to_owned());
        let mut attributes = vec![
            ("messaging.system", text("tidegate")),
            ("messaging.operation.name", text(verb)),
            ("messaging.message.id", Value::Text(id.to_string())),
            ("tidegate.kind", text(name.as_str())),
        ];
        attributes.extend(queue.map(|q| ("messaging.destination.name", text(q.as_str()))));
        attributes.extend(tenant.map(|t| ("tidegate.tenant", text(t.as_str()))));
        Self {
            context: place.own,
            parent: place.parent,
            name: format!("{verb} {name}"),
            kind,
            began_ns,
            ended_ns: began_ns,
            attributes,
            events: vec![],
            failed: false,
        }
    }

    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// The job's id as it turned out to be.
    pub(crate) fn set_job(&mut self, id: JobId) {
        let id = Value::Text(id.to_string());
        if let Some(known) = self.attributes.iter_mut().find(|(name, _)| *name == "messaging.message.id") {
            known.1 = id;
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}
