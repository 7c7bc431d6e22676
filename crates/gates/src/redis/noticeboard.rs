//! What processes leave to be seen: a text each, and a list of those who did, all at one server.

use async_trait::async_trait;
use redis::FromRedisValue;
use tidegate_core::gates::SECOND;

use super::link::unreachable;
use super::{Inner, RedisGates, info};
use crate::GatesError;
use crate::noticeboard::{Footprint, Noticeboard};
use crate::watched::{SNAPSHOT_KEPT, SNAPSHOTS, Snapshot};

/// Snapshots that are read in one go.
const TOGETHER: usize = 16;

impl Inner {
    /// The list. No domain has such a name.
    fn seen_key(&self) -> String {
        format!("{}:{{!seen}}", self.prefix)
    }

    async fn tell<T: FromRedisValue>(&self, key: &str, command: &redis::Cmd) -> Result<T, GatesError> {
        let answer = self.link.ask(key, command).await.map_err(unreachable)?;
        redis::from_redis_value(answer).map_err(|e| GatesError::Corrupt(e.to_string()))
    }

    /// Takes down what is too old, and the oldest where there are too many. Writers do it, too: there may be no readers.
    async fn take_down(&self, list: &str) -> Result<(), GatesError> {
        let mut old = redis::cmd("ZREMRANGEBYSCORE");
        old.arg(list).arg("-inf").arg((self.clock() - SNAPSHOT_KEPT) / SECOND);
        self.tell::<redis::Value>(list, &old).await?;
        let mut excess = redis::cmd("ZRANGE");
        excess.arg(list).arg(0).arg(-(SNAPSHOTS as i64) - 1);
        let processes: Vec<String> = self.tell(list, &excess).await?;
        for some in processes.chunks(TOGETHER) {
            let (mut strike, mut delete) = (redis::cmd("ZREM"), redis::cmd("DEL"));
            strike.arg(list).arg(some);
            for process in some {
                delete.arg(format!("{list}:{process}"));
            }
            for command in [strike, delete] {
                self.tell::<redis::Value>(list, &command).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Noticeboard for RedisGates {
    async fn publish(&self, seen: &Snapshot) -> Result<(), GatesError> {
        let (inner, list) = (&*self.inner, self.inner.seen_key());
        let (lasts, at) = (SNAPSHOT_KEPT / SECOND, inner.clock() / SECOND);
        let mut put = redis::cmd("SET");
        put.arg(format!("{list}:{}", seen.process)).arg(seen.to_text()).arg("EX").arg(lasts);
        let mut enlist = redis::cmd("ZADD");
        enlist.arg(&list).arg(at).arg(&seen.process);
        let mut keep = redis::cmd("EXPIRE");
        keep.arg(&list).arg(lasts);
        for command in [put, enlist, keep] {
            inner.tell::<redis::Value>(&list, &command).await?;
        }
        inner.take_down(&list).await
    }

    async fn published(&self) -> Result<Vec<Snapshot>, GatesError> {
        let (inner, list) = (&*self.inner, self.inner.seen_key());
        inner.take_down(&list).await?;
        let mut newest = redis::cmd("ZREVRANGE");
        newest.arg(&list).arg(0).arg(SNAPSHOTS as i64 - 1);
        let processes: Vec<String> = inner.tell(&list, &newest).await?;
        let mut all = Vec::new();
        for some in processes.chunks(TOGETHER) {
            let mut get = redis::cmd("MGET");
            for process in some {
                get.arg(format!("{list}:{process}"));
            }
            let texts: Vec<Option<String>> = inner.tell(&list, &get).await?;
            all.extend(texts.into_iter().flatten().filter_map(|text| Snapshot::from_text(&text)));
        }
        Ok(all)
    }

    /// What its servers use in all: others may keep something there, too.
    async fn footprint(&self) -> Result<Footprint, GatesError> {
        let (link, mut total) = (&self.inner.link, Footprint::default());
        let mut memory = redis::cmd("INFO");
        memory.arg("memory");
        for node in link.owners() {
            let read = |e: redis::ParsingError| GatesError::Corrupt(e.to_string());
            let text = link.ask_at(&node, &memory).await.map_err(unreachable)?;
            let text: String = redis::from_redis_value(text).map_err(read)?;
            let keys = link.ask_at(&node, &redis::cmd("DBSIZE")).await.map_err(unreachable)?;
            total.bytes += info(&text, "used_memory").and_then(|n| n.parse().ok()).unwrap_or(0_u64);
            total.keys += redis::from_redis_value::<u64>(keys).map_err(read)?;
        }
        Ok(total)
    }
}
