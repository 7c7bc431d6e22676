//! Replies of the scripts, read into the types of the specification.

use std::sync::Arc;

use redis::Value;
use tidegate_core::gates::{
    Admission, Admitted, Because, BreakerState, Call, Change, Freed, Gate, GateView, Holder, HolderView,
    Kind, LeaseEnd, Micros, Never, Part, Permit, Points, Refused, Room, ScopeView, Settled, Target, Unit,
    Wait, WaiterView,
};

use crate::GatesError;

/// Names the line where no gate is to blame.
const LINE: &str = "line";

/// A list that is read from front to back.
pub(super) struct Reader {
    items: std::vec::IntoIter<Value>,
}

type Read<T> = Result<T, GatesError>;

fn odd(what: &str, value: &Value) -> GatesError {
    GatesError::Corrupt(format!("a script answered {value:?} where {what} belongs"))
}

impl Reader {
    pub(super) fn new(value: Value) -> Read<Self> {
        match value {
            Value::Array(items) => Ok(Self { items: items.into_iter() }),
            other => Err(odd("a list", &other)),
        }
    }

    fn next(&mut self) -> Read<Value> {
        self.items.next().ok_or_else(|| GatesError::Corrupt("a script answered too little".into()))
    }

    pub(super) fn number(&mut self) -> Read<i64> {
        number(self.next()?)
    }

    fn small(&mut self) -> Read<u32> {
        Ok(self.number()?.clamp(0, i64::from(u32::MAX)) as u32)
    }

    fn truth(&mut self) -> Read<bool> {
        Ok(self.number()? != 0)
    }

    fn points(&mut self) -> Read<Points> {
        self.number().map(Points)
    }

    pub(super) fn text(&mut self) -> Read<String> {
        text(self.next()?)
    }

    pub(super) fn list(&mut self) -> Read<Self> {
        Self::new(self.next()?)
    }

    fn unit(&mut self) -> Read<Unit> {
        Ok(if self.truth()? { Unit::Cost } else { Unit::Calls })
    }

    fn holder(&mut self) -> Read<Holder> {
        let name = self.text()?;
        Holder::new(&name).map_err(|e| GatesError::Corrupt(e.to_string()))
    }

    fn holders(&mut self) -> Read<Vec<Holder>> {
        let mut list = self.list()?;
        let mut holders = Vec::new();
        while list.items.len() > 0 {
            holders.push(list.holder()?);
        }
        Ok(holders)
    }

    fn target(&mut self, domain: &str) -> Read<Arc<Target>> {
        let mut list = self.list()?;
        let wrong = |e: tidegate_core::ids::InvalidName| GatesError::Corrupt(e.to_string());
        let mut target = Target::new(domain).map_err(wrong)?;
        for part in Part::ALL {
            let text = list.text()?;
            target = target.with(part, &text).map_err(wrong)?;
        }
        Ok(Arc::new(target))
    }

    fn name(&mut self, gates: &[Gate]) -> Read<Arc<str>> {
        let at = self.number()?;
        let gate = usize::try_from(at).ok().and_then(|at| gates.get(at));
        Ok(Arc::from(gate.map_or(LINE, |g| g.name.as_str())))
    }

    fn breaker_state(&mut self) -> Read<BreakerState> {
        Ok(match self.number()? {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            2 => BreakerState::HalfOpen,
            3 => BreakerState::Ramp,
            _ => BreakerState::OpenForProcess,
        })
    }

    fn because(&mut self) -> Read<Because> {
        Ok(match self.number()? {
            0 => Because::Purging,
            1 => Because::QueueFull { waiting: self.small()? },
            2 => Because::CoolingDown,
            3 => Because::Smooth {
                free: self.number()?,
                need: self.number()?,
                rate: self.number()?,
                every: self.number()?,
                unit: self.unit()?,
            },
            4 => Because::Window {
                used: self.number()?,
                need: self.number()?,
                max: self.number()?,
                every: self.number()?,
                unit: self.unit()?,
            },
            5 => Because::Level {
                level: self.points()?,
                capacity: self.points()?,
                need: self.points()?,
                margin: self.points()?,
                restore_per_s: self.points()?,
            },
            6 => Because::Cut { capacity: self.points()?, need: self.points()? },
            7 => Because::Slots { used: self.small()?, limit: self.small()? },
            8 => Because::Locked,
            9 => Because::BreakerOpen,
            10 => Because::BreakerProbing { probes: self.small()? },
            11 => Because::BreakerRamp { live: self.small()?, allowed: self.small()? },
            12 => Because::BreakerProcess,
            13 => Because::QuotaSlots { live: self.small()?, max: self.small()?, hoarding: self.truth()? },
            14 => Because::QuotaCost {
                used: self.points()?,
                need: self.points()?,
                max: self.points()?,
                every: self.number()?,
            },
            other => return Err(GatesError::Corrupt(format!("a script gave the reason {other}"))),
        })
    }

