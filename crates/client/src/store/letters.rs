//! Dead letters. The server makes the ids of recovered jobs.

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Recover, Recovered, Resolve};
use tidegate_store::{Error, Jobs, Letters, Result};
use tidegate_wire::letters::{RecoverReply, RecoverRequest, ResolveRequest};

use crate::RemoteStore;
use crate::call::{Call, Reply};

#[async_trait]
impl Letters for RemoteStore {
    async fn recover(&self, letters: Vec<Recover>, _now: Timestamp) -> Result<Vec<Recovered>> {
        let request = RecoverRequest { ids: letters.iter().map(|l| l.dead).collect() };
        let call = self.patient(Call::post("/v1/dead/recover", &request)?);
        let reply: Reply<RecoverReply> = self.caller.ask(call).await?;
        if reply.value.recovered.len() != letters.len() {
            let text =
                format!("{} letters were sent and {} answered", letters.len(), reply.value.recovered.len());
            return Err(Error::new(codes::SERVER_MISMATCH, text));
        }
        Ok(reply.value.recovered.into_iter().map(Recovered::from).collect())
    }

    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        let request = ResolveRequest { resolution: resolve.resolution, by: Some(resolve.by) };
        let call = self.patient(Call::post(format!("/v1/dead/{}/resolve", resolve.id), &request)?);
        let done = self.caller.done_or_repeated(call).await;
        match done.value {
            // It may be settled by the request whose reply was lost.
            Err(error) if done.repeated && error.code == codes::WRONG_STATE => {
                let letter = self.get(resolve.id).await?.and_then(|job| job.dead);
                let settled = letter.is_some_and(|l| l.resolution == Some(resolve.resolution));
                if settled { Ok(()) } else { Err(error) }
            }
            done => done,
        }
    }
}
