//! What operators have said about a domain, as Redis keeps it: a text per gate and kind, and when it was said or taken back.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use tidegate_core::gates::Micros;

use super::plan::Plan;
use crate::GatesError;
use crate::operations::{Order, Switch};

/// What a word is about, as its key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Orders,
    Switches,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Orders => "orders",
            Kind::Switches => "switches",
        }
    }
}

/// A gate and what is said of it: `switches GATE`, `orders GATE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Word {
    pub(super) kind: Kind,
    pub(super) gate: String,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.gate)
    }
}

impl Word {
    pub(super) fn order(gate: &str) -> Self {
        Self { kind: Kind::Orders, gate: gate.into() }
    }

    /// None of what only another version knows: that is left alone.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, gate) = text.split_once(' ')?;
        let kind = [Kind::Orders, Kind::Switches].into_iter().find(|known| known.name() == kind)?;
        Some(Self { kind, gate: gate.into() })
    }
}

/// Something that is said: its text (empty: taken back), and for an order its end.
#[derive(Debug)]
pub(super) struct Saying {
    pub(super) word: Word,
    pub(super) text: String,
    pub(super) end: Option<Micros>,
}

/// Records as they are written, by gate.
pub(super) type Texts = BTreeMap<String, String>;
/// Times, by word or gate.
pub(super) type Times = BTreeMap<String, Micros>;

/// What operators have said about a domain, by gate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) off: BTreeMap<String, Switch>,
    pub(super) orders: BTreeMap<String, Order>,
    /// When each of this was said or taken back, by the server's clock. What an older version has said has no time, or an earlier one.
    pub(super) times: BTreeMap<Word, Micros>,
    /// When the last of all orders to a breaker is over, also of those that were taken back: until then a partition may keep one that it
    /// was not told the end of.
    pub(super) ends: BTreeMap<String, Micros>,
}

pub(super) fn written<T: serde::Serialize>(value: &T) -> Result<String, GatesError> {
    serde_json::to_string(value).map_err(|e| GatesError::Corrupt(e.to_string()))
}

fn each<T: DeserializeOwned>(
    texts: Texts,
    is_there: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, T>, GatesError> {
    let texts = texts.into_iter().filter(|(gate, _)| is_there(gate));
    let read = |text: &str| serde_json::from_str(text).map_err(|e| GatesError::Corrupt(e.to_string()));
    texts.map(|(gate, text)| Ok((gate, read(&text)?))).collect()
}

impl Records {
    /// Reads them, as far as their gates still exist.
    pub(super) fn read(
        (off, orders): (Texts, Texts),
        (times, mut ends): (Times, Times),
        plan: &Plan,
    ) -> Result<Self, GatesError> {
        let is_breaker = |gate: &str| plan.compiled.is_breaker(gate);
        let is_there = |word: &Word| match word.kind {
            Kind::Orders => is_breaker(&word.gate),
            Kind::Switches => plan.id_of(&word.gate).is_some(),
        };
        let words = times.into_iter().filter_map(|(text, at)| Some((Word::parse(&text)?, at)));
        let times = words.filter(|(word, _)| is_there(word)).collect();
        let orders: BTreeMap<String, Order> = each(orders, is_breaker)?;
        ends.retain(|gate, _| is_breaker(gate));
        for order in orders.values() {
            // An older version says none.
            let end = ends.entry(order.gate.clone()).or_default();
            *end = order.until.max(*end);
        }
        Ok(Self { off: each(off, |gate| plan.id_of(gate).is_some())?, orders, times, ends })
    }

    /// The record that a word has left; empty if it was taken back.
    pub(super) fn text(&self, word: &Word) -> Result<String, GatesError> {
        let text = match word.kind {
            Kind::Orders => self.orders.get(&word.gate).map(written),
            Kind::Switches => self.off.get(&word.gate).map(written),
        };
        Ok(text.transpose()?.unwrap_or_default())
    }

    /// Whether a word stops or lets pass anything now: it was not taken back, and is not over.
    pub(super) fn stands(&self, word: &Word, now: Micros) -> bool {
        match word.kind {
            Kind::Orders => self.orders.get(&word.gate).is_some_and(|order| order.until > now),
            Kind::Switches => self.off.contains_key(&word.gate),
        }
    }

    /// Until when a breaker is open for all keys (0: not any more), and when that was said; none if nothing was.
    pub(super) fn order_to(&self, gate: &str) -> Option<(Micros, Micros)> {
        let at = self.times.get(&Word::order(gate)).copied();
        match self.orders.get(gate) {
            Some(order) => Some((order.until, at.unwrap_or(0))),
            None => self.ends.get(gate).and(at).map(|at| (0, at)),
        }
    }
}
