//! Upkeep: time passes at the server, so there is little to do from here.

use async_trait::async_trait;
use tidegate_core::ids::Seq;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Advanced, Erase, Erased, Totals};
use tidegate_store::{Result, Upkeep};
use tidegate_wire::query::encode;
use tidegate_wire::{Cursor, letters};

use crate::RemoteStore;
use crate::call::Call;

#[async_trait]
impl Upkeep for RemoteStore {
    /// Nothing: the server does it.
    async fn advance(&self, _now: Timestamp) -> Result<Advanced> {
        Ok(Advanced::default())
    }

    /// Nothing: the server does it.
    async fn prune(&self, _limit: usize, _now: Timestamp) -> Result<u64> {
        Ok(0)
    }

    async fn erase(&self, erase: Erase) -> Result<Erased> {
        let after = (erase.after > Seq(0)).then_some(Cursor(erase.after));
        let request = letters::EraseRequest { after, scan: Some(erase.scan) };
        let path = format!("/v1/tenants/{}/erase", encode(erase.tenant.as_str()));
        let call = self.patient(Call::post(path, &request)?);
        Ok(self.caller.read::<letters::EraseReply>(call).await?.into())
    }

    async fn totals(&self) -> Result<Totals> {
        Ok(self.caller.read::<letters::Totals>(self.patient(Call::get("/v1/totals"))).await?.into())
    }
}
