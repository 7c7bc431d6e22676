//! Lanes that could run now, and the limits of kinds.
//!
//! Jobs of a kind with a limit have lanes of their own, and those lanes a set of their own in each queue. Whether the kind is
//! full is asked when a claim looks at the set: a place taken or freed costs the same for one group as for ten thousand.

use std::collections::{BTreeMap, BTreeSet};

use super::LaneId;
use crate::hash::KeyMap;
use crate::ids::Seq;
use crate::leases::KindId;

/// Lanes of a queue that could run now.
#[derive(Debug, Default)]
pub(super) struct Active {
    lanes: BTreeSet<(u8, u64, LaneId)>,
    /// How many there are per level.
    at: [u64; 4],
    /// Lanes whose suspects may run, by their first suspect.
    suspects: BTreeSet<(Seq, LaneId)>,
}

impl Active {
    pub(super) fn insert(&mut self, level: u8, vtime: u64, lane: LaneId) {
        self.at[usize::from(level - 1)] += 1;
        self.lanes.insert((level, vtime, lane));
    }

    pub(super) fn remove(&mut self, level: u8, vtime: u64, lane: LaneId) {
        self.lanes.remove(&(level, vtime, lane));
        self.at[usize::from(level - 1)] -= 1;
    }

    pub(super) fn move_suspect(&mut self, from: Option<Seq>, to: Option<Seq>, lane: LaneId) {
        if let Some(old) = from {
            self.suspects.remove(&(old, lane));
        }
        if let Some(new) = to {
            self.suspects.insert((new, lane));
        }
    }
}

/// All such lanes of a queue: those of kinds without a limit, and those of each kind that has one.
#[derive(Debug, Default)]
pub(super) struct ActiveSets {
    free: Active,
    capped: BTreeMap<KindId, Active>,
}

impl ActiveSets {
    /// The set that a lane belongs to.
    pub(super) fn of(&mut self, kind: Option<KindId>) -> &mut Active {
        match kind {
            None => &mut self.free,
            Some(kind) => self.capped.entry(kind).or_default(),
        }
    }

    /// Sets whose kind has a place left.
    fn open<'a>(&'a self, caps: &'a Caps) -> impl Iterator<Item = &'a Active> {
        let open = self.capped.iter().filter(|(kind, _)| caps.free(**kind) > 0);
        std::iter::once(&self.free).chain(open.map(|(_, active)| active))
    }

    /// The lane that is served next: (level, virtual time, lane).
    pub(super) fn first(&self, caps: &Caps) -> Option<(u8, u64, LaneId)> {
        if self.capped.is_empty() {
            return self.free.lanes.first().copied();
        }
        self.open(caps).filter_map(|a| a.lanes.first()).min().copied()
    }

    /// The suspect that comes first.
    pub(super) fn first_suspect(&self, caps: &Caps) -> Option<(Seq, LaneId)> {
        self.open(caps).filter_map(|a| a.suspects.first()).min().copied()
    }

    /// Lanes on a level that could run now.
    pub(super) fn at(&self, level: usize, caps: &Caps) -> u64 {
        self.open(caps).map(|a| a.at[level]).sum()
    }

    /// Every lane, also of kinds that are full, in order.
    pub(super) fn all(&self) -> BTreeSet<(u8, u64, LaneId)> {
        let capped = self.capped.values().flat_map(|a| &a.lanes);
        self.free.lanes.iter().chain(capped).copied().collect()
    }

    /// Lanes on better levels than this one, as many as asked for.
    pub(super) fn better(&self, level: u8, caps: &Caps, bound: usize) -> Vec<LaneId> {
        let of = |a: &Active| {
            a.lanes.range(..(level, 0, LaneId(0))).map(|(_, _, id)| *id).take(bound).collect::<Vec<_>>()
        };
        self.open(caps).flat_map(of).take(bound).collect()
    }
}

/// A kind's limit, and what runs of its lanes.
#[derive(Debug, Default, Clone, Copy)]
struct Cap {
    limit: Option<u32>,
    running: u32,
}

/// Limits of kinds.
#[derive(Debug, Default)]
pub(super) struct Caps(KeyMap<KindId, Cap>);

impl Caps {
    /// Sets or lifts a limit.
    pub(super) fn set(&mut self, kind: KindId, limit: Option<u32>) {
        match self.0.get_mut(&kind) {
            Some(cap) => cap.limit = limit,
            None if limit.is_some() => {
                self.0.insert(kind, Cap { limit, running: 0 });
            }
            None => {}
        }
    }

    /// Places left.
    pub(super) fn free(&self, kind: KindId) -> u32 {
        self.0.get(&kind).map_or(u32::MAX, |c| c.limit.map_or(u32::MAX, |l| l.saturating_sub(c.running)))
    }

    /// Jobs of a lane of this kind run, or no longer.
    pub(super) fn shift(&mut self, kind: Option<KindId>, n: u32, up: bool) {
        let Some(kind) = kind else { return };
        let running = &mut self.0.entry(kind).or_default().running;
        *running = if up { *running + n } else { running.saturating_sub(n) };
    }

    /// Running jobs and limit, if there is one.
    pub(super) fn load(&self, kind: KindId) -> Option<(u32, u32)> {
        let cap = self.0.get(&kind)?;
        Some((cap.running, cap.limit?))
    }
}
