//! Parks on the wire.

use serde::{Deserialize, Serialize};
use tidegate_core::codes;
use tidegate_core::ids::{ConnectorName, GroupKey, QueueName};
use tidegate_core::job;
use tidegate_core::time::Timestamp;

use crate::query::{Query, Writer};
use crate::settlements::one_time;
use crate::{Problem, Time};

/// What a park stops: a queue, a group, a connector, or a group on a connector.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scope {
    /// A queue; not with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "billing"))]
    pub queue: Option<QueueName>,
    /// A group, in every queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub group: Option<GroupKey>,
    /// Everything that calls this API; with `group`: that group's calls alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub connector: Option<ConnectorName>,
}

impl From<job::ParkScope> for Scope {
    fn from(scope: job::ParkScope) -> Self {
        let none = Self::default();
        match scope {
            job::ParkScope::Queue(queue) => Self { queue: Some(queue), ..none },
            job::ParkScope::Group(group) => Self { group: Some(group), ..none },
            job::ParkScope::Connector(connector) => Self { connector: Some(connector), ..none },
            job::ParkScope::GroupOnConnector(group, connector) => {
                Self { group: Some(group), connector: Some(connector), ..none }
            }
        }
    }
}

impl Scope {
    /// The scope, if what is named makes one.
    pub fn into_scope(self) -> Result<job::ParkScope, Problem> {
        match (self.queue, self.group, self.connector) {
            (Some(queue), None, None) => Ok(job::ParkScope::Queue(queue)),
            (None, Some(group), None) => Ok(job::ParkScope::Group(group)),
            (None, None, Some(connector)) => Ok(job::ParkScope::Connector(connector)),
            (None, Some(group), Some(connector)) => Ok(job::ParkScope::GroupOnConnector(group, connector)),
            (None, None, None) => Err(Problem::invalid("name a `queue`, a `group` or a `connector`")),
            (Some(_), _, _) => {
                Err(Problem::invalid("`queue` goes with neither `group` nor `connector`").at("/queue"))
            }
        }
    }
}

/// A stop on a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Park {
    /// What is stopped.
    pub scope: Scope,
    /// Who stopped it; one park per scope and owner.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself; `null`: when it is removed.
    pub until: Option<Time>,
}

impl From<job::Park> for Park {
    fn from(p: job::Park) -> Self {
        Self { scope: p.scope.into(), by: p.by, reason: p.reason, until: p.until.map(Time) }
    }
}

impl TryFrom<Park> for job::Park {
    type Error = Problem;
    fn try_from(p: Park) -> Result<Self, Problem> {
        Ok(Self { scope: p.scope.into_scope()?, by: p.by, reason: p.reason, until: p.until.map(|t| t.0) })
    }
}

/// Stop a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParkRequest {
    /// What is stopped.
    pub scope: Scope,
    /// By whom and for how long.
    #[serde(default)]
    pub pause: Pause,
}

/// Who stops something, why and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pause {
    /// Who; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "ada"))]
    pub by: Option<String>,
    /// Why.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "month end"))]
    pub reason: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The same as a span from now; not with `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<i64>,
}

impl Pause {
    /// The park of this scope. `default_by` is who asks, if the request does not say.
    pub fn into_park(
        self,
        scope: job::ParkScope,
        default_by: &str,
        now: Timestamp,
    ) -> Result<job::Park, Problem> {
        let until = one_time(self.until, self.for_ms, ("until", "for_ms"), now)?;
        Ok(job::Park {
            scope,
            by: self.by.unwrap_or_else(|| default_by.to_owned()),
            reason: self.reason,
            until,
        })
    }
}

impl ParkRequest {
    /// The request of somebody for whom it is `now`. The end goes as a span: the clocks of two machines differ.
    pub fn new(park: job::Park, now: Timestamp) -> Self {
        let for_ms = park.until.map(|t| t.since(now).max(0));
        let pause = Pause { by: Some(park.by), reason: park.reason, until: None, for_ms };
        Self { scope: park.scope.into(), pause }
    }

    /// The park, at this time.
    pub fn into_park(self, default_by: &str, now: Timestamp) -> Result<job::Park, Problem> {
        let scope = self.scope.into_scope().map_err(|p| p.within("/scope"))?;
        self.pause.into_park(scope, default_by, now).map_err(|p| p.within("/pause"))
    }
}

/// End a pause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resume {
    /// Whose pause; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// All parks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Parks {
    /// The parks.
    pub parks: Vec<Park>,
}

/// Which park to remove, as a query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkQuery {
    /// Its scope.
    pub scope: Scope,
    /// Its owner; the name of the key if not given.
    pub by: Option<String>,
}

impl ParkQuery {
    /// `?queue=…&by=…`
    pub fn to_query(&self) -> String {
        Writer::default()
            .with("queue", self.scope.queue.as_ref())
            .with("group", self.scope.group.as_ref())
            .with("connector", self.scope.connector.as_ref())
            .with("by", self.by.as_ref())
            .end()
    }

    /// Reads a query string.
    pub fn from_query(text: &str) -> Result<Self, Problem> {
        let mut query = Query::new(text)?;
        let scope = Scope {
            queue: query.parse("queue", codes::INVALID_NAME)?,
            group: query.parse("group", codes::INVALID_NAME)?,
            connector: query.parse("connector", codes::INVALID_NAME)?,
        };
        let by = query.take("by")?.map(std::borrow::Cow::into_owned);
        query.end()?;
        Ok(Self { scope, by })
    }
}

/// Groups that are stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Groups {
    /// The groups, by name.
    pub groups: Vec<Group>,
}

/// A group with what stops it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Group {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: GroupKey,
    /// Its parks.
    pub parks: Vec<Park>,
}
