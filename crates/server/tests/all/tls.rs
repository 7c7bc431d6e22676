//! TLS by setting. The certificate in `data/` is for tests alone.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Served, options};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_server::{Server, TlsFiles};
use tidegate_store::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/all/data").join(name)
}

fn files() -> TlsFiles {
    TlsFiles { certificates: data("certificate.pem"), private_key: data("private_key.pem") }
}

#[tokio::test]
async fn a_server_speaks_tls_and_goes_on_after_those_who_do_not() {
    let mut options = options();
    options.tls = Some(files());
    let served = Served::with(Arc::new(MemoryStore::new()), options).await;
    let mut plain = TcpStream::connect(served.addr).await.unwrap();
    plain.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![];
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("alive"));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(data("authority.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(served.addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut secure = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    secure.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = secure.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("alive\n"), "{answer}");
}

#[tokio::test]
async fn files_that_cannot_be_read_are_named() {
    for (files, named) in [
        (TlsFiles { certificates: data("nope.pem"), ..files() }, "nope.pem"),
        (TlsFiles { private_key: data("certificate.pem"), ..files() }, "private key"),
        (TlsFiles { certificates: data("private_key.pem"), ..files() }, "no certificate"),
        (TlsFiles { certificates: data("authority.pem"), ..files() }, "authority.pem"),
    ] {
        let mut options = options();
        options.tls = Some(files);
        let refused = Server::bind(Arc::new(MemoryStore::new()), options).await.unwrap_err();
        assert_eq!(refused.code.id, "TG2019", "{refused}");
        assert!(refused.detail.contains(named), "{refused}");
    }
}
