//! The state of one scope key: its gates, its line, its live leases.

use serde::{Deserialize, Serialize};

use super::Start;
use super::breaker::Breaker;
use super::compiled::{Compiled, GateRule, Rule};
use super::level::Level;
use super::line::Line;
use super::pool::Pool;
use super::quota::Quota;
use super::smooth::Smooth;
use super::units::Micros;
use super::window::Window;

/// The state of one gate and key. Its kind is a byte of its own: to tell it from a value that another kind cannot have takes longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(super) enum GateState {
    Smooth(Smooth),
    Window(Window),
    Level(Level),
    Pool(Pool),
    Breaker(Breaker),
    Quota(Quota),
}

impl GateState {
    pub(super) fn fresh(rule: &Rule, start: Start, t: Micros) -> Self {
        match rule {
            Rule::Smooth(r) => Self::Smooth(Smooth::fresh(r, start, t)),
            Rule::Window(r) => Self::Window(Window::fresh(r, start, t)),
            Rule::Level(r) => Self::Level(Level::fresh(r, start, t)),
            Rule::Pool(_) => Self::Pool(Pool::default()),
            Rule::Breaker(_) => Self::Breaker(Breaker::default()),
            Rule::Quota(r) => Self::Quota(Quota::fresh(r, start, t)),
        }
    }

    /// Whether this state belongs to a gate of this kind.
    pub(super) fn fits(&self, rule: &Rule) -> bool {
        matches!(
            (self, rule),
            (Self::Smooth(_), Rule::Smooth(_))
                | (Self::Window(_), Rule::Window(_))
                | (Self::Level(_), Rule::Level(_))
                | (Self::Pool(_), Rule::Pool(_))
                | (Self::Breaker(_), Rule::Breaker(_))
                | (Self::Quota(_), Rule::Quota(_))
        )
    }

    #[inline]
    pub(super) fn advance(&mut self, rule: &Rule, t: Micros) {
        match (self, rule) {
            (Self::Smooth(g), Rule::Smooth(r)) => g.advance(r, t),
            (Self::Window(g), Rule::Window(r)) => g.advance(r, t),
            (Self::Level(g), Rule::Level(r)) => g.advance(r, t),
            (Self::Pool(g), Rule::Pool(_)) => g.advance(t),
            (Self::Quota(g), Rule::Quota(r)) => g.advance(r, t),
            _ => {}
        }
    }

    /// Whether it is the same as one that nobody has used.
    fn at_rest(&self, rule: &Rule, t: Micros) -> bool {
        match (self, rule) {
            (Self::Smooth(g), _) => g.at_rest(),
            (Self::Window(g), _) => g.at_rest(),
            (Self::Level(g), _) => g.at_rest(t),
            (Self::Pool(g), _) => g.at_rest(t),
            (Self::Breaker(g), Rule::Breaker(r)) => g.at_rest(r, t),
            (Self::Quota(g), _) => g.at_rest(),
            (Self::Breaker(_), _) => true,
        }
    }
}

/// The state of one scope key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Scope {
    /// Number of its scope in the set.
    pub rule: usize,
    pub key: Box<str>,
    /// Leases, with those in quarantine.
    pub live: u32,
    /// The provider said to stay away until then.
    pub cool_until: Micros,
    pub gates: Vec<GateState>,
    pub line: Line,
}

impl Scope {
    pub(super) fn fresh(set: &Compiled, rule: usize, key: &str, start: Start, t: Micros) -> Self {
        let gates = set.scopes[rule].gates.iter();
        Self {
            rule,
            key: key.into(),
            live: 0,
            cool_until: 0,
            gates: gates.map(|g| GateState::fresh(set.gates[*g].rule(key), start, t)).collect(),
            line: Line::default(),
        }
    }

    /// The state of gates that are beside each other, with their rules.
    #[inline]
    pub(super) fn states<'a>(
        &'a mut self,
        gates: &'a [GateRule],
    ) -> impl Iterator<Item = (&'a GateRule, &'a Rule, &'a mut GateState)> {
        let first = gates.first().map_or(0, |gate| gate.at);
        let (key, states) = (&*self.key, &mut self.gates[first..]);
        gates.iter().zip(states).map(move |(gate, state)| (gate, gate.rule(key), state))
    }

    /// Whether nothing would change if it were forgotten.
    pub(super) fn at_rest(&mut self, set: &Compiled, t: Micros) -> bool {
        if self.live > 0 || !self.line.is_empty() || self.cool_until > t {
            return false;
        }
        let rules = set.scopes[self.rule].gates.iter().map(|g| set.gates[*g].rule(&self.key));
        self.gates.iter_mut().zip(rules).all(|(gate, rule)| {
            gate.advance(rule, t);
            gate.at_rest(rule, t)
        })
    }

    /// Free places of its tightest pool; `None` without one.
    pub(super) fn free(&self, set: &Compiled) -> Option<u32> {
        let rules = set.scopes[self.rule].gates.iter().map(|g| (*g, set.gates[*g].rule(&self.key)));
        let pools = self.gates.iter().zip(rules).filter_map(|(gate, (i, rule))| match (gate, rule) {
            (GateState::Pool(pool), Rule::Pool(rule)) if set.enabled(i) => Some(pool.free(rule)),
            _ => None,
        });
        pools.min()
    }
}
