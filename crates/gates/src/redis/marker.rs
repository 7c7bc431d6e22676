//! What tells that state is there and whose it is: the number of its layout, and a marker per domain.
//!
//! Keys of state begin with the prefix and the number of the layout, so that versions of the program that lay it out differently do
//! not read each other's. The marker is one hash for all of them, a field per layout: a program that finds only those of others is
//! the first of its kind, and what was called before it is not known to it. So it begins as after a loss of state, without credit.
//! While both kinds run, each counts its own calls alone: stop the old ones first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::{Cmd, FromRedisValue};

use super::link::unreachable;
use super::{Domain, Inner};
use crate::GatesError;

/// How keys and values of state are laid out (`lua/prelude.lua`). Raised when that changes, like the format of states on Postgres.
pub(super) const LAYOUT: u32 = 1;

/// How long the marker of a domain lasts after its last use.
const MARKER_LASTS: i64 = 60 * 24 * 3_600;

impl Inner {
    async fn marked<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, GatesError> {
        let answer = self.link.ask(key, command).await.map_err(unreachable)?;
        redis::from_redis_value(answer).map_err(|e| GatesError::Corrupt(e.to_string()))
    }

    /// Whether a version before layouts had numbers used this domain: its marker was a key by itself.
    async fn was_marked_before_layouts(&self, domain: &str) -> Result<bool, GatesError> {
        let key = self.record_key(domain, "marker");
        Ok(self.marked::<i64>(&key, redis::cmd("EXISTS").arg(&key)).await? > 0)
    }

