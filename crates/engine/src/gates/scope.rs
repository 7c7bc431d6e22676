//! Which jobs a refusal is about, as far as parks can say it.

use tidegate_core::gates::{Gate, Part, Target};
use tidegate_core::ids::ConnectorName;
use tidegate_core::job::ParkScope;
use tidegate_gates::GateSettings;
use tidegate_store::params::ClaimedJob;

/// The scope to park when this gate refused this call of this job: never more than the gate's key covers. A park knows groups and
/// connectors alone, so there is none
/// - for a job whose kind names no connector, or one that has nothing to do with the domain: its other work must go on;
/// - for a gate of some endpoints or subjects only;
/// - for an account that is not the job's group: other accounts of the group are free.
pub(super) fn to_park(
    settings: &GateSettings,
    gate: &Gate,
    target: &Target,
    job: &ClaimedJob,
) -> Option<ParkScope> {
    let connector = job.connector.as_ref().filter(|c| settings.domain_of(c.as_str()) == target.domain())?;
    if !gate.only.is_empty() {
        return None;
    }
    let mut narrow = false;
    for part in &gate.per {
        match part {
            Part::Connector if target.part(Part::Connector) == connector.as_str() => {}
            Part::Tenant if is_own_tenant(target, job) => narrow = true,
            Part::Account if target.part(Part::Account) == job.group.as_str() => narrow = true,
            Part::Connector | Part::Tenant | Part::Account | Part::Endpoint | Part::Subject => return None,
        }
    }
    Some(if narrow { of_group(job, connector) } else { ParkScope::Connector(connector.clone()) })
}

/// The group's jobs on this connector. A job without a group shares its lane with all others that have none.
fn of_group(job: &ClaimedJob, connector: &ConnectorName) -> ParkScope {
    ParkScope::GroupOnConnector(job.group.clone(), connector.clone())
}

fn is_own_tenant(target: &Target, job: &ClaimedJob) -> bool {
    let own = job.tenant.as_ref().map_or(job.group.as_str(), |t| t.as_str());
    target.part(Part::Tenant) == own && !job.group.is_none()
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::{Kind, config};
    use tidegate_core::ids::{GroupKey, TenantId};
    use tidegate_core::job::Priority;

    use super::*;
    use crate::worker::sample;

    fn parked(per: &[Part], only: &[&str], change: impl FnOnce(&mut ClaimedJob)) -> Option<String> {
        let slots = Kind::Slots(config::Slots::of(1));
        let gate = Gate::new("g", slots).per(per).only(only);
        let settings = GateSettings::new().connector("rest", "netsuite");
        let (mut job, _) = sample::claimed(1, Priority::Medium);
        job.connector = Some(ConnectorName::new("rest").unwrap());
        job.tenant = Some(TenantId::new("acme").unwrap());
        job.group = GroupKey::new("acme").unwrap();
        let target = Target::new("netsuite").unwrap();
        let target = target.with(Part::Connector, "rest").unwrap().with(Part::Tenant, "acme").unwrap();
        let target = target.with(Part::Account, "acme").unwrap();
        change(&mut job);
        to_park(&settings, &gate, &target, &job).map(|s| s.to_string())
    }

    #[test]
    fn no_more_is_parked_than_the_gate_covers() {
        let keep = |_: &mut ClaimedJob| {};
        let (group, connector) = ("group acme on connector rest", "connector rest");
        for (per, only, scope) in [
            (&[][..], &[][..], Some(connector)),
            (&[Part::Connector], &[], Some(connector)),
            (&[Part::Tenant], &[], Some(group)),
            (&[Part::Account], &[], Some(group)),
            (&[Part::Account, Part::Endpoint], &[], None),
            (&[Part::Subject], &[], None),
            (&[], &["bulk"], None),
        ] {
            assert_eq!(parked(per, only, keep).as_deref(), scope, "{per:?} {only:?}");
        }
        assert_eq!(parked(&[Part::Account], &[], |j| j.group = GroupKey::new("eu").unwrap()), None);
        assert_eq!(parked(&[], &[], |j| j.connector = None), None);
        assert_eq!(parked(&[], &[], |j| j.connector = Some(ConnectorName::new("shopify").unwrap())), None);
    }
}
