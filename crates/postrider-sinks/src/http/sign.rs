//! Signatures of the Standard Webhooks specification: HMAC-SHA256 over `id.timestamp.body`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use postrider_core::sabotage::{self, Defect};
use secrecy::zeroize::Zeroizing;
use sha2::Sha256;
use uuid::Uuid;

use crate::problem::ConfigProblem;
use crate::setting::Secret;

const PREFIX: &str = "whsec_";
/// More signatures than this would mean that keys are not taken out of use.
const MOST_KEYS: usize = 8;

/// Signs with one key or, while receivers move from one to the next, with several.
pub(super) struct Signer(Vec<Zeroizing<Vec<u8>>>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer with {} keys", self.0.len())
    }
}

impl Signer {
    pub(super) fn new(keys: &[Secret]) -> Result<Self, ConfigProblem> {
        match Self::problems(keys).into_iter().next() {
            Some(problem) => Err(problem),
            None => keys.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self),
        }
    }

    /// All that is wrong with the keys.
    pub(super) fn problems(keys: &[Secret]) -> Vec<ConfigProblem> {
        if keys.len() > MOST_KEYS {
            let what = format!("there are more than {MOST_KEYS}; remove old ones");
            return vec![ConfigProblem::new("signing_keys", what)];
        }
        keys.iter().enumerate().filter_map(|key| read(key).err()).collect()
    }

    /// The value of `webhook-signature`, or nothing if there is no key.
    pub(super) fn signature(&self, id: Uuid, timestamp: u64, body: &[u8]) -> Option<String> {
        let timestamp = if sabotage::has(Defect::TimeNotSigned) { 0 } else { timestamp };
        let signatures = self.0.iter().filter_map(|key| {
            // It takes keys of any length.
            let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        });
        let signatures: Vec<String> = signatures.collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

fn read((at, key): (usize, &Secret)) -> Result<Zeroizing<Vec<u8>>, ConfigProblem> {
    let decoded = key.expose().strip_prefix(PREFIX).and_then(|text| STANDARD.decode(text).ok());
    let decoded = decoded.map(Zeroizing::new).filter(|bytes| (24..=64).contains(&bytes.len()));
    decoded.ok_or_else(|| {
        let what = "it is no signing key; write whsec_ and 24 to 64 random bytes in base64, for example from: \
                    echo whsec_$(openssl rand -base64 32)";
        ConfigProblem::new(format!("signing_keys[{at}]"), what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s07_keys_are_checked_and_never_repeated() {
        let bytes = |length: usize| format!("whsec_{}", STANDARD.encode(vec![7; length]));
        for good in [bytes(24), bytes(32), bytes(64)] {
            Signer::new(&[Secret::new(good)]).expect("a key");
        }
        for bad in [bytes(23), bytes(65), bytes(32).replace("whsec_", ""), "whsec_canary!".into(), String::new()] {
            let problem = Signer::new(&[Secret::new(bytes(32)), Secret::new(bad.clone())]).expect_err("no key");
            assert_eq!(problem.field, "signing_keys[1]");
            assert!(!problem.to_string().contains("canary"), "{problem}");
        }
    }

    /// Computed with Python's `hmac`.
    #[test]
    fn s07_a_signature_covers_id_time_and_body_as_another_implementation_computes_it() {
        let key = Secret::new(format!("whsec_{}", STANDARD.encode([1; 32])));
        let signature = Signer::new(&[key]).expect("a key").signature(Uuid::nil(), 1_700_000_000, b"\xff\x00");
        assert_eq!(signature.expect("signed"), "v1,x5JYihbfL0JadFqrmhKTcnq7fICgoCf+2PuQRXULl2s=");
    }

    #[test]
    fn s07_each_key_gives_a_signature() {
        let key = |byte: u8| Secret::new(format!("whsec_{}", STANDARD.encode([byte; 32])));
        let one = Signer::new(&[key(1)]).expect("a key");
        let both = Signer::new(&[key(1), key(2)]).expect("two keys");
        let sign = |signer: &Signer| signer.signature(Uuid::nil(), 1_700_000_000, b"\xff\x00").expect("signed");
        let (one, both) = (sign(&one), sign(&both));
        assert!(one.starts_with("v1,") && one.len() == 3 + 44);
        assert_eq!(both.split(' ').next(), Some(one.as_str()));
        assert_eq!(both.split(' ').count(), 2);
        assert_eq!(Signer::new(&[]).expect("none").signature(Uuid::nil(), 0, b""), None);
    }
}
