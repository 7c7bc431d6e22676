//! The levers of an emergency. Each says who and why, which the gates keep.

use serde_json::{Value, json};
use tidegate::gates::{Backend, BreakerOrder, Gate, GateSet, GatesError, Holder, Kind, Released};
use tidegate_core::codes;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_gates::LONGEST_ORDER;

use super::look::{holder_json, holders_table, switch_json, usage_json};
use super::{Because, BreakerArgs};
use crate::args::Consent;
use crate::config::nearest;
use crate::consent::{Decision, ask};
use crate::error::{Failure, Result};
use crate::output::{Output, plural};
use crate::parse;

/// What was declined.
const NOTHING: &str = "Nothing was changed.";

fn holder(text: &str) -> Result<Holder> {
    Ok(Holder::new(text)?)
}

/// The domains to look in.
async fn domains(backend: &dyn Backend, one: Option<&str>) -> Result<Vec<String>> {
    match one {
        Some(domain) => Ok(vec![domain.to_owned()]),
        None => Ok(backend.usage().await?.into_iter().map(|u| u.domain).collect()),
    }
}

pub(super) async fn release(
    backend: &dyn Backend,
    who: &str,
    domain: Option<&str>,
    (because, consent): (&Because, Consent),
    output: &Output,
) -> Result<()> {
    let who = holder(who)?;
    let mut found: Vec<(String, Released)> = vec![];
    for domain in domains(backend, domain).await? {
        let would = backend.force_release(None, &domain, &who, true, because.note()).await?;
        if !would.leases.is_empty() {
            found.push((domain, would));
        }
    }
    let leases: Vec<_> = found.iter().flat_map(|(_, r)| r.leases.clone()).collect();
    if leases.is_empty() {
        let at = domain.map_or(String::new(), |domain| format!(" of {domain}"));
        return Err(Failure::new(codes::GATE_NOT_FOUND, format!("{who} holds no permit{at}"))
            .hint("`tidegate gates show DOMAIN` lists who holds"));
    }
    let now = Timestamp(backend.clock() / 1_000);
    let preview = holders_table(&leases, now).render(output);
    let question = format!("Release {}?", plural(leases.len() as u64, "permit"));
    let decision = ask(consent, &question, &preview, output)?;
    let mut woken = 0;
    if decision == Decision::Go {
        for (domain, _) in &found {
            woken +=
                backend.force_release(None, domain, &who, false, because.note()).await?.woken.len() as u64;
        }
    }
    let value: Vec<Value> = leases.iter().map(holder_json).collect();
    let done = decision == Decision::Go;
    output.answer(&json!({ "released": done, "permits": value, "woken": woken }), || match decision {
        Decision::Go => {
            format!("Released {}; {} woken.", plural(leases.len() as u64, "permit"), plural(woken, "waiter"))
        }
        Decision::DryRun => format!("{preview}Would release {}.", plural(leases.len() as u64, "permit")),
        Decision::Declined => NOTHING.into(),
    })
}

pub(super) async fn promote(
    backend: &dyn Backend,
    who: &str,
    domain: Option<&str>,
    because: &Because,
    output: &Output,
) -> Result<()> {
    let who = holder(who)?;
    let mut promoted = vec![];
    for domain in domains(backend, domain).await? {
        if backend.promote(None, &domain, &who, because.note()).await? {
            promoted.push(domain);
        }
    }
    if promoted.is_empty() {
        let at = domain.map_or(String::new(), |domain| format!(" in {domain}"));
        return Err(Failure::new(codes::GATE_NOT_FOUND, format!("{who} does not wait{at}")).hint(
            "`tidegate gates show DOMAIN` lists who waits; a job that has not asked yet comes first with \
                 `tidegate jobs prioritise JOB critical`",
        ));
    }
    let list = promoted.join(", ");
    output.answer(&json!({ "promoted": who, "domains": promoted }), || {
        format!("{who} is the first of those who wait for {list}, and asks now.")
    })
}

pub(super) async fn reset(
    backend: &dyn Backend,
    breaker: &BreakerArgs,
    because: &Because,
    output: &Output,
) -> Result<()> {
    known_breaker(backend, breaker).await?;
    order(backend, breaker, BreakerOrder::Reset, because, output, "Reset").await
}