    fn lease(&mut self, domain: &str) -> Read<HolderView> {
        Ok(HolderView {
            target: self.target(domain)?,
            holder: self.holder()?,
            fence: self.number()?,
            admitted_at: self.number()?,
            expires_at: self.number()?,
            cost: self.points()?,
            quarantined: self.truth()?,
        })
    }
}

fn number(value: Value) -> Read<i64> {
    match value {
        Value::Int(n) => Ok(n),
        other => Err(odd("a number", &other)),
    }
}

fn text(value: Value) -> Read<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|e| GatesError::Corrupt(e.to_string())),
        Value::SimpleString(text) => Ok(text),
        other => Err(odd("a text", &other)),
    }
}

/// The answer to a call, and whether its partition is new (1) or long unlisted (also 1).
pub(super) fn admission(value: Value, call: &Call, gates: &[Gate]) -> Read<(Admission, bool)> {
    if let Value::BulkString(bytes) = &value {
        return Ok((Admission::Admitted(usual(bytes, call)?), false));
    }
    let mut r = Reader::new(value)?;
    let (kind, fresh) = (r.number()?, r.truth()?);
    let reply = match kind {
        0 => {
            let (fence, cost) = (r.number()?, r.points()?);
            let (admitted_at, use_by, expires_at) = (r.number()?, r.number()?, r.number()?);
            let (remaining, room) = (r.small()?, Room { shared: r.small()?, own: r.small()? });
            let woken = r.holders()?;
            // The script names a target only where the permit is an older one.
            let older = match r.next()? {
                Value::Array(parts) if parts.is_empty() => None,
                parts => Some(Reader { items: vec![parts].into_iter() }.target(call.target.domain())?),
            };
            let target = older.filter(|t| **t != *call.target).unwrap_or_else(|| call.target.clone());
            let permit = Permit { target, holder: call.holder, fence, cost, admitted_at, use_by, expires_at };
            Admission::Admitted(Admitted { permit, remaining, room, woken })
        }
        1 => {
            let (gate, retry_at) = (r.name(gates)?, r.number()?);
            let (position, arrived) = (r.small()?, r.number()?);
            let (woken, because) = (r.holders()?, r.because()?);
            Admission::Wait(Wait {
                gate,
                because,
                retry_at,
                position: (position > 0).then_some(position),
                arrived,
                woken,
            })
        }
        _ => {
            let gate = r.name(gates)?;
            let (because, cost, capacity) = (r.number()?, r.number()?, r.number()?);
            let because = match because {
                0 => Never::CostAboveCapacity { cost, capacity },
                1 => Never::StaleAsk,
                2 => Never::Deadline,
                _ => Never::Invalid,
            };
            Admission::Refused(Refused { gate, because, woken: r.holders()? })
        }
    };
    Ok((reply, fresh))
}

/// The usual admission: numbers alone.
fn usual(bytes: &[u8], call: &Call) -> Read<Admitted> {
    let mut numbers = [0i64; 10];
    let short = || GatesError::Corrupt(format!("a script answered {} bytes of numbers", bytes.len()));
    if bytes.len() != numbers.len() * 8 {
        return Err(short());
    }
    for (number, eight) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = f64::from_be_bytes(eight.try_into().map_err(|_| short())?) as i64;
    }
    let [fence, admitted_at, use_by, expires_at, remaining, _, _, _, shared, own] = numbers;
    let count = |n: i64| n.clamp(0, i64::from(u32::MAX)) as u32;
    let (target, holder, cost) = (call.target.clone(), call.holder, call.cost);
    let permit = Permit { target, holder, fence, cost, admitted_at, use_by, expires_at };
    let room = Room { shared: count(shared), own: count(own) };
    Ok(Admitted { permit, remaining: count(remaining), room, woken: Vec::new() })
}

/// Holders with spaces between.
fn names(text: &str) -> Read<Vec<Holder>> {
    let read = |name: &str| Holder::new(name).map_err(|e| GatesError::Corrupt(e.to_string()));
    text.split(' ').filter(|name| !name.is_empty()).map(read).collect()
}

