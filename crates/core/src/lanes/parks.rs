//! Parks: what stops lanes, and until when.

use super::{GATE_PARK, LaneId, LaneKey, Lanes};
use crate::ids::QueueName;
use crate::job::{Park, ParkScope};
use crate::time::Timestamp;

impl Lanes {
    /// Adds a park, or replaces the one of the same scope and owner.
    pub fn park(&mut self, park: Park, now: Timestamp) {
        self.unpark(&park.scope, &park.by, now);
        if let Some(until) = park.until {
            self.park_ends.insert((until, park.scope.clone(), park.by.clone()));
        }
        self.shift_parks(&park.scope, true, now);
        if let Some(until) = park.until.filter(|_| park.by.starts_with(GATE_PARK)) {
            self.begin_caution(&park.scope, until, now);
        }
        self.parks.insert((park.scope.clone(), park.by.clone()), park);
    }

    /// Removes a park; the others stay.
    pub fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Option<Park> {
        let park = self.parks.remove(&(scope.clone(), by.to_owned()))?;
        if let Some(until) = park.until {
            self.park_ends.remove(&(until, scope.clone(), by.to_owned()));
        }
        self.shift_parks(scope, false, now);
        Some(park)
    }

    pub(super) fn shift_parks(&mut self, scope: &ParkScope, up: bool, now: Timestamp) {
        let shift = |n: &mut u32| *n = if up { *n + 1 } else { n.saturating_sub(1) };
        let lanes = match scope {
            ParkScope::Queue(name) => {
                if let Some(q) = self.queue_ids.get(name).and_then(|id| self.queues.get_mut(id)) {
                    shift(&mut q.parks);
                }
                return;
            }
            ParkScope::Group(g) | ParkScope::GroupOnConnector(g, _) => self.lanes_of_group.get(g),
            ParkScope::Connector(c) => self.lanes_of_connector.get(c),
        };
        for id in lanes.cloned().unwrap_or_default() {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if let ParkScope::GroupOnConnector(_, c) = scope
                && lane.key.connector.as_ref() != Some(c)
            {
                continue;
            }
            shift(&mut lane.parks);
            self.refresh(id, now);
        }
    }

    /// All parks.
    pub fn parks(&self) -> impl Iterator<Item = &Park> {
        self.parks.values()
    }

    /// Until when this owner has parked this scope.
    pub fn parked_until(&self, scope: &ParkScope, by: &str) -> Option<Timestamp> {
        self.parks.get(&(scope.clone(), by.to_owned())).and_then(|p| p.until)
    }

    /// Whether this owner has a park on this scope.
    pub fn is_parked_by(&self, scope: &ParkScope, by: &str) -> bool {
        self.parks.contains_key(&(scope.clone(), by.to_owned()))
    }

    /// The parks that cover a lane.
    pub fn parks_of(&self, lane: LaneId) -> Vec<&Park> {
        let Some(key) = self.lane_key(lane) else { return vec![] };
        let queue = self.queues.get(&key.queue).map(|q| ParkScope::Queue(q.name.clone()));
        scopes_of(key).into_iter().chain(queue).flat_map(|scope| self.parks_on(scope)).collect()
    }

    /// The parks of exactly this scope.
    pub(super) fn parks_on(&self, scope: ParkScope) -> impl Iterator<Item = &Park> {
        let first = (scope.clone(), String::new());
        self.parks.range(first..).take_while(move |((s, _), _)| *s == scope).map(|(_, park)| park)
    }

    /// The parks whose time has come, by the time they end.
    pub fn ended_parks(&self, now: Timestamp) -> Vec<Park> {
        let ended = self.park_ends.iter().take_while(|(until, _, _)| *until <= now);
        ended.filter_map(|(_, scope, by)| self.parks.get(&(scope.clone(), by.clone())).cloned()).collect()
    }

    /// Parks of a queue itself: pauses.
    pub fn parks_of_queue(&self, name: &QueueName) -> Vec<&Park> {
        self.parks.values().filter(|p| matches!(&p.scope, ParkScope::Queue(q) if q == name)).collect()
    }
}

/// The scopes, other than its queue, whose parks cover a lane.
pub(super) fn scopes_of(key: &LaneKey) -> Vec<ParkScope> {
    let mut scopes = vec![ParkScope::Group(key.group.clone())];
    if let Some(c) = &key.connector {
        scopes.push(ParkScope::Connector(c.clone()));
        scopes.push(ParkScope::GroupOnConnector(key.group.clone(), c.clone()));
    }
    scopes
}