pub(super) async fn trip(
    backend: &dyn Backend,
    breaker: &BreakerArgs,
    span: &str,
    (because, consent): (&Because, Consent),
    output: &Output,
) -> Result<()> {
    let ms = parse::span(span)?;
    if !(1..=LONGEST_ORDER / 1_000).contains(&ms) {
        let problem = format!("a breaker is tripped for up to 366 days, not for {}", Millis(ms));
        return Err(Failure::new(codes::INVALID_REQUEST, problem).hint("say how long: --for 10m"));
    }
    let (domain, gate) = (&breaker.domain, &breaker.gate);
    // Says so before it asks.
    known_breaker(backend, breaker).await?;
    let (whose, others) = match breaker.key() {
        Some(key) => (format!("{gate} of {domain} for {}", shown(key)), "; other keys are not touched"),
        None => (format!("{gate} of {domain}"), ", also for keys that come"),
    };
    let preview = format!("Nothing passes {whose} for {}{others}.\n", Millis(ms));
    match ask(consent, &format!("Trip {whose}?"), &preview, output)? {
        Decision::Go => {
            let order_ = BreakerOrder::Trip { lasts: ms.saturating_mul(1_000) };
            order(backend, breaker, order_, because, output, "Tripped").await
        }
        decision => {
            let value =
                json!({ "domain": domain, "gate": gate, "key": breaker.key(), "for_ms": ms, "breakers": 0 });
            output.answer(
                &value,
                || if decision == Decision::DryRun { preview.clone() } else { NOTHING.into() },
            )
        }
    }
}

async fn order(
    backend: &dyn Backend,
    breaker: &BreakerArgs,
    order: BreakerOrder,
    because: &Because,
    output: &Output,
    verb: &str,
) -> Result<()> {
    let (BreakerArgs { domain, gate, .. }, key) = (breaker, breaker.key());
    let count = backend.order_breaker(None, domain, (gate, key), order, because.note()).await?;
    if let (0, Some(key)) = (count, key) {
        return Err(no_key(domain, gate, key));
    }
    output.answer(&json!({ "domain": domain, "gate": gate, "breakers": count }), || {
        match (count, key, order) {
            (_, Some(key), _) => format!("{verb} {gate} of {domain} for {}.", shown(key)),
            (0, None, BreakerOrder::Reset) => {
                format!("{verb} nothing: {gate} of {domain} has nothing to forget.")
            }
            (_, None, BreakerOrder::Reset) => format!("{verb} {} of {domain}.", plural(count.into(), "key")),
            (_, None, BreakerOrder::Trip { .. }) => {
                format!("{verb} {gate} of {domain}: {}, and those that come.", plural(count.into(), "key"))
            }
        }
    })
}

/// A key as `gates show` names it.
fn shown(key: &str) -> &str {
    if key.is_empty() { super::ALL_KEYS } else { key }
}

/// Refuses a key that has no state, with the one that was probably meant.
async fn known_key(backend: &dyn Backend, domain: &str, gate: &str, key: &str) -> Result<()> {
    let scopes = backend.inspect(None, domain, super::KEYS_LOOKED_AT).await?;
    let with_gate = scopes.iter().filter(|scope| scope.gates.iter().any(|(name, _)| **name == *gate));
    let keys: Vec<&str> = with_gate.map(|scope| scope.key.as_str()).collect();
    if keys.contains(&key) || scopes.len() >= super::KEYS_LOOKED_AT {
        return Ok(());
    }
    let failure = no_key(domain, gate, key);
    Err(match nearest(key, keys) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure,
    })
}

fn no_key(domain: &str, gate: &str, key: &str) -> Failure {
    let problem = format!("{gate} of {domain} has no key {key:?} with state; nothing was changed");
    Failure::new(codes::GATE_NOT_FOUND, problem).hint(format!(
        "`tidegate gates show {domain}` lists its keys; without --only all are meant, also those that come"
    ))
}

/// Refuses a gate that the domain does not have, with those that it has. Nothing is said where its settings are not known.
async fn known_gate(backend: &dyn Backend, domain: &str, gate: &str) -> Result<Option<(GateSet, Gate)>> {
    let Some(set) = backend.gates_of(domain).await? else { return Ok(None) };
    let names = || set.gates.iter().map(|g| g.name.as_str());
    match set.gates.iter().find(|g| g.name == gate).cloned() {
        Some(gate) => Ok(Some((set, gate))),
        None => {
            let problem = format!("{domain} has no gate {gate}; nothing was changed");
            Err(Failure::new(codes::GATE_NOT_FOUND, problem).hint(match nearest(gate, names()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("its gates: {}", names().collect::<Vec<_>>().join(", ")),
            }))
        }
    }
}