/// The answer to a settlement.
pub(super) fn settled(value: Value, gates: &[Gate]) -> Read<Settled> {
    let usual = |woken| Settled { state: LeaseEnd::Released, woken, changes: Vec::new() };
    let mut r = match value {
        Value::Int(0) => return Ok(usual(Vec::new())),
        Value::BulkString(_) => return names(&text(value)?).map(usual),
        list => Reader::new(list)?,
    };
    let (state, until) = (r.number()?, r.number()?);
    let state = match state {
        0 => LeaseEnd::Released,
        1 => LeaseEnd::Quarantined { until },
        _ => LeaseEnd::Gone,
    };
    let woken = r.holders()?;
    let (mut list, mut changes) = (r.list()?, Vec::new());
    while list.items.len() > 0 {
        let mut c = list.list()?;
        let (kind, gate) = (c.number()?, c.name(gates)?);
        changes.push(match kind {
            0 => Change::Limit { gate, from: c.small()?, to: c.small()?, refused: c.truth()? },
            1 => Change::Breaker { gate, to: c.breaker_state()? },
            _ => Change::ForeignUse { gate, cost: c.points()? },
        });
    }
    Ok(Settled { state, woken, changes })
}

/// When a renewed permit ends; none if it is gone.
pub(super) fn renewed(value: Value) -> Read<Option<Micros>> {
    Ok(Some(number(value)?).filter(|at| *at != 0))
}

/// A number alone.
pub(super) fn count(value: Value) -> Read<u32> {
    Ok(number(value)?.clamp(0, i64::from(u32::MAX)) as u32)
}

pub(super) fn freed(value: Value) -> Read<Freed> {
    let mut r = Reader::new(value)?;
    Ok(Freed { gone: r.small()?, more: r.truth()?, woken: r.holders()? })
}

/// Leases, one list each.
pub(super) fn leases(value: Value, domain: &str) -> Read<Vec<HolderView>> {
    let (mut list, mut views) = (Reader::new(value)?, Vec::new());
    while list.items.len() > 0 {
        views.push(list.list()?.lease(domain)?);
    }
    Ok(views)
}

/// What a forced release found, and whom it woke.
pub(super) fn released(value: Value, domain: &str) -> Read<(Vec<HolderView>, Vec<Holder>)> {
    let mut r = Reader::new(value)?;
    Ok((leases(r.next()?, domain)?, r.holders()?))
}

/// Places, one list each.
pub(super) fn waiters(value: Value, domain: &str) -> Read<Vec<WaiterView>> {
    let (mut list, mut views) = (Reader::new(value)?, Vec::new());
    while list.items.len() > 0 {
        let mut w = list.list()?;
        views.push(WaiterView {
            target: w.target(domain)?,
            holder: w.holder()?,
            gate: Arc::from(w.text()?),
            arrived: w.number()?,
            retry_at: w.number()?,
            expires_at: w.number()?,
            priority: w.small()? as u8,
            cost: w.points()?,
            ahead: w.small()?,
        });
    }
    Ok(views)
}

/// Keys with their gates, one list each.
pub(super) fn scopes(value: Value, gates: &[Gate]) -> Read<Vec<ScopeView>> {
    let (mut list, mut views) = (Reader::new(value)?, Vec::new());
    while list.items.len() > 0 {
        let mut v = list.list()?;
        let mut view = ScopeView { key: v.text()?, live: v.small()?, waiting: v.small()?, gates: Vec::new() };
        while v.items.len() > 0 {
            let at = v.number()? as usize;
            let mut f = v.list()?;
            let Some(gate) = gates.get(at) else { continue };
            let figures = match gate.gate {
                Kind::Smooth(_) => GateView::Smooth { free: f.number()? },
                Kind::Window(_) => GateView::Window { used: f.number()?, max: f.number()? },
                Kind::Reported(_) => GateView::Reported {
                    level: f.points()?,
                    capacity: f.points()?,
                    in_flight: f.points()?,
                    foreign: f.points()?,
                },
                Kind::Slots(_) | Kind::Lock(_) => GateView::Slots { used: f.small()?, limit: f.small()? },
                Kind::Breaker(_) => GateView::Breaker { state: f.breaker_state()? },
                Kind::Quota(_) => GateView::Quota {
                    live: f.small()?,
                    cost: f.points()?,
                    violations: f.small()?,
                    hoards: f.small()?,
                },
            };
            view.gates.push((Arc::from(gate.name.as_str()), figures));
        }
        views.push(view);
    }
    Ok(views)
}
