//! Gates: admissions for remote workers, and what operators ask. A permit of a remote worker lasts as long as its own lease:
//! a worker that is gone holds nothing for longer.

use tidegate_core::codes::{self, Fault};
use tidegate_core::gates::{BreakerOrder, Holder};
use tidegate_gates::watched::{TRACES, TraceQuery};
use tidegate_gates::{Backend, GatesError, GatesReport, Note};
use tidegate_store::gates::call_up;
use tidegate_wire::gates::{
    Act, ActRequest, Acted, AdmitReply, AdmitRequest, CancelWait, CancelledWait, DomainReply, DomainsReply,
    RenewReply, RenewRequest, SettingsReply, SettlePermit, SettledPermit, SloReply, TracesReply,
};
use tidegate_wire::{Problem, ProblemBody};

use crate::ServerGates;
use crate::call::{Answer, Call, ok};

/// Keys, holders and waiters shown of a domain.
const SHOWN: usize = 1_000;

fn gates(call: &Call) -> Result<&ServerGates, Problem> {
    call.app.gates.as_ref().ok_or_else(|| Problem::new(codes::GATE_NOT_FOUND, "this server has no gates"))
}

fn done<T>(call: &Call, result: Result<T, GatesError>) -> Result<T, Problem> {
    result.map_err(|e| match e.code().fault {
        Fault::Usage | Fault::NotFound | Fault::State => Problem::new(e.code(), e.to_string()),
        Fault::Ours | Fault::Unreachable => {
            let mut problem = call.app.incident(e.code(), &e.to_string());
            if let Some(done) = e.done_all_the_same() {
                problem.detail = format!("{}; {done}", problem.detail);
            }
            problem
        }
    })
}

