//! The registry as a whole, and its history.

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::registry::{Document, Version, VersionInfo, written};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Applied, Apply, RefusedDocument, Wanted};
use tidegate_store::{Error, Result, Versions};
use tidegate_wire::query::encode;
use tidegate_wire::versions::{
    AppliedReply, History, NumberReply, RefusalRequest, RegistryReply, RollbackRequest, VersionReply,
};

use crate::RemoteStore;
use crate::call::{Call, Reply};

#[async_trait]
impl Versions for RemoteStore {
    async fn apply(&self, apply: Apply) -> Result<Applied> {
        let Apply { wanted, by, source, dry_run, .. } = apply;
        let call = match wanted {
            Wanted::Document(document) => {
                let (by, source) = (encode(&by), encode(&source));
                let path = format!("/v1/registry?dry_run={dry_run}&source={source}&by={by}");
                Call::put(path, &written(&document, true))?
            }
            Wanted::Version(version) => {
                let request = RollbackRequest { version, dry_run, by: Some(by) };
                Call::post("/v1/registry/rollback", &request)?
            }
        };
        // Sent twice it changes nothing the second time.
        let reply: Reply<AppliedReply> = self.caller.ask(self.patient(call)).await?;
        Ok(reply.value.into())
    }

    async fn refuse(&self, refused: RefusedDocument, _now: Timestamp) -> Result<u64> {
        let RefusedDocument { by, source, hash, problems } = refused;
        let request = RefusalRequest { by: Some(by), source, hash, problems };
        let reply: Reply<NumberReply> =
            self.caller.ask(Call::post("/v1/registry/refusals", &request)?).await?;
        Ok(reply.value.number)
    }

    async fn registry(&self) -> Result<Document> {
        let reply: RegistryReply =
            self.caller.read(self.patient(Call::get("/v1/registry?full=true"))).await?;
        read(&reply.document)
    }

    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>> {
        let limit = limit.min(limits::MAX_REGISTRY_VERSIONS + limits::MAX_REGISTRY_REFUSALS);
        let call = Call::get(format!("/v1/registry/history?limit={limit}"));
        let history: History = self.caller.read(self.patient(call)).await?;
        Ok(history.versions.into_iter().map(Into::into).collect())
    }

    async fn version(&self, number: u64) -> Result<Option<Version>> {
        let call = self.patient(Call::get(format!("/v1/registry/history/{number}")));
        let reply: VersionReply = match self.caller.read(call).await {
            Ok(reply) => reply,
            Err(error) if error.code == codes::VERSION_NOT_FOUND => return Ok(None),
            Err(error) => return Err(error),
        };
        let document = reply.document.as_ref().map(read).transpose()?;
        Ok(Some(Version { info: reply.info.into(), document }))
    }
}

fn read(document: &serde_json::Value) -> Result<Document> {
    Document::read(document).map_err(|problems| {
        let said = problems.first().map(ToString::to_string).unwrap_or_default();
        Error::new(codes::SERVER_MISMATCH, format!("the server's registry cannot be read: {said}"))
    })
}
