//! Encrypted connections, with the modes of libpq: `prefer` and `require` encrypt, `verify-ca` also checks who signed the
//! server's certificate, `verify-full` also that it is the server's. A root certificate turns `require` into
//! `verify-ca`, as libpq does.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::BadAddress;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Where systems keep the certificates they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

const MODES: &str = "write sslmode=disable, prefer, require, verify-ca or verify-full";
const ROOTS: &str = "name a PEM file of root certificates with sslrootcert=FILE";

/// How connections are encrypted.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads `sslmode` and `sslrootcert`.
    pub(crate) fn new(mode: Option<&str>, root: Option<&str>) -> Result<(SslMode, Self), BadAddress> {
        let refuse = |detail: String| BadAddress::new(detail, MODES);
        let (driver, check) = match mode {
            Some("disable") => (SslMode::Disable, Check::Nothing),
            None | Some("prefer" | "allow") => (SslMode::Prefer, Check::Nothing),
            Some("require") if root.is_none() => (SslMode::Require, Check::Nothing),
            Some("require" | "verify-ca") => (SslMode::Require, Check::Signer),
            Some("verify-full") => (SslMode::Require, Check::All),
            Some(other) => return Err(refuse(format!("sslmode `{other}` is not known"))),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match check {
            Check::Nothing => Verifier { inner: None, check, provider: provider.clone() },
            Check::Signer | Check::All => {
                let roots = Arc::new(roots(root)?);
                let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                let inner = inner.map_err(|e| BadAddress::new(format!("sslrootcert: {e}"), ROOTS))?;
                Verifier { inner: Some(inner), check, provider: provider.clone() }
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| refuse(format!("TLS: {e}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok((driver, Self { config: Arc::new(config) }))
    }
}

fn roots(path: Option<&str>) -> Result<RootCertStore, BadAddress> {
    let system = || SYSTEM_ROOTS.iter().copied().find(|p| Path::new(p).exists());
    let path = path.filter(|p| *p != "system").or_else(system);
    let refuse = |detail: String| BadAddress::new(detail, ROOTS);
    let path = path.ok_or_else(|| refuse("this system has no list of trusted certificates".into()))?;
    let unreadable = |e| refuse(format!("sslrootcert {path}: {e}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        roots
            .add(certificate.map_err(unreadable)?)
            .map_err(|e| refuse(format!("sslrootcert {path}: {e}")))?;
    }
    Ok(roots)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Nothing,
    Signer,
    All,
}

#[derive(Debug)]
struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    check: Check,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        let verified = inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Signer => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Connector;
    type Error = rustls_pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connector, Self::Error> {
        // A socket in the file system has no name, and is not encrypted.
        let domain = if domain.is_empty() { "localhost" } else { domain };
        let name = ServerName::try_from(domain)?.to_owned();
        Ok(Connector { config: self.config.clone(), name })
    }
}

/// Encrypts one connection.
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Connector {
    type Stream = Encrypted;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = tokio_rustls::TlsConnector::from(self.config);
            Ok(Encrypted(Box::new(connector.connect(self.name, stream).await?)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
