//! Names in memory: what has a number in the rows.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::hash::KeyMap;
use tidegate_core::ids::{KindName, QueueName, TenantId};
use tidegate_core::lanes::{LaneId, QueueId};
use tidegate_core::policies::Policies;
use tidegate_core::registry::{KindSettings, QueueSettings};

use crate::rows::{KindId, TenantNo};

/// Queues, kinds and tenants with their numbers.
#[derive(Debug, Default)]
pub(super) struct NameBook {
    queue_ids: BTreeMap<QueueName, QueueId>,
    queues: KeyMap<QueueId, (QueueName, QueueSettings)>,
    kind_ids: HashMap<KindName, KindId>,
    kinds: BTreeMap<KindId, (KindName, KindSettings)>,
    tenant_ids: HashMap<TenantId, TenantNo>,
    tenants: KeyMap<TenantNo, TenantId>,
    last_queue: u32,
    last_kind: u32,
    last_tenant: u32,
    last_lane: u32,
    /// Retry policies of the registry.
    pub(super) policies: Policies,
    /// Last number in the registry's history.
    pub(super) version: u64,
}

impl NameBook {
    pub(super) fn queue_id(&self, name: &QueueName) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    pub(super) fn queue(&self, id: QueueId) -> Option<&(QueueName, QueueSettings)> {
        self.queues.get(&id)
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = (&QueueName, QueueId)> {
        self.queue_ids.iter().map(|(name, id)| (name, *id))
    }

    /// The number of a queue: its own, or the next one.
    pub(super) fn queue_number(&self, name: &QueueName) -> QueueId {
        self.queue_id(name).unwrap_or(QueueId(self.last_queue + 1))
    }

    /// Adds a queue or changes it.
    pub(super) fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) {
        self.last_queue = self.last_queue.max(id.0);
        self.queue_ids.insert(name.clone(), id);
        self.queues.insert(id, (name.clone(), settings.clone()));
    }

    pub(super) fn kind_id(&self, name: &KindName) -> Option<KindId> {
        self.kind_ids.get(name).copied()
    }

    pub(super) fn kind(&self, id: KindId) -> Option<&(KindName, KindSettings)> {
        self.kinds.get(&id)
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (KindId, &(KindName, KindSettings))> {
        self.kinds.iter().map(|(id, kind)| (*id, kind))
    }

    /// The number of a kind: its own, or the next one.
    pub(super) fn kind_number(&self, name: &KindName) -> KindId {
        self.kind_id(name).unwrap_or(KindId(self.last_kind + 1))
    }

    /// Adds a kind or changes it.
    pub(super) fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) {
        self.last_kind = self.last_kind.max(id.0);
        self.kind_ids.insert(name.clone(), id);
        self.kinds.insert(id, (name.clone(), settings.clone()));
    }

    pub(super) fn tenant_no(&self, name: &TenantId) -> Option<TenantNo> {
        self.tenant_ids.get(name).copied()
    }

    pub(super) fn tenant(&self, no: TenantNo) -> Option<&TenantId> {
        self.tenants.get(&no)
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = (TenantNo, &TenantId)> {
        self.tenants.iter().map(|(no, name)| (*no, name))
    }

    /// The number of the next new tenant.
    pub(super) fn next_tenant(&self) -> TenantNo {
        TenantNo(self.last_tenant + 1)
    }

    /// Adds a tenant.
    pub(super) fn put_tenant(&mut self, no: TenantNo, name: &TenantId) {
        self.last_tenant = self.last_tenant.max(no.0);
        self.tenant_ids.insert(name.clone(), no);
        self.tenants.insert(no, name.clone());
    }

    /// The number of the next new lane.
    pub(super) fn next_lane(&self) -> LaneId {
        LaneId(self.last_lane + 1)
    }

    /// A lane has this number.
    pub(super) fn put_lane(&mut self, id: LaneId) {
        self.last_lane = self.last_lane.max(id.0);
    }

    pub(super) fn forget_tenant(&mut self, no: TenantNo) {
        if let Some(name) = self.tenants.remove(&no) {
            self.tenant_ids.remove(&name);
        }
    }

    /// The registered queue whose name is closest, for "did you mean".
    pub(super) fn nearest_queue(&self, name: &QueueName) -> Option<&QueueName> {
        self.queue_ids.keys().filter(|n| alike(n.as_str(), name.as_str())).min_by_key(|n| n.as_str().len())
    }

    /// The registered kind whose name is closest.
    pub(super) fn nearest_kind(&self, name: &KindName) -> Option<&KindName> {
        self.kind_ids.keys().filter(|n| alike(n.as_str(), name.as_str())).min()
    }
}

/// Whether two names differ by at most two edits and at most half of their letters, or one contains the other.
fn alike(a: &str, b: &str) -> bool {
    if a.len() >= 3 && b.len() >= 3 && (a.contains(b) || b.contains(a)) {
        return true;
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()] <= 2.min(a.len().max(b.len()) / 2)
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn close_names_are_found() {
        assert!(
            alike("billing", "biling") && alike("invoice.send", "invoice") && !alike("billing", "reports")
        );
        assert!(alike("q1", "q2") && !alike("a", "b"));
    }
}
