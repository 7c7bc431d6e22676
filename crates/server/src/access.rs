//! Who may use a route: role and tenant, decided from one table.

use std::sync::Arc;

use tidegate_core::codes;
use tidegate_core::ids::{GroupKey, TenantId};
use tidegate_wire::Problem;
use tidegate_wire::keys::{Key, Role};

/// Whether a role may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allow {
    /// It may not.
    No,
    /// It may.
    Yes,
    /// Only with a key that is restricted to a tenant: without one it would see what others enqueued.
    IfRestricted,
}

/// What a route has to do with tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenancy {
    /// Nothing: it shows and changes nothing of any tenant.
    Neutral,
    /// A key that is restricted to a tenant sees and touches that tenant's things alone.
    Scoped,
    /// It crosses tenants: refused to a key that is restricted to one.
    Crossing,
}

/// Who may use a route. Admins may use all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Nobody needs a key.
    pub open: bool,
    /// Operators.
    pub operator: Allow,
    /// Producers.
    pub producer: Allow,
    /// Workers.
    pub worker: Allow,
    /// What it has to do with tenants.
    pub tenancy: Tenancy,
}

impl Access {
    const fn new(operator: Allow, producer: Allow, worker: Allow, tenancy: Tenancy) -> Self {
        Self { open: false, operator, producer, worker, tenancy }
    }

    /// Everybody, without a key.
    pub const OPEN: Self =
        Self { open: true, ..Self::new(Allow::Yes, Allow::Yes, Allow::Yes, Tenancy::Neutral) };
    /// Everybody with a key.
    pub const ALL: Self = Self::new(Allow::Yes, Allow::Yes, Allow::Yes, Tenancy::Neutral);
    /// Enqueue.
    pub const ENQUEUE: Self = Self::new(Allow::Yes, Allow::Yes, Allow::No, Tenancy::Scoped);
    /// Look at one thing that one knows the id of.
    pub const LOOK: Self = Self::new(Allow::Yes, Allow::Yes, Allow::No, Tenancy::Scoped);
    /// Look at a job: workers at what they hold.
    pub const LOOK_OR_HOLD: Self = Self::new(Allow::Yes, Allow::Yes, Allow::Yes, Tenancy::Scoped);
    /// Look at many.
    pub const BROWSE: Self = Self::new(Allow::Yes, Allow::IfRestricted, Allow::No, Tenancy::Scoped);
    /// Control what belongs to a tenant.
    pub const CONTROL: Self = Self::new(Allow::Yes, Allow::No, Allow::No, Tenancy::Scoped);
    /// Look at or control what all tenants share.
    pub const OPERATE: Self = Self::new(Allow::Yes, Allow::No, Allow::No, Tenancy::Crossing);
    /// What workers and operators share.
    pub const SERVE: Self = Self::new(Allow::Yes, Allow::No, Allow::Yes, Tenancy::Crossing);
    /// What workers alone do.
    pub const WORK: Self = Self::new(Allow::No, Allow::No, Allow::Yes, Tenancy::Crossing);
    /// Admins, each for what their key covers.
    pub const ADMIN: Self = Self::new(Allow::No, Allow::No, Allow::No, Tenancy::Scoped);

    /// Whether this caller may use the route.
    pub fn allows(self, role: Role, restricted: bool) -> bool {
        let allow = match role {
            Role::Admin => Allow::Yes,
            Role::Operator => self.operator,
            Role::Producer => self.producer,
            Role::Worker => self.worker,
        };
        let by_role = match allow {
            Allow::No => false,
            Allow::Yes => true,
            Allow::IfRestricted => restricted,
        };
        // What a worker holds is of every tenant, so a key of one tenant cannot be a worker's.
        let crosses = restricted
            && (self.tenancy == Tenancy::Crossing
                || role == Role::Worker && self.tenancy != Tenancy::Neutral);
        by_role && !crosses
    }
}

/// Who sent a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The key; none where the server needs none.
    pub(crate) key: Option<Arc<Key>>,
}

impl Caller {
    /// A program of this machine, at a server without keys.
    pub(crate) fn local() -> Self {
        Self { key: None }
    }

    pub(crate) fn role(&self) -> Role {
        self.key.as_ref().map_or(Role::Admin, |k| k.role)
    }

    /// The tenant that everything is restricted to.
    pub(crate) fn tenant(&self) -> Option<&TenantId> {
        self.key.as_ref().and_then(|k| k.tenant.as_ref())
    }

    /// Who it was, for the record.
    pub(crate) fn name(&self) -> &str {
        self.key.as_ref().map_or("operator", |k| k.name.as_str())
    }

    /// Within which idempotency keys are the same.
    pub(crate) fn scope(&self) -> &str {
        self.key.as_ref().map_or("local", |k| k.id.as_str())
    }

    /// Whether things of this tenant are there for the caller.
    pub(crate) fn sees(&self, tenant: Option<&TenantId>) -> bool {
        self.tenant().is_none_or(|own| tenant == Some(own))
    }

    /// Whether things of this group are there for the caller: the one that has the tenant's name, in which its jobs are
    /// unless they say otherwise. Every character of a group's name can be in a tenant's, so `acme:eu` may be the group
    /// of a tenant `acme:eu`, and no group can be known to be below another tenant's.
    pub(crate) fn sees_group(&self, group: &GroupKey) -> bool {
        self.tenant().is_none_or(|own| group.as_str() == own.as_str())
    }

    /// Refuses what the role or the tenant do not allow.
    pub(crate) fn check(&self, access: Access) -> Result<(), Problem> {
        if access.allows(self.role(), self.tenant().is_some()) {
            return Ok(());
        }
        let why = match (self.role(), self.tenant()) {
            (role, Some(tenant)) => format!("a {role} key of tenant `{tenant}` cannot do this"),
            (role, None) => format!("a {role} key cannot do this"),
        };
        Err(Problem::new(codes::NOT_ALLOWED, why))
    }
}
