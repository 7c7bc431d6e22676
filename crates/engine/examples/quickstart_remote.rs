//! A whole program: enqueue a job, handle it, stop when nothing is left.
use tidegate::{Context, Job, Outcome, Tidegate, Worker, done};

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(kind = "invoice.send", queue = "billing", timeout = "30s")]
struct SendInvoice {
    order: u64,
}

async fn send(job: SendInvoice, cx: Context) -> Outcome {
    cx.progress(0.5, "rendered").await?;
    println!("invoice for {}", job.order);
    done()
}

#[tokio::main]
async fn main() -> tidegate::Result<()> {
    let tide = Tidegate::connect(std::env::var("TIDEGATE_STORE").expect("the address of a server")).await?;
    tide.enqueue(SendInvoice { order: 7 }).tenant("acme").delay("2s").await?;
    let report = Worker::new(&tide).handle(send).concurrency(50).run_until_idle().await?;
    println!("{report}");
    tide.close().await
}