    /// Looks whether the domain's marker is still there. If it has gone since this process saw it, or another process wrote
    /// that it had gone, state was lost then. `newly`: this process has not seen it before, so that nothing is lost, unless
    /// it is the first with its layout.
    pub(super) async fn check_marker(
        &self,
        domain: &Arc<Domain>,
        newly: bool,
    ) -> Result<Arc<Domain>, GatesError> {
        let made = self.link.made();
        let key = self.record_key(&domain.name, "layouts");
        let now = self.set_clock(&key).await?;
        let all: HashMap<u32, i64> = self.marked(&key, redis::cmd("HGETALL").arg(&key)).await?;
        let lost = match all.get(&self.layout) {
            Some(at) => *at,
            None => {
                let first = newly && all.is_empty() && !self.was_marked_before_layouts(&domain.name).await?;
                let lost = if first { -1 } else { now };
                let (mut mark, mut read) = (redis::cmd("HSETNX"), redis::cmd("HGET"));
                mark.arg(&key).arg(self.layout).arg(lost);
                read.arg(&key).arg(self.layout);
                self.marked::<redis::Value>(&key, &mark).await?;
                // Another process may have been first.
                self.marked::<Option<i64>>(&key, &read).await?.unwrap_or(lost)
            }
        };
        self.marked::<redis::Value>(&key, redis::cmd("EXPIRE").arg(&key).arg(MARKER_LASTS)).await?;
        let lost = Some(lost).filter(|at| *at >= 0);
        // The domain may be another one by now, by new settings or an operator's word: only what was looked at is changed.
        let current = self.change(&domain.name, |current| {
            let checked = current.checked.fetch_max(made, Ordering::AcqRel);
            // Of two looks on the same connections the one that came before the loss may be carried out last.
            let lost = if checked == made { lost.max(current.lost) } else { lost };
            if (1..made).contains(&checked) || (checked <= made && current.lost != lost) {
                // With the state, the server may have lost what operators have said; a new connection may lead to another server.
                self.unread.add(Some(domain.name.clone()));
            }
            if checked > made || current.lost == lost {
                // Who looked on newer connections knows better.
                return None;
            }
            if let Some(at) = lost {
                tracing::warn!(domain = %domain.name, at, "gates: the server has no state of before, rates start without credit");
            }
            Some(current.with(&current.plan, current.said.clone(), lost))
        })?;
        if Arc::ptr_eq(&current.plan, &domain.plan) {
            return Ok(current);
        }
        // Whoever began with other gates has keys and numbers of those, and goes on with them.
        Ok(Arc::new(current.with(&domain.plan, current.said.clone(), current.lost)))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::config::{Slots, Window};
    use tidegate_core::gates::{Admission, Call, End, Gate, GateSet, Holder, Kind, LeaseEnd, Outcome};
    use tidegate_core::gates::{Span, Target, Unit};
    use tidegate_testbed::redis::Server;

    use super::*;
    use crate::{GateOperations, Gates, Note, RedisGates, RedisOptions};

    async fn of_layout(layout: u32, server: &Server, gate: &Kind) -> RedisGates {
        let gates =
            RedisGates::connect_as(layout, &server.url(), RedisOptions::default()).await.expect("it answers");
        gates.configure("d", GateSet::of(vec![Gate::new("it", gate.clone())])).await.unwrap();
        gates
    }

    fn call(n: u64) -> Call {
        Call::new(Arc::new(Target::new("d").unwrap()), Holder::number(n))
    }

    #[tokio::test]
    async fn the_first_call_passes_however_many_connections_have_to_be_made() {
        let (server, slots) = (Server::start(&[]).unwrap(), Kind::Slots(Slots::of(1)));
        let options = RedisOptions { connections: 100, ..RedisOptions::default() };
        let gates = RedisGates::connect(&server.url(), options).await.expect("it answers");
        gates.configure("d", GateSet::of(vec![Gate::new("it", slots)])).await.unwrap();
        assert!(matches!(gates.admit(None, &call(1)).await.unwrap(), Admission::Admitted(_)));
    }

    #[tokio::test]
    async fn a_look_at_the_marker_keeps_what_became_known_meanwhile() {
        let (server, slots) = (Server::start(&[]).unwrap(), |n| Kind::Slots(Slots::of(n)));
        let gates = of_layout(LAYOUT, &server, &slots(1)).await;
        let before = gates.inner.known("d").unwrap();
        let note = Note { who: "me".into(), why: "a test".into() };
        gates.switch("d", Some("it"), true, note).await.unwrap();
        let more = GateSet::of(vec![Gate::new("it", slots(2)), Gate::new("other", slots(3))]);
        gates.configure("d", more.clone()).await.unwrap();
        server.command("DEL tg:{d}!layouts").unwrap();
        let seen = gates.inner.check_marker(&before, false).await.unwrap();
        assert_eq!(seen.set().gates.len(), 1, "an operation goes on with the gates that it began with");
        assert!(seen.lost.is_some() && seen.said.off.contains_key("it"));
        let now = gates.inner.known("d").unwrap();
        assert_eq!(*now.set(), more);
        assert!(now.lost == seen.lost && now.said.off.contains_key("it"));
        // A look on the same connections that was before the loss and is carried out after it does not undo that.
        server.command("HSET tg:{d}!layouts 1 -1").unwrap();
        assert_eq!(gates.inner.check_marker(&before, false).await.unwrap().lost, now.lost);
        // Nor does an older look undo a newer one.
        now.checked.store(usize::MAX, Ordering::Release);
        server.command("HSET tg:{d}!layouts 1 -1").unwrap();
        assert_eq!(gates.inner.check_marker(&before, false).await.unwrap().lost, now.lost);
        assert_eq!(gates.inner.known("d").unwrap().checked.load(Ordering::Acquire), usize::MAX);
    }

    #[tokio::test]
    async fn versions_with_other_layouts_do_not_read_each_others_state_and_share_what_operators_said() {
        let (server, slots) = (Server::start(&[]).unwrap(), Kind::Slots(Slots::of(1)));
        let old = of_layout(LAYOUT, &server, &slots).await;
        let Admission::Admitted(held) = old.admit(None, &call(1)).await.unwrap() else { panic!() };
        let new = of_layout(LAYOUT + 1, &server, &slots).await;
        assert!(new.holders("d", 9).await.unwrap().is_empty());
        let ended = new.settle(None, &held.permit, &Outcome::of(End::Ok)).await.unwrap();
        assert_eq!(ended.state, LeaseEnd::Gone);
        assert!(matches!(new.admit(None, &call(2)).await.unwrap(), Admission::Admitted(_)));
        assert_eq!(old.holders("d", 9).await.unwrap().len(), 1, "its own");
        let note = Note { who: "me".into(), why: "a test".into() };
        old.switch("d", Some("it"), true, note).await.unwrap();
        assert_eq!(new.switches("d").await.unwrap().len(), 1, "a gate that is off is off in every version");
    }

    #[tokio::test]
    async fn whoever_comes_after_a_version_without_layouts_begins_without_credit() {
        let server = Server::start(&[]).unwrap();
        server.command("SET tg:{d}!marker -1 EX 1000").unwrap();
        let window = Kind::Window(Window { max: 5, every: Span::secs(600), unit: Unit::Calls });
        let new = of_layout(LAYOUT, &server, &window).await;
        assert!(matches!(new.admit(None, &call(1)).await.unwrap(), Admission::Wait(_)));
    }

    #[tokio::test]
    async fn the_first_of_a_layout_begins_without_credit_and_the_next_process_finds_its_state() {
        let server = Server::start(&[]).unwrap();
        let window = Kind::Window(Window { max: 5, every: Span::secs(600), unit: Unit::Calls });
        let old = of_layout(LAYOUT, &server, &window).await;
        assert!(matches!(old.admit(None, &call(1)).await.unwrap(), Admission::Admitted(_)));
        for n in [2, 3] {
            let new = of_layout(LAYOUT + 1, &server, &window).await;
            let reply = new.admit(None, &call(n)).await.unwrap();
            let Admission::Wait(wait) = reply else { panic!("{reply:?}") };
            assert!(wait.retry_at - new.clock() > 500_000_000, "a whole window must pass first: {wait:?}");
        }
        let again = of_layout(LAYOUT, &server, &window).await;
        assert!(
            matches!(again.admit(None, &call(4)).await.unwrap(), Admission::Admitted(_)),
            "nothing is lost"
        );
    }
}
