//! Schedules.

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::ids::{JobId, ScheduleName};
use tidegate_core::schedule::TickEntry;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{PutSchedule, ScheduleChange, ScheduleView, TickQuery};
use tidegate_store::{Error, Result, Schedules};
use tidegate_wire::query::{Writer, encode};
use tidegate_wire::schedules::{self, PauseSchedule, PutReply, RunReply, Schedule, Ticks};

use crate::RemoteStore;
use crate::call::Call;

fn path(name: &ScheduleName, rest: &str) -> String {
    format!("/v1/schedules/{}{rest}", encode(name.as_str()))
}

impl RemoteStore {
    async fn schedule_of(&self, call: Call) -> Result<ScheduleView> {
        let schedule: Schedule = self.caller.read(self.patient(call)).await?;
        ScheduleView::try_from(schedule).map_err(Error::from)
    }
}

#[async_trait]
impl Schedules for RemoteStore {
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange> {
        let request = schedules::PutSchedule { kind: put.spec.kind, settings: put.spec.settings };
        let call = self.patient(Call::put(path(&put.name, ""), &request)?);
        Ok(self.caller.read::<PutReply>(call).await?.outcome)
    }

    async fn delete_schedule(&self, name: ScheduleName, _now: Timestamp) -> Result<bool> {
        let call = self.patient(Call::delete(path(&name, "")));
        self.caller.done_if_found(call, codes::SCHEDULE_NOT_FOUND).await
    }

    async fn pause_schedule(&self, name: ScheduleName, by: String, _now: Timestamp) -> Result<ScheduleView> {
        self.schedule_of(Call::post(path(&name, "/pause"), &PauseSchedule { by: Some(by) })?).await
    }

    async fn resume_schedule(&self, name: ScheduleName, _now: Timestamp) -> Result<ScheduleView> {
        self.schedule_of(Call::tell(path(&name, "/resume"))).await
    }

    async fn run_schedule(&self, name: ScheduleName, _now: Timestamp) -> Result<JobId> {
        // Asked twice, it could run twice.
        Ok(self.caller.read::<RunReply>(self.patient(Call::tell(path(&name, "/run")).once())).await?.job)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        let all: schedules::Schedules = self.caller.read(self.patient(Call::get("/v1/schedules"))).await?;
        all.schedules.into_iter().map(|s| ScheduleView::try_from(s).map_err(Error::from)).collect()
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>> {
        match self.schedule_of(Call::get(path(&name, ""))).await {
            Ok(schedule) => Ok(Some(schedule)),
            Err(error) if error.code == codes::SCHEDULE_NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>> {
        let text = Writer::default().with("before", query.before).with("limit", Some(query.limit)).end();
        let call = self.patient(Call::get(path(&query.name, &format!("/ticks{text}"))));
        let found: Ticks = self.caller.read(call).await?;
        found.ticks.into_iter().map(|t| TickEntry::try_from(t).map_err(Error::from)).collect()
    }
}
