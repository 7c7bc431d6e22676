//! Records: workers and their orders. Keys are never handed out; the server's own routes manage them
//! ([`RemoteStore::create_key`], [`RemoteStore::keys`], [`RemoteStore::revoke_key`]).

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Record, Shelf};
use tidegate_store::{Error, Records, Result};
use tidegate_wire::query::encode;
use tidegate_wire::workers::{NoteRequest, Notes};

use crate::RemoteStore;
use crate::call::Call;

#[async_trait]
impl Records for RemoteStore {
    async fn put_record(&self, record: Record, now: Timestamp) -> Result<()> {
        record.check()?;
        let path = format!("{}/{}", path(record.shelf)?, encode(&record.key));
        let request = NoteRequest::new(&record.body, record.expires, now);
        self.caller.done(self.patient(Call::put(path, &request)?)).await
    }

    async fn records(&self, shelf: Shelf, _now: Timestamp) -> Result<Vec<Record>> {
        let notes: Notes = self.caller.read(self.patient(Call::get(path(shelf)?))).await?;
        Ok(notes.notes.into_iter().map(|n| n.into_record(shelf)).collect())
    }

    async fn delete_record(&self, shelf: Shelf, key: String) -> Result<bool> {
        let call = self.patient(Call::delete(format!("{}/{}", path(shelf)?, encode(&key))));
        self.caller.done_if_found(call, codes::WORKER_NOT_FOUND).await
    }
}

fn path(shelf: Shelf) -> Result<&'static str> {
    match shelf {
        Shelf::Workers => Ok("/v1/workers"),
        Shelf::Orders => Ok("/v1/orders"),
        Shelf::Alerts | Shelf::Silences | Shelf::Probes => {
            let detail = "a server keeps its alerts itself; see `tidegate alerts`";
            Err(Error::new(codes::NOT_ALLOWED, detail))
        }
        Shelf::Keys => {
            let detail = "a server does not hand out its keys; it makes, lists and revokes them itself";
            Err(Error::new(codes::NOT_ALLOWED, detail))
        }
    }
}
