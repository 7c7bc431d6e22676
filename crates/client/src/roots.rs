//! Whom to trust: the system's certificates, and those of a file.

use std::path::Path;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tidegate_core::codes;
use tidegate_store::{Error, Result};

/// What TLS needs to know. Without encryption nobody is trusted, and nothing is read.
pub(crate) fn config(secure: bool, ca: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if secure {
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if let Some(path) = ca {
            add_file(&mut roots, path)?;
        }
        if roots.is_empty() {
            let detail =
                "no certificate authorities were found on this system, and no file with one was named";
            return Err(Error::new(codes::INVALID_TLS, detail));
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::internal(format!("TLS cannot be set up: {e}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<()> {
    let refuse = |why: String| Error::new(codes::INVALID_TLS, format!("{}: {why}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| refuse(e.to_string()))?;
    let mut found = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|e| refuse(e.to_string()))?;
        roots.add(certificate).map_err(|e| refuse(e.to_string()))?;
        found += 1;
    }
    if found == 0 {
        return Err(refuse("there is no certificate in it".into()));
    }
    Ok(())
}
