//! How the client of a broker proves and checks identities. Certificates are always verified; there is no switch to
//! leave that out, but a file of authorities for those that the system does not know.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::ConfigProblem;

/// The bytes of a certificate and of its key, in PEM.
pub type Identity = (Vec<u8>, Vec<u8>);

/// TLS to a broker. Whether it is used is said by the address (or by a setting of the sink).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsConfig {
    /// A file of PEM certificates of authorities to trust, for brokers whose certificate the system does not know. Kafka, NATS
    /// and Redis then trust no others.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with the client's certificate and those that vouch for it, for brokers that ask for one.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    pub key_file: Option<PathBuf>,
}

impl TlsConfig {
    /// What cannot work. It reads no file.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        match (&self.certificate_file, &self.key_file) {
            (Some(_), None) => {
                vec![ConfigProblem::new("tls.key_file", "there is a certificate_file without its key; give both")]
            }
            (None, Some(_)) => {
                vec![ConfigProblem::new(
                    "tls.certificate_file",
                    "there is a key_file without its certificate; give both",
                )]
            }
            _ => Vec::new(),
        }
    }

    /// The bytes of `ca_file`, if there is one.
    pub fn authorities(&self) -> Result<Option<Vec<u8>>, ConfigProblem> {
        self.ca_file.as_deref().map(|path| read("tls.ca_file", path)).transpose()
    }

    /// The bytes of the client's certificate and key, if there are any.
    pub fn identity(&self) -> Result<Option<Identity>, ConfigProblem> {
        match (&self.certificate_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                Ok(Some((read("tls.certificate_file", certificate)?, read("tls.key_file", key)?)))
            }
            _ => Ok(None),
        }
    }
}

/// Makes sure that the process has a crypto provider before a client library wants it, which would panic without one.
///
/// Called when a connection is about to be made and not before, so that a program has had its time to choose. What it
/// chose stays; a program that chose none gets aws-lc-rs.
#[cfg(any(feature = "nats", feature = "redis"))]
pub(crate) fn choose_provider() {
    use rustls::crypto::{CryptoProvider, aws_lc_rs};

    if CryptoProvider::get_default().is_none() {
        // Somebody else may be quicker, which is as good.
        let _chosen = aws_lc_rs::default_provider().install_default();
    }
}

fn read(field: &str, path: &Path) -> Result<Vec<u8>, ConfigProblem> {
    std::fs::read(path).map_err(|error| ConfigProblem::new(field, format!("it cannot be read: {}", error.kind())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_its_key_belong_together() {
        let problems = |certificate: Option<&str>, key: Option<&str>| {
            let tls = TlsConfig {
                ca_file: None,
                certificate_file: certificate.map(Into::into),
                key_file: key.map(Into::into),
            };
            tls.problems().into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        assert_eq!(problems(None, None), [""; 0]);
        assert_eq!(problems(Some("c"), Some("k")), [""; 0]);
        assert_eq!(problems(Some("c"), None), ["tls.key_file"]);
        assert_eq!(problems(None, Some("k")), ["tls.certificate_file"]);
    }

    #[test]
    fn s19_there_is_no_switch_that_leaves_verification_out() {
        for unknown in ["insecure", "verify", "danger_accept_invalid_certs"] {
            let text = format!(r#"{{"{unknown}": true}}"#);
            assert!(serde_json::from_str::<TlsConfig>(&text).is_err(), "{unknown}");
        }
    }

    #[test]
    fn files_are_read_whole_and_a_missing_one_is_named_by_its_field() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        assert_eq!(TlsConfig::default().authorities(), Ok(None));
        assert_eq!(TlsConfig::default().identity(), Ok(None));
        let tls = TlsConfig {
            ca_file: Some(file("canary-ca")),
            certificate_file: Some(file("canary-certificate")),
            key_file: Some(file("canary-key")),
        };
        let missing = tls.authorities().expect_err("there is none");
        assert_eq!((missing.field.as_str(), missing.what.contains("canary")), ("tls.ca_file", false), "{missing}");
        assert_eq!(tls.identity().expect_err("there is none").field, "tls.certificate_file");
        std::fs::write(file("canary-certificate"), "certificate\n").expect("written");
        let missing = tls.identity().expect_err("there is no key");
        assert_eq!((missing.field.as_str(), missing.what.contains("canary")), ("tls.key_file", false), "{missing}");
        std::fs::write(file("canary-key"), [0xff, 0]).expect("written");
        std::fs::write(file("canary-ca"), "authority").expect("written");
        assert_eq!(tls.identity(), Ok(Some((b"certificate\n".to_vec(), vec![0xff, 0]))));
        assert_eq!(tls.authorities(), Ok(Some(b"authority".to_vec())));
    }

    #[cfg(any(feature = "nats", feature = "redis"))]
    #[test]
    fn there_is_a_provider_once_it_is_needed_and_it_stays() {
        choose_provider();
        let chosen = rustls::crypto::CryptoProvider::get_default().expect("one was chosen");
        choose_provider();
        assert!(std::sync::Arc::ptr_eq(chosen, rustls::crypto::CryptoProvider::get_default().expect("the same")));
    }
}
