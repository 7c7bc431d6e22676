//! Dead letters. The server makes the ids of recovered jobs.

use std::collections::HashMap;

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::ids::JobId;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{
    CauseQuery, Causes, ProcessLetters, ProcessedLetters, Reauthorized, Recover, Recovered, Resolve,
};
use tidegate_store::{Error, Jobs, Letters, Result};
use tidegate_wire::letters::{
    Processed, ReauthorizedReply, ReauthorizedRequest, RecoverReply, RecoverRequest, ResolveRequest,
    causes_to_query,
};

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

    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        _now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        let mut replies: HashMap<JobId, Recovered> = HashMap::new();
        for resolve in [false, true] {
            let ids: Vec<JobId> =
                letters.iter().filter(|l| l.new_id.is_none() == resolve).map(|l| l.dead).collect();
            if ids.is_empty() {
                continue;
            }
            let request =
                ReauthorizedRequest { ids, resolve, by: Some(by.clone()), ..ReauthorizedRequest::default() };
            let call = self.patient(Call::post("/v1/dead/reauthorized", &request)?);
            let reply: Reply<ReauthorizedReply> = self.caller.ask(call).await?;
            replies.extend(reply.value.letters.into_iter().map(|l| (l.dead, l.became.into())));
        }
        Ok(letters.iter().map(|l| replies.get(&l.dead).copied().unwrap_or(Recovered::NotDead)).collect())
    }

    /// Only when somebody asks for it: otherwise the server does it.
    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters> {
        if !process.at_once {
            return Ok(ProcessedLetters::default());
        }
        let call = self.patient(Call::post("/v1/dead/process", &serde_json::json!({}))?);
        Ok(self.caller.read::<Processed>(call).await?.into())
    }

    async fn causes(&self, query: CauseQuery) -> Result<Causes> {
        let path = format!("/v1/dead/causes{}", causes_to_query(&query));
        Ok(self.caller.read::<tidegate_wire::letters::Causes>(self.patient(Call::get(path))).await?.into())
    }
}
