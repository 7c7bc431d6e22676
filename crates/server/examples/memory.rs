//! A server over a store in memory, gone when it ends: `cargo run -p tidegate-server --example memory [ADDRESS]`.

use std::sync::Arc;

use tidegate_server::{Server, ServerOptions};
use tidegate_store::MemoryStore;

#[expect(clippy::print_stdout, reason = "says where it is")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = ServerOptions::default();
    if let Some(address) = std::env::args().nth(1) {
        options.bind = address.parse()?;
    }
    let server = Server::bind(Arc::new(MemoryStore::new()), options).await?;
    println!("http://{}", server.addr());
    server
        .run(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await;
    Ok(())
}