/// Asks to be admitted.
#[utoipa::path(
    post, path = "/v1/admissions", tag = "gates", operation_id = "admit",
    description = "Asks all gates of a call at once: everything is reserved, or nothing. A call that must wait is told when to \
                   come back, and keeps its place in line until shortly after. Asking again with the same `holder` and `ask` gives \
                   the same permit or the same place.",
    request_body(content = AdmitRequest, example = json!({
        "connector": "shopify", "account": "acme", "holder": "job_01JD0000000000000000000000", "cost": 52
    })),
    responses((status = 200, body = AdmitReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn admit(call: Call) -> Answer {
    let request: AdmitRequest = call.json()?;
    let gates = gates(&call)?;
    let domain = gates.settings.domain_of(request.connector.as_str()).to_owned();
    let asked = request.into_call(&domain)?;
    let admission = done(&call, gates.backend.admit(None, &asked).await)?;
    // What was handed out with caution since a gate refused may go on, and whose turn this has made. The worker need not wait for
    // that.
    if call.app.admissions.add(&domain, &asked.holder, &admission) {
        let app = call.app.clone();
        call.app.tasks.spawn(async move {
            app.admissions.tell(|news| news.send(&*app.store, app.now())).await;
        });
    }
    ok(&AdmitReply::new(admission, gates.backend.clock()))
}

/// Makes a permit last longer.
#[utoipa::path(
    post, path = "/v1/admissions/renew", tag = "gates", operation_id = "renew",
    description = "Makes a permit last for its lease from now on. `gone`: it was settled or has lapsed, and somebody else may have \
                   its slot.",
    request_body(content = RenewRequest, example = json!({"permit": {
        "target": {"domain": "shopify", "account": "acme"}, "holder": "job_01JD0000000000000000000000", "fence": 1_763_000_000_000_000_i64,
        "cost": 52.0, "admitted_at": 1_763_000_000_000_000_i64, "use_by": 1_763_000_000_050_000_i64, "expires_at": 1_763_000_030_000_000_i64
    }})),
    responses((status = 200, body = RenewReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn renew(call: Call) -> Answer {
    let request: RenewRequest = call.json()?;
    let gates = gates(&call)?;
    let renewal = done(&call, gates.backend.renew(None, &request.permit).await)?;
    ok(&RenewReply { renewal, now_us: gates.backend.clock() })
}

/// Says how an admitted call ended.
#[utoipa::path(
    post, path = "/v1/admissions/settle", tag = "gates", operation_id = "settle_permit",
    description = "Ends a call: what it held is given back, what its answer said is learned. Doing it twice changes nothing.",
    request_body(content = SettlePermit, example = json!({"permit": {
        "target": {"domain": "shopify", "account": "acme"}, "holder": "job_01JD0000000000000000000000", "fence": 1_763_000_000_000_000_i64,
        "cost": 52.0, "admitted_at": 1_763_000_000_000_000_i64, "use_by": 1_763_000_000_050_000_i64, "expires_at": 1_763_000_030_000_000_i64
    }, "outcome": {"end": "ok", "actual": 42.0, "observed": {"level": 948.0}}})),
    responses((status = 200, body = SettledPermit), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn settle(call: Call) -> Answer {
    let request: SettlePermit = call.json()?;
    let settled = done(&call, gates(&call)?.backend.settle(None, &request.permit, &request.outcome).await)?;
    wake(&call, request.permit.target.domain(), &settled.woken).await;
    ok(&SettledPermit { settled })
}

async fn wake(call: &Call, domain: &str, woken: &[Holder]) {
    call_up(call.store(), domain, woken, call.now).await;
}

/// Gives up a place in line.
#[utoipa::path(
    post, path = "/v1/admissions/cancel", tag = "gates", operation_id = "cancel_wait",
    request_body(content = CancelWait, example = json!({
        "target": {"domain": "shopify", "account": "acme"}, "holder": "job_01JD0000000000000000000000"
    })),
    responses((status = 200, body = CancelledWait), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn cancel(call: Call) -> Answer {
    let request: CancelWait = call.json()?;
    let freed = done(&call, gates(&call)?.backend.cancel_wait(None, &request.target, &request.holder).await)?;
    wake(&call, request.target.domain(), &freed.woken).await;
    ok(&CancelledWait { freed })
}

/// The settings of all gates.
#[utoipa::path(
    get, path = "/v1/gates/settings", tag = "gates", operation_id = "gate_settings",
    responses((status = 200, body = SettingsReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn settings(call: Call) -> Answer {
    call.query()?.end()?;
    let settings = call.app.gates.as_ref().map(|g| (*g.settings).clone()).unwrap_or_default();
    ok(&SettingsReply { settings })
}

/// What has lapsed is free, and counted until the next call finds it so: who looks finds it so, too.
async fn end_what_is_over(call: &Call, backend: &dyn Backend, domain: &str) {
    // A database may have domains that are not configured here.
    while let Ok(freed) = backend.expire(None, domain).await {
        wake(call, domain, &freed.woken).await;
        if !freed.more {
            break;
        }
    }
}

/// All domains, and how much state each has.
#[utoipa::path(
    get, path = "/v1/gates", tag = "gates", operation_id = "gates",
    responses((status = 200, body = DomainsReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    let Some(gates) = &call.app.gates else { return ok(&DomainsReply { domains: vec![] }) };
    for usage in done(&call, gates.backend.usage().await)? {
        if usage.total.leases + usage.total.places > 0 {
            end_what_is_over(&call, &*gates.backend, &usage.domain).await;
        }
    }
    ok(&DomainsReply { domains: done(&call, gates.backend.usage().await)? })
}

/// Everything about a domain.
#[utoipa::path(
    get, path = "/v1/gates/{domain}", tag = "gates", operation_id = "gate_domain",
    description = "What every gate and key has now, who holds and who waits (the first 1,000 of each), what is switched off, which breakers \
                   are open by order, and what operators changed.",
    params(("domain" = String, Path, example = "shopify")),
    responses((status = 200, body = DomainReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn get(call: Call) -> Answer {
    call.query()?.end()?;
    let (gates, domain) = (gates(&call)?, call.text("domain"));
    let backend = &*gates.backend;
    end_what_is_over(&call, backend, domain).await;
    ok(&DomainReply {
        settings: gates.settings.gates.get(domain).cloned(),
        scopes: done(&call, backend.inspect(None, domain, SHOWN).await)?,
        holders: done(&call, backend.holders(domain, SHOWN).await)?,
        waiters: done(&call, backend.waiters(domain, SHOWN).await)?,
        off: done(&call, backend.switches(domain).await)?,
        orders: done(&call, backend.orders(domain).await)?,
        changes: done(&call, backend.changes(domain).await)?,
        now_us: backend.clock(),
    })
}

/// Lives of permits of a domain.
#[utoipa::path(
    get, path = "/v1/gates/{domain}/traces", tag = "gates", operation_id = "gate_traces",
    description = "What happened to the newest permits of a domain, at this server and at every other process that shares its gates: \
                   asked, waited, admitted, renewed, settled, expired. A key of one tenant sees that tenant's alone.",
    params(
        ("domain" = String, Path, example = "shopify"),
        ("holder" = Option<String>, Query, description = "Of this holder, or of this job's calls"),
        ("tenant" = Option<String>, Query, description = "Of this tenant"),
        ("last" = Option<usize>, Query, description = "So many, the newest; 20 if not given, at most 100"),
    ),
    responses((status = 200, body = TracesReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn traces(call: Call) -> Answer {
    let mut query = call.query()?;
    let holder = query.take("holder")?.map(std::borrow::Cow::into_owned);
    let tenant = query.take("tenant")?.map(std::borrow::Cow::into_owned);
    let last: usize = query.parse("last", codes::INVALID_REQUEST)?.unwrap_or(20);
    query.end()?;
    if !(1..=TRACES).contains(&last) {
        return Err(Problem::invalid(format!("ask for 1 to {TRACES}")).at("?last"));
    }
    let (gates, domain) = (gates(&call)?, call.text("domain"));
    if !gates.settings.gates.contains_key(domain) {
        return done(&call, Err(GatesError::UnknownDomain { domain: domain.chars().take(64).collect() }));
    }
    let own = call.caller.tenant().map(|tenant| tenant.as_str().to_owned());
    if own.is_some() && tenant.is_some() && own != tenant {
        return ok(&TracesReply { traces: Vec::new(), now_us: gates.backend.clock() });
    }
    let query = TraceQuery { holder, tenant: own.or(tenant), last };
    let traces = done(&call, gates.backend.traces(domain, &query).await)?;
    ok(&TracesReply { traces, now_us: gates.backend.clock() })
}

/// How the gates are doing.
#[utoipa::path(
    get, path = "/v1/slo", tag = "gates", operation_id = "slo",
    description = "Every objective of the gates, judged now by what all processes have seen; and the numbers behind it, per domain \
                   and tenant.",
    responses((status = 200, body = SloReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn slo(call: Call) -> Answer {
    call.query()?.end()?;
    let report = match &call.app.gates {
        Some(gates) => done(&call, gates.backend.report().await)?,
        None => GatesReport::default(),
    };
    ok(&SloReply { report })
}

/// Does something to a domain's gates.
#[utoipa::path(
    post, path = "/v1/gates/{domain}", tag = "gates", operation_id = "act_on_gates",
    description = "The levers of an emergency: `release` the leases of a holder, `promote` a waiter, reset or trip a `breaker`, \
                   `switch` a gate or all gates off or on, `clear` what is known. Who and why are kept in the record of changes.",
    params(("domain" = String, Path, example = "shopify")),
    request_body(content = ActRequest, examples(
        ("off" = (value = json!({"act": {"do": "switch", "gate": "points", "off": true}, "by": "ada", "why": "limit lifted"}))),
        ("trip" = (value = json!({"act": {"do": "breaker", "gate": "health", "order": {"trip": {"lasts": 300_000_000}}}, "why": "their outage"}))),
        ("release" = (value = json!({"act": {"do": "release", "holder": "job_01JD0000000000000000000000", "dry_run": true}, "why": "stuck"})))
    )),
    responses((status = 200, body = Acted), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn act(call: Call) -> Answer {
    let request: ActRequest = call.json()?;
    if request.why.trim().is_empty() || request.why.len() > 1_000 {
        return Err(Problem::invalid("say why, in at most 1,000 bytes").at("/why"));
    }
    let note = Note { who: call.by(request.by), why: request.why };
    let app = call.app.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    // What is begun is done, whether or not its caller waits for it: an order goes through every key of a domain.
    app.tasks.spawn(async move {
        // Nobody may wait any more.
        let _ = tell.send(perform(&call, request.act, note).await);
    });
    ok(&told.await.map_err(|_| Problem::new(codes::SERVER_STOPPING, codes::SERVER_STOPPING.title))??)
}

async fn perform(call: &Call, act: Act, note: Note) -> Result<Acted, Problem> {
    let (backend, domain) = (&*gates(call)?.backend, call.text("domain"));
    let mut called = called_by(call, backend, &act).await?;
    let mut acted = Acted::default();
    if called.len() > SHOWN {
        called.truncate(SHOWN);
        acted.called_first = u32::try_from(SHOWN).ok();
    }
    match act {
        Act::Release { holder, dry_run } => {
            let released = backend.force_release(None, domain, &holder, dry_run, note).await;
            let released = done(call, released)?;
            wake(call, domain, &released.woken).await;
            acted.released = Some(released);
        }
        Act::Promote { holder } => {
            acted.promoted = Some(done(call, backend.promote(None, domain, &holder, note).await)?);
        }
        Act::Breaker { gate, key, order } => {
            let ordered = backend.order_breaker(None, domain, (&gate, key.as_deref()), order, note).await;
            acted.breakers = Some(done(call, ordered)?);
        }
        Act::Switch { gate, off } => {
            let switched = backend.switch(domain, gate.as_deref(), off, note).await;
            if switched.as_ref().is_err_and(|e| e.done_all_the_same().is_some()) {
                wake(call, domain, &called).await;
            }
            acted.off = Some(done(call, switched)?);
        }
        Act::Clear { dry_run } => {
            acted.cleared = Some(done(call, backend.clear(domain, dry_run, note).await)?);
        }
    }
    wake(call, domain, &called).await;
    Ok(acted)
}

/// Who waits and may pass after it: what they were told no longer holds. Looked up before, since what is cleared is not known any
/// more; one more than are called, to tell whether there are more.
async fn called_by(call: &Call, backend: &dyn Backend, act: &Act) -> Result<Vec<Holder>, Problem> {
    match act {
        Act::Promote { holder } => Ok(vec![*holder]),
        Act::Breaker { order: BreakerOrder::Reset, .. }
        | Act::Switch { off: true, .. }
        | Act::Clear { dry_run: false } => {
            match backend.waiters(call.text("domain"), SHOWN + 1).await {
                // Nobody can be called; what is asked for says itself whether it can be done.
                Err(GatesError::Unreachable(_)) => Ok(vec![]),
                waiters => Ok(done(call, waiters)?.into_iter().map(|w| w.holder).collect()),
            }
        }
        // Those that a release makes room for are woken by itself.
        Act::Breaker { .. } | Act::Switch { .. } | Act::Clear { .. } | Act::Release { .. } => Ok(vec![]),
    }
}
