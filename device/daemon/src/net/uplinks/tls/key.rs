//! The key that the daemons of a TLS trunk share. It is the seed of a pair of Ed25519 keys (RFC
//! 8032), which both daemons derive from it. Each daemon proves by a signature that it has the
//! private key, and accepts no other public key from its peer (raw public keys, RFC 7250).
//! Certificates are not used.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, version::TLS13,
};

/// Length of the seed in bytes.
const SEED: usize = 32;
/// The bytes before the seed in a PKCS #8 private key (RFC 8410, section 7).
const PKCS8: [u8; 16] = [0x30, 46, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 34, 4, 32];

/// The key, as configurations for both sides of TLS.
#[derive(Clone)]
pub struct SharedKey {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKey").finish_non_exhaustive()
    }
}

impl SharedKey {
    /// Reads the file of a key: 64 hexadecimal digits.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, has another form, or is accessible to users
    /// other than its owner, or if the processor lacks instructions. A credential of systemd may be
    /// owned by root, and readable by the daemon's user besides.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        if !is_private(file.metadata()?.permissions().mode(), path, credentials.as_deref()) {
            return Err(io::Error::other(
                "users other than its owner have access to it (use chmod 600)",
            ));
        }
        let mut text = String::new();
        file.take(1024).read_to_string(&mut text)?;
        let seed = seed(text.trim()).ok_or_else(|| {
            io::Error::other("it is not a key (make one by openssl rand -hex 32)")
        })?;
        if !has_instructions() {
            return Err(io::Error::other("the processor needs AVX2, ADX, BMI1, AES and PCLMULQDQ"));
        }
        Self::new(seed).map_err(io::Error::other)
    }

    fn new(seed: [u8; SEED]) -> Result<Self, Error> {
        let provider = Arc::new(rustls_graviola::default_provider());
        let private = PrivatePkcs8KeyDer::from([&PKCS8[..], &seed].concat());
        let signing = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(private))?;
        let public = signing
            .public_key()
            .ok_or(Error::InconsistentKeys(rustls::InconsistentKeys::Unknown))?;
        let public = public.as_ref().to_vec();
        let same = Arc::new(SameKey::new(&provider, &public));
        let own = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signing));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::clone(&same) as Arc<dyn ClientCertVerifier>)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&own))));
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(same)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// Returns the listening side of a connection.
    ///
    /// # Errors
    /// Returns the error of TLS.
    pub fn server(&self) -> io::Result<rustls::Connection> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        Ok(connection.map_err(io::Error::other)?.into())
    }

    /// Returns the connecting side of a connection.
    ///
    /// # Errors
    /// Returns the error of TLS.
    pub fn client(&self, peer: SocketAddr) -> io::Result<rustls::Connection> {
        let name = ServerName::IpAddress(peer.ip().into());
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        Ok(connection.map_err(io::Error::other)?.into())
    }
}

/// Reads the digits of a seed.
fn seed(text: &str) -> Option<[u8; SEED]> {
    let mut seed = [0; SEED];
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    if digits.len() != SEED || !rest.is_empty() {
        return None;
    }
    for (byte, digits) in seed.iter_mut().zip(digits) {
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(seed)
}

/// Returns whether the processor has the instructions that the cryptography needs.
fn has_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::is_x86_feature_detected!("aes")
        && std::is_x86_feature_detected!("pclmulqdq")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("adx")
        && std::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let has = true;
    has
}

/// Accepts only a peer with the same public key.
#[derive(Debug)]
struct SameKey {
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    fn new(provider: &CryptoProvider, public: &[u8]) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { public: public.to_vec(), algorithms }
    }

    fn check(&self, public: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        let same = public.as_ref() == self.public && more.is_empty();
        let error = rustls::CertificateError::ApplicationVerificationFailure;
        if same { Ok(()) } else { Err(Error::InvalidCertificate(error)) }
    }
}

/// The methods that verify signatures, which are the same for both sides.
macro_rules! signatures_of_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _public: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("only TLS 1.3 is supported".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            public: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let public = SubjectPublicKeyInfoDer::from(public.as_ref());
            verify_tls13_signature_with_raw_key(message, &public, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        public: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(public, more).map(|()| ServerCertVerified::assertion())
    }

    signatures_of_raw_keys!();
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        public: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(public, more).map(|()| ClientCertVerified::assertion())
    }

    signatures_of_raw_keys!();
}

/// Returns whether only one user can read the file of a key. In the folder of systemd's credentials
/// that is the service's user, whom a list of access rights admits. Such a list shows as rights of
/// the group to read.
fn is_private(mode: u32, path: &Path, credentials: Option<&Path>) -> bool {
    let is_credential = credentials.is_some_and(|folder| path.parent() == Some(folder));
    mode & if is_credential { 0o037 } else { 0o077 } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_systemd_are_private() {
        let folder = Path::new("/run/credentials/vrnicd.service");
        let credential = folder.join("trunk.key");
        assert!(is_private(0o100_440, &credential, Some(folder)));
        assert!(!is_private(0o100_444, &credential, Some(folder)));
        assert!(!is_private(0o100_460, &credential, Some(folder)));
        assert!(!is_private(0o100_440, &credential, None));
        for other in ["/etc/vrnic/trunk.key", "/run/credentials/vrnicd.service/../trunk.key"] {
            assert!(!is_private(0o100_440, Path::new(other), Some(folder)), "{other}");
            assert!(is_private(0o100_600, Path::new(other), Some(folder)), "{other}");
        }
    }

    /// Shows: network
    #[test]
    fn seeds_have_64_digits() {
        let digits = "00ff".repeat(16);
        let seed_bytes = seed(&digits).expect("a seed");
        assert_eq!((seed_bytes[0], seed_bytes[31]), (0, 0xff));
        for bad in ["", "0", &digits[1..], &format!("{digits}0"), &"zz".repeat(32), &"é".repeat(32)]
        {
            assert_eq!(seed(bad), None, "{bad}");
        }
    }
}
