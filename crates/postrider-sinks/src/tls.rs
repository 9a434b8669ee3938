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

fn read(field: &str, path: &Path) -> Result<Vec<u8>, ConfigProblem> {
    std::fs::read(path).map_err(|error| ConfigProblem::new(field, format!("it cannot be read: {}", error.kind())))
}
