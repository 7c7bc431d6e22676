//! Queues, kinds and parks.

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::job::{Park, ParkScope};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{KindView, QueueView};
use tidegate_store::{Error, Registry, Result};
use tidegate_wire::parks::{self, ParkQuery, ParkRequest};
use tidegate_wire::query::encode;
use tidegate_wire::registry::{AllSettings, EnsureQueue, Kinds, Queues};

use crate::RemoteStore;
use crate::call::Call;

#[async_trait]
impl Registry for RemoteStore {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, _now: Timestamp) -> Result<()> {
        let path = format!("/v1/queues/{}", encode(name.as_str()));
        self.caller.done(self.patient(Call::put(path, &settings)?)).await
    }

    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        // Workers ask every second and repeat it themselves.
        let all: AllSettings = self.caller.read(Call::get("/v1/settings")).await?;
        Ok(all.queues.into_iter().map(|q| (q.name, q.settings)).collect())
    }

    async fn ensure_queue(&self, name: QueueName, _now: Timestamp) -> Result<()> {
        self.caller.done(self.patient(Call::post("/v1/queues", &EnsureQueue { name })?)).await
    }

    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        let path = format!("/v1/kinds/{}", encode(name.as_str()));
        self.caller.done(self.patient(Call::put(path, &settings)?)).await
    }

    async fn queues(&self, _now: Timestamp) -> Result<Vec<QueueView>> {
        let queues: Queues = self.caller.read(self.patient(Call::get("/v1/queues"))).await?;
        queues.queues.into_iter().map(|q| QueueView::try_from(q).map_err(Error::from)).collect()
    }

    async fn kinds(&self) -> Result<Vec<KindView>> {
        let kinds: Kinds = self.caller.read(self.patient(Call::get("/v1/kinds"))).await?;
        Ok(kinds.kinds.into_iter().map(KindView::from).collect())
    }

    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.caller.done(self.patient(Call::put("/v1/parks", &ParkRequest::new(park, now))?)).await
    }

    async fn unpark(&self, scope: ParkScope, by: String, _now: Timestamp) -> Result<bool> {
        let query = ParkQuery { scope: scope.into(), by: Some(by) };
        let call = self.patient(Call::delete(format!("/v1/parks{}", query.to_query())));
        self.caller.done_if_found(call, codes::PARK_NOT_FOUND).await
    }

    async fn parks(&self) -> Result<Vec<Park>> {
        let parks: parks::Parks = self.caller.read(self.patient(Call::get("/v1/parks"))).await?;
        parks.parks.into_iter().map(|p| Park::try_from(p).map_err(Error::from)).collect()
    }
}
