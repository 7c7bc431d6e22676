//! A connection with its prepared statements, and requests sent without waiting for one another.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures_sink::Sink as _;
use tidegate_pg::{Address, Work};
use tidegate_store::{Error, Result};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::error::OrStore;
use crate::options::PgOptions;
use crate::statements::{Sql, in_schema};

/// A connection with its statements.
pub(crate) struct Link {
    client: Client,
    statements: Vec<Option<Statement>>,
    /// A copy failed: see [`Link::copy`].
    tangled: AtomicBool,
    _work: Work,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// Opens a connection, makes its settings and prepares these statements.
    pub(crate) async fn open(address: &Address, options: &PgOptions, which: &[Sql]) -> Result<Self> {
        let (client, work) = address.open(None).await.or_store()?;
        let statements = vec![None; Sql::ALL.len()];
        let mut link = Self { client, statements, tangled: AtomicBool::new(false), _work: work };
        if !options.pooled {
            link.client.batch_execute(&options.settings(false)).await.or_store()?;
        }
        let texts: Vec<String> = which.iter().map(|sql| text_of(*sql, options)).collect();
        let prepare: Vec<Request<'_, Statement>> =
            texts.iter().map(|text| request(link.client.prepare(text))).collect();
        for (sql, statement) in which.iter().zip(all(prepare).await) {
            link.statements[*sql as usize] = Some(statement?);
        }
        Ok(link)
    }

    /// Whether the connection is known to be gone, or of no use any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.tangled.load(Ordering::Acquire) || self.client.is_closed()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn statement(&self, sql: Sql) -> Result<&Statement> {
        let statement = self.statements[sql as usize].as_ref();
        statement.ok_or_else(|| Error::internal(format!("statement {sql:?} was not prepared")))
    }

    /// Reads rows.
    pub(crate) async fn query(&self, sql: Sql, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.client.query(self.statement(sql)?, params).await.or_store()
    }

    /// Writes rows; says how many.
    pub(crate) async fn execute(&self, sql: Sql, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.client.execute(self.statement(sql)?, params).await.or_store()
    }

    /// Sends rows in binary form. To a copy that the server refuses at once (the transaction has failed before), the driver sends the end of a
    /// copy all the same, which the server answers once more: from there on an answer may be taken for that of another request. So
    /// a connection is not used again after a copy that failed.
    pub(crate) async fn copy(&self, sql: Sql, rows: Bytes) -> Result<()> {
        let copied = self.try_copy(sql, rows).await;
        if copied.is_err() {
            self.tangled.store(true, Ordering::Release);
        }
        copied
    }

    async fn try_copy(&self, sql: Sql, rows: Bytes) -> Result<()> {
        let sink = self.client.copy_in::<_, Bytes>(self.statement(sql)?).await.or_store()?;
        let mut sink = pin!(sink);
        poll_fn(|cx| sink.as_mut().poll_ready(cx)).await.or_store()?;
        sink.as_mut().start_send(rows).or_store()?;
        sink.finish().await.or_store()?;
        Ok(())
    }

    /// Runs a text without params and without result.
    pub(crate) async fn batch(&self, text: &str) -> Result<()> {
        self.client.batch_execute(text).await.or_store()
    }
}

fn text_of(sql: Sql, options: &PgOptions) -> String {
    let (_, path, text) = Sql::ALL[sql as usize];
    let instead = options.instead.iter().find(|(p, _)| *p == path).map(|(_, text)| *text);
    in_schema(instead.unwrap_or(text), &options.schema)
}

/// A request that is sent when it is first polled.
pub(crate) type Request<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A request to the driver.
fn request<'a, T: 'a>(
    future: impl Future<Output = std::result::Result<T, tokio_postgres::Error>> + Send + 'a,
) -> Request<'a, T> {
    Box::pin(async { future.await.or_store() })
}

/// A request on its way.
enum Sent<'a, T> {
    Waits(Request<'a, T>),
    Answered(Result<T>),
}

/// Sends all requests, in order, and then waits for all answers: one round trip.
pub(crate) async fn all<T>(requests: Vec<Request<'_, T>>) -> Vec<Result<T>> {
    let mut sent: Vec<Sent<'_, T>> = requests.into_iter().map(Sent::Waits).collect();
    poll_fn(|cx| {
        let mut waiting = false;
        for request in &mut sent {
            let Sent::Waits(future) = request else { continue };
            match future.as_mut().poll(cx) {
                Poll::Ready(answer) => *request = Sent::Answered(answer),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let answer = |request| match request {
        Sent::Answered(answer) => Some(answer),
        Sent::Waits(_) => None,
    };
    sent.into_iter().filter_map(answer).collect()
}

/// Sends all requests and then `last`, and waits for all answers: one round trip. If one of the requests could not
/// even be sent, `otherwise` is sent in place of `last`. The first error is returned.
pub(crate) async fn finish(
    mut requests: Vec<Request<'_, ()>>,
    last: Request<'_, ()>,
    otherwise: Request<'_, ()>,
) -> Result<()> {
    let mut failed: Option<Error> = None;
    let mut done = vec![false; requests.len()];
    // What fails without waiting was never sent; what the server refuses makes it refuse the rest by itself.
    poll_fn(|cx| {
        for (request, done) in requests.iter_mut().zip(&mut done) {
            if let Poll::Ready(answer) = request.as_mut().poll(cx) {
                *done = true;
                if let Err(error) = answer {
                    failed.get_or_insert(error);
                }
            }
        }
        Poll::Ready(())
    })
    .await;
    let mut rest: Vec<Request<'_, ()>> =
        requests.into_iter().zip(done).filter(|(_, done)| !done).map(|(request, _)| request).collect();
    rest.push(if failed.is_some() { otherwise } else { last });
    for answer in all(rest).await {
        if let Err(error) = answer {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}
