//! TLS from PEM files.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_core::codes;
use tidegate_store::{Error, Result};
use tokio_rustls::TlsAcceptor;

use crate::TlsFiles;

/// Reads the files.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let refuse = |what: &str, path: &std::path::Path, why: String| {
        Error::new(codes::INVALID_TLS, format!("{what} {}: {why}", path.display()))
    };
    let certificate = |why: String| refuse("certificate", &files.certificates, why);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect)
        .map_err(|e| certificate(e.to_string()))?;
    if chain.is_empty() {
        return Err(certificate("there is no certificate in it".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.private_key)
        .map_err(|e| refuse("private key", &files.private_key, e.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|c| c.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| certificate(e.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