/// Refuses a gate that is no breaker, and a key of one that has none.
async fn known_breaker(backend: &dyn Backend, breaker: &BreakerArgs) -> Result<()> {
    let (domain, gate) = (&breaker.domain, &breaker.gate);
    let Some((set, found)) = known_gate(backend, domain, gate).await? else { return Ok(()) };
    if !matches!(found.gate, Kind::Breaker(_)) {
        let breakers = set.gates.iter().filter(|g| matches!(g.gate, Kind::Breaker(_)));
        let breakers: Vec<&str> = breakers.map(|g| g.name.as_str()).collect();
        let hint = match breakers.len() {
            0 => format!("it has none; `tidegate gates disable {domain} {gate}` lets calls pass"),
            _ => format!("its breakers: {}", breakers.join(", ")),
        };
        let problem = format!("gate {gate} of {domain} is no breaker; nothing was changed");
        return Err(Failure::new(codes::GATE_NOT_FOUND, problem).hint(hint));
    }
    match breaker.key() {
        Some(key) if found.per.is_empty() && !key.is_empty() => {
            let problem =
                format!("{gate} of {domain} is one for all; it has no key {key:?}; nothing was changed");
            Err(Failure::new(codes::GATE_NOT_FOUND, problem).hint("leave out --only"))
        }
        Some(key) => known_key(backend, domain, gate, key).await,
        None => Ok(()),
    }
}

pub(super) async fn disable(
    backend: &dyn Backend,
    (domain, gate): (&str, Option<&str>),
    (because, consent): (&Because, Consent),
    output: &Output,
) -> Result<()> {
    let what = gate.map_or_else(|| format!("all gates of {domain}"), |g| format!("gate {g} of {domain}"));
    // Says that there is no such gate before it asks.
    match gate {
        Some(gate) => drop(known_gate(backend, domain, gate).await?),
        None => drop(backend.gates_of(domain).await?),
    }
    let preview = format!("Calls pass {what} as if it were not there, until it is enabled again.\n");
    match ask(consent, &format!("Disable {what}?"), &preview, output)? {
        Decision::Go => {
            let off = backend.switch(domain, gate, true, because.note()).await?;
            let value: Vec<Value> = off.iter().map(switch_json).collect();
            output.answer(&json!({ "off": value }), || {
                let again = gate.map_or(String::new(), |gate| format!(" {gate}"));
                format!(
                    "Disabled {what}. `tidegate gates enable {domain}{again} --reason …` switches it on again."
                )
            })
        }
        Decision::DryRun => output.answer(&json!({ "off": [] }), || preview.clone()),
        Decision::Declined => output.answer(&json!({ "off": [] }), || NOTHING.into()),
    }
}

pub(super) async fn enable(
    backend: &dyn Backend,
    (domain, gate): (&str, Option<&str>),
    because: &Because,
    output: &Output,
) -> Result<()> {
    let off = backend.switch(domain, gate, false, because.note()).await?;
    let value: Vec<Value> = off.iter().map(switch_json).collect();
    output.answer(&json!({ "off": value }), || match off.len() as u64 {
        0 => format!("Every gate of {domain} is on."),
        n => format!("Done; {} of {domain} still off.", plural(n, "gate")),
    })
}

pub(super) async fn clear(
    backend: &dyn Backend,
    domain: &str,
    (because, consent): (&Because, Consent),
    output: &Output,
) -> Result<()> {
    let would = match backend.clear(domain, true, because.note()).await {
        Ok(would) => would,
        Err(error @ GatesError::UnknownDomain { .. }) => {
            return Err(Failure::from(error).hint("`tidegate gates ls` lists the domains"));
        }
        Err(error) => return Err(error.into()),
    };
    let total = would.total;
    let preview = format!(
        "{domain} has {}, {} and {}; rates begin anew, as after a rest.\n",
        plural(total.leases.into(), "permit"),
        plural(total.places.into(), "waiter"),
        plural(total.keys.into(), "key")
    );
    let decision = ask(consent, &format!("Clear {domain}?"), &preview, output)?;
    if decision == Decision::Go {
        backend.clear(domain, false, because.note()).await?;
    }
    let mut value = usage_json(&would);
    value["cleared"] = (decision == Decision::Go).into();
    output.answer(&value, || match decision {
        Decision::Go => format!("Cleared {domain}."),
        Decision::DryRun => preview.clone(),
        Decision::Declined => NOTHING.into(),
    })
}
